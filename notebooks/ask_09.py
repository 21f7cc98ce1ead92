"""The questions of notebook 09: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.course.notebook.story import Story
from minivllm.lessons.facts_09 import choices, kept
from minivllm.lessons.facts_10 import marked, verdict


def recall_before(nb: Any) -> None:
    """The recall at the beginning."""
    together = Story(nb.trace("together"), "A B C")
    rows, vain = len(together.batch(1).logits_indices), [name for name in "ABC" if together.first_word(name) > 1]
    recall(
        "How many rows reach the head of the model in step 1 of `together`?",
        f"{rows}, the last token of each request. That of {' and '.join(vain)} is in vain: its prompt is not complete.",
    )


def section_2(cold: Any, hot: Any, best: Any) -> None:
    """A prediction of section 2."""
    same = f"{cold[0].raw:.3f}" == f"{hot[0].raw:.3f}" == f"{best[0].raw:.3f}"
    predict(
        f"Does the *reported* probability of {marked(best[0].text)} change with the temperature?",
        f"no, it is {best[0].raw:.3f} each time" if same else "yes",
        {
            "yes": (
                "reports show what was drawn from",
                "Reports are of the raw logits, unless `logprobs_mode` says processed.",
            ),
            "only above one": (
                "below one the order stays, so the report does",
                "Neither side matters: the report is taken before.",
            ),
        },
        right="The report is made of the logits before anything is applied.",
    )


def section_3(nb: Any, best: Any) -> None:
    """A prediction of section 3."""
    half, more = kept(nb.trace("sampler-top-p-0.5")), kept(nb.trace("sampler-top-p-0.55"))
    predict(
        "`top_p=0.5` keeps how many tokens? And `top_p=0.55`?",
        f"{half} and {more}",
        {
            "0 and 1": ("what exceeds p is out", "The smallest set that reaches p counts; the best is always kept."),
            "2 and 2": ("p is not reached until two are in", f"{best[0].raw:.3f} alone already reaches {0.5}."),
        },
        right="A hair's breadth of p doubles the choice.",
        hint="Add the raw probabilities from the top until the sum reaches p.",
    )


def section_5(nb: Any, best: Any) -> None:
    """A prediction of section 5."""
    present = choices(nb.trace("sampler-presence-1"), step=7)
    moved = max(abs(c.processed - c.raw) for c in present)
    predict(
        "`presence_penalty=1.0`: what does it change for these five in step 7?",
        "nothing at all" if moved < 0.001 else "something",
        {
            f"{marked(best[0].text)} drops": (
                "seen is seen",
                "It stands in the question. Presence looks at the output only, and none of the five has been said yet.",
            ),
            "all five drop by one": ("a penalty is a shift of the row", "Only tokens already in the output move."),
        },
        right="`presence` and `frequency` are deaf to the prompt.",
    )


def section_9(alone: Any, company: Any) -> None:
    """A prediction of section 9."""
    equal = verdict(alone).text == verdict(company).text
    predict(
        "A at temperature 1 with seed 0: once alone, once beside two others with seeds 1 and 2. Is it the same text?",
        "yes" if equal else "no",
        {
            "no": (
                "one stream of noise for the whole batch",
                "A seeded request owns a generator that follows its row.",
            ),
            "only if it is the first row": ("row 0 draws first", "The order of the rows plays no part."),
        },
        right="A seed belongs to a request, whatever its company.",
    )


def check_yourself(event: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "Is `temperature=0.001` greedy?",
                f"No. It is raised to {0.01} and drawn: only temperatures below {1e-5:.5f} are greedy.",
            ),
            ("How is a top-k that is off stored?", f"As the size of the vocabulary, {event.logits_shape[1]:,}."),
            (
                "Which knobs can change a greedy answer?",
                "Masks, `min_tokens`, `logit_bias` and penalties: all that comes before the choice.",
            ),
        ]
    )
