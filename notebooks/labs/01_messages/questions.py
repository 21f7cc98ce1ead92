"""Questions of lab 01: the bytes of an ADD, the frames of two arrays, and the messages that cross for one request."""

from random import Random
from typing import Any

import msgspec
import numpy as np

from minivllm.course.grader.seeds import Question
from minivllm.course.grader.two_processes import CONFIG, converse, messages_of
from minivllm.course.grader.words import tell_list
from minivllm.engine.serial import MsgpackEncoder
from minivllm.lessons.lab01.wire import message_types

workload_free = True
TOKEN_RANGES = ((1, 127), (128, 255), (256, 65535), (65536, 151935))  # 1, 2, 3, 5 bytes in msgpack
DTYPES = ("float32", "int64", "int32", "uint8")
BUDGET = 64  # no prompt is cut into chunks: every step brings a token for everybody who runs
NUM_SHOWN = 4  # messages of the conversation


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """What the questions are about, as Markdown, and the questions with their keys."""
    random = Random(f"lab 01 {seed}")
    fields = _request(random)
    place, data = _byte(random, fields)
    arrays = [(random.choice(DTYPES), _shape(random)) for _ in range(2)]
    lengths = [len(bytes(frame)) for frame in MsgpackEncoder().encode([np.zeros(s, dtype=d) for d, s in arrays])]
    talk = _talk(random)
    sent = messages_of(converse(talk, {}).trace)
    req_id = _asked_for(random, sent)
    told = "\n".join(
        [
            "## Your messages",
            "",
            "**The ADD.** With the declarations of 1.1:",
            "",
            "```",
            f"EngineCoreRequest({', '.join(f'{name}={_tell(value)}' for name, value in fields.items())})",
            "```",
            "",
            f"**The arrays.** A message that is a list of two arrays: {' and '.join(map(_tell_array, arrays))}.",
            "",
            *_tell_talk(talk, sent),
        ]
    )
    return told, [
        Question(
            "Q1",
            10,
            f"How many bytes has the msgpack frame of your ADD, and which byte has the number {place} in it, counted "
            "from 0? One list: the length, and the byte as two hexadecimal digits.",
            [len(data), f"{data[place]:02x}"],
            "B7 core_client.send, its second frame. An array of all seven fields; the parameters in it are a map of "
            "those that are no defaults; each integer takes 1, 2, 3 or 5 bytes.",
            True,
        ),
        Question(
            "Q2",
            15,
            "Which lengths have the frames of the message with your arrays, in order?",
            lengths,
            "`enc_hook`. Of an array below 256 bytes the bytes are in frame 0, behind dtype and shape; a larger one "
            "leaves its number there, and has a frame of its own.",
        ),
        Question(
            "Q3",
            15,
            f"Which messages cross after the ADD of {req_id}, in either direction, in the order in which they are "
            f"sent, up to the last OUTPUTS with a token of {req_id}, which counts? A list of their types, like [ADD, "
            "OUTPUTS, ABORT].",
            _between(sent, req_id),
            _explain(sent, req_id),
        ),
    ]


def _request(random: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "request_id": f"{random.randint(0, 30)}-{random.getrandbits(32):08x}",
        "prompt_token_ids": [random.randint(*random.choice(TOKEN_RANGES)) for _ in range(random.randint(3, 6))],
        "sampling_params": {"temperature": 0.0} if random.random() < 0.5 else {},
        "arrival_time": float(random.randint(1, 9)),
    }
    if random.random() < 0.6:
        fields["sampling_params"]["max_tokens"] = random.randint(1, 300)
    if random.random() < 0.4:
        fields["sampling_params"]["seed"] = random.randint(0, 1000)
    if random.random() < 0.5:
        fields["priority"] = random.randint(1, 5)
    return fields


def _byte(random: Random, fields: dict[str, Any]) -> tuple[int, bytes]:
    """The number of a byte within the prompt, and the message."""
    params, request, _ = message_types()
    message = request(**(fields | {"sampling_params": params(**fields["sampling_params"])}))
    data = msgspec.msgpack.encode(message)
    first = 3 + len(fields["request_id"])  # array, string, its text, array
    return random.randint(first, first + len(msgspec.msgpack.encode(fields["prompt_token_ids"])) - 2), data


def _shape(random: Random) -> tuple[int, ...]:
    return random.choice([(random.randint(1, 90),), (random.randint(1, 9), random.randint(2, 12))])


# ---------------------------------------------------------------------- the conversation


