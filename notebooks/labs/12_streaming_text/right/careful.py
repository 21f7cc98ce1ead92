"""A right solution of lab 12: an incremental codec; it holds back only what really begins a stop string."""

import codecs
from collections.abc import Sequence
from typing import Any

from minivllm.boundary import boundary
from minivllm.course.grader import given
from minivllm.course.grader.byte_stream import bytes_of
from minivllm.engine.detokenizer import TextStream
from minivllm.engine.messages import EngineCoreOutput, FinishReason
from minivllm.engine.output_processor import OutputProcessorOutput
from minivllm.sampling_params import SamplingParams


class ByteStream(TextStream):
    """Token ids in, whole characters out. A token is some bytes of UTF-8, and may end within a character.

    vLLM: v1/engine/detokenizer.py::FastIncrementalDetokenizer.decode_next (role)
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        self.codec = codecs.getincrementaldecoder("utf-8")("replace")
        self.codec.decode(b"".join(map(self.get_bytes, prompt_ids)))

    def get_bytes(self, token_id: int) -> bytes:
        """The bytes that this token stands for."""
        return bytes_of(self.tokenizer, token_id, self.skip_special_tokens)

    def step(self, token_id: int) -> str:
        """The characters that this token completes: none, one, or several."""
        return self.codec.decode(self.get_bytes(token_id), False)


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    """Look for a stop string that ends within the last `new_char_count` characters. The first of the list wins, at the
    first place where it ends there.

    Returns (the stop string, the length to cut the text to, -1 for no cut), or None.

    vLLM: v1/engine/detokenizer.py::check_stop_strings
    """
    found = (
        (stop_string, output_text.find(stop_string, max(0, 1 + len(output_text) - new_char_count - len(stop_string))))
        for stop_string in (stop if new_char_count else [])
    )
    stop_string, begin = next((pair for pair in found if pair[1] >= 0), (None, -1))
    if stop_string is None:
        return None
    return stop_string, begin + len(stop_string) * include_in_output


class IncrementalDetokenizer(given.IncrementalDetokenizer):
    """One request's text so far. Without a text stream (detokenize=False, or no tokenizer) it only keeps the ids.

    vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer
    """

    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        self.stop_buffer_length = 0  # see get_next_output_text
        self.output_text = ""
        self.token_ids: list[int] = []  # of the output; never cut
        self._last_output_text_offset = 0

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """Take new tokens in; returns the stop string that they complete, or None.

        stop_terminated: the core ended the request at its last token, which is then kept out of the text (but not out
        of token_ids), unless include_stop_str_in_output.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.update
        """
        if self.text_stream is None:
            self.token_ids.extend(new_token_ids)
            return None
        protected = max(self.min_tokens - len(self.token_ids), 0)  # so many of these may not stop it
        self.token_ids += new_token_ids
        hidden = 1 if stop_terminated and not self.include_stop_str_in_output else 0
        texts = [self.text_stream.step(token_id) for token_id in new_token_ids[: len(new_token_ids) - hidden]]
        self.output_text += "".join(texts)
        num_new = sum(map(len, texts[protected:]))
        match = None
        if protected < len(new_token_ids):
            match = check_stop_strings(self.output_text, num_new, self.stop, self.include_stop_str_in_output)
        if match is not None and match[1] != -1:
            self.output_text = self.output_text[: match[1]]
        return match and match[0]

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """The text that may be shown: all of it, or with `delta` what is new since the last call.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.get_next_output_text
        """
        text = self.output_text
        if not (finished or self.include_stop_str_in_output):
            beginnings = {one[:size] for one in self.stop for size in range(1, len(one))}
            held = max((len(one) for one in beginnings if text.endswith(one)), default=0)
            text = text[: len(text) - held]
        if delta:
            new = text[self._last_output_text_offset :]
            self._last_output_text_offset = max(len(text), self._last_output_text_offset)
            return new
        return text


class OutputProcessor(given.OutputProcessor):
    """vLLM: v1/engine/output_processor.py::OutputProcessor"""

    @boundary("process_outputs")
    def process_outputs(self, outputs: list[EngineCoreOutput], timestamp: float) -> OutputProcessorOutput:
        """Take one message of the core in. An output of a request that has ended here is ignored.

        timestamp: the core's monotonic clock when the message was made, seconds.

        vLLM: v1/engine/output_processor.py::OutputProcessor.process_outputs
        """
        result = OutputProcessorOutput()
        for output in outputs:
            try:
                state = self.request_states[output.request_id]
            except KeyError:
                continue
            self._update_numbers(state, output, timestamp)
            string = self.detokenize(state, output.new_token_ids, output.finish_reason is FinishReason.STOP)
            ends_here = string is not None
            reason = FinishReason.STOP if ends_here else output.finish_reason
            caller_sees = state.make_request_output(reason, string if ends_here else output.stop_reason)
            if caller_sees:
                result.request_outputs.append(caller_sees)
            if reason is not None:
                self.request_states.pop(output.request_id)
            if ends_here and not output.finished:
                result.reqs_to_abort.append(output.request_id)
        return result
