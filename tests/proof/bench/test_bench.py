"""The benchmarks run, on a tiny model and with no peer; what they write can be read. No time is asserted."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

from minivllm.__main__ import main
from minivllm.errors import InputError
from minivllm.proof.bench.jobs import latency_job, throughput_job, tiny
from minivllm.proof.bench.page import SECTIONS, make_page
from minivllm.proof.bench.result import make_result, table
from minivllm.proof.bench.sides import Side, own_side, run_rounds, run_side

ROOT = Path(__file__).parents[3]
QUICK = ("--quick", "--rounds", "1", "--threads", "1")
BENCHES = [
    ("throughput", {"alone_output_tokens_per_s", "batch_output_tokens_per_s", "batch_s", "cpu_s"}, {"minivllm"}),
    ("latency", {"batch 1, context 64: first_token_ms", "batch 16, context 64: step_ms"}, {"minivllm"}),
    ("scheduler", {"1_running_us", "4_running_us", "0_waiting_us", "20_waiting_us"}, {"minivllm"}),
    ("tracing", {"batch_s", "alone_s"}, {"minivllm", "detail 0", "detail 1"}),
    ("startup", {"first_token_s", "cpu_s"}, {"minivllm", "import minivllm.trace"}),
    ("kernels", {"copy_gb_per_s", "gemm_gflop_per_s", "attention_torch_2_rows_us"}, {"minivllm"}),
    ("memory", set(), {"minivllm", "growth", "pool of 2k blocks", "pool of 100k blocks"}),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every benchmark, run once by its command."""
    folder = tmp_path_factory.mktemp("bench")
    for name, _, _ in BENCHES:
        more = ["--requests", "20"] if name == "memory" else []
        words = ["bench", name, *QUICK, *more, "--model", str(tiny_model()), "--out", str(folder / f"{name}.json")]
        assert main(words) == 0
    words = ["bench", "throughput", *QUICK, "--peer", "transformers", "--model", str(tiny_model())]
    assert main([*words, "--out", str(folder / "throughput-transformers.json")]) == 0
    return folder


@pytest.mark.parametrize(("name", "figures", "sides"), BENCHES)
def test_a_result_has_its_sides_figures_rounds_command_and_machine(
    results: Path, name: str, figures: set[str], sides: set[str]
) -> None:
    result = json.loads((results / f"{name}.json").read_text())
    assert set(result["medians"]) == sides and [set(one) for one in result["rounds"]] == [sides]
    assert figures <= set(result["medians"]["minivllm"])
    assert result["command"].startswith(f"minivllm bench {name} --rounds 1 --threads 1")
    assert {"processor", "cores", "versions"} <= set(result["machine"])
    assert str(tiny_model()) not in json.dumps(result), "a result does not tell paths"


def test_a_peer_is_compared_in_both_number_types(results: Path) -> None:
    result = json.loads((results / "throughput-transformers.json").read_text())
    peers = {"transformers bfloat16", "transformers float32"}
    assert set(result["medians"]) == {"minivllm", *peers} and set(result["ratios"]) == peers


def test_the_page_is_made_of_the_results(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "performance.md"
    words = ["bench", "page", "--results", str(results), "--page", str(page)]
    assert main([*words, "--check"]) == 1
    assert main(words) == 0 and main([*words, "--check"]) == 0
    assert "is fresh" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    for title, _, _ in SECTIONS.values():
        assert f"## {title}\n" in text


def test_the_committed_page_is_fresh() -> None:
    assert (ROOT / "docs/performance.md").read_text(encoding="utf-8") == make_page(ROOT / "traces/bench")


def test_sides_take_turns_and_a_failure_tells_its_last_words(tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2]); print('{\"x\": 1.5}')"
    sides = [Side(name, [sys.executable, "-c", code, str(order), name]) for name in "ab"]
    rounds = run_rounds(sides, 3)
    assert order.read_text() == "abbaab"
    assert all(one["a"]["x"] == 1.5 and one["b"]["wall_s"] > 0 for one in rounds)
    with pytest.raises(InputError, match=r"'c' ended with status 3:\nno luck"):
        run_side(Side("c", [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"]))


def test_memory_of_a_side_counts_its_children() -> None:
    child = "x = bytearray(60 << 20); import time; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('{{}}')"
    side = Side("a", [sys.executable, "-c", parent], watch_memory=True)
    figures = run_side(side)
    assert figures.get("peak_mb", 70) > 60  # no figure where /proc has none


def test_a_ratio_above_one_is_in_our_favour() -> None:
    rounds = [
        {"we": {"a_per_s": rate, "b_ms": 2.0}, "they": {"a_per_s": 5.0, "b_ms": 3.0}} for rate in (10.0, 20.0, 30)
    ]
    result = make_result("x", "command", {}, rounds, "we", ["they"])
    assert result["medians"]["we"]["a_per_s"] == 20 and result["ratios"] == {"they": {"a_per_s": 4.0, "b_ms": 1.5}}
    assert "5  (4.00x)" in table(result)


def test_jobs_are_the_same_every_time_and_the_batch_is_the_one_that_was_promised() -> None:
    alone, batch = throughput_job()["parts"]
    assert throughput_job() == throughput_job() and latency_job() == latency_job()
    assert len(alone["prompts"]) == 1 and alone["max_tokens"] == [128] and alone["temperature"] == 0
    assert len(batch["prompts"]) == 64 and batch["temperature"] == 0.6
    assert all(32 <= len(prompt) <= 256 and 5 <= min(prompt) <= max(prompt) <= 40000 for prompt in batch["prompts"])
    assert all(32 <= tokens <= 128 for tokens in batch["max_tokens"])
    assert all(max(prompt) < 320 for part in tiny(throughput_job(), 320)["parts"] for prompt in part["prompts"])


def test_peers_import_nothing_of_ours() -> None:
    """They run with another Python, maybe without minivllm; wherever in the file an import stands."""
    peers = list((ROOT / "minivllm/proof/bench").glob("peer_*.py"))
    assert len(peers) >= 3
    for path in peers:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        assert names and not any("minivllm" in name for name in names)
        assert all(node.level == 0 and "minivllm" not in node.module for node in froms)


def test_vllm_needs_its_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "throughput", *QUICK, "--model", str(tiny_model()), "--peer", "vllm"]) == 2
    assert "--peer-python PATH" in capsys.readouterr().err


def test_transformers_as_a_peer() -> None:
    script = ROOT / "minivllm/proof/bench/peer_transformers_generate.py"
    job = {**tiny(throughput_job(), 320), "model": str(tiny_model()), "dtype": "float32"}
    side = Side("transformers", [sys.executable, str(script), "{job}"], {**job, "threads": 1}, dict(os.environ))
    assert {"init", "alone", "batch"} <= set(run_side(side))


def test_the_help_needs_no_torch() -> None:
    code = "import sys, minivllm.__main__ as m; m.parse(['bench', 'memory']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_two_thousand_requests_leave_nothing_behind() -> None:
    job = {"model": str(tiny_model()), "max_model_len": 64, "checkpoints": [400, 800, 1200, 1600, 2000]}
    figures = run_side(own_side("growth", "own_memory", job, threads=1))
    objects = [figures[f"objects_after_{count}"] for count in job["checkpoints"]]
    resident = [
        figures[f"resident_mb_after_{count}"] for count in job["checkpoints"] if "resident_mb_after_400" in figures
    ]
    assert max(objects[1:]) - min(objects[1:]) < 100, objects  # 1200 requests, and less than an object for ten of them
    assert not resident or resident[-1] - resident[1] < 5, resident
