"""Lab 12 · Streaming text and stop strings

Say which characters may be shown after each token, when a stop string ends a request, and who still works after it
ended.

    12.1  whole characters (10 points)
    12.2  find a stop string (15 points)
    12.3  text so far, and what of it may be shown (20 points)
    12.4  the end of a request (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 12
"""

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
        raise NotImplementedError("Lab 12.1: take the prompt in: only a character left half matters")

    def get_bytes(self, token_id: int) -> bytes:
        """The bytes that this token stands for."""
        return bytes_of(self.tokenizer, token_id, self.skip_special_tokens)

    def step(self, token_id: int) -> str:
        """The characters that this token completes: none, one, or several."""
        raise NotImplementedError("Lab 12.1: the characters that are whole now; the bytes of the next one wait")


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    """Look for a stop string that ends within the last `new_char_count` characters. The first of the list wins, at the
    first place where it ends there.

    Returns (the stop string, the length to cut the text to, -1 for no cut), or None.

    vLLM: v1/engine/detokenizer.py::check_stop_strings
    """
    raise NotImplementedError("Lab 12.2: the first stop string that ends in the new characters, and the cut")


class IncrementalDetokenizer(given.IncrementalDetokenizer):
    """One request's text so far. Without a text stream (detokenize=False, or no tokenizer) it only keeps the ids.

    vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer
    """

    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        raise NotImplementedError("Lab 12.3: stop_buffer_length, the characters to hold back while it runs")
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
        raise NotImplementedError("Lab 12.3: ids and text; look for a stop string in what is new, and cut")

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """The text that may be shown: all of it, or with `delta` what is new since the last call.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.get_next_output_text
        """
        raise NotImplementedError("Lab 12.3: hold back until the end; delta goes on where it stopped")


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
            raise NotImplementedError("Lab 12.4: text, reason, the caller's view; the end, and who must hear of it")
        return result
