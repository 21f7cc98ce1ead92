"""Scenarios about tokens and text: what is drawn, what is reported, what ends an answer."""

from minivllm.config import TraceWatch
from minivllm.course.scenarios.cast import A, C, D, E
from minivllm.course.scenarios.scenario import Ask, Scenario, in_words, one, step_7

CANDIDATES_ALONE = TraceWatch(steps=())

SCENARIOS = [
    Scenario(
        "stop-string",
        "A stop string ends the request from the caller's side; the core is told.",
        one(A, stop=["Paris"]),
    ),
    Scenario("stop-token", "A stop token ends it in the core.", one(A, stop_token_ids=[7042])),
    Scenario("stop-over-border", "A stop string over the border of two tokens.", one(A, stop=["is Pa"])),
    Scenario("stop-min-tokens", "min_tokens guards a stop string.", one(A, stop=["Paris"], min_tokens=6)),
    Scenario(
        "stop-order-short", "Two stop strings fit: the first of the list is the reason.", one(A, stop=["Par", "Paris"])
    ),
    Scenario("stop-order-long", "The same two in the other order.", one(A, stop=["Paris", "Par"])),
    Scenario(
        "stop-included", "The stop string stays in the text.", one(A, stop=["Paris"], include_stop_str_in_output=True)
    ),
    Scenario(
        "stop-and-length",
        "Stop string and max_tokens in the same step: the caller overrules the core.",
        one(A, stop=["Paris"], max_tokens=6),
    ),
    Scenario(
        "ignore-eos",
        "The end token does not end it: the model opens a new turn.",
        one(A, ignore_eos=True, max_tokens=20),
    ),
    Scenario("max-tokens-14", "The same text as alone, for another reason.", one(A, max_tokens=14)),
    Scenario("smiley", "One character in three tokens.", one(E, max_tokens=7)),
    Scenario("default-length-C", "The default max_tokens cuts another answer off.", one(C, max_tokens=16)),
    Scenario("max-tokens-1", "A request that ends with its first token.", one(A, max_tokens=1)),
    Scenario("default-length", "The default max_tokens cuts an answer off.", one(D, max_tokens=16)),
    Scenario("min-tokens", "min_tokens keeps an answer from ending.", one(A, min_tokens=16)),
    Scenario(
        "prompt-logprobs",
        "Prompt logprobs: a cached prompt is computed again, from its first token.",
        ((Ask(A),), (Ask(A, {"prompt_logprobs": 1, "max_tokens": 1}),)),
    ),
    Scenario(
        "seeds",
        "Three draws side by side, two of them with the same seed.",
        (tuple(Ask(A, {"temperature": 1.0, "seed": seed}) for seed in (1, 1, 2)),),
    ),
    Scenario("seed-alone", "The draw with that seed, alone.", one(A, temperature=1.0, seed=1)),
    Scenario(
        "seed-0-company",
        "Three draws side by side with seeds 0, 1 and 2.",
        (tuple(Ask(A, {"temperature": 1.0, "seed": seed}) for seed in range(3)),),
    ),
    Scenario("seed-0", "The first of these draws, alone.", one(A, temperature=1.0, seed=0)),
    Scenario(
        "rambling",
        "Six draws at temperature 1.5.",
        (tuple(Ask(A, {"temperature": 1.5, "seed": seed}) for seed in range(6)),),
    ),
    Scenario(
        "sampler",
        "Step 7 of request A, where it hesitates, with values. Its first six tokens are given.",
        step_7(),
        detail=2,
        watch=CANDIDATES_ALONE,
    ),
    *(
        Scenario(
            f"sampler-{name}",
            f"The same with {in_words(params)}.",
            step_7(**params),
            detail=2,
            watch=CANDIDATES_ALONE,
        )
        for name, params in {
            "temperature-0.5": {"temperature": 0.5, "seed": 0},
            "temperature-2": {"temperature": 2.0, "seed": 0},
            "top-k-2": {"temperature": 1.0, "top_k": 2, "seed": 0},
            "top-p-0.5": {"temperature": 1.0, "top_p": 0.5, "seed": 0},
            "top-p-0.55": {"temperature": 1.0, "top_p": 0.55, "seed": 0},
            "min-p-0.1": {"temperature": 1.0, "min_p": 0.1, "seed": 0},
            "repetition-1.3": {"repetition_penalty": 1.3, "logprobs": 1},
        }.items()
    ),
    Scenario(
        "sampler-mixed",
        "The same twice in one batch: one row greedy, one drawn with a seed.",
        ((*step_7()[0], *step_7(temperature=1.0, seed=2)[0]),),
        detail=2,
        watch=CANDIDATES_ALONE,
    ),
    *(
        Scenario(
            f"sampler-{name}",
            f"The whole of request A with {in_words(params)}, with values.",
            one(A, **params),
            detail=2,
            watch=CANDIDATES_ALONE,
        )
        for name, params in {
            "presence-1": {"presence_penalty": 1.0},
            "repetition-1.1": {"repetition_penalty": 1.1},
            "repetition-1.3-whole": {"repetition_penalty": 1.3},
            "bad-words": {"bad_words": ["Rome"]},
            "logit-bias": {"logit_bias": {7042: -100.0}},
            "min-tokens-16": {"min_tokens": 16},
        }.items()
    ),
    Scenario("n2", "Two answers to one prompt: two requests that share blocks.", one(A, n=2, temperature=1.0, seed=0)),
]
