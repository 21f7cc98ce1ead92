"""Lab 01: what is asked about messages, and what is expected."""

import struct
from functools import cache
from itertools import zip_longest
from typing import Any

import msgspec

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Outcome, as_sent
from minivllm.course.grader.two_processes import CONFIG, talked
from minivllm.course.grader.words import count, tell_list
from minivllm.engine import messages
from minivllm.engine.messages import EngineCoreRequestType, FinishReason

DECLARED = ("SamplingParams", "EngineCoreRequest", "EngineCoreOutput")
WIDTH = 16  # bytes that are shown
BY_HAND = "a writer of 20 lines, from the engine's fields"
REQUEST = {
    "request_id": "0-9fe85104",
    "prompt_token_ids": [1, 300, 49151],
    "sampling_params": {"temperature": 0.0, "max_tokens": 8},
    "arrival_time": 1.5,
}
ENCODED: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("an ADD", 1, REQUEST),
    ("an ADD with parameters that are all defaults", 1, REQUEST | {"sampling_params": {}}),
    ("an ADD with a priority, and no salt before it", 1, REQUEST | {"priority": 3}),
    ("an ADD with a salt", 1, REQUEST | {"cache_salt": "tenant", "external_req_id": "0"}),
    ("sampling parameters alone", 0, {"top_p": 0.5, "seed": 7, "ignore_eos": True}),
    ("an output", 2, {"request_id": "0-9fe85104", "new_token_ids": [11]}),
    ("a last output", 2, {"request_id": "r", "new_token_ids": [2], "finish_reason": FinishReason.STOP.value}),
    (
        "an output that a stop string has ended",
        2,
        {"request_id": "r", "new_token_ids": [2], "finish_reason": FinishReason.STOP.value, "stop_reason": "end"},
    ),
)
# type, how many fields are sent: the others are filled in; or one more than there are, from a later version
SHORTER = ((1, 4), (1, 5), (2, 2), (2, 5), (1, 8))


def written_by_hand(kind: int, fields: dict[str, Any]) -> list[Any] | dict[str, Any]:
    """What must be on the wire, before msgpack: an array of all fields, or a map of those that are no defaults."""
    if kind == 0:
        return fields
    declared = getattr(messages, DECLARED[kind])
    defaults = dict(zip(reversed(declared.__struct_fields__), reversed(declared.__struct_defaults__), strict=False))
    return [fields[name] if name in fields else defaults[name] for name in declared.__struct_fields__]


