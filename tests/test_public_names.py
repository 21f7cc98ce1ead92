"""The names that `minivllm` offers, and what loading them costs."""

import importlib
import subprocess
import sys

import pytest

import minivllm

HEAVY = ("torch", "triton", "transformers", "tokenizers", "safetensors", "zmq")
HOMES = {
    "LLM": "minivllm.llm",
    "SamplingParams": "minivllm.sampling_params",
    "RequestOutput": "minivllm.outputs",
    "CompletionOutput": "minivllm.outputs",
    "EngineConfig": "minivllm.config",
}
BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_all_lists_the_public_names() -> None:
    assert set(minivllm.__all__) == {*HOMES, "__version__"}
    assert dir(minivllm) == sorted(minivllm.__all__)


@pytest.mark.parametrize(("name", "home"), HOMES.items())
def test_public_name_comes_from_its_home(name: str, home: str) -> None:
    found = getattr(minivllm, name)
    assert found.__name__ == name
    assert found.__module__ == home
    assert found is getattr(importlib.import_module(home), name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LLMEngin'"):
        _ = minivllm.LLMEngin


@pytest.mark.parametrize(
    "statement",
    [
        "import minivllm",
        "import minivllm.trace",
        "from minivllm import SamplingParams, RequestOutput, CompletionOutput, EngineConfig",
    ],
)
def test_light_import_loads_nothing_heavy(statement: str) -> None:
    result = run_python(f"{statement}\nimport sys\nprint(*[name for name in {HEAVY} if name in sys.modules])")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_light_names_work_without_the_engine_packages() -> None:
    code = "import minivllm, minivllm.trace\nprint(minivllm.SamplingParams(max_tokens=3).max_tokens)"
    result = run_python(BLOCK + code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "3"


def test_llm_without_the_engine_packages_says_what_to_install() -> None:
    result = run_python(BLOCK + "from minivllm import LLM")
    assert result.returncode == 1
    assert "pip install 'minivllm[engine]'" in result.stderr.splitlines()[-1]
