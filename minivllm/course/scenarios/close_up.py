"""Scenarios with more detail: layers, values, programs of kernels."""

from minivllm.config import TraceWatch
from minivllm.course.scenarios.cast import A, B, C, H
from minivllm.course.scenarios.scenario import CROWD, Ask, Scenario, one

TRITON = {"attention_backend": "triton"}  # in Triton's interpreter

SCENARIOS = [
    Scenario(
        "hesitation", "Request A until it wavers between two tokens, with values.", one(A, max_tokens=7), detail=2
    ),
    Scenario(
        "hot",
        "Its first token at temperature 2, with values.",
        one(A, temperature=2.0, seed=0, max_tokens=1),
        detail=2,
    ),
    Scenario("one-detail1", "Request A with every layer.", one(A, max_tokens=2), detail=1),
    Scenario("one-detail2", "Request A with values.", one(A, max_tokens=2), detail=2),
    Scenario(
        "chunk-16-values",
        "Request A in chunks of 16 tokens, with values: what would have been drawn in the middle of the prompt.",
        one(A, max_tokens=1),
        {"max_num_batched_tokens": 16},
        detail=2,
    ),
    Scenario(
        "values-france",
        "K and V of layer 0 for one word in two places, positions 28 and 44.",
        one(A, max_tokens=5),
        detail=2,
        watch=TraceWatch(steps=(1, 5), positions=(28, 44)),
    ),
    Scenario(
        "values-rome",
        "Step 13 of request A: what KV head 0 of layer 16 reads, and the attention that all heads pay to position 0.",
        one(A, max_tokens=13),
        detail=2,
        watch=TraceWatch(steps=(13,), layers=(16,), positions=(52,), kv_heads=(0,), weights_on=(0, 51)),
    ),
    Scenario(
        "values-prompt",
        "The prompt of request A: query, K and V of layer 16.",
        one(A, max_tokens=1),
        detail=2,
        watch=TraceWatch(steps=(1,), layers=(16,), positions=tuple(range(41)), tensors=("query", "key", "value")),
    ),
    Scenario(
        "values-early",
        "Step 6 of request A: what the head would say after earlier layers.",
        one(A, max_tokens=6),
        detail=2,
        watch=TraceWatch(steps=(6,), layers=(), early_layers=(9, 19, 24, 27, 28, 29)),
    ),
    Scenario(
        "bfloat16",
        "Request A in bfloat16 until it hesitates, with values.",
        one(A, max_tokens=7),
        {"dtype": "bfloat16"},
        detail=2,
        watch=TraceWatch(steps=(7,), layers=()),
        once=True,
    ),
    Scenario(
        "bfloat16-64",
        "The same among 64 copies: the values depend on the company.",
        (tuple(Ask(A, {"max_tokens": 7}) for _ in range(64)),),
        {"dtype": "bfloat16", **CROWD},
        detail=2,
        watch=TraceWatch(steps=(7,), layers=()),
        once=True,
    ),
    *(
        Scenario(
            f"kernels-{name}",
            f"{shows}, by the Triton kernels: what each program did in layer 16.",
            calls,
            {**TRITON, **settings},
            detail=2,
            watch=TraceWatch(steps=steps, layers=(16,)),
        )
        for name, shows, calls, settings, steps in (
            ("one", "Step 9 of request A", one(A, max_tokens=9), {}, (9,)),
            (
                "one-block-32",
                "Step 9 of request A with blocks of 32 tokens",
                one(A, max_tokens=9),
                {"block_size": 32, "num_gpu_blocks_override": 16},
                (9,),
            ),
            (
                "together",
                "Steps 1 and 9 of three requests",
                (tuple(Ask(m, {"max_tokens": 9}) for m in (A, B, C)),),
                {},
                (1, 9),
            ),
            (
                "mixed",
                "Step 9 of three requests, in which a fourth arrives",
                ((*(Ask(m, {"max_tokens": 9}) for m in (A, B, C)), Ask(H, {"max_tokens": 1}, before_step=9)),),
                {},
                (9,),
            ),
        )
    ),
]
