"""The same attention tile by tile, in torch: no row of scores is ever whole.

Softmax seems to need the whole row: its maximum, and its sum. Both can be carried along and repaired: when a tile has a
larger maximum, all that was summed before is multiplied by 2^(old maximum - new maximum).
"""

import torch

LOG2E = 1.4426950408889634


def tiled_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_m: int = 64, tile: int = 64
) -> torch.Tensor:
    """Causal attention: q, k, v [H, N, D] -> [H, N, D]. block_m query tokens against `tile` keys at a time.

    The outer loop is the grid of the Triton kernel, the inner loop is the kernel's; names are the same in both.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its loop, without pages)
    """
    num_heads, num_tokens, head_size = q.shape
    scale = head_size**-0.5 * LOG2E
    out = torch.empty_like(q)
    for head in range(num_heads):
        for first_query in range(0, num_tokens, block_m):
            query = q[head, first_query : first_query + block_m].float()  # [m, D]
            query_places = torch.arange(first_query, first_query + len(query), device=q.device)  # [m]
            row_max = torch.full_like(query[:, 0], -torch.inf)  # [m]
            row_sum = torch.zeros_like(row_max)  # [m]
            acc = torch.zeros_like(query)  # [m, D]
            for first_key in range(0, first_query + len(query), tile):  # keys behind the last query are not looked at
                keys = slice(first_key, first_key + tile)
                places = torch.arange(first_key, min(first_key + tile, num_tokens), device=q.device)  # [t]
                scores = query @ k[head, keys].float().T  # [m, t]
                seen = places[None, :] <= query_places[:, None]
                scores = scores.masked_fill(~seen, -torch.inf)

                new_max = torch.maximum(row_max, scores.amax(1) * scale)
                weights = torch.exp2(scores * scale - new_max[:, None])  # [m, t]
                correction = torch.exp2(row_max - new_max)  # [m]
                row_sum = row_sum * correction + weights.sum(1)
                acc = acc * correction[:, None] + weights @ v[head, keys].float()
                row_max = new_max
            out[head, first_query : first_query + len(query)] = (acc / row_sum[:, None]).to(q.dtype)
    return out
