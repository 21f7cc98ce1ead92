"""`check --search S`: random small workloads against the engine, for code that passes all else.

Owns: how workloads are drawn, how one that differs is made smaller, and the file that it is written to.
Interface: search, save_rung, Found.
Must not know: what vLLM does: the engine, which equals all recordings, stands for it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from minivllm.config import cdiv
from minivllm.course.grader import evidence, observe
from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.child import WHOLE_FILE
from minivllm.course.grader.folder import OUTPUT
from minivllm.course.grader.judge import Failure, Observation, Subject
from minivllm.course.grader.ladder import parse_rung
from minivllm.errors import InputError
from minivllm.proof.lockstep.recording import Workload

LABS = ("02", "03", "04", "05", "06")  # what they build drives a scheduler
TOGETHER = 64
ENDLESS = 200  # steps; the engine needs fewer


@dataclass(frozen=True, slots=True)
class Found:
    """A workload on which a student's code and the engine differ. line: in the notation of the ladder."""

    line: str
    failure: Failure
    tried: int


def search(lab: Lab, subject: Subject, seconds: float, seed: int = 0) -> Found | int:
    """The smallest difference that was found in time; or how many workloads were tried without one.

    Raises InputError for a lab that drives no scheduler.
    """
    if lab.number not in LABS:
        raise InputError(f"--search is for the labs {', '.join(LABS)}: what they build drives a scheduler.")
    random, tried = Random(seed), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lines = [_draw(random) for _ in range(TOGETHER)]
        workloads = [_expected(line) for line in lines]
        for line, workload, answer in zip(lines, workloads, _ask(subject, workloads), strict=False):
            tried += 1
            if evidence.judge_workload(workload, answer, "") is not None:
                return _shrunk(subject, line, tried, until)
    return tried


def save_rung(lab: Lab, found: Found) -> Path:
    """Write what was found as a line for traces/labs/ladder-more.txt; returns the file."""
    path = OUTPUT / lab.number / "rung.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{found.line}\n", encoding="utf-8")
    return path


def _expected(line: str) -> Workload:
    """The workload of a line, with the steps that the engine takes. Raises ValueError for what could never end."""
    workload = parse_rung(line)
    config = workload["config"]
    if (config["num_blocks"] - 1) * config["block_size"] < config["max_model_len"]:
        raise ValueError(f"{line}: one request may need more blocks than there are")
    if any(len(request["prompt_token_ids"]) >= config["max_model_len"] for request in workload["requests"]):
        raise ValueError(f"{line}: a prompt fills the context")
    seen = observe.run_workload({}, {"workload": workload, "max_steps": ENDLESS, "state": False}, [])
    return workload | {"steps": [entry["step"] for entry in seen]}


def _ask(subject: Subject, workloads: list[Workload]) -> Iterator[Observation]:
    inputs = [evidence.asked_of(workload, state=True) for workload in workloads]
    return subject.call_many(WHOLE_FILE, "observe:run_workload", inputs)


def _draw(random: Random) -> str:
    """A line of the ladder's notation. Every request fits the pool alone."""
    size, longest = random.choice((1, 1, 1, 2)), random.randint(3, 9)
    whole, cached = random.random() < 0.5, random.random() < 0.7
    seats = random.randint(1, 3)
    budget = max(seats, longest if whole else random.randint(1, longest))
    words = [
        f"S00 B{size} N{cdiv(longest, size) + 1 + random.choice((0, 0, 1, 2, 4))} S{seats} T{budget} M{longest}",
        *(["cache"] if cached else []),
        *(["whole"] if whole else []),
        *([f"thr{random.randint(1, 3)}"] if random.random() < 0.3 else []),
        *(["prio"] if random.random() < 0.3 else []),
    ]
    requests, arrival = [], 0
    for _ in range(random.randint(1, 4)):
        length = random.randint(1, longest - 1)
        prompt = "".join(random.choice("aab") for _ in range(length))
        request = f"{arrival}+" if arrival else ""
        request += f"{prompt}>{random.randint(1, longest - length)}"
        if random.random() < 0.2:
            request += f" pri{random.randint(0, 2)}"
        requests.append(request)
        arrival += random.choice((0, 0, 1))
    return f"{' '.join(words)}: {', '.join(requests)}"


# ---------------------------------------------------------------------- smaller


def _shrunk(subject: Subject, line: str, tried: int, until: float) -> Found:
    """Take away what is not needed for the difference: requests, tokens, outputs, blocks. Ends when time is over."""
    smaller = True
    while smaller and time.monotonic() < until + 5:
        smaller = False
        for candidate in _smaller_lines(line):
            if _failure(subject, candidate) is not None:
                line, smaller = candidate, True
                break
    return Found(line, _failure(subject, line), tried)


def _failure(subject: Subject, line: str) -> Failure | None:
    try:
        workload = _expected(line)
    except (InputError, ValueError):
        return None  # no legal workload
    answer = next(_ask(subject, [workload]))
    return evidence.judge_workload(workload, answer, "search")


def _smaller_lines(line: str) -> Iterator[str]:
    head, _, tail = line.partition(": ")
    requests = tail.split(", ")
    for index in range(len(requests)):
        if len(requests) > 1:
            yield f"{head}: {', '.join(requests[:index] + requests[index + 1 :])}"
    for index, request in enumerate(requests):
        for changed in _smaller_requests(request):
            yield f"{head}: {', '.join([*requests[:index], changed, *requests[index + 1 :]])}"
    words = head.split()
    for index, word in enumerate(words):
        if word in ("cache", "whole", "prio") or word.startswith("thr"):
            yield f"{' '.join(words[:index] + words[index + 1 :])}: {tail}"
        elif word[0] in "NSTM" and word[1:].isdigit() and int(word[1:]) > 1:
            yield f"{' '.join([*words[:index], f'{word[0]}{int(word[1:]) - 1}', *words[index + 1 :]])}: {tail}"


def _smaller_requests(request: str) -> Iterator[str]:
    main, *flags = request.split(" ")
    start, plus, rest = main.rpartition("+")
    prompt, _, count = rest.partition(">")
    for index in range(len(flags)):
        yield " ".join([main, *flags[:index], *flags[index + 1 :]])
    if plus:
        yield " ".join([f"{int(start) - 1}+{rest}" if int(start) > 1 else rest, *flags])
    if len(prompt) > 1:
        yield " ".join([f"{start}{plus}{prompt[:-1]}>{count}", *flags])
        yield " ".join([f"{start}{plus}{prompt[1:]}>{count}", *flags])
    if int(count) > 1:
        yield " ".join([f"{start}{plus}{prompt}>{int(count) - 1}", *flags])
