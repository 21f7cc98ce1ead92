"""Lab 12: what is asked about streamed text and stop strings, and what is expected."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Outcome
from minivllm.course.grader.words import tell_list
from minivllm.lessons.lab12.texts import recorded_texts

Case = dict[str, Any]
NUM_RANDOM = 300
CHARACTERS = "aab é水😀"
LETTERS = "aab"
RULE = "the rules of the docstring, on the whole text"

# ---------------------------------------------------------------------- 12.1 whole characters


@cache
def streams() -> tuple[Case, ...]:
    """Outputs as bytes, the smallest first; some prompts end within a character. All of it is valid UTF-8."""
    random = Random("lab 12.1")
    found: list[Case] = [
        {"prompt": [], "output": [b"a"]},
        {"prompt": [], "output": [b"\xc3", b"\xa9"]},
        {"prompt": [b"\xc3"], "output": [b"\xa9"]},
        {"prompt": [b"a"], "output": [b"b"]},
        {"prompt": [], "output": [b"a\xc3", b"\xa9b"]},
        {"prompt": [], "output": [b"\xf0", b"\x9f", b"\x98", b"\x80"]},
        {"prompt": [b"a", b"\xf0\x9f"], "output": [b"\x98", b"\x80b"]},
        {"prompt": [], "output": [b"a", b"\xe6\xb0"]},
    ]
    for _ in range(60):
        text = "".join(random.choice(CHARACTERS) for _ in range(random.randint(1, 6))).encode()
        tokens, start = [], 0
        while start < len(text):
            length = random.randint(1, 3)
            tokens.append(text[start : start + length])
            start += length
        num_prompt = random.randrange(len(tokens))
        found.append({"prompt": tokens[:num_prompt], "output": tokens[num_prompt:]})
    return tuple(found)


def check_streams(ask: Ask) -> Outcome:
    """Each token says the characters that it completes, and nothing else."""

    def told(case: Case) -> str:
        prompt = f"after a prompt that ends with the bytes {case['prompt'][-1].hex(' ')}; " if case["prompt"] else ""
        return f"{prompt}tokens with the bytes {', '.join(piece.hex(' ') for piece in case['output'])}"

    def tell(expected: list[str], got: list[str]) -> tuple[str, str, str]:
        pairs = enumerate(zip(expected, got, strict=False))
        place = next((i for i, (one, other) in pairs if one != other), min(len(expected), len(got)))
        return f"token {place}", _tell_texts(expected), _tell_texts(got)

    return _compare(ask, "lab12.observe:streamed", streams(), told, tell)


def _tell_texts(texts: list[str]) -> str:
    return tell_list([repr(text) for text in texts])


def _compare(
    ask: Ask, name: str, cases: tuple[Case, ...], told: Callable[[Case], str], tell: Callable[[Any, Any], Any]
) -> Outcome:
    """All cases, each against what the engine's own part gives."""
    outcome = Outcome()
    for case, answer in zip(cases, ask.student_many(name, list(cases)), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        expected = ask.engine(name, case)
        failure = evidence.unit_failure(
            answer, expected, case="a small case", told=told(case), size=len(told(case)), tell=tell
        )
        outcome.add(answer.mark, failure)
    return outcome


# ---------------------------------------------------------------------- 12.2 stop strings


@cache
def searches() -> tuple[Case, ...]:
    """Texts of which the last characters are new, with stop strings."""
    random = Random("lab 12.2")
    table = [
        ("a", 1, ["a"], False),
        ("a", 1, ["a"], True),
        ("aa", 2, ["a"], False),
        ("aa", 2, ["a"], True),
        ("aa", 1, ["a"], False),
        ("aa", 1, ["aa"], False),
        ("ab", 2, ["b", "ab"], False),
        ("aé", 2, ["é", "a"], False),
        ("ab", 0, ["b"], False),
        ("😀a", 1, ["😀a"], False),
    ]
    for _ in range(NUM_RANDOM):
        text = "".join(random.choice(LETTERS) for _ in range(random.randint(1, 6)))
        stop = ["".join(random.choice(LETTERS) for _ in range(random.randint(1, 3))) for _ in range(2)]
        table.append((text, random.randint(0, len(text)), stop[: random.randint(1, 2)], random.random() < 0.4))
    return tuple({"text": text, "new": new, "stop": stop, "include": include} for text, new, stop, include in table)


def check_searches(ask: Ask) -> Outcome:
    """The right stop string, and the right place to cut."""

    def told(case: Case) -> str:
        kept = ", include_in_output" if case["include"] else ""
        return f"text {case['text']!r}, of which {case['new']} new, stop {_tell_stop(case['stop'])}{kept}"

    def tell(expected: Any, got: Any) -> tuple[str, str, str]:
        return "", _tell_found(expected), _tell_found(got)

    return _compare(ask, "lab12.observe:searched", searches(), told, tell)


def _tell_stop(stop: list[str]) -> str:
    return ", ".join(repr(one) for one in stop) or "none"


def _tell_found(found: Any) -> str:
    return "no stop string" if not found else f"{found[0]!r}, then a text of {found[1]} characters"


# ---------------------------------------------------------------------- 12.3 text so far


@cache
def requests() -> tuple[Case, ...]:
    """Single requests: tokens, stop strings, and whether the core ends them at a stop token."""
    random = Random("lab 12.3")
    table: list[tuple[list[bytes], list[str], int, bool, str | None]] = [
        ([b"a"], [], 0, False, None),
        ([b"a", b"a"], [], 0, False, None),
        ([b"a"], [], 0, False, "stop"),
        ([b"a"], [], 0, True, "stop"),
        ([b"a"], ["a"], 0, False, None),
        ([b"a"], ["a"], 0, True, None),
        ([b"aa"], ["a"], 0, True, None),
        ([b"b"], ["a"], 0, False, None),
        ([b"a", b"a"], ["aa"], 0, False, None),
        ([b"a"], ["aa"], 0, True, None),
        ([b"baa"], ["aa"], 0, False, None),
        ([b"a", b"a"], ["a"], 1, False, None),
        ([b"a", b"b", b"a"], ["a"], 1, False, None),
        ([b"a", b"a", b"b"], ["c", "aab"], 0, False, None),
        ([b"aa", b"a"], ["ac"], 0, False, None),
        ([b"\xf0", b"\x9f", b"\x98", b"\x80", b"a"], ["😀a"], 0, False, None),
        ([b"a", b"b"], ["b", "a"], 0, False, None),
        ([b"a", b"b"], ["b", "a"], 0, False, None),  # at once
    ]
    for _ in range(NUM_RANDOM):
        text = "".join(random.choice(LETTERS + "é") for _ in range(random.randint(2, 7))).encode()
        pieces, start = [], 0
        while start < len(text):
            length = random.randint(1, 2)
            pieces.append(text[start : start + length])
            start += length
        stop = ["".join(random.choice(LETTERS) for _ in range(random.randint(1, 3))) for _ in range(2)]
        core = random.choice((None, None, "stop"))
        table.append((pieces, stop[: random.randint(0, 2)], random.choice((0, 0, 1, 2)), random.random() < 0.3, core))
    found = []
    for index, (pieces, stop, min_tokens, include, core) in enumerate(table):
        together = index % 6 == 5 and len(pieces) > 1 and not min_tokens
        groups = [2, *[1] * (len(pieces) - 2)] if together else [1] * len(pieces)
        found.append(
            {
                "pieces": pieces,
                "groups": groups,
                "stop": stop,
                "min_tokens": min_tokens,
                "include": include,
                "core": core,
            }
        )
    return tuple(found)


def expected_end(case: Case) -> dict[str, Any]:
    """How a request ends, by looking at whole texts: what `update` returns for each group of tokens, then the text and
    the number of tokens.

    A stop string counts from the token after the first `min_tokens` on, and must end in text that is new and no text of
    those; the first of the list wins, at its first place.
    """
    returned: list[str | None] = []
    text, done = "", 0
    for size in case["groups"]:
        old, done = done, done + size
        hides_last = case["core"] == "stop" and done == len(case["pieces"]) and not case["include"]
        text = _text_of(case, done - hides_last)
        searched = len(_text_of(case, max(old, min(done, case["min_tokens"]))))
        found = _first_stop(text, searched, case["stop"]) if done > case["min_tokens"] else None
        returned.append(found and found[0])
        if found is not None:
            stop, place = found
            text = text[: place + len(stop)] if case["include"] else text[:place]
            break
    return {"returned": returned, "text": text, "num_tokens": done}


def _text_of(case: Case, num_tokens: int) -> str:
    """The characters that are whole after so many tokens."""
    return b"".join(case["pieces"][:num_tokens]).decode(errors="ignore")


def _first_stop(text: str, searched: int, stop: list[str]) -> tuple[str, int] | None:
    for one in stop:
        for place in range(len(text) - len(one) + 1):
            if text.startswith(one, place) and place + len(one) > searched:
                return one, place
    return None


def check_requests(ask: Ask) -> Outcome:
    """Text and ids in the end, what stopped it, and what was shown on the way: never too much, never too little."""
    outcome = Outcome()
    name = "lab12.observe:detokenized"
    for case, answer in zip(requests(), ask.student_many(name, list(requests())), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = _tell_request(case)
        failure = None
        if answer.error is not None:
            failure = evidence.error_failure(answer.error, "a request", told, len(told))
            failure.expected = f"the text {expected_end(case)['text']!r}"
        else:
            difference = _difference(case, expected_end(case), answer.value)
            if difference is not None:
                where, expected, got = difference
                failure = Failure("decision", "a request", len(told), told, expected, got, where=where, says=RULE)
        outcome.add(answer.mark, failure)
    return outcome


def _tell_request(case: Case) -> str:
    pieces = [_tell_piece(piece) for piece in case["pieces"]]
    words = [f"tokens {' '.join(pieces)}", f"stop {_tell_stop(case['stop'])}"]
    if 2 in case["groups"]:
        words.append("the first two tokens at once")
    if case["min_tokens"]:
        words.append(f"min_tokens {case['min_tokens']}")
    if case["include"]:
        words.append("include_stop_str_in_output")
    if case["core"] == "stop":
        words.append("the core stops at the last token")
    return ", ".join(words)


def _tell_piece(piece: bytes) -> str:
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return f"<{piece.hex(' ')}>"


def _difference(case: Case, wanted: dict[str, Any], found: dict[str, Any]) -> tuple[str, str, str] | None:
    """Where a run is wrong, what is expected and what came; None: it is right.

    What is shown on the way may be less than what the engine shows, never less than the rule allows.
    """
    final, returned = wanted["text"], wanted["returned"]
    hold = max(map(len, case["stop"])) - 1 if case["stop"] and not case["include"] else 0
    for mode in ("whole", "delta"):
        done = 0
        for index, size in enumerate(case["groups"]):
            if index >= len(returned) and index >= len(found[mode]):
                break
            done += size
            where = f"after token {done - 1}" + (", shown piece by piece" if mode == "delta" else "")
            if index >= len(returned) or index >= len(found[mode]) or found[mode][index][0] != returned[index]:
                theirs = [stop_string for stop_string, _ in found[mode]]
                return where, *(_tell_returned(one, index) for one in (returned, theirs))
            ended = index == len(returned) - 1
            shown = found[mode][index][1]
            if ended and shown != final:
                return where, f"the text {final!r}", f"{shown!r}"
            if not final.startswith(shown):
                why = f"nothing beyond the final text {final!r}"
                return where, why, f"{shown!r} is shown, and can't be taken back"
            text = _text_of(case, done)
            if not ended and len(shown) < len(text) - hold:
                return where, f"at most {hold} of the characters {text!r} held back", f"{shown!r} is shown"
    token_ids = list(range(wanted["num_tokens"]))
    if token_ids != found["token_ids"]:
        return "at the end", f"token_ids {tell_list(token_ids)}", f"{tell_list(found['token_ids'])}"
    return None


def _tell_returned(returned: list[str | None], index: int) -> str:
    return f"returns {returned[index]!r}" if index < len(returned) else "has ended before"


# ---------------------------------------------------------------------- 12.4 the end


@cache
def messages() -> tuple[Case, ...]:
    """A core's messages about one to three requests. It does not know of stop strings, and goes on."""
    random = Random("lab 12.4")
    found = []
    for index in range(NUM_RANDOM // 2):
        requests, ends = [], {}
        for number in range(1 if index < 30 else random.randint(1, 3)):
            pieces = [random.choice(("a", "b", "ab", "é")).encode() for _ in range(random.randint(1, 2 + index // 20))]
            request = {
                "id": f"r{number}",
                "pieces": pieces,
                "stop": random.sample(["a", "b", "ab", "ba"], random.choice((0, 1, 1, 2))),
                "include": random.random() < 0.2,
                "min_tokens": 0,
                "only_final": random.random() < 0.3,
            }
            requests.append(request)
            ends[request["id"]] = random.choice((("length", None), ("stop", None), ("stop", 7)))
        found.append({"requests": requests, "messages": _messages_of(requests, ends)})
    return tuple(found)


def _messages_of(requests: list[Case], ends: dict[str, tuple[str, int | None]]) -> list[list[Case]]:
    sent = []
    for token in range(max(len(request["pieces"]) for request in requests)):
        message = []
        for request in requests:
            if token < len(request["pieces"]):
                last = token == len(request["pieces"]) - 1
                finish, reason = ends[request["id"]] if last else (None, None)
                message.append({"id": request["id"], "token": token, "finish": finish, "stop_reason": reason})
        sent.append(message)
    return sent


def check_messages(ask: Ask) -> Outcome:
    """After each message: what the caller gets, whom the core must abort, who is still open."""
    return _compare(ask, "lab12.observe:processed", messages(), _tell_messages, _tell_processed)


def _tell_messages(case: Case) -> str:
    words = []
    for request in case["requests"]:
        (last,) = [one for message in case["messages"] for one in message if one["id"] == request["id"]][-1:]
        reason = "" if last["stop_reason"] is None else f", stop_reason {last['stop_reason']}"
        pieces = " ".join(_tell_piece(piece) for piece in request["pieces"])
        kept = ", include_stop_str_in_output" if request["include"] else ""
        final = ", only the end is wanted" if request["only_final"] else ""
        words.append(
            f"{request['id']} tokens {pieces}, stop {_tell_stop(request['stop'])}{kept}{final}; "
            f"the core ends it with the last token ({last['finish']}{reason})"
        )
    return "; ".join(words)


def _tell_processed(expected: list[Any], got: list[Any] | None) -> tuple[str, str, str]:
    for number, (wanted, found) in enumerate(zip(expected, got or [], strict=False)):
        if wanted != found:
            key = next(key for key in ("outputs", "abort", "open") if wanted[key] != found[key])
            return f"message {number}", _tell_part(key, wanted[key]), _tell_part(key, found[key])
    return "at the end", f"{len(expected)} messages taken in", f"{len(got or [])}"


def _tell_part(key: str, value: list[Any]) -> str:
    if key == "abort":
        return f"reqs_to_abort {tell_list(value)}"
    if key == "open":
        return f"open requests {tell_list(value)}"
    if not value:
        return "no output"
    return ", ".join(
        f"{one['id']} {one['text']!r}, token_ids {tell_list(one['tokens'])}"
        + (f", ended ({one['finish_reason']}, stop_reason {one['stop_reason']!r})" if one["finished"] else ", goes on")
        for one in value
    )


def check_recorded(ask: Ask) -> Outcome:
    """Requests of the real vLLM, token by token: text, ids and reasons are those that it gave its caller."""
    outcome = Outcome()
    for recorded in recorded_texts():
        case = _case_of(recorded)
        answer = ask.student("lab12.observe:processed", case)
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = f"{recorded['name']}: {len(recorded['output_bytes'])} tokens, {_tell_sampling(recorded['sampling'])}"
        size, failure = 300 + len(case["messages"]), None
        expected = {key: recorded[key] for key in ("text", "finish_reason", "stop_reason")}
        if answer.error is not None:
            failure = evidence.error_failure(answer.error, "recorded", told, size)
            failure.expected, failure.says = _tell_end(expected), evidence.RECORDED
        else:
            last = [output for message in answer.value for output in message["outputs"] if output["finished"]]
            found = {key: last[-1][key] for key in expected} if last else None
            aborted = [req_id for message in answer.value for req_id in message["abort"]]
            by_string = isinstance(recorded["stop_reason"], str)
            if found != expected:
                got = "it never ends" if found is None else _tell_end(found)
                failure = Failure("decision", "recorded", size, told, _tell_end(expected), got, says=evidence.RECORDED)
            elif aborted != ["r0"] * by_string:
                wanted, got = (f"reqs_to_abort {tell_list(ids)}" for ids in (["r0"] * by_string, aborted))
                failure = Failure("decision", "recorded", size, told, wanted, got, says=evidence.RECORDED)
        outcome.add(answer.mark, failure)
    return outcome


def _case_of(recorded: Case) -> Case:
    sampling, pieces = recorded["sampling"], [bytes.fromhex(piece) for piece in recorded["output_bytes"]]
    request = {
        "id": "r0",
        "pieces": pieces,
        "stop": sampling.get("stop", []),
        "include": sampling.get("include_stop_str_in_output", False),
        "min_tokens": sampling.get("min_tokens", 0),
        "only_final": True,
    }
    by_string = isinstance(recorded["stop_reason"], str)
    end = (None, None) if by_string else (recorded["finish_reason"], recorded["stop_reason"])
    return {"requests": [request], "messages": _messages_of([request], {"r0": end})}


def _tell_sampling(sampling: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sampling.items()) or "no stop strings"


def _tell_end(end: dict[str, Any]) -> str:
    return f"a text that ends with {end['text'][-24:]!r} ({end['finish_reason']}, stop_reason {end['stop_reason']!r})"


CHECKS = {
    "12.1": (Check("bytes", "outputs of a few tokens", 10, check_streams),),
    "12.2": (Check("search", "short texts", 15, check_searches),),
    "12.3": (Check("requests", "single requests", 20, check_requests),),
    "12.4": (
        Check("messages", "messages of the core", 10, check_messages),
        Check("recorded", "requests recorded from vLLM", 5, check_recorded),
    ),
}
