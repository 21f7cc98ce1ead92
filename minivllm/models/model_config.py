"""ModelConfig: what a model folder says about itself, checked, as plain data.

Owns: which models are covered. Everything that is not covered is refused here by name, before weights are read.
Interface: `resolve_model_path`, `load_model_config`, `check_max_model_len`, `weight_files`.
Must not know: torch (transformers is imported only inside the functions that need it), or the engine's settings.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from minivllm.errors import InputError, ModelError
from minivllm.models.config_check import (
    check_config,
    check_index,
    check_length,
    check_no_code,
    check_token_ids,
)
from minivllm.models.default_model import default_model_path
from minivllm.paths import check_current_folder
from minivllm.printable import one_line

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# "proportional" belongs to models that are not covered; the others are safe for a flat batch, see `_max_model_len`
ROPE_KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
DTYPES = ("float32", "bfloat16", "float16")
# names in generation_config.json that are SamplingParams
GENERATION_DEFAULTS = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
MAX_JSON = 64 << 20  # bytes of a config or an index
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a model and its defaults. It holds plain data only, so it can cross to another process.

    vLLM: config/model.py::ModelConfig (simplified: only what the covered architectures need)
    """

    path: str  # a local folder
    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_position_embeddings: int
    max_model_len: int  # the most tokens of one request, prompt and output
    rms_norm_eps: float
    dtype: str  # one of DTYPES, of the weights as they are stored
    tie_word_embeddings: bool  # the head uses the embedding's weights
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool  # RMSNorm over each head of q and k
    rope_parameters: dict[str, Any]  # in transformers' form: rope_type, rope_theta, and what the kind needs
    sliding_window: int | None  # tokens; None: every layer sees the whole context
    eos_token_ids: list[int]  # generation_config's, or config's; any of them ends a request
    generation_defaults: dict[str, Any]  # SamplingParams that the model's authors set

    @property
    def rope_kind(self) -> str:
        """One of ROPE_KINDS.

        vLLM: none, vLLM reads rope_parameters where it needs them
        """
        return self.rope_parameters["rope_type"]


def resolve_model_path(model: str | Path | None) -> Path:
    """The local folder of `model`: a folder, a Hugging Face hub id (fetched now), or None for the default model.

    Raises ModelError if there is no such folder and the hub can't give it.

    vLLM: none, vLLM resolves names in each loader
    """
    check_current_folder()
    if model is None:
        return default_model_path()
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelError(f"The model {str(model)!r} is a file. Give the Hugging Face folder that holds config.json.")
    name = str(model)
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ModelError(
            f"There is no model folder {name!r}. Give a folder with config.json, a tokenizer and *.safetensors, or a "
            "hub id such as HuggingFaceTB/SmolLM2-135M-Instruct, or leave the model out for the default one."
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=["original/*", "consolidated*"]))
    except Exception as error:  # the hub client raises OSError, ValueError and its HTTP library's errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"The model {name!r} is no local folder, and the Hugging Face hub did not give it ({reason}). Point at a "
            "local Hugging Face folder instead, or leave the model out for the default one."
        ) from error


def load_model_config(model: str | Path | None) -> ModelConfig:
    """Read and check the config of `model`, which is a folder, a hub id, or None for the default model.

    Raises ModelError, which names what is missing or not covered.

    vLLM: config/model.py::ModelConfig.__post_init__ (role)
    """
    folder = resolve_model_path(model)
    raw = _read_json(folder / "config.json")
    if raw is None:
        raise ModelError(f"The model folder {folder} has no config.json. Give the folder that holds it.")
    check_config(raw, folder / "config.json")
    _refuse_not_covered(raw, folder)
    weight_files(folder)
    hf_config = _hf_config(folder, raw)
    generation = _generation_config(folder)
    architecture = raw["architectures"][0]
    attention_bias = architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM") and hf_config.attention_bias
    head_size = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // hf_config.num_attention_heads
    config = ModelConfig(
        path=str(folder),
        architecture=architecture,
        num_layers=hf_config.num_hidden_layers,
        hidden_size=hf_config.hidden_size,
        intermediate_size=hf_config.intermediate_size,
        num_attention_heads=hf_config.num_attention_heads,
        num_kv_heads=hf_config.num_key_value_heads,
        head_size=head_size,
        vocab_size=hf_config.vocab_size,
        max_position_embeddings=hf_config.max_position_embeddings,
        max_model_len=_max_model_len(hf_config, folder),
        rms_norm_eps=hf_config.rms_norm_eps,
        dtype=str(hf_config.dtype or "float32").removeprefix("torch."),
        tie_word_embeddings=hf_config.tie_word_embeddings,
        qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
        o_bias=attention_bias,
        mlp_bias=architecture == "LlamaForCausalLM" and hf_config.mlp_bias,
        qk_norm=architecture == "Qwen3ForCausalLM",
        rope_parameters=dict(hf_config.rope_parameters),
        sliding_window=_sliding_window(hf_config, architecture),
        eos_token_ids=_token_ids(generation.get("eos_token_id", hf_config.eos_token_id)),
        generation_defaults=_sampling_defaults(generation),
    )
    _check_shape(config)
    return config


