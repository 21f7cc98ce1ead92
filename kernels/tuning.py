"""Tile sizes for each kind of device, and the rule which attention kernel a batch gets. No trials at run time.

A table in place of autotuning: a choice that depends on the batch would compile anew in the middle of serving. What is
chosen here depends on the device, the head size and the width of a number, which don't change while an engine lives.

`interpreter` has the sizes that vLLM 0.22.0 uses on every GPU, so a trace on a CPU shows vLLM's grids.
Must not know: batches, except for the three numbers of the rule.

vLLM: none, vLLM writes its sizes into each launch
"""

import functools
from dataclasses import dataclass
from typing import Literal

import torch

Form = Literal["varlen", "decode", "split"]

NUM_SEGMENTS = 16  # vLLM: v1/attention/backends/triton_attn.py::NUM_PAR_SOFTMAX_SEGMENTS
MIN_PROGRAMS = 128  # vLLM: v1/attention/backends/triton_attn.py::MIN_LAUNCH_GRID_SIZE_2D
MAX_HEAD_SIZE = 256


def choose_form(num_seqs: int, num_tokens: int, max_query_len: int, num_kv_heads: int) -> Form:
    """Which kernel reads the cache for a batch.

    varlen: some sequence has more than one new token, or some have none. Otherwise each has one: split, if one program
    for each sequence and KV head gives at most MIN_PROGRAMS programs, too few to fill a GPU; else decode, in one pass.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention (its choice of 2D and 3D)
    vLLM: v1/attention/backends/triton_attn.py::TritonAttentionMetadataBuilder.__init__ (the threshold)
    """
    if max_query_len > 1 or num_tokens != num_seqs:
        return "varlen"
    return "split" if num_seqs <= MIN_PROGRAMS // num_kv_heads else "decode"


@dataclass(frozen=True, slots=True)
class WriteTuning:
    """Of reshape_and_cache: the most numbers that one program copies."""

    tile: int
    num_warps: int
    num_stages: int = 1


