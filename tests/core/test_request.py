"""A request's end, and the order in which requests wait."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.core.request import Request, RequestStatus, check_stop, update_request_with_output
from minivllm.core.request_queue import create_request_queue
from minivllm.engine.messages import FinishReason
from minivllm.sampling_params import SamplingParams

EOS = 2


def make_request(
    name: str = "r", prompt_len: int = 3, priority: int = 0, arrival_time: float = 0.0, **fields: Any
) -> Request:
    params = SamplingParams(temperature=0, **fields)
    params.set_stop_tokens(EOS)
    return Request(name, [9] * prompt_len, params, arrival_time=arrival_time, priority=priority)


# ---------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("fields", "tokens", "status", "stop_reason"),
    [
        ({"max_tokens": 5}, [4, EOS], RequestStatus.FINISHED_STOPPED, None),
        ({"max_tokens": 5, "ignore_eos": True}, [4, EOS], None, None),
        ({"max_tokens": 5, "stop_token_ids": [7]}, [4, 7], RequestStatus.FINISHED_STOPPED, 7),
        ({"max_tokens": 5, "stop_token_ids": [EOS]}, [EOS], RequestStatus.FINISHED_STOPPED, None),
        ({"max_tokens": 5, "stop_token_ids": [EOS], "ignore_eos": True}, [EOS], RequestStatus.FINISHED_STOPPED, EOS),
        ({"max_tokens": 2}, [4, 5], RequestStatus.FINISHED_LENGTH_CAPPED, None),
        ({"max_tokens": 1}, [EOS], RequestStatus.FINISHED_STOPPED, None),
        ({"max_tokens": 5, "min_tokens": 3}, [4, EOS], None, None),
        ({"max_tokens": 5, "min_tokens": 2}, [4, EOS], RequestStatus.FINISHED_STOPPED, None),
        ({"max_tokens": 99}, [4] * 7, RequestStatus.FINISHED_LENGTH_CAPPED, None),  # max_model_len is 10
    ],
)
def test_check_stop(
    fields: dict[str, Any], tokens: list[int], status: RequestStatus | None, stop_reason: int | None
) -> None:
    request = make_request(**fields)
    ended = False
    for token in tokens:
        assert not ended
        request.append_output_token_ids(token)
        ended = check_stop(request, max_model_len=10)
    assert ended is (status is not None)
    assert request.status is (status or RequestStatus.WAITING)
    assert request.stop_reason == stop_reason
    assert request.is_finished is ended


@given(st.lists(st.integers(3, 5), min_size=1, max_size=6))
def test_tokens_after_the_last_one_do_not_count(tokens: list[int]) -> None:
    """Also when several come at once."""
    request = make_request(max_tokens=4, stop_token_ids=[5])
    kept, ended = update_request_with_output(request, tokens, max_model_len=100)
    wanted = tokens[: tokens.index(5) + 1] if 5 in tokens[:4] else tokens[:4]
    assert kept == request.output_token_ids == wanted
    assert ended is (5 in wanted or len(wanted) == 4)


def test_finish_reasons() -> None:
    request = make_request()
    reasons = {}
    for status in RequestStatus:
        request.status = status
        reasons[status.name] = request.get_finished_reason()
    assert reasons == {
        "WAITING": None,
        "RUNNING": None,
        "PREEMPTED": None,
        "FINISHED_STOPPED": FinishReason.STOP,
        "FINISHED_LENGTH_CAPPED": FinishReason.LENGTH,
        "FINISHED_ABORTED": FinishReason.ABORT,
        "FINISHED_ERROR": FinishReason.ERROR,
    }
    assert [str(reason) for reason in FinishReason] == ["stop", "length", "abort", "error"]


# ---------------------------------------------------------------------- how it waits


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int]]:
    operations = st.sampled_from(("add", "add", "add", "prepend", "pop", "remove"))
    return draw(st.lists(st.tuples(operations, st.integers(-9, 9)), max_size=20))


@given(st.sampled_from(("fcfs", "priority")), programs())
def test_queues_are_sorted_lists(policy: str, program: list[tuple[str, int]]) -> None:
    queue = create_request_queue(policy)
    model: list[Request] = []
    for clock, (operation, number) in enumerate(program):
        if operation in ("add", "prepend"):
            request = make_request(f"r{clock}", priority=number, arrival_time=float(clock // 2))
            if operation == "add":
                queue.add_request(request)
                model.append(request)
            else:
                queue.prepend_request(request)
                model.insert(0, request)
            if policy == "priority":
                model.sort(key=lambda r: (r.priority, r.arrival_time, r.request_id))
        elif model and operation == "pop":
            assert queue.peek_request() is model[0]
            assert queue.pop_request() is model.pop(0)
        elif model:
            queue.remove_request(model.pop(number % len(model)))
        assert list(queue) == model
        assert len(queue) == len(model)
        assert bool(queue) is bool(model)
    assert [queue.pop_request() for _ in model] == model


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_removing_many_leaves_the_order(policy: str) -> None:
    random = Random(0)
    queue = create_request_queue(policy)
    requests = [make_request(f"r{i}", priority=random.randint(0, 40), arrival_time=float(i)) for i in range(100)]
    for request in requests:
        queue.add_request(request)
    for request in random.sample(requests, 60):
        queue.remove_request(request)
        requests.remove(request)
    if policy == "priority":
        requests.sort(key=lambda request: (request.priority, request.arrival_time))
    assert [queue.pop_request() for _ in range(40)] == requests


@pytest.mark.parametrize("status", RequestStatus)
def test_a_status_is_printed_by_name(status: RequestStatus) -> None:
    assert str(status) == f"{status}" == status.name
