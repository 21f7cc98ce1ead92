"""Static pictures of a trace, for notebooks and docs: SVG, the same bytes from the same trace.

    from minivllm.show import pictures
    pictures.schedule(trace, owners="ABC", alt="Three requests over 25 steps. C's first word comes in step 2.")

Each picture takes a trace and `alt` (two sentences: what is drawn, and the fact to take from it), and returns a
Picture: a notebook draws it, `save` writes it, and its `model` holds the values that it shows.
`owners` are the requests' names in order of arrival: a name's first letter gives the colour.

Colour says whose, and nothing else. A cell's form says the state: filled = owned and written, dotted = owned and not
yet written, hatched = free with a name (a later request can hit it), white = free, crossed = the null block, thick
border = shared.

matplotlib is imported when the first picture is drawn. Neither torch nor an engine is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minivllm.show.pictures.batch import flat_batch
    from minivllm.show.pictures.blocks import blocks_over_time
    from minivllm.show.pictures.charts import bars, grid, weights
    from minivllm.show.pictures.latency import ttft_tpot
    from minivllm.show.pictures.picture import Picture
    from minivllm.show.pictures.plan import budget, schedule
    from minivllm.show.pictures.pool import block_table, pool, queue
    from minivllm.show.pictures.road import road
    from minivllm.show.pictures.timeline import timeline

_HOMES = {
    "Picture": "picture",
    "bars": "charts",
    "block_table": "pool",
    "blocks_over_time": "blocks",
    "budget": "plan",
    "flat_batch": "batch",
    "grid": "charts",
    "pool": "pool",
    "queue": "pool",
    "road": "road",
    "schedule": "plan",
    "timeline": "timeline",
    "ttft_tpot": "latency",
    "weights": "charts",
}

__all__ = [
    "Picture",
    "bars",
    "block_table",
    "blocks_over_time",
    "budget",
    "flat_batch",
    "grid",
    "pool",
    "queue",
    "road",
    "schedule",
    "timeline",
    "ttft_tpot",
    "weights",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minivllm.show.pictures' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"minivllm.show.pictures.{_HOMES[name]}"), name)
    globals()[name] = found  # a module of the same name would hide it otherwise
    return found
