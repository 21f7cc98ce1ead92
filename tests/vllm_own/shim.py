"""minivllm's classes behind vLLM's names, so that vLLM's own unit tests run on them.

Owns: every difference of shape: other argument names, a tuple of block ids a KV cache group in place of a list, a dict
of messages in place of one. No decision is taken here.
Interface: install. What vLLM has and minivllm hasn't is `out_of_scope`: the test that uses it is skipped by its name.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import tokenizers
import torch

import minivllm
from minivllm import outputs, sampling_params
from minivllm.config import EngineConfig
from minivllm.core import block_hash, block_pool, kv_cache_manager, request, sched_output, scheduler
from minivllm.engine import detokenizer, logprobs, messages, output_processor, parallel_sampling
from minivllm.models.default_model import default_model_path
from minivllm.sample import logits_processors, metadata, sampler
from minivllm.worker import input_batch

# ---------------------------------------------------------------------- what minivllm hasn't


class _Absent(type):
    """A class that can be named, subclassed and subscripted, and skips the test that makes an object of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return out_of_scope(f"{cls.path}.{name}")

    def __call__(cls, *_: Any, **__: Any) -> Any:
        pytest.skip(cls.path)

    def __getitem__(cls, _: Any) -> Any:
        return cls


@cache
def out_of_scope(path: str) -> Any:
    return _Absent(path.rpartition(".")[2], (), {"path": path})


# ---------------------------------------------------------------------- settings


class Config(SimpleNamespace):
    """Any of vLLM's configurations: it holds what it is given. Who asks for more, a default say, is skipped."""

    def __init__(self, *_: Any, **fields: Any) -> None:
        super().__init__(**fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"vllm.config.{type(self).__name__}.{name}")


class FullAttentionSpec(Config):
    pass


class ModelConfig(Config):
    is_encoder_decoder = False

    def __init__(self, model: str = "", **fields: Any) -> None:
        if "llava" in model:
            pytest.skip("vllm.multimodal")
        super().__init__(model=model, **fields)


class CacheConfig(Config):
    prefix_caching_hash_algo = "sha256"


class VllmConfig(Config):
    kv_transfer_config = ec_transfer_config = speculative_config = None


class ParallelConfig(Config):
    pass


class KVCacheGroupSpec(Config):
    def __init__(self, layer_names: list[str], kv_cache_spec: Any) -> None:
        super().__init__(layer_names=layer_names, kv_cache_spec=kv_cache_spec)


class _SamplingParamsType(type(sampling_params.SamplingParams)):
    def __call__(cls, **fields: Any) -> Any:
        fields.pop("skip_clone", None)
        if fields.get("output_kind") is RequestOutputKind.DELTA:
            fields |= {"output_kind": RequestOutputKind.CUMULATIVE, "delta": True}
        return super().__call__(**fields)


class SamplingParams(sampling_params.SamplingParams, metaclass=_SamplingParamsType, kw_only=True, omit_defaults=True):
    delta: bool = False  # whether OutputProcessor below gives what is new only

    def update_from_generation_config(self, generation_config: dict, eos_token_id: int | None = None) -> None:
        self.set_stop_tokens(eos_token_id)

    @property
    def eos_token_id(self) -> int | None:
        return self._eos_token_id

    @property
    def all_stop_token_ids(self) -> set[int]:
        return self._all_stop_token_ids

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        return self._bad_words_token_ids


class RequestOutputKind:
    CUMULATIVE = sampling_params.RequestOutputKind.CUMULATIVE
    DELTA = "DELTA"
    FINAL_ONLY = sampling_params.RequestOutputKind.FINAL_ONLY


# ---------------------------------------------------------------------- hashes, blocks


class _NoneHash:
    value = b""


def init_none_hash(_: Any) -> None:
    _NoneHash.value = block_hash.init_none_hash(os.environ.get("PYTHONHASHSEED"))


