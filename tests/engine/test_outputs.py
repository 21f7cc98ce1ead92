"""What the caller gets: texts, tokens, reasons, logprobs, metrics, in the right order and at the right time."""

import inspect
import io
import math
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
import torch
from engine.helpers import SETTINGS, greedy, is_idle, run
from tiny_models import EOS_TOKEN_ID, VOCAB_SIZE, write_tiny_model
from tqdm import tqdm

from minivllm import LLM, RequestOutput, SamplingParams
from minivllm.engine.messages import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreRequest
from minivllm.engine.output_processor import OutputProcessor
from minivllm.errors import InputError

PROMPT = [5, 6, 7]


@pytest.fixture(scope="session")
def talk(local_llm: LLM) -> dict[str, Any]:
    """Parameters that give a readable text with little repetition, the same in every call."""
    texts = {token: local_llm.tokenizer.decode([token]) for token in range(3, VOCAB_SIZE)}
    readable = [token for token, text in texts.items() if text.isascii() and text.strip().isalnum()]
    return {"allowed_token_ids": readable, "temperature": 5.0, "seed": 1, "max_tokens": 20}


@pytest.fixture(scope="session")
def transformers_model(tiny_folder: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)


# ---------------------------------------------------------------------- order and streaming


def test_answers_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [[9] * 60, [8], [7] * 30, [6, 6], [5] * 3, [4] * 9, [9, 8, 7]]
    params = [SamplingParams(temperature=0, max_tokens=1 + 5 * (index % 3)) for index in range(7)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.prompt_token_ids for output in outputs] == prompts
    ids = [int(output.request_id) for output in outputs]
    assert ids == list(range(ids[0], ids[0] + 7))
    for prompt, given, output in zip(prompts, params, outputs, strict=True):
        (completion,) = output.outputs
        assert output.finished and output.prompt is None and output.prompt_logprobs is None
        assert completion.finished() and completion.index == 0 and completion.finish_reason == "length"
        assert completion.logprobs is None and completion.cumulative_logprob is None
        assert completion.token_ids == greedy(llm, [prompt], given.max_tokens)[0]


# Of vLLM 0.22.0, in their order. RequestMetrics has two more of ours, which are named in docs/differences.md.
REQUEST_OUTPUT = [
    "request_id",
    "prompt",
    "prompt_token_ids",
    "prompt_logprobs",
    "outputs",
    "finished",
    "metrics",
    "lora_request",
    "encoder_prompt",
    "encoder_prompt_token_ids",
    "num_cached_tokens",
    "kv_transfer_params",
]
COMPLETION = [
    "index",
    "text",
    "token_ids",
    "cumulative_logprob",
    "logprobs",
    "routed_experts",
    "finish_reason",
    "stop_reason",
    "lora_request",
]
METRICS = [
    "num_generation_tokens",
    "arrival_time",
    "queued_ts",
    "scheduled_ts",
    "first_token_ts",
    "last_token_ts",
    "first_token_latency",
    "is_corrupted",
]


def test_the_fields_are_vllm_s(llm: LLM) -> None:
    (output,) = run(llm, PROMPT, max_tokens=1)
    assert [field.name for field in fields(output)] == REQUEST_OUTPUT
    assert [field.name for field in fields(output.outputs[0])] == COMPLETION
    metrics = [field.name for field in fields(output.metrics)]
    assert set(metrics) - set(METRICS) == {"num_preemptions", "finished_time"} and set(METRICS) <= set(metrics)
    for name in ("lora_request", "encoder_prompt", "encoder_prompt_token_ids", "kv_transfer_params"):
        assert getattr(output, name) is None
    assert output.outputs[0].routed_experts is None is output.outputs[0].lora_request
    assert output.metrics.is_corrupted is False