def _talk(random: Random) -> dict[str, Any]:
    """Three or four requests, added and given up while the caller takes messages in, perhaps with a call among them."""
    requests = [
        {
            "id": f"r{number}",
            "prompt": [random.randint(10, 99) for _ in range(random.randint(2, 9))],
            "output": list(range(random.randint(4, 7))),  # so that it is alive when it is given up
        }
        for number in range(random.randint(3, 4))
    ]
    acts: list[list[Any]] = [[0 if number < 2 else random.randint(1, 4), "add", f"r{number}"] for number in range(3)]
    if len(requests) > len(acts):
        acts.append([random.randint(1, 4), "add", "r3"])
    given_up = random.choice(acts)
    acts.append([given_up[0] + random.randint(1, 3), "abort", given_up[2]])
    if random.random() < 0.5:
        acts.append([random.randint(1, 4), "reset", ""])
    return {
        "config": CONFIG | {"max_num_batched_tokens": BUDGET, "num_blocks": 40},
        "requests": requests,
        "acts": sorted(acts, key=lambda act: act[0]),
    }


def _asked_for(random: Random, sent: list[dict[str, Any]]) -> str:
    """A request with outputs, between whose ADD and last output at least one message is no output."""
    req_ids = sorted({req_id for message in sent if message["type"] == "ADD" for req_id in message["reqs"]})
    mixed = [req_id for req_id in req_ids if set(_between(sent, req_id)) - {"OUTPUTS"}]
    return random.choice(mixed or req_ids)


def _between(sent: list[dict[str, Any]], req_id: str) -> list[str]:
    first, last = _ends(sent, req_id)
    return [message["type"] for message in sent[first + 1 : last + 1]]


def _ends(sent: list[dict[str, Any]], req_id: str) -> tuple[int, int]:
    """The places of a request's ADD and of its last OUTPUTS."""
    places = [place for place, message in enumerate(sent) if req_id in message["reqs"]]
    outputs = [place for place in places if sent[place]["type"] == "OUTPUTS"]
    return places[0], outputs[-1] if outputs else places[0]


def _explain(sent: list[dict[str, Any]], req_id: str) -> str:
    first, last = _ends(sent, req_id)
    return (
        f"B22 core.send of step {sent[last]['step']} is the last OUTPUTS with {req_id}, message {last} of both "
        f"directions together; its ADD is message {first}, both counted from 0. What the caller sends after a message "
        "comes before the OUTPUTS of the step that is planned already; an ABORT takes the token of that step away, an "
        "ADD comes into the plan after it."
    )


def _tell_talk(talk: dict[str, Any], sent: list[dict[str, Any]]) -> list[str]:
    words = {"add": "adds {}", "abort": "gives {} up (ABORT)", "reset": "calls reset_prefix_cache (UTILITY)"}
    acts: dict[int, list[str]] = {}
    for number, what, req_id in talk["acts"]:
        acts.setdefault(number, []).append(words[what].format(req_id))
    lengths = ", ".join(f"{request['id']} {len(request['output'])}" for request in talk["requests"])
    rows = enumerate(sent[:NUM_SHOWN])
    return [
        f"**The conversation.** Caller and core in two processes. Output tokens: {lengths}. Every step computes a "
        "token for each request that runs. The caller",
        "",
        *(f"- {_when(number)} {', then '.join(done)}" for number, done in acts.items()),
        "",
        "The two take turns. After a step the core sends what it brought, plans the next step, and waits. The caller "
        "takes the message in and does what it wants to do then; a call waits until it is answered, and the core "
        "answers when the planned step is done. Then the core computes the planned step: an ABORT that has arrived "
        "takes effect, an ADD comes into the next plan. Acts that are left when nothing runs are done at once. It "
        "begins so:",
        "",
        "| message | by | type | requests |",
        "|---|---|---|---|",
        *(f"| {n} | {m['by']} | {m['type']} | {', '.join(m['reqs'])} |" for n, m in rows),
    ]


def _when(number: int) -> str:
    return f"after it has taken in {number} OUTPUTS" if number else "at first"


def _tell_array(array: tuple[str, tuple[int, ...]]) -> str:
    return f"{array[0]} of shape {array[1]}"


def _tell(value: Any) -> str:
    if isinstance(value, dict):
        return f"SamplingParams({', '.join(f'{name}={number}' for name, number in value.items())})"
    return tell_list(value) if isinstance(value, list) else repr(value)