def hash_fn(value: Any) -> bytes:
    """minivllm's hash of what the tests hash by hand: a seed, or (parent, token ids, extra keys)."""
    return block_hash.init_none_hash(value) if isinstance(value, str) else block_hash.hash_block_tokens(*value)


def hash_block_tokens(_: Any, parent: bytes | None, token_ids: Any, extra_keys: Any = None) -> bytes:
    return block_hash.hash_block_tokens(parent or _NoneHash.value, token_ids, extra_keys)


def get_request_block_hasher(block_size: int, _: Any) -> Any:
    return block_hash.get_request_block_hasher(block_size, _NoneHash.value)


class KVCacheBlock(block_pool.KVCacheBlock):
    __slots__ = ()

    def reset_hash(self) -> None:
        self.block_hash = None


class FreeKVCacheBlockQueue(block_pool.FreeKVCacheBlockQueue):
    @property
    def fake_free_list_head(self) -> Any:
        return self._head

    @property
    def fake_free_list_tail(self) -> Any:
        return self._tail


class BlockHashToBlockMap(dict):
    """The pool's map of hashes, looked up and emptied by the pool's own methods."""

    def __init__(self) -> None:
        self.pool = block_pool.BlockPool(1, enable_caching=True)
        self.pool.cached_block_hash_to_block = self

    def insert(self, key: bytes, block: Any) -> None:
        self.setdefault(key, {})[block.block_id] = block

    def get_one_block(self, key: bytes) -> Any:
        return self.pool.get_cached_block(key)

    def pop(self, key: bytes, block_id: int) -> Any:
        block = self.get(key, {}).get(block_id)
        if block is not None:
            block.block_hash = key
            self.pool._maybe_evict_cached_block(block)
        return block

    @property
    def _cache(self) -> dict:
        return dict(self)


class BlockPool(block_pool.BlockPool):
    def __init__(
        self, num_gpu_blocks: int, enable_caching: bool, hash_block_size: int, enable_kv_cache_events: bool = False
    ) -> None:
        if enable_kv_cache_events:
            pytest.skip("vllm.distributed.kv_events")
        super().__init__(num_gpu_blocks, enable_caching, free_queue=FreeKVCacheBlockQueue)
        self.cached_block_hash_to_block = BlockHashToBlockMap()

    def cache_full_blocks(
        self, request: Any, blocks: Any, num_cached_blocks: int, num_full_blocks: int, **more: Any
    ) -> None:
        if more["kv_cache_group_id"] != 0:
            pytest.skip("vllm.v1.kv_cache_interface.KVCacheConfig: several groups")
        super().cache_full_blocks(request, blocks, num_cached_blocks, num_full_blocks)


class KVCacheBlocks:
    """One list of blocks a KV cache group: here always one."""

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = (blocks,)

    def get_block_ids(self) -> tuple[list[int]]:
        return ([block.block_id for block in self.blocks[0]],)


class KVCacheManager:
    def __init__(self, kv_cache_config: Any, max_model_len: int, **fields: Any) -> None:
        if len(kv_cache_config.kv_cache_groups) != 1:
            pytest.skip("vllm.v1.kv_cache_interface.KVCacheConfig: several groups")
        if fields.get("use_eagle") or fields.get("enable_kv_cache_events"):
            pytest.skip("vllm.v1.spec_decode" if fields.get("use_eagle") else "vllm.distributed.kv_events")
        config = SimpleNamespace(
            block_size=kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size,
            max_model_len=max_model_len,
            enable_prefix_caching=fields.get("enable_caching", True),
        )
        pool = block_pool.BlockPool(
            kv_cache_config.num_blocks, config.enable_prefix_caching, free_queue=FreeKVCacheBlockQueue
        )
        self.manager = kv_cache_manager.KVCacheManager(config, pool)
        self.block_pool = pool
        self.coordinator = SimpleNamespace(single_type_managers=[self.manager])
        self.prefix_cache_stats = None

    def get_computed_blocks(self, request: Any) -> tuple[KVCacheBlocks, int]:
        hits, num_hit_tokens = self.manager.get_computed_blocks(request)
        return KVCacheBlocks(hits), num_hit_tokens

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        full_sequence_must_fit: bool = False,
    ) -> KVCacheBlocks | None:
        if num_lookahead_tokens:
            pytest.skip("vllm.v1.spec_decode")
        blocks = self.manager.allocate_slots(
            request, num_new_tokens, num_hit_tokens, hits.blocks[0] if hits else (), full_sequence_must_fit
        )
        return None if blocks is None else KVCacheBlocks(blocks)

    def free(self, request: Any) -> None:
        self.manager.free(request)

    def reset_prefix_cache(self) -> bool:
        return self.block_pool.reset_prefix_cache()