def test_text_prompts_are_tokenized(llm: LLM) -> None:
    by_text, by_ids = run(llm, ["The quick fox", llm.tokenizer.encode("The quick fox")], temperature=0, max_tokens=5)
    assert by_text.prompt == "The quick fox" and by_ids.prompt is None
    assert by_text.prompt_token_ids == by_ids.prompt_token_ids
    assert by_text.outputs == by_ids.outputs
    mixed = run(llm, [{"prompt": "The quick fox"}, {"prompt": "x", "prompt_token_ids": PROMPT}], temperature=0)
    assert mixed[0].prompt_token_ids == by_text.prompt_token_ids
    assert (mixed[1].prompt, mixed[1].prompt_token_ids) == ("x", PROMPT)


def test_streaming(llm: LLM, talk: dict[str, Any]) -> None:
    """Partial outputs only grow, each is new, and the last is the answer."""
    seen: dict[str, list[RequestOutput]] = {}
    given = talk | {"max_tokens": 12, "logprobs": 1}
    outputs = run(
        llm, [PROMPT, [9] * 50], on_output=lambda output: seen.setdefault(output.request_id, []).append(output), **given
    )
    for output in outputs:
        parts = seen[output.request_id]
        assert len(parts) == 12 and parts[-1] == output
        assert [part.finished for part in parts] == [False] * 11 + [True]
        for before, after in pairwise(parts):
            (old,), (new,) = before.outputs, after.outputs
            assert new.text.startswith(old.text) and new.token_ids[:-1] == old.token_ids
            assert new.logprobs[:-1] == old.logprobs
            assert old.finish_reason is None and old.stop_reason is None
    again = run(llm, [PROMPT, [9] * 50], **given)
    said = [[(c.token_ids, c.text) for output in answer for c in output.outputs] for answer in (outputs, again)]
    assert said[0] == said[1]


def test_streaming_holds_back_what_may_become_a_stop_string(llm: LLM, talk: dict[str, Any]) -> None:
    (whole,) = run(llm, PROMPT, **talk)[0].outputs
    parts: list[str] = []
    stop = whole.text[-3:] + "never"
    run(llm, PROMPT, on_output=lambda output: parts.append(output.outputs[0].text), stop=stop, **talk)
    assert parts[-1] == whole.text, "what was held back comes in the end"
    for count, part in enumerate(parts[:-1], start=1):
        so_far = llm.tokenizer.decode(whole.token_ids[:count])
        assert part == so_far[: max(len(so_far) - len(stop) + 1, 0)]


def test_n_answers(llm: LLM) -> None:
    """In their order, each with the tokens of its own seed; they share the prompt's blocks."""
    seen: list[RequestOutput] = []
    (output,) = run(llm, [9] * 20, n=4, seed=30, max_tokens=6, on_output=seen.append)
    assert [completion.index for completion in output.outputs] == [0, 1, 2, 3]
    for index, completion in enumerate(output.outputs):
        alone = run(llm, [9] * 20, seed=30 + index, max_tokens=6)[0].outputs[0]
        assert completion.token_ids == alone.token_ids and completion.text == alone.text
    assert len({tuple(completion.token_ids) for completion in output.outputs}) > 1
    assert [part.finished for part in seen].count(True) == 1 and seen[-1] == output
    for part in seen:
        indices = [completion.index for completion in part.outputs]
        assert indices == sorted(indices)
    outputs = run(llm, [PROMPT, [8], [9]], n=3, max_tokens=4)
    assert [len(output.outputs) for output in outputs] == [3, 3, 3]
    assert [output.prompt_token_ids for output in outputs] == [PROMPT, [8], [9]]


# ---------------------------------------------------------------------- the end of a request


