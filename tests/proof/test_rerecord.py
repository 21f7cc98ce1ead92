"""When a recording counts as the same: to the event, but for the last digits of what a model computed."""

import msgspec

from minivllm.proof.rerecord import first_difference
from minivllm.trace import Trace
from minivllm.trace.events_worker import SamplerForward
from minivllm.trace.schema import Header, Process, new_header
from minivllm.trace.values import Candidate

HEADER = new_header("logical", 2, Process("caller"), "1.0")
ROW = [(7, -0.1), (8, -2.5), (9, -4.0), (3, -5.0)]


def trace(row: list[tuple[int, float]], header: Header = HEADER) -> Trace:
    candidates = [Candidate(token_id, logprob, logprob) for token_id, logprob in row]
    return Trace(header, [SamplerForward(0, "caller", 0, 1000, candidates=[candidates])])


def difference(row: list[tuple[int, float]]) -> str | None:
    return first_difference(trace(ROW), trace(row))


def test_last_digits_make_no_difference() -> None:
    assert difference([(token_id, logprob + 1e-4) for token_id, logprob in ROW]) is None


def test_tokens_that_are_equally_likely_may_change_places() -> None:
    close = [(7, -0.1), (8, -2.5), (9, -2.5001)]
    assert first_difference(trace(close), trace([close[0], close[2], close[1]])) is None
    assert first_difference(trace(close), trace([*close[:2], (4, -2.5001)])) is None  # the list might end elsewhere


def test_another_value_or_another_token_makes_one() -> None:
    assert "event 0 sampler.forward, candidates[0], logprobs[1]" in difference([ROW[0], (8, -2.6), *ROW[2:]])
    assert "token 8" in difference([ROW[0], (5, -2.5), *ROW[2:]])
    assert "token 7" in difference([(8, -0.1), (7, -2.5), *ROW[2:]])
    assert difference(ROW[:3]) is not None


def test_versions_make_no_difference_and_settings_do() -> None:
    later = msgspec.structs.replace(HEADER, minivllm="2.0", environment={"torch": "9"}, parts_sha256={"scheduler": "0"})
    assert first_difference(trace(ROW), trace(ROW, later)) is None
    other = msgspec.structs.replace(HEADER, watch={"layers": [1]})
    assert "header, watch" in first_difference(trace(ROW), trace(ROW, other))