# ---------------------------------------------------------------------- requests, scheduler


class _Answer(int):
    """A property that is also a method, as the caller likes it."""

    def __call__(self) -> bool:
        return bool(self)


class Request(request.Request):
    def __init__(self, request_id: str, prompt_token_ids: list[int], sampling_params: Any, **fields: Any) -> None:
        if fields.get("lora_request") or fields.get("prompt_embeds") is not None:
            pytest.skip("vllm.lora" if fields.get("lora_request") else "vllm.inputs.EmbedsPrompt")
        super().__init__(
            request_id,
            prompt_token_ids,
            sampling_params,
            arrival_time=fields.get("arrival_time") or 0.0,
            priority=fields.get("priority", 0),
            cache_salt=fields.get("cache_salt"),
            block_hasher=fields.get("block_hasher"),
        )
        # the images of this test's random requests change none of its assertions
        if fields.get("mm_features") and "test_priority_scheduling_blast" not in os.environ["PYTEST_CURRENT_TEST"]:
            pytest.skip("vllm.multimodal")

    @property
    def is_finished(self) -> _Answer:
        return _Answer(self.status.is_finished)

    def append_output_token_ids(self, token_ids: int | list[int]) -> None:
        for token_id in [token_ids] if isinstance(token_ids, int) else token_ids:
            super().append_output_token_ids(token_id)


class CachedRequestData(sched_output.CachedRequestData):
    @classmethod
    def make_empty(cls) -> "CachedRequestData":
        return cls()

    @property
    def num_reqs(self) -> int:
        return len(self.req_ids)


class SchedulerOutput(Config):
    pass


class ModelRunnerOutput(Config):
    logprobs = None


class Scheduler(scheduler.Scheduler):
    def __init__(self, vllm_config: Any, kv_cache_config: Any, block_size: int, **_: Any) -> None:
        settings = vllm_config.scheduler_config
        config = EngineConfig(
            block_size=block_size,
            num_gpu_blocks_override=kv_cache_config.num_blocks,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            enable_prefix_caching=vllm_config.cache_config.enable_prefix_caching,
            enable_chunked_prefill=settings.enable_chunked_prefill,
            long_prefill_token_threshold=settings.long_prefill_token_threshold,
            scheduling_policy=vars(settings).get("policy", "fcfs"),
        ).resolved(max_model_len=settings.max_model_len)
        pool = block_pool.BlockPool(kv_cache_config.num_blocks, config.enable_prefix_caching)
        manager = kv_cache_manager.KVCacheManager(config, pool)
        manager.coordinator = SimpleNamespace(single_type_managers=[manager])
        super().__init__(config, manager)
        self.vllm_config = vllm_config
        self.encoder_cache_manager = SimpleNamespace(freed=[], cached={})  # text only: there is nothing in it

    def update_draft_token_ids(self, *_: Any) -> None:
        pytest.skip("vllm.v1.spec_decode")

    def finish_requests(self, request_ids: Any, status: Any) -> list[str]:
        return super().finish_requests([request_ids] if isinstance(request_ids, str) else request_ids, status)

    def get_num_unfinished_requests(self) -> int:
        return len(self.waiting) + len(self.running)

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        cached = plan.scheduled_cached_reqs
        fields = {name: getattr(cached, name) for name in cached.__slots__}
        new = [
            SimpleNamespace(
                req_id=data.req_id,
                prompt_token_ids=data.prompt_token_ids,
                block_ids=(data.block_ids,),
                num_computed_tokens=data.num_computed_tokens,
                mm_features=[],
            )
            for data in plan.scheduled_new_reqs
        ]
        return SchedulerOutput(
            **{name: getattr(plan, name) for name in plan.__slots__}
            | {"scheduled_new_reqs": new, "scheduled_cached_reqs": CachedRequestData(**fields)},
            scheduled_spec_decode_tokens={},
            scheduled_encoder_inputs={},
            free_encoder_mm_hashes=[],
        )

    def update_from_output(self, plan: Any, result: Any) -> dict[int, Any]:
        return {0: SimpleNamespace(outputs=super().update_from_output(plan, result))}