def test_stop_strings_across_token_borders(llm: LLM, talk: dict[str, Any]) -> None:
    """Every piece of the text, as a stop string: the text ends before it, the tokens with the one that completes it."""
    (whole,) = run(llm, PROMPT, **talk)[0].outputs
    assert len(whole.text) > 20
    pieces = [whole.text[start : start + length] for start in range(0, len(whole.text) - 4, 3) for length in (1, 2, 5)]
    asked = [
        SamplingParams(stop=piece, include_stop_str_in_output=shown, **talk)
        for piece in pieces
        for shown in (False, True)
    ]
    outputs = llm.generate([PROMPT] * len(asked), asked, use_tqdm=False)
    for params, output in zip(asked, outputs, strict=True):
        (piece,) = params.stop
        (completion,) = output.outputs
        start = whole.text.index(piece)
        shown = params.include_stop_str_in_output
        assert completion.text == whole.text[: start + len(piece) if shown else start]
        assert (completion.finish_reason, completion.stop_reason) == ("stop", piece)
        assert completion.token_ids == whole.token_ids[: len(completion.token_ids)]
        assert piece in llm.tokenizer.decode(completion.token_ids)
        assert piece not in llm.tokenizer.decode(completion.token_ids[:-1])
    assert is_idle(llm)


def test_the_core_is_told_of_a_stop_string(llm: LLM, talk: dict[str, Any]) -> None:
    """Only the caller's side sees text: without a word the core would go on up to max_tokens."""
    text = run(llm, PROMPT, **talk)[0].outputs[0].text
    given = talk | {"max_tokens": 93, "ignore_eos": True}
    assert run(llm, PROMPT, stop=text[2], **given)[0].outputs[0].finish_reason == "stop"
    assert is_idle(llm)


def test_the_first_of_several_stop_strings_wins(llm: LLM, talk: dict[str, Any]) -> None:
    """The first in the text; of two that are complete with the same token, the first in the list."""
    (whole,) = run(llm, PROMPT, **talk)[0].outputs
    late, early = whole.text[14:18], whole.text[5:9]
    (completion,) = run(llm, PROMPT, stop=["never", late, early], **talk)[0].outputs
    assert completion.stop_reason == early and completion.text == whole.text[:5]
    for stop in ([early, early[1:]], [early[1:], early]):
        (completion,) = run(llm, PROMPT, stop=stop, **talk)[0].outputs
        assert completion.stop_reason == stop[0]


def test_a_stop_string_that_never_comes_and_is_longer_than_the_text(llm: LLM) -> None:
    (completion,) = run(llm, PROMPT, temperature=0, max_tokens=6, stop="x" * 100_000)[0].outputs
    assert completion.finish_reason == "length" and completion.stop_reason is None
    assert completion.token_ids == greedy(llm, PROMPT, 6)[0] and completion.text


def test_stop_tokens(llm: LLM, talk: dict[str, Any]) -> None:
    tokens = run(llm, PROMPT, **talk)[0].outputs[0].token_ids
    place = next(place for place in range(2, 20) if tokens[place] not in tokens[:place])
    for shown in (False, True):
        given = talk | {"stop_token_ids": [tokens[place]], "include_stop_str_in_output": shown}
        (completion,) = run(llm, PROMPT, **given)[0].outputs
        assert completion.token_ids == tokens[: place + 1]
        assert (completion.finish_reason, completion.stop_reason) == ("stop", tokens[place])
        assert completion.text == llm.tokenizer.decode(tokens[: place + 1] if shown else tokens[:place])


ALWAYS_EOS = {"temperature": 0, "logit_bias": {EOS_TOKEN_ID: 100.0}}


def test_end_of_text(llm: LLM) -> None:
    (completion,) = run(llm, PROMPT, max_tokens=5, **ALWAYS_EOS)[0].outputs
    assert (completion.token_ids, completion.text) == ([EOS_TOKEN_ID], "")
    assert (completion.finish_reason, completion.stop_reason) == ("stop", None)


@pytest.mark.parametrize("minimum", [1, 3])
def test_min_tokens(llm: LLM, minimum: int) -> None:
    """The first tokens can't be stop tokens; the next may."""
    (completion,) = run(llm, PROMPT, max_tokens=8, min_tokens=minimum, **ALWAYS_EOS)[0].outputs
    assert len(completion.token_ids) == minimum + 1
    assert completion.token_ids[-1] == EOS_TOKEN_ID not in completion.token_ids[:-1]
    (capped,) = run(llm, PROMPT, max_tokens=3, min_tokens=3, **ALWAYS_EOS)[0].outputs
    assert len(capped.token_ids) == 3 and capped.finish_reason == "length"


