# %% [markdown]
# # Lab 10 · Decode paged attention in Triton
#
# Pictures and small launches to play with. Nothing here is graded: you work in `starter.py`
# (`minivllm lab start 10`), and `minivllm lab check 10` grades it.
#
# All kernels run in Triton's interpreter, program after program, as Python.

# %%
from minivllm.course.notebook import note, predict, table
from minivllm.lessons.lab10 import play

# %% [markdown]
# ## What is carried from tile to tile
#
# Twelve scores of one query head, in tiles of four. m is the largest score so far, l the sum of e^(score - m).

# %%
SCORES = [1.0, 0.5, -1.0, 0.0, 0.2, 3.0, 1.0, -2.0, 0.0, 2.0, 2.5, 1.0]
rows = play.softmax_rows(SCORES, tile=4)
table(rows, caption="m rises in tile 1 alone: then what was summed before must shrink")

# %%
predict(
    "The same twelve scores in tiles of two. What is l after the last tile?",
    play.softmax_rows(SCORES, tile=2)[-1]["l"],
    {
        f"{2 * float(rows[-1]['l']):.3f}": "Every score counts once, whatever the tiles are.",
        "it depends on the tiles": "m and l after the last tile are those of all scores at once: tiles are one way to "
        "get there.",
    },
    right="The same as before. That is why a tile may have any size, and why parts can be joined.",
)

# %% [markdown]
# ## What a program reads
#
# Two rows, of 6 and 13 keys, block size 4. `3[0-3] 1[0-1]` means: offsets 0 to 3 of block 3, then 0 to 1 of block 1.
# The addresses are those that the kernel really touched.

# %%
print(play.reads([6, 13], tile=8))

# %%
note(
    "A tile of 8 keys reaches over two blocks here. The last tile of a row is not full: where no key is, the load is "
    "masked, and the slot is not read."
)

# %% [markdown]
# ## Segments
#
# With few rows a GPU would stand idle, so each row is split among several programs. Each reads a whole number of tiles.

# %%
print(play.reads([6, 21], tile=4, segments=4))

# %%
predict(
    "A row of 9 keys, TILE 4, four segments. How many segments have keys?",
    "3",
    {
        "4": "A segment has a whole number of tiles. Nine keys are three tiles.",
        "2": "Nine keys are three tiles, since the last one is not full, and each segment gets one.",
    },
    right="Three tiles, one for each of the first three segments. The fourth writes nothing, and must not be read.",
)

# %% [markdown]
# ## Your turn
#
# Change the numbers, and look. With `starter="my-labs/10/starter.py"` your own kernel runs. Try a block size of 16 with
# a tile of 8, or four query heads for each KV head: do they read K more often?

# %%
print(play.reads([5], heads=(4, 2), block_size=2, tile=4))
