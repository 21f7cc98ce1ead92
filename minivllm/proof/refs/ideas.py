"""The ideas of vLLM's that outlive its files, and the symbols that carry each of them at 0.22.0.

Owns: the list, which docs/drift.md sums up. An idea stands as long as its symbols do.
Must not know: verdicts.
"""

from typing import NamedTuple


class Idea(NamedTuple):
    """One idea: a title, what it says, and the references that carry it."""

    title: str
    says: str
    targets: tuple[str, ...]


_SCHEDULER = "v1/core/sched/scheduler.py::Scheduler"
_POOL = "v1/core/block_pool.py::BlockPool"
_CORE = "v1/engine/core.py::EngineCore"
_RUNNER = "v1/worker/gpu_model_runner.py::GPUModelRunner"

IDEAS = (
    Idea(
        "One loop for all",
        "`generate` queues every prompt, then steps the engine until nothing is left.",
        (
            "entrypoints/llm.py::LLM.generate",
            "entrypoints/offline_utils.py::OfflineInferenceMixin._run_engine",
            "v1/engine/llm_engine.py::LLMEngine.add_request",
            "v1/engine/llm_engine.py::LLMEngine.step",
        ),
    ),
    Idea(
        "A core of its own",
        "The core runs in a process of its own and speaks msgpack over ZMQ with the caller's.",
        (
            f"{_CORE}Proc.run_busy_loop",
            f"{_CORE}Proc.process_input_sockets",
            f"{_CORE}Proc.process_output_sockets",
            "v1/engine/core_client.py::SyncMPClient",
            "v1/engine/__init__.py::EngineCoreRequest",
            "v1/engine/__init__.py::EngineCoreOutputs",
            "v1/serial_utils.py::MsgpackEncoder",
        ),
    ),
    Idea(
        "A step is five calls",
        "Schedule, execute, sample, take aborts, update: one step of the core.",
        (
            f"{_CORE}.step",
            f"{_SCHEDULER}.schedule",
            "v1/executor/uniproc_executor.py::UniProcExecutor.execute_model",
            "v1/executor/uniproc_executor.py::UniProcExecutor.sample_tokens",
            f"{_SCHEDULER}.update_from_output",
        ),
    ),
    Idea(
        "One token budget",
        "No phases: every request catches up with its tokens out of one budget a step, prompts in chunks.",
        (
            f"{_SCHEDULER}.schedule",
            f"{_SCHEDULER}._update_after_schedule",
            "v1/core/sched/output.py::SchedulerOutput",
            "v1/core/sched/output.py::NewRequestData",
            "v1/core/sched/output.py::CachedRequestData",
        ),
    ),
    Idea(
        "Preemption by recomputing",
        "When blocks run out, the last running request gives up all of its own and starts again later.",
        (
            f"{_SCHEDULER}._preempt_request",
            "v1/core/sched/request_queue.py::FCFSRequestQueue",
            "v1/core/sched/request_queue.py::PriorityRequestQueue",
            "v1/request.py::RequestStatus",
        ),
    ),
    Idea(
        "KV memory in blocks",
        "The cache is blocks of equal size with reference counts, and one queue of free ones in order of last use.",
        (
            _POOL,
            f"{_POOL}.get_new_blocks",
            f"{_POOL}.free_blocks",
            f"{_POOL}.touch",
            "v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue",
            "v1/core/kv_cache_utils.py::KVCacheBlock",
        ),
    ),
    Idea(
        "Prefix cache by chained hashes",
        "A full block is known by the hash of its tokens and of all blocks before it; free blocks can still be hit.",
        (
            "v1/core/kv_cache_utils.py::hash_block_tokens",
            "v1/core/kv_cache_utils.py::get_request_block_hasher",
            f"{_POOL}.get_cached_block",
            f"{_POOL}.cache_full_blocks",
            "v1/core/kv_cache_manager.py::KVCacheManager.get_computed_blocks",
            "v1/core/single_type_kv_cache_manager.py::FullAttentionManager.find_longest_cache_hit",
        ),
    ),
    Idea(
        "All blocks or none",
        "`allocate_slots` seats the tokens of a step, or says no and changes nothing.",
        (
            "v1/core/kv_cache_manager.py::KVCacheManager.allocate_slots",
            "v1/core/kv_cache_manager.py::KVCacheManager.free",
            "v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.get_num_blocks_to_allocate",
            "v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.cache_blocks",
        ),
    ),
    Idea(
        "A batch that stays",
        "The worker keeps a row for each request from step to step, and gets only what changed.",
        (
            f"{_RUNNER}._update_states",
            "v1/worker/gpu_input_batch.py::InputBatch.add_request",
            "v1/worker/gpu_input_batch.py::InputBatch.remove_request",
            "v1/worker/gpu_input_batch.py::InputBatch.condense",
        ),
    ),
    Idea(
        "One flat batch",
        "All tokens of a step lie in one row, whatever request they belong to; `query_start_loc` cuts it.",
        (f"{_RUNNER}._prepare_inputs", "v1/attention/backend.py::CommonAttentionMetadata"),
    ),
    Idea(
        "Block table and slot mapping",
        "A request's blocks are a row of the block table; where a token's K and V go is computed from it.",
        (
            "v1/worker/block_table.py::BlockTable",
            "v1/worker/block_table.py::BlockTable.compute_slot_mapping",
            "v1/worker/block_table.py::_compute_slot_mapping_kernel",
            f"{_RUNNER}._get_slot_mappings",
        ),
    ),
    Idea(
        "Attention backends",
        "The same metadata for every layer, built once a step; a backend turns it into its own.",
        (
            "v1/attention/backend.py::AttentionBackend",
            "v1/attention/backend.py::AttentionMetadataBuilder.build",
            "v1/attention/selector.py::get_attn_backend",
            f"{_RUNNER}._build_attention_metadata",
        ),
    ),
    Idea(
        "Paged attention",
        "K and V are first written to their slots, then read back through the block table by one kernel.",
        (
            "v1/attention/backends/triton_attn.py::TritonAttentionImpl.do_kv_cache_update",
            "v1/attention/backends/triton_attn.py::TritonAttentionImpl.forward",
            "v1/attention/ops/triton_unified_attention.py::unified_attention",
            "v1/attention/ops/triton_reshape_and_cache_flash.py::triton_reshape_and_cache_flash",
        ),
    ),
    Idea(
        "A model that knows no batch",
        "The model sees token ids and positions; its attention layers find the cache and the metadata by themselves.",
        (
            "model_executor/models/llama.py::LlamaForCausalLM",
            "model_executor/models/llama.py::LlamaAttention",
            "model_executor/layers/attention/attention.py::Attention.forward",
            "forward_context.py::ForwardContext",
        ),
    ),
    Idea(
        "Logits of the last tokens only",
        "The head runs on one token a request, in a call of its own.",
        ("model_executor/models/llama.py::LlamaForCausalLM.compute_logits", f"{_RUNNER}.execute_model"),
    ),
    Idea(
        "Sampling in a fixed order",
        "Masks, penalties, temperature, min p, top k and top p, in this order, for all rows at once.",
        (
            "v1/sample/sampler.py::Sampler.forward",
            "v1/sample/sampler.py::Sampler.sample",
            "v1/sample/sampler.py::Sampler.apply_logits_processors",
            "v1/sample/metadata.py::SamplingMetadata",
            "v1/sample/ops/topk_topp_sampler.py::TopKTopPSampler",
        ),
    ),
    Idea(
        "Text in the caller's process",
        "The core knows tokens only; the caller turns them into text and finds stop strings.",
        (
            "v1/engine/output_processor.py::OutputProcessor.process_outputs",
            "v1/engine/detokenizer.py::BaseIncrementalDetokenizer.update",
            "v1/engine/detokenizer.py::FastIncrementalDetokenizer.decode_next",
            "v1/engine/detokenizer.py::check_stop_strings",
        ),
    ),
)