def test_min_tokens_hold_for_stop_strings(llm: LLM, talk: dict[str, Any]) -> None:
    text = run(llm, PROMPT, **talk)[0].outputs[0].text
    stops = sorted(set(text))
    (at_once,) = run(llm, PROMPT, stop=stops, **talk)[0].outputs
    (later,) = run(llm, PROMPT, stop=stops, min_tokens=6, **talk)[0].outputs
    assert len(at_once.token_ids) == 1 and len(later.token_ids) == 7


def test_ignore_eos(llm: LLM) -> None:
    (completion,) = run(llm, PROMPT, max_tokens=5, ignore_eos=True, **ALWAYS_EOS)[0].outputs
    assert completion.token_ids == [EOS_TOKEN_ID] * 5 and completion.finish_reason == "length"
    assert completion.text == ""  # the end of text is a special token


def test_max_tokens_none_is_up_to_the_context(llm: LLM) -> None:
    for prompt_len in (1, 50, 94, 95):
        (completion,) = run(llm, [9] * prompt_len, temperature=0, max_tokens=None, ignore_eos=True)[0].outputs
        assert len(completion.token_ids) == 96 - prompt_len and completion.finish_reason == "length"
    (beyond,) = run(llm, [9] * 90, temperature=0, max_tokens=1000, ignore_eos=True)[0].outputs
    assert len(beyond.token_ids) == 6


def test_only_allowed_and_no_bad_tokens(llm: LLM) -> None:
    tokens = run(llm, PROMPT, allowed_token_ids=[20, 21], temperature=9, seed=1, max_tokens=20)[0].outputs[0].token_ids
    assert set(tokens) == {20, 21}
    forbidden = run(llm, PROMPT, allowed_token_ids=[20, 21], logit_bias={20: -math.inf}, seed=1, max_tokens=9)
    assert set(forbidden[0].outputs[0].token_ids) == {21}


def test_bad_words(llm: LLM) -> None:
    """A word is kept out as it stands at the start of a text and after a space."""
    words = ["The", "it", "do"]
    spellings = [llm.tokenizer.encode(before + word) for word in words for before in ("", " ")]
    bias = {token: 1000.0 for spelling in spellings for token in spelling}
    given = {"logit_bias": bias, "seed": 3, "max_tokens": 60, "temperature": 50.0}

    def said(**more: Any) -> list[bool]:
        tokens = run(llm, PROMPT, **given, **more)[0].outputs[0].token_ids
        return [any(tokens[at : at + len(word)] == word for at in range(60)) for word in spellings]

    assert said() == [True] * 6
    assert said(bad_words=words) == [False] * 6


# ---------------------------------------------------------------------- text


def test_without_text(llm: LLM) -> None:
    """detokenize=False: no text of the answer, nor of any candidate."""
    given = {"temperature": 0, "max_tokens": 5, "logprobs": 2, "prompt_logprobs": 1}
    (output,) = run(llm, PROMPT, detokenize=False, **given)
    (completion,) = output.outputs
    assert completion.text == "" and completion.token_ids == greedy(llm, PROMPT, 5)[0]
    (with_text,) = run(llm, PROMPT, **given)
    places = [*completion.logprobs, *output.prompt_logprobs[1:]]
    told = [*with_text.outputs[0].logprobs, *with_text.prompt_logprobs[1:]]
    assert [list(place) for place in places] == [list(place) for place in told]
    assert {candidate.decoded_token for place in places for candidate in place.values()} == {None}
    assert all(candidate.decoded_token is not None for place in told for candidate in place.values())


def test_special_tokens_may_be_shown(llm: LLM) -> None:
    given = {"allowed_token_ids": [1], "temperature": 0, "max_tokens": 3}
    assert run(llm, PROMPT, **given)[0].outputs[0].text == ""
    assert run(llm, PROMPT, skip_special_tokens=False, **given)[0].outputs[0].text == "<|im_start|>" * 3
    apart = run(llm, PROMPT, skip_special_tokens=False, spaces_between_special_tokens=False, **given)
    assert apart[0].outputs[0].text == "<|im_start|>" * 3


