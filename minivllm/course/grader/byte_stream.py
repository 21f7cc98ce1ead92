"""ByteStream: text from the bytes of tokens, without the library. Lab 12 is cut from it.

Owns: the bytes of a character that is not whole yet.
Interface: ByteStream(tokenizer, prompt_ids, params).step(token_id). It can stand in for the engine's TextStream where
the tokenizer is byte-level, as the default model's is.
Must not know: stop strings.
"""

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from minivllm.engine.detokenizer import TextStream
from minivllm.sampling_params import SamplingParams


def bytes_of(tokenizer: Any, token_id: int, skip_special_tokens: bool) -> bytes:
    """The bytes of one token of a byte-level tokenizer, or of a mapping from token ids to bytes."""
    if isinstance(tokenizer, Mapping):
        return tokenizer[token_id]
    added = tokenizer.get_added_tokens_decoder().get(token_id)
    if added is not None:
        return b"" if added.special and skip_special_tokens else added.content.encode()
    return bytes(BYTE_OF[character] for character in tokenizer.id_to_token(token_id))


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary: itself where it can be seen, else one beyond
    255, in order.
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(unseen)}


BYTE_OF = _byte_characters()


class ByteStream(TextStream):
    """Token ids in, whole characters out. A token is some bytes of UTF-8, and may end within a character.

    vLLM: v1/engine/detokenizer.py::FastIncrementalDetokenizer.decode_next (role)
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        # >>> lab 12.1 take the prompt in: only a character left half matters
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in prompt_ids:
            self.decoder.decode(self.get_bytes(token_id))
        # <<< lab 12.1

    def get_bytes(self, token_id: int) -> bytes:
        """The bytes that this token stands for."""
        return bytes_of(self.tokenizer, token_id, self.skip_special_tokens)

    def step(self, token_id: int) -> str:
        """The characters that this token completes: none, one, or several."""
        return self.decoder.decode(self.get_bytes(token_id))
