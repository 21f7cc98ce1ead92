"""Calls of generate and chat answer what the real vLLM 0.22.0 answered: every field, or the same kind of error.

The calls and how they were recorded: traces/vllm-0.22.0/record_calls.py. What differs stands in DIFFERENCES, each with
a row of docs/differences.md; a call that stands there and does not differ is an error too.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest
from proof.lockstep.poisoned_cache import PAGE
from proof.lockstep.recordings import FOLDER

from minivllm import LLM, SamplingParams
from minivllm.sampling_params import RequestOutputKind

RECORDED = json.loads(gzip.decompress((FOLDER / "vllm-0.22.0-calls.json.gz").read_bytes()))
CALLS: dict[str, dict[str, Any]] = {recorded["call"]: recorded for recorded in RECORDED["calls"]}
TROUBLES: dict[str, dict[str, Any]] = {recorded["name"]: recorded for recorded in RECORDED["troubles"]}
TOLERANCE = 1.5e-3  # of logprobs rounded to four decimals; sums may have it once a token

ANOTHER_KIND = "Errors are `InputError` (a `ValueError`) or `ModelError`, also where vLLM raises a `TypeError`"
WRONG_TYPE = "(`detokenize=1`, `max_tokens=2.5`, `True` among a prompt's ids)"
# A piece of the page: the calls that differ so.
NAMED = {
    "| one `priority` for all prompts |": ["generate(FRANCE, G(2), priority=1)"],
    ANOTHER_KIND: [
        "chat(ASK, G(3), chat_template='{{ no end')",
        "chat('Hi', G(3))",
        "generate([504, 'a'], G(2))",
        "generate(None, G(2))",
        "generate(5, G(2))",
        "generate({'text': 'a'}, G(2))",
        "generate(FRANCE, 5)",
        "generate(FRANCE, G(2, bad_words=[' ']))",
    ],
    "a prompt id equal to the vocabulary's size": [
        "generate([49152], G(2))",
    ],
    "| a negative id in a prompt; a stop id outside the vocabulary |": [
        "generate([-1], G(2))",
        "generate(FRANCE, G(3, stop_token_ids=[10**6]))",
        "generate(FRANCE, G(3, stop_token_ids=[-1]))",
    ],
    "on a CPU ignores every seed of a batch": [
        "chat([ASK, HALF], [G(2), S(2)])",
    ],
    "| `True` for a number (`logprobs=True`) |": [
        "generate(FRANCE, G(3, logprobs=True))",
        "generate(FRANCE, G(2, prompt_logprobs=True))",
    ],
    "| NaN for `temperature` or `repetition_penalty` |": [
        "generate(FRANCE, G(3, temperature=nan))",
        "generate(FRANCE, G(3, repetition_penalty=nan))",
    ],
    "| biases and penalties beyond 1e10 |": [
        "generate(FRANCE, G(3, repetition_penalty=1e12))",
        "generate(FRANCE, G(3, repetition_penalty=1e-12))",
        "generate(FRANCE, G(3, logit_bias={504: inf}))",
    ],
    "| a temperature beyond 1e10, a seed from 2**63 |": [
        "generate(FRANCE, S(3, temperature=1e11))",
        "generate(FRANCE, S(2, seed=2**63))",
    ],
    "| `stop`, `stop_token_ids` or `bad_words` as a tuple |": [
        "generate(FRANCE, G(3, stop=('Paris',)))",
    ],
    "| token ids as a tuple or an array |": [
        "generate((504, 3575), G(2))",
    ],
    "| a priority under `fcfs` |": [
        "generate(FRANCE, G(2), priority=[5])",
    ],
    "| masks and biases that leave no token to begin with": [
        "generate(FRANCE, G(3, allowed_token_ids=[504], logit_bias={504: -inf}))",
        "generate(FRANCE, G(3, allowed_token_ids=[2], min_tokens=2))",
    ],
    "| other keys in a prompt that is a dict |": [
        "generate({'prompt': FRANCE, 'unknown': 1}, G(2))",
    ],
}
DIFFERENCES = {call: words for words, calls in NAMED.items() for call in calls}
# The trouble: what vLLM did (in one process the error itself comes, in two EngineDeadError), and a piece of the page.
TROUBLES_ON_THE_PAGE = {
    "detokenize=1": ("hangs", WRONG_TYPE),
    "max_tokens=2.5": ("hangs", WRONG_TYPE),
    "stop_token_ids=[2.5]": (
        "ValueError",
        ANOTHER_KIND,
    ),
    "True among ids": ("hangs", WRONG_TYPE),
    "killed core": ("hangs", "when its core is killed, `generate` never returns"),
    "min_tokens beyond the context": (
        "hangs",
        "never finishes a request whose `min_tokens` is more than",
    ),
    "a stop id outside, with min_tokens": ("EngineDeadError", "a stop id outside the vocabulary, with `min_tokens`"),
    "a negative id": ("OverflowError", "| a negative id in a prompt; a stop id outside the vocabulary |"),
    "a negative id to bias": (
        "ValueError",
        ANOTHER_KIND,
    ),
    "the null block": ("hangs", "takes `max_model_len` = blocks × `block_size`, and then never schedules"),
    "a seeded chunk": ("EngineDeadError", "draws for unfinished prompts too"),
    "interrupted": ('["KeyboardInterrupt"], 4', "interrupted in `generate` (Ctrl-C)"),
    "a seed in company": ("[false, false, false]", "on a CPU ignores every seed of a batch"),
    "logprobs of a cached prompt": ("OverflowError", "uninitialised memory for the tokens from the cache"),
}


def recorder() -> ModuleType:
    spec = spec_from_file_location("record_calls", FOLDER / "record_calls.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDER = recorder()


class Engines:
    """An LLM for each engine of the recording, made when it is asked for."""

    def __init__(self) -> None:
        self.llms: dict[str, LLM] = {}

    def answer(self, engine: str, call: str) -> dict[str, Any]:
        if engine not in self.llms:
            self.llms[engine] = LLM(multiprocess=False, **RECORDER.settings(engine))
        llm = self.llms[engine]
        assert llm.reset_prefix_cache()
        names = RECORDER.namespace(llm, SamplingParams, RequestOutputKind.FINAL_ONLY, core_pid)
        return json.loads(json.dumps(RECORDER.answer_of(call, names)))


def core_pid(llm: LLM) -> int:
    return llm.llm_engine.engine_core.manager.process.pid


@pytest.fixture(scope="module")
def engines(default_model_path: object) -> Iterator[Engines]:
    made = Engines()
    yield made
    for llm in made.llms.values():
        llm.shutdown()


def difference(theirs: Any, ours: Any, where: str = "answer") -> str | None:
    """The first place at which two answers differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs:
            if key not in ours:
                return f"{where}.{key}: {theirs[key]!r}, here no such field"
            if key == "request_id":
                continue  # see with_relative_ids
            if (found := difference(theirs[key], ours[key], f"{where}.{key}")) is not None:
                return found
        return None if theirs.keys() >= ours.keys() else f"{where}: here also {sorted(ours.keys() - theirs.keys())}"
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for place, pair in enumerate(zip(theirs, ours, strict=True)):
            if (found := difference(*pair, f"{where}[{place}]")) is not None:
                return found
        return None
    if isinstance(theirs, float) and isinstance(ours, float):
        allowed = TOLERANCE * (10 if where.endswith("cumulative_logprob") else 1)
        return None if theirs == ours or abs(theirs - ours) <= allowed else f"{where}: {theirs}, here {ours}"
    return None if theirs == ours and type(theirs) is type(ours) else f"{where}: {theirs!r}, here {ours!r}"


