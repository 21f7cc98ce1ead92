"""The bugs of lab 13: fifteen of mini engines, of which a student is dealt ten, and the bonus.

A line of `old` stands in the engine's source; nothing else is broken. `seen_in` says where such a bug was reported.
"""

from random import Random
from typing import Any

from minivllm.config import cdiv
from minivllm.course.grader.variants import make_workload
from minivllm.lessons.lab13.cases import CaseBug
from minivllm.lessons.lab13.checksum import FIRST_TOKEN, SMALL_VOCAB, ByteTokenizer
from minivllm.lessons.lab13.members import Bug

ROOM = 80  # tokens of a row of the block table beyond what anybody needs
WORDS = ("naïve", "日本語", "😀", "größer", "🚀", "città", "漢字", "😴", "mañana", "你好", "ok", "and", "then", "🎉")


def ordinary(random: Random, **settings: Any) -> dict[str, Any]:
    return make_workload(random, **({"prompt_len": (6, 14), "spare_blocks": (8, 12, 16)} | settings))


def shared(random: Random) -> dict[str, Any]:
    """Requests with common beginnings that run side by side, and a pool with room."""
    return ordinary(random, shared=1.0, arrival=(1, 2), num_requests=(4, 6), output_len=(5, 9))


def returning(random: Random) -> dict[str, Any]:
    """Common beginnings that come back when those who had them have ended, and a pool that they come round in."""
    return ordinary(
        random, shared=1.0, arrival=(2, 3, 4), num_requests=(5, 7), output_len=(2, 4), spare_blocks=(3, 4, 6)
    )


def reused(random: Random) -> dict[str, Any]:
    """A pool for one long request: a prompt that comes back, and very short ones that take some of its blocks."""
    workload = ordinary(random, shared=0.0, arrival=(1, 2, 3), num_requests=(5, 7), prompt_len=(8, 13))
    requests = workload["requests"]
    longest = max(len(request["prompt_token_ids"]) + request["max_tokens"] for request in requests)
    workload["config"]["num_blocks"] = 1 + cdiv(longest, 4) + random.choice((0, 0, 1))
    for request in requests[1:]:
        if random.random() < 0.5:
            request["prompt_token_ids"], request["max_tokens"] = request["prompt_token_ids"][:2], 1
        else:
            request["prompt_token_ids"] = list(requests[0]["prompt_token_ids"])
    return workload


def repeated(random: Random) -> dict[str, Any]:
    """A prompt of whole blocks comes again."""
    workload = shared(random)
    first = workload["requests"][0]
    first["prompt_token_ids"] = first["prompt_token_ids"][:4] * random.choice((1, 2, 3))
    workload["requests"][-1]["prompt_token_ids"] = list(first["prompt_token_ids"])
    return workload


def tight(random: Random) -> dict[str, Any]:
    """A pool that is too small for all who run."""
    workload = ordinary(
        random, spare_blocks=(1, 2, 3), output_len=(5, 10), shared=0.2, budget=(16, 24), arrival=(0, 0, 1)
    )
    workload["config"]["max_model_len"] += ROOM
    return workload


def chunked(random: Random) -> dict[str, Any]:
    return ordinary(random, budget=(5, 6, 7), shared=0.0)


def inner_blocks(random: Random) -> dict[str, Any]:
    """Two beginnings, and two texts that follow either of them."""
    workload = ordinary(random, shared=0.0, arrival=(1, 2), num_requests=(4, 6))
    firsts, seconds = ([[random.randint(10, 99) for _ in range(4)] for _ in range(2)] for _ in range(2))
    for request in workload["requests"]:
        rest = request["prompt_token_ids"][: random.choice((2, 3, 5))]
        request["prompt_token_ids"] = random.choice(firsts) + random.choice(seconds) + rest
    return workload


def sampled(random: Random) -> dict[str, Any]:
    workload = ordinary(random)
    for request in workload["requests"]:
        request["prompt_token_ids"] = [
            FIRST_TOKEN + token % (SMALL_VOCAB - 10) for token in request["prompt_token_ids"]
        ]
    return workload | {"sampling": {"temperature": 1.0, "top_p": random.choice((0.3, 0.4, 0.5))}}


