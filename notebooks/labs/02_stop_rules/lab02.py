# %% [markdown]
# # Lab 02 · Request states and stop rules
#
# Small runs to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 02`), and
# `minivllm lab check 02` grades it.
#
# A line like `B1 N6 S1 T5 M5: a>3=abE stop=b min1` is a workload: block size 1, 6 blocks (one of them the null block),
# 1 seat, a budget of 5 tokens, at most 5 tokens a request; then one request: the prompt "a", at most 3 outputs. The
# model would say "a", "b" and then the end of text (E); "b" is a stop token; and one output must come before anything
# stops it.

# %%
from minivllm.course.grader import play
from minivllm.course.grader.words import tell_field
from minivllm.course.notebook import note, predict, table


def ends(steps: play.Steps) -> list[dict]:
    return [
        {
            "step": entry["step"]["step"],
            "told to the worker": ", ".join(entry["step"]["finished"]),
            "outputs": tell_field("outputs", entry["step"]["outputs"]),
            "free after the update": len(entry["updated"]["free"]),
        }
        for entry in steps
    ]


# %% [markdown]
# ## A stop token

# %%
LINE = "B1 N6 S1 T5 M5: a>3=ab stop=b"
stop = play.run(LINE)
table(ends(stop), caption=LINE)

# %%
told = next(entry["step"]["step"] for entry in stop if entry["step"]["finished"])
note(
    f"The request ends in step 1, and its blocks are free after that step's update. The worker is told in step {told}, "
    "with a plan that holds nothing else: the scheduler goes on until every end has been told."
)

# %% [markdown]
# ## A stop token at the last allowed place

# %%
LINE = "B1 N4 S1 T3 M3: a>1 stop=a"
last = play.run(LINE)
output = last[0]["step"]["outputs"][0]
predict(
    "One output is allowed, and it is a stop token. With which reason does the request end?",
    output["finish_reason"],
    {"length": "The rules about tokens are asked before the lengths."},
    right="Stop tokens come before lengths.",
)

# %% [markdown]
# ## min_tokens

# %%
LINE = "B1 N8 S1 T7 M7: a>5 min2 stop=a"
gate = play.run(LINE)
predict(
    "Every output is a stop token, and min_tokens is 2. How many outputs come?",
    sum(len(out["new_token_ids"]) for entry in gate for out in entry["step"]["outputs"]),
    {
        1: "Until there are two outputs nothing ends the request.",
        3: "With two outputs the gate is open, and the second one is a stop token.",
        5: "The gate only holds until there are two.",
    },
    right="With the second output min_tokens is reached, and it is a stop token.",
)

# %%
table(ends(gate), caption=LINE)

# %% [markdown]
# ## An abort before the first step

# %%
LINE = "B1 N4 S1 T3 M3: a>1 abort0"
table(ends(play.run(LINE)), caption=LINE)

# %% [markdown]
# Nothing was computed, and the worker is told all the same: it is told of every end.
#
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play.run(LINE, "my-labs/02/starter.py")`. Try `ign`, an E in the outputs, two requests on one seat.

# %%
LINE = "B2 N9 S2 T6 M8: aa>4=abE, a>3=bE ign, 1+a>2 stop=a"
table(ends(play.run(LINE)), caption=LINE)
