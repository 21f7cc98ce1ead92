"""Calls of `LLM.generate` and `LLM.chat`, and what the real vLLM 0.22.0 answers: every field, or the error's type.

    .vllm-env/bin/python traces/vllm-0.22.0/record_calls.py traces/vllm-0.22.0/vllm-0.22.0-calls.json.gz

A call is a Python expression, evaluated by this script with vLLM's LLM and by the tests
(tests/proof/lockstep/test_recorded_calls.py) with ours. CALLS share engines, with an empty prefix cache before each.
TROUBLES get an engine and a process of their own, since they hang vLLM or end it.
"""

import contextlib
import gzip
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60  # an answer takes a second or two; after this long a call is said to hang

ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"scheduling_policy": "priority", "max_num_seqs": 1},
    "wide": {"max_logprobs": -1},
}
COMMON: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 512,
    "block_size": 16,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks_override": 256,
    "enforce_eager": True,
    "seed": 0,
}

FRANCE = "The capital of France is"
LONG = "The history of the steam engine is long. " * 6
ASK = [{"role": "user", "content": "Name three colors."}]
PART = [{"role": "user", "content": [{"type": "text", "text": "Name three"}, {"type": "text", "text": "colors."}]}]
HALF = [*ASK, {"role": "assistant", "content": "Red, green and"}]
SAYS_ROLES = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}{{ extra | default('none') }}"
NAMES = {
    "FRANCE": FRANCE, "LONG": LONG, "ASK": ASK, "PART": PART, "HALF": HALF, "SAYS_ROLES": SAYS_ROLES,
    "nan": math.nan, "inf": math.inf,
}  # fmt: skip

