"""Tokens to text: whole characters, nothing of the prompt but a character that it left half, and stop strings."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

from minivllm.engine.detokenizer import IncrementalDetokenizer, TextStream, check_stop_strings
from minivllm.models.tokenizer import load_tokenizer
from minivllm.sampling_params import SamplingParams

TEXTS = st.text(st.sampled_from("ab é水🦊\n\u0301 The fox dog."), max_size=12)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(str(tiny_model("llama"))).backend_tokenizer


def pieces(tokenizer: Any, ids: list[int], cut: int, **params: Any) -> list[str]:
    """What each token after the first `cut` completes."""
    stream = TextStream(tokenizer, ids[:cut], SamplingParams(**params))
    return [stream.step(token) for token in ids[cut:]]


@settings(max_examples=300)
@given(TEXTS, st.data())
def test_prompt_and_output_are_the_whole_text(tokenizer: Any, text: str, data: st.DataObject) -> None:
    """Wherever the prompt ends: its whole characters and the output's text are the text, without half a character."""
    ids = tokenizer.encode(text).ids
    cut = data.draw(st.integers(0, len(ids)))
    of_prompt = tokenizer.decode(ids[:cut]).rstrip("\ufffd")
    said = pieces(tokenizer, ids, cut)
    assert of_prompt + "".join(said) == text
    assert not any("\ufffd" in piece for piece in said)


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_prompt_that_ends_in_half_a_character(tokenizer: Any, cut: int) -> None:
    before, fox = tokenizer.encode("The dog. ").ids, tokenizer.encode("🦊").ids
    assert "".join(pieces(tokenizer, before + fox + before, len(before) + cut)) == "🦊The dog. "
    assert "".join(pieces(tokenizer, fox + before, cut)) == "🦊The dog. "


@settings(max_examples=300)
@given(st.lists(st.integers(0, 319), max_size=12))
def test_any_tokens_can_be_decoded(tokenizer: Any, ids: list[int]) -> None:
    """Also those that make no text: what comes out is what all of them decode to, but for an end that is not whole."""
    whole, said = tokenizer.decode(ids), "".join(pieces(tokenizer, ids, 0))
    assert whole.startswith(said) and not whole.removeprefix(said).rstrip("\ufffd")


@given(st.lists(st.integers(0, 319), max_size=12), st.lists(st.integers(3, 319), max_size=6))
def test_any_prompt_can_be_continued(tokenizer: Any, prompt: list[int], output: list[int]) -> None:
    """Whatever the prompt's bytes are, the output's text holds at most three broken bytes of the prompt."""
    said = "".join(pieces(tokenizer, prompt + output, len(prompt)))
    assert len(said.encode(errors="ignore")) <= sum(len(tokenizer.decode([token]).encode()) for token in output) + 9


@given(TEXTS, TEXTS, st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3), st.booleans())
def test_stop_strings_are_found_where_they_end(old: str, new: str, stop: list[str], include: bool) -> None:
    """In text whose first part has been searched before: what ends in the new part is found, and cut."""
    text = old + new
    ends = {word: text.find(word, max(len(old) - len(word) + 1, 0)) for word in stop}
    wanted = next((word for word in stop if new and ends[word] != -1), None)
    found = check_stop_strings(text, len(new), stop, include)
    assert (found and found[0]) == wanted
    if found is not None:
        end = len(text) if found[1] == -1 else found[1]
        assert text[:end] == text[: ends[wanted] + (len(wanted) if include else 0)]


class SpelledTokens:
    """A text stream that says what a token is spelled."""

    def __init__(self, spelling: list[str]) -> None:
        self.spelling = spelling

    def step(self, token_id: int) -> str:
        return self.spelling[token_id]


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_id_and_a_stop_string_completed_by_one_token(include: bool) -> None:
    """The core ended the request at token 1, which also completes the stop string. Its text counts only if it is shown,
    so only then the string is the reason."""
    params = SamplingParams(stop=["bc"], stop_token_ids=[1], include_stop_str_in_output=include)
    detokenizer = IncrementalDetokenizer(SpelledTokens(["ab", "cd"]), params)
    assert detokenizer.update([0], stop_terminated=False) is None
    assert detokenizer.update([1], stop_terminated=True) == ("bc" if include else None)
    assert detokenizer.get_next_output_text(True, delta=False) == ("abc" if include else "ab")
    assert detokenizer.token_ids == [0, 1]


@pytest.mark.parametrize("stop_terminated", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_inside_a_message_of_several_tokens(include: bool, stop_terminated: bool) -> None:
    """It is found in the middle of what came, the text is cut there, and the ids stay whole."""
    params = SamplingParams(stop=["bc"], include_stop_str_in_output=include)
    detokenizer = IncrementalDetokenizer(SpelledTokens(["ab", "cd", "e", "<end>"]), params)
    assert detokenizer.update([0, 1, 2, 3], stop_terminated) == "bc"
    assert detokenizer.get_next_output_text(True, delta=False) == ("abc" if include else "a")
    assert detokenizer.token_ids == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def spaced_tokenizer() -> Any:
    """A tokenizer that writes a space before every token but the first, <s> and </s> too."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def test_special_tokens_next_to_each_other_have_no_space(spaced_tokenizer: Any) -> None:
    """Only between two special tokens: one after an ordinary token has its space again, as in vLLM 0.22.0."""
    ids = [0, 1, 0, 2, 1, 3, 3, 0, 0]
    shown = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
    assert pieces(spaced_tokenizer, [2, *ids], 1, **shown) == [
        " <s>", "</s>", "<s>", " a", " </s>", " b", " b", " <s>", "<s>",
    ]  # fmt: skip
    apart = {"skip_special_tokens": False, "spaces_between_special_tokens": True}
    assert "".join(pieces(spaced_tokenizer, [2, *ids], 1, **apart)) == " <s> </s> <s> a </s> b b <s> <s>"
    assert "".join(pieces(spaced_tokenizer, [2, *ids], 1)) == " a b b"


def test_a_stream_that_refuses_every_further_token_starts_afresh(tokenizer: Any) -> None:
    """Bytes that no text has can leave the library's stream so; the request goes on. Any other error is passed on."""

    class Refuses:
        def __init__(self, words: str) -> None:
            self.words = words

        def step(self, *_: object) -> str:
            raise ValueError(self.words)

    dog = tokenizer.encode("dog").ids
    stream = TextStream(tokenizer, [], SamplingParams())
    stream.stream = Refuses("Invalid prefix encountered while decoding")
    assert "".join(map(stream.step, dog)) == "dog"
    stream.stream = Refuses("no memory")
    with pytest.raises(ValueError, match="no memory"):
        stream.step(dog[0])
