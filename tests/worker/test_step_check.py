"""Numbers that would lead a kernel out of the cache are refused before it runs, under every backend, with row, value,
limit and the parts that they may come from. Without parts nothing is looked at, unless one asks for it."""

from pathlib import Path

import pytest
from faults import fault
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.errors import EngineDeadError
from minivllm.parts import BEFORE_KERNELS, SEAMS
from minivllm.worker.model_runner import ModelRunner
from minivllm.worker.step_check import CheckedModelRunner

PROMPTS = [{"prompt_token_ids": [5 + i, *range(9, 9 + 7 * i)]} for i in range(4)]
SETTINGS = {"device": "cpu", "num_gpu_blocks_override": 64, "max_model_len": 128, "multiprocess": False}
PART = """
from minivllm.worker.batch import flatten as own

def flatten(*args, **kwargs):
    batch = own(*args, **kwargs)
    {change}
    return batch
"""


def part(folder: Path, change: str) -> dict[str, str]:
    path = folder / "mine.py"
    path.write_text(PART.format(change=change))
    return {"flatten": f"{path}:flatten"}


def answers(**settings) -> list[list[int]]:
    with LLM(str(tiny_model()), **SETTINGS | settings) as llm:
        params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
        return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, params, use_tqdm=False)]


@fault(
    "Memory and kernels",
    "a part that makes slots beyond the cache",
    how="`parts={'flatten': ...}`, whose slots are 66 and 100,000 times too large, under every attention backend",
    then="IndexError with row, value, limit and the part, before a kernel runs",
)
@pytest.mark.parametrize("factor", [66, 100_000])
@pytest.mark.parametrize("backend", ["fast", "torch", "reference", "triton"])
def test_slots_beyond_the_cache(backend: str, factor: int, tmp_path: Path) -> None:
    parts = part(tmp_path, f"batch.slot_mapping *= {factor}")
    with pytest.raises(IndexError) as raised:
        answers(attention_backend=backend, parts=parts)
    text = str(raised.value)
    assert "slot_mapping of row 0 (request 0-" in text and f"has {16 * factor} at 0" in text
    assert "outside of -1 to 1023 (the cache has 64 blocks of 16 tokens)" in text
    assert f"It may come from parts['flatten']='{tmp_path}/mine.py:flatten'." in text


def test_with_a_process_of_its_own_the_core_says_it_with_its_last_words(tmp_path: Path) -> None:
    parts = part(tmp_path, "batch.slot_mapping *= 100_000")
    with pytest.raises(EngineDeadError, match=r"(?s)IndexError: slot_mapping of row 0 .*parts\['flatten'\]"):
        answers(attention_backend="fast", multiprocess=True, parts=parts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("batch.slot_mapping[-1] = -2", r"slot_mapping of row 3 .* has -2 at \d+, outside of -1 to 1023"),
        ("batch.positions[0] = 128", r"positions of row 0 .* has 128 at 0, outside of 0 to 127 \(max_model_len=128\)"),
        ("batch.positions[0] = -1", r"positions of row 0 .* has -1 at 0"),
        ("batch.seq_lens[2] = 129", r"seq_lens of row 2 .* has 129 at 2, outside of 0 to 128"),
        ("batch.seq_lens[2] = 0", r"computed tokens of row 2 .* has -15 at 2"),
        ("batch.query_start_loc[0] = 1", r"query_start_loc of row 0 .* has 1 at 0, outside of 0 to 0"),
        ("batch.query_start_loc[-1] += 1", r"query_start_loc of row 3 .* \(tokens of the step\)"),
        ("batch.query_start_loc[1] = 40", r"new tokens of row 1 .* has -\d+ at 1"),
        ("batch.logits_indices[1] = 1000", r"logits_indices of row 1 .* has 1000 at 1"),
        ("batch.input_ids[0] = 320", r"input_ids of row 0 .* has 320 at 0, outside of 0 to 319 \(vocab_size=320\)"),
        ("batch.seq_lens = batch.seq_lens[1:]", r"seq_lens has 3 numbers; 4 rows with \d+ tokens need 4"),
        ("batch.slot_mapping = batch.slot_mapping[1:]", r"slot_mapping has \d+ numbers"),
    ],
)
def test_every_number_has_its_limits(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match=said):
        answers(attention_backend="torch", parts=part(tmp_path, change))


def test_a_block_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "batch.py"
    path.write_text(
        "from minivllm.worker.input_batch import InputBatch as Own\n"
        "class InputBatch(Own):\n"
        "    def flatten(self, plan):\n"
        "        batch = super().flatten(plan)\n"
        "        self.block_table.block_table[1, 0] = 64\n"
        "        return batch\n"
    )
    with pytest.raises(IndexError, match=r"block_table of row 1 .* has 64 at 2, outside of 0 to 63 .*parts\['input_b"):
        answers(attention_backend="fast", parts={"input_batch": f"{path}:InputBatch"})


def runner_of(llm: LLM) -> ModelRunner:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner


def test_who_gets_the_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Chosen once: without it no line of it is on the way of a step."""
    own = {"flatten": SEAMS["flatten"]}
    for settings, expected in (
        ({}, ModelRunner),
        ({"parts": own}, CheckedModelRunner),
        ({"parts": {"text_stream": SEAMS["text_stream"]}}, ModelRunner),
        ({"check_steps": True}, CheckedModelRunner),
    ):
        with LLM(str(tiny_model()), **SETTINGS, **settings) as llm:
            assert type(runner_of(llm)) is expected, settings
    for value, expected in (("1", CheckedModelRunner), ("0", ModelRunner), ("", ModelRunner)):
        monkeypatch.setenv("MINIVLLM_CHECK", value)
        with LLM(str(tiny_model()), **SETTINGS) as llm:
            assert type(runner_of(llm)) is expected
    assert not BEFORE_KERNELS - set(SEAMS)


def test_without_parts_the_fault_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIVLLM_CHECK", "1")
    with LLM(str(tiny_model()), **SETTINGS) as llm:
        batch = runner_of(llm).input_batch
        right = batch._flatten_rows

        def wrong(*args):
            flat = right(*args)
            flat.slot_mapping[0] = 5000
            return flat

        batch._flatten_rows = wrong
        with pytest.raises(IndexError, match=r"has 5000 at 0, .*No part is set: report this as a fault"):
            llm.generate(PROMPTS[0], SamplingParams(max_tokens=1), use_tqdm=False)


def test_right_numbers_pass_and_the_trace_is_the_same(tmp_path: Path) -> None:
    """In chunks, with preemptions, and up to the last token that a request may have."""
    tight = {"num_gpu_blocks_override": 9, "max_num_batched_tokens": 16, "max_num_seqs": 4, "block_size": 4}
    tight |= {"max_model_len": 28, "attention_backend": "torch", "trace_clock": "logical"}
    told = []
    for checked in (False, True):
        path = tmp_path / f"{checked}.jsonl"
        told.append((answers(**tight, check_steps=checked, trace=str(path)), path.read_bytes()))
    assert told[0] == told[1]