CALLS: dict[str, list[str]] = {
    # ------------------------------------------------------------------ prompts
    "prompts": [
        "generate(FRANCE, G(4))",
        "generate([FRANCE], G(4))",
        "generate([FRANCE, 'Once upon a time', '2+2='], G(4))",
        "generate([FRANCE, '2+2='], [G(3), G(6)])",
        "generate((FRANCE, '2+2='), G(3))",
        "generate([504, 3575, 282], G(4))",
        "generate([[504, 3575, 282], [1, 2, 3]], G(4))",
        "generate({'prompt': FRANCE}, G(4))",
        "generate({'prompt_token_ids': [504, 3575, 282]}, G(4))",
        "generate([{'prompt': FRANCE}, {'prompt_token_ids': [504, 3575]}, '2+2='], G(3))",
        "generate({'prompt': FRANCE, 'prompt_token_ids': [504, 3575]}, G(3))",
        "generate([], G(3))",
        "generate(' ', G(3))",
        "generate('\\n\\n', G(3))",
        "generate('Ünï 水 🦊 code', G(4))",
        "generate('<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n', G(6))",
        "generate(FRANCE)[0].prompt_token_ids",
        "generate([FRANCE] * 3, G(2))",
        "generate(LONG, G(2))",
        "generate('x ' * 500, G(2))",
    ],
    # ------------------------------------------------------------------ how it ends
    "ends": [
        "generate(FRANCE, G(1))",
        "generate(FRANCE, G(None, stop='\\n'))",
        "generate(FRANCE, G(12, stop='Paris'))",
        "generate(FRANCE, G(12, stop=['Paris']))",
        "generate(FRANCE, G(12, stop=['never this', 'Par', 'is']))",
        "generate(FRANCE, G(12, stop=['Paris', 'Par'], include_stop_str_in_output=True))",
        "generate(FRANCE, G(12, stop='aris.', include_stop_str_in_output=True))",
        "generate(FRANCE, G(12, stop='.', min_tokens=6))",
        "generate(FRANCE, G(12, stop=[]))",
        "generate(FRANCE, G(12, stop=None))",
        "generate(FRANCE, G(12, stop_token_ids=[7042]))",
        "generate(FRANCE, G(12, stop_token_ids=[7042], include_stop_str_in_output=True))",
        "generate(FRANCE, G(12, stop_token_ids=[7042], stop='Paris'))",
        "generate(FRANCE, G(12, stop_token_ids=[7042], stop='Paris', include_stop_str_in_output=True))",
        "generate(FRANCE, G(12, stop_token_ids=[7042], min_tokens=4))",
        "generate(FRANCE, G(12, stop_token_ids=[]))",
        "generate(FRANCE, G(12, stop_token_ids=[7042], detokenize=False))",
        "chat(ASK, G(40))",
        "chat(ASK, G(40, ignore_eos=True))",
        "chat(ASK, G(40, min_tokens=36))",
        "chat(ASK, G(40, ignore_eos=True, min_tokens=38))",
        "chat(ASK, G(40, stop_token_ids=[2]))",
        "chat(ASK, G(40, stop_token_ids=[2], ignore_eos=True))",
        "chat(ASK, G(40, include_stop_str_in_output=True))",
        "chat(ASK, G(40, skip_special_tokens=False))",
        "chat(ASK, G(40, skip_special_tokens=False, include_stop_str_in_output=True))",
        "chat(ASK, G(40, ignore_eos=True, skip_special_tokens=False))",
        "chat(ASK, G(40, ignore_eos=True, skip_special_tokens=False, spaces_between_special_tokens=False))",
        "generate('x ' * 505, G(100, ignore_eos=True))",
        "generate([7] * 511, G(9, ignore_eos=True))",
        "generate(FRANCE, G(3, min_tokens=3))",
    ],
    # ------------------------------------------------------------------ logprobs
    "logprobs": [
        "generate(FRANCE, G(3, logprobs=0))",
        "generate(FRANCE, G(3, logprobs=1))",
        "generate(FRANCE, G(3, logprobs=5))",
        "generate(FRANCE, G(3, logprobs=20))",
        "generate(FRANCE, G(2, prompt_logprobs=0))",
        "generate(FRANCE, G(2, prompt_logprobs=1))",
        "generate(FRANCE, G(2, prompt_logprobs=4, logprobs=2))",
        "generate([504], G(2, prompt_logprobs=2))",
        "generate('Ünï 水 🦊', G(2, prompt_logprobs=2))",
        "generate('🦊', G(3, logprobs=3))",
        "generate(FRANCE, G(3, logprobs=2, detokenize=False))",
        "generate(FRANCE, G(2, prompt_logprobs=1, detokenize=False))",
        "generate(FRANCE, G(8, logprobs=1, stop='Paris'))",
        "generate([FRANCE, '2+2='], [G(2, logprobs=1), G(2, logprobs=4)])",
        "generate([FRANCE, '2+2='], [G(2, logprobs=1), G(2)])",
        "generate([FRANCE, '2+2='], [G(2, prompt_logprobs=1), G(2)])",
        "generate(FRANCE, S(3, logprobs=2))",
        "generate(FRANCE, S(3, logprobs=2, top_k=2))",
        "generate(FRANCE, G(3, logprobs=2, repetition_penalty=1.5))",
        "generate(FRANCE, G(3, logprobs=2, logit_bias={504: 100.0}))",
        "generate(FRANCE, G(3, logprobs=2, allowed_token_ids=[504, 505]))",
        "(generate(LONG, G(1)), generate(LONG, G(1, prompt_logprobs=0)))[1]",
        "chat(ASK, G(2, logprobs=1, prompt_logprobs=0))",
    ],
    # ------------------------------------------------------------------ sampling
    "sampling": [
        "generate(FRANCE, S(6))",
        "generate(FRANCE, S(6, seed=0))",
        "generate(FRANCE, S(6, seed=123456789))",
        "generate(FRANCE, S(6, top_k=3))",
        "generate(FRANCE, S(6, top_k=1))",
        "generate(FRANCE, S(6, top_k=0))",
        "generate(FRANCE, S(6, top_k=-1))",
        "generate(FRANCE, S(6, top_p=0.5))",
        "generate(FRANCE, S(6, min_p=0.1))",
        "generate(FRANCE, S(6, top_k=20, top_p=0.9, min_p=0.02))",
        "generate(FRANCE, S(6, temperature=0.3))",
        "generate(FRANCE, S(6, temperature=2.0))",
        "generate(FRANCE, S(6, temperature=0.001))",
        "generate(FRANCE, P(temperature=1e-6, max_tokens=4, top_k=5))",
        "generate(FRANCE, S(4, n=3))",
        "generate(FRANCE, S(4, n=3, logprobs=1))",
        "generate([FRANCE, '2+2='], [S(3, n=2), S(3, seed=5)])",
        "generate(FRANCE, S(6, n=2, stop='.'))",
        "generate([FRANCE] * 4, [S(5, seed=s) for s in range(4)])",
        "generate([FRANCE, '2+2=', 'Once'], [S(4), S(4, top_k=2), S(4, top_p=0.3)])",
        "generate(FRANCE, S(6, presence_penalty=2.0))",
        "generate(FRANCE, S(6, frequency_penalty=-1.0, repetition_penalty=1.2))",
        "generate('a b a b a b', G(10, repetition_penalty=1.3))",
        "generate('a b a b a b', G(10, presence_penalty=1.0, frequency_penalty=0.5))",
        "generate('a b a b a b', G(6, frequency_penalty=2.0))",
        "generate(FRANCE, G(4, top_p=0.1, top_k=3, min_p=0.5))",
        "generate(FRANCE, G(4, seed=5))",
        "generate(FRANCE, P(temperature=0, max_tokens=4, seed=-1))",
    ],
    # ------------------------------------------------------------------ what may be said
    "masks": [
        "generate(FRANCE, G(6, logit_bias={7042: -100.0}))",
        "generate(FRANCE, G(6, logit_bias={504: 5.5, 505: -3.0}))",
        "generate(FRANCE, G(4, logit_bias={504: 100.0}))",
        "generate(FRANCE, G(4, logit_bias={}))",
        "generate(FRANCE, G(6, allowed_token_ids=[504, 505, 28, 30]))",
        "generate(FRANCE, S(6, allowed_token_ids=[504, 505, 28, 30]))",
        "generate(FRANCE, G(6, allowed_token_ids=[504]))",
        "generate(FRANCE, G(6, bad_words=['Paris']))",
        "generate(FRANCE, G(6, bad_words=['Paris', 'the']))",
        "generate(FRANCE, G(6, bad_words=['Paris.']))",
        "generate(FRANCE, G(6, bad_words=[' Paris']))",
        "generate(FRANCE, G(4, bad_words=[]))",
        "generate([FRANCE, '2+2='], [G(4, bad_words=['Paris']), G(4, allowed_token_ids=[28, 30])])",
        "chat(ASK, G(8, logit_bias={2: 100.0}))",
        "chat(ASK, G(8, logit_bias={2: 100.0}, min_tokens=3))",
        "generate(FRANCE, G(5, allowed_token_ids=[504, 2], min_tokens=3))",
    ],
    # ------------------------------------------------------------------ text
    "text": [
        "generate(FRANCE, G(6, detokenize=False))",
        "generate(FRANCE, S(4, n=2, detokenize=False))",
        "generate([1, 1, 2, 0, 504], G(4, skip_special_tokens=False))",
        "generate('水', G(6))",
        "generate('🦊 🦊 🦊', G(6))",
        "generate(FRANCE, G(6, spaces_between_special_tokens=False))",
        "generate(FRANCE, G(3, output_kind=FINAL_ONLY))",
    ],
    # ------------------------------------------------------------------ the prefix cache
    "cache": [
        "[generate(LONG, G(2)), generate(LONG, G(2))]",
        "[generate(LONG, G(2)), generate(LONG + 'James', G(2))]",
        "[generate({'prompt': LONG, 'cache_salt': 'a'}, G(1)), generate({'prompt': LONG, 'cache_salt': 'a'}, G(1))]",
        "[generate({'prompt': LONG, 'cache_salt': 'a'}, G(1)), generate({'prompt': LONG, 'cache_salt': 'b'}, G(1))]",
        "[generate({'prompt': LONG, 'cache_salt': 'a'}, G(1)), generate(LONG, G(1))]",
        "[generate(LONG, G(1)), generate({'prompt': LONG, 'cache_salt': ''}, G(1))]",
        "[generate(LONG, G(1)), generate(LONG, G(1, skip_reading_prefix_cache=True))]",
        "[generate(LONG, G(1, prompt_logprobs=0)), generate(LONG, G(1))]",
        "generate([LONG, LONG, LONG], G(1))",
        "generate(LONG, S(2, n=3))",
        "[generate([7] * 32, G(1)), generate([7] * 32, G(1)), generate([7] * 33, G(1))]",
    ],
    # ------------------------------------------------------------------ chat
    "chat": [
        "chat(ASK, G(4))",
        "chat([ASK, HALF], G(4))",
        "chat([{'role': 'system', 'content': 'Be short.'}, *ASK], G(6))",
        "chat(PART, G(4))",
        "chat([{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}], G(4))",
        "chat([{'role': 'user', 'content': None}], G(4))",
        "chat([{'role': 'user'}], G(4))",
        "chat([{'role': 'user', 'content': ''}], G(4))",
        "chat([{'role': 'nobody', 'content': 'Hi'}], G(4))",
        "chat([{'role': 'user', 'content': 'Hi', 'name': 'Ann'}], G(4))",
        "chat(ASK, G(4), add_generation_prompt=False)",
        "chat(HALF, G(4), add_generation_prompt=False, continue_final_message=True)",
        "chat(HALF, G(4), continue_final_message=True)",
        "chat(ASK, G(3), chat_template=SAYS_ROLES)",
        "chat(ASK, G(3), chat_template=SAYS_ROLES, chat_template_kwargs={'extra': 'more'})",
        "chat(ASK, G(3), chat_template_kwargs={'add_generation_prompt': False})",
        "chat(ASK, G(3), chat_template_kwargs={'unused': 1})",
        "chat(PART, G(3), chat_template=SAYS_ROLES)",
        "chat(ASK, G(3), chat_template='{{ no end')",
        "chat(ASK, G(3), chat_template='{{ raise_exception(\"no\") }}')",
        "chat([], G(3))",
        "chat('Hi', G(3))",
        "chat([ASK, HALF], [G(2), S(2)])",
        "chat(ASK)[0].prompt",
    ],
    # ------------------------------------------------------------------ truncation
    "truncation": [
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': 5})",
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': -1})",
        "generate('x ' * 600, G(2), tokenization_kwargs={'truncate_prompt_tokens': -1})",
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': 5, 'truncation_side': 'left'})",
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': 5, 'truncation_side': 'right'})",
        "generate(LONG, G(2), tokenization_kwargs={'truncation': True, 'max_length': 5})",
        "generate([5, 6, 7, 8, 9], G(2), tokenization_kwargs={'truncate_prompt_tokens': 3})",
        "generate(FRANCE, G(2), tokenization_kwargs={'add_special_tokens': False})",
        "generate(FRANCE, G(2), tokenization_kwargs={})",
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': 600})",
        "generate(LONG, G(2), tokenization_kwargs={'truncate_prompt_tokens': 0})",
        "chat(ASK, G(2), tokenization_kwargs={'truncate_prompt_tokens': 5})",
        "generate('x ' * 600, G(2))",
    ],
    # ------------------------------------------------------------------ wrong input
    "wrong": [
        "generate('', G(2))",
        "generate([[]], G(2))",
        "generate([7] * 512, G(2))",
        "generate([10**9], G(2))",
        "generate([49152], G(2))",
        "generate([-1], G(2))",
        "generate([[504], [10**9]], G(2))",
        "generate([504, 'a'], G(2))",
        "generate(None, G(2))",
        "generate(5, G(2))",
        "generate({'text': 'a'}, G(2))",
        "generate([FRANCE], [G(2), G(2)])",
        "generate([FRANCE, FRANCE], [G(2)])",
        "generate(FRANCE, 5)",
        "generate(FRANCE, P(max_tokens=0))",
        "generate(FRANCE, P(max_tokens=-1))",
        "generate(FRANCE, P(min_tokens=-1))",
        "generate(FRANCE, P(max_tokens=2, min_tokens=3))",
        "generate(FRANCE, P(temperature=-0.5))",
        "generate(FRANCE, P(top_p=0.0))",
        "generate(FRANCE, P(top_p=1.5))",
        "generate(FRANCE, P(top_p=nan))",
        "generate(FRANCE, P(top_k=-2))",
        "generate(FRANCE, P(min_p=1.5))",
        "generate(FRANCE, P(min_p=nan))",
        "generate(FRANCE, P(presence_penalty=3))",
        "generate(FRANCE, P(presence_penalty=nan))",
        "generate(FRANCE, P(frequency_penalty=nan))",
        "generate(FRANCE, P(repetition_penalty=0))",
        "generate(FRANCE, P(n=0))",
        "generate(FRANCE, P(n=2, temperature=0))",
        "generate(FRANCE, G(2, logprobs=21))",
        "generate(FRANCE, G(2, logprobs=-2))",
        "generate(FRANCE, G(2, prompt_logprobs=21))",
        "generate(FRANCE, G(2, stop=['']))",
        "generate(FRANCE, G(2, stop='x', detokenize=False))",
        "generate(FRANCE, G(2, allowed_token_ids=[]))",
        "generate(FRANCE, G(2, allowed_token_ids=[10**6]))",
        "generate(FRANCE, G(2, allowed_token_ids=[-1]))",
        "generate(FRANCE, G(2, logit_bias={10**6: 1.0}))",
        "generate(FRANCE, G(2, stop_token_ids=['a']))",
        "generate(FRANCE, G(2, bad_words=['']))",
        "generate(FRANCE, G(2, bad_words=[' ']))",
        "generate(FRANCE, G(2, nonsense=1))",
        "generate(FRANCE, G(2), nonsense=1)",
        '[raises("generate([[5, 6], [10**9]], G(2))"), generate(FRANCE, G(2))]',
    ],
    # ------------------------------------------------------------------ what vLLM lets pass
    "lets pass": [
        "generate(FRANCE, G(3, logprobs=True))",
        "generate(FRANCE, G(3, temperature=nan))",
        "generate(FRANCE, G(3, repetition_penalty=nan))",
        "generate(FRANCE, G(3, repetition_penalty=1e12))",
        "generate(FRANCE, G(3, repetition_penalty=1e-12))",
        "generate(FRANCE, G(3, logit_bias={504: inf}))",
        "generate(FRANCE, G(3, logit_bias={504: -inf}))",
        "generate(FRANCE, G(3, stop_token_ids=[10**6]))",
        "generate(FRANCE, G(3, stop_token_ids=[-1]))",
        "generate(FRANCE, G(3, stop=('Paris',)))",
        "generate(FRANCE, S(3, temperature=1e11))",
        "generate(FRANCE, G(2), priority=[5])",
        "generate(FRANCE, G(3, allowed_token_ids=[504], logit_bias={504: -inf}))",
        "generate(FRANCE, G(3, allowed_token_ids=[2], min_tokens=2))",
        "generate({'prompt': FRANCE, 'unknown': 1}, G(2))",
        "generate((504, 3575), G(2))",
        "generate(FRANCE, S(2, seed=2**63))",
        "generate(FRANCE, G(2, prompt_logprobs=True))",
    ],
    # ------------------------------------------------------------------ priority: one seat
    "priority": [
        "generate([FRANCE, '2+2=', 'Once'], G(2), priority=[2, 0, 1])",
        "generate([FRANCE, '2+2='], G(2), priority=[0, 0])",
        "generate([FRANCE, '2+2='], G(2), priority=[-5, 7])",
        "generate([LONG, LONG], G(2), priority=[1, 0])",
        "generate([FRANCE, '2+2='], G(2), priority=[1])",
        "generate(FRANCE, G(2), priority=1)",
        "chat(ASK, G(2))",
    ],
    # ------------------------------------------------------------------ any number of logprobs
    "wide": [
        "generate(FRANCE, G(1, logprobs=30))",
        "[len(place) for place in generate(FRANCE, G(2, logprobs=-1))[0].outputs[0].logprobs]",
        "[place and len(place) for place in generate(FRANCE, G(1, prompt_logprobs=-1))[0].prompt_logprobs]",
        "generate(FRANCE, G(1, logprobs=49153))",
    ],
}

