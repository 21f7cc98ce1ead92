"""Tokens and stop strings to play with in the notebook of lab 12.

Owns: nothing. Interface: stream, rows.
Must not know: what is graded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minivllm.engine.detokenizer import IncrementalDetokenizer
from minivllm.labs.byte_stream import ByteStream
from minivllm.labs.play import parts_of_file
from minivllm.sampling_params import SamplingParams

MAX_TOKENS = 1000


def stream(pieces: Sequence[str | bytes], starter: str | Path | None = None, **params: Any) -> list[dict[str, Any]]:
    """What is there and what is shown after each token, up to a stop string or the end.

    pieces: the text or the bytes of each token. starter: a student's file; None: the engine's own parts. params: of
    SamplingParams.

    vLLM: none, vLLM has no labs
    """
    parts = {} if starter is None else parts_of_file(Path(starter))
    sampling = SamplingParams(max_tokens=MAX_TOKENS, **params)
    by_id = {index: piece if isinstance(piece, bytes) else piece.encode() for index, piece in enumerate(pieces)}
    text_stream = parts.get("ByteStream", ByteStream)(by_id, [], sampling)
    detokenizer = parts.get("IncrementalDetokenizer", IncrementalDetokenizer)(text_stream, sampling)
    steps: list[dict[str, Any]] = []
    for token_id, piece in by_id.items():
        stopped_by = detokenizer.update([token_id], False)
        finished = stopped_by is not None or token_id == len(pieces) - 1
        steps.append(
            {
                "bytes": piece,
                "text": detokenizer.output_text,
                "shown": detokenizer.get_next_output_text(finished, False),
                "stopped_by": stopped_by,
            }
        )
        if stopped_by is not None:
            break
    return steps


def rows(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each token, for `minivllm.notebook.table`.

    vLLM: none, vLLM has no labs
    """
    return [
        {
            "token": number,
            "bytes": step["bytes"].hex(" "),
            "text so far": repr(step["text"]),
            "shown": repr(step["shown"]),
            "ended by": "" if step["stopped_by"] is None else repr(step["stopped_by"]),
        }
        for number, step in enumerate(steps)
    ]
