"""A part from a student's file in the engine: loaded by name, refused when it does not fit, and run."""

from pathlib import Path

import pytest
from tiny_models import tiny_model

from minivllm.core.scheduler import Scheduler
from minivllm.course.grader import plug
from minivllm.course.grader.catalog import all_labs, get_lab
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.wrong import edited, read_wrong, solution
from minivllm.errors import InputError
from minivllm.llm import LLM
from minivllm.parts import SEAMS, check_parts, load_part
from minivllm.sampling_params import SamplingParams

LAB = get_lab("04")
PROMPTS = ["The quick brown fox", "The quick brown fox jumps over the lazy dog.", "A cache keeps"]
SETTINGS = {"num_gpu_blocks_override": 12, "block_size": 4, "max_model_len": 40, "max_num_seqs": 2}


def answers(parts: dict[str, str], multiprocess: bool = False) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    with LLM(str(tiny_model("llama")), parts=parts, multiprocess=multiprocess, **SETTINGS) as llm:
        return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, params, use_tqdm=False)]


@pytest.mark.parametrize("seam", SEAMS)
def test_without_a_part_the_engines_own_is_loaded(seam: str) -> None:
    assert load_part(seam, {}).__name__ == SEAMS[seam].partition(":")[2]


def test_a_seam_that_there_isnt() -> None:
    with pytest.raises(InputError, match=r"parts names wheel\. The seams are: .*scheduler"):
        check_parts({"wheel": "a:B"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_colon", "must be module:Symbol"),
        ("no/such/file.py:Scheduler", "can't be loaded"),
        ("minivllm.core.scheduler:Nothing", "can't be loaded"),
        ("minivllm.core.request:check_stop", "takes \\(request, max_model_len\\)"),
    ],
)
def test_a_part_that_cant_be_used(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_part("scheduler", {"scheduler": text})


def test_a_file_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from minivllm.core.scheduler import Scheduler as Own\n\nclass Scheduler(Own):\n    pass\n")
    parts = {"scheduler": f"{path}:Scheduler"}
    first = load_part("scheduler", parts)
    assert issubclass(first, Scheduler) and load_part("scheduler", parts) is first
    path.write_text(path.read_text() + "    changed = True\n")
    import os

    os.utime(path, (1, 1))
    assert load_part("scheduler", parts).changed


CORE_LABS = [lab for lab in all_labs() if lab.number in ("02", "03", "04", "05", "06")]


@pytest.mark.parametrize("lab", CORE_LABS, ids=lambda lab: lab.number)
def test_a_finished_lab_runs_the_engine(lab, tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text(solution(lab))
    assert answers(plug.parts_of(lab, path)) == answers({})


def test_in_a_process_of_its_own_too(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text(solution(LAB))
    assert answers(plug.parts_of(LAB, path), multiprocess=True) == answers({})


def run_with_a_tiny_model(text: str, tmp_path: Path, monkeypatch, patience_s: float | None = None, **changes) -> int:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "starter.py"
    path.write_text(text)
    monkeypatch.setitem(LAB.run, "settings", SETTINGS | {"model": str(tiny_model("llama"))} | changes)
    monkeypatch.setitem(LAB.run, "max_tokens", 8)
    monkeypatch.setitem(LAB.run, "prompts", ["Hi", "Hi"])
    return plug.run_lab(LAB, path, open_page=False, patience_s=patience_s)


def test_run_says_that_the_tokens_are_the_same_and_writes_a_page(tmp_path: Path, monkeypatch, capsys) -> None:
    assert run_with_a_tiny_model(solution(LAB), tmp_path, monkeypatch) == 0
    said = capsys.readouterr().out
    assert "The same tokens." in said and "The two traces agree in every event." in said
    assert (tmp_path / "labs-out/04/run.html").exists()


def test_run_shows_where_a_wrong_part_differs(tmp_path: Path, monkeypatch, capsys) -> None:
    wrong = next(wrong for wrong in read_wrong(LAB) if wrong.id == "popleft_n_reversed")
    run_with_a_tiny_model(edited(LAB, wrong), tmp_path, monkeypatch)
    assert "The first event that differs: " in capsys.readouterr().out


def test_run_shows_the_students_line_when_a_part_crashes(tmp_path: Path, monkeypatch, capsys) -> None:
    assert run_with_a_tiny_model(build_starter(LAB), tmp_path, monkeypatch) == 1
    said = capsys.readouterr().out.splitlines()
    first = next(index for index, line in enumerate(said) if "✗ NotImplementedError: Lab 4.1" in line)
    assert "starter.py:" in said[first + 1] and len(said) - first <= 5


@pytest.mark.parametrize("multiprocess", [False, True])
def test_run_stops_a_part_that_never_ends_and_shows_where_it_was(
    tmp_path: Path, monkeypatch, capsys, multiprocess: bool
) -> None:
    text = solution(LAB).replace(
        "        blocks = self.free_block_queue.popleft_n(", "        while True: pass\n        ("
    )
    assert run_with_a_tiny_model(text, tmp_path, monkeypatch, patience_s=1.0, multiprocess=multiprocess) == 1
    said = capsys.readouterr().out
    assert "✗ TooLong: stopped after 1 s" in said and "while True: pass" in said