# name: (settings beside COMMON, the call). Each in a process of its own, its core in another.
TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "detokenize=1": ({}, "generate(FRANCE, G(2, detokenize=1))"),
    "max_tokens=2.5": ({}, "generate(FRANCE, G(2.5))"),
    "stop_token_ids=[2.5]": ({}, "generate(FRANCE, G(2, stop_token_ids=[2.5]))"),
    "True among ids": ({}, "generate([504, True], G(2))"),
    "killed core": ({}, "with_killed_core(\"generate(FRANCE, G(400, ignore_eos=True))\")"),
    "min_tokens beyond the context": ({}, "generate(FRANCE, G(700, min_tokens=600))"),
    "a stop id outside, with min_tokens": ({}, "generate(FRANCE, G(2, stop_token_ids=[10**6], min_tokens=1))"),
    "a negative id": ({}, "generate([-1], G(2))"),
    "a negative id to bias": ({}, "generate(FRANCE, G(2, logit_bias={-1: 5.0}))"),
    "the null block": ({"num_gpu_blocks_override": 32}, "generate([7] * 500, G(2))"),
    "a seeded chunk": ({"max_num_batched_tokens": 32}, "generate(LONG, S(2))"),
    "interrupted": ({}, "[interrupted(\"generate([FRANCE] * 3, G(400, ignore_eos=True))\"), "
                        "len(generate(FRANCE, G(2)))]"),
    "a seed in company": ({}, "[[o.outputs[0].text for o in generate([FRANCE, 'Once'], [S(8), P(max_tokens=8)])][0]"
                              " == generate(FRANCE, S(8))[0].outputs[0].text for _ in range(3)]"),
    "logprobs of a cached prompt": ({}, "(generate(LONG, G(1)), [max(place) < 49152 for place in generate(LONG, G("
                                        "1, prompt_logprobs=0, skip_reading_prefix_cache=False))[0]"
                                        ".prompt_logprobs[1:]])[1]"),
}  # fmt: skip


