# %% [markdown]
# # Lab 09 · reshape_and_cache in Triton
#
# Pictures and small launches to play with. Nothing here is graded: you work in `starter.py`
# (`minivllm lab start 09`), and `minivllm lab check 09` grades it.
#
# The kernel runs in Triton's interpreter, program after program, as Python.

# %%
from minivllm.course.notebook import note, predict, table
from minivllm.lessons.lab09 import play

# %% [markdown]
# ## Who writes what
#
# Four tokens, the second of which is none. `3[1]` means block 3, offset 1. The addresses are those that the kernel
# really touched.

# %%
SLOTS = [13, -1, 6, 9]
print(play.writes(SLOTS, block_size=4))

# %%
predict(
    "Slot 13, block size 4: which block, and which offset?",
    "block 3, offset 1",
    {
        "block 13, offset 0": "A slot is a place for one token. A block has four of them here.",
        "block 1, offset 3": "13 = 3 * 4 + 1: the block is the quotient, and the offset is the remainder.",
    },
    right="13 // 4 is the block, 13 % 4 the offset.",
)

# %% [markdown]
# ## A token of many numbers
#
# Two heads of 80 numbers are 160, and a tile here has 64 of them. So each token needs three programs, and the last one
# has something to mask.

# %%
rows = play.written_numbers(SLOTS, heads=2, head_size=80, tile=64)
table(rows, caption="numbers of K that each program stores")

# %%
note(
    f"{len(rows)} programs run, and {sum(row['numbers'] == 0 for row in rows)} of them store nothing: they belong to "
    "the token with slot -1."
)

# %% [markdown]
# ## Where an element lies
#
# The engine's cache is (blocks, 2, block size, heads, head size): K and V of a block lie side by side. The K cache that
# a kernel gets is a slice of it.

# %%
table(play.strides_of(blocks=12, block_size=4, heads=2, head_size=80))

# %%
predict(
    "How far is it from block 1 to block 2 of the K cache, in elements?",
    "1280",
    {
        "640": "4 * 160 numbers of K, but the block's 640 numbers of V lie between.",
        "160": "That is the way to the next token.",
    },
    right="2 * 4 * 160: the strides know it, sizes don't.",
)

# %% [markdown]
# ## Your turn
#
# Change the slots, and look. With `starter="my-labs/09/starter.py"` your own code runs.

# %%
print(play.writes([4, 5, 6, 7], block_size=2))
