"""`python -O` drops every assert, and changes nothing: none of them guards what comes from outside."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine.helpers import SETTINGS
from engine.scripts import ROOT

CALLERS_SIDE = ("llm.py", "config.py", "sampling_params.py", "parts.py", "outputs.py", "engine", "sample", "worker")
SCRIPT = """
import json, sys
from minivllm import LLM, SamplingParams
folder, settings = sys.argv[1], json.loads(sys.argv[2])
said = [__debug__]

def say(call):
    try:
        said.append(repr(call()))
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")

for bad in ({"block_size": 0}, {"max_num_seqs": -1}, {"parts": {"moon": "x:y"}},
            {"parts": {"sampler": "no.such:Thing"}}, {"num_gpu_blocks_override": 1},
            {"max_model_len": 10**9}, {"colour": 1}, {"dtype": "float7"}):
    say(lambda: LLM(folder, **{"multiprocess": False, **settings, **bad}))
for multiprocess in (False, True):
    with LLM(folder, multiprocess=multiprocess, **settings) as llm:
        for prompt in ("", [], [10**6], [-1], [1.5], [[1] * 500], None, b"x", {"prompt": 3}, {"colour": 1}):
            say(lambda: llm.generate(prompt, use_tqdm=False))
        for bad in ({"temperature": -1}, {"top_p": 0}, {"n": 0}, {"max_tokens": 0}, {"logprobs": 99}, {"seed": "x"},
                    {"stop": [""]}, {"stop_token_ids": [10**9]}, {"allowed_token_ids": []}, {"min_tokens": 99}):
            say(lambda: llm.generate([5], SamplingParams(**bad), use_tqdm=False))
        say(lambda: llm.abort(3))
        say(lambda: llm.chat("hello"))
        say(lambda: llm.generate([5, 6], SamplingParams(temperature=0), use_tqdm=False)[0].outputs)
    say(lambda: llm.generate([5, 6], use_tqdm=False))
print(json.dumps(said))
"""


def test_the_same_with_and_without_asserts(tiny_folder: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    said = []
    for optimize in ("", "1"):
        environment = os.environ | {"PYTHONOPTIMIZE": optimize, "PYTHONPATH": str(ROOT)}
        process = subprocess.run(
            [sys.executable, str(path), tiny_folder, json.dumps(SETTINGS)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(json.loads(process.stdout.splitlines()[-1]))
    assert [one.pop(0) for one in said] == [True, False]
    assert said[0] == said[1]
    assert not [one for one in said[0] if one.startswith("AssertionError")]
    assert sum("Error: " in one for one in said[0]) > 50


@pytest.mark.parametrize("name", CALLERS_SIDE)
def test_no_assert_where_input_is_checked(name: str) -> None:
    place = ROOT / "minivllm" / name
    for path in [place] if place.is_file() else sorted(place.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)], path
