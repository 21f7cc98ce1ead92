"""Ours against theirs: what counts as equal, and where the first difference is.

Owns: the rules of comparison and the order in which fields are looked at.
Interface: first_difference, Difference, BREAKDOWN.
Must not know: how either side came about.

Everything is compared exactly, except what rounding decides: log-probabilities within 1e-3, their sum within 1e-2, a
rank beyond 100 within 1 %, since in the tail thousands of tokens lie within a rounding of each other. A sampler's value
under -60 counts as masked: such a probability is below float32's reach. NaN equals NaN.
"""

import math
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from minivllm.proof.lockstep.recording import Workload

LOGPROB_TOLERANCE = 1e-3
SUM_TOLERANCE = 1e-2  # cumulative_logprob adds up the errors of its terms
EXACT_RANKS = 100
RANK_TOLERANCE = 0.01  # share of a larger rank
FLOOR = -60.0  # the probability of such a token is below float32's reach

# What happens in a step, in order, and the fields that show it. The names are those of the trace's events.
PHASES = {
    "scheduler": {
        "scheduler.add_request": ("added",),
        "finish_requests": ("aborted",),
        "reset_prefix_cache": ("reset",),
        "schedule": (
            "finished",
            "preempted",
            "num_scheduled_tokens",
            "new",
            "cached",
            "running",
            "waiting",
            "free_blocks_after_schedule",
            "num_common_prefix_blocks",
        ),
        "sample_tokens": ("sampled",),
        "process_aborts": ("aborted_in_flight",),
        "update_from_output": ("outputs", "free_blocks_after_update"),
    },
    "sampler": {"sampler.forward": ("greedy_token", "processed_logprobs")},
    "engine": {
        "schedule": ("num_scheduled_tokens",),
        "update_states": ("req_order", "block_table"),
        "prepare_inputs": (
            "query_start_loc",
            "positions",
            "input_ids",
            "seq_lens",
            "logits_indices",
            "slot_mapping",
        ),
        "get_computed_blocks": ("num_cached_tokens",),
        "sample_tokens": ("token_ids", "logprobs", "cumulative_logprob", "prompt_logprobs"),
        "process_outputs": ("text", "finish_reason", "stop_reason", "index", "request_id"),
    },
}


class _Nothing:
    """Stands where one side has no such step, row or key."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


BREAKDOWN = "none: our engine breaks down"  # in place of a phase


@dataclass(slots=True)
class Difference:
    """The first place where the two sides differ."""

    what: str  # "step"; "output" of an engine scenario; "row" of a sampler case
    index: int  # which of them
    phase: str  # the trace event in which the field comes about, or BREAKDOWN
    field: str  # a path, like cached[1].new_block_ids
    ours: Any
    theirs: Any


def first_difference(level: str, workload: Workload, replayed: Any) -> Difference | None:
    """The first difference between a recorded workload and what the replay of its level gave; None: all is equal."""
    if level == "engine":
        pairs = [(what, replayed[f"{what}s"], workload[f"{what}s"]) for what in ("step", "output")]
    elif level == "sampler":
        theirs = [{key: row[key] for key in ("greedy_token", "processed_logprobs")} for row in workload["rows"]]
        pairs = [("row", replayed, theirs)]
    else:
        pairs = [("step", replayed, workload["steps"])]
    phase_of = {field: phase for phase, fields in PHASES[level].items() for field in fields}
    for what, ours, theirs in pairs:
        for index, (mine, other) in enumerate(zip_longest(ours, theirs, fillvalue=NOTHING)):
            found = _differ(mine, other, "", list(phase_of))
            if found is not None:
                names = re.findall(r"[a-z_]+", found[0])
                phase = next((phase_of[name] for name in names if name in phase_of), what)
                return Difference(what, index, phase, *found)
    return None


def _differ(ours: Any, theirs: Any, path: str, order: list[str]) -> tuple[str, Any, Any] | None:
    """(path, ours, theirs) of the first difference, or None. Of a dict's keys, those in `order` are looked at first."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if "logprobs" in path and list(ours) != list(theirs):  # the first is the chosen token, the rest go by rank
            return path, list(ours), list(theirs)
        keys = sorted({**theirs, **ours}, key=lambda key: order.index(key) if key in order else len(order))
        pairs = [(f"{path}.{key}".strip("."), ours.get(key, NOTHING), theirs.get(key, NOTHING)) for key in keys]
    elif _has_parts(ours) and _has_parts(theirs):
        both = zip_longest(ours, theirs, fillvalue=NOTHING)
        pairs = [(f"{path}[{index}]", mine, other) for index, (mine, other) in enumerate(both)]
    else:
        return None if _equal(ours, theirs, path) else (path, ours, theirs)
    differences = (_differ(mine, other, name, order) for name, mine, other in pairs)
    return next((found for found in differences if found is not None), None)


def _has_parts(value: Any) -> bool:
    """Whether a list holds dicts or lists, so that one of them can be pointed at."""
    return isinstance(value, list) and any(isinstance(item, dict | list) for item in value)


def _equal(ours: Any, theirs: Any, path: str) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(_equal(a, b, path) for a, b in zip(ours, theirs, strict=True))
    if path == "processed_logprobs":
        ours, theirs = _masked_below_floor(ours), _masked_below_floor(theirs)
    if isinstance(ours, float) and isinstance(theirs, float):
        tolerance = SUM_TOLERANCE if "cumulative" in path else LOGPROB_TOLERANCE if "logprob" in path else 0.0
        return ours == theirs or abs(ours - theirs) <= tolerance or (math.isnan(ours) and math.isnan(theirs))
    if path.endswith(".rank") and isinstance(ours, int) and isinstance(theirs, int) and theirs > EXACT_RANKS:
        return abs(ours - theirs) <= RANK_TOLERANCE * theirs
    return type(ours) is type(theirs) and ours == theirs


def _masked_below_floor(value: Any) -> Any:
    return None if isinstance(value, float) and value < FLOOR else value
