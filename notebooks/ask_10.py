"""The questions of notebook 10: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons.facts_10 import marked


def recall_before() -> None:
    """The recall at the beginning."""
    recall("Does text cross the process boundary?", "No. Only token ids cross it; words are made on the caller's side.")


def section_2(chopped: Any) -> None:
    """A prediction of section 2."""
    held = max(len(g.held) for g in chopped)
    predict(
        'A runs with `stop=["Paris"]`. How many characters are held back while it runs?',
        held,
        {
            0: (
                "delay is transport",
                "The missing text is not in the socket. It is on the caller's side already, and kept.",
            ),
            len("Paris"): (
                "a whole match must fit",
                "If all of them were there, it would have matched; one less can still become one.",
            ),
        },
        right="The length of the longest stop string minus one.",
        hint="Which characters could still be the beginning of a stop string?",
    )


def section_3(ids: Any, plain: Any, cut: Any) -> None:
    """A prediction of section 3."""
    predict(
        f"Token {ids[-1]}, {marked(plain[5].piece)}, completed the match. Is it among the answer's `token_ids`?",
        "yes; only the text is cut" if cut.num_output_tokens == len(ids) else "no",
        {
            "no, it is cut off with the text": (
                "ids and text are two views of one thing",
                "The ids say what was sampled, the text says what you asked to see.",
            ),
            "yes, and its first letters stay in the text": (
                "texts are cut between tokens",
                f"The cut is at a character: the text is {marked(cut.text)}, with the blank that belongs to "
                "this token.",
            ),
        },
        right="So decoding the ids does not give the text.",
    )


def section_5(smiley: Any) -> None:
    """A prediction of section 5."""
    whole = next(place for place, g in enumerate(smiley, 1) if g.piece)
    predict(
        f"The first character of E's answer is made of {whole} tokens. What is the text after two of them?",
        "nothing" if not any(g.shown for g in smiley[:2]) else "something",
        {
            "��": ("show what you have", "Half a character is not text. The decoder waits for the rest."),
            "an error": ("bytes must be valid", "They are, one token later: they are the beginning of a character."),
        },
        right="The bytes are kept until they are a whole character.",
    )


def section_6(both: Any) -> None:
    """A prediction of section 6."""
    predict(
        '`max_tokens=6` and `stop=["Paris"]`, and `␣Paris` is the sixth token. What is the finish reason?',
        f"{both.finish_reason}, with stop reason {both.stop_reason}",
        {
            "length": (
                "the core has the last word",
                "The core did say length. The caller found the string, and overrules it.",
            ),
            "both": ("reasons add up", "There is one reason, and it is the caller's."),
        },
        right="And no abort is needed, because the core had finished by itself.",
    )


def section_7(guarded: Any) -> None:
    """A prediction of section 7."""
    predict(
        '`stop=["Paris"]` and `min_tokens=6`, and `␣Paris` is the sixth token. Where does A end?',
        f"at the end token, after {guarded.text[-5:]}",
        {
            "at Paris": ("six are enough", "Strings are looked for only beyond `min_tokens`, in what is new there."),
            "at the second Paris": ("the rule waits for the next one", "There is none in this answer."),
        },
        right="A match inside the protected part is never found later.",
    )


def check_yourself() -> None:
    """The closing questions."""
    longer = ["Paris", "and the capital"]
    checks(
        [
            (
                "Why does a stop string cost an extra step across processes?",
                "The core plans the next step before the caller has read the token that completes the string "
                "(section 8).",
            ),
            (
                "`skip_special_tokens=False`: does `<|im_end|>` appear in A's text?",
                "No. A token that ends the request in the core is not decoded (section 4).",
            ),
            (
                f"`stop={longer}`: how many characters are held back?",
                f"{max(map(len, longer)) - 1}: the longer one counts (section 2).",
            ),
        ]
    )
