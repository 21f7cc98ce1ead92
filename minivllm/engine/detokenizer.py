"""Tokens to text, a token at a time, and the stop strings that only text can show.

Owns: one request's output text and token ids.
Interface: IncrementalDetokenizer.from_new_request; update, get_next_output_text.
Must not know: where tokens come from, or what happens when a stop string is found.

A token is not a text: a character may be spread over several tokens. The library's DecodeStream gives out whole
characters only. It is primed with the prompt, so that a word's leading space comes out right.
"""

import logging
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from minivllm.engine.messages import EngineCoreRequest
from minivllm.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer decodes half a character to


class TextStream:
    """Token ids in, whole characters out.

    vLLM: v1/engine/detokenizer.py::FastIncrementalDetokenizer.decode_next
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        self.stream = DecodeStream(ids=list(prompt_ids), skip_special_tokens=self.skip_special_tokens)
        # primed with half a character at the end, the stream gives out the whole prompt together with the other half
        prompt = tokenizer.decode(list(prompt_ids), skip_special_tokens=self.skip_special_tokens)
        self.said_before = prompt if prompt.endswith(REPLACEMENT) else ""
        self.special_tokens: dict[int, str] = {}  # only if no space may stand between two of them
        if not (params.skip_special_tokens or params.spaces_between_special_tokens):
            added = tokenizer.get_added_tokens_decoder()
            self.special_tokens = {token_id: token.content for token_id, token in added.items()}
        self.last_was_special = False

    def step(self, token_id: int) -> str:
        """The text that this token completes; often one piece, sometimes nothing."""
        text = self._protected_step(token_id)
        if self.special_tokens:
            special = self.special_tokens.get(token_id)
            if special is not None and self.last_was_special:
                text = special  # as it is written, without the space that the decoder puts before it
            self.last_was_special = special is not None
        if text and self.said_before:
            text, self.said_before = _without_common_start(text, self.said_before), ""
        return text or ""

    def _protected_step(self, token_id: int) -> str | None:
        try:
            return self.stream.step(self.tokenizer, token_id)
        except Exception as error:
            # bytes that no text has can leave the stream in a state from which it refuses every further token
            if not str(error).startswith("Invalid prefix encountered"):
                raise
            logger.warning("The tokens so far are no valid text (%s): decoding starts afresh at %d.", error, token_id)
            self.stream = DecodeStream(skip_special_tokens=self.skip_special_tokens)
            self.said_before = ""
            return self.stream.step(self.tokenizer, token_id)


class IncrementalDetokenizer:
    """One request's text so far. Without a text stream (detokenize=False, or no tokenizer) it only keeps the ids.

    vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer
    """

    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        # >>> lab 12.3 stop_buffer_length, the characters to hold back while it runs
        # they may turn out to begin a stop string
        self.stop_buffer_length = 0
        if self.stop and not self.include_stop_str_in_output:
            self.stop_buffer_length = max(map(len, self.stop)) - 1
        # <<< lab 12.3
        self.output_text = ""
        self.token_ids: list[int] = []  # of the output; never cut
        self._last_output_text_offset = 0

    @classmethod
    def from_new_request(
        cls, tokenizer: Any | None, request: EngineCoreRequest, text_stream_class: type[TextStream] = TextStream
    ) -> "IncrementalDetokenizer":
        """tokenizer: transformers' fast tokenizer, or None.

        vLLM: v1/engine/detokenizer.py::IncrementalDetokenizer.from_new_request
        """
        params = request.sampling_params
        stream = None
        if tokenizer is not None and params.detokenize:
            stream = text_stream_class(tokenizer.backend_tokenizer, request.prompt_token_ids, params)
        return cls(stream, params)

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """Take new tokens in; returns the stop string that they complete, or None.

        stop_terminated: the core ended the request at its last token, which is then kept out of the text (but not out
        of token_ids), unless include_stop_str_in_output.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.update
        """
        if self.text_stream is None:
            self.token_ids.extend(new_token_ids)
            return None
        # >>> lab 12.3 ids and text; look for a stop string in what is new, and cut
        hide_last = stop_terminated and not self.include_stop_str_in_output
        searched = len(self.output_text)  # no stop string is looked for before this
        for index, token_id in enumerate(new_token_ids):
            self.token_ids.append(token_id)
            if not (hide_last and index == len(new_token_ids) - 1):
                self.output_text += self.text_stream.step(token_id)
                if self.min_tokens and len(self.token_ids) <= self.min_tokens:
                    searched = len(self.output_text)
        if not self.stop or len(self.token_ids) <= self.min_tokens:
            return None
        match = check_stop_strings(
            self.output_text, len(self.output_text) - searched, self.stop, self.include_stop_str_in_output
        )
        if match is None:
            return None
        stop_string, cut = match
        if cut != -1:
            self.output_text = self.output_text[:cut]
        return stop_string
        # <<< lab 12.3

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """The text that may be shown: all of it, or with `delta` what is new since the last call.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.get_next_output_text
        """
        length = len(self.output_text) - (0 if finished else self.stop_buffer_length)
        if not delta:
            return self.output_text[: max(length, 0)]
        start = self._last_output_text_offset
        if start >= length:
            return ""
        self._last_output_text_offset = length
        return self.output_text[start:length]


def _without_common_start(text: str, other: str) -> str:
    pairs = enumerate(zip(text, other, strict=False))
    return text[next((place for place, pair in pairs if pair[0] != pair[1]), min(len(text), len(other))) :]


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    """Look for a stop string that ends within the last `new_char_count` characters. The first of the list wins, at the
    first place where it ends there.

    Returns (the stop string, the length to cut the text to, -1 for no cut), or None.

    vLLM: v1/engine/detokenizer.py::check_stop_strings
    """
    if new_char_count == 0:
        return None
    for stop_string in stop:
        # it may begin in older text, but must reach into the new
        start = max(len(output_text) - new_char_count - len(stop_string) + 1, 0)
        found = output_text.find(stop_string, start)
        if found == -1:
            continue
        if not include_in_output:
            return stop_string, found
        end = found + len(stop_string)
        return stop_string, -1 if end == len(output_text) else end
    return None
