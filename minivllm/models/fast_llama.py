"""FastLlama: the model of llama.py for a CPU. The same weights and the same steps, in fewer and larger calls.

Owns: the weights, laid out for this processor. The model that it is made from gives them up.
Interface: that of LlamaForCausalLM: calling it gives hidden states of a flat batch, `compute_logits` gives logits;
`layers` and `norm`, for who looks inside.
Must not know: what LlamaForCausalLM must not know.

To learn what the model does, read llama.py. What is different here, and what it is for:
- q, k and v are one product, gate and up are one: a product of many rows costs less than several of few.
- In bfloat16 the weights are put into the order in which oneDNN reads them, once, and not at every call.
- What lies between the products (norm with residual, RoPE, silu * up) is one pass each, in C.
- cos and sin are looked up in a table.
"""

import torch
import torch.nn.functional as F

from minivllm.attention.layer import Attention
from minivllm.attention.metadata import AttentionMetadata
from minivllm.boundary import boundary
from minivllm.models.llama import LlamaDecoderLayer, LlamaForCausalLM, RMSNorm
from minivllm.models.model_config import ModelConfig
from minivllm_kernels.cpu_kernels import CpuKernels


class PackedLinear:
    """x @ weight.T + bias, with the weight of one or of several layers, one below the other.

    vLLM: model_executor/layers/linear.py::MergedColumnParallelLinear
    """

    def __init__(self, *layers: torch.nn.Linear) -> None:
        weight = torch.cat([layer.weight.data for layer in layers]) if len(layers) > 1 else layers[0].weight.data
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias.data for layer in layers])
        self.packed = pack(weight)
        self.weight = weight if self.packed is None else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack(weight: torch.Tensor) -> torch.Tensor | None:
    """`weight` [out, in] in oneDNN's own order, or None where that does not pay or this torch can't.

    float32 stays as it is: MKL's product is the faster one, and gives the numbers that the plain model gives.

    vLLM: model_executor/layers/utils.py::dispatch_cpu_unquantized_gemm (role)
    """
    if weight.dtype is not torch.bfloat16:
        return None
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return None
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = torch.ops.mkldnn._linear_pointwise(weight[:1], packed, None, "none", [], "")
    except (RuntimeError, AttributeError):  # not in this build of torch
        return None
    return packed if probe.shape == (1, weight.shape[0]) else None


class FastDecoderLayer:
    """The weights of one decoder layer, and its steps. The sum of what the layers gave is kept apart, as `residual`:
    adding to it is part of the next norm.

    vLLM: model_executor/models/llama.py::LlamaDecoderLayer
    """

    def __init__(
        self, layer: LlamaDecoderLayer, config: ModelConfig, kernels: CpuKernels, cos: torch.Tensor, sin: torch.Tensor
    ) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.config, self.kernels = config, kernels
        self.cos, self.sin = cos, sin  # [max_model_len, head_size / 2], the same for every layer
        self.input_norm = _weight(layer.input_layernorm)
        self.qkv = PackedLinear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.q_norm, self.k_norm = attention.q_norm, attention.k_norm
        self.attention: Attention = attention.attn
        self.o = PackedLinear(attention.o_proj)
        self.post_attention_norm = _weight(layer.post_attention_layernorm)
        self.gate_up = PackedLinear(mlp.gate_proj, mlp.up_proj)
        self.down = PackedLinear(mlp.down_proj)

    def forward(
        self,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        residual: torch.Tensor | None,
        kv_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gives (what is to be added, the residual), both [T, hidden_size], of which the sum is the layer's hidden
        states. The residual is changed in place; None: the first layer's, which is hidden_states.

        vLLM: model_executor/models/llama.py::LlamaDecoderLayer.forward
        """
        kernels, eps = self.kernels, self.config.rms_norm_eps
        normed = kernels.rms_norm(hidden_states, self.input_norm, eps, residual)
        residual = hidden_states if residual is None else residual
        attended = self.attend(normed, positions, kv_cache, attn_metadata)
        normed = kernels.rms_norm(self.o(attended), self.post_attention_norm, eps, residual)
        return self.down(kernels.silu_and_mul(self.gate_up(normed))), residual

    def attend(
        self, normed: torch.Tensor, positions: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """q, k and v of all heads side by side [T, (Hq + 2 * Hkv) * D], turned in place, and attention.

        vLLM: model_executor/models/llama.py::LlamaAttention.forward
        """
        size, num_q, num_kv = self.config.head_size, self.config.num_attention_heads, self.config.num_kv_heads
        qkv = self.qkv(normed)
        if self.config.qk_norm:
            q, k, _ = qkv.unflatten(-1, (-1, size)).split((num_q, num_kv, num_kv), dim=1)
            q.copy_(self.q_norm(q))
            k.copy_(self.k_norm(k))
        self.kernels.rotary_embedding(qkv, positions, self.cos, self.sin, num_q + num_kv, size)
        q, k, v = qkv.split((num_q * size, num_kv * size, num_kv * size), dim=1)
        return self.attention(q, k, v, kv_cache, attn_metadata)


class FastLlama:
    """vLLM: model_executor/models/llama.py::LlamaForCausalLM"""

    def __init__(self, model: LlamaForCausalLM, kernels: CpuKernels, max_model_len: int) -> None:
        """Take the weights of `model`, which is on the CPU and has the backend "fast". It is empty afterwards.

        max_model_len: positions that cos and sin are computed for.
        """
        plain = model.model
        self.config = model.config
        self.kernels = kernels
        self.embedding = plain.embed_tokens.weight.data
        half = self.config.head_size // 2
        tables = plain.rotary_emb(torch.arange(max_model_len), self.embedding.dtype)
        cos, sin = (table[:, 0, :half].contiguous() for table in tables)
        self.layers = []
        while len(plain.layers):
            self.layers.append(FastDecoderLayer(plain.layers.pop(0), self.config, kernels, cos, sin))
        self.final_norm = _weight(plain.norm)
        head = torch.nn.Linear(1, 1, bias=False, device="meta") if model.lm_head is None else model.lm_head
        if model.lm_head is None:
            head.weight = plain.embed_tokens.weight
        self.head = PackedLinear(head)

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: list[torch.Tensor],
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """See LlamaForCausalLM.forward.

        vLLM: model_executor/models/llama.py::LlamaModel.forward
        """
        hidden_states, residual = F.embedding(input_ids, self.embedding), None
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            hidden_states, residual = layer.forward(positions, hidden_states, residual, kv_cache, attn_metadata)
        return self.kernels.rms_norm(hidden_states, self.final_norm, self.config.rms_norm_eps, residual)

    def norm(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The last norm, of hidden states that a layer gave: [N, hidden_size].

        vLLM: model_executor/models/llama.py::LlamaModel (its norm)
        """
        return self.kernels.rms_norm(hidden_states, self.final_norm, self.config.rms_norm_eps)

    @boundary("compute_logits")
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """See LlamaForCausalLM.compute_logits.

        vLLM: model_executor/models/llama.py::LlamaForCausalLM.compute_logits
        """
        return self.head(hidden_states)


def _weight(norm: RMSNorm) -> torch.Tensor:
    return norm.weight.data
