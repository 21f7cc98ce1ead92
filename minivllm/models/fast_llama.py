"""FastLlama: the model of llama.py for a CPU. The same weights and the same steps, in fewer and larger calls.

Owns: the weights, laid out for this processor. The model that it is made from gives them up.
Interface: that of LlamaForCausalLM: calling it gives hidden states of a flat batch, `compute_logits` gives logits.
Must not know: what LlamaForCausalLM must not know.

To learn what the model does, read llama.py. What is different here, and what it is for:
- q, k and v are one product, gate and up are one: a product of many rows costs less than several of few.
- In bfloat16 the weights are put into the order in which oneDNN reads them, once, and not at every call.
- What lies between the products (norm with residual, RoPE, silu * up) is one pass each, in C.
- cos and sin are looked up in a table.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minivllm.attention.layer import Attention
from minivllm.attention.metadata import AttentionMetadata
from minivllm.boundary import boundary
from minivllm.models.llama import LlamaDecoderLayer, LlamaForCausalLM, RMSNorm
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


@dataclass(slots=True)
class FastLayer:
    """The weights of one decoder layer.

    vLLM: model_executor/models/llama.py::LlamaDecoderLayer
    """

    input_norm: torch.Tensor
    qkv: PackedLinear
    q_norm: torch.nn.Module
    k_norm: torch.nn.Module
    attention: Attention
    o: PackedLinear
    post_attention_norm: torch.Tensor
    gate_up: PackedLinear
    down: PackedLinear


class FastLlama:
    """vLLM: model_executor/models/llama.py::LlamaForCausalLM"""

    def __init__(self, model: LlamaForCausalLM) -> None:
        """Take the weights of `model`, which is on the CPU and has the backend "fast". It is empty afterwards."""
        plain = model.model
        self.config = model.config
        self.kernels: CpuKernels = plain.layers[0].self_attn.attn.backend.kernels
        self.embedding = plain.embed_tokens.weight.data
        dtype = self.embedding.dtype
        positions = torch.arange(self.config.max_model_len)
        half = self.config.head_size // 2
        self.cos, self.sin = (table[:, 0, :half].contiguous() for table in plain.rotary_emb(positions, dtype))
        self.layers = []
        while len(plain.layers):
            self.layers.append(_take_layer(plain.layers.pop(0)))
        self.final_norm = plain.norm.weight.data
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
        kernels, eps = self.kernels, self.config.rms_norm_eps
        residual = F.embedding(input_ids, self.embedding)
        normed = kernels.rms_norm(residual, self.layers[0].input_norm, eps)
        for number, (layer, kv_cache) in enumerate(zip(self.layers, kv_caches, strict=True), start=1):
            attended = self._attend(layer, normed, positions, kv_cache, attn_metadata)
            normed = kernels.rms_norm(layer.o(attended), layer.post_attention_norm, eps, residual)
            mlp = layer.down(kernels.silu_and_mul(layer.gate_up(normed)))
            next_norm = self.layers[number].input_norm if number < len(self.layers) else self.final_norm
            normed = kernels.rms_norm(mlp, next_norm, eps, residual)
        return normed

    def _attend(
        self,
        layer: FastLayer,
        normed: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """q, k and v of all heads side by side [T, (Hq + 2 * Hkv) * D], turned in place, and attention.

        vLLM: model_executor/models/llama.py::LlamaAttention.forward
        """
        size, num_q, num_kv = self.config.head_size, self.config.num_attention_heads, self.config.num_kv_heads
        qkv = layer.qkv(normed)
        if self.config.qk_norm:
            q, k, _ = qkv.unflatten(-1, (-1, size)).split((num_q, num_kv, num_kv), dim=1)
            q.copy_(layer.q_norm(q))
            k.copy_(layer.k_norm(k))
        self.kernels.rotary_embedding(qkv, positions, self.cos, self.sin, num_q + num_kv, size)
        q, k, v = qkv.split((num_q * size, num_kv * size, num_kv * size), dim=1)
        return layer.attention(q, k, v, kv_cache, attn_metadata)

    @boundary("compute_logits")
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """See LlamaForCausalLM.compute_logits.

        vLLM: model_executor/models/llama.py::LlamaForCausalLM.compute_logits
        """
        return self.head(hidden_states)


def _take_layer(layer: LlamaDecoderLayer) -> FastLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return FastLayer(
        input_norm=_weight(layer.input_layernorm),
        qkv=PackedLinear(attention.q_proj, attention.k_proj, attention.v_proj),
        q_norm=attention.q_norm,
        k_norm=attention.k_norm,
        attention=attention.attn,
        o=PackedLinear(attention.o_proj),
        post_attention_norm=_weight(layer.post_attention_layernorm),
        gate_up=PackedLinear(mlp.gate_proj, mlp.up_proj),
        down=PackedLinear(mlp.down_proj),
    )


def _weight(norm: RMSNorm) -> torch.Tensor:
    return norm.weight.data