def request_ids(answer: Any) -> list[int]:
    """All request ids in an answer, in order."""
    if isinstance(answer, dict):
        own = [int(answer["request_id"])] if "request_id" in answer else []
        return own + [found for value in answer.values() for found in request_ids(value)]
    return [found for value in answer for found in request_ids(value)] if isinstance(answer, list) else []


def compare(recorded: dict[str, Any], ours: dict[str, Any]) -> str | None:
    if "raises" in recorded:
        if "raises" not in ours:
            return f"raises {recorded['raises'][0]}, here it answers"
        kinds = {"ValueError", "TypeError"} & set(recorded["raises"])
        shared = kinds & set(ours["raises"])
        return None if shared else f"raises {recorded['raises']}, here {ours['raises']}: {ours['message']}"
    if "raises" in ours:
        return f"answers, here raises {ours['raises'][0]}: {ours['message']}"
    theirs, mine = request_ids(recorded["answer"]), request_ids(ours["answer"])
    if [number - theirs[0] for number in theirs] != [number - mine[0] for number in mine]:
        return f"request ids {theirs}, here {mine}"
    return difference(recorded["answer"], ours["answer"])


@pytest.mark.parametrize("call", CALLS)
def test_the_answer_is_vllm_s(call: str, engines: Engines) -> None:
    recorded = CALLS[call]
    found = compare(recorded, engines.answer(RECORDER.engine_of(recorded["family"]), call))
    if call in DIFFERENCES:
        assert found is not None, "it is named as a difference, and is none"
    else:
        assert found is None


def test_at_least_150_calls_were_recorded() -> None:
    assert len(CALLS) >= 150
    assert [call for calls in RECORDER.CALLS.values() for call in calls] == list(CALLS)
    assert list(RECORDER.TROUBLES) == list(TROUBLES)


@pytest.mark.parametrize("call", DIFFERENCES)
def test_every_difference_stands_on_the_page(call: str) -> None:
    assert call in CALLS
    assert DIFFERENCES[call] in PAGE.read_text()


@pytest.mark.parametrize("name", TROUBLES)
def test_what_troubles_vllm_stands_on_the_page(name: str) -> None:
    outcome, words = TROUBLES_ON_THE_PAGE[name]
    recorded = TROUBLES[name]
    assert outcome in json.dumps(
        {key: recorded[key] for key in recorded if key in ("hangs", "ends", "raises", "answer")}
    )
    assert words in PAGE.read_text()


if __name__ == "__main__":  # what differs, for the table
    made = Engines()
    for call, recorded in CALLS.items():
        if (found := compare(recorded, made.answer(RECORDER.engine_of(recorded["family"]), call))) is not None:
            print(f"{call!r}: {found[:230]}", flush=True)
    sys.stdout.flush()
    os._exit(0)
