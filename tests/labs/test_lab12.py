"""What is special about lab 12: its byte stream is the library's, its recorded texts are the recordings'."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model
from tokenizers import Tokenizer

from minivllm.engine.detokenizer import TextStream
from minivllm.labs.byte_stream import ByteStream
from minivllm.labs.texts import make_texts, recorded_texts
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


def test_the_recorded_texts_are_the_recordings() -> None:
    assert list(recorded_texts()) == make_texts()
