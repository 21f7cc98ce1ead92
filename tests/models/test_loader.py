"""Weights that do not fit are named; those that fit come from one file or many."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model

from minivllm.attention.selector import get_attn_backend
from minivllm.errors import ModelError
from minivllm.models.llama import LlamaForCausalLM
from minivllm.models.loader import load_model
from minivllm.models.model_config import load_model_config

Weights = dict[str, torch.Tensor]
NORM = "model.layers.1.post_attention_layernorm.weight"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    config = load_model_config(folder)
    heads = {"num_heads": config.num_attention_heads, "num_kv_heads": config.num_kv_heads}
    backend = get_attn_backend("torch", "cpu", **heads, head_size=config.head_size, block_size=16)
    return load_model(config, dtype, "cpu", backend)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny Llama whose tensors went through `change`."""

    def make(change: Callable[[Weights], object], tie: bool = True) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(tiny_model("llama", tie=tie), folder)
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return make


def test_every_weight_arrives() -> None:
    folder = tiny_model("qwen3", tie=False)
    stored = load_file(folder / "model.safetensors")
    loaded = load(folder).state_dict()
    assert loaded.keys() == stored.keys()
    assert all(torch.equal(loaded[name], stored[name]) for name in stored)


def test_dtype_is_the_asked_one() -> None:
    folder = tiny_model("llama", dtype="bfloat16")
    stored = load_file(folder / "model.safetensors")
    loaded = load(folder, torch.float32).state_dict()
    assert all(
        loaded[name].dtype == torch.float32 and torch.equal(loaded[name], stored[name].float()) for name in stored
    )


def test_shards_give_the_same_model() -> None:
    folder = tiny_model("llama", max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    whole = load(tiny_model("llama")).state_dict()
    sharded = load(folder).state_dict()
    assert all(torch.equal(whole[name], sharded[name]) for name in whole)


def test_missing_weights_are_named(changed: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=f"Tensors missing: {NORM}"):
        load(changed(lambda weights: weights.pop(NORM)))


def test_an_untied_head_must_be_there(changed: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=r"Tensors missing: lm_head\.weight"):
        load(changed(lambda weights: weights.pop("lm_head.weight"), tie=False))


def test_unexpected_weights_are_named(changed: Callable[..., Path]) -> None:
    folder = changed(lambda weights: weights.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(16)}))
    with pytest.raises(ModelError, match=r"not part of this architecture: model\.layers\.0\.self_attn\.q_norm\.weight"):
        load(folder)


def test_weights_of_the_wrong_shape_are_named(changed: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=rf"of the wrong shape: {NORM} \(\(63,\) instead of \(64,\)\)"):
        load(changed(lambda weights: weights.update({NORM: torch.ones(63)})))


def test_a_long_list_is_cut(changed: Callable[..., Path]) -> None:
    def rename(weights: Weights) -> None:
        for name in list(weights):
            weights["transformer." + name] = weights.pop(name)

    with pytest.raises(ModelError, match=r"missing: .* and 15 more; not part of this architecture: .* and 15 more"):
        load(changed(rename))


def test_a_weight_in_two_shards_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama", max_shard_size="100KB"), folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    home, other = index[NORM], next(shard for shard in index.values() if shard != index[NORM])
    weights = load_file(folder / other) | {NORM: torch.ones(64)}
    save_file(weights, folder / other, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"there twice: {NORM}") as caught:
        load(folder)
    assert home in str(caught.value) and other in str(caught.value)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama", max_shard_size="100KB"), folder)
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ModelError, match=f"lacks {shard.name}"):
        load(folder)


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama"), folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a whole safetensors file"):
        load(folder)


def test_tables_of_old_checkpoints_are_ignored(changed: Callable[..., Path]) -> None:
    def add(weights: Weights) -> None:
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
        weights["model.rotary_emb.cos_cached"] = torch.zeros(8)

    inv_freq = load(changed(add)).model.rotary_emb.inv_freq
    assert inv_freq[0] == 1.0


def test_a_tied_model_ignores_a_head_in_the_file(changed: Callable[..., Path]) -> None:
    folder = changed(lambda weights: weights.update({"lm_head.weight": torch.zeros(320, 64)}))
    model = load(folder)
    hidden = torch.ones(2, 64)
    assert torch.equal(model.compute_logits(hidden), hidden @ model.model.embed_tokens.weight.T)
