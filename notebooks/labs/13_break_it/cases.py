"""Cases: a broken engine, its trace, a user's complaint; and the diagnosis and the mend that are wanted.

Owns: how bugs are dealt by seed, how a case's workload is drawn, which event is the first wrong one.
Interface: CaseBug, Case, deal, read_bugs, record_run, first_wrong, run_mended (an observer).
Must not know: folders, points, words of a report.

The first wrong event is found by comparison with the sound engine on the same workload: in the order in which calls
returned, the first whose payload the sound engine's trace does not have at its place. So it is the innermost call.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.child import Endless, Parts
from minivllm.lessons.lab13.members import Bug, Members, broken_members, build_parts, mended_members
from minivllm.proof.lockstep.recording import Workload

NUM_CASES = 10
LETTERS = "ABCDEFGHIJ"
BONUS_LETTER = "bonus"
NUM_UNSEEN = 2
MAX_TRIES = 300
MAX_STEPS = 150
MORE_STEPS = 12  # of a run that does not end, so many are recorded after the sound engine's last
COMMON = ("kind", "seq", "proc", "t0", "t1", "parent", "thread", "step", "reqs")
HASHES = ("block_hash", "block_hashes")  # a hash is a name: only which are equal counts

Event = Any
Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CaseBug:
    """A bug, and what there is to say of it. make: draws a workload; None: recorded ones are taken."""

    id: str
    bug: Bug
    seen_in: str
    rules: tuple[str, ...]  # any of them is right
    causes: tuple[str, ...]
    make: Callable[[Random], Workload] | None
    complaint: str
    wants: str = ""  # wrong, crash or hang: what a user must see; "" is any of them


@dataclass(frozen=True, slots=True)
class Case:
    """One bug with a workload. unseen: two more, on which a mended method must do as well."""

    letter: str
    what: CaseBug
    workload: Workload
    unseen: tuple[Workload, ...]


# ---------------------------------------------------------------------- dealing


def read_bugs() -> Any:
    """The module bugs.py, which is made of CaseBug: BUGS and BONUS."""
    return importlib.import_module("minivllm.lessons.lab13.bugs")


def deal(lab: Lab, seed: int, letters: tuple[str, ...] | None = None) -> list[Case]:
    """A student's ten cases and the bonus, or those of them that are asked for."""
    module = read_bugs()
    dealt = Random(f"lab {lab.number} {seed}").sample(module.BUGS, NUM_CASES)
    pairs = [*zip(LETTERS, dealt, strict=True), (BONUS_LETTER, module.BONUS)]
    return [make_case(letter, what, seed) for letter, what in pairs if letters is None or letter in letters]


def make_case(letter: str, what: CaseBug, seed: int) -> Case:
    """The case of a bug for one seed."""
    if what.make is None:
        workloads = _recorded(what)
        Random(f"{what.id} {seed}").shuffle(workloads)
        return Case(letter, what, workloads[0], tuple(workloads[1 : 1 + NUM_UNSEEN]))
    drawn = [draw(what, f"{seed} {number}") for number in range(1 + NUM_UNSEEN)]
    return Case(letter, what, drawn[0], tuple(drawn[1:]))


def draw(what: CaseBug, seed: str) -> Workload:
    """The first workload of a seed's row in which a user sees the bug."""
    random = Random(f"{what.id} {seed}")
    parts = broken_parts(what.bug)
    for _ in range(MAX_TRIES):
        workload = what.make(random)
        sound = run({}, workload)
        symptom = symptom_of(sound, run(parts, workload, len(sound["steps"])))
        if symptom and what.wants in ("", symptom):
            return workload
    raise RuntimeError(f"{what.id}, seed {seed}: no workload in {MAX_TRIES} shows it")


def _recorded(what: CaseBug) -> list[Workload]:
    """The recorded workloads on which the real vLLM goes wrong, without what it decided."""
    from minivllm.course.places import repo_path
    from minivllm.proof.lockstep.recording import load, without_results

    path = repo_path("traces/vllm-0.22.0/vllm-0.22.0-known-bug.json.gz")
    return [without_results("scheduler", workload) for workload in load(path).workloads]


def broken_parts(bug: Bug) -> Parts:
    """The engine's parts with the bug in them."""
    return build_parts(broken_members(bug))


# ---------------------------------------------------------------------- running


def run(parts: Parts, workload: Workload, sound_steps: int | None = None) -> Run:
    """Every step, and the error that ended it, if one did.

    sound_steps: of the sound engine's run; a few more are waited for.
    """
    from minivllm.lessons.lab13.checksum import run_case

    seen: list[Any] = []
    try:
        run_case(parts, {"workload": workload, "max_steps": _most_steps(workload, sound_steps)}, seen)
    except Endless as error:
        return {"steps": seen, "error": str(error), "hang": True}
    except Exception as error:
        return {"steps": seen, "error": f"{type(error).__name__}: {error}", "hang": False}
    return {"steps": seen, "error": "", "hang": False}


