"""Events of executor, worker and model: B13 to B20.

What detail 2 takes from tensors is in values.py.
"""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from typing import Any

import msgspec

from minivllm.trace import values
from minivllm.trace.events import Call, Change, Event, TokenIds
from minivllm.trace.values import Candidate

Values = list[Any] | int  # numbers of a tensor, nested by its dimensions; in a redacted trace how many


class _ExecuteModel(Event):
    total_num_scheduled_tokens: int | None = None
    pending: bool | None = None  # the logits wait: sample_tokens comes next

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        plan = call.arg(0, "plan")
        return {
            "reqs": list(plan.num_scheduled_tokens),
            "total_num_scheduled_tokens": plan.total_num_scheduled_tokens,
            "pending": call.out is None,
        }


class ExecutorExecuteModel(_ExecuteModel, tag="executor.execute_model"):
    """The core hands the plan to the executor."""


class WorkerExecuteModel(_ExecuteModel, tag="worker.execute_model"):
    """The executor hands the plan to its worker."""


class UpdateStates(Event, tag="update_states"):
    """The worker's rows follow the plan: drop, add, extend, close the holes."""

    req_ids: list[str] = []  # by row, after
    removed: list[str] = []  # lost their row: ended, preempted, or not scheduled
    added: list[str] = []  # got a row, the resumed ones too
    moved: dict[str, Change] = {}  # their row [before, after], where a hole was closed
    finished_req_ids: list[str] = []  # forgotten by the worker
    num_computed_tokens: list[int] = []  # by row, before this step's tokens
    num_blocks_per_row: list[int] = []  # by row
    block_tables: dict[str, list[int]] = {}  # of rows whose table is new or longer

    @staticmethod
    def before(call: Call) -> list[str]:
        return list(call.owner.req_ids)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        plan, batch, rows_before = call.arg(0, "plan"), call.owner, call.before
        rows = list(batch.req_ids)
        old = {req_id: row for row, req_id in enumerate(rows_before)}
        cached = plan.scheduled_cached_reqs
        extended = {i for i, new in zip(cached.req_ids, cached.new_block_ids, strict=True) if new}
        added = [i for i in rows if i not in old or i in cached.resumed_req_ids]
        table = batch.block_table
        finished = sorted(plan.finished_req_ids)
        return {
            "reqs": [*rows, *finished],
            "req_ids": rows,
            "removed": [i for i in rows_before if i not in batch.req_id_to_index],
            "added": added,
            "moved": {i: (old[i], row) for row, i in enumerate(rows) if i not in added and old[i] != row},
            "finished_req_ids": finished,
            "num_computed_tokens": batch.num_computed_tokens_cpu[: len(rows)].tolist(),
            "num_blocks_per_row": table.num_blocks_per_row[: len(rows)].tolist(),
            "block_tables": {i: table.get_row(row) for row, i in enumerate(rows) if i in added or i in extended},
        }


class PrepareInputs(Event, tag="prepare_inputs"):
    """The plan becomes one flat batch: T tokens of R rows, side by side."""

    secret = ("input_ids",)
    num_tokens: int | None = None  # T
    input_ids: TokenIds = []  # [T]
    positions: list[int] = []  # [T], within the request
    query_start_loc: list[int] = []  # [R + 1], where each row's tokens start
    seq_lens: list[int] = []  # [R], tokens whose K and V exist after this step
    slot_mapping: list[int] = []  # [T], where each token's K and V go
    logits_indices: list[int] = []  # [R], the last token of each row

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        batch = call.out
        call.notes["positions"] = positions = batch.positions.tolist()
        return {
            "num_tokens": batch.num_actual_tokens,
            "input_ids": batch.input_ids.tolist(),
            "positions": positions,
            "query_start_loc": batch.query_start_loc.tolist(),
            "seq_lens": batch.seq_lens.tolist(),
            "slot_mapping": batch.slot_mapping.tolist(),
            "logits_indices": batch.logits_indices.tolist(),
        }


def slot_ranges(slots: list[int]) -> list[Change]:
    """Slots as runs of [first, last]."""
    ranges: list[Change] = []
    for slot in slots:
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], slot
        else:
            ranges.append((slot, slot))
    return ranges


class GetSlotMappings(Event, tag="get_slot_mappings"):
    """The slots go to the device; they are the same for every layer."""

    num_slots: int | None = None  # one a token of the batch
    slot_ranges: list[Change] = []  # runs of [first, last]
    device: str | None = None  # where they went

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        slots = call.arg(0, "batch").slot_mapping.tolist()
        ranges = call.notes["slot_ranges"] = slot_ranges(slots)
        return {"num_slots": len(slots), "slot_ranges": ranges, "device": str(call.out.device)}


