"""Lab 07 in words: a batch as a function's arguments, the array that differs, a plan, the rows.

Owns: how flat batches and rows are told. Interface: tell_located, tell_read, tell_flattened, tell_arrays, brief;
tell_plan, tell_rows, tell_difference.
Must not know: what is right.
"""

from typing import Any

from minivllm.course.grader.words import shorten, tell_list
from minivllm.lessons.lab07.observe import RUBBISH

LONGEST = 16  # numbers of a list that are all shown


def tell_located(asked: dict[str, Any]) -> str:
    """The arguments of locate_tokens for a batch."""
    rows = asked["rows"]
    computed, scheduled = ([row[name] for row in rows] for name in ("computed", "scheduled"))
    return f"num_computed {tell_list(computed)}, num_scheduled {tell_list(scheduled)}"


def tell_read(asked: dict[str, Any]) -> str:
    """The arguments of read_tables for a batch."""
    starts, positions = [0], []
    for row in asked["rows"]:
        starts.append(starts[-1] + row["scheduled"])
        positions += range(row["computed"], row["computed"] + row["scheduled"])
    return f"query_start_loc {tell_list(starts)}, positions {brief(positions)}, {_tell_tables(asked)}"


def tell_flattened(asked: dict[str, Any]) -> str:
    """The arguments of flatten for a batch."""
    return f"{tell_located(asked)}, pad_to {asked['pad_to']}, {_tell_tables(asked)}"


def _tell_tables(asked: dict[str, Any]) -> str:
    rows = [
        f"row {index}: token_ids {brief(row['tokens'])}, block_table {brief(row['blocks'])}"
        for index, row in enumerate(asked["rows"])
    ]
    return f"block_size {asked['block_size']}; {'; '.join(rows)} (and {RUBBISH} beyond)"


def brief(items: list[Any]) -> str:
    """A list; of a long one the ends, and how long it is."""
    if len(items) <= LONGEST:
        return tell_list(items)
    return f"[{' '.join(map(str, items[:2]))} … {' '.join(map(str, items[-2:]))}] (of {len(items)})"


def tell_arrays(
    asked: dict[str, Any], arrays: tuple[str, ...], expected: dict[str, Any], got: dict[str, Any]
) -> tuple[str, str, str]:
    """The first array that differs: where, expected and got."""
    if "returned" in got:
        return "what is returned", f"{len(arrays)} arrays: {', '.join(arrays)}", got["returned"]
    array = next(name for name in expected if expected[name] != got[name])
    wanted, found = expected[array], got[array]
    if array == "changed":
        name, value = next(iter(found.items()))
        return f"{name}, after the call", "it is what it was: it is not yours to change", f"{name} {brief(value)}"
    if not isinstance(found, list):
        return array, f"{array} {tell_list(wanted)}", f"{array}: {found}"
    where, why, instead = array, "", ""
    if array in ("slot_mapping", "input_ids", "positions") and len(wanted) == len(found):
        place = next(index for index, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other)
        where, row, position = _place(asked, array, place)
        if row is not None:
            why = _origin(asked, array, wanted[place], row, position)
            instead = _origin(asked, array, found[place], row)
    one, other = shorten(wanted, found)
    return where, f"{array} {tell_list(one)}{why}", f"{array} {tell_list(other)}{instead}"


def _place(asked: dict[str, Any], array: str, place: int) -> tuple[str, int | None, int]:
    """Whose token stands at a place of the flat batch: in words, its row, and its position."""
    left = place
    for index, row in enumerate(asked["rows"]):
        if left < row["scheduled"]:
            position = row["computed"] + left
            return f"{array}[{place}], position {position} of row {index}", index, position
        left -= row["scheduled"]
    return f"{array}[{place}], which is padding", None, 0


def _origin(asked: dict[str, Any], array: str, value: Any, row: int, position: int | None = None) -> str:
    """Where a number of the tables comes from; position: it is the right one. Nothing when nobody can tell."""
    if not isinstance(value, int) or array == "positions":
        return ""
    if array == "input_ids":
        return _origin_of_token(asked, value, row, position)
    size = asked["block_size"]
    block = value // size
    text = f": {value} = {block}·{size} + {value % size}"
    if position is not None:
        return text
    owners = [index for index, other in enumerate(asked["rows"]) if block in other["blocks"]]
    if not owners:
        return f"{text}, and " + (
            f"{block} stands beyond the blocks of a row" if block == RUBBISH else f"no row has block {block}"
        )
    place = asked["rows"][owners[0]]["blocks"].index(block)
    return f"{text}, and block {block} is entry {place} of row {owners[0]}"


def _origin_of_token(asked: dict[str, Any], value: int, row: int, position: int | None) -> str:
    if position is not None:
        return f": {value} is token_ids[{row}, {position}]"
    places = [
        f"token_ids[{index}, {place}]"
        for index, other in enumerate(asked["rows"])
        for place, token in enumerate(other["tokens"])
        if token == value
    ]
    if value == RUBBISH and not places:
        return f": {value} stands beyond the tokens of a row"
    return f": {value} is {places[0]}" if len(places) == 1 else ""


# ---------------------------------------------------------------------- rows


def tell_plan(plan: dict[str, Any]) -> str:
    """A plan as it concerns the rows: who ended, who is new, what is said of those that are known, who gets tokens."""
    words = [f"ended {tell_list(plan['ended'])}"] if plan["ended"] else []
    words += [f"new {req_id} with blocks {tell_list(blocks)}, computed {n}" for req_id, blocks, n in plan["new"]]
    for req_id, resumed, blocks, computed in plan["known"]:
        more = "no new blocks" if blocks is None else f"new blocks {tell_list(blocks)}"
        words.append(f"{'resumed' if resumed else 'known'} {req_id} with {more}, computed {computed}")
    words.append(f"tokens {', '.join(f'{req_id} {n}' for req_id, n in plan['tokens']) or 'for nobody'}")
    return "; ".join(words)


def tell_difference(wanted: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    """The first thing in which two pictures of the rows differ: expected and got."""
    if wanted["rows"] != found["rows"]:
        return f"rows {tell_rows(wanted['rows'])}", f"rows {tell_rows(found['rows'])}"
    names = {"blocks": "block table", "computed": "computed tokens", "tokens": "token ids of this step"}
    for key, name in names.items():
        for row, (one, other) in enumerate(zip(wanted[key], found[key], strict=True)):
            if one != other:
                words = map(tell_list, shorten(one, other)) if isinstance(one, list) else (one, other)
                return tuple(f"row {row} ({wanted['rows'][row]}): {name} {word}" for word in words)
    return _tell_remembered(wanted["remembered"], found["remembered"])


def _tell_remembered(wanted: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    """What self.requests holds: the ids, or when these are the same the first whose blocks differ."""
    if wanted.keys() != found.keys():
        return f"self.requests {tell_list(list(wanted))}", f"self.requests {tell_list(list(found))}"
    req_id = next(req_id for req_id in wanted if wanted[req_id] != found[req_id])
    lists = shorten(wanted[req_id], found[req_id])
    return tuple(f"self.requests[{req_id!r}].block_ids {tell_list(blocks)}" for blocks in lists)


def tell_rows(rows: list[str | None]) -> str:
    """The requests by row."""
    return tell_list(["hole" if req_id is None else req_id for req_id in rows])