def check_max_model_len(model_config: ModelConfig, max_model_len: int) -> None:
    """Raise InputError if requests of `max_model_len` tokens are beyond what this model or this engine can do.

    vLLM: config/model.py::_get_and_verify_max_len (simplified: sliding windows are refused, not done)
    """
    if max_model_len > model_config.max_model_len:
        raise InputError(
            f"max_model_len={max_model_len} is larger than the model's limit of {model_config.max_model_len} tokens. "
            f"Use at most {model_config.max_model_len}, or leave it out."
        )
    window = model_config.sliding_window
    if window is not None and window < max_model_len:
        raise InputError(
            f"max_model_len={max_model_len} is larger than the model's sliding window of {window} tokens, and sliding "
            f"windows are not covered. Set max_model_len={window} or less: up to there every token is in the window."
        )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in order. Raises ModelError if there are none, or one is missing.

    vLLM: model_executor/model_loader/default_loader.py::DefaultModelLoader._prepare_weights (simplified: safetensors)
    """
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = _read_json(folder / "model.safetensors.index.json")
    if index is not None:
        check_index(index.get("weight_map"), folder / "model.safetensors.index.json")
        files = [folder / name for name in sorted(set(index["weight_map"].values()))]
    else:
        files = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("consolidated"))
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise ModelError(
            f"The model folder {folder} lacks {', '.join(missing)}, which its index names. Fetch it again."
        )
    if not files:
        other = sorted(path.name for pattern in ("*.bin", "*.gguf", "*.pth") for path in folder.glob(pattern))
        found = f" (found {', '.join(other[:3])}: convert it to safetensors)" if other else ""
        raise ModelError(f"The model folder {folder} has no *.safetensors weights{found}.")
    return files


def _refuse_not_covered(raw: dict[str, Any], folder: Path) -> None:
    architectures = raw.get("architectures") or ["none named"]
    if architectures[0] not in ARCHITECTURES:
        raise ModelError(
            f"The architecture {architectures[0]} of {folder} is not covered. Covered: {', '.join(ARCHITECTURES)}."
        )
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown method")
        raise ModelError(
            f"The weights of {folder} are quantized ({method}), which is not covered. Use the model's float32, "
            "bfloat16 or float16 version."
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"hidden_act={raw['hidden_act']!r} of {folder} is not covered. Covered: silu.")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_KINDS or any(isinstance(value, dict) for value in rope.values()):
        kind = kind if kind not in ROPE_KINDS else "one per layer type"
        raise ModelError(f"The RoPE kind {kind!r} of {folder} is not covered. Covered: {', '.join(ROPE_KINDS)}.")
    partial = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor")) or 1.0
    if partial != 1.0:
        raise ModelError(f"partial_rotary_factor={partial} of {folder} is not covered: RoPE must turn whole heads.")
    if (raw.get("head_dim") or 0) % 2:
        raise ModelError(f"head_dim={raw['head_dim']} of {folder} is odd, but RoPE turns pairs of dimensions.")


def _check_shape(config: ModelConfig) -> None:
    if config.head_size < 1 or config.head_size % 2:
        raise ModelError(
            f"{config.path} has {config.num_attention_heads} query heads in a hidden_size of {config.hidden_size}: a "
            f"head of {config.head_size} has no pairs of dimensions that RoPE could turn."
        )
    if config.dtype not in DTYPES:
        raise ModelError(f"dtype={config.dtype!r} of {config.path} is not covered. Covered: {', '.join(DTYPES)}.")
    if config.num_attention_heads % config.num_kv_heads:
        raise ModelError(
            f"{config.path} has {config.num_attention_heads} query heads and {config.num_kv_heads} KV heads: the query "
            "heads must be a multiple of the KV heads."
        )


def _max_model_len(hf_config: Any, folder: Path) -> int:
    """dynamic and longrope stay within the original length: beyond it their frequencies depend on the whole batch.

    vLLM: config/model.py::_get_and_verify_max_len (simplified: vLLM stretches dynamic by its factor)
    """
    rope = hf_config.rope_parameters
    path = folder / "tokenizer_config.json"
    tokenizer_config = _read_json(path) or {}
    check_no_code(tokenizer_config, path)
    check_length(tokenizer_config.get("model_max_length"), path)
    limit = hf_config.max_position_embeddings
    limit = min(limit, tokenizer_config.get("model_max_length") or limit)
    if rope["rope_type"] == "longrope":
        limit = min(limit, rope["original_max_position_embeddings"])
    elif rope["rope_type"] == "yarn":
        limit = rope["original_max_position_embeddings"] * (rope.get("factor") or 1.0)
    elif rope["rope_type"] == "linear":
        limit *= rope.get("factor") or 1.0
    return int(limit)


def _sliding_window(hf_config: Any, architecture: str) -> int | None:
    """The window if any layer has one. Llama ignores the field, Qwen has it per layer."""
    if architecture == "LlamaForCausalLM":
        return None
    layer_types = getattr(hf_config, "layer_types", None)
    if layer_types is not None and "sliding_attention" not in layer_types:
        return None
    return getattr(hf_config, "sliding_window", None)


def _sampling_defaults(generation: dict[str, Any]) -> dict[str, Any]:
    """vLLM: config/model.py::ModelConfig.get_diff_sampling_param"""
    defaults = {name: generation[name] for name in GENERATION_DEFAULTS if generation.get(name) is not None}
    if "max_new_tokens" in defaults:
        defaults["max_tokens"] = defaults.pop("max_new_tokens")
    return defaults


def _generation_config(folder: Path) -> dict[str, Any]:
    """What generation_config.json sets differently from transformers' defaults; {} without the file.

    vLLM: config/model.py::ModelConfig.try_get_generation_config
    """
    raw = _read_json(folder / "generation_config.json")
    if raw is None:
        return {}
    check_token_ids(raw.get("eos_token_id"), folder / "generation_config.json")
    if not set(raw) & set(GENERATION_DEFAULTS):
        return raw  # nothing that has a default; transformers' class would bring torch, which takes seconds
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(folder).to_diff_dict()
    except Exception as error:  # transformers raises many types for a file it can't use
        raise ModelError(f"{folder / 'generation_config.json'} can't be used: {one_line(error)}") from error


def _hf_config(folder: Path, raw: dict[str, Any]) -> Any:
    """The config as transformers' class has it, with the defaults of the architecture."""
    if raw["architectures"][0] == "LlamaForCausalLM" and _is_complete(raw):
        return SimpleNamespace(**raw)  # the class would add nothing but the import of torch, which takes seconds
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers raises many types for a file it can't use
        raise ModelError(f"{folder / 'config.json'} can't be used: {one_line(error)}") from error


def _is_complete(raw: dict[str, Any]) -> bool:
    """Whether every field that is read here is set, in today's form."""
    numbers = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
    )
    rope = raw.get("rope_parameters")
    return (
        raw.get("model_type") == "llama"
        and all(type(raw.get(name)) is int and raw[name] > 0 for name in numbers)
        and all(type(raw.get(name)) is bool for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"))
        and type(raw.get("rms_norm_eps")) is float
        and type(raw.get("dtype")) is str
        and "eos_token_id" in raw
        and isinstance(rope, dict)
        and rope.get("rope_type") == "default"
        and type(rope.get("rope_theta")) is float
    )


def _token_ids(value: int | list[int] | None) -> list[int]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None if there is no such file."""
    if not path.is_file():
        return None
    size = path.stat().st_size
    if size > MAX_JSON:
        raise ModelError(f"{path} has {size} bytes; at most {MAX_JSON} are read. Fetch the model again.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON ({one_line(error)}). Fetch the model again.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object. Fetch the model again.")
    return content
