"""Attention as the formula says it: three lines of torch, and a row of scores for every token.

The first of four files that do the same: naive.py, tiled.py, triton_forward.py, and traffic.py, which counts the bytes.
"""

import torch


def naive_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of N tokens in H heads of size D: q, k, v [H, N, D] -> [H, N, D].

    Each line writes a tensor to memory for the next to read; two of them have N * N numbers a head.

    vLLM: none, vLLM has no attention without tiles
    """
    num_tokens = q.shape[1]
    hidden = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=q.device).triu(1)  # [N, N], keys behind
    scores = (q @ k.transpose(1, 2) * q.shape[2] ** -0.5).masked_fill(hidden, -torch.inf)  # [H, N, N]
    weights = scores.softmax(dim=-1)  # [H, N, N]
    return weights @ v  # [H, N, D]
