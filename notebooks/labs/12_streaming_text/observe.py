"""Observers of lab 12: text from bytes, stop strings, and what the caller's side makes of the core's messages.

Owns: how a few bytes stand in for tokens. Interface: streamed, searched, detokenized, processed.
Must not know: what is expected.
"""

from types import SimpleNamespace
from typing import Any

from minivllm.course.grader.byte_stream import ByteStream
from minivllm.course.grader.child import Parts
from minivllm.engine.detokenizer import IncrementalDetokenizer, check_stop_strings
from minivllm.engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from minivllm.engine.output_processor import OutputProcessor
from minivllm.sampling_params import RequestOutputKind, SamplingParams

Seen = list[Any]
MAX_TOKENS = 1000


def streamed(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[str]:
    """What ByteStream says at each token of an output. asked: prompt and output, lists of bytes."""
    pieces = dict(enumerate([*asked["prompt"], *asked["output"]]))
    num_prompt = len(asked["prompt"])
    stream = parts.get("ByteStream", ByteStream)(pieces, list(range(num_prompt)), SamplingParams())
    for token_id in range(num_prompt, len(pieces)):
        seen.append(stream.step(token_id))
    return seen


def searched(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[Any] | None:
    """What check_stop_strings finds: [the string, the length that the text has then], or None."""
    search = parts.get("check_stop_strings", check_stop_strings)
    found = search(asked["text"], asked["new"], asked["stop"], asked["include"])
    if found is None:
        return None
    stop_string, cut = found
    return [stop_string, len(asked["text"]) if cut == -1 else cut]


def detokenized(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """A request's text while its tokens come, shown in pieces (delta) and as a whole.

    asked: pieces (bytes of each token), groups (how many come at once), stop, include, min_tokens, core (None, "stop":
    the core ends it at the last token). For each group: the stop string, and all the text that was shown so far.
    """
    result: dict[str, Any] = {}
    for delta in (True, False):
        params = _params(asked)
        stream = ByteStream(dict(enumerate(asked["pieces"])), [], params)
        detokenizer = parts.get("detokenizer", IncrementalDetokenizer)(stream, params)
        steps = result["delta" if delta else "whole"] = []
        shown, done = "", 0
        for size in asked["groups"]:
            new, done = list(range(done, done + size)), done + size
            last = done == len(asked["pieces"])
            stop_string = detokenizer.update(new, last and asked["core"] == "stop")
            text = detokenizer.get_next_output_text(last or stop_string is not None, delta)
            shown = shown + text if delta else text
            steps.append([stop_string, shown])
            seen.append([delta, stop_string, text])
            if stop_string is not None:
                break
        result["token_ids"] = list(detokenizer.token_ids)
    return result


def _params(asked: dict[str, Any], **more: Any) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=MAX_TOKENS,
        stop=asked["stop"],
        include_stop_str_in_output=asked["include"],
        min_tokens=asked["min_tokens"],
        **more,
    )


def processed(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """What OutputProcessor makes of a core's messages.

    asked: requests, {id, pieces, stop, include, min_tokens, only_final}; messages, lists of {id, token (its number in
    the output), finish (None, "stop", "length"), stop_reason}. For each message: the outputs, who is to be aborted, and
    who is still open.
    """
    pieces: dict[int, bytes] = {}
    first_id: dict[str, int] = {}
    for request in asked["requests"]:
        first_id[request["id"]] = len(pieces)
        pieces |= {len(pieces) + number: piece for number, piece in enumerate(request["pieces"])}
    tokenizer = SimpleNamespace(backend_tokenizer=pieces)
    processor = parts.get("output_processor", OutputProcessor)(tokenizer, text_stream_class=ByteStream)
    for request in asked["requests"]:
        kind = RequestOutputKind.FINAL_ONLY if request["only_final"] else RequestOutputKind.CUMULATIVE
        params = _params(request, output_kind=kind)
        processor.add_request(EngineCoreRequest(request["id"], [], params, 0.0, external_req_id=request["id"]), None)
    for message in asked["messages"]:
        outputs = [
            EngineCoreOutput(
                one["id"],
                [first_id[one["id"]] + one["token"]],
                finish_reason=None if one["finish"] is None else FinishReason[one["finish"].upper()],
                stop_reason=one["stop_reason"],
            )
            for one in message
        ]
        result = processor.process_outputs(outputs, 0.0)
        seen.append(
            {
                "outputs": [_describe(output, first_id) for output in result.request_outputs],
                "abort": list(result.reqs_to_abort),
                "open": sorted(processor.request_states),
            }
        )
    return seen


def _describe(output: Any, first_id: dict[str, int]) -> dict[str, Any]:
    (completion,) = output.outputs
    return {
        "id": output.request_id,
        "finished": output.finished,
        "text": completion.text,
        "tokens": [token_id - first_id[output.request_id] for token_id in completion.token_ids],
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
    }
