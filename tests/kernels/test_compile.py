"""The kernels build for GPUs that are not here; none spills, all fit, and nothing tells where they were built."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm_kernels.compile import without_paths

ROOT = Path(__file__).parents[2]


def compile_kernels(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """Run the command in a process where kernels are not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path / "cache")  # so that the machine code is made, here and now
    out = tmp_path / "compiled.json"
    command = [sys.executable, "-m", "minivllm_kernels.compile", "--json", str(out), *arguments]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    return result, json.loads(out.read_text()) if out.exists() else []


@pytest.mark.slow
def test_no_choice_spills_and_all_fit(tmp_path: Path) -> None:
    """Every kernel with every choice that the engine would use, for three generations of GPUs."""
    result, compiled = compile_kernels(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {one["target"] for one in compiled} == {"sm_80", "sm_90", "sm_100"}
    assert {one["name"] for one in compiled} == {
        "reshape_and_cache",
        "paged_attention",
        "paged_decode",
        "paged_decode_segments",
        "reduce_segments",
        "flash_attention",
    }
    for one in compiled:
        assert one["spills"] == 0 and 0 < one["registers"] <= 255
        assert one["name"] in result.stdout


def test_stages_without_paths(tmp_path: Path) -> None:
    stages = ("--stage", "ttir", "--stage", "ttgir", "--stage", "ptx")
    result, compiled = compile_kernels(tmp_path, "--target", "sm_90", "--kernel", "paged_attention", *stages)
    assert result.returncode == 0, result.stderr
    half = next(one for one in compiled if "bfloat16" in one["shape"])
    assert "tt.load" in half["stages"]["ttir"]
    assert "ttg.async_copy_global_to_local" in half["stages"]["ttgir"], "tiles are copied ahead of their use"
    ptx = half["stages"]["ptx"]
    assert ".target sm_90" in ptx
    assert "wgmma.mma_async" in ptx, "products run on tensor cores"
    assert re.search(r"cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", ptx), "16 bytes at a time"
    assert "ex2.approx" in ptx and not re.search(r"\bdiv\.(s|u)(32|64)", ptx), "2^x, and no division of integers"
    for text in (result.stdout, json.dumps(compiled)):
        assert not re.search(rf"{re.escape(str(ROOT))}|/home/|/tmp/|site-packages|\.py\b", text)


def test_without_paths_keeps_the_code() -> None:
    text = (
        '#loc1 = loc("/home/me/kernels/x.py":3:0)\n'
        "%0 = tt.load %arg0 : !tt.ptr<f32> loc(#loc2)\n"
        '%1 = tt.dot %0 loc("/home/me/kernels/x.py":7:1)\n'
        '\t.file\t1 "/home/me/kernels/x.py"\n'
        "\t.loc\t1 30 2\n"
        "\tadd.s32 %r1, %r2, %r3;\n"
    )
    expected = "%0 = tt.load %arg0 : !tt.ptr<f32>\n%1 = tt.dot %0\n\tadd.s32 %r1, %r2, %r3;\n"
    assert without_paths(text) == expected


def test_an_interpreting_process_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minivllm_kernels.compile"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "Unset TRITON_INTERPRET" in result.stderr


def test_an_unknown_target(tmp_path: Path) -> None:
    result, _ = compile_kernels(tmp_path, "--target", "sm_90,sm_42")
    assert result.returncode == 2
    assert "Unknown target sm_42. Known: sm_80, sm_90, sm_100." in result.stderr
