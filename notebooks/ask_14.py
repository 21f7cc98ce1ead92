"""The questions of notebook 14: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.course.notebook.story import Story
from minivllm.lessons import facts_14 as facts


def recall_before(nb: Any) -> None:
    """The recall at the beginning."""
    late16 = Story(nb.trace("late16-nc"), "A C")
    recall(
        f"Budget {late16.budget}; A decodes, C has just arrived with {len(late16.prompt('C'))} tokens. Who is served "
        f"first in step 5?",
        f"The decode: A {late16.sent(5)['A']}, then C {late16.sent(5)['C']}. [Notebook 03](03_scheduler.ipynb), "
        f"section 8.",
    )


def section_1(longer: Any, free: Any) -> None:
    """A prediction of section 1."""
    predict(
        "How much longer is a decode step of sixteen copies?",
        f"{longer[16]:.1f} times",
        wrong={
            "16 times": "Sixteen times the arithmetic, but the weights are read once for all sixteen.",
            "the same": f"Up to {free} copies it nearly is: reading the weights takes longer than computing with "
            f"them. Then the arithmetic shows.",
        },
        right=f"{16 / longer[16]:.0f} times the tokens in the same time, for {longer[16]:.1f} times the wait.",
    )


def section_3(alone: Any) -> None:
    """A prediction of section 3."""
    predict(
        "Which share of a decode step of one request does the scheduler take?",
        facts.share(alone["scheduling"]),
        wrong={
            "a third": "Decisions in Python are slow, line by line. But there are few lines, and the model computes "
            "for long.",
            "5%": "On a fast GPU it can be that much, and more: the model's part shrinks, the scheduler's does not.",
        },
        right="On a fast GPU the model's part shrinks and the scheduler's stays. That is why vLLM plans the next "
        "step while the last one runs.",
    )


def section_6(weights: Any, cell: Any, crowds: Any, model: Any) -> None:
    """A prediction of section 6."""
    even = -(-weights // cell)
    predict(
        "At which context do the K and V of one request take as many bytes as the weights?",
        f"at {even:,} tokens",
        wrong={
            "at about 500 tokens": f"K and V are the bottleneck everybody talks of: for a crowd. With {max(crowds)} "
            f"requests {even // max(crowds)} tokens each are enough.",
            "never": "K and V grow with every token and every request; the weights don't grow.",
        },
        right=f"{weights:,} / {cell:,}. More than the {model['max_position_embeddings']:,} that this model can take, "
        f"for one request.",
        hint="Divide the weights by what one token costs.",
    )


def section_8(place: Any, before: Any, after: Any, tried: Any) -> None:
    """A prediction of section 8."""
    predict(
        "Between which of its tokens does the reader of C's stream wait?",
        f"between the {place}th (step {before}) and the {place + 1}th (step {after})",
        wrong={
            "before the first": "Queueing is at the start. This is preemption: C had begun to speak.",
            "nowhere, the stream is slower": "Preemption does not slow evenly. It is a hole, not a slope.",
        },
        right=f"Preempted in step {tried[0] - 1}, tried and refused in {len(tried)} steps, {tried[0]} to "
        f"{tried[-1]}. An average of TPOT hides it; the trace does not.",
    )


def check_yourself(dials: Any, tried: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "Which knob lowers the TTFT of newcomers, and who pays?",
                f"A larger budget; the others pay, with one longer step. `late-nc` against `late16-nc`: first word "
                f"of C in step {dials['late-nc'].first_word('C')} and {dials['late16-nc'].first_word('C')}.",
            ),
            (
                "Why not subtract `arrival_time` from a time of the core?",
                "They are on two clocks (trap 60). Subtract times of one process; the trace's header says how far "
                "the two are apart.",
            ),
            (
                "Where would you look first if throughput halves after a change?",
                f"Tokens a step, then blocks free: `schedule` events. In `pool-8` C was refused in {len(tried)} "
                f"steps for want of a block.",
            ),
        ]
    )
