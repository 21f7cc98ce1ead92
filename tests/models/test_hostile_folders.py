"""Model folders that are damaged, made up or meant to harm: a ModelError of one line, and none of their code runs."""

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import fault
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model

from minivllm import LLM
from minivllm.errors import ModelError
from minivllm.models.default_model import find_damage, read_manifest
from minivllm.models.model_config import load_model_config

DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that a test may spoil."""
    return Path(shutil.copytree(tiny_model("llama"), tmp_path / "model"))


def change(folder: Path, name: str, **fields: Any) -> None:
    path = folder / name
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**known, **fields}))


def refused(folder: Path) -> str:
    """The message that an engine in this process and the config alone give; they are the same, and one line."""
    with pytest.raises(ModelError) as of_config:
        load_model_config(folder)
    with pytest.raises(ModelError) as of_engine:
        LLM(str(folder), multiprocess=False)
    assert str(of_config.value) == str(of_engine.value)
    assert "\n" not in str(of_config.value)
    assert len(str(of_config.value)) < 700
    return str(of_config.value)


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"num_key_value_heads": 0}, "num_key_value_heads='0' must be a whole number from 1 to"),
    ({"num_key_value_heads": -1}, "num_key_value_heads='-1' must be"),
    ({"num_attention_heads": 0}, "num_attention_heads='0' must be"),
    ({"num_attention_heads": True}, "num_attention_heads='True' must be"),
    ({"num_hidden_layers": 10**5}, "num_hidden_layers='100000' must be a whole number from 1 to 2000"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    ({"hidden_size": 10**30}, "hidden_size"),
    ({"hidden_size": 2**60}, "hidden_size"),
    ({"intermediate_size": 1e300}, "intermediate_size"),
    ({"vocab_size": 2**60}, "vocab_size"),
    ({"max_position_embeddings": 10**12}, "max_position_embeddings"),
    ({"max_position_embeddings": [1]}, "max_position_embeddings"),
    ({"head_dim": "64"}, "head_dim='64' must be"),
    (
        {"head_dim": None, "num_attention_heads": 128, "num_key_value_heads": 128},
        "a head of 0|can't be used",
    ),
    ({"architectures": 5}, "architectures='5' must be a list of names"),
    ({"architectures": {"a": 1}}, "architectures="),
    ({"architectures": [["LlamaForCausalLM"]]}, "architectures="),
    ({"quantization_config": "x"}, "quantization_config='x' must be an object"),
    ({"rope_parameters": "abc"}, "rope_parameters='abc' must be an object"),
    ({"rope_parameters": {"rope_type": "linear", "factor": "x" * 300, "rope_theta": 1e4}}, "factor='xxx"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 1e308, "rope_theta": 1e4}}, "factor='1e"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 0}}, "rope_theta='0' must be a number above 0"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}}, "rope_theta='-1.0' must be"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": float("nan")}}, "rope_theta='nan' must be"),
    ({"rope_parameters": {"rope_type": ["default"]}}, "RoPE kind"),
    ({"rope_parameters": {"rope_type": "longrope", "short_factor": "x", "long_factor": [1]}}, "short_factor"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "config.json can't be used|original_max"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps='nan' must be a number from 0 to below 1"),
    ({"rms_norm_eps": -1}, "rms_norm_eps='-1' must be"),
    ({"rms_norm_eps": "x"}, "rms_norm_eps='x' must be"),
    ({"eos_token_id": "x"}, "eos_token_id='x' must be a token id, a list of them, or null"),
    ({"eos_token_id": [1, [2]]}, "eos_token_id"),
    ({"dtype": 16}, "dtype='16' must be a text"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings='no' must be true or false"),
    ({"hidden_act": [1]}, "hidden_act"),
    ({"partial_rotary_factor": "half"}, "partial_rotary_factor"),
]


@fault(
    "Model folders",
    "a config.json with wrong types or absurd numbers",
    how="36 of them, from 0 KV heads to 10**30 hidden sizes and 10**5 layers",
    then="ModelError of one line with field, value and limit, before a layer is built",
)
@pytest.mark.parametrize(("fields", "says"), CONFIGS, ids=lambda value: str(value)[:40])
def test_a_config_that_can_not_be(folder: Path, fields: dict[str, Any], says: str) -> None:
    if "eos_token_id" in fields:
        (folder / "generation_config.json").unlink()
    change(folder, "config.json", **fields)
    assert any(one in refused(folder) for one in says.split("|"))


FILES: list[tuple[str, str, str]] = [
    ("config.json", f'{{"a": {DEEP}}}', "is not valid JSON"),
    ("config.json", "\x00", "is not valid JSON"),
    ("config.json", "1" * 5000, "is not valid JSON"),
    ("generation_config.json", DEEP, "is not valid JSON"),
    ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id='x' must be"),
    ("tokenizer_config.json", "[]", "does not hold a JSON object"),
    ("tokenizer_config.json", '{"model_max_length": -5}', "model_max_length='-5' must be a number from 1 up"),
    ("tokenizer_config.json", '{"model_max_length": "abc"}', "model_max_length='abc' must be"),
    ("tokenizer_config.json", '{"model_max_length": [1]}', "model_max_length='[1]' must be"),
    ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["evil.E", null]}}', "names code of its own (auto_map: "),
]


@pytest.mark.parametrize(("name", "text", "says"), FILES, ids=range(len(FILES)))
def test_other_files_that_can_not_be(folder: Path, name: str, text: str, says: str) -> None:
    (folder / name).write_text(text)
    assert says in refused(folder)


INDEXES = [5, [], "x", {"a": 5}, {"a": ["x"]}, {"a": "x" * 5000}, {"a": "../model.safetensors"}, {"a": "/etc/passwd"}]


@fault(
    "Model folders",
    "an index that points out of its folder",
    how="`weight_map` names ../model.safetensors, /etc/passwd, numbers, a name of 5,000 characters",
    then="ModelError names it; the file is not opened",
)
@pytest.mark.parametrize("weight_map", INDEXES, ids=lambda value: str(value)[:40])
def test_an_index_that_points_elsewhere(folder: Path, weight_map: Any) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "model.safetensors")
    change(folder, "model.safetensors.index.json", weight_map=weight_map)
    assert "weight_map" in (message := refused(folder)) or "must be the name of a *.safetensors file in" in message


# ---------------------------------------------------------------------- weights


def header(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    names = json.loads(data[8 : 8 + size])
    edit(names)
    text = json.dumps(names).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def overlap(names: dict[str, Any]) -> None:
    first, second = [name for name in names if name != "__metadata__"][:2]
    names[second] = names[first]


WEIGHTS: dict[str, Callable[[Path], Any]] = {
    "two tensors in one place": lambda path: header(path, overlap),
    "offsets of 2**60": lambda path: header(
        path, lambda names: next(iter(names.values())).update(data_offsets=[2**60, 2**60 + 4])
    ),
    "a shape of 2**60": lambda path: header(path, lambda names: list(names.values())[-1].update(shape=[2**60])),
    "a header of 2**62 bytes": lambda path: path.write_bytes(struct.pack("<Q", 2**62) + b"{}"),
    "half a file": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "nothing": lambda path: path.write_bytes(b""),
    "a pickle": lambda path: torch.save({"a": torch.ones(1)}, path),
    "integers": lambda path: save_file({k: v.to(torch.int32) for k, v in load_file(path).items()}, path),
}


@fault(
    "Model folders",
    "weights that are no weights",
    how="overlapping and huge offsets, a huge header, half a file, a pickle, integers in place of numbers",
    then="ModelError of one line names the file or the tensors; nothing is unpickled",
)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_that_can_not_be(folder: Path, kind: str) -> None:
    WEIGHTS[kind](folder / "model.safetensors")
    with pytest.raises(ModelError) as refusal:
        LLM(str(folder), multiprocess=False)
    says = "I32" if kind == "integers" else "is not a whole safetensors file"
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---------------------------------------------------------------------- code

EVIL = 'open("{0}", "w").close()\nclass C: pass\n'


@fault(
    "Model folders",
    "code that comes with a model",
    how="auto_map in config.json and tokenizer_config.json, custom_generate, an unknown model_type; y on stdin",
    then="ModelError of one line; nobody is asked, nothing runs",
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("known", [True, False])
def test_no_code_of_a_folder_runs(folder: Path, name: str, known: bool) -> None:
    proof = folder.parent / "it ran"
    (folder / "evil.py").write_text(EVIL.format(proof))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate/generate.py").write_text(EVIL.format(proof))
    classes = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C", "AutoTokenizer": ["evil.C", "evil.C"]}
    change(folder, name, auto_map=classes)
    if not known:
        change(folder, "config.json", model_type="evil")
    command = [sys.executable, "-m", "minivllm", "generate", "hi", "--model", str(folder)]
    done = subprocess.run(command, input="y\ny\ny\n", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert ("names code of its own (auto_map: " in done.stderr) or (not known and "`evil`" in done.stderr)
    assert "trust_remote_code" not in done.stderr
    assert not proof.exists()


def test_every_loading_says_that_no_code_is_run() -> None:
    """transformers asks on the terminal where it is not told."""
    package = Path(load_model_config.__globals__["__file__"]).parents[1]
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in ("AutoConfig", "AutoTokenizer", "TokenizerClass", "AutoModelForCausalLM"):
            for call in text.split(f"{name}.from_pretrained(")[1:]:
                assert "trust_remote_code=False" in call[:300], path


# ---------------------------------------------------------------------- the default model's manifest


@pytest.mark.parametrize(
    "manifest",
    [
        {"wheel_sha256": "x", "files": []},
        {"wheel_sha256": "x", "files": {}},
        {"wheel_sha256": "x", "files": {"config.json": {}, "model.safetensors": {}}},
        {"wheel_sha256": "x", "files": {"config.json": 1, "model.safetensors": 2}},
        {"wheel_sha256": "x", "files": "config.json model.safetensors"},
        [],
    ],
    ids=str,
)
def test_a_damaged_manifest_is_none(tmp_path: Path, manifest: Any) -> None:
    from minivllm.models.default_model import SMOLLM2

    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert read_manifest(tmp_path) is None
    assert find_damage(tmp_path, SMOLLM2) == "manifest.json is missing or unreadable"
