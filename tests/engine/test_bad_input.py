"""What a caller may get wrong in a call: a clear error, nothing allocated, and everything else goes on.

An error names the value, the limit, and what to do; `words` are what of that the message must hold.
"""

import math
from typing import Any

import numpy as np
import pytest
from engine.helpers import greedy, is_idle, run
from tiny_models import EOS_TOKEN_ID, VOCAB_SIZE

from minivllm import LLM, SamplingParams
from minivllm.errors import InputError, UnknownNameError

GOOD = [5, 6, 7]
HALF_A_PAIR = "\ud800"

PROMPTS = {
    "empty text": ("", ["empty", "at least one"]),
    "no ids": ([[]], ["empty", "at least one"]),
    "empty in a list": ([GOOD, []], ["empty"]),
    "beyond the vocabulary": ([3, VOCAB_SIZE], [f"{VOCAB_SIZE} at place 1", "outside", f"0 to {VOCAB_SIZE - 1}"]),
    "far beyond": ([10**30], [str(10**30), f"{VOCAB_SIZE - 1}"]),
    "negative": ([-5], ["-5 at place 0", f"0 to {VOCAB_SIZE - 1}"]),
    "floats": ([1.0, 2.0], ["1.0 at place 0", "integer"]),
    "booleans": ([True], ["True", "integer"]),
    "a text among ids": ([1, "a"], ["'a' at place 1", "integer"]),
    "none among ids": ([None], ["None", "integer"]),
    "too long": ([4] * 96, ["96 tokens", "max_model_len=96", "at most 95", "Shorten"]),
    "much too long": ("word " * 5000, ["max_model_len=96", "Shorten"]),
    "nothing": (None, ["None", "Give a text"]),
    "a number": (5, ["5", "Give a text"]),
    "bytes": (b"abc", ["b'abc'", "Give a text"]),
    "bytes in a list": ([b"abc"], ["b'abc'", "Give a text"]),
    "a set": ({1, 2}, ["{1, 2}", "Give a text"]),
    "no prompt in a dict": ({"text": "a"}, ["'text'", "prompt or prompt_token_ids"]),
    "an unknown key": ({"prompt": "a", "salt": "b"}, ["'salt'", "cache_salt"]),
    "half a character": (HALF_A_PAIR, ["UTF-8"]),
    "a salt that is no text": ({"prompt": "a", "cache_salt": 5}, ["cache_salt=5", "string"]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_bad_prompt(llm: LLM, name: str) -> None:
    prompt, words = PROMPTS[name]
    check_refused(llm, words, lambda: run(llm, prompt, max_tokens=2))


PARAMS = {
    "max_tokens 0": ({"max_tokens": 0}, ["max_tokens=0", "at least 1"]),
    "max_tokens -1": ({"max_tokens": -1}, ["max_tokens=-1", "at least 1", "None"]),
    "max_tokens 1.5": ({"max_tokens": 1.5}, ["max_tokens=1.5", "integer"]),
    "max_tokens True": ({"max_tokens": True}, ["max_tokens=True", "integer"]),
    "max_tokens beyond all": ({"max_tokens": 10**30}, [str(10**30), str(2**63 - 1)]),
    "min_tokens above": ({"max_tokens": 3, "min_tokens": 4}, ["min_tokens=4", "max_tokens=3", "Lower"]),
    "min_tokens negative": ({"min_tokens": -1}, ["min_tokens=-1", "at least 0"]),
    "top_p 0": ({"top_p": 0}, ["top_p=0", "above 0", "at most 1", "off"]),
    "top_p 1.1": ({"top_p": 1.1}, ["top_p=1.1", "at most 1"]),
    "top_k -2": ({"top_k": -2}, ["top_k=-2", "at least -1"]),
    "top_k 1.5": ({"top_k": 1.5}, ["top_k=1.5", "integer"]),
    "min_p 1.1": ({"min_p": 1.1}, ["min_p=1.1", "at most 1"]),
    "negative temperature": ({"temperature": -0.1}, ["temperature=-0.1", "at least 0", "greedy"]),
    "infinite temperature": ({"temperature": math.inf}, ["temperature=inf", "at most"]),
    "a word for a temperature": ({"temperature": "hot"}, ["temperature='hot'", "number"]),
    "presence 2.1": ({"presence_penalty": 2.1}, ["presence_penalty=2.1", "at most 2"]),
    "frequency -3": ({"frequency_penalty": -3}, ["frequency_penalty=-3", "at least -2"]),
    "repetition 0": ({"repetition_penalty": 0}, ["repetition_penalty=0", "at least"]),
    "repetition 1e11": ({"repetition_penalty": 1e11}, ["repetition_penalty", "at most"]),
    "greedy n": ({"temperature": 0, "n": 2}, ["n=2", "temperature=0", "n=1"]),
    "n 0": ({"n": 0}, ["n=0", "at least 1"]),
    "n beyond all": ({"n": 10**6}, ["n=1000000", "at most 16384"]),
    "seed": ({"seed": 2**63}, [str(2**63), str(2**63 - 1)]),
    "seed of the last answer": ({"seed": 2**63 - 1, "n": 2}, [str(2**63 - 1), str(2**63 - 2)]),
    "stop without text": ({"stop": "x", "detokenize": False}, ["'x'", "detokenize=False", "stop_token_ids"]),
    "empty stop": ({"stop": ["a", ""]}, ["['a', '']", "not empty"]),
    "stop is a number": ({"stop": 5}, ["stop=5", "string"]),
    "half a character to stop": ({"stop": HALF_A_PAIR}, ["stop=", "string"]),
    "stop id": ({"stop_token_ids": [-1]}, ["stop_token_ids holds -1", "from 0"]),
    "stop ids": ({"stop_token_ids": 5}, ["stop_token_ids=5", "list"]),
    "logprobs -2": ({"logprobs": -2}, ["logprobs=-2", "at least -1"]),
    "prompt_logprobs -2": ({"prompt_logprobs": -2}, ["prompt_logprobs=-2", "at least -1"]),
    "bias for a word": ({"logit_bias": {"a": 1}}, ["logit_bias holds 'a'", "token id"]),
    "infinite bias": ({"logit_bias": {5: math.inf}}, ["logit_bias[5]=inf", "-inf"]),
    "no number for a bias": ({"logit_bias": {5: True}}, ["logit_bias[5]=True", "number"]),
    "bias is a list": ({"logit_bias": [5]}, ["logit_bias=[5]", "dict"]),
    "nothing allowed": ({"allowed_token_ids": []}, ["allowed_token_ids=[]", "Leave it out"]),
    "allowed is a number": ({"allowed_token_ids": 5}, ["allowed_token_ids=5", "list"]),
    "a blank bad word": ({"bad_words": [" "]}, ["bad_words=[' ']", "blanks"]),
    "bad words are one word": ({"bad_words": "word"}, ["bad_words='word'", "list"]),
    "a switch": ({"detokenize": 1}, ["detokenize=1", "True or False"]),
    "another switch": ({"ignore_eos": "no"}, ["ignore_eos='no'", "True or False"]),
} | {
    f"NaN {field}": ({field: math.nan}, [f"{field}=nan", "must be"])
    for field in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
}


@pytest.mark.parametrize("name", PARAMS)
def test_bad_parameter(llm: LLM, name: str) -> None:
    """Refused when the parameters are made, and when a field of good ones is changed later."""
    fields, words = PARAMS[name]
    with pytest.raises(InputError) as caught:
        SamplingParams(**fields)
    check_words(caught, words)
    check_refused(llm, words, lambda: llm.generate(GOOD, changed(**fields), use_tqdm=False))


def changed(**fields: Any) -> SamplingParams:
    params = SamplingParams()
    for name, value in fields.items():
        setattr(params, name, value)
    return params


ONLY_THE_ENGINE_KNOWS = {
    "min_tokens beyond the context": ({"min_tokens": 94, "max_tokens": None}, ["min_tokens=94", "93", "96", "Lower"]),
    "logprobs": ({"logprobs": 21}, ["logprobs=21", "max_logprobs=20", "larger"]),
    "all logprobs": ({"logprobs": -1}, ["logprobs=-1", "max_logprobs=20"]),
    "prompt_logprobs": ({"prompt_logprobs": 21}, ["prompt_logprobs=21", "max_logprobs=20"]),
    "bias": ({"logit_bias": {VOCAB_SIZE: 1}}, [f"logit_bias holds {VOCAB_SIZE}", f"{VOCAB_SIZE - 1}"]),
    "allowed": ({"allowed_token_ids": [1, 999]}, ["allowed_token_ids holds 999", f"{VOCAB_SIZE - 1}"]),
    "prompt logprobs from the cache": (
        {"prompt_logprobs": 0, "skip_reading_prefix_cache": False},
        ["prompt_logprobs=0", "skip_reading_prefix_cache=False", "Leave"],
    ),
    "all allowed are biased away": (
        {"allowed_token_ids": [70, 71, 70], "logit_bias": {70: -math.inf, 71: -math.inf, 72: 1.0}},
        ["No token can be chosen", "logit_bias", "all of allowed_token_ids"],
    ),
    "all allowed are bad words": (
        {"allowed_token_ids": [67, 68], "bad_words": ["a"], "logit_bias": {68: -math.inf}},
        ["No token can be chosen", "bad_words", "all of allowed_token_ids"],
    ),
    "only stop tokens are allowed": (
        {"allowed_token_ids": [EOS_TOKEN_ID, 70], "stop_token_ids": [70], "min_tokens": 1},
        ["No token can be chosen", "min_tokens", "all of allowed_token_ids"],
    ),
    "everything is biased away": (
        {"logit_bias": dict.fromkeys(range(VOCAB_SIZE), -math.inf)},
        ["No token can be chosen", "forbid all."],
    ),
    "stop id": ({"stop_token_ids": [VOCAB_SIZE]}, [f"stop_token_ids holds {VOCAB_SIZE}", f"{VOCAB_SIZE - 1}"]),
}


@pytest.mark.parametrize("name", ONLY_THE_ENGINE_KNOWS)
def test_parameter_that_this_engine_cannot_do(llm: LLM, name: str) -> None:
    fields, words = ONLY_THE_ENGINE_KNOWS[name]
    check_refused(llm, words, lambda: llm.generate(GOOD, SamplingParams(**fields), use_tqdm=False))


CALLS = {
    "params are a number": ({"sampling_params": 5}, ["sampling_params=5", "SamplingParams"]),
    "params are a dict": ({"sampling_params": {"n": 1}}, ["sampling_params=", "SamplingParams"]),
    "a number among params": ({"sampling_params": [None]}, ["sampling_params=None", "SamplingParams"]),
    "too few params": ({"sampling_params": []}, ["0 elements for 1"]),
    "too many params": ({"sampling_params": [SamplingParams()] * 2}, ["2 elements for 1", "one for each"]),
    "priority under fcfs": ({"priority": 1}, ["priority=1", "fcfs", "scheduling_policy='priority'"]),
    "priority is no integer": ({"priority": 1.5}, ["priority=1.5", "int"]),
    "priority is a switch": ({"priority": True}, ["priority=True", "integer"]),
    "priority beyond all": ({"priority": 2**63}, [str(2**63), str(2**63 - 1)]),
    "too many priorities": ({"priority": [0, 0]}, ["2 elements for 1"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_call(llm: LLM, name: str) -> None:
    arguments, words = CALLS[name]
    check_refused(llm, words, lambda: llm.generate([GOOD], use_tqdm=False, **arguments))


CHATS = {
    "a text": ("hello", ["'hello'", "list of messages"]),
    "a number": ([5], ["5", "role and content"]),
    "no role": ([{"content": "a"}], ["role and content"]),
    "an empty conversation": ([[]], ["empty", "at least one"]),
    "half a character": ([{"role": "user", "content": HALF_A_PAIR}], ["UTF-8"]),
    "too long": ([{"role": "user", "content": "word " * 500}], ["max_model_len=96"]),
}


@pytest.mark.parametrize("name", CHATS)
def test_bad_chat(llm: LLM, name: str) -> None:
    messages, words = CHATS[name]
    check_refused(llm, words, lambda: llm.chat(messages, SamplingParams(max_tokens=2), use_tqdm=False))


def test_what_a_chat_template_says_no_to(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ raise_exception('roles must alternate') }}")
    check_refused(llm, ["template", "roles must alternate"], lambda: llm.chat([{"role": "user", "content": "a"}]))
    monkeypatch.setattr(llm.tokenizer, "chat_template", None)
    check_refused(llm, ["no chat template", "generate()"], lambda: llm.chat([{"role": "user", "content": "a"}]))


@pytest.mark.parametrize(
    ("name", "near"), [("max_token", "max_tokens"), ("temprature", "temperature"), ("xyzzy", "temperature")]
)
def test_unknown_parameter(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=f"{name}.*{near}"):
        SamplingParams(**{name: 1})
    with pytest.raises(TypeError):  # what Python's callers expect of a wrong keyword
        SamplingParams(**{name: 1})


def check_refused(llm: LLM, words: list[str], call: Any) -> None:
    """An InputError with these words; nothing is open, every block is free, and the next call is as ever."""
    with pytest.raises(InputError) as caught:
        call()
    check_words(caught, words)
    assert is_idle(llm)
    (output,) = run(llm, GOOD, temperature=0, max_tokens=3)
    assert output.outputs[0].token_ids == greedy(llm, [GOOD], 3)[0]


def check_words(caught: Any, words: list[str]) -> None:
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
    assert "Traceback" not in str(caught.value)


# ---------------------------------------------------------------------- the others go on


def test_open_requests_go_on(llm: LLM) -> None:
    """A request that is refused in the middle of another's life leaves no mark on it."""
    engine = llm.llm_engine
    good = engine.input_processor.render_cmpl(GOOD)
    engine.add_request("good", good, SamplingParams(temperature=0, max_tokens=12))
    with pytest.raises(InputError, match="min_tokens"):
        engine.add_request("bad", good, SamplingParams(temperature=0, max_tokens=None, min_tokens=94))
    finished = []
    while engine.has_unfinished_requests():
        finished += [output for output in engine.step() if output.finished]
    assert [output.request_id for output in finished] == ["good"]
    assert finished[0].outputs[0].token_ids == greedy(llm, [GOOD], 12)[0]


def test_an_error_in_a_list_gives_up_what_the_call_had_added(llm: LLM) -> None:
    seen: list[str] = []
    with pytest.raises(InputError, match="empty"):
        run(llm, [[9] * 40, [8] * 40, [], [7] * 40], max_tokens=50, on_output=lambda output: seen.append(output))
    assert is_idle(llm)
    outputs = run(llm, [GOOD, [9, 9]], temperature=0, max_tokens=3, on_output=lambda output: seen.append(output))
    ids = [output.request_id for output in outputs]
    assert len(ids) == 2 and {output.request_id for output in seen} == set(ids)


def test_no_prompts_no_answers(llm: LLM) -> None:
    assert llm.generate([]) == []
    assert llm.generate([], SamplingParams()) == []
    assert llm.generate([], []) == []
    assert llm.chat([]) == []
    assert llm.generate(np.array([], dtype=np.int64)) == []


# ---------------------------------------------------------------------- what looks odd, and is right


@pytest.mark.parametrize(
    "prompt",
    [
        np.array(GOOD),
        np.array(GOOD, dtype=np.int32),
        [np.int64(token) for token in GOOD],
        tuple(GOOD),
        [tuple(GOOD)],
        np.array([GOOD]),
        {"prompt_token_ids": GOOD},
        [{"prompt_token_ids": np.array(GOOD)}],
        {"prompt_token_ids": tuple(GOOD)},
    ],
    ids=[
        "array",
        "int32",
        "numpy ints",
        "tuple",
        "tuple in a list",
        "two-dimensional",
        "dict",
        "array in a dict",
        "tuple in a dict",
    ],
)
def test_one_prompt_in_many_forms(llm: LLM, prompt: Any) -> None:
    (output,) = run(llm, prompt, temperature=0, max_tokens=3)
    assert output.prompt_token_ids == GOOD
    assert output.outputs[0].token_ids == greedy(llm, [GOOD], 3)[0]


def test_numbers_of_numpy_are_numbers(llm: LLM) -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),
        top_p=np.float64(0.75),
        top_k=np.int64(4),
        seed=np.int32(3),
        max_tokens=np.int64(4),
        stop_token_ids=np.array([7, 8]),
        allowed_token_ids=(np.int64(20), 21, 22),
        logit_bias={np.int64(20): np.float64(1.5)},
        ignore_eos=np.bool_(True),
    )
    plain = SamplingParams(
        temperature=0.5,
        top_p=0.75,
        top_k=4,
        seed=3,
        max_tokens=4,
        stop_token_ids=[7, 8],
        allowed_token_ids=[20, 21, 22],
        logit_bias={20: 1.5},
        ignore_eos=True,
    )
    assert params == plain
    first, second = (llm.generate(GOOD, given, use_tqdm=False)[0].outputs[0].token_ids for given in (params, plain))
    assert first == second and set(first) <= {20, 21, 22}


def test_the_caller_s_parameters_are_not_changed(llm: LLM) -> None:
    """But for output_kind, which vLLM sets too."""
    params = SamplingParams(stop=["x"], stop_token_ids=[9], logit_bias={4: 1.0}, bad_words=["dog"], max_tokens=3)
    before = params.clone()
    llm.generate([GOOD, GOOD], params, use_tqdm=False)
    before.output_kind = params.output_kind
    assert params == before


def test_a_call_from_within_a_call_is_refused(llm: LLM) -> None:
    with pytest.raises(InputError, match="in the middle of another"):
        run(llm, [GOOD, GOOD], max_tokens=4, on_output=lambda _: run(llm, GOOD, max_tokens=1))
    assert is_idle(llm)


@pytest.mark.parametrize("request_id", [12345, None, b"r", HALF_A_PAIR])
def test_an_id_that_is_no_text_is_refused(llm: LLM, request_id: Any) -> None:
    """Before it is sent: the core could not decode it."""
    engine = llm.llm_engine
    prompt = engine.input_processor.render_cmpl(GOOD)
    check_refused(llm, ["request_id=", "string"], lambda: engine.add_request(request_id, prompt, SamplingParams()))


def test_masks_that_leave_a_token_run(llm: LLM) -> None:
    """Beside those that leave none, which are refused: one allowed token is left, at once or after min_tokens."""
    for fields, wanted in (
        ({"allowed_token_ids": [70, 71], "logit_bias": {70: -math.inf}, "bad_words": ["a"]}, [71, 71]),
        ({"allowed_token_ids": [EOS_TOKEN_ID]}, [EOS_TOKEN_ID]),
        ({"allowed_token_ids": [EOS_TOKEN_ID, 70], "min_tokens": 1, "logit_bias": {70: -90.0}}, [70, EOS_TOKEN_ID]),
    ):
        assert greedy(llm, [GOOD], 2, **fields) == [wanted]


def test_a_bad_word_that_forbids_the_last_token_that_is_left(llm: LLM) -> None:
    """What nobody can know before: token 0 comes, as in vLLM 0.22.0, and the request goes on."""
    (d,) = set(llm.tokenizer.encode("dd"))
    assert greedy(llm, [GOOD], 4, allowed_token_ids=[d], bad_words=["dd"]) == [[d, 0, d, 0]]
