"""For notebook 08: a kernel built for a GPU that need not be there, and what is in its PTX.

Owns: nothing.
Interface: machine_code; found, show_lines, show_counts. `python -m minivllm.lessons.facts_08_ptx TARGET KERNELS`
builds them; the notebook's own process can't, its kernels are interpreted.
Must not know: what a kernel does.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from minivllm.course.notebook.html import note
from minivllm.course.notebook.tables import table
from minivllm.lessons.facts_08 import HEAD_SIZE, HEADS, KV_HEADS, show_text
from minivllm.lessons.facts_08_run import NEEDS_TRITON

COUNTED = {
    "2^x (ex2.approx)": r"\bex2\.approx",
    "e^x": r"\bexp\b|__nv_expf",
    "integer division (div, rem)": r"\b(?:div|rem)\.[su]\d",
    "shift or mask (shr, and, bfe)": r"\b(?:shr|and|bfe)\.",
    "float32 multiply-add (fma.rn.f32)": r"\bfma\.rn\.f32",
    "tensor core, tf32": r"\b(?:mma|wgmma).*tf32",
    "tensor core, bfloat16": r"\b(?:mma|wgmma)\S*\.bf16",
}


def machine_code(*kernels: tuple[str, str], target: str = "sm_90") -> list[dict[str, Any] | None]:
    """Build kernels, each (name, dtype), for `target`: counts of COUNTED, registers, spills and the PTX text of each.

    In a process of its own. None in place of each where Triton is missing.
    """
    if importlib.util.find_spec("triton") is None:
        return [None] * len(kernels)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "minivllm.lessons.facts_08_ptx", target, json.dumps(kernels)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"building for {target} failed: {result.stderr.strip().splitlines()[-1:]}")
    return json.loads(result.stdout)


def _build(name: str, dtype: str, target: str) -> dict[str, Any]:
    import torch

    from minivllm_kernels import compile as kernels_compile

    shape = (HEADS, KV_HEADS, HEAD_SIZE)
    found = kernels_compile.choices(target, shapes=(shape,), dtypes=(getattr(torch, dtype),))
    (choice,) = [choice for choice in found if choice.name == name]
    built = kernels_compile.compile_choice(choice)
    ptx = built.stages["ptx"]
    return {
        "registers": built.registers,
        "spills": built.spills,
        "counts": {name: len(re.findall(pattern, ptx)) for name, pattern in COUNTED.items()},
        "ptx": ptx,
    }


def found(built: dict[str, Any] | None, instruction: str) -> str:
    """How often an instruction stands in a kernel's PTX, in words."""
    return (
        NEEDS_TRITON
        if built is None
        else str(len(re.findall(rf"^\s*(?:@\S+ )?{re.escape(instruction)}", built["ptx"], re.M)))
    )


def show_lines(built: dict[str, Any] | None, instructions: Sequence[str]) -> None:
    """The first line of a kernel's PTX for each of these, with its line number."""
    if built is None:
        note(NEEDS_TRITON)
        return
    lines = built["ptx"].splitlines()
    shown = [next((number, line) for number, line in enumerate(lines, 1) if one in line) for one in instructions]
    show_text(f"{number:>5}  {' '.join(line.split())}" for number, line in shown)


def show_counts(built: Mapping[str, dict[str, Any] | None]) -> None:
    """A table: what is how often in each of these."""
    known = {name: one for name, one in built.items() if one is not None}
    if not known:
        note(NEEDS_TRITON)
        return
    rows = [(name, *(one["counts"][name] for one in known.values())) for name in COUNTED]
    rows += [(name, *(one[name] for one in known.values())) for name in ("registers", "spills")]
    table(rows, ("in the PTX of the read kernel", *known))


if __name__ == "__main__":
    print(json.dumps([_build(*kernel, target=sys.argv[1]) for kernel in json.loads(sys.argv[2])]))
