"""The questions of notebook 03: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.course.notebook.story import Story


def recall_before() -> None:
    """The recall at the beginning."""
    recall(
        "When does `num_computed_tokens` of a request move: when a step is planned, or when its results come back?",
        "When the step is planned. [Notebook 00](00_map.ipynb) saw it move before the model had run.",
    )


def section_3(nc: Any) -> None:
    """A prediction of section 3."""
    a, b, c = (nc.sent(1)[name] for name in "ABC")
    predict(
        "How many tokens do B and C get in step 1?",
        f"{b} and {c}",
        {
            "0 and 0": (
                "a prompt goes in whole",
                "A prompt may be cut. Only if that is switched off, B waits for step 2.",
            ),
            "22 and 21, and A is cut too": (
                "the budget is shared fairly",
                "First come, first served; only the last one served is cut, at what is left.",
            ),
        },
        right=f"{a} + {b} = {nc.budget}: the budget is spent to the last token.",
        hint=f"B wants {nc.known('B', 1)}, and {nc.budget - a} are left.",
    )


def section_4(nc: Any) -> None:
    """A prediction of section 4."""
    a, b, c = (nc.sent(2)[name] for name in "ABC")
    predict(
        "Step 2: how many tokens do A, B and C get?",
        f"{a}, {b} and {c}",
        {
            f"{a}, {b} and 0": ("who waits, waits", f"{a} + {b} leaves {nc.budget - a - b} of {nc.budget}; C fits."),
            f"0, {b} and {c}": ("A has had its turn", "A wants one token again: the word of step 1 has to be fed."),
        },
        right=f"{a} + {b} + {c} = {a + b + c}, and {nc.plan(2).token_budget[1]} are left over.",
    )


def section_5(nc: Any) -> None:
    """A prediction of section 5."""
    b, c = nc.first_word("B"), nc.first_word("C")
    predict(
        "In which steps do B and C get their first word?",
        f"B in step {b}, C in step {c}",
        {
            "B in step 2, C in step 3": (
                "the queue keeps distance",
                f"B still owed {nc.sent(2)['B']} tokens; C's {nc.sent(2)['C']} fitted beside them.",
            ),
            "B in step 1, C in step 2": (
                "a chunk yields a word",
                "B's last token of step 1 stood in mid-prompt; what is drawn there is dropped.",
            ),
        },
        right="Early in line is not early to speak: the last chunk of a prompt yields the word.",
    )


def section_8(late16: Any) -> None:
    """A prediction of section 8."""
    step = late16.first_step("C")
    a, c = late16.sent(step)["A"], late16.sent(step)["C"]
    predict(
        f"How many tokens does step {step} give A and C?",
        f"A {a}, C {c}",
        {
            f"A 0, C {late16.budget}": (
                "prefill first, decodes wait",
                "Running requests are served before waiting ones; no decode is starved.",
            ),
            f"A {a}, C 0": ("a batch runs to its end", "Continuous batching: the set changes in every step."),
        },
        right="The decode first, and the newcomer gets the rest.",
    )


def section_11(lc: Any) -> None:
    """A prediction of section 11."""
    starts, back, over = lc.first_step("C"), lc.first_step("L"), lc.last_step("A")
    predict(
        "In which step does C start?",
        f"step {starts}",
        {
            f"step 2: {lc.free(2)[0]} blocks are free": (
                "the scheduler looks for whoever fits",
                "A waiting request that does not fit stops the line: no overtaking.",
            ),
            f"step {back}, when A's blocks return": (
                "C follows at once",
                f"L goes first and takes the whole budget of {lc.budget}; then {lc.free(back + 1)[1]} block is left.",
            ),
        },
        right="Blocked by the one in front, then by the budget, then by blocks.",
        hint=f"A ends in step {over}. L then needs two steps for its prompt, and has {len(lc.outputs('L'))} tokens to "
        "say; the second of these steps says the first.",
    )


def check_yourself(nb: Any) -> None:
    """The closing questions."""
    two = Story(nb.trace("threshold-32"), "A V")
    part, first = two.config("long_prefill_token_threshold"), two.sent(1)
    checks(
        [
            (
                f"`long_prefill_token_threshold` is {part}, the budget {two.budget}. A "
                f"({len(two.prompt('A'))} tokens) and V ({len(two.prompt('V'))}) arrive together. Step 1 gives …?",
                f"{first['A']} to A and {first['V']} to V: the threshold cuts A too. A's first word comes in step "
                f"{two.first_word('A')} (trace `threshold-32`, the `schedule` of step 1).",
            ),
            (
                "Why is no decode ever starved by prompts?",
                "Running requests have their turn before waiting ones: pass one comes before pass two.",
            ),
            (
                "Why does an engine refuse to start with fewer tokens of budget than seats?",
                "If every seat is taken and all decode, each wants one token a step. With a smaller budget the last "
                "of them would get none (`minivllm/config.py`, `_check_budget`).",
            ),
        ]
    )
