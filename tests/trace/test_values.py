"""Detail 2 looks at what the watch names: values that fit together, in the layers, steps and positions asked for."""

import math
from typing import Any

import pytest
import torch
from traced_runs import generate, llm_of

from minivllm.config import EngineConfig, TraceWatch
from minivllm.errors import InputError
from minivllm.sampling_params import SamplingParams
from minivllm.trace import Trace

NUM_LAYERS = 2


def watched(path: Any, name: str = "three", backend: str = "torch", **watch: Any) -> Trace:
    settings = {"multiprocess": False, "trace_detail": 2, "trace_watch": TraceWatch(**watch), "trace": str(path)}
    settings["attention_backend"] = backend
    with llm_of(name, **settings) as llm:
        generate(llm, name)
    return Trace.load(path)


@pytest.fixture(scope="module", params=["torch", "fast"])
def trace(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trace:
    path = tmp_path_factory.mktemp("watched") / "trace.jsonl"
    return watched(
        path,
        backend=request.param,
        steps=(1, 3),
        layers=(1,),
        positions=tuple(range(60)),
        kv_heads=(0,),
        weights_on=tuple(range(60)),
        early_layers=(0, NUM_LAYERS - 1),
    )


def of_layer(trace: Trace, kind: str, step: int, layer: int) -> Any:
    (event,) = (event for event in trace.filter(kind=kind, step=step) if event.layer == layer)
    return event


def test_the_header_says_what_was_watched(trace: Trace) -> None:
    assert trace.header.watch["steps"] == [1, 3]
    assert trace.header.watch["tensors"] == ["query", "key", "value", "output"]


def test_only_watched_steps_and_layers_have_values(trace: Trace) -> None:
    for event in trace.filter(kind=("attention", "do_kv_cache_update")):
        assert bool(event.keys) == (event.step in (1, 3) and event.layer == 1), event
    for event in trace.filter(kind="model_forward"):
        assert bool(event.layer_norms) == bool(event.early_candidates) == (event.step in (1, 3))
        assert event.hidden_states_norms
    assert all(event.candidates for event in trace.filter(kind="sampler.forward"))


def test_what_is_read_is_what_was_written(trace: Trace) -> None:
    """Rows of the third step read, at the positions of the first step, what the first step wrote there."""
    batch = trace.filter(kind="prepare_inputs", step=1)[0]
    written, read = of_layer(trace, "do_kv_cache_update", 1, 1), of_layer(trace, "attention", 3, 1)
    assert written.watched == list(range(batch.num_tokens))
    for row, (start, end) in enumerate(zip(batch.query_start_loc, batch.query_start_loc[1:], strict=False)):
        for tensor in ("keys", "values"):
            expected = [heads[0] for heads in getattr(written, tensor)[start:end]]
            assert getattr(read, tensor)[row][0][: end - start] == expected


def test_output_is_the_softmax_of_the_scores_times_the_values(trace: Trace) -> None:
    read = of_layer(trace, "attention", 3, 1)
    positions = trace.filter(kind="prepare_inputs", step=3)[0].positions
    for row, position in enumerate(positions):
        keys, values = torch.tensor(read.keys[row][0]), torch.tensor(read.values[row][0])
        query = torch.tensor(read.query[row][0])
        weights = (keys @ query / math.sqrt(len(query))).softmax(dim=0)
        assert len(weights) == position + 1
        torch.testing.assert_close(weights @ values, torch.tensor(read.output[row][0]), atol=1e-5, rtol=1e-4)
        by_head = torch.tensor(read.weights[row])  # [positions, heads]
        torch.testing.assert_close(by_head[:, 0], weights, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(by_head.sum(dim=0), torch.ones(by_head.shape[1]))


def test_weights_are_of_every_layer(trace: Trace) -> None:
    layers = [event.layer for event in trace.filter(kind="attention", step=3) if event.weights]
    assert layers == list(range(NUM_LAYERS))


def test_after_the_last_layer_the_head_says_what_is_sampled_from(trace: Trace) -> None:
    forward, sampler = trace.filter(kind=("model_forward", "sampler.forward"), step=3)
    early = forward.early_candidates[NUM_LAYERS - 1]
    assert [[c.token_id for c in row] for row in early] == [[c.token_id for c in row] for row in sampler.candidates]
    assert forward.early_candidates[0] != early
    assert [len(norms) for norms in forward.layer_norms] == [forward.num_tokens] * NUM_LAYERS


def test_by_itself_detail_2_watches_every_step_and_no_position(tmp_path: Any) -> None:
    trace = watched(tmp_path / "trace.jsonl", "plain")
    assert all(event.layer_norms for event in trace.filter(kind="model_forward"))
    assert not any(event.keys or event.watched for event in trace.filter(kind=("attention", "do_kv_cache_update")))


def test_tensors_that_nobody_asked_for_are_left_out(tmp_path: Any) -> None:
    trace = watched(tmp_path / "trace.jsonl", "plain", positions=(0,), tensors=("query", "value"))
    read, written = of_layer(trace, "attention", 1, 0), of_layer(trace, "do_kv_cache_update", 1, 0)
    assert read.query and not read.output
    assert written.values and not written.keys


def test_the_likeliest_tokens_by_both_logits(tmp_path: Any) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", multiprocess=False, trace_detail=2, trace=str(path)) as llm:
        llm.generate("fox", SamplingParams(temperature=1.0, top_k=2, seed=0, max_tokens=1), use_tqdm=False)
    (row,) = Trace.load(path).filter(kind="sampler.forward")[0].candidates
    assert [c.processed_logprob is not None for c in row] == [True, True] + [False] * 8
    assert sum(math.exp(c.processed_logprob) for c in row[:2]) == pytest.approx(1, abs=1e-4)
    assert [c.logprob for c in row] == sorted((c.logprob for c in row), reverse=True)


def test_a_redacted_trace_has_no_values(trace: Trace) -> None:
    redacted = trace.redact()
    assert of_layer(redacted, "attention", 3, 1).query == 3
    assert redacted.filter(kind="model_forward", step=3)[0].early_candidates == 2


@pytest.mark.parametrize(
    "watch, words",
    [
        ({"layers": [0]}, ["layers", "tuple"]),
        ({"steps": (0,)}, ["steps=(0,)", "from 1"]),
        ({"positions": (-1,)}, ["positions=(-1,)", "from 0"]),
        ({"tensors": ("scores",)}, ["scores", "query, key, value, output"]),
    ],
)
def test_a_wrong_watch_is_refused(watch: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        TraceWatch(**watch)
    assert all(word in str(error.value) for word in words)


def test_a_watch_must_be_a_watch() -> None:
    with pytest.raises(InputError, match="must be a TraceWatch"):
        EngineConfig(trace_watch={"steps": (1,)})