class MultiModalKwargsItem:
    @staticmethod
    def dummy() -> None:
        """Nothing of an image is looked at."""


class AsyncScheduler:
    def __init__(self, **_: Any) -> None:
        pytest.skip("vllm.v1.core.sched.async_scheduler")


# ---------------------------------------------------------------------- the caller's side


class LogprobsTensors(NamedTuple):
    logprob_token_ids: torch.Tensor
    logprobs: torch.Tensor
    selected_token_ranks: torch.Tensor
    cu_num_generated_tokens: list[int] | None = None


class PrefillStats(SimpleNamespace):
    def set(self, num_local_cached_tokens: int, **_: int) -> None:
        self.num_cached_tokens = num_local_cached_tokens


def EngineCoreRequest(  # a class in vLLM
    request_id: str,
    prompt_token_ids: Any,
    sampling_params: Any,
    arrival_time: float,
    cache_salt: Any = None,
    **more: Any,
) -> messages.EngineCoreRequest:
    if more.get("lora_request") or more.get("pooling_params"):
        pytest.skip("vllm.lora" if more.get("lora_request") else "vllm.pooling_params")
    return messages.EngineCoreRequest(
        request_id, prompt_token_ids, sampling_params, arrival_time, cache_salt, 0, more.get("external_req_id")
    )


def EngineCoreOutput(  # a class in vLLM
    request_id: str, new_token_ids: list[int], new_prompt_logprobs_tensors: Any = None, **more: Any
) -> messages.EngineCoreOutput:
    prompt_logprobs = None
    if new_prompt_logprobs_tensors is not None:
        prompt_logprobs = messages.LogprobsLists(*(t.numpy() for t in new_prompt_logprobs_tensors[:3]))
    return messages.EngineCoreOutput(request_id, new_token_ids, new_prompt_logprobs=prompt_logprobs, **more)


class OutputProcessor:
    """With DELTA: what is new since the last answer, cut from what minivllm gives so far."""

    def __init__(self, tokenizer: Any, log_stats: bool = False, stream_interval: int = 1) -> None:
        self.processor = output_processor.OutputProcessor(tokenizer)
        self.stream_interval = stream_interval
        self.delta: dict[str, outputs.CompletionOutput | None] = {}  # by external id: what was given last

    def add_request(self, request: Any, prompt: str | None, **_: Any) -> None:
        if request.sampling_params.delta:
            if self.stream_interval > 1:
                pytest.skip("vllm.config.SchedulerConfig.stream_interval")
            self.delta[request.external_req_id] = None
        self.processor.add_request(request, prompt)

    def process_outputs(self, core_outputs: list[Any], *_: Any) -> Any:
        processed = self.processor.process_outputs(core_outputs, 0.0)
        for output in processed.request_outputs:
            if output.request_id in self.delta:
                self._cut(output)
        return processed

    def _cut(self, output: Any) -> None:
        before, (now,) = self.delta[output.request_id], output.outputs
        self.delta[output.request_id] = now
        text, num_tokens = (before.text, len(before.token_ids)) if before is not None else ("", 0)
        output.outputs = [
            replace(
                now,
                text=now.text.removeprefix(text),
                token_ids=now.token_ids[num_tokens:],
                logprobs=now.logprobs and now.logprobs[num_tokens:],
            )
        ]
        if before is not None:
            output.prompt_logprobs = output.prompt_logprobs and []

    def abort_requests(self, request_ids: list[str], internal: bool) -> list[str]:
        return self.processor.abort_requests(request_ids)

    def get_num_unfinished_requests(self) -> int:
        return len(self.processor.request_states)

    def has_unfinished_requests(self) -> bool:
        return self.processor.has_unfinished_requests()


