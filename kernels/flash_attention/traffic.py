"""How many bytes each way of attention moves between the chip and its memory, computed from shapes and loops.

`needed` is the least: read q, k, v once, write the output once. The others count what their lines ask for; caches
between chip and memory may save some of it. tests/kernels compares `tiled` with the loads that the Triton kernel makes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shapes:
    """Causal attention of num_tokens tokens among themselves.

    vLLM: none, computed here for the reader
    """

    num_tokens: int
    num_heads: int = 9
    num_kv_heads: int = 3
    head_size: int = 64
    itemsize: int = 4  # bytes of a number

    @property
    def query_bytes(self) -> int:
        return self.num_heads * self.num_tokens * self.head_size * self.itemsize

    @property
    def kv_bytes(self) -> int:
        """Of K; V has as many."""
        return self.num_kv_heads * self.num_tokens * self.head_size * self.itemsize

    @property
    def score_bytes(self) -> int:
        """Of all scores: one number for each head, query and key."""
        return self.num_heads * self.num_tokens**2 * self.itemsize


def needed(shapes: Shapes) -> int:
    """Every input read once, the output written once.

    vLLM: none, computed here for the reader
    """
    return 2 * shapes.query_bytes + 2 * shapes.kv_bytes


def naive(shapes: Shapes) -> dict[str, int]:
    """Bytes of each line of naive.py: what it reads and what it writes. Scale and mask count as part of the product,
    as a fused kernel would do them.

    vLLM: none, computed here for the reader
    """
    return {
        "scores = q @ k": shapes.query_bytes + shapes.kv_bytes + shapes.score_bytes,
        "weights = softmax(scores)": 2 * shapes.score_bytes,
        "weights @ v": shapes.score_bytes + shapes.kv_bytes + shapes.query_bytes,
    }


def tiled(shapes: Shapes, block_m: int, tile: int, heads_share_keys: bool = False, causal: bool = True) -> int:
    """Bytes of tiled.py and triton_forward.py: q and output once, and K and V once for each block of block_m queries,
    up to the tile of the last key that the block may see. Scores never leave the chip.

    heads_share_keys: one program serves all query heads of a KV head, as in paged_attention.py.

    vLLM: none, computed here for the reader
    """
    keys = 0
    for first_query in range(0, shapes.num_tokens, block_m):
        last_key = min(first_query + block_m, shapes.num_tokens) if causal else shapes.num_tokens
        keys += min(-(-last_key // tile) * tile, shapes.num_tokens)
    readers = shapes.num_kv_heads if heads_share_keys else shapes.num_heads
    return 2 * shapes.query_bytes + 2 * readers * keys * shapes.head_size * shapes.itemsize
