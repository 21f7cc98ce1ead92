# %% [markdown]
# # Lab 05 · Chained hashes and the prefix cache
#
# Small runs to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 05`), and
# `minivllm lab check 05` grades it.
#
# A line like `B1 N4 S1 T3 M3 cache whole: a>1, aa>1` is a workload: block size 1, 4 blocks (one of them the null
# block), 1 seat, a budget of 3 tokens, at most 3 tokens a request, the prefix cache on, no chunked prefill; then two
# requests, the prompts "a" and "aa", with one output token each. Outputs are all "a".

# %%
from minivllm.course.grader import play
from minivllm.course.notebook import note, predict, table

COLUMNS = ["step", "tokens", "block tables", "free after planning", "free after the update"]

# %% [markdown]
# ## The second one finds what the first one left

# %%
LINE = "B1 N4 S1 T3 M3 cache whole: a>1, aa>1"
hit = play.run(LINE)
table(play.rows(hit), columns=COLUMNS, caption=LINE)

# %%
new = hit[1]["step"]["new"][0]
note(
    f"r1 has two tokens, and {new['num_computed_tokens']} of them is found: in block {new['block_ids'][0]}, which "
    "nobody holds any more. It takes the block out of the free queue, and one new block."
)

# %% [markdown]
# ## Cached to the last token

# %%
LINE = "B1 N4 S1 T3 M3 cache whole: a>1, a>1"
whole = play.run(LINE)
found = whole[1]["step"]["new"][0]["num_computed_tokens"]
predict(
    "The same prompt again, one token long, and its block is in the cache. How many tokens does r1 find?",
    found,
    {1: "Then nothing would be left to compute, and there would be no logits to sample from."},
    right="At least one token must be computed, so of a prompt of one token nothing is found.",
)

# %%
table(play.rows(whole), columns=COLUMNS, caption=LINE)

# %% [markdown]
# ## Duplicates
#
# Two equal prompts in one step. Look at the tables, and at the last block of each.

# %%
LINE = "B1 N6 S2 T4 M4 cache whole: aaa>1, aaa>1"
both = play.run(LINE)
table(play.rows(both), columns=COLUMNS, caption=LINE)

# %%
tables = play.at(both, 0)["tables"]
shared = [block for block in tables["r0"] if block in tables["r1"]]
predict(
    "Both prompts are the same three tokens, planned in the same step. How many blocks do they share?",
    len(shared),
    {
        0: "A block is findable as soon as it is allocated: r1 comes after r0 in the same step.",
        3: "The last token has to be computed, so the third block is r1's own.",
    },
    right="The first two are hit. The third is computed by both, in a block each, with the same hash.",
)

# %% [markdown]
# ## The same tokens, another past

# %%
LINE = "B1 N8 S1 T6 M6 cache whole: aba>1, bba>1"
past = play.run(LINE)
table(play.rows(past), columns=COLUMNS, caption=LINE)

# %%
new = [entry["step"]["new"][0] for entry in past if entry["step"]["new"]][1]
note(
    f"Both prompts end with b and a, and r1 finds {new['num_computed_tokens']} tokens. A block with the token b has "
    "other K and V after a than after b."
)

# %% [markdown]
# ## Your turn
#
# Change the line, and look. With the path of your starter as a second argument the same workload runs with your code:
# `play.run(LINE, "my-labs/05/starter.py")`. Try a pool so small that a block is lost before it is needed again.

# %%
LINE = "B2 N6 S1 T8 M8 cache: aabb>2, bbaa>2, aabb>2"
table(play.rows(play.run(LINE)), columns=COLUMNS, caption=LINE)