class ParentRequest(parallel_sampling.ParentRequest):
    def __init__(self, request: Any) -> None:
        super().__init__(request.request_id, request.external_req_id, request.sampling_params)


class LogprobsProcessor(logprobs.LogprobsProcessor):
    def __init__(self, tokenizer: Any, num_logprobs: int, num_prompt_logprobs: int | None, **_: Any) -> None:
        super().__init__(tokenizer, num_logprobs, num_prompt_logprobs)

    def _update_sample_logprobs(self, lists: Any) -> None:
        self.update_from_output(messages.EngineCoreOutput("0", [0], new_logprobs=lists))

    def _correct_decoded_token(self, token_id: int, context: list[int]) -> str:
        return self._decode(token_id, context)


class BaseIncrementalDetokenizer(detokenizer.IncrementalDetokenizer):
    """A subclass spells tokens with `decode_next`."""

    def __init__(self, request: Any) -> None:
        super().__init__(self, request.sampling_params)

    def step(self, token_id: int) -> str:
        return self.decode_next(token_id)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids


class FastIncrementalDetokenizer(BaseIncrementalDetokenizer):
    def __init__(self, tokenizer: Any, request: Any) -> None:
        super().__init__(request)
        stream = detokenizer.TextStream(tokenizer.backend_tokenizer, request.prompt_token_ids, request.sampling_params)
        self.decode_next = stream.step


# ---------------------------------------------------------------------- sampler, rows


class SamplingMetadata(Config):
    def ours(self) -> metadata.SamplingMetadata:
        """Without a padded tensor of prompts, and with None for what no row needs."""
        vocab_size = int(self.prompt_token_ids.max()) if self.prompt_token_ids.numel() else 0
        penalties = ["presence_penalties", "frequency_penalties", "repetition_penalties"]
        return metadata.SamplingMetadata(
            **{name: getattr(self, name) for name in ("all_greedy", "all_random", "temperature", "top_p", "top_k")},
            min_p=None,
            generators=self.generators,
            max_num_logprobs=self.max_num_logprobs,
            prompt_token_ids=[[t for t in row if t != vocab_size] for row in self.prompt_token_ids.tolist()],
            output_token_ids=self.output_token_ids,
            **{name: None if self.no_penalties else getattr(self, name) for name in penalties},
            allowed_token_ids_mask=self.allowed_token_ids_mask,
            bad_words_token_ids=self.bad_words_token_ids,
        )


class Sampler:
    def apply_penalties(self, logits: torch.Tensor, given: SamplingMetadata, output_token_ids: Any) -> torch.Tensor:
        ours = given.ours()
        # the padding is the vocabulary's size, which is no token
        prompts = [[t for t in row if t < logits.shape[1]] for row in given.prompt_token_ids.tolist()]
        return logits_processors.apply_penalties(
            logits,
            prompts,
            output_token_ids,
            ours.presence_penalties,
            ours.frequency_penalties,
            ours.repetition_penalties,
        )

    def apply_logits_processors(
        self, logits: torch.Tensor, given: SamplingMetadata, predict_bonus_token: bool
    ) -> torch.Tensor:
        return sampler.process(logits, given.ours())[1]