def texts(random: Random) -> dict[str, Any]:
    """Outputs that are the bytes of a text."""
    tokenizer = ByteTokenizer()
    workload = ordinary(random, output_len=(40, 60), num_requests=(2, 3))
    for request in workload["requests"]:
        output = tokenizer.encode(" ".join(random.choice(WORDS) for _ in range(random.randint(2, 4))))
        request["output"], request["max_tokens"] = output, len(output)
        request["prompt_token_ids"] = tokenizer.encode("say it:"[: random.randint(4, 7)])
    return workload | {"scripted": True, "texts": True}


BUGS = [
    CaseBug(
        id="block_one_token_late",
        bug=Bug(
            "KVCacheManager.allocate_slots",
            "cdiv(num_tokens, self.block_size) - len(blocks)",
            "cdiv(num_tokens - 1, self.block_size) - len(blocks)",
        ),
        seen_in="MinivLLM 75, 85",
        rules=("S6",),
        causes=("KVCacheManager.allocate_slots",),
        make=ordinary,
        complaint="The first tokens are as they should be. Later the answers go another way, and never come back.",
    ),
    CaseBug(
        id="touch_without_unlink",
        bug=Bug("BlockPool.touch", "self.free_block_queue.remove(block)", "pass"),
        seen_in="MinivLLM 70, 84; mini-sglang 142",
        rules=("P5",),
        causes=("BlockPool.touch",),
        make=returning,
        complaint="It goes well for a while. Then the engine dies, or answers become rubbish, and only with prompts "
        "that many people send.",
    ),
    CaseBug(
        id="whole_prompt_cached",
        bug=Bug("KVCacheManager.get_computed_blocks", "(request.num_tokens - 1) //", "request.num_tokens //"),
        seen_in="nano-vllm 144, 199",
        rules=("F1", "S3"),
        causes=("KVCacheManager.get_computed_blocks",),
        make=repeated,
        wants="crash",
        complaint="The same prompt as yesterday, character for character, and the engine dies.",
    ),
    CaseBug(
        id="stale_hash",
        bug=Bug(
            "BlockPool.get_new_blocks",
            "[block.block_id for block in blocks if self._maybe_evict_cached_block(block)]",
            "[]",
        ),
        seen_in="nano-vllm 163, vLLM 4761",
        rules=("K2", "H1"),
        causes=("BlockPool.get_new_blocks", "BlockPool._maybe_evict_cached_block"),
        make=reused,
        complaint="Fine in the morning. After some hours answers are about something else, or the engine dies.",
    ),
    CaseBug(
        id="outputs_lost_by_preemption",
        bug=Bug(
            "Scheduler._preempt_request",
            "victim.num_computed_tokens = 0",
            "victim.num_computed_tokens = 0; "
            "del victim.output_token_ids[:], victim.all_token_ids[victim.num_prompt_tokens :]",
        ),
        seen_in="nano-vllm 217, vLLM 16832",
        rules=("F8",),
        causes=("Scheduler._preempt_request",),
        make=tight,
        complaint="Under load an answer stops in its middle, and never ends. On an idle machine it is whole.",
    ),
    CaseBug(
        id="resumed_table_appended",
        bug=Bug(
            "InputBatch._update_known",
            "state.block_ids = list(new_block_ids)",
            "state.block_ids = state.block_ids + list(new_block_ids)",
        ),
        seen_in="trap 34",
        rules=("S8",),
        causes=("InputBatch._update_known", "InputBatch.update_states"),
        make=tight,
        wants="wrong",
        complaint="Under load an answer goes on, but as if it had forgotten what it said.",
    ),
    CaseBug(
        id="length_is_the_chunk",
        bug=Bug("locate_tokens", "seq_lens = num_computed + num_scheduled", "seq_lens = num_scheduled"),
        seen_in="nano-vllm 212, 213",
        rules=("F2",),
        causes=("locate_tokens", "flatten"),
        make=chunked,
        complaint="The machine is busy, and answers do not come, or end after one token.",
    ),
    CaseBug(
        id="rows_in_scheduling_order",
        bug=Bug(
            "Scheduler.update_from_output",
            "row = result.req_id_to_index[request_id]",
            "row = list(plan.num_scheduled_tokens).index(request_id)",
        ),
        seen_in="trap 32",
        rules=("F4",),
        causes=("Scheduler.update_from_output",),
        make=ordinary,
        complaint="Somebody got parts of the answer to somebody else's question.",
    ),
    CaseBug(
        id="top_p_loses_a_token",
        bug=Bug(
            "apply_top_k_top_p",
            "ascending.softmax(dim=-1).cumsum(dim=-1) <=",
            "(ascending.softmax(dim=-1).cumsum(dim=-1) - ascending.softmax(dim=-1)) <=",
        ),
        seen_in="nano-vllm 196",
        rules=("F6",),
        causes=("apply_top_k_top_p",),
        make=sampled,
        complaint="With top_p the answers are duller than those of the other engine. Without it all is well.",
    ),
    CaseBug(
        id="half_characters",
        bug=Bug(
            "TextStream.step",
            "self._protected_step(token_id)",
            "self.tokenizer.decode([token_id], skip_special_tokens=self.skip_special_tokens)",
        ),
        seen_in="vLLM 984, vllm-mlx 109",
        rules=("F7",),
        causes=("TextStream.step",),
        make=texts,
        complaint="There are question marks in black diamonds where my emoji should be.",
    ),
    CaseBug(
        id="freed_although_shared",
        bug=Bug("BlockPool.free_blocks", "if block.ref_cnt == 0 and not block.is_null:", "if not block.is_null:"),
        seen_in="a spare",
        rules=("P5",),
        causes=("BlockPool.free_blocks",),
        make=shared,
        complaint="When one of two people with the same document is done, the other one gets rubbish, or nothing.",
    ),
    CaseBug(
        id="positions_restart",
        bug=Bug("locate_tokens", "positions = num_computed[req_indices] + query_pos", "positions = query_pos"),
        seen_in="nano-vllm 67",
        rules=("F3",),
        causes=("locate_tokens", "flatten"),
        make=chunked,
        complaint="Short prompts get one good token. Nothing after it makes sense.",
    ),
    CaseBug(
        id="no_chain_in_the_hash",
        bug=Bug("extend_block_hashes", "block_hashes[-1] if block_hashes else none_hash", "none_hash"),
        seen_in="a spare",
        rules=("F9", "K2"),
        causes=("extend_block_hashes",),
        make=inner_blocks,
        complaint="Two people ask about the same paragraph, each with a system prompt of their own. One gets the "
        "other's answer.",
    ),
    CaseBug(
        id="sample_of_a_chunk_kept",
        bug=Bug(
            "InputBatch.rows_with_incomplete_prompt",
            "{row for row, req_id in enumerate(self.req_ids) if seq_lens[row] < self.requests[req_id].num_tokens}",
            "set()",
        ),
        seen_in="a spare",
        rules=("F5",),
        causes=("InputBatch.rows_with_incomplete_prompt",),
        make=chunked,
        complaint="Long prompts are answered before they are read to the end.",
    ),
    CaseBug(
        id="victim_keeps_its_blocks",
        bug=Bug("Scheduler._preempt_request", "self.kv_cache_manager.free(victim)", "pass"),
        seen_in="a spare",
        rules=("R2", "S6"),
        causes=("Scheduler._preempt_request",),
        make=tight,
        complaint="Under load answers change that do not change on an idle machine, and some come late.",
    ),
]

BONUS = CaseBug(
    id="uncomputed_block_hit",
    bug=Bug(
        "KVCacheManager.forget_uncomputed_blocks",
        "return self.block_pool.forget_hashes(block for block in uncomputed if block.ref_cnt == 1)",
        "return []",
    ),
    seen_in="vLLM 0.22.0 itself, trap 62",
    rules=("K2",),
    causes=("KVCacheManager.forget_uncomputed_blocks", "Scheduler._forget_uncomputed_blocks"),
    make=None,
    complaint="With priorities, a long prompt and much load, an answer can be wrong from its first token on. The real "
    "vLLM 0.22.0 does the same.",
)