class BuildAttentionMetadata(Event, tag="build_attention_metadata"):
    """What the attention layers need to know, made once for all of them."""

    num_reqs: int | None = None  # rows
    num_actual_tokens: int | None = None  # of the batch
    max_query_len: int | None = None
    max_seq_len: int | None = None
    block_table_shape: list[int] = []  # [rows, blocks a row at most]
    block_table: list[list[int]] = []  # by row, without padding; from detail 1

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        common = call.out.common
        table = []
        if call.detail >= 1:
            batch = call.owner.input_batch
            table = [batch.block_table.get_row(row) for row in range(batch.num_reqs)]
        return {
            "num_reqs": common.num_reqs,
            "num_actual_tokens": common.num_actual_tokens,
            "max_query_len": common.max_query_len,
            "max_seq_len": common.max_seq_len,
            "block_table_shape": list(common.block_table_tensor.shape),
            "block_table": table,
        }


class ModelForward(Event, tag="model_forward"):
    """The flat batch goes through all layers. Below detail 1 its layers are summed up in B17 and B18."""

    num_tokens: int | None = None  # of the batch
    hidden_states_shape: list[int] = []  # [tokens, hidden size]
    dtype: str | None = None
    hidden_states_norms: list[float] = []  # [tokens], length of each token's vector after the last norm; detail 2
    layer_norms: list[list[float]] = []  # [layers][tokens], the same after each layer; detail 2
    early_candidates: dict[int, list[list[Candidate]]] | int = {}  # layer -> by row, as if it were the last; detail 2
    secret = ("early_candidates",)

    @staticmethod
    def before(call: Call) -> None:
        call.notes.pop(values.HIDDEN_STATES, None)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        hidden_states, of_layers = call.out, call.notes.pop(values.HIDDEN_STATES, [])
        return {
            "num_tokens": call.arg(0, "batch").num_actual_tokens,
            "hidden_states_shape": list(hidden_states.shape),
            "dtype": dtype_name(hidden_states),
            "hidden_states_norms": values.norms(hidden_states) if call.detail >= 2 else [],
            "layer_norms": [values.norms(states) for states in of_layers] if call.watched else [],
            "early_candidates": _early(call, of_layers) if call.watched else {},
        }


def _early(call: Call, of_layers: list[Any]) -> dict[int, list[list[Candidate]]]:
    """What the head makes of the hidden states after some layers, for each row's last token."""
    rows, model = call.arg(0, "batch").logits_indices, call.owner.model
    found = {}
    for layer in call.watch.early_layers:
        # past the mark: it is not part of the run
        logits = type(model).compute_logits(model, model.norm(of_layers[layer][rows]))
        found[layer] = values.candidates(logits, logits)
    return found


class TensorInfo(msgspec.Struct):
    """What a tensor looks like, without its values."""

    shape: list[int]  # elements of each dimension
    strides: list[int]  # elements from one place to the next in each dimension
    dtype: str


def dtype_name(tensor: Any) -> str:
    """`float32` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def _tensors(**tensors: Any) -> dict[str, TensorInfo]:
    return {name: TensorInfo(list(t.shape), list(t.stride()), dtype_name(t)) for name, t in tensors.items()}


class Summed(Event):
    """A kind that happens once a layer. At detail 0 one event sums a step up; from detail 1 each layer has its own."""

    calls: int | None = None  # of all layers; None in an event of one layer
    total_ns: int | None = None  # spent in these calls
    layer: int | None = None  # from 0; None in a sum
    num_tokens: int | None = None  # of the batch
    tensors: dict[str, TensorInfo] = {}  # from detail 1

    @staticmethod
    def before(call: Call) -> None:
        """For the launches inside."""
        call.notes["layer"] = call.arg(0, "layer_idx")

    @classmethod
    def summary(cls, call: Call) -> dict[str, Any]:
        """The fields of the sum, from the first layer's call."""
        raise NotImplementedError


def _watched(call: Call) -> list[int]:
    """Tokens whose values are asked for in this layer's call, by their places in the batch."""
    if not call.watched or call.arg(0, "layer_idx") not in call.watch.layers:
        return []
    return values.watched_tokens(call.notes["positions"], call.watch.positions)


def _at(call: Call, watched: list[int], **tensors: Any) -> dict[str, Values]:
    """Their values for the watched tokens, of those tensors that are asked for."""
    asked = [name for name in tensors if name.removesuffix("s") in call.watch.tensors]
    return {name: values.rounded(tensors[name][watched]) for name in asked} if watched else {}


class DoKVCacheUpdate(Summed, tag="do_kv_cache_update"):
    """K and V of the step's tokens are written to their slots."""

    key_shape: list[int] = []  # [tokens, KV heads, head size]; of V too
    slot_ranges: list[Change] = []  # runs of [first, last]; in a sum
    watched: list[int] = []  # places in the batch of the tokens below; detail 2
    keys: Values = []  # [watched, KV heads, head size], after the rotation; detail 2
    values: Values = []  # likewise
    secret = ("keys", "values")

    @classmethod
    def summary(cls, call: Call) -> dict[str, Any]:
        key = call.arg(1, "key")
        return {
            "num_tokens": key.shape[0],
            "key_shape": list(key.shape),
            "slot_ranges": call.notes.get("slot_ranges", []),
        }

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        key, value = call.arg(1, "key"), call.arg(2, "value")
        watched = _watched(call)
        return {
            "layer": call.arg(0, "layer_idx"),
            "num_tokens": key.shape[0],
            "key_shape": list(key.shape),
            "watched": watched,
            **_at(call, watched, keys=key, values=value),
            "tensors": _tensors(
                key=key,
                value=value,
                kv_cache=call.arg(3, "kv_cache"),
                slot_mapping=call.arg(4, "slot_mapping"),
            ),
        }


