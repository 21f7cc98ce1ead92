"""Questions of lab 12: what is shown, what is held back, and what is computed in vain in two processes."""

from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question
from minivllm.course.grader.two_processes import CONFIG, Conversation, converse
from minivllm.course.grader.words import tell_list
from minivllm.lessons.lab12 import observe as observe_text

workload_free = True
LETTERS = "abc"
MAX_TRIES = 500
NUM_SHOWN = 2  # steps of the trace


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The requests as Markdown, and the questions with their keys."""
    random = Random(f"lab 12 {seed}")
    streamed = _draw(random, _make_streamed, _is_streamed)
    steps = observe_text.detokenized({}, streamed, [])["delta"]
    shown = [text for _, text in steps]
    held = [len("".join(_texts(streamed)[: index + 1])) - len(text) for index, text in enumerate(shown[:-1])]
    moment = random.choice([index for index, text in enumerate(shown[:-1]) if index > 1 and text])
    late = _draw(random, _make_late, _is_late)
    told = converse(_conversation(late), {})
    last, vain = _last_steps(told), _vain(told)
    return _told(streamed, late, told), [
        Question(
            "Q1",
            10,
            f"Request s: which text has been shown in all after token {moment}, if as much is held back as in vLLM, "
            "by the length of the stop strings alone? Tokens are counted from 0.",
            shown[moment],
            f"`get_next_output_text` after token {moment}: all of the text but the last {held[moment]} characters.",
        ),
        Question(
            "Q2",
            15,
            f"Request s: how many characters are held back after each of the tokens 0 to {len(held) - 1}? "
            f"A list of {len(held)} numbers.",
            held,
            "`stop_buffer_length`: the longest stop string's length less one, or all that there is, if that is less.",
            True,
        ),
        Question(
            "Q3",
            15,
            "Caller and core in two processes: in which step does the core compute its last token for each of "
            f"{', '.join(last)}, whether anybody gets it or not? And how many of all the tokens that it computes does "
            f"no caller get? A list of {len(last) + 1} numbers.",
            [*last.values(), vain],
            _explain(told, last),
            True,
        ),
    ]


def _draw(random: Random, make: Any, interesting: Any) -> dict[str, Any]:
    for _ in range(MAX_TRIES):
        made = make(random)
        if interesting(made):
            return made
    raise RuntimeError(f"nothing of interest in {MAX_TRIES}")


def _make_request(random: Random, num_tokens: int, stop: list[str]) -> dict[str, Any]:
    pieces = ["".join(random.choice(LETTERS) for _ in range(random.randint(1, 3))) for _ in range(num_tokens)]
    return {
        "pieces": [piece.encode() for piece in pieces],
        "groups": [1] * num_tokens,
        "stop": stop,
        "min_tokens": 0,
        "include": False,
        "core": None,
    }


def _words(random: Random, lengths: tuple[int, ...]) -> list[str]:
    return ["".join(random.choice(LETTERS) for _ in range(length)) for length in lengths]


def _make_streamed(random: Random) -> dict[str, Any]:
    return _make_request(random, random.randint(7, 9), _words(random, random.choice(((4,), (5,), (4, 6), (6, 5)))))


def _is_streamed(request: dict[str, Any]) -> bool:
    """It goes on to the end, or almost, and something is shown before."""
    steps = observe_text.detokenized({}, request, [])["delta"]
    return len(steps) >= len(request["pieces"]) - 1 and steps[-2][1] != ""


# ---------------------------------------------------------------------- the conversation


def _make_late(random: Random) -> dict[str, Any]:
    requests = []
    for number in range(4):
        request = _make_request(random, random.randint(4, 9), _words(random, random.choice(((2,), (3,), (3, 3)))))
        requests.append(request | {"id": f"r{number}", "prompt": [0] * random.randint(2, 6)})
    return {"requests": requests, "added": [0, 0, random.randint(1, 3), random.randint(1, 3)]}


def _is_late(late: dict[str, Any]) -> bool:
    """Two or three of the four end by a stop string, before their last token."""
    ends = [len(observe_text.detokenized({}, request, [])["whole"]) for request in late["requests"]]
    by_string = [end < len(request["pieces"]) for end, request in zip(ends, late["requests"], strict=True)]
    return sum(by_string) in (2, 3)


def _conversation(late: dict[str, Any]) -> dict[str, Any]:
    """The requests as a case of two_processes.py: a number for every piece."""
    pieces: dict[int, bytes] = {0: b"a"}
    requests = []
    for request in late["requests"]:
        output = list(range(len(pieces), len(pieces) + len(request["pieces"])))
        pieces |= dict(zip(output, request["pieces"], strict=True))
        requests.append({"id": request["id"], "prompt": request["prompt"], "output": output, "stop": request["stop"]})
    acts = [[when, "add", request["id"]] for when, request in zip(late["added"], requests, strict=True)]
    config = CONFIG | {"max_num_batched_tokens": 64, "num_blocks": 60}
    return {"config": config, "requests": requests, "pieces": pieces, "acts": sorted(acts, key=lambda act: act[0])}


def _planned(told: Conversation) -> dict[int, list[str]]:
    """Step -> who gets a token in it. Prompts are not cut into chunks, so all who are planned get one."""
    return {event.step: list(event.num_scheduled_tokens) for event in told.trace.filter(kind="schedule")}


def _last_steps(told: Conversation) -> dict[str, int]:
    last = {req_id: step for step, req_ids in sorted(_planned(told).items()) for req_id in req_ids}
    return dict(sorted(last.items()))


def _vain(told: Conversation) -> int:
    """Tokens that were computed, less those that the caller has taken in."""
    return sum(map(len, _planned(told).values())) - sum(len(ids) for taken in told.taken for ids in taken.values())


def _explain(told: Conversation, last: dict[str, int]) -> str:
    ends = {event.reqs[0]: event.step for event in told.trace.filter(kind="detokenize")}
    late = [
        f"{r} (B25 in the message of step {ends[r]}, last planned in step {last[r]})" for r in last if last[r] > ends[r]
    ]
    return (
        "B25 detokenize and B26 finish_requests. The core has planned the next step when the caller finds the stop "
        f"string, and an abort takes effect at the end of that step: {', '.join(late)}. A request that ends by its "
        "length is in no later plan."
    )


# ---------------------------------------------------------------------- words


def _texts(request: dict[str, Any]) -> list[str]:
    return [piece.decode() for piece in request["pieces"]]


def _told(streamed: dict[str, Any], late: dict[str, Any], told: Conversation) -> str:
    rows = [("s", streamed), *((request["id"], request) for request in late["requests"])]
    lines = [
        "## Your requests",
        "",
        "Each piece is the text of one token. Without a stop string a request ends with its last token, by its length.",
        "`include_stop_str_in_output` is off, `min_tokens` is 0.",
        "",
        "| request | pieces | stop strings |",
        "|---|---|---|",
    ]
    for name, request in rows:
        stop = " ".join(f"`{one}`" for one in request["stop"])
        lines.append(f"| {name} | {' '.join(f'`{text}`' for text in _texts(request))} | {stop} |")
    added = [f"r{number} after message {when}" for number, when in enumerate(late["added"]) if when]
    return "\n".join(
        [
            *lines,
            "",
            "**Two processes.** r0 to r3 are sent to a core in another process, where each gets a token in every step. "
            f"r0 and r1 are there before step 1; the caller adds {' and '.join(added)} (messages are counted from 1: "
            "each step's tokens are one). The two take turns: the core sends what a step brought, plans the next step, "
            "and waits; the caller takes the message in, aborts whom a stop string has ended, adds whom it wants to "
            "add; then the core computes the planned step. An abort takes effect at the end of that step, an added "
            "request comes into the plan after it. It begins so:",
            "",
            "| step | planned for | the caller takes in |",
            "|---|---|---|",
            *_steps_shown(told),
        ]
    )


def _steps_shown(told: Conversation) -> list[str]:
    planned = list(_planned(told).items())[:NUM_SHOWN]
    return [
        f"| {step} | {', '.join(req_ids)} | tokens of {tell_list(list(taken))} |"
        for (step, req_ids), taken in zip(planned, told.taken, strict=False)
    ]
