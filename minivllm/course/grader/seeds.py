"""Seeds and questions: every student has a workload of their own, and three questions about it.

Owns: how an id becomes a seed, what questions.py must offer, the admission rule.
Interface: seed_of, student_sha256, Question, Questions, ask, event, admission, format_questions.
Must not know: who asks, or how an answer is graded (answers.py).

A lab's questions.py has `variant(seed) -> workload`, drawn until it is interesting for the lab, and
`questions(run, workload, seed) -> (steps shown, list[Question])`, which makes texts and keys from the engine's own run
of it. With `workload_free = True` there is no workload: `questions(None, None, seed) -> (Markdown, list[Question])`.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minivllm.course.grader import observe
from minivllm.course.grader.catalog import Lab, load_file
from minivllm.course.grader.evidence import BOUNDARIES
from minivllm.course.grader.words import tell_state, tell_workload
from minivllm.proof.lockstep.recording import Workload

PRACTICE = "practice"
MAX_STEPS = 2000
ANSWERS = "answers.toml"
MIN_ANSWERS = 12  # different ones, over all seeds
MAX_SHARE = 0.20  # of the commonest answer


@dataclass(frozen=True, slots=True)
class Question:
    """One question. key: a number, a text, or a list of those; it is never written into a file.

    explains: the event, or the rule, that an answer is read from; shown after some wrong tries. sized: the text says
    how long the list is, so that a list of another length may be told so.
    """

    id: str  # "Q1"
    points: int
    text: str
    key: Any
    explains: str = ""
    sized: bool = False


@dataclass(frozen=True, slots=True)
class Questions:
    """A student's workload, the engine's run of it up to the step that is shown, and the questions."""

    workload: Workload | None  # None: the lab's questions are about something else, which `told` says
    shown: list[dict[str, Any]]  # entries of observe.run_workload
    questions: list[Question]
    told: str = ""


def seed_of(lab: Lab, student: str, salt: str = "") -> int:
    """The same student, lab, revision and course: the same seed. Case and spaces of the id do not count."""
    text = "\0".join((salt, lab.number, str(lab.revision), plain_id(student)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def plain_id(student: str) -> str:
    """An id without case and spaces."""
    return re.sub(r"\s+", "", student).casefold()


def student_sha256(student: str, salt: str = "") -> str:
    """What a result says of whose it is: two results of one student say the same, and give no id away."""
    return "sha256:" + hashlib.sha256(f"{salt}\0{plain_id(student)}".encode()).hexdigest()


def read_questions(lab: Lab) -> Any:
    """The module questions.py of a lab."""
    return load_file(lab.folder / "questions.py")


def ask(lab: Lab, seed: int) -> Questions:
    """The questions of one seed."""
    module = read_questions(lab)
    if getattr(module, "workload_free", False):
        told, questions = module.questions(None, None, seed)
        return Questions(None, [], questions, told)
    workload = module.variant(seed)
    run = run_of(workload)
    shown, questions = module.questions(run, workload, seed)
    return Questions(workload, run[:shown], questions)


def run_of(workload: Workload) -> list[dict[str, Any]]:
    """The engine's own run of a workload: entries of observe.run_workload."""
    return observe.run_workload({}, {"workload": workload, "max_steps": MAX_STEPS, "state": True}, [])


def event(run: Sequence[Mapping[str, Any]], step: int, boundary: str, why: str) -> str:
    """The words for the event that explains an answer: where it is in a run, the state before it, and the rule.

    boundary: schedule, update_from_output, … why: one or two sentences.
    """
    state = None if step == 0 else run[step - 1]["updated"]
    if boundary == "update_from_output":
        state = run[step]["planned"]
    return f"step {step}, {BOUNDARIES.get(boundary, boundary)}. Before it: {tell_state(state)}. {why}"


# ---------------------------------------------------------------------- the admission rule


def admission(lab: Lab, seeds: Sequence[int], max_share: float = MAX_SHARE) -> list[str]:
    """What keeps a lab's questions from being asked, a line each: over many seeds nobody must guess their answers."""
    answers: dict[str, Counter[str]] = {}
    for seed in seeds:
        for question in ask(lab, seed).questions:
            answers.setdefault(question.id, Counter())[str(question.key)] += 1
    found = []
    for name, counts in answers.items():
        commonest, times = counts.most_common(1)[0]
        if len(counts) < MIN_ANSWERS:
            found.append(f"lab {lab.number}, {name} has {len(counts)} answers; {MIN_ANSWERS} are the fewest")
        if times > max_share * len(seeds):
            found.append(f"lab {lab.number}, {name}: {commonest} is the answer for {times} of {len(seeds)} seeds")
        if "[]" in counts or "" in counts:
            found.append(f"lab {lab.number}, {name}: the answer is sometimes nothing, as that of who has not answered")
    return found


# ---------------------------------------------------------------------- questions.md


def format_questions(lab: Lab, asked: Questions) -> str:
    """The text of questions.md: the workload, its run up to the step that is shown, and the questions."""
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
