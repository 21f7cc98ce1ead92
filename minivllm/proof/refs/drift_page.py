"""The page docs/drift.md: how vLLM drifted away from the pinned version, and the verdicts it is made of.

Owns: docs/drift.json, the verdicts on all locked symbols in some later versions, and the layout of the page. The
verdicts need the wheels of these versions; the page is made of them, the lock and our references without any wheel.
Must not know: how a verdict comes about.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.proof.refs.collect import Project
from minivllm.proof.refs.drift import STATUSES, Verdict, drift, resting_on
from minivllm.proof.refs.events import event_kinds
from minivllm.proof.refs.ideas import IDEAS, Idea
from minivllm.proof.refs.lock import Entry, Lock
from minivllm.proof.refs.prose import GENERATED
from minivllm.proof.refs.report import cell, count_statuses, size_of_change, worst_first
from minivllm.proof.refs.source import Tree
from minivllm.proof.refs.uses import Collected, Use

PAGE = "docs/drift.md"
DATA = "docs/drift.json"
MOST_CHANGED = 25  # rows
STEADY = 0.8  # an idea whose changed symbols are on average that much alike is called edited, else rewritten

HEAD = """{generated} drift --page`; the verdicts are in drift.json -->

# What moved since vLLM {version}

The project mirrors vLLM {version}. This page follows {count} symbols of it into later versions. A verdict is about a
symbol's text: `same`, `changed` at its place, `moved` to another file or class, `renamed`, or `gone`. Two texts are as
alike as the share of lines that they have in common, from 0 to 1. A changed text need not mean a changed behaviour: a
verdict says where to look, not what to think.

For any other version, and with every sentence of ours that rests on it: `minivllm refs drift --vllm VERSION`.

"""


@dataclass(frozen=True)
class Data:
    """The verdicts by version, in the order of the versions."""

    verdicts: dict[str, list[Verdict]]
    files: dict[str, int]  # Python files of each version


def write_data(lock: Lock, trees: Sequence[Tree], root: Path) -> None:
    """Judge all locked symbols in each tree and write docs/drift.json, one line a symbol."""
    rows: dict[str, dict[str, Any]] = {entry.target: {} for entry in lock.entries.values()}
    versions = {}
    for tree in trees:
        if tree.version is None:
            raise InputError(f"{tree.label} does not say which version it is, so the page can't name it.")
        versions[tree.version] = len(tree.paths)
        for verdict in drift(lock, tree):
            rows[verdict.entry.target][tree.version] = _pack(verdict)
    symbols = ",\n".join(f"{json.dumps(target)}: {json.dumps(row)}" for target, row in sorted(rows.items()))
    head = f'"from": {json.dumps(lock.version)}, "files": {json.dumps(versions)}'
    (root / DATA).write_text(f'{{{head}, "symbols": {{\n{symbols}\n}}}}\n', encoding="utf-8")


def _pack(verdict: Verdict) -> list[Any]:
    """A verdict as a row: status, lines; if not the same, what else there is to say."""
    row: list[Any] = [verdict.status, verdict.first, verdict.last]
    if verdict.status != "same":
        moved = verdict.target if verdict.target != verdict.entry.target else ""
        row += [verdict.removed, verdict.added, round(verdict.score, 4), moved, verdict.note]
    return row


def read_data(root: Path) -> Data:
    """Read docs/drift.json. Raises InputError if it is missing or damaged."""
    try:
        content = json.loads((root / DATA).read_text(encoding="utf-8"))
        verdicts: dict[str, list[Verdict]] = {version: [] for version in content["files"]}
        for target, by_version in content["symbols"].items():
            for version, row in by_version.items():
                verdicts[version].append(_unpack(target, row))
        return Data(verdicts, content["files"])
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"{DATA} can't be read: {error!r}. Make it again with the wheels: "
            "minivllm refs drift --page --fetch 0.22.1,0.24.0,0.28.0,0.32.0"
        ) from error


def _unpack(target: str, row: list[Any]) -> Verdict:
    path, _, name = target.partition("::")
    status, first, last, *more = row
    entry = Entry(path, name, "", 0, 0, 0, "")  # `page` puts the locked one in its place
    if status == "same":
        return Verdict(entry, status, path, name, first, last)
    removed, added, score, moved, note = more
    new_path, _, new_name = (moved or target).partition("::") if status != "gone" else ("", "", "")
    return Verdict(entry, status, new_path, new_name, first, last, removed, added, score, note)


def page(data: Data, project: Project, lock: Lock, collected: Collected) -> str:
    """The whole page."""
    by_version = {version: _by_target(verdicts, lock) for version, verdicts in data.verdicts.items()}
    judged = set.intersection(*(set(verdicts) for verdicts in by_version.values()))
    places = resting_on(collected.uses)
    parts = [HEAD.format(generated=GENERATED, version=lock.version, count=len(judged))]
    newer = [f"`{entry.target}`" for entry in lock.entries.values() if entry.target not in judged]
    if newer:
        parts.append(f"Locked since, and not followed yet: {', '.join(newer)}.\n\n")
    parts += _versions(by_version, data, places)
    parts += _ideas(by_version)
    parts += _boundaries(by_version, project)
    parts += _not_at_their_place(by_version, places)
    parts += _most_changed(by_version, places)
    return "".join(parts)


def _by_target(verdicts: Iterable[Verdict], lock: Lock) -> dict[str, Verdict]:
    found = {}
    for it in verdicts:
        entry = lock.entries.get((it.entry.path, it.entry.name))
        if entry is not None:
            rest = (it.status, it.path, it.name, it.first, it.last, it.removed, it.added, it.score, it.note)
            found[entry.target] = Verdict(entry, *rest)
    return found


ByVersion = dict[str, dict[str, Verdict]]
Places = dict[tuple[str, str], list[Use]]


def _versions(by_version: ByVersion, data: Data, places: Places) -> Iterator[str]:
    yield (
        "## In numbers\n\n| version | files | " + " | ".join(STATUSES) + " | alike, on average | of ours it touches |\n"
    )
    yield "|---" * (len(STATUSES) + 4) + "|\n"
    for version, verdicts in by_version.items():
        counts = count_statuses(verdicts.values())
        cells = " | ".join(str(counts[status]) for status in STATUSES)
        alike = sum(verdict.score for verdict in verdicts.values()) / max(len(verdicts), 1)
        touched = {
            (use.file, use.owner)
            for verdict in verdicts.values()
            if verdict.status != "same"
            for use in places.get((verdict.entry.path, verdict.entry.name), ())
        }
        yield f"| {version} | {data.files[version]} | {cells} | {alike:.2f} | {len(touched)} places |\n"


# ---------------------------------------------------------------------- ideas


def _ideas(by_version: ByVersion) -> Iterator[str]:
    """What became of each idea, in a sentence and in a table."""
    last = list(by_version)[-1]
    states = {idea.title: {version: _state(idea, by_version[version]) for version in by_version} for idea in IDEAS}
    yield "\n## The ideas that live long\n\n"
    yield _summary(states, last, by_version)
    yield "\n| idea | " + " | ".join(by_version) + " |\n" + "|---" * (len(by_version) + 1) + "|\n"
    for idea in IDEAS:
        cells = " | ".join(states[idea.title][version] for version in by_version)
        yield f"| **{idea.title}.** {idea.says} | {cells} |\n"


def _state(idea: Idea, verdicts: dict[str, Verdict]) -> str:
    """`same`; `edited` or `rewritten` at its place, with the likeness; and what moved or went."""
    found = [verdicts[target] for target in idea.targets]
    if all(verdict.status == "same" for verdict in found):
        return "same"
    kept = [verdict.score for verdict in found if verdict.status != "gone"]
    alike = sum(kept) / len(kept) if kept else 0.0
    counts = count_statuses(found)
    words = [] if not counts["changed"] else [f"{'edited' if alike >= STEADY else 'rewritten'} ({alike:.2f})"]
    words += [f"{counts[status]} of {len(found)} {status}" for status in ("moved", "renamed", "gone") if counts[status]]
    return ", ".join(words)


def _summary(states: dict[str, dict[str, str]], last: str, by_version: ByVersion) -> str:
    """Computed from the verdicts: how many ideas stand in each version, and what stayed, moved and went by the last."""
    lines = []
    for version in by_version:
        same = [title for title in states if states[title][version] == "same"]
        intact = [title for title in states if not _displaced(states[title][version])]
        lines.append(
            f"- **{version}:** {len(same)} of {len(states)} ideas have the same text; {len(intact)} have all their "
            "symbols at their place."
        )
    displaced = [title for title in states if _displaced(states[title][last])]
    rewritten = [title for title in states if title not in displaced and "rewritten" in states[title][last]]
    steady = [title for title in states if title not in displaced and title not in rewritten]
    lines += [
        f"\nBy {last}:\n",
        f"- at their place, with most of their lines: {_list(steady)};",
        f"- at their place, with much of the text new: {_list(rewritten)};",
        f"- with parts that moved, were renamed or are gone: {_list(displaced)}.",
    ]
    return "\n".join(lines) + "\n"


def _displaced(state: str) -> bool:
    return any(word in state for word in ("moved", "renamed", "gone"))


def _list(titles: Sequence[str]) -> str:
    """The titles inside a sentence; `KV` stays as it is."""
    return ", ".join(title if title[1:2].isupper() else title[0].lower() + title[1:] for title in titles) or "none"


# ---------------------------------------------------------------------- tables


def _boundaries(by_version: ByVersion, project: Project) -> Iterator[str]:
    yield "\n## Boundary by boundary\n\nThe symbols that the trace's events stand for.\n\n"
    yield "| | event kind | vLLM's | " + " | ".join(by_version) + " |\n" + "|---" * (len(by_version) + 3) + "|\n"
    for kind in event_kinds(project.root):
        target = (kind.reference or "").partition(" ")[0]
        if all(target in verdicts for verdicts in by_version.values()):
            cells = " | ".join(_short(verdicts[target]) for verdicts in by_version.values())
            yield f"| {kind.boundary or ''} | `{kind.kind}` | `{target.partition('::')[2]}` | {cells} |\n"


def _short(verdict: Verdict) -> str:
    size = size_of_change(verdict)
    if verdict.status == "changed":
        return size
    return verdict.status + (f": {size}" if size else "")


def _not_at_their_place(by_version: ByVersion, places: Places) -> Iterator[str]:
    yield "\n## Moved, renamed, gone\n\nEach symbol where it first was not at its place, and where it is since.\n\n"
    yield "| since | symbol | verdict | now | what of ours rests on it |\n|---|---|---|---|---|\n"
    told: dict[str, str] = {}
    for version, verdicts in by_version.items():
        for verdict in worst_first(verdicts.values()):
            target = verdict.entry.target
            state = f"{verdict.status} {verdict.target}"
            if verdict.status in ("same", "changed") or told.get(target) == state:
                continue
            told[target] = state
            now = "<br>".join(text for text in (verdict.target and f"`{verdict.target}`", cell(verdict.note)) if text)
            yield f"| {version} | `{target}` | {_short(verdict)} | {now} | {_resting(verdict, places)} |\n"


def _most_changed(by_version: ByVersion, places: Places) -> Iterator[str]:
    version, verdicts = list(by_version.items())[-1]
    rows = [
        verdict
        for verdict in worst_first(verdicts.values())
        if verdict.status == "changed" and (verdict.entry.path, verdict.entry.name) in places
    ]
    yield f"\n## Changed most by {version}\n\n"
    yield "Of the symbols that we rest on and that are at their place, those with the least of their lines left.\n\n"
    yield "| symbol | lines | likeness | what of ours rests on it |\n|---|---|---|---|\n"
    for verdict in rows[:MOST_CHANGED]:
        size = f"-{verdict.removed} +{verdict.added}"
        resting = _resting(verdict, places)
        yield f"| `{verdict.entry.target}` | {size} | {verdict.score:.2f} | {resting} |\n"


def _resting(verdict: Verdict, places: Places) -> str:
    """Our places, without line numbers, so that the page does not age with every edit."""
    uses = places.get((verdict.entry.path, verdict.entry.name), ())
    shown = dict.fromkeys(f"`{use.owner}` ({use.file})" for use in uses)
    return cell("<br>".join(shown)) or "–"
