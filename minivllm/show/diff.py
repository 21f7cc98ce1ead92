"""Two traces of the same workload side by side: the first difference, and what follows from it.

    from minivllm.trace import Trace
    from minivllm.show.diff import diff, format_diff
    print(format_diff(diff(Trace.load("a.jsonl"), Trace.load("b.jsonl"))))

Interface: diff, format_diff; Diff, Difference, Compared.
Must not know: how the traces were recorded. They may differ in config, engine, commit, clock and number of processes.

Requests are paired by external id, or by order of arrival where the ids have nothing in common; then steps by number;
then events by kind, request, and how many such came before. A kind that one trace does not have at all is named, and
is no first difference. Times are compared as ratios only, and only those of monotonic clocks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from minivllm.show.describe import plural
from minivllm.show.diff_events import Difference, differences, pair_requests
from minivllm.show.diff_figures import Compared, figures, outputs, settings, time_ratios
from minivllm.trace.events import KINDS
from minivllm.trace.replay import Trace

# kind -> fields that say what was decided
DECISIONS = {
    "schedule": (
        "num_scheduled_tokens",
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "skipped",
        "preemptions",
        "finished_req_ids",
    ),
    "sample_tokens": ("sampled_token_ids",),
    "update_from_output": ("updates",),
    "detokenize": ("new_text", "stop_string"),
    "process_outputs": ("finished", "reqs_to_abort"),
}
MAX_EVENTS, MAX_FIELDS = 10, 3  # shown of what follows
MAX_VALUE = 48  # characters


@dataclass(slots=True)
class Diff:
    """What two traces, a and b, do not have in common."""

    num_events: tuple[int, int]
    settings: list[Compared] = field(default_factory=list)  # of header, config and model, that differ
    only_a: dict[str, int] = field(default_factory=dict)  # kind -> events, of kinds that b does not have
    only_b: dict[str, int] = field(default_factory=dict)
    unpaired_a: list[str] = field(default_factory=list)  # requests
    unpaired_b: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)  # the first of each kind and field, in order
    num_differences: int = 0  # all of them
    figures: list[Compared] = field(default_factory=list)
    outputs: dict[str, list[Compared]] = field(default_factory=dict)  # of each request that both have
    ratios: list[tuple[str, float]] = field(default_factory=list)  # b's time divided by a's

    @property
    def first(self) -> Difference | None:
        """The first difference in what the engine did."""
        return self.differences[0] if self.differences else None

    @property
    def first_decision(self) -> Difference | None:
        """The first in what was decided, sampled or said; counters of what is left do not count."""
        return next((one for one in self.differences if one.field_name in DECISIONS.get(one.kind, ())), None)

    @property
    def same(self) -> bool:
        """Whether the engine did the same in both, whatever its settings say."""
        return not (self.differences or self.only_a or self.only_b or self.unpaired_a or self.unpaired_b)


def diff(a: Trace, b: Trace) -> Diff:
    """Compare two traces. If one is redacted, the other is compared as if it were."""
    if a.header.redacted != b.header.redacted:
        a, b = (trace if trace.header.redacted else trace.redact() for trace in (a, b))
    pairs = pair_requests(a, b)
    kinds_a, kinds_b = (Counter(event.kind for event in trace) for trace in (a, b))
    found = Diff(
        num_events=(len(a), len(b)),
        settings=settings(a, b),
        only_a={kind: count for kind, count in kinds_a.items() if kind not in kinds_b},
        only_b={kind: count for kind, count in kinds_b.items() if kind not in kinds_a},
        unpaired_a=pairs.only_a,
        unpaired_b=pairs.only_b,
        figures=figures(a, b),
        outputs=outputs(a, b, pairs),
        ratios=time_ratios(a, b),
    )
    seen: set[tuple[str, str]] = set()
    for difference in differences(a, b, pairs, set(kinds_a) & set(kinds_b)):
        found.num_differences += 1
        what = difference.kind, difference.field_name
        if what not in seen:
            seen.add(what)
            found.differences.append(difference)
    return found


# ---------------------------------------------------------------------- as text


def format_diff(found: Diff, names: tuple[str, str] = ("a", "b")) -> str:
    """A comparison as text."""
    a, b = names
    sections: list[list[str]] = []
    if found.same:
        sections.append(
            [f"The same: {plural(found.num_events[0], 'event')} in {a} and {b}, and no difference in them."]
        )
    sections.append(["Settings that differ", *_changes(found.settings)] if found.settings else [])
    if found.first is not None:
        sections.append(["The first difference", f"  {_place(found.first)}: {_change(found.first)}"])
        decision = found.first_decision
        if decision is not None and decision is not found.first:
            sections.append(["The first different decision", f"  {_place(decision)}: {_change(decision)}"])
    sections.append([*_unpaired(found.unpaired_a, a), *_unpaired(found.unpaired_b, b)])
    sections.append([*_only(found.only_a, a), *_only(found.only_b, b)])
    if not found.same:
        sections.append(_what_follows(found))
        sections.append(["In figures", *_changes(found.figures), *_unchanged(found.figures)])
        sections.append(["Outputs", *map(_output, found.outputs.items())] if found.outputs else [])
    if found.ratios:
        ratios = [f"  {what:<24} {ratio:.2f}" for what, ratio in found.ratios]
        sections.append([f"Times of {b}, divided by those of {a}", *ratios])
    return "\n\n".join("\n".join(section) for section in sections if section)


def _what_follows(found: Diff) -> list[str]:
    """The first place of each kind of difference, event by event."""
    events = [list(group) for _, group in groupby(found.differences[1:], key=lambda one: (one.kind, one.seqs))]
    lines = []
    for fields in events[:MAX_EVENTS]:
        more = f", and {plural(len(fields) - MAX_FIELDS, 'more field')}" * (len(fields) > MAX_FIELDS)
        lines.append(f"  {_place(fields[0])}: {', '.join(map(_change, fields[:MAX_FIELDS]))}{more}")
    if len(events) > MAX_EVENTS:
        lines.append(f"  … and {plural(len(events) - MAX_EVENTS, 'more event')}")
    heading = f"What follows, where each field differs first ({plural(found.num_differences, 'difference')} in all)"
    return [heading, *lines] if lines else []


def _place(difference: Difference) -> str:
    step = "between steps" if difference.step is None else f"step {difference.step}"
    name = f"{difference.boundary} {difference.kind}" if difference.boundary else difference.kind
    of = f" of request {', '.join(difference.requests)}" if difference.requests else ""
    one, other = ("-" if seq is None else str(seq) for seq in difference.seqs)
    return f"{step}, {name}{of} (event{f's {one} and {other}' if one != other else f' {one}'})"


def _change(difference: Difference | Compared) -> str:
    what = difference.field if isinstance(difference, Difference) else difference.what
    return f"{what}{' ' * bool(what)}{_value(difference.a)} → {_value(difference.b)}"


def _changes(rows: Sequence[Compared]) -> list[str]:
    changed = [row for row in rows if not row.same]
    width = max((len(row.what) for row in changed), default=0)
    return [f"  {row.what:<{width}}  {_value(row.a)} → {_value(row.b)}" for row in changed]


def _unchanged(rows: Sequence[Compared]) -> list[str]:
    same = [f"{row.what} {_value(row.a)}" for row in rows if row.same]
    return [f"  the same: {', '.join(same)}"] if same else []


def _output(request: tuple[str, list[Compared]]) -> str:
    name, rows = request
    changed = [_change(row) for row in rows if not row.same]
    same = [row.what for row in rows if row.same]
    parts = [f"the same {', '.join(same)}"] * bool(same) + ["; ".join(changed)] * bool(changed)
    return f"  request {name}  {'; '.join(parts)}"


def _value(value: Any) -> str:
    text = "-" if value is None else value if isinstance(value, str) else str(value)
    if len(text) <= MAX_VALUE:
        return text
    size = f" ({len(value)} items)" if isinstance(value, list) else ""
    return f"{text[: MAX_VALUE - len(size) - 1]}…{size}"


def _unpaired(requests: list[str], name: str) -> list[str]:
    return [f"Only {name} has request {', '.join(requests)}."] if requests else []


def _only(kinds: dict[str, int], name: str) -> list[str]:
    if not kinds:
        return []
    named = [f"{kind} ({KINDS[kind].boundary}, {count})" if kind in KINDS else kind for kind, count in kinds.items()]
    return [f"Only {name} has events of these kinds: {', '.join(named)}."]
