"""LlamaForCausalLM: the model. One class covers Llama, SmolLM2, Mistral, Qwen2 and Qwen3, by ModelConfig.

Owns: the weights, under the names of Hugging Face checkpoints.
Interface: `forward` gives hidden states of a flat batch, `compute_logits` gives logits of some of its rows; `layers`
and `norm`, for who looks inside.
Must not know: requests, rows, blocks or slots. It hands `attn_metadata` through to the attention layers.

The tokens of all requests stand in one flat batch: T tokens, each with its own position, and no padding.
"""

import torch
import torch.nn.functional as F
from torch import nn

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.layer import Attention
from minivllm.attention.metadata import AttentionMetadata
from minivllm.boundary import boundary
from minivllm.models.model_config import ModelConfig


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, computed in float32 and rounded before the weight, as transformers.

    vLLM: model_executor/layers/layernorm.py::RMSNorm (simplified: the residual is added outside)
    """

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class RotaryEmbedding(nn.Module):
    """cos and sin of each token's position, once a step for all layers.

    vLLM: model_executor/layers/rotary_embedding/base.py::RotaryEmbedding (simplified: computed, not looked up)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # the loader builds the model without memory ("meta"), but these numbers come from no checkpoint
        with torch.device("cpu"):
            inv_freq, self.attention_scaling = rope_frequencies(config)
        self.register_buffer("inv_freq", inv_freq, persistent=False)  # float32[head_size / 2]

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """positions int64[T]; gives cos and sin as `dtype` [T, 1, head_size].

        vLLM: model_executor/layers/rotary_embedding/base.py::RotaryEmbedding.forward_native (role)
        """
        angles = positions[:, None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return (angles.cos() * self.attention_scaling).to(dtype), (angles.sin() * self.attention_scaling).to(dtype)


def rope_frequencies(config: ModelConfig) -> tuple[torch.Tensor, float]:
    """float32[head_size / 2] radians per position, and the factor of cos and sin.

    vLLM: model_executor/layers/rotary_embedding/__init__.py::get_rope (role)
    """
    if config.rope_kind == "default":
        exponents = torch.arange(0, config.head_size, 2, dtype=torch.float) / config.head_size
        return 1.0 / config.rope_parameters["rope_theta"] ** exponents, 1.0
    from transformers import LlamaConfig  # here, since most models need neither
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    shape = LlamaConfig(
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        head_dim=config.head_size,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters=dict(config.rope_parameters),
    )
    return ROPE_INIT_FUNCTIONS[config.rope_kind](shape, "cpu")


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each head of x [T, heads, head_size]: dimension i pairs with i + head_size / 2.

    vLLM: model_executor/layers/rotary_embedding/common.py::ApplyRotaryEmb.forward_static
    """
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaMLP(nn.Module):
    """down(silu(gate(x)) * up(x)).

    vLLM: model_executor/models/llama.py::LlamaMLP
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaAttention(nn.Module):
    """Project, normalise the heads (Qwen3), rotate, attend, project back. K is cached after RoPE.

    vLLM: model_executor/models/llama.py::LlamaAttention (simplified: q, k and v are projected one by one)
    """

    def __init__(self, config: ModelConfig, layer_idx: int, backend: AttentionBackend) -> None:
        super().__init__()
        self.head_size = config.head_size
        q_size = config.num_attention_heads * config.head_size
        kv_size = config.num_kv_heads * config.head_size
        self.q_proj = nn.Linear(config.hidden_size, q_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=config.o_bias)
        self.q_norm = RMSNorm(config.head_size, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_size, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.attn = Attention(layer_idx, config.num_attention_heads, config.num_kv_heads, config.head_size, backend)

    def forward(
        self,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
        hidden_states: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        q = self.q_norm(self.q_proj(hidden_states).unflatten(-1, (-1, self.head_size)))
        k = self.k_norm(self.k_proj(hidden_states).unflatten(-1, (-1, self.head_size)))
        v = self.v_proj(hidden_states)
        attn_output = self.attn(apply_rotary(q, *cos_sin), apply_rotary(k, *cos_sin), v, kv_cache, attn_metadata)
        return self.o_proj(attn_output)


class LlamaDecoderLayer(nn.Module):
    """Norm, attention, add; norm, MLP, add.

    vLLM: model_executor/models/llama.py::LlamaDecoderLayer
    """

    def __init__(self, config: ModelConfig, layer_idx: int, backend: AttentionBackend) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config, layer_idx, backend)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
        hidden_states: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(cos_sin, normed, kv_cache, attn_metadata)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class LlamaModel(nn.Module):
    """Embedding, layers, last norm.

    vLLM: model_executor/models/llama.py::LlamaModel
    """

    def __init__(self, config: ModelConfig, backend: AttentionBackend) -> None:
        super().__init__()
        # not filled with random numbers, as nn.Embedding(…) does: for that torch imports its compiler, a second's work
        self.embed_tokens = nn.Embedding.from_pretrained(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, i, backend) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = RotaryEmbedding(config)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: list[torch.Tensor],
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        hidden_states = self.embed_tokens(input_ids)
        cos_sin = self.rotary_emb(positions, hidden_states.dtype)
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            hidden_states = layer(cos_sin, hidden_states, kv_cache, attn_metadata)
        return self.norm(hidden_states)


class LlamaForCausalLM(nn.Module):
    """The model with its head. With tied weights the head is the embedding.

    vLLM: model_executor/models/llama.py::LlamaForCausalLM
    """

    def __init__(self, config: ModelConfig, backend: AttentionBackend) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaModel(config, backend)
        self.lm_head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, False)

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers. What `forward` of one gives is hidden states, or a pair of which the sum is."""
        return self.model.layers

    @property
    def norm(self) -> RMSNorm:
        """The norm behind the last layer."""
        return self.model.norm

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: list[torch.Tensor],
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """input_ids int[T], positions int64[T], one cache per layer; gives hidden states [T, hidden_size].

        Writes K and V of the T tokens to `kv_caches`, in place.

        vLLM: model_executor/models/llama.py::LlamaForCausalLM.forward
        """
        return self.model(input_ids, positions, kv_caches, attn_metadata)

    @boundary("compute_logits")
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """hidden_states [N, hidden_size], the rows wanted; gives logits [N, vocab_size] in the model's dtype.

        vLLM: model_executor/models/llama.py::LlamaForCausalLM.compute_logits
        """
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(hidden_states, head.weight)