@dataclass(frozen=True, slots=True)
class ReadTuning:
    """Of an attention kernel. num_stages is how many tiles Triton's pipeline has under way.

    A tile's address comes from the block table, itself a load, and the pipeline shares its stages between the two: with
    3 stages one tile of K and V is on its way while one is computed, with 5 stages two are.
    """

    tile: int  # keys
    num_warps: int
    num_stages: int
    block_m: int = 16  # rows of query tokens and heads; the decode forms have one token and don't use it
    longest_first: bool = False


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choices for one kind of device. Each table: (largest padded head size, largest element size) -> sizes, first
    match wins."""

    write: WriteTuning
    prefill_table: tuple[tuple[int, int, ReadTuning], ...]
    decode_table: tuple[tuple[int, int, ReadTuning], ...]
    split_table: tuple[tuple[int, int, ReadTuning], ...]

    def prefill(self, head_size: int, element_size: int) -> ReadTuning:
        """For paged_attention."""
        return _first_match(self.prefill_table, head_size, element_size)

    def decode(self, head_size: int, element_size: int) -> ReadTuning:
        """For paged_decode."""
        return _first_match(self.decode_table, head_size, element_size)

    def split(self, head_size: int, element_size: int) -> ReadTuning:
        """For paged_decode_split."""
        return _first_match(self.split_table, head_size, element_size)


def _first_match(table: tuple[tuple[int, int, ReadTuning], ...], head_size: int, element_size: int) -> ReadTuning:
    for max_head_size, max_element_size, choice in table:
        if head_size <= max_head_size and element_size <= max_element_size:
            return choice
    raise ValueError(f"head_size={head_size} is larger than {table[-1][0]}, the largest that the kernels know")


# vLLM 0.22.0's sizes on any GPU. Ours in the interpreter, and on GPUs that are not in TUNINGS.
_VLLM = Tuning(
    write=WriteTuning(tile=2048, num_warps=4),
    prefill_table=((256, 8, ReadTuning(tile=32, num_warps=4, num_stages=3)),),
    decode_table=((256, 8, ReadTuning(tile=32, num_warps=4, num_stages=3)),),
    split_table=((256, 8, ReadTuning(tile=16, num_warps=4, num_stages=3)),),
)

# float32 does not run on tensor cores (tile_ops.dot), so its tiles are small.
_FLOAT32_PREFILL = ReadTuning(tile=16, num_warps=4, num_stages=3)
_FLOAT32_DECODE = ReadTuning(tile=32, num_warps=4, num_stages=2)
_FLOAT32_WIDE = ReadTuning(tile=16, num_warps=4, num_stages=2)

_AMPERE = Tuning(
    write=WriteTuning(tile=2048, num_warps=4),
    prefill_table=(
        (64, 2, ReadTuning(block_m=128, tile=64, num_warps=8, num_stages=3, longest_first=True)),
        (128, 2, ReadTuning(block_m=64, tile=32, num_warps=4, num_stages=3, longest_first=True)),
        (256, 2, ReadTuning(block_m=64, tile=32, num_warps=8, num_stages=3, longest_first=True)),
        (128, 4, _FLOAT32_PREFILL),
        (256, 4, _FLOAT32_WIDE),
    ),
    decode_table=(
        (64, 2, ReadTuning(tile=64, num_warps=4, num_stages=4)),
        (128, 2, ReadTuning(tile=64, num_warps=4, num_stages=5)),
        (256, 2, ReadTuning(tile=32, num_warps=4, num_stages=5)),
        (128, 4, _FLOAT32_DECODE),
        (256, 4, _FLOAT32_WIDE),
    ),
    split_table=(
        (64, 2, ReadTuning(tile=32, num_warps=4, num_stages=5)),
        (128, 2, ReadTuning(tile=64, num_warps=4, num_stages=5)),
        (256, 2, ReadTuning(tile=32, num_warps=4, num_stages=5)),
        (256, 4, _FLOAT32_WIDE),
    ),
)

# More shared memory than Ampere, and products that take operands from it: larger tiles.
_HOPPER = Tuning(
    write=WriteTuning(tile=2048, num_warps=4),
    prefill_table=(
        (128, 2, ReadTuning(block_m=128, tile=64, num_warps=8, num_stages=3, longest_first=True)),
        (256, 2, ReadTuning(block_m=128, tile=32, num_warps=8, num_stages=3, longest_first=True)),
        (128, 4, _FLOAT32_PREFILL),
        (256, 4, _FLOAT32_WIDE),
    ),
    decode_table=(
        (128, 2, ReadTuning(tile=64, num_warps=4, num_stages=5)),
        (256, 2, ReadTuning(tile=32, num_warps=4, num_stages=5)),
        (128, 4, _FLOAT32_DECODE),
        (256, 4, _FLOAT32_WIDE),
    ),
    split_table=(
        (128, 2, ReadTuning(tile=64, num_warps=4, num_stages=5)),
        (256, 2, ReadTuning(tile=32, num_warps=4, num_stages=5)),
        (256, 4, _FLOAT32_WIDE),
    ),
)

# By compute capability; a name as in `minivllm kernels compile --target`.
TUNINGS: dict[str, Tuning] = {"interpreter": _VLLM, "sm_80": _AMPERE, "sm_90": _HOPPER, "sm_100": _HOPPER}


def tuning_for(device: torch.device) -> Tuning:
    """The choices for `device`.

    vLLM: none, vLLM looks at the device where it chooses
    """
    return TUNINGS[_target_of(device.type, device.index)]


@functools.cache
def _target_of(device_type: str, index: int | None) -> str:
    if device_type != "cuda":
        return "interpreter"
    major, minor = torch.cuda.get_device_capability(index)
    target = f"sm_{major}{minor}"
    return target if target in TUNINGS else "interpreter"
