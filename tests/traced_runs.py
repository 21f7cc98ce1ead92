"""Runs of a tiny model with a trace, made once a session; a recorder that also takes pictures of live objects."""

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tiny_models import tiny_model

from minivllm.outputs import RequestOutput
from minivllm.sampling_params import SamplingParams
from minivllm.trace import MemorySink, Recorder, Trace
from minivllm.trace.clock import LogicalClock
from minivllm.trace.merge import merge
from minivllm.trace.recorder import Frame
from minivllm.trace.schema import Process, new_header
from minivllm.trace.store import Part

SMALL = {
    "dtype": "float32",
    "block_size": 4,
    "num_gpu_blocks_override": 41,
    "max_model_len": 120,
    "max_num_batched_tokens": 64,
}
PROMPTS = ["The dog sleeps", "A cache keeps what was computed before", "the fox runs home"]


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 12, "ignore_eos": True, **fields})


class Scenario(NamedTuple):
    """One call of generate, and the settings that make it interesting."""

    prompts: Any
    params: Callable[[], SamplingParams]
    settings: Mapping[str, Any] = MappingProxyType({})
    generate: Mapping[str, Any] = MappingProxyType({})


SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario(PROMPTS[:1], greedy),
    "three": Scenario(PROMPTS, greedy),
    "chunked": Scenario(
        PROMPTS, greedy, {"max_num_batched_tokens": 5, "max_num_seqs": 4, "long_prefill_token_threshold": 3}
    ),
    "prefix": Scenario([PROMPTS[1]] * 3 + [PROMPTS[1] + PROMPTS[0]], greedy, {"max_num_seqs": 2}),
    "preempt": Scenario(PROMPTS, lambda: greedy(max_tokens=20), {"num_gpu_blocks_override": 12, "max_model_len": 40}),
    "priority": Scenario(
        PROMPTS,
        lambda: greedy(max_tokens=20),
        {"num_gpu_blocks_override": 12, "max_model_len": 40, "scheduling_policy": "priority", "max_num_seqs": 2},
        {"priority": [2, 1, 0]},
    ),
    "stop": Scenario(PROMPTS[:2], lambda: greedy(stop=["333"], max_tokens=60)),
    "seats": Scenario(PROMPTS, greedy, {"max_num_seqs": 1, "enable_prefix_caching": False}),
    "samples": Scenario(
        PROMPTS[:1], lambda: SamplingParams(n=3, temperature=0.9, seed=1, max_tokens=8, ignore_eos=True)
    ),
    "logprobs": Scenario(PROMPTS[:2], lambda: greedy(logprobs=2, prompt_logprobs=1, max_tokens=4)),
}


class Run(NamedTuple):
    trace: Trace
    outputs: list[RequestOutput]
    path: Path

    @property
    def token_ids(self) -> list[list[int]]:
        return [list(completion.token_ids) for output in self.outputs for completion in output.outputs]


def record(name: str, **settings: Any) -> Run:
    """Run a scenario with a trace; once a session for the same settings."""
    return _recorded(name, tuple(sorted(settings.items())))


def llm_of(name: str, **settings: Any) -> Any:
    """The LLM that a scenario runs on."""
    from minivllm import LLM

    return LLM(str(tiny_model()), **{**SMALL, **SCENARIOS[name].settings, **settings})


def generate(llm: Any, name: str) -> list[RequestOutput]:
    """The scenario's call of generate."""
    scenario = SCENARIOS[name]
    return llm.generate(scenario.prompts, scenario.params(), use_tqdm=False, **scenario.generate)


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="minivllm-traces-")


@cache
def _recorded(name: str, settings: tuple[tuple[str, Any], ...]) -> Run:
    path = Path(tempfile.mkdtemp(dir=_folder().name)) / f"{name}.jsonl"
    with llm_of(name, trace=str(path), **dict(settings)) as llm:
        outputs = generate(llm, name)
    return Run(Trace.load(path), outputs, path)


class SnapshotRecorder(Recorder):
    """A recorder that also takes pictures of live objects, at the exit of every event.

    look(kind): the picture, or None for none.
    """

    def __init__(self, look: Callable[[str], dict[str, Any] | None]) -> None:
        super().__init__(MemorySink(), clock=LogicalClock())
        self.look = look
        self.pictures: list[tuple[int, dict[str, Any]]] = []  # (entry of the event, picture at its exit)

    def _leave(self, thread: Any, frame: Frame, *args: Any, **kwargs: Any) -> None:
        super()._leave(thread, frame, *args, **kwargs)
        picture = self.look(frame.kind)
        if picture is not None:
            self.pictures.append((frame.t0, picture))

    def trace(self, num_gpu_blocks: int) -> Trace:
        self.flush()
        header = new_header("logical", 0, Process("caller"), "test", num_gpu_blocks=num_gpu_blocks)
        return Trace(*merge([Part(header, self.sink.lines, True, False)]))