def namespace(llm: Any, params_class: Any, final_only: Any, core_pid: Any) -> dict[str, Any]:
    """The names that a call may use. core_pid: a function of the LLM, to kill its core."""

    def greedy(max_tokens: int | None, **fields: Any) -> Any:
        return params_class(**{"temperature": 0, "max_tokens": max_tokens, **fields})

    def seeded(max_tokens: int, **fields: Any) -> Any:
        return params_class(**{"temperature": 0.9, "seed": 7, "max_tokens": max_tokens, **fields})

    def raises(call: str) -> list[str]:
        try:
            return evaluate(call)
        except Exception as error:
            return [kind for kind in kinds(error) if kind in ("TypeError", "ValueError")]

    def interrupted(call: str) -> list[str]:
        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        try:
            return evaluate(call)
        except KeyboardInterrupt:
            return ["KeyboardInterrupt"]

    def with_killed_core(call: str) -> Any:
        threading.Timer(2.0, os.kill, (core_pid(llm), signal.SIGKILL)).start()
        return evaluate(call)

    def evaluate(call: str) -> Any:
        return eval(call, names)

    names: dict[str, Any] = {
        **NAMES,
        "generate": lambda prompts, params=None, **more: llm.generate(prompts, params, use_tqdm=False, **more),
        "chat": lambda messages, params=None, **more: llm.chat(messages, params, use_tqdm=False, **more),
        "P": params_class,
        "G": greedy,
        "S": seeded,
        "FINAL_ONLY": final_only,
        "raises": raises,
        "interrupted": interrupted,
        "with_killed_core": with_killed_core,
    }
    return names


