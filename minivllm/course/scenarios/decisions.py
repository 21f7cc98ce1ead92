"""Scenarios about what is decided: who runs in which step, on which blocks."""

from minivllm.course.scenarios.cast import A, B, C, D, F, G, H, L, R, V
from minivllm.course.scenarios.scenario import NO_CACHE, TIGHT, Ask, Scenario, in_turn, one, together

POISON = {
    "scheduling_policy": "priority",
    "long_prefill_token_threshold": 32,
    "max_num_batched_tokens": 256,
    "max_model_len": 176,
    "num_gpu_blocks_override": 13,
}
LATE = ((Ask(A), Ask(C, before_step=5)),)
POISON_CALLS = ((Ask(V, priority=3), Ask(R, priority=0, before_step=4)),)
QUEUE = {**NO_CACHE, "num_gpu_blocks_override": 8, "max_model_len": 112}

SCENARIOS = [
    Scenario("hello", "The default prompt: 37 tokens in three blocks, eight steps.", one(H)),
    Scenario("hello-again", "The default prompt asked twice: what the second finds.", in_turn(H, H)),
    Scenario("one", "The running example, request A alone: a block border crossed while decoding.", one(A)),
    Scenario("again", "Five requests in turn: what each finds in the prefix cache.", in_turn(A, A, B, C, F)),
    Scenario("twins", "Two equal requests in one step share blocks that are not filled yet.", together(A, A)),
    Scenario("order", "Two requests of different length: they end apart and return in order.", together(A, H)),
    Scenario("together", "Three requests in one flat batch; the budget is used to its last token.", together(A, B, C)),
    Scenario(
        "together-nc", "The same without the prefix cache: the third waits for budget.", together(A, B, C), NO_CACHE
    ),
    Scenario(
        "together-nc128",
        "The same with twice the budget: all three at once.",
        together(A, B, C),
        {**NO_CACHE, "max_num_batched_tokens": 128},
    ),
    Scenario(
        "together-nc-nochunk",
        "The same without chunked prefill: a prompt that does not fit waits.",
        together(A, B, C),
        {**NO_CACHE, "enable_chunked_prefill": False, "max_model_len": 64},
    ),
    *(
        Scenario(
            f"chunk-{n}",
            f"Request A in chunks of at most {n} tokens.",
            one(A),
            {"max_num_batched_tokens": n, "max_num_seqs": min(8, n)},
        )
        for n in (1, 8, 16, 40, 41)
    ),
    Scenario("late", "A newcomer's prompt and a decode in one flat batch.", LATE),
    Scenario("late-nc", "The same without the prefix cache.", LATE, NO_CACHE),
    Scenario("late16-nc", "The same with 16 tokens a step.", LATE, {**NO_CACHE, "max_num_batched_tokens": 16}),
    Scenario("seats1", "One seat: the second request waits beside an empty pool.", together(A, B), {"max_num_seqs": 1}),
    Scenario(
        "queue-LC",
        "Head of line: a long request that does not fit stops a short one that would.",
        ((Ask(A), Ask(L, {"max_tokens": 4}, before_step=2), Ask(C, {"max_tokens": 4}, before_step=2)),),
        QUEUE,
    ),
    Scenario(
        "queue-CL",
        "The same two the other way round.",
        ((Ask(A), Ask(C, {"max_tokens": 4}, before_step=2), Ask(L, {"max_tokens": 4}, before_step=2)),),
        QUEUE,
    ),
    *(
        Scenario(
            f"pool-{n}",
            f"Preemption and recompute: three requests on {n - 1} usable blocks.",
            together(A, B, C),
            {**TIGHT, "num_gpu_blocks_override": n},
        )
        for n in (7, 8, 9, 10)
    ),
    *(
        Scenario(
            f"pool-{n}-nc",
            f"The same on {n - 1} usable blocks, without the prefix cache.",
            together(A, B, C),
            {**TIGHT, **NO_CACHE, "num_gpu_blocks_override": n},
        )
        for n in (8, 12)
    ),
    Scenario(
        "evict",
        "What was cached is overwritten by others, the end of it first.",
        ((Ask(A),), (Ask(C),), (Ask(D, {"max_tokens": 60}),), (Ask(A),)),
        {**TIGHT, "num_gpu_blocks_override": 8},
    ),
    Scenario("full", "A prompt that is cached to its last token: its last block is computed again.", in_turn(G, G)),
    *(
        Scenario(
            f"block-{n}",
            f"Request A twice with blocks of {n} tokens.",
            in_turn(A, A),
            {"block_size": n, "num_gpu_blocks_override": 512 // n},
        )
        for n in (1, 2, 4, 8, 32, 64)
    ),
    Scenario("again-nc", "The five requests in turn without the prefix cache.", in_turn(A, A, B, C, F), NO_CACHE),
    Scenario(
        "salt",
        "Three times request A; the second has a cache salt of its own, and finds nothing.",
        ((Ask(A),), (Ask(A, cache_salt="mine"),), (Ask(A),)),
    ),
    Scenario(
        "threshold-10",
        "Request A, at most 10 tokens of a request in a step.",
        one(A),
        {"long_prefill_token_threshold": 10},
    ),
    Scenario(
        "threshold-32",
        "Two requests, at most 32 tokens of each in a step.",
        together(A, V),
        {"long_prefill_token_threshold": 32},
    ),
    Scenario(
        "max-len-48",
        "max_model_len ends a request: the last allowed token is never fed.",
        one(A),
        {"max_model_len": 48},
    ),
    Scenario("poison", "Trap 62: a victim's blocks that were never filled, with our rule.", POISON_CALLS, POISON),
    Scenario(
        "poison-as-vllm",
        "The same without our rule, as vLLM 0.22.0 does it: a hit on blocks that hold nothing, and a wrong answer.",
        POISON_CALLS,
        {**POISON, "parts": {"scheduler": "minivllm.proof.lockstep.scheduler:PoisonedScheduler"}},
    ),
    *(
        Scenario(
            f"poison-pool-{n}",
            f"The same requests with {n - 1} usable blocks, as a control.",
            POISON_CALLS,
            {**POISON, "num_gpu_blocks_override": n},
        )
        for n in (14, 64)
    ),
    Scenario(
        "poison-fcfs",
        "The same requests, first come first served: the victim is the newcomer itself, and nothing is poisoned.",
        ((Ask(V), Ask(R, before_step=4)),),
        {**POISON, "scheduling_policy": "fcfs"},
    ),
    Scenario("abort", "A caller gives a request up; another takes its row.", ((Ask(A, abort_before_step=6), Ask(B)),)),
    Scenario(
        "priority",
        "Three requests on two seats, the most important last to arrive.",
        ((Ask(A, priority=2), Ask(B, priority=1, before_step=2), Ask(C, priority=0, before_step=3)),),
        {"scheduling_policy": "priority", "max_num_seqs": 2},
    ),
]
