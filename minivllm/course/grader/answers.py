"""Answers: how one is compared with the key, and what a wrong one is told.

Owns: answers.toml, and the rule of the tries.
Interface: grade_answers, advice, wrong_form, read_answers, format_answers, same.
Must not know: how a question is made (seeds.py).
"""

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minivllm.course.grader.result import Answer, QuestionEntry
from minivllm.course.grader.seeds import Question, Questions
from minivllm.course.grader.words import count
from minivllm.errors import InputError

SHOWN_FROM = 3  # the wrong try from which on the explaining event is shown


def grade_answers(
    asked: Questions, given: Mapping[str, Any], tried: dict[str, list[str]] | None = None
) -> list[QuestionEntry]:
    """Every question with points and status. The key is not in it.

    tried: the wrong answers so far, for each question; a new one is added. An answer of another form than is asked
    for is no try.
    """
    tried = {} if tried is None else tried
    results = []
    for question in asked.questions:
        answer = _plain(given.get(question.id, ""))
        right = same(answer, question.key)
        answered = bool(_normal(answer))
        wrong = tried.get(question.id, [])
        if answered and not right and not wrong_form(question, answer):
            text = " ".join(_normal(answer))
            wrong = tried[question.id] = wrong if text in wrong else [*wrong, text]
        results.append(
            QuestionEntry(
                id=question.id,
                points=question.points if right else 0,
                max=question.points,
                status="right" if right else "not_right" if answered else "not_answered",
                given=answer,
                tries=len(wrong),
                asked_sha256=hashlib.sha256(question.text.encode()).hexdigest(),
            )
        )
    return results


def advice(asked: Questions, results: Sequence[QuestionEntry]) -> list[str]:
    """What is said of wrong answers, a line each: of a wrong form, or of many tries; of the first two, nothing."""
    lines = []
    for question, result in zip(asked.questions, results, strict=True):
        if result.status == "not_right":
            form = wrong_form(question, result.given)
            if form:
                lines.append(f"{question.id}: {form}")
            elif result.tries >= SHOWN_FROM and question.explains:
                lines.append(f"{question.id}, after {result.tries} wrong answers: {question.explains}")
    return lines


def wrong_form(question: Question, answer: Any) -> str:
    """What form is asked for, if the answer has another; nothing if it has it. A length that is not told is free."""
    words, key = _normal(answer), _normal(question.key)
    many = isinstance(question.key, list | tuple)
    numbers = all(_is_number(word) for word in key)
    if not many:
        one_number = numbers and not (len(words) == 1 and _is_number(words[0]))
        return "one number is asked for" if one_number else ""
    if question.sized and len(words) != len(key):
        size = count(len(key), "number") if numbers else count(len(key), "entry", "entries")
        return f"a list of {size} is asked for"
    if numbers and not all(_is_number(word) for word in words):
        return "a list of numbers is asked for"
    return ""


def read_answers(path: Path) -> dict[str, Any]:
    """The answers of a file; none when there is no file. Raises InputError for a file that is no TOML."""
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}. An answer looks like Q1 = [1, 2] or Q2 = 7.") from error


def _plain(value: Any) -> Answer:
    """An answer as the result may hold it: numbers, texts, lists of those."""
    if isinstance(value, list):
        return [part for item in map(_plain, value) for part in (item if isinstance(item, list) else [item])]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return str(value)
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


def same(answer: Any, key: Any) -> bool:
    """Whether an answer is the key: numbers as numbers or text, lists with or without brackets, case does not count."""
    return _normal(answer) == _normal(key)


def _normal(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [word for item in value for word in _normal(item)]
    return [_as_number(word) for word in re.findall(r"[^\s,;\[\]()]+", str(value).casefold())]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d+)?", word) is not None


def _as_number(word: str) -> str:
    """3.0 and 3 are the same answer, and so are 1.50 and 1.5."""
    return word.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", word) else word


def format_answers(asked: Questions) -> str:
    """The text of an empty answers.toml."""
    return "".join(f'{question.id} = ""\n' for question in asked.questions)
