"""Seeds and questions: every student has a workload of their own, and three questions about it.

Owns: how an id becomes a seed, what questions.py must offer, how an answer is compared.
Interface: seed_of, Question, Questions, ask, grade_answers, format_questions.
Must not know: who asks.

A lab's questions.py has `variant(seed) -> workload`, drawn until it is interesting for the lab, and
`questions(run, workload, seed) -> (steps shown, list[Question])`, which makes texts and keys from the engine's own run
of it. With `workload_free = True` there is no workload: `questions(None, None, seed) -> (Markdown, list[Question])`.
"""

import hashlib
import importlib.util
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.labs import observe
from minivllm.labs.catalog import Lab
from minivllm.labs.words import tell_state, tell_workload
from minivllm.lockstep.recording import Workload

PRACTICE = "practice"
MAX_STEPS = 2000
ANSWERS = "answers.toml"


@dataclass(frozen=True, slots=True)
class Question:
    """One question. key: a number, a text, or a list of those; it is never written into a file.

    vLLM: none, vLLM has no labs
    """

    id: str  # "Q1"
    points: int
    text: str
    key: Any


@dataclass(frozen=True, slots=True)
class Questions:
    """A student's workload, the engine's run of it up to the step that is shown, and the questions.

    vLLM: none, vLLM has no labs
    """

    workload: Workload | None  # None: the lab's questions are about something else, which `told` says
    shown: list[dict[str, Any]]  # entries of observe.run_workload
    questions: list[Question]
    told: str = ""


def seed_of(lab: Lab, student: str, salt: str = "") -> int:
    """The same student, lab, revision and course: the same seed. Case and spaces of the id do not count.

    vLLM: none, vLLM has no labs
    """
    student = re.sub(r"\s+", "", student).casefold()
    text = "\0".join((salt, lab.number, str(lab.revision), student))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def read_questions(lab: Lab) -> Any:
    """The module questions.py of a lab.

    vLLM: none, vLLM has no labs
    """
    path = lab.folder / "questions.py"
    spec = importlib.util.spec_from_file_location(f"questions_{lab.number}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(lab: Lab, seed: int) -> Questions:
    """The questions of one seed.

    vLLM: none, vLLM has no labs
    """
    module = read_questions(lab)
    if getattr(module, "workload_free", False):
        told, questions = module.questions(None, None, seed)
        return Questions(None, [], questions, told)
    workload = module.variant(seed)
    run = run_of(workload)
    shown, questions = module.questions(run, workload, seed)
    return Questions(workload, run[:shown], questions)


def run_of(workload: Workload) -> list[dict[str, Any]]:
    """The engine's own run of a workload: entries of observe.run_workload.

    vLLM: none, vLLM has no labs
    """
    return observe.run_workload({}, {"workload": workload, "max_steps": MAX_STEPS, "state": True}, [])


# ---------------------------------------------------------------------- answers


def grade_answers(lab: Lab, seed: int, path: Path) -> list[dict[str, Any]]:
    """Every question with points and status: right, not_right, or not_answered. The key is not in it.

    vLLM: none, vLLM has no labs
    """
    given = read_answers(path)
    results = []
    for question in ask(lab, seed).questions:
        answer = given.get(question.id, "")
        right = same(answer, question.key)
        status = "right" if right else "not_answered" if answer in ("", []) else "not_right"
        results.append(
            {
                "id": question.id,
                "points": question.points if right else 0,
                "max": question.points,
                "status": status,
                "given": answer,
                "asked_sha256": hashlib.sha256(question.text.encode()).hexdigest(),
            }
        )
    return results


def read_answers(path: Path) -> dict[str, Any]:
    """The answers of a file; none when there is no file. Raises InputError for a file that is no TOML.

    vLLM: none, vLLM has no labs
    """
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} can't be read: {error}. An answer looks like Q1 = [1, 2] or Q2 = 7.") from error


def same(answer: Any, key: Any) -> bool:
    """Whether an answer is the key: numbers as numbers or text, lists with or without brackets, case does not count.

    vLLM: none, vLLM has no labs
    """
    return _normal(answer) == _normal(key)


def _normal(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [word for item in value for word in _normal(item)]
    return [_as_number(word) for word in re.findall(r"[^\s,;\[\]()]+", str(value).casefold())]


def _as_number(word: str) -> str:
    """3.0 and 3 are the same answer, and so are 1.50 and 1.5."""
    return word.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", word) else word


# ---------------------------------------------------------------------- questions.md


def format_questions(lab: Lab, asked: Questions) -> str:
    """The text of questions.md: the workload, its run up to the step that is shown, and the questions.

    vLLM: none, vLLM has no labs
    """
    lines = [f"# Questions of lab {lab.number}: {lab.title}", ""]
    if asked.workload is not None:
        lines.append(
            "Steps are counted from 0. `r1 3/9` means: of 9 tokens of r1, 3 are computed. Token 2 is the end of text."
        )
    lines += [
        f"Write the answers into `{ANSWERS}`: a number, or a list like [1, 2, 3].",
        "",
    ]
    if asked.workload is not None:
        parts = tell_workload(asked.workload, whole=True).split("; ")
        lines += ["## Your workload", "", *(f"- {part}" for part in parts), ""]
    else:
        lines += [asked.told, ""]
    if asked.shown:
        lines += ["## What the engine did", "", "| step | tokens | after it |", "|---|---|---|"]
        for entry in asked.shown:
            step = entry["step"]
            tokens = ", ".join(f"{req_id} {n}" for req_id, n in step["num_scheduled_tokens"]) or "none"
            lines.append(f"| {step['step']} | {tokens} | {tell_state(entry['updated'])} |")
        lines.append("")
    lines += ["## Questions", ""]
    for question in asked.questions:
        lines += [f"**{question.id}** ({question.points} points) {question.text}", ""]
    return "\n".join(lines)


def format_answers(asked: Questions) -> str:
    """The text of an empty answers.toml.

    vLLM: none, vLLM has no labs
    """
    return "".join(f'{question.id} = ""\n' for question in asked.questions)
