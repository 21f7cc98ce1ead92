"""The script for a GPU, as far as a CPU goes: correctness of a few shapes, from a checkout that is not installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from minivllm_kernels import gpu_check

ROOT = Path(__file__).parents[2]


def test_runs_from_a_folder_with_torch_and_triton_alone(tmp_path: Path) -> None:
    """The folder kernels/ is copied away; neither minivllm nor its installed kernels can be imported."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import importlib.abc, runpy, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("minivllm", "minivllm_kernels"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
sys.argv = ["kernels/gpu_check.py", "--device", "cpu", "--cases", "3", "--out", "result.json"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 of 576 shapes, 0 failed" in result.stdout
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["environment"]["torch"] == torch.__version__
    assert found["correctness"]["checked"] == 3 and not found["correctness"]["failures"]
    assert all(largest < 1e-5 for largest in found["correctness"]["largest_difference"]["float32"].values())


def test_without_a_gpu_it_says_what_to_do(capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "--device cpu" in capsys.readouterr().err


def test_a_wrong_kernel_is_reported(capsys, monkeypatch, tmp_path: Path, device: str) -> None:
    from minivllm_kernels import cases

    def twice_as_much(queries, *shared, tuning=None):
        cases.reference.paged_decode(queries, *shared)
        shared[-1].mul_(2)

    monkeypatch.setattr(cases, "paged_decode", twice_as_much)
    out = tmp_path / "result.json"
    assert gpu_check.main(["--device", device, "--cases", "1", "--no-speed", "--out", str(out)]) == 1
    assert "1 failed" in capsys.readouterr().out
    assert "paged_decode" in json.loads(out.read_text())["correctness"]["failures"][0]


def test_speed_table() -> None:
    speed = {
        "copy_gb_s": 4000.0,
        "decode": [{"shape": "64 x 8192", "gb_s": {"decode": 3500.0, "sdpa": "RuntimeError: no"}, "of_copy": 0.875}],
        "prefill": [{"shape": "1 x 8192", "tflop_s": {"ours": 400.0}, "of_best_sdpa": None}],
        "new_compilations_in_steady_state": 0,
    }
    text = gpu_check.speed_table(speed)
    assert "64 x 8192: 87.5%" in text and "(target 85%)" in text and "RuntimeError: no" in text
