"""A launch as text: which blocks each program read, which slots were written. From the probe's records, without torch.

Interface: render_map.
Must not know: where the records come from.
"""

from itertools import groupby
from typing import Any


def render_map(facts: dict[str, Any], programs: list[dict[str, Any]]) -> str:
    """Which blocks each program read and which slots were written, as text. facts: of describe_launch; programs:
    Program.as_dict of each.

    `1[0-15] 3[0-8]` means offsets 0 to 15 of block 1, then 0 to 8 of block 3. Programs that differ in their KV head
    alone share a line.

    vLLM: none, vLLM has no probe
    """
    lines: dict[str, list[list[int]]] = {}
    for record in programs:
        lines.setdefault(_describe(record), []).append(record["program"])
    idle = lines.pop("", [])
    axes = "xyz"[: len(facts["grid"])]
    width = max((len(_indices(indices, axes)) for indices in lines.values()), default=0)
    text = [f"{facts['name']}: grid {' x '.join(map(str, facts['grid']))} = {len(programs)} programs"]
    text += [f"  {_indices(indices, axes):{width}}  {line}" for line, indices in lines.items()]
    if idle:
        text.append(f"  left at once, with nothing to do: {len(idle)}")
    return "\n".join(text)


def _describe(record: dict[str, Any]) -> str:
    """What a program did to the caches and to tokens; the same text for each KV head. "" if nothing."""
    reads, writes = record["reads"].get("k_cache", []), record["writes"].get("k_cache", [])
    tokens = [run for name in ("out", "segment_acc") for run in record["writes"].get(name, [])]
    parts = []
    if reads:
        parts.append(f"reads {_blocks(reads)}")
    if tokens:
        numbers = [token for token, _ in groupby(run[0] for run in tokens)]
        parts.append(f"for token {numbers[0]}" if len(numbers) == 1 else f"for tokens {numbers[0]}-{numbers[-1]}")
    if writes:
        parts.append(f"writes {_blocks(writes)}")
    return " ".join(parts)


def _indices(indices: list[list[int]], axes: str) -> str:
    """Indices that differ along one axis or more, as (0, 0-2): the first and last of each axis."""
    spans = [sorted({index[axis] for index in indices}) for axis in range(len(axes))]
    return f"({', '.join(str(s[0]) if len(s) == 1 else f'{s[0]}-{s[-1]}' for s in spans)})"


def _blocks(found: list[list[int]]) -> str:
    spans = dict.fromkeys((block, first, last) for block, first, last, _ in found)
    merged: list[list[int]] = []
    for block, first, last in spans:
        if merged and merged[-1][0] == block and merged[-1][2] + 1 == first:
            merged[-1][2] = last
        else:
            merged.append([block, first, last])
    return " ".join(
        f"{block}[{first}]" if first == last else f"{block}[{first}-{last}]" for block, first, last in merged
    )
