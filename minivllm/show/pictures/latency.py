"""A picture of latencies: time to the first token, and from token to token.

Interface: ttft_tpot.
Must not know: the engine's clocks; the trace's header says which one it has.
"""

from dataclasses import dataclass

from minivllm.errors import InputError
from minivllm.show.describe import plural
from minivllm.show.lives import Lives
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BODY, INK, MARGIN, RULE, SMALL, SOFT, WIDTH, Names, Owners
from minivllm.trace.replay import Trace

ROW = 44  # px
LEFT = 76  # px


@dataclass(frozen=True, slots=True)
class Latency:
    """When a request came and when its tokens came, in ms, or in steps of the core.

    vLLM: v1/metrics/stats.py::IterationStats.update_from_finished_request
    """

    arrived: float
    tokens: tuple[float, ...]

    @property
    def ttft(self) -> float:
        """Time to first token."""
        return self.tokens[0] - self.arrived

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first, on average; None for a single token."""
        if len(self.tokens) < 2:
            return None
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1)


def latencies(trace: Trace, unit: str) -> dict[str, Latency]:
    """Internal id -> Latency, of the requests that got a token. unit: ms, or steps.

    In ms a token counts when its text is there, on the caller's side; in steps when its step ends, so that a first
    token in the very step before which the request came has a TTFT of 1.

    vLLM: v1/metrics/stats.py::IterationStats
    """
    lives = Lives(trace)
    found: dict[str, Latency] = {}
    for internal, life in lives.lives.items():
        if life.arrived is None:
            continue
        if unit == "steps":
            first = next((r.step for r in lives.roles(internal)), 0) - 1
            times = [
                step.number
                for step in lives.plans()
                if step.update is not None and any(u.req_id == internal and _count(u) for u in step.update.updates)
            ]
            arrived = float(first)
        else:
            texts = [e for e in life.events if e.kind == "detokenize" and _count(e)]
            times, arrived = [event.t1 / 1e6 for event in texts], life.start / 1e6
        if times:
            found[internal] = Latency(arrived, tuple(map(float, times)))
    return found


def _count(holder: object) -> int:
    """New tokens; a redacted trace has their number."""
    ids = holder.new_token_ids
    return ids if isinstance(ids, int) else len(ids)


def ttft_tpot(
    trace: Trace, *, alt: str, unit: str | None = None, owners: Names = None, caption: str | None = None
) -> Picture:
    """One line a request: a hatched bar from its arrival to its first token (TTFT), then a tick for each token.

    unit: "ms" or "steps"; by default what the trace's clock can tell. model: label -> {"ttft", "tpot", "num_tokens"}.

    vLLM: v1/metrics/stats.py::IterationStats.update_from_finished_request
    """
    logical = trace.header.clock == "logical"
    unit = unit or ("steps" if logical else "ms")
    if unit not in ("ms", "steps") or (unit == "ms" and logical):
        raise InputError(f"unit={unit!r}: this trace has a {trace.header.clock} clock. Use unit='steps'.")
    who = Owners(trace, owners)
    found = latencies(trace, unit)
    if not found:
        raise InputError("No request of the trace got a token: there is no latency to draw.")
    start, end = min(one.arrived for one in found.values()), max(one.tokens[-1] for one in found.values())
    scale = (WIDTH - LEFT - MARGIN) / (end - start)
    canvas = Canvas(len(found) * ROW + 30, alt, caption)
    for place, (internal, one) in enumerate(found.items()):
        y, owner = canvas.top + place * ROW, who[internal]
        x0, x1 = LEFT + (one.arrived - start) * scale, LEFT + (one.tokens[0] - start) * scale
        canvas.text(LEFT - 12, y + 8, owner.label, BODY, "right", bold=True)
        canvas.rect(x0, y, x1 - x0, 17, "none", owner.colour, 1.5)
        canvas.hatch(x0, y, x1 - x0, 17, owner.colour)
        for token in one.tokens:
            x = LEFT + (token - start) * scale
            canvas.rect(x - 1.5, y, 3, 17, owner.colour)
        words = _words(one, unit)
        canvas.text(min(x0, WIDTH - MARGIN - text_width(words)), y + 27, words, SMALL)
    foot = canvas.height - 26
    canvas.line([(LEFT, foot), (WIDTH - MARGIN, foot)], RULE)
    every = next(s for n in range(-2, 9) for s in (10**n, 2 * 10**n, 5 * 10**n) if s * scale >= 50)
    for tick in range(int((end - start) / every) + 1):
        x = LEFT + tick * every * scale
        canvas.line([(x, foot), (x, foot + 4)], SOFT)
        canvas.text(x, foot + 13, f"{start * (unit == 'steps') + tick * every:g}", SMALL, "center", INK)
    canvas.text(LEFT - 12, foot + 13, unit, SMALL, "right", SOFT)
    model = {
        who[i].label: {"ttft": one.ttft, "tpot": one.tpot, "num_tokens": len(one.tokens)} for i, one in found.items()
    }
    return canvas.finish(model)


def _words(one: Latency, unit: str) -> str:
    if unit == "ms":
        text = f"TTFT {one.ttft:.1f} ms"
        return text if one.tpot is None else f"{text}, TPOT {one.tpot:.1f} ms, {len(one.tokens)} tokens"
    text = f"TTFT {plural(int(one.ttft), 'step')}"
    return text if one.tpot is None else f"{text}, TPOT {one.tpot:.2f} steps, {len(one.tokens)} tokens"