def answer_of(call: str, names: dict[str, Any]) -> dict[str, Any]:
    """What a call gives: {"answer": …}, or {"raises": the error's type and its bases, "message": …}."""
    try:
        return {"answer": describe(eval(call, names))}
    except Exception as error:
        return {"raises": kinds(error), "message": " ".join(str(error).split())[:200]}


def kinds(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__[:-2]]


def describe(value: Any) -> Any:
    """Outputs as JSON, every field of theirs; numbers with four decimals."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list | tuple):
        return [describe(item) for item in value]
    if isinstance(value, dict):
        return {str(key): describe(item) for key, item in value.items()}
    if type(value).__name__ == "Logprob":
        return [round(value.logprob, 4), value.rank, value.decoded_token]
    if type(value).__name__ in ("RequestOutput", "CompletionOutput"):
        names = getattr(value, "__dict__", None) or getattr(value, "__slots__", ())
        return {name: describe(getattr(value, name)) for name in names if name != "metrics"}
    return value


def settings(engine: str) -> dict[str, Any]:
    return COMMON | ENGINES[engine]


def engine_of(family: str) -> str:
    return family if family in ENGINES else "plain"


# ---------------------------------------------------------------------- with the real vLLM


def vllm_names(model: str, more: dict[str, Any], in_process: bool) -> tuple[Any, dict[str, Any]]:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if in_process else "1"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    llm = LLM(model, distributed_executor_backend=UniProcExecutor, **COMMON | more)

    def core_pid(llm: Any) -> int:
        return llm.llm_engine.engine_core.resources.engine_manager.processes[0].pid

    return llm, namespace(llm, SamplingParams, RequestOutputKind.FINAL_ONLY, core_pid)


def record_calls(model: str, engine: str, out: str) -> None:
    """Write a line for each call, as soon as it is answered."""
    llm, names = vllm_names(model, ENGINES[engine], in_process=True)
    with open(out, "a") as file:
        for family, calls in CALLS.items():
            for call in calls if engine_of(family) == engine else []:
                # an error within a step leaves the request where it is, and the engine is good for nothing any more
                if not llm.reset_prefix_cache():
                    llm, names = vllm_names(model, ENGINES[engine], in_process=True)
                file.write(json.dumps({"family": family, "call": call, **answer_of(call, names)}) + "\n")
                file.flush()


def record_trouble(model: str, name: str) -> dict[str, Any]:
    """Run this script again for one trouble, and watch how it goes."""
    more, call = TROUBLES[name]
    with tempfile.TemporaryDirectory() as folder:
        ready, out = Path(folder) / "ready", Path(folder) / "out.json"
        command = [sys.executable, __file__, "--trouble", name, model, str(ready), str(out)]
        child = subprocess.Popen(command, start_new_session=True)
        outcome: dict[str, Any] = {"hangs": f"no answer within {PATIENCE_SECONDS} s"}
        try:
            while not ready.exists() and child.poll() is None:
                threading.Event().wait(0.2)
            child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if out.exists():
                outcome = json.loads(out.read_text())
            elif child.poll() is not None:
                outcome = {"ends": child.returncode}
            with contextlib.suppress(ProcessLookupError):  # vLLM's core may outlive its caller
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    print(name, outcome, file=sys.stderr, flush=True)
    return {"name": name, "settings": more, "call": call, **outcome}


def run_trouble(name: str, model: str, ready: str, out: str) -> None:
    more, call = TROUBLES[name]
    _, names = vllm_names(model, more, in_process=False)
    Path(ready).touch()
    Path(out).write_text(json.dumps(answer_of(call, names)))
    os._exit(0)


def main() -> None:
    if sys.argv[1] == "--trouble":
        return run_trouble(*sys.argv[2:])
    from minivllm.models.default_model import default_model_path

    model = str(default_model_path())
    if sys.argv[1] == "--engine":
        return record_calls(model, *sys.argv[2:])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "calls.jsonl")
        for engine in ENGINES:  # in a process each, since vLLM keeps what it once allocated
            subprocess.run([sys.executable, __file__, "--engine", engine, str(out)], check=True)
        recorded_calls = [json.loads(line) for line in out.read_text().splitlines()]
    order = [call for calls in CALLS.values() for call in calls]
    calls = sorted(recorded_calls, key=lambda recorded: order.index(recorded["call"]))
    troubles = [record_trouble(model, name) for name in TROUBLES]
    recorded = {"source": "vLLM 0.22.0 for CPU, float32, the default model", "calls": calls, "troubles": troubles}
    data = json.dumps(recorded, ensure_ascii=False, separators=(",", ":")).encode()
    Path(sys.argv[1]).write_bytes(gzip.compress(data, 9, mtime=0))
    return None


if __name__ == "__main__":
    main()