def packed(value: Any) -> bytes:
    """msgpack by hand: None, integers from 0 on, floats, texts of less than 256 bytes, lists and maps of at most 15."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            size = next(size for size, bits in ((0, 7), (1, 8), (2, 16), (4, 32), (8, 64)) if value < 1 << bits)
            return bytes([0xCB + size.bit_length()]) * bool(size) + value.to_bytes(size or 1, "big")
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            data = value.encode()
            return bytes([0xA0 + len(data)] if len(data) < 32 else [0xD9, len(data)]) + data
    items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    return bytes([(0x80 if isinstance(value, dict) else 0x90) + len(value)]) + b"".join(map(packed, items))


def check_bytes(ask: Ask) -> Outcome:
    """Bytes of messages, compared with those written by hand."""
    outcome = Outcome()
    inputs = [{"type": kind, "fields": fields} for _, kind, fields in ENCODED]
    answers = ask.student_many("lab01.observe:declared", inputs)
    for (name, kind, fields), answer in zip(ENCODED, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        expected = packed(written_by_hand(kind, fields)).hex(" ")
        told = f"{DECLARED[kind]}({', '.join(f'{key}={value!r}' for key, value in fields.items())})"
        failure = evidence.unit_failure(
            answer, expected, case=name, told=told, size=len(fields), tell=_tell_bytes, says=BY_HAND
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_bytes(expected: str, got: Any) -> tuple[str, str, str]:
    """Where the bytes part, and both from there on."""
    theirs, ours = expected.split(), str(got).split()
    place = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
    start = max(place - 2, 0)
    words = []
    for data in (theirs, ours):
        before, after = "… " if start else "", " …" if len(data) > start + WIDTH else ""
        words.append(f"{count(len(data), 'byte')}, {before}{' '.join(data[start : start + WIDTH])}{after}")
    return f"byte {place}", *words


def check_shorter(ask: Ask) -> Outcome:
    """An older sender leaves fields out at the end, a newer one adds some: both are understood."""
    outcome = Outcome()
    inputs, expected = [], []
    for kind, sent in SHORTER:
        declared = getattr(messages, DECLARED[kind])
        fields = REQUEST if kind == 1 else {"request_id": "r", "new_token_ids": [5]}
        values = [*written_by_hand(kind, fields), "from a later version"][:sent]
        data = msgspec.msgpack.encode(values).hex()
        names = [name for name in declared.__struct_fields__ if name != "sampling_params"]
        inputs.append({"type": kind, "data": data, "names": names})
        full = dict(zip(declared.__struct_fields__, written_by_hand(kind, fields), strict=True))
        expected.append({name: full[name] for name in names})
    answers = ask.student_many("lab01.observe:declared", inputs)
    for (kind, sent), key, answer in zip(SHORTER, expected, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = f"an array of {sent} values, to be decoded as {DECLARED[kind]}"
        outcome.add(
            answer.mark,
            evidence.unit_failure(answer, key, case=f"{sent} fields", told=told, size=10 + sent, tell=_tell_fields),
        )
    return outcome


def _tell_fields(expected: dict[str, Any], got: Any) -> tuple[str, str, str]:
    if not isinstance(got, dict):
        return "", str(expected), str(got)
    name = next((name for name in expected if expected[name] != got.get(name)), "")
    return name, f"{name} = {expected.get(name)!r}", f"{name} = {got.get(name)!r}"


# ---------------------------------------------------------------------- 1.2

FLOATS_63 = {"dtype": "float32", "shape": [63]}
FLOATS_64 = {"dtype": "float32", "shape": [64]}
ARRAYS: tuple[tuple[str, list[list[dict[str, Any]]]], ...] = (
    ("63 floats (252 bytes)", [[FLOATS_63]]),
    ("64 floats (256 bytes)", [[FLOATS_64]]),
    ("300 bytes", [[{"dtype": "uint8", "shape": [300]}]]),
    ("an int64 matrix of 2 rows", [[{"dtype": "int64", "shape": [2, 3]}]]),
    ("an array of no elements", [[{"dtype": "float32", "shape": [0, 4]}]]),
    ("a transposed view, small", [[{"dtype": "int32", "shape": [2, 3], "view": "transposed"}]]),
    ("a transposed view, large", [[{"dtype": "float32", "shape": [20, 10], "view": "transposed"}]]),
    ("every other row", [[{"dtype": "float32", "shape": [60, 4], "view": "every other"}]]),
    (
        "two large arrays and a small one",
        [[FLOATS_64, {"dtype": "int64", "shape": [2, 2]}, {"dtype": "int32", "shape": [100]}]],
    ),
    ("a large array, then a message without one", [[FLOATS_64], [FLOATS_63], []]),
    ("three messages with large arrays", [[FLOATS_64], [{"dtype": "int64", "shape": [40]}], [FLOATS_64, FLOATS_64]]),
)
REFUSED = {
    "object": "object() in a message",
    "complex": "a complex number in a message",
    "extension 1": "extension code 1, which other systems use for pickle, in a message that has arrived",
    "another type": "a message that is to become a complex number",
}


def check_arrays(ask: Ask) -> Outcome:
    """Frames, and what comes back of them; and that no message changes an earlier one."""
    outcome = Outcome()
    inputs = [{"messages": arrays} for _, arrays in ARRAYS]
    for number, answer in enumerate(ask.student_many("lab01.observe:encoded", inputs)):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        name, arrays = ARRAYS[number]
        expected = ask.engine("lab01.observe:encoded", inputs[number])
        failure = evidence.unit_failure(
            answer,
            expected,
            case=name,
            told=_tell_arrays(arrays),
            size=5 * sum(map(len, arrays)) + number,
            tell=_tell_frames,
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_arrays(messages_: list[list[dict[str, Any]]]) -> str:
    told = []
    for arrays in messages_:
        one = [f"{a.get('view', '')} {a['dtype']}{a['shape']}".strip() for a in arrays]
        told.append(f"[{', '.join(one)}]")
    return "one encoder, " + ", then ".join(told)


def _tell_frames(expected: list[Any], got: list[Any]) -> tuple[str, str, str]:
    """The first message that differs: its frames' lengths, its frames, or what came back of it."""
    for number, key in enumerate(expected[:-1]):
        if number >= len(got) or not isinstance(got[number][0], list):
            return f"message {number}", f"frames of {key[0]} bytes", "nothing"
        lengths, frames, arrays = got[number]
        if lengths != key[0]:
            return (
                f"message {number}",
                f"{count(len(key[0]), 'frame')} of {key[0]} bytes",
                f"{count(len(lengths), 'frame')} of {lengths} bytes",
            )
        if frames != key[1]:
            place = next(i for i, pair in enumerate(zip(frames, key[1], strict=True)) if pair[0] != pair[1])
            return f"message {number}, frame {place}", key[1][place], frames[place]
        if arrays != key[2]:
            one, other = _first(key[2], arrays)
            return f"message {number}, decoded", one, other
    return "after the last message", "no earlier frame has changed", f"changed: the frames of messages {got[-1]}"


