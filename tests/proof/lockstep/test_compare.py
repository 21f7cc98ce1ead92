"""What counts as equal, and which difference is the first."""

from typing import Any

import pytest

from minivllm.proof.lockstep.compare import first_difference

NAN, INF = float("nan"), float("inf")


def engine(**changes: Any) -> dict[str, Any]:
    completion = {
        "index": 0,
        "text": "a",
        "token_ids": [5],
        "finish_reason": "stop",
        "stop_reason": None,
        "cumulative_logprob": -1.0,
        "logprobs": [
            {"5": {"logprob": -1.0, "rank": 1, "token": "a"}, "6": {"logprob": -2.0, "rank": 2, "token": "b"}}
        ],
    }
    return {"steps": [], "outputs": [{"request_id": "0", "outputs": [completion | changes]}]}


def logprobs(logprob: float = -1.0, rank: int = 1, token: str = "a") -> list[dict[str, Any]]:
    return [{"5": {"logprob": logprob, "rank": rank, "token": token}, "6": {"logprob": -2.0, "rank": 2, "token": "b"}}]


@pytest.mark.parametrize(
    ("theirs", "ours", "equal"),
    [
        ({}, {}, True),
        ({}, {"text": "b"}, False),
        ({}, {"stop_reason": 0}, False),
        ({"stop_reason": 1}, {"stop_reason": True}, False),
        ({}, {"token_ids": [5, 6]}, False),
        ({}, {"cumulative_logprob": -1.009}, True),
        ({}, {"cumulative_logprob": -1.02}, False),
        ({}, {"logprobs": logprobs(-1.0009)}, True),
        ({}, {"logprobs": logprobs(-1.002)}, False),
        ({"logprobs": logprobs(NAN)}, {"logprobs": logprobs(NAN)}, True),
        ({"logprobs": logprobs(-INF)}, {"logprobs": logprobs(-INF)}, True),
        ({"logprobs": logprobs(-INF)}, {"logprobs": logprobs(-9.0)}, False),
        ({"logprobs": logprobs(rank=50)}, {"logprobs": logprobs(rank=51)}, False),
        ({"logprobs": logprobs(rank=5000)}, {"logprobs": logprobs(rank=5001)}, True),
        ({"logprobs": logprobs(rank=5000)}, {"logprobs": logprobs(rank=5100)}, False),
        ({}, {"logprobs": logprobs(token="c")}, False),
        ({}, {"logprobs": [dict(reversed(logprobs()[0].items()))]}, False),
        ({}, {"logprobs": None}, False),
    ],
)
def test_answers_are_equal_but_for_rounding(theirs: dict[str, Any], ours: dict[str, Any], equal: bool) -> None:
    assert (first_difference("engine", engine(**theirs), engine(**ours)) is None) is equal


@pytest.mark.parametrize(
    ("theirs", "ours", "equal"),
    [
        ([-1.0, None], [-1.0009, None], True),
        ([-1.0, None], [-1.002, None], False),
        ([-1.0, None], [-1.0, -61.0], True),
        ([-1.0, -70.0], [-1.0, None], True),
        ([-1.0, None], [-1.0, -59.0], False),
        ([-1.0, None], None, False),
    ],
)
def test_what_is_too_unlikely_counts_as_masked(theirs: list, ours: list | None, equal: bool) -> None:
    case = {"rows": [{"processed_logprobs": theirs, "greedy_token": None}]}
    replayed = [{"processed_logprobs": ours, "greedy_token": None}]
    assert (first_difference("sampler", case, replayed) is None) is equal


def step(**changes: Any) -> dict[str, Any]:
    return {
        "step": 0,
        "num_scheduled_tokens": [["a", 4]],
        "cached": [{"id": "a", "new_block_ids": [3]}],
        "outputs": [{"id": "a", "new_token_ids": [7]}],
        "free_blocks_after_update": [1, 2],
    } | changes


def test_the_first_difference_is_the_one_that_comes_about_first() -> None:
    ours = step(outputs=[], cached=[{"id": "a", "new_block_ids": [4]}], free_blocks_after_update=[2, 1])
    found = first_difference("scheduler", {"steps": [step(), step()]}, [step(), ours])
    assert (found.what, found.index, found.phase, found.field) == ("step", 1, "schedule", "cached[0].new_block_ids")
    assert (found.ours, found.theirs) == ([4], [3])


def test_a_step_too_few_or_too_many_is_a_difference() -> None:
    for ours, count in (([step()], 1), ([step()] * 3, 2)):
        found = first_difference("scheduler", {"steps": [step()] * 2}, ours)
        assert (found.index, found.field) == (count, "")
        assert "nothing" in (repr(found.ours), repr(found.theirs))


def test_a_key_too_few_or_too_many_is_a_difference() -> None:
    less = {key: value for key, value in step().items() if key != "outputs"}
    assert first_difference("scheduler", {"steps": [step()]}, [less]).field == "outputs"
    assert first_difference("scheduler", {"steps": [less]}, [step()]).phase == "update_from_output"
