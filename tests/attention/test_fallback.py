"""A machine on which the kernels can't be compiled: the engine runs, and every place that names a backend says why."""

from pathlib import Path

import pytest
from faults import fault
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
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