def test_characters_of_several_tokens(llm: LLM) -> None:
    """Each is given out once it is whole, and never in halves."""
    ids = llm.tokenizer.encode("é水🦊")
    assert len(ids) == 9
    parts: list[str] = []
    for place in range(9):
        (output,) = run(llm, PROMPT + ids[:place], temperature=0, max_tokens=1, allowed_token_ids=[ids[place]])
        parts.append(output.outputs[0].text)
    assert parts == ["", "é", "", "", "水", "", "", "", "🦊"], "a character that the prompt left half is shown whole"


def test_chat(llm: LLM) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The fox?"}]
    params = SamplingParams(temperature=0, max_tokens=5)
    (output,) = llm.chat(messages, params, use_tqdm=False)
    assert output.prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nThe fox?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert output.prompt_token_ids == llm.tokenizer.encode(output.prompt, add_special_tokens=False)
    assert output.outputs[0].token_ids == greedy(llm, [output.prompt_token_ids], 5)[0]
    several = llm.chat([messages, messages[1:]], params, use_tqdm=False)
    assert several[0].outputs == output.outputs and len(several) == 2
    (open_ended,) = llm.chat(messages, params, use_tqdm=False, add_generation_prompt=False)
    assert open_ended.prompt.endswith("<|im_end|>\n")


def test_a_progress_bar_of_one_s_own(llm: LLM) -> None:
    """use_tqdm may be what makes the bar: it is told the number of prompts, and of each that is done."""
    made: list[tqdm] = []

    def make(**given: Any) -> tqdm:
        made.append(tqdm(file=io.StringIO(), **given))
        return made[-1]

    llm.generate([PROMPT, PROMPT], SamplingParams(max_tokens=2), use_tqdm=make)
    llm.chat([{"role": "user", "content": "a"}], SamplingParams(max_tokens=2), make)
    assert [(bar.total, bar.n) for bar in made] == [(2, 2), (1, 1)]


def test_arguments_by_their_places_are_vllm_s(llm: LLM) -> None:
    names = list(inspect.signature(LLM.generate).parameters.values())
    assert [name.name for name in names if name.kind is name.POSITIONAL_OR_KEYWORD] == [
        "self", "prompts", "sampling_params",
    ]  # fmt: skip
    chat = inspect.signature(LLM.chat).parameters.values()
    assert [name.name for name in chat if name.kind is name.POSITIONAL_OR_KEYWORD] == [
        "self", "messages", "sampling_params", "use_tqdm", "lora_request", "chat_template",
        "chat_template_content_format", "add_generation_prompt", "continue_final_message", "tools",
        "chat_template_kwargs", "tokenization_kwargs", "mm_processor_kwargs",
    ]  # fmt: skip


def test_the_tokenizer_can_be_had(llm: LLM) -> None:
    assert llm.get_tokenizer() is llm.tokenizer


def test_without_a_tokenizer(tiny_folder: str, llm: LLM) -> None:
    with LLM(tiny_folder, multiprocess=False, skip_tokenizer_init=True, **SETTINGS) as without:
        (output,) = run(without, PROMPT, temperature=0, max_tokens=5, logprobs=1)
        assert output.outputs[0].token_ids == greedy(llm, PROMPT, 5)[0] and output.outputs[0].text == ""
        assert next(iter(output.outputs[0].logprobs[0].values())).decoded_token is None
        with pytest.raises(InputError, match="skip_tokenizer_init=True"):
            without.get_tokenizer()
        for bad in ({"prompts": "text"}, {"prompts": PROMPT, "sampling_params": SamplingParams(stop="x")}):
            with pytest.raises(InputError, match="skip_tokenizer_init=True"):
                without.generate(**bad)


