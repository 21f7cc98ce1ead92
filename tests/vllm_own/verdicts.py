"""Which of vLLM's test files run here, and why a test of theirs is out of scope or has another outcome.

A test that is skipped or fails without a reason here is an error; so is a reason for a test that passes.
"""

FILES = [
    "tests/v1/core/test_scheduler.py",
    "tests/v1/core/test_priority_scheduler_random.py",
    "tests/v1/core/test_prefix_caching.py",
    "tests/v1/core/test_kv_cache_utils.py",
    "tests/v1/test_request.py",
    "tests/v1/engine/test_output_processor.py",
    "tests/v1/engine/test_logprobs_processor.py",
    "tests/v1/engine/test_parallel_sampling.py",
    "tests/detokenizer/test_min_tokens.py",
    "tests/detokenizer/test_stop_string_while_stop_model_terminates.py",
    "tests/detokenizer/test_disable_detokenization.py",
    "tests/detokenizer/test_stop_reason.py",
    "tests/detokenizer/test_stop_strings.py",
    "tests/tokenizers_/test_detokenize.py",
    "tests/v1/sample/test_sampler.py",
    "tests/v1/sample/test_topk_topp_sampler.py",
    "tests/v1/sample/test_logprobs.py",
    "tests/v1/sample/test_sampling_params_e2e.py",
    "tests/v1/worker/test_gpu_input_batch.py",
]
HELPERS = ["tests/v1/core/utils.py", "tests/v1/engine/utils.py", "tests/v1/sample/utils.py"]

# By what a test uses; of several the longest that begins it counts.
OUT_OF_SCOPE_NAMES: dict[str, str] = {
    "another tokenizer of the hub": "tokenizers of the hub (the default model's is taken)",
    "vLLM skips it": "what vLLM itself skips on a CPU",
    "tests.v1.kv_connector": "KV connectors",
    "vllm.LLM(logprobs_mode": "logprobs_mode",
    "vllm.PoolingParams": "pooling",
    "vllm.config.KVTransferConfig": "KV connectors",
    "vllm.config.kv_events": "KV events",
    "vllm.config.VllmConfig": "the builders of vLLM's configuration",
    "vllm.config.FullAttentionSpec": "the builders of a KV cache's layout",
    "vllm.distributed.kv_events": "KV events",
    "vllm.inputs.EmbedsPrompt": "prompt embeddings",
    "vllm.lora": "LoRA",
    "vllm.multimodal": "text only",
    "vllm.platforms": "kernels of one kind of GPU",
    "vllm.pooling_params": "pooling",
    "vllm.sampling_params.StructuredOutputsParams": "structured output",
    "vllm.v1.core.kv_cache_utils.KVCacheSpec": "KV cache groups of other kinds of attention",
    "vllm.v1.core.kv_cache_utils._project": "the builders of a KV cache's layout",
    "vllm.v1.core.kv_cache_utils.estimate_max_model_len": "the builders of a KV cache's layout",
    "vllm.v1.core.kv_cache_utils.generate_block_hash_extra_keys": "the only extra key here, the salt, has no function "
    "of its own (test_cache_key_salting runs)",
    "vllm.v1.core.kv_cache_utils.generate_scheduler_kv_cache_config": "the builders of a KV cache's layout",
    "vllm.v1.core.kv_cache_utils.get_kv_cache_configs": "the builders of a KV cache's layout",
    "vllm.v1.core.kv_cache_utils.get_max_concurrency": "the builders of a KV cache's layout",
    "vllm.v1.core.kv_cache_utils.is_kv_cache_spec_uniform": "the builders of a KV cache's layout",
    "vllm.v1.core.sched.async_scheduler": "asynchronous scheduling",
    "vllm.v1.engine.detokenizer.SlowIncrementalDetokenizer": "slow tokenizers",
    "vllm.v1.kv_cache_interface": "KV cache groups of other kinds of attention",
    "vllm.v1.metrics": "statistics",
    "vllm.v1.outputs.DraftTokenIds": "speculative decoding",
    "vllm.v1.sample.ops.topk_topp_triton": "kernels of one kind of GPU",
    "vllm.v1.spec_decode": "speculative decoding",
    "vllm.v1.worker.gpu_input_batch.InputBatch.swap_states": "rows are never swapped (an attention backend would)",
    "vllm.config.SchedulerConfig.stream_interval": "stream_interval, for servers",
}

# By test: file and function. The outcome of all its cases.
OUT_OF_SCOPE: dict[str, str] = {
    "test_request.py::test_request_status_fmt_str": "it names statuses that do not exist here (grammar, remote KV, "
    "streaming); those that do have a test, tests/core/test_request.py::test_a_status_is_printed_by_name",
    "test_scheduler.py::test_abort_request_when_structured_output_fsm_cannot_advance": "structured output",
    "test_scheduler.py::test_chunked_prefill_disabled_for_encoder_decoder": "encoder-decoder models",
    "test_scheduler.py::test_scheduler_no_ec_connector_by_default": "encoder caches",
    "test_scheduler.py::test_scheduler_stats_waiting_queues": "KV connectors",
    "test_scheduler.py::test_remote_kv_promotion_keeps_fcfs_with_grammar_prefix": "KV connectors",
    "test_scheduler.py::test_fcfs_mixed_skipped_waiting_types_keep_order": "KV connectors",
    "test_kv_cache_utils.py::test_merge_kv_cache_spec": "KV cache groups of other kinds of attention",
    "test_disable_detokenization.py::test_computed_prefix_blocks": "it wants a text, and the default model "
    "ends its prompt at once",
    "test_stop_strings.py::test_stop_strings": "it holds the texts of one model of the hub",
    "test_output_processor.py::test_request_output_collector": "the asynchronous server",
    "test_output_processor.py::test_cumulative_output_collector_n": "the asynchronous server",
    "test_output_processor.py::test_iteration_stats": "statistics",
    "test_output_processor.py::test_lora_request_tracking": "LoRA",
}
DIFFERENT: dict[str, str] = {
    "test_logprobs.py::TestCorrectDecodedToken::test_real_world_opt125m_scenario": "its tokenizer has a text for a "
    "lone token, and vLLM asks that before it calls this; here it is asked within",
    "test_scheduler.py::test_scheduler_reset_prefix_cache": "reset_prefix_cache takes no reset_running_requests: "
    "while requests run it is refused",
    "test_prefix_caching.py::test_maybe_evict_cached_block": "the map of hashes holds a dict for a lone block too; "
    "what is found and evicted is the same",
    "test_kv_cache_utils.py::test_free_kv_cache_block_queue_operations": "the text of an error: No free blocks "
    "(in vLLM: No free blocks available)",
    "test_kv_cache_utils.py::test_free_kv_cache_block_queue_append_n": "a queue that the test has destroyed: an "
    "AttributeError in place of an AssertionError",
    "test_parallel_sampling.py::test_parent_request_to_output_stream": "of n > 1 all children so far are given, again "
    "and again (docs/differences.md, What comes back)",
    "test_parallel_sampling.py::test_parent_request_to_output_final_only": "that only the last output is wanted is "
    "decided one function higher, in make_request_output",
}
