# %% [markdown]
# # Lab 03 · The token budget
#
# Small runs to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 03`), and
# `minivllm lab check 03` grades it.
#
# A line like `B1 N6 S2 T2 M5: aaaa>1, a>1` is a workload: block size 1, 6 blocks (one of them the null block), 2 seats,
# a budget of 2 tokens, at most 5 tokens a request; then two requests, with prompts of four tokens and of one, and one
# output token each. `cache` turns the prefix cache on, `whole` chunked prefill off, `thr2` sets the threshold to 2.

# %%
from minivllm.course.grader import play
from minivllm.course.notebook import note, predict, table


def tokens(steps: play.Steps, step: int) -> str:
    return play.rows(steps)[step]["tokens"]


# %% [markdown]
# ## A prompt longer than the budget

# %%
LINE = "B1 N6 S2 T2 M5: aaaa>1, a>1"
chunked = play.run(LINE)
table(play.rows(chunked), columns=["step", "tokens", "block tables"], caption=LINE)

# %% [markdown]
# The first request takes the whole budget for two steps. The second one waits for a token of the budget, and not for a
# seat: there are two.

# %%
LINE = "B1 N8 S3 T3 M6: a>4, aaaa>1"
mixed = play.run(LINE)
predict(
    "Three tokens a step. r0 has a prompt of one token, r1 of four. What does step 1 hold?",
    tokens(mixed, 1),
    {
        "r0 1": "A step mixes both kinds. What r0 leaves of the budget goes to r1.",
        "r1 3": "Running requests come first, and r0 runs.",
        "r1 2, r0 1": "In order of admission: r0 came first.",
    },
    right="r0 gets its one token, and r1 the rest of its prompt that the budget allows.",
)

# %%
table(play.rows(mixed), columns=["step", "tokens", "block tables"], caption=LINE)

# %% [markdown]
# ## What was found in the cache costs no budget

# %%
LINE = "B1 N4 S3 T3 M3 cache whole: a>1, aa>1, a>1"
hits = play.run(LINE)
table(play.rows(hits), columns=["step", "tokens", "block tables", "ref counts"], caption=LINE)

# %%
first = play.at(hits, 0)
note(
    f"All three are admitted in step 0 with a budget of 3. r1 has two tokens and gets one: the other was found in "
    f"block 1, which {first['ref_cnts'][1]} requests hold."
)

# %% [markdown]
# ## Chunked prefill off
#
# Now a prompt is computed whole or not at all. The head waits, and so does everybody behind it.

# %%
LINE = "B1 N7 S2 T6 M6 whole: aaaa>1, aaa>1"
whole = play.run(LINE)
predict(
    "A budget of 6, prompts of 4 and 3 tokens. What does step 0 hold?",
    tokens(whole, 0),
    {
        "r0 4, r1 2": "That would cut r1's prompt, and chunks are off.",
        "r0 4, r1 3": "That is one token more than the budget.",
    },
    right="r1 would get three tokens and two are left, so it waits.",
)

# %%
table(play.rows(whole), columns=["step", "tokens", "block tables"], caption=LINE)

# %% [markdown]
# ## A step that takes blocks away
#
# Five blocks of one token each, and both requests want to grow.

# %%
LINE = "B1 N6 S2 T5 M5 cache whole: a>4, a>3"
scarce = play.run(LINE)
table(play.rows(scarce), columns=["step", "tokens", "block tables", "free after planning"], caption=LINE)

# %%
step = next(number for number, entry in enumerate(scarce) if entry["step"]["preempted"])
predict(
    f"r1 loses its blocks in step {step}, and {len(play.at(scarce, step)['free'])} blocks are free after planning. "
    "Who gets tokens in this step?",
    tokens(scarce, step),
    {
        "r0 1, r1 1": "The room is there, and taking it would take away what r0 needs next: r1 would go again at once.",
    },
    right="r0 alone: a step that took blocks from somebody admits nobody. r1 comes back in a later step.",
)

# %% [markdown]
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play.run(LINE, "my-labs/03/starter.py")`. Try a threshold (`thr2`), one seat less, a request that arrives later
# (`2+aa>1`).

# %%
LINE = "B2 N9 S3 T4 M8 thr2: aaaaaa>2, 1+aa>2, 2+a>1"
table(play.rows(play.run(LINE)), columns=["step", "tokens", "block tables"], caption=LINE)
