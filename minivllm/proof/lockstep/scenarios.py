"""Random scenarios for the whole engine: prompts of many kinds, and the parameters and settings that go with them.

Owns: the families of scenarios. The same random numbers give the same scenario.
Interface: FAMILIES, generate_scenarios.
Must not know: engines.

Token ids and texts are made for the default model, whose vocabulary has 49,152 tokens.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from minivllm.proof.lockstep.recording import Recording, Workload, numbers

Request = dict[str, Any]
MadeOf = tuple[dict[str, Any], list[Request]]  # engine arguments, requests

ENGINE_ARGS = {
    "dtype": "float32",
    "max_model_len": 512,
    "enforce_eager": True,
    "block_size": 16,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks_override": 256,
    "enable_prefix_caching": True,
    "seed": 0,
}

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Die Grüße aus Köln: 3 × 4 = 12 €",
    "日本語の文章を書いてください。",
    "Emoji: 👩‍🚀🚀 🇨🇭 👍🏽 end",
    "Привет, мир! Как дела?",
    "שלום عالم नमस्ते สวัสดี",
    "e\u0301 combining, \u200b zero width, \t tab",
    "Count: one, two, three, four, five,",
    "def fibonacci(n):\n    if n < 2:\n",
    "1, 1, 2, 3, 5, 8, 13,",
)
QUESTIONS = ("Name three colors.", "What is 2+2?", "Write one sentence about the sea.", "Who wrote Hamlet?", "Say hi.")
STORY = "The history of the steam engine is long. " * 4


def generate_scenarios(seed: int, count: int, families: list[str] | None = None) -> Recording:
    """`count` scenarios of each family (None: of all), from a seed."""
    scenarios = []
    for name in families or list(FAMILIES):
        for number in numbers(seed, count):
            scenarios.append(make_scenario(Random(f"{name}-{number}"), name, number))
    return Recording("engine", f"minivllm lockstep --generate {seed}", scenarios)


def make_scenario(random: Random, family: str, number: int = 0) -> Workload:
    engine_args, requests = FAMILIES[family](random)
    return {"name": f"{family}-{number}", "engine_args": ENGINE_ARGS | engine_args, "requests": requests}


# ---------------------------------------------------------------------- prompts


def _text(text: str, **sampling: Any) -> Request:
    """A prompt as text. Its token ids are filled in when it is recorded."""
    return {"prompt": text, "prompt_token_ids": None, "sampling": sampling}


def _chat(question: str, **sampling: Any) -> Request:
    return _text(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", **sampling)


def _ids(random: Random, length: int, **sampling: Any) -> Request:
    """A prompt of random token ids: nonsense, but of an exact length."""
    token_ids = [random.randint(10, 40000) for _ in range(length)]
    return {"prompt": None, "prompt_token_ids": token_ids, "sampling": sampling}


# ---------------------------------------------------------------------- families


def _unicode(random: Random) -> MadeOf:
    texts = random.sample(TEXTS, 4)
    cut = [_text(text[: random.randint(1, len(text))], max_tokens=random.randint(1, 14)) for text in texts]
    # single bytes of the vocabulary, no whole characters; at the end a whole one (docs/differences.md says why)
    odd_bytes = [*(random.randint(100, 280) for _ in range(6)), 260]
    cut.append({"prompt": None, "prompt_token_ids": odd_bytes, "sampling": {"max_tokens": 10, "logprobs": 2}})
    return {}, cut


def _half_characters(random: Random) -> MadeOf:
    """Tokens that are single bytes, made likely: characters come in parts, or never complete."""
    bias = {str(token): 30.0 for token in random.sample(range(120, 270), 8)}
    sampling = {"max_tokens": 12, "logit_bias": bias, "frequency_penalty": 2.0}
    requests = [_text(random.choice(TEXTS), logprobs=random.choice((1, 4)), **sampling) for _ in range(3)]
    return {}, requests


def _special_tokens(random: Random) -> MadeOf:
    """In the prompt, in the output, side by side, shown and hidden."""
    bias = {str(token): 22.0 for token in random.sample(range(17), 3)}
    biased = {"max_tokens": 14, "ignore_eos": True, "logit_bias": bias, "frequency_penalty": random.choice((0.0, 2.0))}
    shown = {"skip_special_tokens": False}
    return {}, [
        _chat(random.choice(QUESTIONS), max_tokens=24),
        _chat(random.choice(QUESTIONS), max_tokens=40, **shown),
        _chat(random.choice(QUESTIONS), max_tokens=40, ignore_eos=True, **shown),
        _text(random.choice(TEXTS), **biased),
        _text(random.choice(TEXTS), **biased, **shown),
        _text(random.choice(TEXTS), **biased, **shown, spaces_between_special_tokens=False),
        _text("<|im_start|><|im_end|><|endoftext|>a<|im_start|>", max_tokens=6, **shown),
    ]


def _stop_strings(random: Random) -> MadeOf:
    stops = (["six, seven"], ["x, s", "nine"], ["\n\n", "."], ["th"], ["ei", "eig", "ght"], [" "], ["ten", "eleven"])
    return {}, [
        _text(
            random.choice(("Count: one, two, three, four, five,", "Once upon a time", STORY)),
            max_tokens=random.randint(8, 40),
            stop=random.choice(stops),
            include_stop_str_in_output=random.random() < 0.4,
            min_tokens=random.choice((0, 0, 2, 6)),
        )
        for _ in range(5)
    ]


def _stop_tokens(random: Random) -> MadeOf:
    common = [28, 30, 198, 253, 284, 260, 314, 216]  # comma, stop, newline, frequent words
    return {}, [
        _text(
            random.choice((*TEXTS, STORY)),
            max_tokens=random.randint(4, 30),
            stop_token_ids=random.sample(common, random.randint(1, 4)),
            min_tokens=random.randint(0, 4),
            include_stop_str_in_output=random.random() < 0.5,
            ignore_eos=random.random() < 0.3,
        )
        for _ in range(5)
    ]


def _penalties(random: Random) -> MadeOf:
    requests = []
    for _ in range(4):
        sampling = {"max_tokens": random.randint(4, 18)}
        for name, values in (
            ("repetition_penalty", (0.8, 1.1, 1.5)),
            ("presence_penalty", (-1.0, 0.7, 2.0)),
            ("frequency_penalty", (-0.3, 0.4, 1.5)),
        ):
            if random.random() < 0.6:
                sampling[name] = random.choice(values)
        requests.append(_text(random.choice(("a b a b a b", "one two one two", *TEXTS)), **sampling))
    return {}, requests


def _masks(random: Random) -> MadeOf:
    """Logit bias, allowed tokens and bad words, side by side and together."""
    allowed = sorted(random.sample(range(200, 3000), 40))
    return {}, [
        _text(random.choice(TEXTS), max_tokens=8, allowed_token_ids=allowed),
        _text(random.choice(TEXTS), max_tokens=8, allowed_token_ids=allowed, repetition_penalty=1.8, min_tokens=3),
        _text("one two one two", max_tokens=8, bad_words=random.sample(["one", "two", " three", "on", "two one"], 3)),
        _text(STORY, max_tokens=10, bad_words=["The", "steam engine", "of the"]),
        _text(random.choice(TEXTS), max_tokens=8, logit_bias={str(t): random.uniform(-9, 9) for t in allowed[:20]}),
        _chat(random.choice(QUESTIONS), max_tokens=16, min_tokens=random.randint(1, 16)),
    ]


def _logprobs(random: Random) -> MadeOf:
    return {}, [
        _text(random.choice(TEXTS), max_tokens=6, logprobs=random.choice((0, 1, 5))),
        _text(random.choice(TEXTS), max_tokens=5),
        _text(random.choice(TEXTS), max_tokens=5, logprobs=3, repetition_penalty=1.4, logit_bias={"260": 4.0}),
        _text(random.choice(TEXTS), max_tokens=4, prompt_logprobs=random.choice((0, 1, 3)), logprobs=2),
    ]


def _prompt_logprobs(random: Random) -> MadeOf:
    """Over several chunks, beside others, and after a prompt that the cache knows."""
    requests = [
        _text(STORY + random.choice(TEXTS), max_tokens=3, prompt_logprobs=random.choice((0, 2))),
        _text(STORY + random.choice(TEXTS), max_tokens=6),
        _ids(random, random.choice((16, 17, 31, 1)), max_tokens=2, prompt_logprobs=1),
    ]
    again = _text(STORY, max_tokens=3, prompt_logprobs=1) | {"call": 1}
    return {"max_num_batched_tokens": random.choice((16, 24, 64))}, [*requests, again]


def _block_edges(random: Random) -> MadeOf:
    block_size = random.choice((16, 32, 64))  # vLLM's attention on a CPU takes no others
    edges = [block_size * random.randint(1, 64 // block_size) + d for d in (-1, 0, 1, 0)]
    args = {"block_size": block_size, "num_gpu_blocks_override": 2048 // block_size}
    return args, [_ids(random, edge, max_tokens=random.randint(1, 18)) for edge in edges]


def _context_edges(random: Random) -> MadeOf:
    longest = random.choice((32, 48, 65))
    lengths = (longest - 1, longest - 2, longest // 2, 1)
    return {"max_model_len": longest}, [
        _ids(random, length, max_tokens=random.choice((None, 1000, 2)), ignore_eos=random.random() < 0.5)
        for length in lengths
    ]


def _thresholds(random: Random) -> MadeOf:
    args = {
        "long_prefill_token_threshold": random.choice((5, 16, 20)),
        "max_num_batched_tokens": random.choice((33, 64)),
    }
    return args, [_ids(random, random.randint(1, 90), max_tokens=random.randint(2, 8)) for _ in range(5)]


def _seats(random: Random) -> MadeOf:
    """18 requests on 5 seats."""
    requests = [_ids(random, random.randint(1, 40), max_tokens=random.randint(1, 12)) for _ in range(18)]
    return {"max_num_seqs": 5, "max_num_batched_tokens": random.choice((16, 40))}, requests


def _priorities(random: Random) -> MadeOf:
    requests = [
        _ids(random, random.randint(4, 60), max_tokens=random.randint(4, 30), ignore_eos=True)
        | {"priority": random.randint(-1, 3)}
        for _ in range(7)
    ]
    return {
        "scheduling_policy": "priority",
        "max_model_len": 128,
        "num_gpu_blocks_override": 9 + random.randint(1, 6),
        "max_num_seqs": random.choice((3, 6)),
    }, requests


def _preemption(random: Random) -> MadeOf:
    args = {"max_model_len": 128, "num_gpu_blocks_override": 9 + random.randint(1, 5)}
    args["max_num_batched_tokens"] = random.choice((24, 64, 256))
    return args, [
        _ids(random, random.randint(20, 60), max_tokens=random.randint(15, 50), ignore_eos=True) for _ in range(4)
    ]


def _prefixes(random: Random) -> MadeOf:
    """Equal beginnings, in one step, later, and in a second call."""
    ends = random.sample(("James Watt", "In 1712", "The piston", "", "James Watt"), 4)
    first = [_text(STORY + end, max_tokens=random.randint(1, 6)) for end in ends]
    second = [_text(STORY + end, max_tokens=random.randint(1, 6)) | {"call": 1} for end in ends[:2]]
    return {"max_num_batched_tokens": random.choice((40, 512))}, first + second


def _plain(random: Random) -> MadeOf:
    """No prefix cache, no chunked prefill, or neither."""
    args = random.choice(
        (
            {"enable_prefix_caching": False},
            {"enable_chunked_prefill": False},
            {"enable_prefix_caching": False, "enable_chunked_prefill": False},
        )
    )
    args = args | {"max_model_len": 128, "max_num_batched_tokens": 128}
    requests = [_ids(random, random.randint(1, 100), max_tokens=random.randint(1, 8)) for _ in range(5)]
    return args, [*requests, requests[0] | {"call": 1}]


def _seeded(random: Random) -> MadeOf:
    """Random sampling with a seed: the draws are the generator's, so they can be compared token by token."""
    requests = []
    for _ in range(4):
        sampling = {"temperature": random.choice((0.5, 0.9, 1.4)), "seed": random.randint(0, 999), "max_tokens": 12}
        for name, values in (("top_k", (3, 40)), ("top_p", (0.5, 0.95)), ("min_p", (0.05, 0.3))):
            if random.random() < 0.5:
                sampling[name] = random.choice(values)
        requests.append(_text(random.choice(TEXTS), **sampling))
    requests.append(_text(random.choice(TEXTS), temperature=0.8, seed=random.randint(0, 999), n=3, max_tokens=8))
    return {}, requests


