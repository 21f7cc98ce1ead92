"""What a config.json must be before anybody computes with it: each field of its type, each number in its range.

Interface: check_config, check_index, check_token_ids, check_length, check_no_code.
Must not know: what a field is for.

A model folder is somebody else's. A wrong value that goes on from here shows as a ZeroDivisionError amid the engine,
or as minutes of building layers that no file has weights for.
"""

import math
from pathlib import Path
from typing import Any

from minivllm.errors import ModelError

# field -> largest; from 1 up. No model that exists comes near these
SIZES = {
    "num_hidden_layers": 2_000,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 14,
    "vocab_size": 1 << 26,
    "max_position_embeddings": 1 << 32,
    "sliding_window": 1 << 32,
    "original_max_position_embeddings": 1 << 32,
}
SWITCHES = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window")
TEXTS = ("model_type", "hidden_act", "dtype", "torch_dtype")
ABOVE_ZERO = ("rope_theta", "factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor")


def check_config(raw: dict[str, Any], path: Path) -> None:
    """Raise ModelError, which names field, value and what it must be, for the fields of config.json that are read.

    A field that is null or missing has a default.
    """
    architectures = raw.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise _wrong(path, "architectures", architectures, "a list of names")
    for name in ("quantization_config", "rope_parameters", "rope_scaling"):
        if not isinstance(raw.get(name) or {}, dict):
            raise _wrong(path, name, raw[name], "an object")
    for name in (*SWITCHES, *TEXTS):
        kind, said = (bool, "true or false") if name in SWITCHES else (str, "a text")
        if not isinstance(raw.get(name), kind | None):
            raise _wrong(path, name, raw[name], said)
    _check_sizes(raw, path)
    eps = raw.get("rms_norm_eps", 0)
    if not _is_number(eps) or not 0 <= eps < 1:
        raise _wrong(path, "rms_norm_eps", eps, "a number from 0 to below 1")
    for rope in (raw, raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}):
        _check_rope(rope, path)
    check_token_ids(raw.get("eos_token_id"), path)
    check_no_code(raw, path)


def check_no_code(raw: dict[str, Any], path: Path) -> None:
    """Raise ModelError if a file wants code of its folder to be run. That never happens, and nobody is asked."""
    if raw.get("auto_map"):
        values = raw["auto_map"].values() if isinstance(raw["auto_map"], dict) else [raw["auto_map"]]
        raise ModelError(
            f"{path} names code of its own (auto_map: {', '.join(map(str, values))}), and code that comes with a model "
            "is never run. If the model is of a covered architecture, remove auto_map from the file."
        )


def check_token_ids(value: Any, path: Path) -> None:
    """Raise ModelError for an eos_token_id that is neither an id, nor a list of ids, nor null."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token_id) is int and 0 <= token_id < SIZES["vocab_size"] for token_id in ids):
        raise _wrong(path, "eos_token_id", value, "a token id, a list of them, or null")


def check_length(value: Any, path: Path) -> None:
    """Raise ModelError for a model_max_length that is no length. Hugging Face writes 10**30 for none."""
    if value is not None and not (_is_number(value) and value >= 1):
        raise _wrong(path, "model_max_length", value, "a number from 1 up")


def check_index(weight_map: Any, path: Path) -> None:
    """Raise ModelError for an index whose files are not names of files in its own folder."""
    if not isinstance(weight_map, dict):
        raise ModelError(f"{path} has no weight_map. Fetch the model again.")
    for name in weight_map.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or len(name) > 255 or "/" in name:
            raise ModelError(
                f"{path} names {str(name)[:80]!r} as a file of weights: it must be the name of a *.safetensors file in "
                "the same folder. Fetch the model again."
            )


def _check_sizes(raw: dict[str, Any], path: Path) -> None:
    for name, largest in SIZES.items():
        value = raw.get(name)
        if value is not None and not (type(value) is int and 1 <= value <= largest):
            raise _wrong(path, name, value, f"a whole number from 1 to {largest}")


def _check_rope(rope: dict[str, Any], path: Path) -> None:
    _check_sizes({name: rope.get(name) for name in ("original_max_position_embeddings",)}, path)
    for name in ABOVE_ZERO:
        value = rope.get(name)
        if value is not None and not (_is_number(value) and 0 < value < 1e18):
            raise _wrong(path, name, value, "a number above 0 and below 1e18")
    for name in ("short_factor", "long_factor"):
        value = rope.get(name)
        if value is not None and not (isinstance(value, list) and all(map(_is_number, value))):
            raise _wrong(path, name, value, "a list of numbers")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _wrong(path: Path, name: str, value: Any, must_be: str) -> ModelError:
    return ModelError(f"{path} can't be used: {name}={str(value)[:80]!r} must be {must_be}. Fetch the model again.")