def CachedRequestState(  # a class in vLLM
    req_id: str, prompt_token_ids: Any, sampling_params: Any, block_ids: Any, num_computed_tokens: int, **more: Any
) -> input_batch.CachedRequestState:
    return input_batch.CachedRequestState(
        req_id,
        prompt_token_ids,
        sampling_params,
        block_ids[0],
        num_computed_tokens,
        more["generator"],
        more["output_token_ids"],
    )


class InputBatch(input_batch.InputBatch):
    def __init__(
        self, max_num_reqs: int, max_model_len: int, device: Any, vocab_size: int, block_sizes: list[int], **_: Any
    ) -> None:
        super().__init__(max_num_reqs, max_model_len, block_sizes[0], vocab_size, device)

    def add_request(self, state: Any) -> int:
        self.requests[state.req_id] = state
        return super().add_request(state)

    def swap_states(self, *_: Any) -> None:
        pytest.skip("vllm.v1.worker.gpu_input_batch.InputBatch.swap_states")

    def _make_sampling_metadata(self) -> SimpleNamespace:
        made = self.make_sampling_metadata()
        fields = {name: getattr(made, name) for name in made.__slots__}
        fields["no_penalties"] = made.presence_penalties is None
        fields["prompt_token_ids"] = make_tensor_with_pad(made.prompt_token_ids, self.vocab_size)
        fields["top_k"] = None if made.top_k is None else made.top_k.to(torch.int32)
        return SimpleNamespace(**fields)


def make_tensor_with_pad(rows: list[list[int]], pad: int, **_: Any) -> torch.Tensor:
    made = torch.full((len(rows), max(map(len, rows), default=0)), pad, dtype=torch.int64)
    for row, ids in enumerate(rows):
        made[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return made


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    return logits_processors.apply_top_k_top_p(logits, k, p)


# ---------------------------------------------------------------------- with a model


def tokenizer_from(described: dict[str, Any]) -> Any:
    """A tokenizer of its JSON."""
    return tokenizers.Tokenizer.from_str(json.dumps(described))


class LLM(minivllm.LLM):
    """The default model in float32 and in this process, whatever model of the hub is asked for."""

    def __init__(self, model: str = "", **settings: Any) -> None:
        for name in ("gpu_memory_utilization", "dtype", "disable_log_stats"):
            settings.pop(name, None)
        for name in ("logprobs_mode", "speculative_config"):
            if settings.pop(name, None):
                pytest.skip(f"vllm.LLM({name}=…)")
        super().__init__(
            str(default_model_path()), dtype="float32", multiprocess=False, **{"max_model_len": 1280} | settings
        )
        cache_config = SimpleNamespace(enable_prefix_caching=settings.get("enable_prefix_caching", True))
        self.llm_engine.vllm_config = SimpleNamespace(cache_config=cache_config)
        vocab_size = self.llm_engine.input_processor.vocab_size
        self.llm_engine.model_config = SimpleNamespace(get_vocab_size=lambda: vocab_size)
        self.num_preemptions = 0

    def generate(self, *args: Any, **fields: Any) -> list[Any]:
        answers = super().generate(*args, use_tqdm=False, **fields)
        self.num_preemptions += sum(answer.metrics.num_preemptions for answer in answers)
        return answers

    def get_metrics(self) -> list[Any]:
        return [SimpleNamespace(name="vllm:num_preemptions", value=self.num_preemptions)]


class VllmRunner:
    """Of vLLM's own conftest: an LLM for a `with`."""

    def __init__(self, model: str, **settings: Any) -> None:
        self.llm = LLM(model, **settings)

    def __enter__(self) -> "VllmRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self.llm.shutdown()

    def generate(self, prompts: list[str], sampling_params: Any) -> list[Any]:
        return self.llm.generate(prompts, sampling_params)

    def generate_w_logprobs(self, prompts: list[str], sampling_params: Any, **_: Any) -> list[Any]:
        return [
            (o.outputs[0].token_ids, o.outputs[0].text, o.outputs[0].logprobs, o.prompt_token_ids, o.prompt_logprobs)
            for o in self.generate(prompts, sampling_params)
        ]


class HfRunner:
    """Of vLLM's own conftest: the same model in transformers, for its logprobs."""

    def __init__(self, model: str, dtype: str) -> None:
        import transformers

        folder = str(default_model_path())
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)

    def __enter__(self) -> "HfRunner":
        return self

    def __exit__(self, *_: object) -> None:
        del self.model

    def generate_greedy(self, prompts: list[str], max_tokens: int) -> list[tuple[list[int], str]]:
        done = []
        for prompt in prompts:
            ids = self.tokenizer(prompt, return_tensors="pt").input_ids
            all_ids = self.model.generate(ids, do_sample=False, max_new_tokens=max_tokens)[0].tolist()
            done.append((all_ids, self.tokenizer.decode(all_ids)))
        return done

    @torch.no_grad()
    def generate_greedy_logprobs(self, prompts: list[str], max_tokens: int) -> list[list[torch.Tensor]]:
        ids = [self.tokenizer(prompt, return_tensors="pt").input_ids for prompt in prompts]
        return [[self.model(row).logits[0].log_softmax(dim=-1)] for row in ids]


