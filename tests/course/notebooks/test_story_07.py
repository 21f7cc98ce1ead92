"""Notebook 07: the numbers of its story, in the recorded traces. They are the real vLLM's."""

import numpy as np
import pytest

from minivllm.config import CPU_KV_CACHE_BYTES
from minivllm.course.notebook.names import tokens
from minivllm.course.places import repo_path
from minivllm.lessons import facts_07 as facts
from minivllm.trace import Trace, load


def trace(name: str) -> Trace:
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


@pytest.fixture(scope="module")
def rome() -> Trace:
    return trace("values-rome")


def words(found: list[tuple[int, float]], count: int) -> list[tuple[str, float]]:
    return [(tokens([token_id])[0], round(probability, 3)) for token_id, probability in found[:count]]


def test_shapes_along_a_layer() -> None:
    shapes = {what: shape for what, shape, _ in facts.shapes(trace("one-detail1"))}
    assert list(shapes.values()) == [
        "[41, 576]",
        "[41, 960]",
        "[41, 9, 64]",
        "[41, 3, 64]",
        "[41, 9, 64]",
        "[41, 576]",
        "[41, 1536]",
        "[41, 576]",
    ]
    mixing = [what for what, _, of in facts.shapes(trace("one-detail1")) if of != "its own"]
    assert mixing == ["attention"]


def test_one_word_in_two_places() -> None:
    france = trace("values-france")
    (k_28, v_28), (k_44, v_44) = facts.cached(france, 28), facts.cached(france, 44)
    assert abs(v_28 - v_44).max() < 1e-6
    assert round(float(abs(k_28 - k_44).max()), 2) == 5.08
    for k in (k_28, k_44):
        assert np.linalg.norm(k, axis=1).round(2).tolist() == [6.94, 14.55, 7.79]
    with pytest.raises(LookupError):
        facts.cached(france, 300)


def test_the_cost_of_a_token() -> None:
    model = trace("one").header.model
    cell = 2 * model["num_kv_heads"] * model["head_size"] * 4
    block = cell * 16 * model["num_layers"]
    assert (cell, block, CPU_KV_CACHE_BYTES // block, 2 * CPU_KV_CACHE_BYTES // block) == (1536, 737_280, 364, 728)


def test_what_a_head_reads(rome: Trace) -> None:
    head = facts.read_by_head(rome, step=13, layer=16, head=0)
    assert len(head.keys) == 53
    assert {place: round(float(head.weights[place]), 3) for place in (51, 0, 33, 52)} == {
        51: 0.895,
        0: 0.054,
        33: 0.0,
        52: 0.004,
    }
    assert int(head.weights.argmax()) == 51
    assert round(float(head.weights[48:].sum()), 3) == 0.944
    assert round(float(head.weights[:48].sum()), 3) == 0.056
    assert abs(head.weights @ head.values - head.output).max() < 1e-5
    fed = [token_id for event in rome.filter(kind="prepare_inputs") for token_id in event.input_ids]
    assert (tokens(fed)[51], tokens(fed)[33], tokens(fed)[52]) == (" Italy", " Italy", " is")


def test_the_sink(rome: Trace) -> None:
    weights = facts.weights_on(rome, step=13, place=0)
    assert weights.shape == (30, 9)
    assert (round(float(weights.mean()), 2), int((weights > 0.5).sum())) == (0.40, 92)


def test_write_before_read() -> None:
    events = trace("one-detail1").filter(step=1, kind=("do_kv_cache_update", "attention"))
    assert [(event.layer, event.kind) for event in events] == [
        (layer, kind) for layer in range(30) for kind in ("do_kv_cache_update", "attention")
    ]
    assert list(trace("twins").filter(kind="schedule", step=1)[0].num_scheduled_tokens.values()) == [41, 9]


def test_the_last_stop() -> None:
    (logits,) = trace("one").filter(kind="compute_logits", step=1)
    assert (logits.hidden_states_shape, logits.logits_shape) == ([1, 576], [1, 49152])
    found = facts.early(trace("values-early"), 6)
    assert words(found[29], 3)[0] == (" City", 0.316)
    assert words(found[29], 3)[2] == (" Paris", 0.067)
    assert words(found[30], 1) == words(facts.likeliest(trace("values-early"), 6), 1) == [(" Paris", 0.950)]


def test_bfloat16_wavers() -> None:
    assert words(facts.likeliest(trace("hesitation"), 7), 2) == [(" and", 0.541), (",", 0.418)]
    gaps = []
    for name in ("bfloat16", "bfloat16-64"):  # other gaps than vLLM's, which sums in another order
        (first, more), (second, less) = facts.likeliest(trace(name), 7)[:2]
        assert tokens([first, second]) == [" and", ","]
        gaps.append(round(float(np.log(more / less)) / 0.125, 2))
    assert gaps == [2, 3]


def test_names_of_axes() -> None:
    assert facts.moved("abcd", 1, 0) == ["b", "a", "c", "d"]
    assert facts.tiny(1e-6) != facts.tiny(1e-3)
