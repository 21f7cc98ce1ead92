"""Parts: a component of the engine taken from somewhere else, named by text.

`EngineConfig(parts={"scheduler": "my_file.py:Scheduler"})` builds the engine with that class in place of its own. The
text crosses the process boundary; only the composition root (engine/core.py) reads it and hands the class on. With no
parts the engine's own symbols are loaded the same way.

Owns: the list of seams. Must not know: what a part does.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

SEAMS = {
    "scheduler": "minivllm.core.scheduler:Scheduler",
    "kv_cache_manager": "minivllm.core.kv_cache_manager:KVCacheManager",
    "block_pool": "minivllm.core.block_pool:BlockPool",
}


def load_part(seam: str, parts: Mapping[str, str]) -> Any:
    """The class for a seam: the one that `parts` names, or the engine's own.

    A name is `module:Symbol` or `path/to/file.py:Symbol`. Raises InputError when there is no such symbol.

    vLLM: utils/import_utils.py::resolve_obj_by_qualname (role)
    """
    spec = parts.get(seam, SEAMS[seam])
    place, _, symbol = spec.rpartition(":")
    if not place or not symbol:
        raise InputError(f"parts[{seam!r}]={spec!r} must be module:Symbol or path/to/file.py:Symbol.")
    try:
        module = _module_from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        return getattr(module, symbol)
    except (ImportError, OSError, AttributeError) as error:
        raise InputError(f"parts[{seam!r}]={spec!r} can't be loaded: {error}") from error


def check_parts(parts: Mapping[str, str]) -> None:
    """Raise InputError for a seam that there isn't."""
    unknown = set(parts) - set(SEAMS)
    if unknown:
        raise InputError(f"parts names {', '.join(sorted(unknown))}. The seams are: {', '.join(SEAMS)}.")


def _module_from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path.expanduser().resolve())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
