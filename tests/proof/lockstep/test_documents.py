"""docs/differences.md and docs/traps.md are true: their tests exist, their numbers are fresh."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from proof.lockstep.poisoned_cache import PAGE, section
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.config import CPU_KV_CACHE_BYTES
from minivllm.errors import InputError

ROOT = Path(__file__).parents[3]
TRAPS = ROOT / "docs/traps.md"
NUM_TRAPS = 67
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_of_tests(path: str) -> set[str]:
    """The test functions of a file, those in classes too."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def table_rows(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("| ") and "|---" not in line]


@pytest.mark.parametrize("page", [PAGE, TRAPS], ids=lambda page: page.name)
def test_every_named_test_exists(page: Path) -> None:
    named = TEST_NAME.findall(page.read_text())
    assert len(named) >= 20
    missing = [
        f"{path}::{name}" for path, name in named if not (ROOT / path).exists() or name not in names_of_tests(path)
    ]
    assert missing == []


def test_every_difference_names_its_test() -> None:
    rows = [row for row in table_rows(PAGE) if not row.startswith(("| vLLM 0.22.0", "| input", "| setting"))]
    without = [
        row for row in rows if not TEST_NAME.search(row) and "output tokens" not in row and "blocks |" not in row
    ]
    assert without == []


def test_at_least_forty_traps_have_a_test_and_each_of_the_others_a_reason() -> None:
    rows = [row.split("|")[1:-1] for row in table_rows(TRAPS)[1:]]
    numbers = [int(cells[0]) for cells in rows]
    assert numbers == list(range(1, NUM_TRAPS + 1))
    tested = [cells for cells in rows if TEST_NAME.search(cells[2])]
    assert len(tested) >= 40
    assert all(len(cells[2].strip()) > 20 for cells in rows)


def test_the_poisoned_cache_is_shown_with_fresh_numbers(default_model_path: Path) -> None:
    assert section() in PAGE.read_text()


@pytest.mark.parametrize("field", [{"logprobs": True}, {"top_k": True}, {"max_tokens": True}, {"detokenize": 1}])
def test_numbers_are_numbers_and_switches_are_switches(field: dict[str, int]) -> None:
    with pytest.raises(InputError):
        SamplingParams(**field)


def test_a_cpu_keeps_its_memory_and_the_context_fits_in_it() -> None:
    # so long a context that 256 MiB do not hold it: 2 layers, 2 heads of 16, K and V, float32 are 512 bytes a token
    folder = str(tiny_model(max_position_embeddings=2**20))
    with LLM(folder, dtype="float32", multiprocess=False, device="cpu", max_num_seqs=1) as llm:
        ready = llm.llm_engine.engine_core.ready
        assert ready.num_gpu_blocks * 16 * 512 == CPU_KV_CACHE_BYTES
        assert ready.max_model_len == (ready.num_gpu_blocks - 1) * 16 < 2**20
