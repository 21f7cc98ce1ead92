"""What a kernel really did, as plain data: the launch, and for each program the places it read and wrote.

In Triton's interpreter every load and store passes through one function with the addresses in hand. The probe notes
them and finds the tensor and the place in it by the tensor's own address and strides; nothing comes from a model of
what the kernel should do. Beside it, the running maximum and sum after each tile, as the kernel computed them.

Interface: describe_launch; ProgramWatch (around a launch, or watch_programs, which launches); DeviceTimer.
Program.as_dict gives JSON's types.
Must not know: any particular kernel; the engine, its trace.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from minivllm_kernels import interpreter, tile_ops
from minivllm_kernels.launch import launch

_OPTIONS = ("num_warps", "num_stages")


class ProbeError(RuntimeError):
    """A program touched memory that belongs to none of its tensors.

    vLLM: none, vLLM has no probe
    """


# ---------------------------------------------------------------------- the launch


def describe_launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> dict[str, Any]:
    """The facts of a launch, in JSON's types: name, grid, tensors (shape, strides in elements, dtype), numbers,
    constants of compilation (names in capitals, as in all kernels here), warps and stages.

    vLLM: none, vLLM has no probe
    """
    numbers = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
    return {
        "name": kernel.__name__,
        "grid": list(grid),
        "tensors": {
            name: {
                "shape": list(value.shape),
                "strides": list(value.stride()),
                "dtype": str(value.dtype).removeprefix("torch."),
            }
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor)
        },
        "numbers": {name: value for name, value in numbers.items() if name.islower() and name not in _OPTIONS},
        "constants": {name: value for name, value in numbers.items() if not name.islower()},
        **{name: numbers.get(name) for name in _OPTIONS},
    }


class DeviceTimer:
    """How long a GPU works on what is launched between start and stop. On a CPU all answers are None.

    vLLM: none, vLLM has no probe
    """

    def __init__(self, device: torch.device | str) -> None:
        self._events = None
        if torch.device(device).type == "cuda":
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def start(self) -> None:
        if self._events:
            self._events[0].record()

    def stop(self) -> None:
        if self._events:
            self._events[1].record()

    def microseconds(self) -> float | None:
        """Waits for the device. Ask after the step, not between launches."""
        if not self._events:
            return None
        self._events[1].synchronize()
        return self._events[0].elapsed_time(self._events[1]) * 1000


# ---------------------------------------------------------------------- the programs


@dataclass(slots=True)
class Access:
    """One load or store of one program, in one tensor.

    vLLM: none, vLLM has no probe
    """

    store: bool
    tensor: str  # the kernel's name for it
    places: np.ndarray  # int64[n, dims], in the order of the tile; the last dimension is left out from 3 on
    num_elements: int  # numbers really moved; masked ones don't count


@dataclass(slots=True)
class Tile:
    """After a tile of keys: what the online softmax carries, for every row of the program.

    vLLM: none, vLLM has no probe
    """

    keys: np.ndarray  # int64[t, 3], the places of the cache (block, offset, head) that its K came from
    row_max: np.ndarray  # float[M], of the scaled scores, natural units; -inf: no key seen yet
    row_sum: np.ndarray  # float[M], of e^(score - row_max)
    correction: np.ndarray  # float[M], by which all that was summed before was multiplied


@dataclass(slots=True)
class Program:
    """One program of a launch.

    vLLM: none, vLLM has no probe
    """

    index: tuple[int, int, int]
    accesses: list[Access] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    rows: np.ndarray | None = None  # int64[r], rows of `tiles` whose result was stored; None: no tiles

    def places(self, tensor: str, store: bool = False) -> list[tuple[int, ...]]:
        """Where it read (or wrote) `tensor`, in order."""
        touched = [access.places for access in self.accesses if access.tensor == tensor and access.store == store]
        return [tuple(map(int, place)) for places in touched for place in places]

    def bytes_moved(self, tensor: str, itemsize: int, store: bool = False) -> int:
        """Bytes that it asked for; caches between it and the memory don't count."""
        return itemsize * sum(a.num_elements for a in self.accesses if a.tensor == tensor and a.store == store)

    @property
    def idle(self) -> bool:
        """It left without reading or writing a token: not a token's slot, or nothing of the sequence for it."""
        return not any(access.places.shape[1] > 1 for access in self.accesses)

    def as_dict(self, max_rows: int = 16) -> dict[str, Any]:
        """JSON's types. Places of caches come as runs [block, first offset, last offset, head], those of other
        tensors as runs [leading indices..., first, last]; tiles with at most max_rows rows.
        """
        record: dict[str, Any] = {"program": list(self.index), "reads": {}, "writes": {}}
        for access in self.accesses:
            side = record["writes" if access.store else "reads"]
            side.setdefault(access.tensor, []).extend(runs(access.tensor, access.places))
        if self.tiles:
            rows = self.rows[:max_rows]
            record["rows"] = rows.tolist()
            record["tiles"] = [
                {
                    "keys": runs("k_cache", tile.keys),
                    "row_max": [_finite(value) for value in tile.row_max[rows]],
                    "row_sum": [_finite(value) for value in tile.row_sum[rows]],
                    "correction": [_finite(value) for value in tile.correction[rows]],
                }
                for tile in self.tiles
            ]
        return record


