"""The waiting queues, beside a sorted list: whatever comes, goes and is taken out, the order is right."""

from hypothesis import example, given
from hypothesis import strategies as st

from minivllm.core.request import Request
from minivllm.core.request_queue import create_request_queue
from minivllm.sampling_params import SamplingParams


def make_request(number: int, priority: int) -> Request:
    return Request(f"r{number}", [1], SamplingParams(), arrival_time=float(number), priority=priority)


@given(
    st.sampled_from(["fcfs", "priority"]),
    st.lists(st.tuples(st.sampled_from(["add", "prepend", "pop", "remove", "remove_some"]), st.integers(0, 9))),
)
@example("priority", [("add", 0), ("add", 5), ("add", 1), ("remove", 0)])  # what is left of the heap is none
def test_a_queue_is_in_order(policy: str, calls: list[tuple[str, int]]) -> None:
    queue = create_request_queue(policy)
    expected: list[Request] = []
    for number, (call, value) in enumerate(calls):
        if call == "add":
            expected.append(make_request(number, value))
            queue.add_request(expected[-1])
        elif call == "prepend":
            expected.insert(0, make_request(number, value))
            queue.prepend_request(expected[0])
        elif call == "pop" and expected:
            assert queue.pop_request() is expected.pop(0)
        elif call == "remove" and expected:
            queue.remove_request(expected.pop(value % len(expected)))
        elif call == "remove_some":
            gone, expected = expected[value % 3 :: 3], [one for i, one in enumerate(expected) if i % 3 != value % 3]
            queue.remove_requests(gone)
        if policy == "priority":
            expected.sort(key=lambda one: (one.priority, one.arrival_time))
        assert list(queue) == expected and len(queue) == len(expected)
        assert not expected or queue.peek_request() is expected[0]
