"""Lab 08 · Paged attention in numpy, then torch

Compute attention for a mixed batch from caches, block table, query_start_loc and seq_lens, and say which slots are
read.

    8.1  gather the keys of one sequence (10 points)
    8.2  attention of one sequence (15 points)
    8.3  attention of a mixed batch (15 points)
    8.4  the same in torch, without a loop over tokens (20 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 08
"""

import numpy as np
import torch


def gather_kv_numpy(cache: np.ndarray, table_row: np.ndarray, seq_len: int) -> np.ndarray:
    """The K or the V of one sequence, in the order of its tokens: [blocks, B, Hkv, D] -> [L, Hkv, D], L = seq_len.

    table_row int[W]: key p is in block table_row[p // B]. Slots without a key may hold anything.

    vLLM: none, the kernels never gather
    """
    raise NotImplementedError("Lab 8.1: find block and offset of every key")


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """Causal attention of one sequence; gives [n, Hq, D].

    q [n, Hq, D]: the last n of the sequence's L tokens. k, v [L, Hkv, D]. Query head h reads KV head h // (Hq / Hkv).

    vLLM: none, this is the formula
    """
    raise NotImplementedError("Lab 8.2: scores, mask, softmax, values")


def paged_attention_numpy(
    q: np.ndarray,  # [T, Hq, D]
    k_cache: np.ndarray,  # [blocks, B, Hkv, D]
    v_cache: np.ndarray,  # [blocks, B, Hkv, D]
    query_start_loc: np.ndarray,  # int[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: np.ndarray,  # int[R]; keys of each sequence, the new tokens included
    block_table: np.ndarray,  # int[R, W]
    scale: float,
) -> np.ndarray:
    """Causal attention of each sequence's last tokens to all its keys; gives [T, Hq, D].

    A sequence of length 0, and tokens that belong to no sequence, give zeros.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    raise NotImplementedError("Lab 8.3: each sequence of the batch by itself")


def gather_kv(cache: torch.Tensor, table_row: torch.Tensor, seq_len: int) -> torch.Tensor:
    """The K or the V of one sequence, in the order of its tokens: [blocks, B, Hkv, D] -> [L, Hkv, D].

    vLLM: none, the kernels never gather
    """
    raise NotImplementedError("Lab 8.4: find block and offset of every key")


def attend(
    q: torch.Tensor,  # [n, Hq, D], the last n of the L tokens
    k: torch.Tensor,  # [L, Hkv, D]
    v: torch.Tensor,  # [L, Hkv, D]
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of one sequence, whole softmax at once; gives [n, Hq, D] in q's dtype.

    vLLM: none, this is the formula
    """
    raise NotImplementedError("Lab 8.4: scores, mask, softmax, values")


def paged_attention(
    q: torch.Tensor,  # [T, Hq, D]
    k_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    v_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    query_start_loc: torch.Tensor,  # int32[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: torch.Tensor,  # int32[R]; keys of each sequence, the new tokens included
    block_table: torch.Tensor,  # int32[R, W]; key p of sequence r is in block block_table[r, p // B]
    scale: float,
    *,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of each sequence's last tokens to all its keys; gives [T, Hq, D].

    A sequence of length 0, and tokens that belong to no sequence, give zeros. sliding_window: keys that a token sees,
    itself included; 0 means all. softcap > 0: scores become softcap * tanh(score / softcap).

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    raise NotImplementedError("Lab 8.4: each sequence of the batch by itself")
