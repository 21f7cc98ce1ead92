# %% [markdown]
# # Lab 04 · Block pool and free queue
#
# Pictures and small runs to play with. Nothing here is graded: you work in `starter.py`
# (`minivllm lab start 04`), and `minivllm lab check 04` grades it.
#
# A line like `B1 N4 S2 T3 M3 cache whole: a>1, aa>1` is a workload: block size 1, 4 blocks (one of them the null
# block), 2 seats, a budget of 3 tokens, at most 3 tokens a request, the prefix cache on, no chunked prefill; then two
# requests, the prompts "a" and "aa", with one output token each.

# %%
from minivllm.course.grader import play
from minivllm.course.grader.words import tell_list
from minivllm.course.notebook import note, predict, table

# %% [markdown]
# ## One request comes and goes

# %%
LINE = "B1 N5 S1 T5 M5 whole: aa>2"
alone = play.run(LINE)
table(play.rows(alone), caption=LINE)

# %%
held, last = play.at(alone, 1), play.at(alone, len(alone) - 1, "updated")
predict(
    f"The request gives its blocks {tell_list(held['tables']['r0'])} back at its end. In which order do all blocks "
    "stand in the free queue then?",
    tell_list(last["free"]),
    {
        tell_list(sorted(last["free"])): "That is the order of a table. It is freed from its end, so that the first "
        "block, which others may share, is evicted last.",
        tell_list(held["free"] + held["tables"]["r0"]): "The table is freed from its end, not from its beginning.",
    },
    right="The last block of the table joins first: its content is worth least, and it is evicted first.",
)

# %% [markdown]
# ## Two requests share a block
#
# Both prompts begin with the same token, and the prefix cache is on. Look at the reference counts.

# %%
LINE = "B1 N4 S2 T3 M3 cache whole: a>1, aa>1"
shared = play.run(LINE)
table(play.rows(shared), caption=LINE)

# %%
planned, after = play.at(shared, 0), play.at(shared, 0, "updated")
note(
    f"Block 1 has {planned['ref_cnts'][1]} owners while both run. When r0 ends it has one less, and does not join the "
    f"free queue; only when r1 ends does it. After the update the queue is {tell_list(after['free'])}."
)

# %% [markdown]
# ## A hit takes a block out of the middle
#
# With one seat the second request comes when the first has gone. The block that they share is free by then, but its
# content is still there.

# %%
LINE = "B1 N4 S1 T3 M3 cache whole: a>1, aa>1"
hit = play.run(LINE)
table(play.rows(hit), caption=LINE)

# %%
before, planned = play.at(hit, 0, "updated"), play.at(hit, 1)
predict(
    f"Before step 1 the free queue is {tell_list(before['free'])}, and block 1 holds what r1 needs. What is it after "
    "step 1 has been planned?",
    tell_list(planned["free"]),
    {
        tell_list(
            before["free"]
        ): "A block that somebody holds must not stay in the free queue: the next request would get it as a new one.",
        tell_list(before["free"][1:]): "The hit leaves too, from wherever it stands.",
    },
    right="The hit left from its place in the queue, and a new block left at the front.",
)

# %% [markdown]
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play.run(LINE, "my-labs/04/starter.py")`. Try a pool that is too small for both requests, or four equal prompts.

# %%
LINE = "B2 N6 S2 T6 M6 cache: aaa>3, 1+aaab>2"
table(play.rows(play.run(LINE)), caption=LINE)
