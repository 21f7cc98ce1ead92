"""This machine's limits, and what the model's parts take, as figures: microseconds, GB/s, GFLOP/s.

    python -m minivllm.proof.bench.own_kernels JOB.json

Owns: the shapes (those of the model in the job), and data large enough to come from memory and not from a cache.
Must not know: the engine; it calls kernels and products as the model does.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.attention.selector import get_attn_backend
from minivllm.models.fast_llama import pack
from minivllm.models.model_config import ModelConfig, load_model_config

CONTEXT = 192  # tokens of a row in the attention measured
BLOCK_SIZE = 16
COPY_BYTES = 256 << 20


def seconds(work: Callable[[], Any], times: int) -> float:
    """The median of `times` calls, after one that is not counted."""
    work()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def run_job(job: dict[str, Any]) -> dict[str, float]:
    """All figures of one round."""
    torch.manual_seed(0)
    config = load_model_config(job["model"])
    rows, times = job["rows"], job["times"]
    figures = limits(job["gemm_size"], job["copy_bytes"], times) | parameters(config)
    with torch.inference_mode():
        for count in rows:
            figures |= products(config, count, times)
        for name in ("auto", "torch"):
            figures |= attention(config, name, job["attention_rows"], times)
    return figures


def limits(size: int, copy_bytes: int, times: int) -> dict[str, float]:
    """Copy bandwidth (bytes read and bytes written), and the rate of a large square product in bfloat16."""
    source = torch.ones(copy_bytes // 4)
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), times)
    read = seconds(lambda: source.sum(), times)
    a, b = torch.randn(size, size, dtype=torch.bfloat16), torch.randn(size, size, dtype=torch.bfloat16)
    product = seconds(lambda: a @ b, times)
    return {
        "copy_gb_per_s": 2 * copy_bytes / copied / 1e9,
        "read_gb_per_s": copy_bytes / read / 1e9,
        "gemm_gflop_per_s": 2 * size**3 / product / 1e9,
    }


def parameters(config: ModelConfig) -> dict[str, float]:
    """Numbers in the weights that a token is multiplied with: in all layers, and in the head."""
    heads = 2 * config.num_attention_heads + 2 * config.num_kv_heads  # q and o, k and v
    layer = config.hidden_size * (heads * config.head_size + 3 * config.intermediate_size)
    return {
        "layer_parameters": config.num_layers * layer,
        "head_parameters": config.vocab_size * config.hidden_size,
    }


def products(config: ModelConfig, rows: int, times: int) -> dict[str, float]:
    """One layer's four products with `rows` tokens, plain and packed; weights of 30 layers in turn: none is cached."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = (config.num_attention_heads + 2 * config.num_kv_heads) * config.head_size
    shapes = ((heads, hidden), (hidden, config.num_attention_heads * config.head_size), (2 * inner, hidden))
    shapes += ((hidden, inner),)
    layers = [[torch.randn(shape, dtype=torch.bfloat16) * 0.05 for shape in shapes] for _ in range(config.num_layers)]
    inputs = {width: torch.randn(rows, width, dtype=torch.bfloat16) for width in {shape[1] for shape in shapes}}

    def plain() -> None:
        for weights in layers:
            for weight in weights:
                F.linear(inputs[weight.shape[1]], weight)

    numbers = sum(shape[0] * shape[1] for shape in shapes)
    found = {"plain": seconds(plain, times) / len(layers)}
    packed = [[(pack(weight), weight.shape[1]) for weight in weights] for weights in layers]
    if packed[0][0][0] is not None:

        def fast() -> None:
            for weights in packed:
                for weight, width in weights:
                    torch.ops.mkldnn._linear_pointwise(inputs[width], weight, None, "none", [], "")

        found["packed"] = seconds(fast, times) / len(layers)
    best = min(found.values())
    figures = {f"layer_products_{name}_{rows}_rows_us": value * 1e6 for name, value in found.items()}
    figures[f"layer_products_{rows}_rows_gb_per_s"] = numbers * 2 / best / 1e9
    figures[f"layer_products_{rows}_rows_gflop_per_s"] = 2 * numbers * rows / best / 1e9
    return figures


def attention(config: ModelConfig, name: str, rows: int, times: int) -> dict[str, float]:
    """One layer's attention of `rows` decoding rows of CONTEXT tokens each, through scattered blocks."""
    heads, kv_heads, size = config.num_attention_heads, config.num_kv_heads, config.head_size
    shapes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_size": size, "block_size": BLOCK_SIZE}
    backend = get_attn_backend(name, "cpu", **shapes, dtype=torch.bfloat16)
    width = CONTEXT // BLOCK_SIZE
    table = (torch.randperm(rows * width) + 1).int().view(rows, width)
    caches = [
        torch.randn(backend.kv_cache_shape(rows * width + 1, BLOCK_SIZE, kv_heads, size)).bfloat16()
        for _ in range(config.num_layers)
    ]
    query = torch.randn(rows, heads, size).bfloat16()
    starts, lengths = torch.arange(rows + 1).int(), torch.full((rows,), CONTEXT).int()
    common = CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_reqs=rows,
        num_actual_tokens=rows,
        max_query_len=1,
        max_seq_len=CONTEXT,
        block_table_tensor=table,
        slot_mapping=torch.zeros(rows).long(),
    )

    def step() -> None:
        metadata: AttentionMetadata = backend.build(common)
        for layer, cache in enumerate(caches):
            backend.forward(layer, query, cache, metadata)

    took = seconds(step, times) / len(caches)
    num_bytes = rows * CONTEXT * kv_heads * size * 2 * 2
    return {
        f"attention_{backend.name}_{rows}_rows_us": took * 1e6,
        f"attention_{backend.name}_{rows}_rows_gb_per_s": num_bytes / took / 1e9,
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(run_job(json.load(file))), flush=True)
