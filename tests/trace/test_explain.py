"""`why`: the right reason, with the right numbers, for every (request, step) pair that was worked out by hand."""

from typing import Any

import pytest
from expected_reasons import EXPECTED, EXPECTED_ENDS
from told_scenarios import scenario_trace

from minivllm.trace.explain import Explanation, explain


def numbers_of(explanation: Explanation, expected: dict[str, Any]) -> dict[str, Any]:
    return {name: explanation.numbers.get(name, False) for name in expected}


@pytest.mark.parametrize(("scenario", "request_id", "step", "verdict", "numbers"), EXPECTED)
def test_one_step(scenario: str, request_id: str, step: int, verdict: str, numbers: dict[str, Any]) -> None:
    explanation = explain(scenario_trace(scenario), request_id, step)
    assert (explanation.verdict, numbers_of(explanation, numbers)) == (verdict, numbers), explanation.sentence


@pytest.mark.parametrize(("scenario", "request_id", "verdict", "numbers"), EXPECTED_ENDS)
def test_a_whole_life(scenario: str, request_id: str, verdict: str, numbers: dict[str, Any]) -> None:
    explanation = explain(scenario_trace(scenario), request_id)
    assert (explanation.verdict, numbers_of(explanation, numbers)) == (verdict, numbers), explanation.sentence
