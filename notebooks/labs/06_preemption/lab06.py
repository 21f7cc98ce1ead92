# %% [markdown]
# # Lab 06 · Preemption and resumption
#
# Small runs to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 06`), and
# `minivllm lab check 06` grades it.
#
# A line like `B1 N5 S2 T4 M4 whole: a>2, aa>2` is a workload: block size 1, 5 blocks (one of them the null block), 2
# seats, a budget of 4 tokens, at most 4 tokens a request, no chunked prefill; then two requests, prompts of one
# and of two tokens, with two output tokens each. `prio` turns the priority policy on, `pri1` is a request's priority.

# %%
from minivllm.course.grader import play
from minivllm.course.grader.words import tell_list
from minivllm.course.notebook import note, predict, table


def rows(steps: play.Steps) -> list[dict]:
    return [
        {
            "step": entry["step"]["step"],
            "tokens": ", ".join(f"{r} {n}" for r, n in entry["step"]["num_scheduled_tokens"]) or "none",
            "preempted": ", ".join(entry["step"]["preempted"]),
            "block tables": ", ".join(f"{r} {tell_list(t)}" for r, t in entry["planned"]["tables"].items()),
            "waiting": ", ".join(entry["planned"]["waiting"]),
            "free after planning": tell_list(entry["planned"]["free"]),
        }
        for entry in steps
    ]


# %% [markdown]
# ## No block left

# %%
LINE = "B1 N5 S2 T4 M4 whole: a>2, aa>2"
small = play.run(LINE)
predict(
    "In step 1 both need one block more, and one is free. Who is preempted?",
    small[1]["step"]["preempted"][0],
    {"r0": "r0 asks first, and gets the free block. Then r1 asks.", "nobody": "One block is missing."},
    right="r0 takes the last block; r1 needs one too, is the latest admitted itself, and goes.",
)

# %%
table(rows(small), caption=LINE)

# %%
back = next(cached for entry in small for cached in entry["step"]["cached"] if cached["resumed"])
tokens = dict(next(e["step"]["num_scheduled_tokens"] for e in small if back in e["step"]["cached"]))["r1"]
note(
    f"When r1 comes back it computes {tokens} tokens: its prompt, and the output that it had. The prefix cache is "
    "off here, so nothing is found."
)

# %% [markdown]
# ## By priority

# %%
LINE = "B1 N5 S2 T4 M4 whole prio: a>3 pri1, 1+a>2"
priority = play.run(LINE)
table(rows(priority), caption=LINE)

# %% [markdown]
# r0 came first and runs in front, but its priority value is larger: it is less important. When r1 needs a block, r0
# goes, although its token of this step had been planned already. That has to be undone.
#
# ## Two victims for one chunk

# %%
LINE = "B1 N8 S3 T5 M5 thr2: aaaa>1, aaaa>1, a>2"
chunk = play.run(LINE)
table(rows(chunk), caption=LINE)

# %% [markdown]
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play.run(LINE, "my-labs/06/starter.py")`. Turn the prefix cache on: what does a victim find when it comes back?

# %%
LINE = "B1 N6 S2 T5 M5 cache whole: a>4, a>3"
table(rows(play.run(LINE)), caption=LINE)
