"""What is special about lab 12: its byte stream is the library's, its recorded texts are the recordings'."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model
from tokenizers import Tokenizer

from minivllm.course.grader.byte_stream import ByteStream
from minivllm.engine.detokenizer import TextStream
from minivllm.lessons.lab12 import observe as observe_text
from minivllm.lessons.lab12.check import expected_end, messages
from minivllm.lessons.lab12.texts import make_texts, recorded_texts
from minivllm.models.tokenizer import load_tokenizer
from minivllm.sampling_params import SamplingParams

TEXTS = st.text(st.sampled_from("ab é水🦊\n\u0301 The fox dog."), max_size=12)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(str(tiny_model("llama"))).backend_tokenizer


@settings(max_examples=100)
@given(TEXTS, st.data())
def test_a_byte_stream_says_what_the_library_says(tokenizer: Tokenizer, text: str, data: st.DataObject) -> None:
    ids = tokenizer.encode(text).ids
    cut = data.draw(st.integers(0, len(ids)))
    ours, theirs = (kind(tokenizer, ids[:cut], SamplingParams()) for kind in (ByteStream, TextStream))
    assert [ours.step(token) for token in ids[cut:]] == [theirs.step(token) for token in ids[cut:]]


@st.composite
def requests(draw: st.DrawFn) -> dict:
    text = draw(st.text(st.sampled_from("aabé😀"), min_size=1, max_size=7)).encode()
    cuts = sorted(draw(st.sets(st.integers(1, len(text)), max_size=6)) | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    first = draw(st.integers(1, len(pieces)))
    return {
        "pieces": pieces,
        "groups": [first, *[1] * (len(pieces) - first)],
        "stop": draw(st.lists(st.text(st.sampled_from("aabé"), min_size=1, max_size=3), max_size=3)),
        "min_tokens": draw(st.integers(0, 3)),
        "include": draw(st.booleans()),
        "core": draw(st.sampled_from([None, "stop"])),
    }


@settings(max_examples=300, derandomize=True)
@given(requests())
def test_the_engine_ends_a_request_as_whole_texts_say(case: dict) -> None:
    found, expected = observe_text.detokenized({}, case, []), expected_end(case)
    for mode in ("whole", "delta"):
        assert [stop_string for stop_string, _ in found[mode]] == expected["returned"]
        assert found[mode][-1][1] == expected["text"]
    assert found["token_ids"] == list(range(expected["num_tokens"]))


def test_the_engine_ends_messages_as_whole_texts_say() -> None:
    for case in messages():
        found = observe_text.processed({}, case, [])
        finals = {one["id"]: one for message in found for one in message["outputs"] if one["finished"]}
        aborted = {req_id for message in found for req_id in message["abort"]}
        for request in case["requests"]:
            last = [one for message in case["messages"] for one in message if one["id"] == request["id"]][-1]
            ended = {"core": "stop" if last["finish"] == "stop" else None, "groups": [1] * len(request["pieces"])}
            expected = expected_end(request | ended)
            stop_string, final = expected["returned"][-1], finals[request["id"]]
            assert (final["text"], len(final["tokens"])) == (expected["text"], expected["num_tokens"])
            reasons = ("stop", stop_string) if stop_string else (last["finish"], last["stop_reason"])
            assert (final["finish_reason"], final["stop_reason"]) == reasons
            told = stop_string is not None and expected["num_tokens"] < len(request["pieces"])
            assert (request["id"] in aborted) is told


def test_the_recorded_texts_are_the_recordings() -> None:
    assert list(recorded_texts()) == make_texts()