def runs(tensor: str, places: np.ndarray) -> list[list[int]]:
    """Places as runs. Caches, [block, offset, head]: runs of offsets within a block. Others: runs of the last index.

    vLLM: none, vLLM has no probe
    """
    if tensor.endswith("_cache"):
        places = places[:, [0, 2, 1]]  # block, head, offset
    found: list[list[int]] = []
    for *lead, index in places.tolist():
        if found and found[-1][:-2] == lead and found[-1][-1] + 1 == index:
            found[-1][-1] = index
        else:
            found.append([*lead, index, index])
    if tensor.endswith("_cache"):
        found = [[block, first, last, head] for block, head, first, last in found]
    return found


def _finite(value: float) -> float | None:
    return None if np.isinf(value) else round(float(value), 6)


def watch_programs(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> list[Program]:
    """Launch `kernel` and give what each program did, in the order in which the interpreter ran them.

    The launch has its effects as always. Raises as ProgramWatch does.

    vLLM: none, vLLM has no probe
    """
    watch = ProgramWatch(kernel)
    watch.start()
    try:
        launch(kernel, grid, **arguments)
    finally:
        watch.stop()
    return watch.programs


class ProgramWatch:
    """Notes what passes through the interpreter's load and store between start and stop, while `kernel` runs.

    Raises RuntimeError where kernels are not interpreted, and lets the kernel fail with ProbeError, before the access,
    at an address outside of all its tensors.

    vLLM: none, vLLM has no probe
    """

    def __init__(self, kernel: Any) -> None:
        if not interpreter.is_interpreting():
            raise RuntimeError("programs can be watched in Triton's interpreter only: TRITON_INTERPRET=1, on a CPU")
        self.programs: list[Program] = []
        self._kernel = kernel
        self._tensors: dict[str, torch.Tensor] = {}
        self._softmax_step = tile_ops.softmax_step

    def start(self) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        load, store, begin = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx

        def noting_begin(*index: int) -> None:
            self.programs.append(Program(index))
            begin(*index)

        def noting_load(pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
            self._note_access(False, pointers, mask)
            return load(pointers, mask, *rest, **options)

        def noting_store(pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
            self._note_access(True, pointers, mask)
            return store(pointers, value, mask, *rest, **options)

        def noting_softmax_step(*inputs: Any) -> Any:
            result = self._softmax_step(*inputs)
            self._note_tile(result)
            return result

        self._kernel.add_pre_run_hook(self._note_tensors)  # gets the tensors that the interpreter will really use
        builder.create_masked_load, builder.create_masked_store = noting_load, noting_store
        builder.set_grid_idx, tile_ops.softmax_step = noting_begin, noting_softmax_step

    def stop(self) -> None:
        from triton.runtime.interpreter import interpreter_builder as builder

        tile_ops.softmax_step = self._softmax_step
        for name in ("create_masked_load", "create_masked_store", "set_grid_idx"):
            delattr(builder, name)  # the class's own again
        self._kernel.pre_run_hooks.remove(self._note_tensors)

    def _note_tensors(self, **arguments: Any) -> None:
        self._tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}

    def _note_tile(self, result: Any) -> None:
        row_max, row_sum, _, correction = (tensor.handle.data for tensor in result)
        program, log2e = self.programs[-1], tile_ops.LOG2E.value
        keys = [access.places for access in program.accesses if access.tensor == "k_cache"][-1]
        program.tiles.append(Tile(keys, row_max / log2e, row_sum.copy(), correction.copy()))

    def _note_access(self, store: bool, pointers: Any, mask: Any) -> None:
        program = self.programs[-1]
        addresses, used = np.broadcast_arrays(pointers.data, mask.data)
        touched = addresses[used]
        if store and program.tiles and used.ndim == 2:
            program.rows = used.any(axis=1).nonzero()[0]
        if not touched.size:
            return
        name, places = self._find(touched)
        if places.shape[1] > 2:
            places = places[:, :-1]
        changes = np.ones(len(places), dtype=bool)
        changes[1:] = (places[1:] != places[:-1]).any(axis=1)
        program.accesses.append(Access(store, name, places[changes], touched.size))

    def _find(self, addresses: np.ndarray) -> tuple[str, np.ndarray]:
        """Which tensor all of `addresses` belong to, and where in it: int64[n, dims]."""
        for name, tensor in self._tensors.items():
            places = locate(addresses, tensor)
            if places is not None:
                return name, places
        program = self.programs[-1].index
        known = ", ".join(f"{name} at {tensor.data_ptr():#x}" for name, tensor in self._tensors.items())
        raise ProbeError(f"program {program} touched {int(addresses[0]):#x}, outside of its tensors: {known}")


def locate(addresses: np.ndarray, tensor: torch.Tensor) -> np.ndarray | None:
    """The indices int64[n, dims] of elements at `addresses`; None if one of them is not an element of `tensor`.

    The K and the V of a cache lie between each other: an address in the range may still be the other's.

    vLLM: none, vLLM has no probe
    """
    rest = addresses.astype(np.int64) - tensor.data_ptr()
    if rest.min() < 0 or (rest % tensor.element_size()).any():
        return None
    rest //= tensor.element_size()
    places = np.zeros((len(addresses), tensor.dim()), dtype=np.int64)
    for dim in sorted(range(tensor.dim()), key=tensor.stride, reverse=True):
        if tensor.shape[dim] > 1:
            places[:, dim], rest = np.divmod(rest, tensor.stride(dim))
    if rest.any() or (places >= tensor.shape).any():
        return None
    return places
