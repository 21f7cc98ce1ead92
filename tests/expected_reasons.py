"""What `why` must say, worked out by hand from the prompts' lengths and the scheduler's rules before it was run.

A row: scenario, request (external id), step, verdict, some of the numbers behind it. The prompts have, in tokens:
A 41, B 41, C 36, F 70, G 48, L 92, R 49, V 148; A shares 32 with B and R, 48 with F (answer included), 16 with all
others. Blocks have 16 tokens, block 0 is the null block, a step has 64 tokens and there are 8 seats, unless a
scenario says otherwise.
"""

from typing import Any

Row = tuple[str, str, int, str, dict[str, Any]]

# fmt: off
EXPECTED: list[Row] = [
    # ---- one: A alone, blocks [1 2 3], a fourth when position 48 is computed
    ("one", "0", 1, "scheduled", {"num_new_tokens": 41, "num_missing": 41, "limit": None, "admitted": True,
                                  "token_budget": 64, "num_hit_tokens": 0, "first_miss": 0, "new_block_ids": [1, 2, 3],
                                  "blocks_free": 31}),
    ("one", "0", 8, "scheduled", {"num_new_tokens": 1, "num_tokens": 48, "num_computed_tokens": 47, "admitted": False,
                                  "new_block_ids": [], "limit": None}),
    ("one", "0", 9, "scheduled", {"num_new_tokens": 1, "num_tokens": 49, "num_computed_tokens": 48,
                                  "new_block_ids": [4]}),
    # ---- again: one after the other; the next request arrives when the one before has ended
    ("again", "1", 15, "not_arrived", {"arrives_before_step": 16}),
    ("again", "0", 16, "finished", {"reason": "eos", "last_step": 15, "worker_is_told": True}),
    ("again", "0", 17, "finished", {"reason": "eos", "last_step": 15, "worker_is_told": False}),
    ("again", "1", 16, "scheduled", {"num_new_tokens": 9, "num_missing": 9, "num_hit_tokens": 32, "first_miss": None,
                                     "hit_block_ids": [1, 2], "new_block_ids": [5]}),
    ("again", "3", 46, "scheduled", {"num_new_tokens": 20, "num_hit_tokens": 16, "first_miss": 1,
                                     "hit_block_ids": [1], "new_block_ids": [9, 10], "missed_because": "never_cached"}),
    ("again", "4", 70, "scheduled", {"num_new_tokens": 22, "num_hit_tokens": 48, "first_miss": 3,
                                     "new_block_ids": [12, 13]}),
    # ---- twins: the second finds what the first is about to compute
    ("twins", "1", 1, "scheduled", {"num_new_tokens": 9, "num_hit_tokens": 32, "hit_block_ids": [1, 2],
                                    "new_block_ids": [4], "token_budget": 23}),
    # ---- together: 41 + 9 + 14 = 64
    ("together", "0", 1, "scheduled", {"num_new_tokens": 41, "token_budget": 64, "limit": None}),
    ("together", "1", 1, "scheduled", {"num_new_tokens": 9, "num_hit_tokens": 32, "token_budget": 23, "limit": None}),
    ("together", "2", 1, "scheduled", {"num_new_tokens": 14, "num_missing": 20, "limit": "token_budget",
                                       "token_budget": 14, "num_hit_tokens": 16, "first_miss": 1,
                                       "new_block_ids": [5]}),
    ("together", "2", 2, "scheduled", {"num_new_tokens": 6, "num_missing": 6, "limit": None, "token_budget": 62,
                                       "new_block_ids": [6], "admitted": False}),
    # ---- together-nc: without the prefix cache
    ("together-nc", "1", 1, "scheduled", {"num_new_tokens": 23, "num_missing": 41, "limit": "token_budget",
                                          "token_budget": 23, "num_hit_tokens": 0}),
    ("together-nc", "2", 1, "token_budget", {"token_budget": 0, "used_by": {"0": 41, "1": 23}}),
    ("together-nc", "1", 2, "scheduled", {"num_new_tokens": 18, "num_missing": 18, "limit": None, "token_budget": 63}),
    ("together-nc", "2", 2, "scheduled", {"num_new_tokens": 36, "num_missing": 36, "token_budget": 45,
                                          "admitted": True}),
    # ---- together-nc-nochunk: a prompt goes in whole or not at all
    ("together-nc-nochunk", "1", 1, "not_fit_in_budget", {"num_missing": 41, "token_budget": 23}),
    ("together-nc-nochunk", "2", 1, "head_of_line", {"blocked_by": "1", "blocker_verdict": "not_fit_in_budget"}),
    ("together-nc-nochunk", "2", 2, "not_fit_in_budget", {"num_missing": 36, "token_budget": 22}),
    ("together-nc-nochunk", "2", 3, "scheduled", {"num_new_tokens": 36, "token_budget": 62}),
    # ---- chunk-16: 16 + 16 + 9
    ("chunk-16", "0", 1, "scheduled", {"num_new_tokens": 16, "num_missing": 41, "limit": "token_budget"}),
    ("chunk-16", "0", 3, "scheduled", {"num_new_tokens": 9, "num_missing": 9, "limit": None, "token_budget": 16}),
    # ---- late16-nc: C arrives before step 5 and gets what a decode leaves
    ("late16-nc", "1", 4, "not_arrived", {"arrives_before_step": 5}),
    ("late16-nc", "1", 5, "scheduled", {"num_new_tokens": 15, "num_missing": 36, "limit": "token_budget",
                                        "token_budget": 15}),
    ("late16-nc", "1", 7, "scheduled", {"num_new_tokens": 6, "num_missing": 6, "limit": None}),
    # ---- seats1: one seat
    ("seats1", "1", 1, "seats", {"num_running": 1, "max_num_seqs": 1, "token_budget": 23, "blocks_free": 28}),
    ("seats1", "1", 15, "seats", {"num_running": 1, "max_num_seqs": 1}),
    ("seats1", "1", 16, "scheduled", {"num_new_tokens": 9, "num_hit_tokens": 32, "admitted": True}),
    # ---- queue-LC: A holds 3 of 7 blocks, L needs 6 and is first, C would need 3
    ("queue-LC", "1", 2, "blocks", {"blocks_needed": 6, "blocks_free": 4}),
    ("queue-LC", "2", 2, "head_of_line", {"blocked_by": "1", "blocker_verdict": "blocks"}),
    ("queue-LC", "1", 9, "blocks", {"blocks_needed": 6, "blocks_free": 3}),
    ("queue-LC", "1", 16, "scheduled", {"num_new_tokens": 64, "num_missing": 92, "limit": "token_budget"}),
    ("queue-LC", "2", 16, "token_budget", {"token_budget": 0, "used_by": {"1": 64}}),
    ("queue-LC", "1", 17, "scheduled", {"num_new_tokens": 28, "num_missing": 28}),
    ("queue-LC", "2", 17, "blocks", {"blocks_needed": 3, "blocks_free": 1}),
    ("queue-LC", "2", 21, "scheduled", {"num_new_tokens": 36}),
    # ---- queue-CL: the other way round C fits and L waits
    ("queue-CL", "1", 2, "scheduled", {"num_new_tokens": 36, "new_block_ids": [4, 5, 6], "token_budget": 63}),
    ("queue-CL", "2", 2, "blocks", {"blocks_needed": 6, "blocks_free": 1}),
    # ---- pool-8: 7 usable blocks, A [1 2 3], B [1 2 4], C [1 5 6]; in step 9 A takes 7 and B needs one more
    ("pool-8", "2", 8, "scheduled", {"num_new_tokens": 1, "num_tokens": 42}),
    ("pool-8", "1", 9, "scheduled", {"num_new_tokens": 1, "new_block_ids": [6], "victims": ["2"]}),
    ("pool-8", "2", 9, "preempted", {"for_req": "1", "blocks_needed": 1, "blocks_free": 0, "blocks_returned": 2,
                                     "num_computed_tokens": 42, "num_tokens": 43, "num_output_tokens": 7,
                                     "was_scheduled": False}),
    ("pool-8", "2", 10, "blocks", {"blocks_needed": 2, "blocks_free": 1, "num_hit_tokens": 32, "num_new_blocks": 1,
                                   "num_idle_hits": 1}),
    ("pool-8", "2", 15, "blocks", {"blocks_needed": 2, "blocks_free": 1}),
    ("pool-8", "2", 16, "scheduled", {"num_new_tokens": 11, "num_hit_tokens": 32, "resumed": True,
                                      "hit_block_ids": [1, 5], "new_block_ids": [7]}),
    # ---- pool-9: C needs a block in step 15 and is itself the last
    ("pool-9", "2", 15, "preempted", {"for_req": "2", "blocks_needed": 1, "blocks_free": 0, "blocks_returned": 2,
                                      "num_computed_tokens": 48, "num_tokens": 49}),
    ("pool-9", "2", 16, "scheduled", {"num_new_tokens": 1, "num_hit_tokens": 48, "resumed": True}),
    # ---- pool-8-nc: the same shortage without names
    ("pool-8-nc", "2", 2, "blocks", {"blocks_needed": 3, "blocks_free": 1}),
    ("pool-8-nc", "1", 10, "preempted", {"for_req": "1", "blocks_needed": 1, "blocks_free": 0, "blocks_returned": 3,
                                         "num_computed_tokens": 48}),
    ("pool-8-nc", "2", 10, "preemption", {"blocked_by": "1"}),
    ("pool-8-nc", "1", 11, "blocks", {"blocks_needed": 4, "blocks_free": 3}),
    ("pool-8-nc", "2", 11, "head_of_line", {"blocked_by": "1", "blocker_verdict": "blocks"}),
    ("pool-8-nc", "1", 16, "scheduled", {"num_new_tokens": 49, "num_missing": 49, "resumed": True,
                                         "num_hit_tokens": 0}),
    ("pool-8-nc", "2", 16, "scheduled", {"num_new_tokens": 15, "num_missing": 36, "limit": "token_budget"}),
    # ---- poison: threshold 32; R is more important, V was served in the same step when R lacks a block
    ("poison", "0", 1, "scheduled", {"num_new_tokens": 32, "num_missing": 148, "token_budget": 256,
                                     "limit": "long_prefill_token_threshold"}),
    ("poison", "1", 4, "scheduled", {"num_new_tokens": 32, "num_missing": 33, "num_hit_tokens": 16,
                                     "token_budget": 224, "limit": "long_prefill_token_threshold"}),
    ("poison", "0", 5, "preempted", {"for_req": "1", "blocks_needed": 1, "blocks_free": 0, "blocks_returned": 9,
                                     "num_computed_tokens": 128, "was_scheduled": True, "num_output_tokens": 0}),
    ("poison", "1", 5, "scheduled", {"num_new_tokens": 1, "num_missing": 1, "victims": ["0"]}),
    ("poison", "0", 6, "blocks", {"blocks_needed": 9, "blocks_free": 8, "num_hit_tokens": 128, "num_new_blocks": 2,
                                  "num_idle_hits": 7}),
    ("poison", "0", 20, "scheduled", {"num_new_tokens": 20, "num_hit_tokens": 128, "resumed": True, "first_miss": 8}),
    # ---- poison-as-vllm: vLLM leaves block 11 its hash, though the step that was to fill it never ran
    ("poison-as-vllm", "0", 20, "scheduled", {"num_new_tokens": 4, "num_hit_tokens": 144, "resumed": True,
                                              "unfilled_block_ids": [11]}),
    # ---- evict: D took block 2, which held A's second 16 tokens, in step 51
    ("evict", "3", 92, "scheduled", {"num_new_tokens": 25, "num_hit_tokens": 16, "first_miss": 1,
                                     "missed_because": "evicted", "missed_block": 2, "evicted_for": "2",
                                     "evicted_in_step": 51, "cached_by": "0"}),
    # ---- full: everything is cached, and yet a token must run
    ("full", "1", 9, "scheduled", {"num_new_tokens": 16, "num_hit_tokens": 32, "first_miss": None,
                                   "last_block_again": True}),
    # ---- abort: given up before step 6
    ("abort", "0", 5, "scheduled", {"num_new_tokens": 1}),
    ("abort", "0", 6, "finished", {"reason": "abort", "last_step": 5, "worker_is_told": True}),
    ("abort", "1", 6, "scheduled", {"num_new_tokens": 1, "token_budget": 64}),
    # ---- priority: two seats; the most important arrives last, and nobody is thrown out for it
    ("priority", "1", 2, "scheduled", {"num_new_tokens": 9, "num_hit_tokens": 32, "token_budget": 63}),
    ("priority", "2", 3, "seats", {"num_running": 2, "max_num_seqs": 2}),
    ("priority", "2", 16, "scheduled", {"num_new_tokens": 20, "num_hit_tokens": 16, "token_budget": 63}),
]

# why a request ended: scenario, request, verdict, numbers
EXPECTED_ENDS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("one", "0", "eos", {"num_steps": 15, "num_output_tokens": 15, "num_preemptions": 0, "last_step": 15}),
    ("together", "2", "max_tokens", {"num_output_tokens": 24, "num_steps": 25, "max_tokens": 24}),
    ("stop-token", "0", "stop_token", {"num_output_tokens": 6, "stop_reason": 7042}),
    ("stop-string", "0", "stop_string", {"num_output_tokens": 6, "stop_reason": "Paris"}),
    ("max-tokens-1", "0", "max_tokens", {"num_output_tokens": 1, "max_tokens": 1, "num_steps": 1}),
    ("abort", "0", "abort", {"num_output_tokens": 5, "num_steps": 5}),
    ("pool-8", "2", "max_tokens", {"num_preemptions": 1, "num_steps": 25, "num_steps_preempted": 7}),
    ("seats1", "1", "eos", {"num_steps": 15, "num_steps_waited": 15, "first_step": 16}),
    ("queue-LC", "2", "max_tokens", {"num_steps_waited": 19, "first_step": 21, "max_tokens": 4}),
]
# fmt: on
