"""Tokens and stop strings, and two processes that talk about them: to play with in the notebooks of labs 01 and 12.

Owns: nothing. Interface: stream, rows; conversation, message_rows, computed_in_vain.
Must not know: what is graded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minivllm.course.grader.byte_stream import ByteStream
from minivllm.course.grader.play import parts_of_file
from minivllm.course.grader.two_processes import CONFIG, Conversation, converse, messages_of
from minivllm.engine.detokenizer import IncrementalDetokenizer
from minivllm.sampling_params import SamplingParams

MAX_TOKENS = 1000


def stream(pieces: Sequence[str | bytes], starter: str | Path | None = None, **params: Any) -> list[dict[str, Any]]:
    """What is there and what is shown after each token, up to a stop string or the end.

    pieces: the text or the bytes of each token. starter: a student's file; None: the engine's own parts. params: of
    SamplingParams.
    """
    parts = {} if starter is None else parts_of_file(Path(starter))
    sampling = SamplingParams(max_tokens=MAX_TOKENS, **params)
    by_id = {index: piece if isinstance(piece, bytes) else piece.encode() for index, piece in enumerate(pieces)}
    text_stream = parts.get("ByteStream", ByteStream)(by_id, [], sampling)
    detokenizer = parts.get("detokenizer", IncrementalDetokenizer)(text_stream, sampling)
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
    """A row for each token, for `minivllm.course.notebook.table`."""
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


# ---------------------------------------------------------------------- two processes


def conversation(
    texts: Mapping[str, Sequence[str]],
    acts: Sequence[tuple[int, str, str]] = (),
    stop: Mapping[str, Sequence[str]] | None = None,
    starter: str | Path | None = None,
) -> Conversation:
    """Requests in two processes, which take turns.

    texts: request id -> the text of each of its tokens. acts: (n, "abort" or "add" or "reset", request id), what the
    caller does when it has taken in n messages with outputs; a request that no act adds is there from the beginning.
    stop: request id -> its stop strings.
    """
    pieces: dict[int, bytes] = {0: b" "}  # of prompts
    requests = []
    for req_id, tokens in texts.items():
        output = list(range(len(pieces), len(pieces) + len(tokens)))
        pieces |= {token_id: text.encode() for token_id, text in zip(output, tokens, strict=True)}
        found = list((stop or {}).get(req_id, ()))
        requests.append({"id": req_id, "prompt": [0, 0, 0], "output": output, "stop": found})
    later = {req_id for _, what, req_id in acts if what == "add"}
    first = [(0, "add", req_id) for req_id in texts if req_id not in later]
    case = {"config": CONFIG, "requests": requests, "pieces": pieces, "acts": sorted([*first, *acts], key=_when)}
    return converse(case, {} if starter is None else parts_of_file(Path(starter)))


def _when(act: tuple[int, str, str]) -> int:
    return act[0]


def message_rows(told: Conversation) -> list[dict[str, Any]]:
    """A row for each message that crossed, for `minivllm.course.notebook.table`."""
    return [
        {
            "message": number,
            "by": message["by"],
            "type": message["type"],
            "requests": ", ".join(message["reqs"]),
            "step": "" if message["step"] is None else message["step"],
        }
        for number, message in enumerate(messages_of(told.trace))
    ]


def computed_in_vain(told: Conversation) -> dict[str, int]:
    """Request id -> steps that were planned for it, less the tokens that the caller has taken in."""
    planned = [req_id for event in told.trace.filter(kind="schedule") for req_id in event.num_scheduled_tokens]
    taken = [req_id for message in told.taken for req_id in message]
    return {req_id: planned.count(req_id) - taken.count(req_id) for req_id in dict.fromkeys(planned)}
