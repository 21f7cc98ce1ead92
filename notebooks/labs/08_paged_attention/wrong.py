"""Wrong solutions of lab 08: edits of the reference's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

GATHER = "gather_kv_numpy"
ATTEND = "attend_numpy"
PAGED = "paged_attention_numpy"
SOFTMAX = (
    "    scores = scores - scores.max(axis=-1, keepdims=True)\n"
    "    weights = np.exp(scores)\n"
    "    weights = weights / weights.sum(axis=-1, keepdims=True)\n"
    '    return np.einsum("hnl,lhd->nhd", weights, v)\n'
)
# the same over tiles of two keys, as the further task and lab 10 do it: right as it stands
ONLINE = """\
    m, total = np.full(scores.shape[:2], -np.inf), np.zeros(scores.shape[:2])
    acc = np.zeros((*scores.shape[:2], v.shape[-1]))
    for first in range(0, seq_len, 2):
        tile, values = scores[..., first : first + 2], v[first : first + 2]
        m_new = np.maximum(m, tile.max(axis=-1))
        alpha = np.exp(m - m_new)
        weights = np.exp(tile - m_new[..., None])
        total = total * alpha + weights.sum(axis=-1)
        acc = acc * alpha[..., None] + np.einsum("hnt,thd->hnd", weights, values)
        m = m_new
    return np.swapaxes(acc / total[..., None], 0, 1)
