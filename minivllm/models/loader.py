"""Loading: from safetensors files to a model ready to run.

Owns: nothing after it returns.
Interface: `load_model`.
Must not know: where the model came from, or what runs it.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from minivllm.attention.backend import AttentionBackend
from minivllm.errors import ModelError
from minivllm.models.llama import LlamaForCausalLM
from minivllm.models.model_config import ModelConfig, weight_files
from minivllm.printable import one_line

FLOATS = ("F32", "BF16", "F16", "F64")  # as safetensors calls them
# tables that old checkpoints carry and that are computed here
NOT_WEIGHTS = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


def load_model(
    model_config: ModelConfig, dtype: torch.dtype, device: torch.device | str, backend: AttentionBackend
) -> LlamaForCausalLM:
    """The model with its weights as `dtype` on `device`, ready to run.

    Raises ModelError that names each tensor that is missing, there twice, unexpected or of the wrong shape.

    vLLM: model_executor/model_loader/base_loader.py::BaseModelLoader.load_model
    """
    with torch.device("meta"):
        model = LlamaForCausalLM(model_config, backend)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    places = _find_tensors(model_config, expected)
    weights = {}
    for path in weight_files(Path(model_config.path)):
        with _opened(path) as file:
            for name in (name for name, where in places.items() if where == path):
                weights[name] = file.get_tensor(name).to(device=device, dtype=dtype)
    model.load_state_dict(weights, assign=True)
    return model.to(device).requires_grad_(False).eval()


def _find_tensors(model_config: ModelConfig, expected: dict[str, tuple[int, ...]]) -> dict[str, Path]:
    """Which file holds each expected tensor. Checks every name and shape before anything big is read.

    vLLM: model_executor/models/utils.py::AutoWeightsLoader (role)
    """
    places: dict[str, Path] = {}
    twice, unexpected, misshapen, mistyped = [], [], [], []
    for path in weight_files(Path(model_config.path)):
        with _opened(path) as file:
            for name in file.keys():
                if name.endswith(NOT_WEIGHTS) or (name == "lm_head.weight" and model_config.tie_word_embeddings):
                    continue
                tensor = file.get_slice(name)
                shape, dtype = tuple(tensor.get_shape()), tensor.get_dtype()
                if name in places:
                    twice.append(f"{name} (in {places[name].name} and {path.name})")
                elif name not in expected:
                    unexpected.append(name)
                elif shape != expected[name]:
                    misshapen.append(f"{name} ({shape} instead of {expected[name]})")
                elif dtype not in FLOATS:
                    mistyped.append(f"{name} ({dtype})")
                places[name] = path
    missing = [name for name in expected if name not in places]
    problems = [
        f"{kind}: {_first(names)}"
        for kind, names in (
            ("missing", missing),
            ("there twice", twice),
            ("not part of this architecture", unexpected),
            ("of the wrong shape", misshapen),
            (f"whose numbers are not of {', '.join(FLOATS)}", mistyped),
        )
        if names
    ]
    if problems:
        raise ModelError(
            f"The weights in {model_config.path} do not fit {model_config.architecture} as config.json describes it. "
            f"Tensors {'; '.join(problems)}. Check that config.json and the *.safetensors belong together."
        )
    return places


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is not a whole safetensors file ({one_line(error)}). Fetch the model again."
        ) from error


def _first(names: list[str], count: int = 5) -> str:
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
