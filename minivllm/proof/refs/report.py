"""Findings and verdicts as text, JSON and Markdown.

Owns: their layout. The worst comes first: gone, renamed, moved, then changed, the least alike first.
Must not know: how verdicts come about.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from minivllm.proof.refs.check import KINDS, Checked
from minivllm.proof.refs.drift import STATUSES, Verdict
from minivllm.proof.refs.uses import Use

Places = Mapping[tuple[str, str], Sequence[Use]]
NOT_SAME = tuple(status for status in STATUSES if status != "same")
SHOWN_TEXT = 110  # characters of a sentence in a table


# ---------------------------------------------------------------------- check


def checked_text(checked: Checked) -> str:
    """What was checked, every finding with its place, and the sum by kind."""
    lines = [f"{finding.place}: [{finding.kind}] {finding.message}" for finding in checked.findings]
    if checked.findings:
        lines.append("")
        lines += [f"{count:4} {kind}: {KINDS[kind]}" for kind, count in sorted(checked.count().items())]
    verdict = f"{len(checked.findings)} findings" if checked.findings else "all right"
    lines.append(
        f"{checked.uses} references to {checked.symbols} symbols, and {checked.nones} that say `none`, "
        f"checked against {checked.against}: {verdict}"
    )
    if checked.verified:
        lines.append(f"{checked.verified} locked symbols have the locked text at the locked lines in the tree")
    return "\n".join(lines)


def checked_json(checked: Checked) -> str:
    """The same as JSON."""
    content = {
        "against": checked.against,
        "references": checked.uses,
        "symbols": checked.symbols,
        "none": checked.nones,
        "verified": checked.verified,
        "findings": [{"kind": it.kind, "place": it.place, "message": it.message} for it in checked.findings],
    }
    return json.dumps(content, indent=1)


# ---------------------------------------------------------------------- drift


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Gone, renamed, moved, changed, same; within these the least alike first."""
    return sorted(verdicts, key=lambda it: (-STATUSES.index(it.status), it.score, it.entry.path, it.entry.line))


def size_of_change(verdict: Verdict) -> str:
    """`-12 +34, 0.93 alike`; empty where nothing changed or nothing is left."""
    if verdict.status in ("same", "gone"):
        return ""
    if verdict.removed == verdict.added == 0:
        return "same text" if verdict.status != "changed" else "order, blank lines or indentation only"
    return f"-{verdict.removed} +{verdict.added}, {verdict.score:.2f} alike"


def count_statuses(verdicts: Iterable[Verdict]) -> Counter[str]:
    """How many verdicts of each status."""
    return Counter(verdict.status for verdict in verdicts)


def drift_table(
    pinned: str, other: str, verdicts: Sequence[Verdict], places: Places, only: Collection[str] = NOT_SAME
) -> str:
    """For a terminal: the counts, then one line a symbol with a status of `only`, and below it what rests on it."""
    lines = [_summary(pinned, other, verdicts)]
    for verdict in worst_first(verdicts):
        if verdict.status not in only:
            continue
        about = [text for text in (size_of_change(verdict), verdict.note) if text]
        lines.append(f"\n{verdict.status:8} {verdict.entry.target}" + (f"  ({'; '.join(about)})" if about else ""))
        if verdict.target not in ("", verdict.entry.target):
            lines.append(f"{'':8} -> {verdict.target}, lines {verdict.first}-{verdict.last}")
        for use in places.get((verdict.entry.path, verdict.entry.name), ()):
            lines.append(f"{'':11}{use.kind:9}{use.place}  {_what(use)}")
    return "\n".join(lines)


def _summary(pinned: str, other: str, verdicts: Sequence[Verdict]) -> str:
    counts = count_statuses(verdicts)
    shifted = sum(verdict.status == "same" and verdict.first != verdict.entry.first for verdict in verdicts)
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    return f"vLLM {pinned} -> {other}, {len(verdicts)} symbols: {told or 'none'}; {shifted} of the same at other lines"


def _what(use: Use) -> str:
    """What of ours rests there: our symbol, the event kind, or the sentence."""
    if use.kind in ("docs", "notebook"):
        text = use.text if len(use.text) <= SHOWN_TEXT else use.text[:SHOWN_TEXT] + "…"
        return f'"{text}"' if use.kind == "notebook" else f'{use.owner}: "{text}"'
    return use.owner


def drift_json(
    pinned: str, other: str, verdicts: Sequence[Verdict], places: Places, only: Collection[str] = STATUSES
) -> str:
    """For programs: the counts, and all there is to say of the symbols with a status of `only`."""
    symbols = [
        {
            "file": verdict.entry.path,
            "name": verdict.entry.name,
            "status": verdict.status,
            "to_file": verdict.path or None,
            "to_name": verdict.name or None,
            "lines": [verdict.entry.first, verdict.entry.last],
            "to_lines": [verdict.first, verdict.last] if verdict.path else None,
            "removed": verdict.removed,
            "added": verdict.added,
            "score": round(verdict.score, 4),
            "note": verdict.note or None,
            "places": [_place(use) for use in places.get((verdict.entry.path, verdict.entry.name), ())],
        }
        for verdict in worst_first(verdicts)
        if verdict.status in only
    ]
    counts = count_statuses(verdicts)
    content = {"from": pinned, "to": other, "counts": {it: counts[it] for it in STATUSES}, "symbols": symbols}
    return json.dumps(content, indent=1, ensure_ascii=False)


def _place(use: Use) -> dict[str, Any]:
    place: dict[str, Any] = {"kind": use.kind, "file": use.file, "line": use.line, "owner": use.owner}
    if use.kind in ("docs", "notebook"):
        place["text"] = use.text
    return place


def drift_markdown(
    pinned: str, other: str, verdicts: Sequence[Verdict], places: Places, only: Collection[str] = NOT_SAME
) -> str:
    """A section for a page or an issue: the counts, and a row for each symbol with a status of `only`."""
    lines = [f"## vLLM {pinned} to {other}", "", _summary(pinned, other, verdicts) + ".", ""]
    shown = [verdict for verdict in worst_first(verdicts) if verdict.status in only]
    if shown:
        lines += ["| symbol | verdict | now | what rests on it |", "|---|---|---|---|"]
    for verdict in shown:
        now = f"`{verdict.target}`" if verdict.target not in ("", verdict.entry.target) else ""
        about = "<br>".join(text for text in (now, cell(verdict.note)) if text)
        size = size_of_change(verdict)
        resting = [
            f"`{use.place}` {cell(_what(use))}" for use in places.get((verdict.entry.path, verdict.entry.name), ())
        ]
        verdict_text = verdict.status + (f" ({size})" if size else "")
        lines.append(f"| `{verdict.entry.target}` | {verdict_text} | {about} | {'<br>'.join(resting)} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    """A text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