"""


def online(name: str, misconception: str, message: str, *edits: tuple[str, str]) -> Wrong:
    """An online softmax with a mistake in it."""
    return Wrong(f"online_{name}", "8.2", ATTEND, SOFTMAX, online_text(*edits), misconception, message)


def online_text(*edits: tuple[str, str]) -> str:
    text = ONLINE
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


WRONG = [
    # ------------------------------------------------------------------ 8.1
    Wrong(
        id="block_not_looked_up",
        task="8.1",
        symbol=GATHER,
        old="table_row[places // block_size]",
        new="places // block_size",
        misconception="logical is physical",
        message="key p is looked for in block p // B of the cache. The table says which block that is.",
    ),
    Wrong(
        id="whole_last_block",
        task="8.1",
        symbol=GATHER,
        old="np.arange(seq_len)",
        new="np.arange(-(-seq_len // block_size) * block_size)",
        misconception="a block is a unit",
        message="the last block is read to its end. Only seq_len keys exist; the slots behind them hold anything.",
    ),
    Wrong(
        id="last_partial_block_dropped",
        task="8.1",
        symbol=GATHER,
        old="np.arange(seq_len)",
        new="np.arange(max(seq_len // block_size, 1) * block_size)[:seq_len]",
        misconception="only full blocks count",
        message="keys of the last block are missing, which is not full.",
    ),
    Wrong(
        id="offset_without_modulo",
        task="8.1",
        symbol=GATHER,
        old="places % block_size",
        new="np.minimum(places, block_size - 1)",
        misconception="the offset is the place",
        message="the offset in the block is wrong: it is p % B.",
    ),
    Wrong(
        id="one_key_too_many",
        task="8.1",
        symbol=GATHER,
        old="np.arange(seq_len)",
        new="np.arange(seq_len + 1)",
        misconception="the new token comes on top",
        message="one key too many: seq_len counts the new tokens already.",
    ),
    Wrong(
        id="offset_first",
        task="8.1",
        symbol=GATHER,
        old="table_row[places // block_size], places % block_size",
        new="table_row[places % np.count_nonzero(table_row)], places // np.count_nonzero(table_row)",
        misconception="keys are dealt out to the blocks in turn",
        message="key p is taken for the p-th block in turn. A block is filled before the next one begins.",
    ),
    # ------------------------------------------------------------------ 8.2
    Wrong(
        id="no_causal_mask",
        task="8.2",
        symbol=ATTEND,
        old="scores = np.where(seen, scores, -np.inf)",
        new="scores = np.where(seen | True, scores, -np.inf)",
        misconception="the cache holds the past only",
        message="queries see keys behind them. The new tokens' own K are in the cache already: mask them.",
    ),
    Wrong(
        id="causal_from_zero",
        task="8.2",
        symbol=ATTEND,
        old="np.arange(seq_len - num_queries, seq_len)",
        new="np.arange(num_queries)",
        misconception="query i sees keys 0 to i",
        message="the queries are the last n of L tokens: query i stands at place L - n + i, and sees keys up to there.",
    ),
    Wrong(
        id="causal_strict",
        task="8.2",
        symbol=ATTEND,
        old="<= query_places",
        new="< query_places",
        misconception="the past is before me",
        message="a token does not see itself. Its own K is in the cache when attention runs, and it counts.",
    ),
    Wrong(
        id="heads_tiled",
        task="8.2",
        symbol=ATTEND,
        old="k = np.repeat(k, num_heads // num_kv_heads, axis=1)",
        new="k = np.tile(k, (1, num_heads // num_kv_heads, 1))",
        misconception="head h uses KV head h mod Hkv",
        message="query heads and KV heads don't belong together so: query head h reads KV head h // (Hq / Hkv).",
        more=(
            (
                ATTEND,
                "v = np.repeat(v, num_heads // num_kv_heads, axis=1)",
                "v = np.tile(v, (1, num_heads // num_kv_heads, 1))",
            ),
        ),
    ),
    Wrong(
        id="first_kv_head_for_all",
        task="8.2",
        symbol=ATTEND,
        old="k = np.repeat(k, num_heads // num_kv_heads, axis=1)",
        new="k = np.repeat(k[:, :1], num_heads, axis=1)",
        misconception="a token has one K",
        message="all query heads read KV head 0.",
        more=(
            (ATTEND, "v = np.repeat(v, num_heads // num_kv_heads, axis=1)", "v = np.repeat(v[:, :1], num_heads, 1)"),
        ),
    ),
    Wrong(
        id="scale_missing",
        task="8.2",
        symbol=ATTEND,
        old="q, k) * scale",
        new="q, k)",
        misconception="softmax takes care of it",
        message="the scores are not multiplied by scale.",
    ),
    Wrong(
        id="scale_twice",
        task="8.2",
        symbol=ATTEND,
        old="q, k) * scale",
        new="q, k) * scale**2",
        misconception="scale is 1 / D",
        message="the scores are scaled too much: once by scale, which is 1 / sqrt(D) already.",
    ),
    Wrong(
        id="no_maximum",
        task="8.2",
        symbol=ATTEND,
        old="scores = scores - scores.max(axis=-1, keepdims=True)",
        new="scores = scores - 0.0",
        misconception="exp is fine",
        message="e^score overflowed. Subtract the row's largest score first: the weights stay the same.",
    ),
    Wrong(
        id="softmax_over_queries",
        task="8.2",
        symbol=ATTEND,
        old="weights.sum(axis=-1, keepdims=True)",
        new="weights.sum(axis=-2, keepdims=True)",
        misconception="the sum is over the last but one",
        message="the weights of a query don't sum to 1: the softmax runs over keys, not over queries.",
    ),
    Wrong(
        id="masked_score_zero",
        task="8.2",
        symbol=ATTEND,
        old="np.where(seen, scores, -np.inf)",
        new="np.where(seen, scores, 0.0)",
        misconception="zero means no weight",
        message="a masked key has a score of 0, and so a weight, e^0. Its score must be -inf.",
    ),
    Wrong(
        id="mask_after_softmax",
        task="8.2",
        symbol=ATTEND,
        old="scores = np.where(seen, scores, -np.inf)",
        new="scores = scores + 0.0",
        misconception="then the weights are zero",
        message="the mask comes after the softmax: the weights that are left don't sum to 1.",
        more=((ATTEND, 'np.einsum("hnl,lhd->nhd", weights, v)', 'np.einsum("hnl,lhd->nhd", weights * seen, v)'),),
    ),
    online(
        "sum_not_rescaled",
        "a sum is a sum",
        "online softmax: the sum is not scaled down when a larger score comes. It was made with the old maximum.",
        ("total = total * alpha + weights", "total = total + weights"),
    ),
    online(
        "result_not_rescaled",
        "only the sum changes scale",
        "online softmax: the accumulator is not scaled down when a larger score comes. It was made with the old one.",
        ("acc = acc * alpha[..., None] + np", "acc = acc + np"),
    ),
    online(
        "factor_inverted",
        "up or down, it is a factor",
        "online softmax: the factor is e^(old maximum - new one), which is at most 1. Yours is its inverse.",
        ("np.exp(m - m_new)", "np.exp(m_new - m)"),
    ),
    online(
        "maximum_of_the_tile",
        "each tile has its own",
        "online softmax: the maximum is that of the last tile alone. A running maximum never falls, or the factor "
        "overflows.",
        ("np.maximum(m, tile.max(axis=-1))", "tile.max(axis=-1)"),
    ),
    online(
        "maximum_from_zero",
        "any start is below",
        "online softmax: the maximum starts at 0. If all scores are far below, every weight becomes 0: start at -inf.",
        ("np.full(scores.shape[:2], -np.inf), np", "np.zeros(scores.shape[:2]), np"),
    ),
    online(
        "maximum_not_kept",
        "the new one is for this tile",
        "online softmax: the new maximum is not kept for the next tile, which then scales everything before it to 0.",
        ("        m = m_new\n", ""),
    ),
    online(
        "last_tile_lost",
        "a number of tiles is a division",
        "online softmax: the last tile, which is not full, was left out.",
        ("range(0, seq_len, 2)", "range(0, seq_len // 2 * 2, 2)"),
    ),
    online(
        "divided_in_each_tile",
        "each tile is normalised",
        "online softmax: the accumulator was divided after each tile. Divide once, at the end.",
        ("        m = m_new\n", "        m = m_new\n        acc = acc / total[..., None]\n"),
        ("acc / total[..., None], 0, 1", "acc, 0, 1"),
    ),
    # ------------------------------------------------------------------ 8.3
    Wrong(
        id="table_of_row_zero",
        task="8.3",
        symbol=PAGED,
        old="k = gather_kv_numpy(k_cache, block_table[row], seq_len)",
        new="k = gather_kv_numpy(k_cache, block_table[0], seq_len)",
        misconception="there is one table",
        message="every sequence reads through the table of row 0.",
        more=((PAGED, "gather_kv_numpy(v_cache, block_table[row]", "gather_kv_numpy(v_cache, block_table[0]"),),
    ),
    Wrong(
        id="v_from_the_k_cache",
        task="8.3",
        symbol=PAGED,
        old="v = gather_kv_numpy(v_cache",
        new="v = gather_kv_numpy(k_cache",
        misconception="K and V are one",
        message="V was read from the K cache.",
    ),
    Wrong(
        id="only_the_chunk",
        task="8.3",
        symbol=PAGED,
        old="k = gather_kv_numpy(k_cache, block_table[row], seq_len)",
        new="k = gather_kv_numpy(k_cache, block_table[row], end - start)",
        misconception="attention is among the new tokens",
        message="only as many keys are read as there are new tokens. A token sees all keys of its sequence: seq_len.",
        more=((PAGED, "block_table[row], seq_len)\n        out", "block_table[row], end - start)\n        out"),),
    ),
    Wrong(
        id="longest_for_all",
        task="8.3",
        symbol=PAGED,
        old="enumerate(seq_lens)",
        new="((row, max(seq_lens)) for row in range(len(seq_lens)))",
        misconception="pad the batch",
        message="every row is read to the length of the longest one. What lies behind a row's keys is not its own.",
    ),
    Wrong(
        id="padding_not_skipped",
        task="8.3",
        symbol=PAGED,
        old="if start == end or seq_len == 0:",
        new="if start == end:",
        misconception="every token has keys",
        message="a padding row (seq_len 0) was attended to. It has no key, and gives zeros.",
    ),
    Wrong(
        id="row_without_tokens_takes_one",
        task="8.3",
        symbol=PAGED,
        old="if start == end or seq_len == 0:",
        new="end = max(end, start + 1)\n        if seq_len == 0:",
        misconception="every row has a query",
        message="a row without new tokens wrote to the token of the next row. It has no query: pass it over.",
    ),
    Wrong(
        id="rows_one_too_far",
        task="8.3",
        symbol=PAGED,
        old="out[start:end] = attend_numpy(q[start:end], k, v, scale)",
        new="out[start : end - 1 or end] = attend_numpy(q[start:end], k, v, scale)[: (end - 1 or end) - start]",
        misconception="the end is included",
        message="the last token of a row was left out. query_start_loc[r + 1] is the first token of the next row.",
    ),
    # ------------------------------------------------------------------ 8.4
    Wrong(
        id="torch_loop_over_tokens",
        task="8.4",
        symbol="paged_attention",
        old="        out[start:end] = attend(q[start:end], k, v, scale, sliding_window, softcap)  # [n, Hq, D]",
        new="        for i in range(start, end):\n            seen = seq_len - end + i + 1\n"
        "            out[i : i + 1] = attend(q[i : i + 1], k[:seen], v[:seen], scale, sliding_window, softcap)",
        misconception="a loop is a loop",
        message="there is a Python loop over tokens or keys. Let one operation take all tokens of a sequence.",
    ),
    Wrong(
        id="torch_heads_tiled",
        task="8.4",
        symbol="attend",
        old="k = k.to(compute).repeat_interleave(group, dim=1)",
        new="k = k.to(compute).repeat(1, group, 1)",
        misconception="repeat is numpy's repeat",
        message="query heads and KV heads don't belong together so: torch's `repeat` is numpy's `tile`.",
        more=(
            ("attend", "v = v.to(compute).repeat_interleave(group, dim=1)", "v = v.to(compute).repeat(1, group, 1)"),
        ),
    ),
    Wrong(
        id="torch_causal_from_zero",
        task="8.4",
        symbol="attend",
        old="places[seq_len - num_queries :, None]",
        new="places[:num_queries, None]",
        misconception="query i sees keys 0 to i",
        message="the queries are the last n of L tokens: query i stands at place L - n + i, and sees keys up to there.",
    ),
    Wrong(
        id="torch_block_not_looked_up",
        task="8.4",
        symbol="gather_kv",
        old="blocks = table_row[places // block_size].long()",
        new="blocks = places // block_size",
        misconception="logical is physical",
        message="key p is looked for in block p // B of the cache. The table says which block that is.",
    ),
    Wrong(
        id="torch_only_the_chunk",
        task="8.4",
        symbol="paged_attention",
        old="k = gather_kv(k_cache, block_table[row], seq_len)",
        new="k = gather_kv(k_cache, block_table[row], end - start)",
        misconception="attention is among the new tokens",
        message="only as many keys are read as there are new tokens. A token sees all keys of its sequence: seq_len.",
        more=(
            (
                "paged_attention",
                "gather_kv(v_cache, block_table[row], seq_len)",
                "gather_kv(v_cache, block_table[row], end - start)",
            ),
        ),
    ),
    Wrong(
        id="torch_in_float32",
        task="8.4",
        symbol="attend",
        old="compute = torch.promote_types(q.dtype, torch.float32)",
        new="compute = torch.float32",
        misconception="float32 is enough",
        message="the numbers were rounded to float32 on the way: in float64 the results must agree to 1e-9.",
    ),
]

HARMLESS = [
    Harmless(
        id="online",
        task="8.2",
        symbol=ATTEND,
        old=SOFTMAX,
        new=online_text(),
        proof="An online softmax gives the same numbers, to rounding.",
    ),
    Harmless(
        id="online_sum_from_one",
        task="8.2",
        symbol=ATTEND,
        old=SOFTMAX,
        new=online_text(("np.zeros(scores.shape[:2])\n", "np.ones(scores.shape[:2])\n")),
        proof="The maximum starts at -inf, so the first tile scales the sum that was there by e^-inf = 0. vLLM's "
        "kernel starts so.",
    ),
]