# ---------------------------------------------------------------------- the modules

PLATFORM = SimpleNamespace(
    device_type="cpu",
    device_count=lambda: 1,
    is_cuda=lambda: False,
    is_rocm=lambda: False,
    is_cuda_alike=lambda: False,
    is_xpu=lambda: False,
    is_cpu=lambda: True,
)

NAMES: dict[str, dict[str, Any]] = {
    "vllm": {
        "SamplingParams": SamplingParams,
        "CompletionOutput": outputs.CompletionOutput,
        "RequestOutput": outputs.RequestOutput,
        "LLM": LLM,
    },
    "vllm.entrypoints.llm": {"LLM": LLM},
    "vllm.sampling_params": {"SamplingParams": SamplingParams, "RequestOutputKind": RequestOutputKind},
    "vllm.outputs": {"CompletionOutput": outputs.CompletionOutput, "RequestOutput": outputs.RequestOutput},
    "vllm.logprobs": {"Logprob": outputs.Logprob, "create_sample_logprobs": lambda flat_logprobs: []},
    "vllm.config": {
        "CacheConfig": CacheConfig,
        "ModelConfig": ModelConfig,
        "ParallelConfig": ParallelConfig,
        "SchedulerConfig": Config,
        "SpeculativeConfig": Config,
        "VllmConfig": VllmConfig,
    },
    "vllm.config.model": {
        "LogprobsMode": Literal["raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"],
    },
    "vllm.distributed": {"cleanup_dist_env_and_memory": lambda: None},
    "vllm.multimodal.inputs": {
        "MultiModalFeatureSpec": Config,
        "MultiModalKwargsItem": MultiModalKwargsItem,
        "PlaceholderRange": Config,
    },
    "vllm.platforms": {"current_platform": PLATFORM},
    "vllm.utils.hashing": {
        "sha256": hash_fn,
        "sha256_cbor": hash_fn,
        "get_hash_fn_by_name": lambda name: hash_fn,
    },
    "vllm.utils.mem_constants": {"GiB_bytes": 1 << 30},
    "vllm.utils.platform_utils": {"is_pin_memory_available": lambda: False},
    "vllm.utils.torch_utils": {"make_tensor_with_pad": make_tensor_with_pad},
    "vllm.v1.core.block_pool": {"BlockPool": BlockPool, "BlockHashToBlockMap": BlockHashToBlockMap},
    "vllm.v1.core.kv_cache_manager": {"KVCacheManager": KVCacheManager, "Request": Request},
    "vllm.v1.core.kv_cache_utils": {
        "BlockHash": bytes,
        "BlockHashWithGroupId": bytes,
        "FreeKVCacheBlockQueue": FreeKVCacheBlockQueue,
        "KVCacheBlock": KVCacheBlock,
        "get_block_hash": lambda block_hash: block_hash,
        "get_group_id": lambda block_hash: 0,
        "get_request_block_hasher": get_request_block_hasher,
        "hash_block_tokens": hash_block_tokens,
        "init_none_hash": init_none_hash,
        "make_block_hash_with_group_id": lambda block_hash, group_id: block_hash,
    },
    "vllm.v1.core.sched.async_scheduler": {"AsyncScheduler": AsyncScheduler},
    "vllm.v1.core.sched.output": {"CachedRequestData": CachedRequestData, "SchedulerOutput": SchedulerOutput},
    "vllm.v1.core.sched.scheduler": {"Scheduler": Scheduler},
    "vllm.v1.core.sched.utils": {"check_stop": request.check_stop},
    "vllm.v1.engine": {
        "EngineCoreOutput": EngineCoreOutput,
        "EngineCoreRequest": EngineCoreRequest,
        "FinishReason": messages.FinishReason,
    },
    "vllm.v1.engine.detokenizer": {
        "BaseIncrementalDetokenizer": BaseIncrementalDetokenizer,
        "FastIncrementalDetokenizer": FastIncrementalDetokenizer,
    },
    "vllm.v1.engine.logprobs": {"LogprobsProcessor": LogprobsProcessor},
    "vllm.v1.engine.output_processor": {"OutputProcessor": OutputProcessor, "RequestOutputCollector": Config},
    "vllm.v1.engine.parallel_sampling": {"ParentRequest": ParentRequest},
    "vllm.v1.kv_cache_interface": {
        "FullAttentionSpec": FullAttentionSpec,
        "KVCacheConfig": Config,
        "KVCacheGroupSpec": KVCacheGroupSpec,
    },
    "vllm.v1.metrics.stats": {"PrefillStats": PrefillStats},
    "vllm.v1.outputs": {
        "LogprobsLists": messages.LogprobsLists,
        "LogprobsTensors": LogprobsTensors,
        "ModelRunnerOutput": ModelRunnerOutput,
    },
    "vllm.v1.request": {"Request": Request, "RequestStatus": request.RequestStatus},
    "vllm.v1.sample.logits_processor": {"LogitsProcessors": Config},
    "vllm.v1.sample.metadata": {"SamplingMetadata": SamplingMetadata},
    "vllm.v1.sample.ops.topk_topp_sampler": {"apply_top_k_top_p_pytorch": apply_top_k_top_p},
    "vllm.v1.sample.sampler": {"Sampler": Sampler},
    "vllm.v1.structured_output": {"StructuredOutputManager": Config},
    "vllm.v1.worker.gpu_input_batch": {"CachedRequestState": CachedRequestState, "InputBatch": InputBatch},
    # of vLLM's test suite itself
    "tests.conftest": {"HfRunner": HfRunner, "VllmRunner": VllmRunner},
    "tests.utils": {"large_gpu_mark": lambda min_gb: pytest.mark.skip("vllm.platforms: a large GPU")},
    "tests.v1.kv_connector.unit.utils": {},
}


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of NAMES, and any other that starts with vllm. What they lack is out of scope."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] == "vllm" or name in NAMES or name.startswith("tests.v1.kv_connector"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(NAMES.get(module.__name__, {}))

        def missing(attribute: str) -> Any:
            if attribute == "NONE_HASH":
                return _NoneHash.value
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return out_of_scope(f"{module.__name__}.{attribute}")

        module.__getattr__ = missing


def install() -> None:
    """From now on `import vllm…` gives these."""
    sys.meta_path.insert(0, _Modules())
    np.random.seed(0)
    torch.manual_seed(0)