class Attention(Summed, tag="attention"):
    """The queries of the step read K and V through the block table."""

    backend: str | None = None  # torch, fast, triton or reference
    query_shape: list[int] = []  # [tokens, query heads, head size]
    kv_cache_shape: list[int] = []  # of one layer
    max_query_len: int | None = None
    max_seq_len: int | None = None
    watched: list[int] = []  # places in the batch of the tokens of query and output; detail 2
    query: Values = []  # [watched, query heads, head size], after the rotation; detail 2
    output: Values = []  # likewise
    keys: Values = []  # row by row [watched KV heads, seq_len, head size], as read from the cache; detail 2
    values: Values = []  # likewise
    weights: list[list[list[float]]] = []  # [rows, watched positions, query heads], of each row's last token; detail 2
    secret = ("query", "output", "keys", "values")

    @classmethod
    def summary(cls, call: Call) -> dict[str, Any]:
        query, common = call.arg(1, "query"), call.arg(3, "attn_metadata").common
        return {
            "num_tokens": query.shape[0],
            "backend": call.owner.name,
            "query_shape": list(query.shape),
            "kv_cache_shape": list(call.arg(2, "kv_cache").shape),
            "max_query_len": common.max_query_len,
            "max_seq_len": common.max_seq_len,
        }

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        query, kv_cache = call.arg(1, "query"), call.arg(2, "kv_cache")
        tensors = _tensors(query=query, kv_cache=kv_cache, output=call.out)
        facts = {**Attention.summary(call), "layer": call.arg(0, "layer_idx"), "tensors": tensors}
        return {**facts, **_attention_values(call, query, kv_cache)} if call.watched else facts


def _attention_values(call: Call, query: Any, kv_cache: Any) -> dict[str, Any]:
    watch, common, watched = call.watch, call.arg(3, "attn_metadata").common, _watched(call)
    found = {"watched": watched, **_at(call, watched, query=query, output=call.out)}
    if watch.kv_heads and call.arg(0, "layer_idx") in watch.layers:
        pairs = [values.keys_and_values(kv_cache, common, row, list(watch.kv_heads)) for row in range(common.num_reqs)]
        for name, tensors in zip(("keys", "values"), zip(*pairs, strict=True), strict=True):
            found[name] = [values.rounded(tensor.transpose(0, 1)) for tensor in tensors]
    if watch.weights_on:
        found["weights"] = values.weights_on(watch.weights_on, query, kv_cache, common, call.owner.scale)
    return found


class ComputeLogits(Event, tag="compute_logits"):
    """Hidden states become logits: of each row's last token, or of prompt tokens whose logprobs are wanted."""

    hidden_states_shape: list[int] = []  # [places, hidden size]
    logits_shape: list[int] = []  # [places, vocabulary]
    dtype: str | None = None

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "hidden_states_shape": list(call.arg(0, "hidden_states").shape),
            "logits_shape": list(call.out.shape),
            "dtype": dtype_name(call.out),
        }


class SampleTokens(Event, tag="sample_tokens"):
    """One token for each row, and those of incomplete prompts thrown away."""

    secret = ("sampled_token_ids",)
    req_ids: list[str] = []  # by row
    sampled_token_ids: list[TokenIds] = []  # by row; [] where the prompt is not complete
    discarded: list[str] = []  # those

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        req_ids, sampled = list(call.out.req_ids), [list(ids) for ids in call.out.sampled_token_ids]
        return {
            "reqs": req_ids,
            "req_ids": req_ids,
            "sampled_token_ids": sampled,
            "discarded": [req_id for req_id, ids in zip(req_ids, sampled, strict=True) if not ids],
        }


class SamplerForward(Event, tag="sampler.forward"):
    """Logits become tokens."""

    secret = ("candidates",)
    logits_shape: list[int] = []  # [rows, vocabulary]
    all_greedy: bool | None = None  # every row takes its likeliest token
    all_random: bool | None = None  # every row draws
    max_num_logprobs: int | None = None  # None: nobody asked
    discarded_rows: list[int] = []  # their own generators draw nothing
    rows_with_generator: list[int] = []  # requests with a seed
    candidates: list[list[Candidate]] | int = []  # by row, the likeliest first; detail 2

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        logits, metadata = call.arg(0, "logits"), call.arg(1, "metadata")
        return {
            "logits_shape": list(logits.shape),
            "all_greedy": metadata.all_greedy,
            "all_random": metadata.all_random,
            "max_num_logprobs": metadata.max_num_logprobs,
            "discarded_rows": sorted(call.arg(2, "discarded_rows", ())),
            "rows_with_generator": sorted(metadata.generators),
            "candidates": values.candidates(logits, call.out.processed_logits) if call.detail >= 2 else [],
        }