def _mixed(random: Random) -> MadeOf:
    """Requests of many families at once, with few tokens a step, few seats and few blocks."""
    makers = (_unicode, _special_tokens, _stop_strings, _stop_tokens, _penalties, _masks, _logprobs, _prompt_logprobs)
    requests = [random.choice(make(random)[1]) | {"call": 0} for make in random.choices(makers, k=9)]
    requests.append(_text(random.choice(TEXTS), max_tokens=None, ignore_eos=True, detokenize=False))
    return {
        "max_model_len": 128,
        "num_gpu_blocks_override": 9 + random.randint(4, 16),
        "max_num_batched_tokens": random.choice((16, 24, 40, 64)),
        "max_num_seqs": random.choice((3, 5, 8)),
    }, requests


FAMILIES: dict[str, Callable[[Random], MadeOf]] = {
    "unicode": _unicode,
    "half-characters": _half_characters,
    "special-tokens": _special_tokens,
    "stop-strings": _stop_strings,
    "stop-tokens": _stop_tokens,
    "penalties": _penalties,
    "masks": _masks,
    "logprobs": _logprobs,
    "prompt-logprobs": _prompt_logprobs,
    "block-edges": _block_edges,
    "context-edges": _context_edges,
    "thresholds": _thresholds,
    "seats": _seats,
    "priorities": _priorities,
    "preemption": _preemption,
    "prefixes": _prefixes,
    "plain": _plain,
    "seeded": _seeded,
    "mixed": _mixed,
}