def _first(expected: list[Any], got: Any) -> tuple[str, str]:
    for key, found in zip(expected, got or [], strict=False):
        if key != found:
            return _brief(key), _brief(found)
    return count(len(expected), "array"), count(len(got or []), "array")


def _brief(array: list[Any]) -> str:
    dtype, shape, values = array
    return f"{dtype} {shape} {values[:6]}{' …' if len(values) > 6 else ''}"


def check_refusals(ask: Ask) -> Outcome:
    """What is no declared type, no array and no known extension must not cross; the message names it."""
    outcome = Outcome()
    answers = ask.student_many("lab01.observe:refused", list(REFUSED))
    for name, answer in zip(REFUSED, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        failure = evidence.unit_failure(
            answer, ["TypeError", True], case=name, told=REFUSED[name], size=30, tell=_tell_refusal
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_refusal(expected: Any, got: Any) -> tuple[str, str, str]:
    found = got[0] if got else "nothing"
    if len(got) > 1 and not got[1]:
        found += ", which does not say what was refused"
    return "", "TypeError that names it", found


# ---------------------------------------------------------------------- 1.3

ADD, ABORT, UTILITY = (kind.value[0] for kind in EngineCoreRequestType if kind is not EngineCoreRequestType.WAKEUP)
FRAMED = (
    ("an ABORT", {"identity": "0000", "type": ABORT, "payload": ["a"]}),
    ("an UTILITY call", {"identity": "0000", "type": UTILITY, "payload": [7, "reset_prefix_cache", []]}),
    ("a large array", {"identity": "0100", "type": ADD, "array": FLOATS_64}),
)
ROUTED: tuple[tuple[str, list[list[Any]]], ...] = (
    ("an ADD", [[ADD, "r0"]]),
    ("an ABORT", [[ABORT, ["a", "b"]]]),
    ("a UTILITY call", [[UTILITY, [7, "reset_prefix_cache", []]]]),
    ("an ADD that no request can be made of", [[ADD, None]]),
    ("a type that there is not", [[9, ["a"]]]),
    ("ADD, ABORT, ADD", [[ADD, "r0"], [ABORT, ["r0"]], [ADD, "r1"]]),
)


def check_frames(ask: Ask) -> Outcome:
    """The frames of a message to the core, in their order."""
    outcome = Outcome()
    answers = ask.student_many("lab01.observe:framed", [asked for _, asked in FRAMED])
    for (name, asked), answer in zip(FRAMED, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        payload = asked.get("payload", "64 floats")
        told = f"identity {asked['identity']}, type {asked['type']:02x}, payload {payload}"
        expected = ask.engine("lab01.observe:framed", asked)
        failure = evidence.unit_failure(answer, expected, case=name, told=told, size=3, tell=_tell_list_of_frames)
        outcome.add(answer.mark, failure)
    return outcome


def _tell_list_of_frames(expected: list[str], got: Any) -> tuple[str, str, str]:
    return "", *(" ".join(f"[{frame}]" for frame in frames) for frames in (expected, got))


def check_routing(ask: Ask) -> Outcome:
    """Where a message goes that the core has got."""
    outcome = Outcome()
    inputs = [{"messages": sent} for _, sent in ROUTED]
    for number, answer in enumerate(ask.student_many("lab01.observe:routed", inputs)):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        name, sent = ROUTED[number]
        told = ", then ".join(f"type {kind:02x} with {payload}" for kind, payload in sent)
        expected = ask.engine("lab01.observe:routed", inputs[number])
        failure = evidence.unit_failure(
            answer, expected, case=name, told=told, size=4 * len(sent) + number, tell=_tell_place
        )
        outcome.add(answer.mark, failure)
    return outcome


PLACES = {
    "input": "input queue",
    "aborts": "aborts queue",
    "returned": "returned",
    "outputs": "outputs queue",
    "calls": "the calls",
    "open": "calls still open",
}


def _tell_place(expected: dict[str, Any], got: Any) -> tuple[str, str, str]:
    name = next((name for name in expected if expected[name] != got.get(name)), "")
    return "", *(f"{PLACES.get(name, name)} {found.get(name)}" for found in (expected, got))


# ---------------------------------------------------------------------- 1.4

DEAD = messages.ENGINE_CORE_DEAD.hex()
LAST_WORDS = (
    ("the last word", [DEAD], True),
    ("an output", [msgspec.msgpack.encode([[], 1.0, None]).hex()], False),
    ("a message with two frames, the first like the last word", [DEAD, "00"], False),
    ("an empty frame", [""], False),
    ("a part of the last word", [DEAD[:-2]], False),
)
ANSWERED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("an output", {"calls": [], "messages": [{"outputs": [["r0", [5]]]}]}),
    ("the answer to a call", {"calls": [7], "messages": [{"call": 7, "result": True}]}),
    ("a call that failed", {"calls": [7], "messages": [{"call": 7, "failure": "reset failed: boom"}]}),
    ("a call that returns nothing", {"calls": [7], "messages": [{"call": 7, "result": None}]}),
    (
        "two calls, answered the other way round, between outputs",
        {
            "calls": [1, 2],
            "messages": [
                {"outputs": [["r0", [5]], ["r1", [6]]]},
                {"call": 2, "result": "second"},
                {"outputs": [["r0", [7]]]},
                {"call": 1, "failure": "first"},
            ],
        },
    ),
    ("an answer while another call waits", {"calls": [1, 2], "messages": [{"call": 2, "result": 0}]}),
)


def check_last_words(ask: Ask) -> Outcome:
    """Whether frames are the core's last word."""
    outcome = Outcome()
    answers = ask.student_many("lab01.observe:told_dead", [frames for _, frames, _ in LAST_WORDS])
    for (name, frames, dead), answer in zip(LAST_WORDS, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = f"frames {frames}"
        outcome.add(answer.mark, evidence.unit_failure(answer, dead, case=name, told=told, size=2))
    return outcome


def check_answers(ask: Ask) -> Outcome:
    """Who gets what the core has said."""
    outcome = Outcome()
    answers = ask.student_many("lab01.observe:answered", [asked for _, asked in ANSWERED])
    for number, answer in enumerate(answers):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        name, asked = ANSWERED[number]
        told = f"calls {asked['calls']} wait; {'; '.join(map(_tell_message, asked['messages']))}"
        expected = ask.engine("lab01.observe:answered", asked)
        failure: Failure | None = evidence.unit_failure(
            answer, expected, case=name, told=told, size=5 + number, tell=_tell_place
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_message(message: dict[str, Any]) -> str:
    if "outputs" in message:
        return f"outputs {message['outputs']}"
    ended = f"failed: {message['failure']}" if "failure" in message else f"returned {message['result']!r}"
    return f"call {message['call']} {ended}"


# ---------------------------------------------------------------------- 1.4: two processes


def _talk(requests: list[tuple[int, int]], acts: list[list[Any]]) -> dict[str, Any]:
    """A conversation about requests with so many tokens of prompt and output."""
    made = [
        {"id": f"r{number}", "prompt": [10 + number] * num_prompt, "output": list(range(num_output))}
        for number, (num_prompt, num_output) in enumerate(requests)
    ]
    return {"config": CONFIG, "requests": made, "acts": acts}


TALKS = (
    ("one request", _talk([(3, 2)], [[0, "add", "r0"]])),
    ("a call while nothing runs", _talk([(3, 1)], [[0, "add", "r0"], [1, "reset", ""]])),
    (
        "three requests, of which one is given up, and a call",
        _talk(
            [(5, 5), (14, 7), (3, 2)],
            [[0, "add", "r0"], [0, "add", "r1"], [2, "add", "r2"], [3, "abort", "r1"], [4, "reset", ""]],
        ),
    ),
)
ACTS = {"add": "ADD {}", "abort": "ABORT {}", "reset": "the call reset_prefix_cache"}


@cache
def expected_talks() -> tuple[dict[str, Any], ...]:
    """What the engine's own parts do with the conversations."""
    return tuple(as_sent(talked({}, case, [])) for _, case in TALKS)


def check_two_processes(ask: Ask) -> Outcome:
    """A caller and a core in two processes, which take turns: what is taken in, and which messages cross, in order."""
    outcome = Outcome()
    answers = ask.student_many("two_processes:talked", [case for _, case in TALKS])
    for number, answer in enumerate(answers):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        name, case = TALKS[number]
        acts = [f"after {count(n, 'message')} {ACTS[what].format(req_id)}" for n, what, req_id in case["acts"]]
        lengths = [f"{one['id']} {len(one['prompt'])} and {len(one['output'])}" for one in case["requests"]]
        told = f"tokens of prompt and output: {', '.join(lengths)}; {', '.join(acts)}"
        failure = evidence.unit_failure(
            answer, expected_talks()[number], case=name, told=told, size=40 + number, tell=_tell_talk
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_talk(expected: dict[str, Any], got: Any) -> tuple[str, str, str]:
    """The first that differs: what was taken in, the answers to calls, the last word, or the messages on the way."""
    if not isinstance(got, dict):
        return "", f"{count(len(expected['taken']), 'message')} taken in", f"{count(len(got), 'message')} taken in"
    name = next((name for name in expected if expected[name] != got[name]), "messages")
    if name not in ("taken", "messages"):
        where = {"calls": "answers to calls", "last_word": "the core's last word"}[name]
        return where, str(expected[name]), str(got[name])
    pairs = list(zip_longest(expected[name], got[name]))
    place = next((number for number, (one, other) in enumerate(pairs) if one != other), 0)
    where = "taken in" if name == "taken" else "crossing"
    words = ["nothing" if one is None else _tell_crossing(one) for one in pairs[place]]
    return f"message {place} {where}", *words


def _tell_crossing(message: Any) -> str:
    if isinstance(message, dict):
        return f"outputs {message}"
    by, kind, req_ids = message
    return f"{kind} {tell_list(req_ids)} of the {by}"


CHECKS = {
    "1.1": (
        Check("bytes", "bytes of messages", 10, check_bytes),
        Check("shorter", "messages of other versions", 5, check_shorter),
    ),
    "1.2": (
        Check("arrays", "arrays and their frames", 14, check_arrays),
        Check("refusals", "what must not cross", 6, check_refusals),
    ),
    "1.3": (
        Check("frames", "frames of a message", 4, check_frames),
        Check("routing", "the queues of the core", 6, check_routing),
    ),
    "1.4": (
        Check("last words", "the core's last word", 3, check_last_words),
        Check("answers", "who gets what", 8, check_answers),
        Check("two processes", "a caller and a core that take turns", 4, check_two_processes),
    ),
}
