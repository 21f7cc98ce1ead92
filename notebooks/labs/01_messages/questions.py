"""Questions of lab 01: the bytes of an ADD, the frames of two arrays, and who reads which queue when."""

from random import Random
from typing import Any

import msgspec
import numpy as np

from minivllm.engine.messages import EngineCoreRequestType
from minivllm.engine.serial import MsgpackEncoder
from minivllm.labs.observe_wire import routed
from minivllm.labs.seeds import Question
from minivllm.labs.wire import message_types
from minivllm.labs.words import tell_list

workload_free = True
TOKEN_RANGES = ((1, 127), (128, 255), (256, 65535), (65536, 151935))  # 1, 2, 3, 5 bytes in msgpack
DTYPES = ("float32", "int64", "int32", "uint8")
KINDS = {kind: kind.value[0] for kind in EngineCoreRequestType}


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """What the questions are about, as Markdown, and the questions with their keys.

    vLLM: none, vLLM has no labs
    """
    random = Random(f"lab 01 {seed}")
    fields = _request(random)
    place, data = _byte(random, fields)
    arrays = [(random.choice(DTYPES), _shape(random)) for _ in range(2)]
    lengths = [len(bytes(frame)) for frame in MsgpackEncoder().encode([np.zeros(s, dtype=d) for d, s in arrays])]
    sent = _messages(random)
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
            "**The messages.** While a step runs, the core's input thread reads, in this order:",
            "",
            *(f"{number}. {kind.name} {payload}" for number, (kind, payload) in enumerate(sent, start=1)),
        ]
    )
    return told, [
        Question(
            "Q1",
            10,
            f"How many bytes has the msgpack frame of your ADD, and which byte has the number {place} in it, counted "
            "from 0? One list: the length, and the byte as two hexadecimal digits.",
            [len(data), f"{data[place]:02x}"],
        ),
        Question("Q2", 15, "Which lengths have the frames of the message with your arrays, in order?", lengths),
        Question(
            "Q3",
            15,
            "The step's model is done. Which ids does the core find in the aborts queue, before it takes the step's "
            "tokens in, in order? And which kinds of messages does it take from the input queue after the step, in "
            "order? One list: the ids, then ADD, ABORT or UTILITY for each message.",
            _read(sent),
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


def _messages(random: Random) -> list[tuple[EngineCoreRequestType, Any]]:
    """ADDs, ABORTs and UTILITY calls; an ABORT names requests that run, or have been added."""
    known, found = ["r0", "r1", "r2"], []
    for number in range(random.randint(4, 6)):
        kind = random.choice((EngineCoreRequestType.ADD, EngineCoreRequestType.ABORT, EngineCoreRequestType.UTILITY))
        if kind is EngineCoreRequestType.ADD:
            known.append(f"r{len(known)}")
            found.append((kind, known[-1]))
        elif kind is EngineCoreRequestType.ABORT:
            found.append((kind, random.sample(known, random.randint(1, 2))))
        else:
            found.append((kind, [number, "reset_prefix_cache", []]))
    return found


def _read(sent: list[tuple[EngineCoreRequestType, Any]]) -> list[str]:
    queues = routed({}, {"messages": [[KINDS[kind], payload] for kind, payload in sent]}, [])
    return [req_id for ids in queues["aborts"] for req_id in ids] + [kind for kind, _ in queues["input"]]


def _tell_array(array: tuple[str, tuple[int, ...]]) -> str:
    return f"{array[0]} of shape {array[1]}"


def _tell(value: Any) -> str:
    if isinstance(value, dict):
        return f"SamplingParams({', '.join(f'{name}={number}' for name, number in value.items())})"
    return tell_list(value) if isinstance(value, list) else repr(value)
