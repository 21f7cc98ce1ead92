"""A machine on which the kernels can't be compiled: the engine runs, and every place that names a backend says why."""

import shutil
from pathlib import Path

import pytest
import torch
from faults import fault
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.attention.fast_backend import make_fast_backend
from minivllm.paths import kernels_dir
from minivllm.proof import doctor
from minivllm.trace import load

PROMPT = {"prompt_token_ids": [5, 6, 7]}


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler that says that all is well, and makes nothing; and a cache that is empty."""
    monkeypatch.setenv("CC", "/bin/true")
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path / "cache"))
    return "/bin/true made no library of cpu_kernels.c"


@fault(
    "Memory and kernels",
    "the kernels can't be compiled",
    how="`CC=/bin/true` and an empty cache, in one process and in two",
    then="the run takes attention_backend torch and is right; one line says why, and so does the trace's header",
)
@pytest.mark.parametrize("multiprocess", [False, True])
def test_the_run_and_its_trace_say_so(
    multiprocess: bool, broken: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    with LLM(str(tiny_model()), device="cpu", multiprocess=multiprocess, trace=str(path)) as llm:
        (answer,) = llm.generate(PROMPT, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    assert len(answer.outputs[0].token_ids) == 2
    told = capfd.readouterr().err + caplog.text
    assert told.count(broken) == 1 and "takes torch" in told
    config = load(path).header.config
    assert config["attention_backend"] == "torch" and broken in config["attention_fallback"]


def test_where_nothing_fell_back_the_header_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with LLM(str(tiny_model()), device="cpu", attention_backend="torch", multiprocess=False, trace=str(path)):
        pass
    assert "attention_fallback" not in load(path).header.config


def test_doctor_says_what_a_run_would_really_get(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = {finding.what: finding for finding in doctor.examine()}
    assert findings["C compiler"].mark == "ok", "it is there"
    assert findings["attention"].mark == "--" and broken in findings["attention"].found


def test_doctor_names_a_compiler_that_is_not_there(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -m64")
    (finding,) = doctor._compiler()
    assert "CC=no-such-cc -m64 is no program" in finding.remedy
    monkeypatch.setenv("CC", "true  -x")
    (finding,) = doctor._compiler()
    assert finding.remedy == ""


def test_doctor_never_crashes_for_want_of_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.setenv("MINIVLLM_CACHE", "~/mine")
    findings = {finding.what: finding for finding in doctor.examine()}
    assert "MINIVLLM_CACHE='~/mine' can't be resolved" in findings["default model"].remedy
    assert "MINIVLLM_CACHE='~/mine' can't be resolved" in findings["attention"].found


@fault(
    "Memory and kernels",
    "the cached kernels are cut in the middle",
    how="half of the library, in the cache of an engine with a process of its own",
    then="one line; they are compiled again, and the run takes attention_backend fast",
)
def test_cut_kernels_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_fast_backend(4, 2, 16, 16, torch.float32)  # the user's own are there now
    shutil.copytree(kernels_dir(), tmp_path / "cache" / "kernels")
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path / "cache"))
    for library in kernels_dir().glob("*.so"):
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    backends = []
    for _ in range(2):
        with LLM(str(tiny_model()), device="cpu", multiprocess=True) as llm:
            backends.append(llm.llm_engine.engine_core.ready.attention_backend)
    assert backends == ["fast", "fast"]
    assert capfd.readouterr().err.count("is not what was compiled: it is made again") == 1
