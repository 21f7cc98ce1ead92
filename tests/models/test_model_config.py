"""What a model folder says about itself, and every refusal."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tiny_models import tiny_model

from minivllm.errors import InputError, ModelError
from minivllm.models.model_config import ModelConfig, check_max_model_len, load_model_config

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 128,
}


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the tiny Llama with some fields of config.json changed; a field set to None is removed."""

    def change(**fields: Any) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(tiny_model("llama"), folder)
        config = json.loads((folder / "config.json").read_text()) | fields
        (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
        return folder

    return change


def test_the_shape_of_a_llama() -> None:
    folder = tiny_model("llama", heads=8, kv_heads=1, head_size=32, num_layers=3, tie=False, rms_norm_eps=1e-3)
    config = load_model_config(folder)
    assert config == ModelConfig(
        path=str(folder),
        architecture="LlamaForCausalLM",
        num_layers=3,
        hidden_size=128,
        intermediate_size=96,
        num_attention_heads=8,
        num_kv_heads=1,
        head_size=32,
        vocab_size=320,
        max_position_embeddings=512,
        max_model_len=512,
        rms_norm_eps=1e-3,
        dtype="float32",
        tie_word_embeddings=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        sliding_window=None,
        eos_token_ids=[2],
        generation_defaults={},
    )
    assert config.rope_kind == "default"


@pytest.mark.parametrize(
    ("family", "settings", "qkv_bias", "o_bias", "mlp_bias", "qk_norm"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}, True, True, True, False),
        ("mistral", {}, False, False, False, False),
        ("qwen2", {}, True, False, False, False),
        ("qwen3", {}, False, False, False, True),
        ("qwen3", {"attention_bias": True}, True, True, False, True),
    ],
)
def test_families_differ_in_biases_and_norms(
    family: str, settings: dict[str, Any], qkv_bias: bool, o_bias: bool, mlp_bias: bool, qk_norm: bool
) -> None:
    config = load_model_config(tiny_model(family, **settings))
    found = (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm)
    assert found == (qkv_bias, o_bias, mlp_bias, qk_norm)


def test_dtype_is_that_of_the_checkpoint(changed: Callable[..., Path]) -> None:
    assert load_model_config(tiny_model("llama", dtype="bfloat16")).dtype == "bfloat16"
    assert load_model_config(changed(dtype=None, torch_dtype=None)).dtype == "float32"


@pytest.mark.parametrize(
    ("rope", "limit"),
    [
        ({"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}, 1024),
        ({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, 512),
        (YARN, 512),
        ({**YARN, "factor": 2.0}, 256),
        (LONGROPE, 128),
    ],
)
def test_the_limit_follows_the_rope_kind(rope: dict[str, Any], limit: int) -> None:
    config = load_model_config(tiny_model("llama", rope=rope))
    assert config.max_model_len == limit
    check_max_model_len(config, limit)
    with pytest.raises(InputError, match=f"max_model_len={limit + 1} is larger than the model's limit of {limit}"):
        check_max_model_len(config, limit + 1)


def test_old_style_rope_scaling_is_understood(changed: Callable[..., Path]) -> None:
    folder = changed(rope_parameters=None, rope_theta=5000.0, rope_scaling={"type": "linear", "factor": 2.0})
    config = load_model_config(folder)
    assert config.rope_parameters == {"type": "linear", "rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}


def test_the_tokenizer_can_lower_the_limit(changed: Callable[..., Path]) -> None:
    folder = changed()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 77}))
    assert load_model_config(folder).max_model_len == 77


@pytest.mark.parametrize(
    ("family", "settings", "window"),
    [
        ("mistral", {"sliding_window": 64}, 64),
        ("mistral", {"sliding_window": None}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": False}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1}, 64),
        ("qwen3", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}, None),
    ],
)
def test_a_sliding_window_limits_the_length(family: str, settings: dict[str, Any], window: int | None) -> None:
    config = load_model_config(tiny_model(family, **settings))
    assert config.sliding_window == window
    check_max_model_len(config, window or 512)
    if window:
        with pytest.raises(InputError, match=f"Set max_model_len={window} or less"):
            check_max_model_len(config, window + 1)


def test_generation_config_gives_defaults_and_eos() -> None:
    generation = {
        "eos_token_id": [2, 5],
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "repetition_penalty": 1.1,
        "max_new_tokens": 33,
        "do_sample": True,
    }
    config = load_model_config(tiny_model("llama", generation=generation))
    assert config.eos_token_ids == [2, 5]
    assert config.generation_defaults == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "repetition_penalty": 1.1,
        "max_tokens": 33,
    }


def test_without_generation_config_the_eos_is_that_of_config(changed: Callable[..., Path]) -> None:
    folder = changed(eos_token_id=[7, 8])
    (folder / "generation_config.json").unlink()
    config = load_model_config(folder)
    assert config.eos_token_ids == [7, 8] and config.generation_defaults == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel .* not covered. Covered: LlamaFor"),
        ({"architectures": None}, "architecture none named"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantized .awq."),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' .* not covered. Covered: silu"),
        ({"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}}, "RoPE kind 'proportional' .* covered"),
        ({"rope_parameters": {"rope_type": "moon", "rope_theta": 1e4}}, "RoPE kind 'moon' .* not covered"),
        ({"rope_scaling": {"type": "mrope"}, "rope_parameters": None}, "RoPE kind 'mrope' .* not covered"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "'one per layer type' .* not covered"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"dtype": "float64"}, "dtype='float64' .* not covered. Covered: float32, bfloat16, float16"),
        ({"num_key_value_heads": 3}, "4 query heads and 3 KV heads"),
        ({"head_dim": 15}, "head_dim=15 of .* is odd"),
        ({"num_hidden_layers": "two"}, "config.json can't be used"),
    ],
)
def test_a_model_that_is_not_covered_is_refused_by_name(
    changed: Callable[..., Path], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=f"(?s){message}"):
        load_model_config(changed(**fields))


def test_folders_that_are_no_model(changed: Callable[..., Path], tmp_path: Path) -> None:
    folder = changed()
    with pytest.raises(ModelError, match=r"no model folder '/no/such/folder'\. Give a folder"):
        load_model_config("/no/such/folder")
    with pytest.raises(ModelError, match=r"is a file\. Give the Hugging Face folder"):
        load_model_config(folder / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_model_config(tmp_path / "empty")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \*.safetensors weights \(found pytorch_model.bin: convert"):
        load_model_config(folder)
    (folder / "config.json").write_text('{"architectures": ')
    with pytest.raises(ModelError, match=r"config\.json is not valid JSON"):
        load_model_config(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="does not hold a JSON object"):
        load_model_config(folder)


def test_a_hub_id_that_can_not_be_had_points_at_a_local_folder() -> None:
    # the tests run with HF_HUB_OFFLINE=1
    with pytest.raises(ModelError, match=r"'nobody/no-such-model' is no local folder, and .* Point at a local"):
        load_model_config("nobody/no-such-model")


def test_it_crosses_to_another_process() -> None:
    config = load_model_config(tiny_model("llama", rope=LONGROPE))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=ModelConfig) == config


def test_importing_it_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, minivllm.models.model_config; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