# ---------------------------------------------------------------------- logprobs


def expected_logprobs(model: Any, tokens: list[int]) -> torch.Tensor:
    """log_softmax of the logits after each token, [len(tokens), vocabulary]."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)


def test_logprobs_are_those_of_transformers(llm: LLM, transformers_model: Any) -> None:
    prompt = [9, 8, 7, 6, 5, 4]
    (output,) = run(llm, prompt, seed=3, max_tokens=6, logprobs=4, top_k=30, temperature=2.0)
    (completion,) = output.outputs
    expected = expected_logprobs(transformers_model, prompt + completion.token_ids)
    total = 0.0
    for place, (token, candidates) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True)):
        row = expected[len(prompt) - 1 + place]
        check_candidates(candidates, row, token, 4)
        total += candidates[token].logprob
        assert candidates[token].decoded_token is not None
    assert completion.cumulative_logprob == pytest.approx(total, abs=1e-4)


def check_candidates(candidates: dict[int, Any], row: torch.Tensor, token: int, count: int) -> None:
    """The chosen token first, then the likeliest, with ranks."""
    assert next(iter(candidates)) == token
    best = row.topk(count).indices.tolist()
    assert set(candidates) == {token, *best} and len(candidates) in (count, count + 1)
    for candidate, logprob in candidates.items():
        assert logprob.logprob == pytest.approx(float(row[candidate]), abs=1e-4)
        assert logprob.rank == int((row > row[candidate]).sum()) + 1


@pytest.mark.parametrize("prompt_len", [1, 2, 30, 60])
def test_prompt_logprobs_are_those_of_transformers(llm: LLM, transformers_model: Any, prompt_len: int) -> None:
    """Also of a prompt that is computed in chunks (48 tokens a step), and of one that is cached."""
    prompt = [3 + (7 * place) % 200 for place in range(prompt_len)]
    greedy(llm, [prompt], 1)
    (output,) = run(llm, prompt, temperature=0, max_tokens=2, prompt_logprobs=3)
    assert output.num_cached_tokens == 0
    assert len(output.prompt_logprobs) == prompt_len and output.prompt_logprobs[0] is None
    expected = expected_logprobs(transformers_model, prompt)
    for place in range(1, prompt_len):
        check_candidates(output.prompt_logprobs[place], expected[place - 1], prompt[place], 3)


def test_logprobs_zero_and_all(tiny_folder: str) -> None:
    with LLM(tiny_folder, multiprocess=False, max_logprobs=-1, **SETTINGS) as llm:
        params = [SamplingParams(temperature=0, max_tokens=2, logprobs=number) for number in (0, -1, VOCAB_SIZE, None)]
        none, every, counted, without = llm.generate([PROMPT] * 4, params, use_tqdm=False)
        assert [len(place) for place in none.outputs[0].logprobs] == [1, 1]
        assert [len(place) for place in every.outputs[0].logprobs] == [VOCAB_SIZE] * 2
        assert every.outputs[0].logprobs == counted.outputs[0].logprobs and without.outputs[0].logprobs is None
        total = sum(math.exp(candidate.logprob) for candidate in every.outputs[0].logprobs[0].values())
        assert total == pytest.approx(1, abs=1e-4)
        with pytest.raises(InputError, match=f"{VOCAB_SIZE + 1}.*{VOCAB_SIZE} tokens of the vocabulary"):
            run(llm, PROMPT, logprobs=VOCAB_SIZE + 1)


# ---------------------------------------------------------------------- cache, order, metrics


def test_cached_tokens_and_salts(llm: LLM) -> None:
    def cached(tokens: list[int], salt: str | None = None) -> int:
        prompt = {"prompt_token_ids": tokens} | ({} if salt is None else {"cache_salt": salt})
        (output,) = run(llm, prompt, temperature=0, max_tokens=1)
        return output.num_cached_tokens

    assert llm.reset_prefix_cache()
    tokens = [9, 8, 7, 6, 5, 4, 3, 9, 8]
    assert [cached(tokens), cached(tokens), cached(tokens[:8]), cached([*tokens[:4], 20, 21, 22, 23])] == [0, 8, 4, 4]
    assert [cached(tokens, "a"), cached(tokens, "a"), cached(tokens, "b"), cached(tokens)] == [0, 8, 0, 8]
    assert cached(tokens, "") == 8, "an empty salt is none"
    assert llm.reset_prefix_cache() and cached(tokens) == 0


def test_outputs_are_cached_too(llm: LLM) -> None:
    assert llm.reset_prefix_cache()
    (first,) = run(llm, PROMPT, temperature=0, max_tokens=10)
    conversation = PROMPT + first.outputs[0].token_ids
    (second,) = run(llm, [*conversation, 9, 9], temperature=0, max_tokens=4)
    assert second.num_cached_tokens == 12


def test_priority(tiny_folder: str) -> None:
    """With one seat the first finishes first, and priority says who is first. Equal ones keep their order."""
    settings = SETTINGS | {"max_num_seqs": 1, "scheduling_policy": "priority"}
    with LLM(tiny_folder, multiprocess=False, **settings) as llm:
        order: list[int] = []

        def note(output: RequestOutput) -> None:
            if output.finished:
                order.append(output.prompt_token_ids[0])

        run(llm, [[10], [11], [12], [13]], temperature=0, max_tokens=2, on_output=note, priority=[3, -1, 3, 0])
        assert order == [11, 13, 10, 12]
        assert len(run(llm, [[10], [11]], temperature=0, priority=5)) == 2


def test_metrics(llm: LLM) -> None:
    outputs = run(llm, [PROMPT, [9] * 60, [8]], temperature=0, max_tokens=6, ignore_eos=True)
    for output in outputs:
        metrics = output.metrics
        assert 0 < metrics.queued_ts <= metrics.scheduled_ts <= metrics.first_token_ts <= metrics.last_token_ts
        assert 0 < metrics.arrival_time < metrics.finished_time
        assert metrics.num_generation_tokens == 6 and metrics.num_preemptions == 0
        assert 0 < metrics.ttft == metrics.first_token_latency <= metrics.finished_time - metrics.arrival_time
        assert metrics.queued_time == metrics.scheduled_ts - metrics.queued_ts
        assert metrics.tpot == pytest.approx((metrics.last_token_ts - metrics.first_token_ts) / 5)
    (single,) = run(llm, PROMPT, max_tokens=1)
    assert single.metrics.tpot == 0.0 and single.metrics.num_generation_tokens == 1


def test_every_preemption_counts() -> None:
    """What the core says of a request, message by message: three preemptions, and the first time of the others."""
    processor = OutputProcessor(None)
    request = EngineCoreRequest("0-a", PROMPT, SamplingParams(), arrival_time=1.0, external_req_id="0")
    processor.add_request(request, None)
    kinds = EngineCoreEventType
    times = enumerate([kinds.QUEUED, kinds.SCHEDULED, *[kinds.PREEMPTED, kinds.SCHEDULED] * 3], start=10)
    events = [EngineCoreEvent(kind, float(at)) for at, kind in times]
    state = processor.request_states["0-a"]
    for some in (events[:3], events[3:6], events[6:]):
        processor.process_outputs([EngineCoreOutput("0-a", [7], events=some)], timestamp=20.0)
    assert state.metrics.num_preemptions == 3
    assert (state.metrics.queued_ts, state.metrics.scheduled_ts) == (10.0, 11.0)


def test_the_model_s_own_defaults(tmp_path: Any) -> None:
    folder = write_tiny_model(tmp_path, generation={"temperature": 0.5, "top_k": 7, "do_sample": True})
    with LLM(folder, multiprocess=False, **SETTINGS) as llm:
        defaults = llm.get_default_sampling_params()
        assert (defaults.temperature, defaults.top_k, defaults.max_tokens) == (0.5, 7, 16)
        assert len(llm.generate([PROMPT, PROMPT], use_tqdm=False)) == 2
