"""Questions of lab 12: what is shown, what is held back, and who ends when. They are about text, not a workload."""

from random import Random
from typing import Any

from minivllm.labs import observe_text
from minivllm.labs.seeds import Question

workload_free = True
LETTERS = "abc"
MAX_TRIES = 500


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The requests as Markdown, and the questions with their keys.

    vLLM: none, vLLM has no labs
    """
    random = Random(f"lab 12 {seed}")
    streamed = _draw(random, _make_streamed, _is_streamed)
    steps = observe_text.detokenized({}, streamed, [])["delta"]
    shown = [text for _, text in steps]
    held = [len("".join(_texts(streamed)[: index + 1])) - len(text) for index, text in enumerate(shown[:-1])]
    moment = random.choice([index for index, text in enumerate(shown[:-1]) if index > 1 and text])
    late = _draw(random, _make_late, _is_late)
    ends, aborted = _ends(late)
    lag = random.choice((1, 2, 3))
    vain = sum(min(lag, len(late["requests"][number]["pieces"]) - 1 - ends[number]) for number in aborted)
    return _told(streamed, late), [
        Question(
            "Q1",
            10,
            f"Request s: which text has been shown in all after token {moment}, if as much is held back as in vLLM, "
            "by the length of the stop strings alone? Tokens are counted from 0.",
            shown[moment],
        ),
        Question(
            "Q2",
            15,
            f"Request s: how many characters are held back after each of the tokens 0 to {len(held) - 1}? "
            f"A list of {len(held)} numbers.",
            held,
        ),
        Question(
            "Q3",
            15,
            "Requests r0 to r3 run side by side, one token each in a step. With which token does each of them end for "
            f"its caller? And if an abort reaches the core so late that it computes {lag} more "
            f"token{'s' if lag > 1 else ''} of the request, where there are any: how many tokens does it compute in "
            "vain, of all four together? A list of five numbers.",
            [*ends, vain],
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


def _make_late(random: Random) -> dict[str, Any]:
    requests = []
    for number in range(4):
        request = _make_request(random, random.randint(4, 9), _words(random, random.choice(((2,), (3,), (3, 3)))))
        requests.append(request | {"id": f"r{number}", "only_final": True})
    return {"requests": requests}


def _is_late(late: dict[str, Any]) -> bool:
    """Two or three of the four end by a stop string, before their last token."""
    return len(_ends(late)[1]) in (2, 3)


def _ends(late: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The token with which each request ends; and those that the core does not end itself."""
    ends = [len(observe_text.detokenized({}, request, [])["whole"]) - 1 for request in late["requests"]]
    aborted = [number for number, end in enumerate(ends) if end < len(late["requests"][number]["pieces"]) - 1]
    return ends, aborted


def _texts(request: dict[str, Any]) -> list[str]:
    return [piece.decode() for piece in request["pieces"]]


def _told(streamed: dict[str, Any], late: dict[str, Any]) -> str:
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
    return "\n".join(lines)
