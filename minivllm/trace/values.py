"""Values at detail 2: what a view takes from the engine's tensors, as rounded lists.

Interface: rounded, watched_tokens, keys_and_values, weights_on, hidden_states_kept, norms, candidates; Candidate.
Must not know: torch. It is handed tensors and uses their methods.

All of it reads the device and waits for it. So nothing here runs below detail 2, nor in a step that is not watched.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

NUM_CANDIDATES = 10  # tokens a row, by the raw logits, and as many by the processed ones
DIGITS = 6  # of norms and log-probabilities
VALUE_DIGITS = 7  # of tensors: what float32 can tell apart near 1
HIDDEN_STATES = "hidden_states"  # the note in which those of each layer are kept until the pass is over


class Candidate(msgspec.Struct):
    """One of the likeliest tokens of a row."""

    token_id: int  # those that may be drawn come first, the likeliest first; then other likely ones by the raw logits
    logprob: float  # of the raw logits
    processed_logprob: float | None  # of those that the token is drawn from; None: masked


def rounded(tensor: Any, digits: int = VALUE_DIGITS) -> list[Any]:
    """A tensor as nested lists."""
    scale = 10**digits
    return tensor.double().mul(scale).round().div(scale).tolist()


def watched_tokens(positions: Sequence[int], watched: Sequence[int]) -> list[int]:
    """Places in the flat batch of the tokens whose position is watched."""
    return [place for place, position in enumerate(positions) if position in watched]


def keys_and_values(kv_cache: Any, common: Any, row: int, head: int | slice = slice(None)) -> tuple[Any, Any]:
    """K and V of a row's tokens, in the order of its positions: [seq_len, heads, head size], or without heads for one.

    kv_cache: [blocks, 2, block size, KV heads, head size]. common: the step's CommonAttentionMetadata.
    """
    length = int(common.seq_lens_cpu[row])
    num_blocks = -(-length // kv_cache.shape[2])
    blocks = kv_cache[common.block_table_tensor[row, :num_blocks].long()]
    keys, values = blocks.unbind(1)
    return keys.flatten(0, 1)[:length, head], values.flatten(0, 1)[:length, head]


def weights_on(positions: Sequence[int], query: Any, kv_cache: Any, common: Any, scale: float) -> list[Any]:
    """The attention that each row's last token pays to these positions: [rows, positions, query heads].

    A position that the row does not have yet is left out.
    """
    rows = []
    for row in range(common.num_reqs):
        keys, _ = keys_and_values(kv_cache, common, row)
        last = query[int(common.query_start_loc_cpu[row + 1]) - 1]
        keys = keys.repeat_interleave(last.shape[0] // keys.shape[1], dim=1)
        weights = ((keys.float() * last.float()).sum(-1) * scale).softmax(dim=0)
        rows.append(rounded(weights[[position for position in positions if position < len(weights)]]))
    return rows


# ---------------------------------------------------------------------- hidden states


def hidden_states_kept(forward: Callable, notes: dict[Any, Any]) -> Callable:
    """`forward` of a decoder layer; what it gives is kept until model_forward has been looked at.

    That is hidden states, or a pair that the next norm adds up.
    """

    @functools.wraps(forward)
    def kept(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        notes.setdefault(HIDDEN_STATES, []).append(out[0] + out[1] if isinstance(out, tuple) else out)
        return out

    return kept


def norms(hidden_states: Any) -> list[float]:
    """The length of each token's vector."""
    return rounded(hidden_states.float().norm(dim=-1), DIGITS)


# ---------------------------------------------------------------------- likeliest tokens


def candidates(logits: Any, processed_logits: Any) -> list[list[Candidate]]:
    """The likeliest tokens of each row, by the logits that they are drawn from and by the raw ones."""
    raw = logits.float().log_softmax(dim=-1)
    processed = processed_logits.float().log_softmax(dim=-1)
    return [_of_row(*row) for row in zip(raw, processed, strict=True)]


def _of_row(raw: Any, processed: Any) -> list[Candidate]:
    # by both: a bias or a mask can bring other tokens to the top
    top = [row.topk(min(NUM_CANDIDATES, row.shape[-1])).indices.tolist() for row in (processed, raw)]
    may_be_drawn = [token_id for token_id in top[0] if processed[token_id] != float("-inf")]
    token_ids = list(dict.fromkeys(may_be_drawn + top[1]))
    return [Candidate(token_id, _short(raw[token_id]), _short(processed[token_id])) for token_id in token_ids]


def _short(value: Any) -> float | None:
    return None if value == float("-inf") else round(float(value), DIGITS)