def _most_steps(workload: Workload, sound_steps: int | None) -> int:
    return MAX_STEPS if sound_steps is None else last_arrival(workload) + sound_steps + MORE_STEPS


def without_outputs(workload: Workload) -> Workload:
    """The workload as it is told: without outputs, which come from the model."""
    return workload | {"requests": [request | {"output": [10]} for request in workload["requests"]]}


def last_arrival(workload: Workload) -> int:
    return max(request["arrival_step"] for request in workload["requests"])


def symptom_of(sound: Run, broken: Run) -> str:
    """What a user sees of it: crash, hang, wrong (another answer), or nothing."""
    if broken["error"]:
        return "hang" if broken["hang"] else "crash"
    last, other = sound["steps"][-1], broken["steps"][-1]
    return "wrong" if (last["outputs"], last["texts"]) != (other["outputs"], other["texts"]) else ""


def record_run(parts: Parts, workload: Workload, sound_steps: int | None = None) -> list[Event]:
    """The events of a run, by the logical clock, in the order in which the calls returned."""
    from minivllm.lessons.lab13.checksum import ChecksumRun
    from minivllm.trace.clock import make_clock
    from minivllm.trace.recorder import MemorySink, Recorder
    from minivllm.trace.schema import EVENTS

    sink = MemorySink()
    recorder = Recorder(sink, "core", make_clock("logical"), detail=2 if workload.get("sampling") else 0)
    checked = ChecksumRun(workload, parts)
    checked.core.scheduler.clock = recorder.clock.seconds
    recorder.observe(*checked.owners)
    try:
        for _ in checked.steps(_most_steps(workload, sound_steps)):
            continue
    except Endless:
        pass  # the trace ends where it was stopped
    except Exception as error:  # the trace shows how far it came, and what was raised
        recorder.notes["died of"] = error
    recorder.close()
    return [line for line in sink.lines if type(line) in EVENTS.values()]


# ---------------------------------------------------------------------- the first wrong event


def first_wrong(sound: list[Event], broken: list[Event]) -> Event:
    """The first event of the broken run that is another one in the sound run. Raises ValueError when there is none.

    An event without a counterpart is passed over: a call too many, or too few, shows in the call around it.
    """
    expected: dict[Any, Any] = {}
    for places, _, payload in _placed(sound):
        expected |= dict.fromkeys(places, payload)
    found = list(_placed(broken))
    for (precise, counted), event, payload in found:
        place = counted if precise is None else precise
        if place in expected and expected[place] != payload:
            return event
    for _, event, _ in found:
        if event.error:
            return event
    raise ValueError("the two runs do not differ")


def _placed(events: list[Event]) -> Iterator[tuple[tuple[Any, Any], Event, dict[str, Any]]]:
    """Every event with its places and its payload.

    A place is (step, kind, requests, how many such before); and (step, kind, how many such before). The first is None
    where nobody can tell the requests, since the call, or the one around it, has failed.
    """
    numbers: dict[str, int] = {}
    times: Counter[Any] = Counter()
    by_seq = {event.seq: event for event in events}
    for event in events:
        raw = msgspec.to_builtins(event)
        payload = {name: value for name, value in raw.items() if name not in COMMON}
        for name in HASHES:
            if name in payload:
                payload[name] = _numbered(payload[name], numbers)
        around = by_seq.get(event.parent)
        reqs = event.reqs or (around.reqs if around is not None else [])
        unknown = event.error or (not event.reqs and around is not None and around.error)
        precise, counted = (event.step, event.kind, *reqs), (event.step, event.kind)
        times[precise, "precise"] += 1
        times[counted, "counted"] += 1
        yield (
            (None if unknown else (precise, times[precise, "precise"]), (counted, times[counted, "counted"])),
            event,
            payload,
        )


def _numbered(value: Any, numbers: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_numbered(one, numbers) for one in value]
    return numbers.setdefault(value, len(numbers))


def is_the_event(answer: Any, events: list[Event], key: Event) -> bool:
    """Whether an answer is the seq of the key: itself, one of the same step, kind and requests, or its parent.

    A step as a whole is nobody's answer.
    """
    given = next((event for event in events if str(event.seq) == str(answer).strip()), None)
    if given is None or given.kind == "step":
        return False
    same = (given.step, given.kind, given.reqs) == (key.step, key.kind, key.reqs)
    return same or given.seq in (key.seq, key.parent)


# ---------------------------------------------------------------------- mends


def run_mended(parts: Parts, asked: dict[str, Any], seen: list[Any]) -> list[Any]:
    """Every step of a workload, with the bug in the engine and the student's methods laid over it. Runs in the child.

    asked: symbol, old, new of the bug; text of the student's file, and the path that its lines are known by.
    """
    import linecache

    import torch

    from minivllm.lessons.lab13.checksum import run_case

    torch.set_num_threads(1)  # a forked process must not use the threads of its parent
    linecache.checkcache(asked["path"])
    mended: Members = mended_members(asked["text"], asked["path"])
    broken = broken_members(Bug(asked["symbol"], asked["old"], asked["new"]))
    return run_case(build_parts(broken, mended), asked, seen)
