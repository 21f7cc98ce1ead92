# %% [markdown]
# # Lab 07 · Flattening
#
# Small runs to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 07`), and
# `minivllm lab check 07` grades it.
#
# A line like `B2 N9 S3 T4 M8: aaa>2, a>3` is a workload: block size 2, 9 blocks (one of them the null block), 3 seats,
# a budget of 4 tokens, at most 8 tokens a request; then two requests, prompts of three tokens and of one, with two and
# three output tokens.

# %%
from minivllm.course.grader.words import tell_list
from minivllm.course.notebook import predict, table
from minivllm.lessons.lab07 import play as play_batch

# %% [markdown]
# ## A prompt in two chunks, and a request beside it
#
# First step 0 alone. r0 has a prompt of five tokens, and the budget is four.

# %%
LINE = "B2 N9 S3 T4 M8: aaaaa>2, a>3"
steps = play_batch.run(LINE)
table(play_batch.rows(steps[:1]), caption=LINE)

# %%
chunk = steps[1]
predict(
    f"Step 1 computes {len(chunk['positions'])} tokens: the last one of r0's prompt, and r1's. Which positions do they "
    "have?",
    tell_list(chunk["positions"]),
    {
        tell_list(list(range(len(chunk["positions"])))): "Positions count in the request, not in the step.",
        tell_list([0] * len(chunk["positions"])): "Row 0 has computed tokens already.",
    },
    right="The second chunk of row 0 goes on where the first one ended; row 1 begins at 0.",
)

# %%
last = steps[2]
predict(
    f"In step 2 every row has one token. query_start_loc is {tell_list(last['query_start_loc'])}. What is seq_lens?",
    tell_list(last["seq_lens"]),
    {
        tell_list([1] * len(last["rows"])): "That is what this step computes. Those before have K and V too.",
        tell_list(last["positions"]): "That is what was computed before. K and V of this step's tokens come to it.",
    },
    right="query_start_loc knows nothing of what was computed before; seq_lens does.",
)

# %% [markdown]
# ## From a position to a slot

# %%
row, position = 0, last["positions"][0]
blocks = last["blocks"][row]
predict(
    f"The block size is 2, and row 0 has the blocks {tell_list(blocks)}. Its token of step 2 has position {position}. "
    "Which slot do its K and V go to?",
    str(last["slot_mapping"][0]),
    {
        str(position): "That is the position. The block table says where it really lies.",
        str(blocks[position // 2]): "That is the block. A block has two slots.",
    },
    right=f"Position {position} is offset {position % 2} of entry {position // 2} of the table, and that is block "
    f"{blocks[position // 2]}.",
)

# %% [markdown]
# All steps. Go through one of them with a pencil.

# %%
table(play_batch.rows(steps), caption=LINE)

# %% [markdown]
# ## Rows
#
# Two requests end in the same step, and one is waiting.

# %%
LINE = "B4 N9 S4 T8 M8: a>1, a>3, a>1, a>3, a>3"
steps = play_batch.run(LINE)
table(play_batch.rows(steps[:1]), caption=LINE)

# %%
before, after = steps[0]["rows"], steps[1]["rows"]
predict(
    f"The rows of step 0 are {tell_list(before)}. r0 and r2 end with it, and r4 comes. What are the rows of step 1?",
    tell_list(after),
    {
        tell_list(["r1", "r3", "r4"]): "Rows do not close up in order: that would copy every row behind a hole.",
        tell_list(["r3", "r1", "r4"]): "Newcomers come before the holes are closed, and take the lowest.",
    },
    right="r4 took the lowest hole, row 0. One hole is left, row 2, and the last row moved into it.",
)

# %%
table(play_batch.rows(steps), caption=LINE)

# %% [markdown]
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play_batch.run(LINE, "my-labs/07/starter.py")`, as soon as all its parts are written. In the workload below the pool
# is too small: r1 is preempted, has no row in one step, and comes back in the next one, with blocks that are all new to
# it. Follow its blocks and its positions.

# %%
LINE = "B2 N6 S3 T6 M7: aa>4, aa>4, a>2"
table(play_batch.rows(play_batch.run(LINE)), caption=LINE)
