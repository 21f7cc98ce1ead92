"""Parts: a component of the engine taken from somewhere else, named by text.

`EngineConfig(parts={"scheduler": "my_file.py:Scheduler"})` builds the engine with that class in place of its own. The
text crosses the process boundary; only the composition roots read it and hand the class or function on. With no parts
the engine's own symbols are loaded the same way, so there is one code path.

Owns: the list of seams. Must not know: what a part does.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

# name of a seam -> the engine's own class or function, which a part must be able to stand in for
SEAMS = {
    "encoder": "minivllm.engine.serial:MsgpackEncoder",
    "decoder": "minivllm.engine.serial:MsgpackDecoder",
    "request_frames": "minivllm.engine.routing:request_frames",
    "read_request": "minivllm.engine.routing:read_request",
    "read_output": "minivllm.engine.routing:read_output",
    "scheduler": "minivllm.core.scheduler:Scheduler",
    "check_stop": "minivllm.core.request:check_stop",
    "kv_cache_manager": "minivllm.core.kv_cache_manager:KVCacheManager",
    "block_pool": "minivllm.core.block_pool:BlockPool",
    "free_queue": "minivllm.core.block_pool:FreeKVCacheBlockQueue",
    "extend_block_hashes": "minivllm.core.block_hash:extend_block_hashes",
    "flatten": "minivllm.worker.batch:flatten",
    "input_batch": "minivllm.worker.input_batch:InputBatch",
    "sampler": "minivllm.sample.sampler:Sampler",
    "text_stream": "minivllm.engine.detokenizer:TextStream",
    "detokenizer": "minivllm.engine.detokenizer:IncrementalDetokenizer",
    "output_processor": "minivllm.engine.output_processor:OutputProcessor",
    "paged_attention": "minivllm_kernels.reference:paged_attention",
    "reshape_and_cache": "minivllm_kernels.reshape_and_cache:reshape_and_cache",
    "paged_decode_kernel": "minivllm_kernels.paged_decode:paged_decode_kernel",
    "paged_decode_segments_kernel": "minivllm_kernels.paged_decode:paged_decode_segments_kernel",
    "reduce_segments_kernel": "minivllm_kernels.paged_decode:reduce_segments_kernel",
}

# the seams whose work decides which places of the cache a kernel reads and writes
BEFORE_KERNELS = {"decoder", "read_request", "extend_block_hashes", "scheduler", "check_stop", "kv_cache_manager"}
BEFORE_KERNELS |= {"block_pool", "free_queue", "flatten", "input_batch", "sampler"}


def seam_of(symbol: str) -> str:
    """The seam of one of the engine's symbols, "BlockPool" -> "block_pool"; of what has none, the symbol."""
    return next((seam for seam, spec in SEAMS.items() if spec.endswith(f":{symbol}")), symbol)


def load_part(seam: str, parts: Mapping[str, Any]) -> Any:
    """The class or function for a seam: the one that `parts` names, or the engine's own.

    A name is `module:Symbol` or `path/to/file.py:Symbol`; what is no text is the part itself. Raises InputError when
    there is no such symbol, or it can't be called as the engine's own is.

    vLLM: utils/import_utils.py::resolve_obj_by_qualname (role)
    """
    own = _load(seam, SEAMS[seam])
    if seam not in parts:
        return own
    part = _load(seam, parts[seam]) if isinstance(parts[seam], str) else parts[seam]
    wanted, found = _parameters(own), _parameters(part)
    if None not in (wanted, found) and wanted != found:
        raise InputError(
            f"parts[{seam!r}]={parts[seam]!r} takes ({', '.join(found)}), but the engine hands it "
            f"({', '.join(wanted)}). Keep the arguments of {SEAMS[seam]}."
        )
    return part


def check_parts(parts: Mapping[str, str]) -> None:
    """Raise InputError for a seam that there isn't."""
    unknown = set(parts) - set(SEAMS)
    if unknown:
        raise InputError(f"parts names {', '.join(sorted(unknown))}. The seams are: {', '.join(SEAMS)}.")


def _load(seam: str, spec: str) -> Any:
    place, _, symbol = spec.rpartition(":")
    if not place or not symbol:
        raise InputError(f"parts[{seam!r}]={spec!r} must be module:Symbol or path/to/file.py:Symbol.")
    try:
        if place.endswith(".py"):
            path = Path(place).expanduser().resolve()
            module = _module_from_file(path, path.stat().st_mtime_ns)
        else:
            module = importlib.import_module(place)
        return getattr(module, symbol)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise InputError(f"parts[{seam!r}]={spec!r} can't be loaded: {error}") from error


def _parameters(symbol: Any) -> list[str] | None:
    """Names of the arguments; None for what takes whatever it gets."""
    parameters = inspect.signature(symbol).parameters.values()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


@cache
def _module_from_file(path: Path, modified: int) -> Any:
    """The file as a module, once for all seams that it serves. modified: so that an edited file is loaded anew."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
