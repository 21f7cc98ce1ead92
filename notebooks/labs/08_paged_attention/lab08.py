# %% [markdown]
# # Lab 08 · Paged attention in numpy, then torch
#
# Pictures and small arrays to play with. Nothing here is graded: you work in `starter.py`
# (`minivllm lab start 08`), and `minivllm lab check 08` grades it.

# %%
import numpy as np

from minivllm.course.notebook import note, predict, table
from minivllm.lessons.lab08 import play as play_attention
from minivllm_kernels.numpy_reference import attend_numpy, gather_kv_numpy

# %% [markdown]
# ## A cache and a table
#
# One sequence in a cache of seven blocks, four keys a block. A key is written as its place in the sequence. Empty
# places hold no key.

# %%
TABLE, LENGTH, BLOCK_SIZE = [5, 2, 6], 10, 4
cache = play_attention.numbered_cache(TABLE, LENGTH, BLOCK_SIZE, num_blocks=7)
table(play_attention.cache_rows(cache), caption=f"block table {TABLE}, {LENGTH} keys")

# %%
predict(
    "In which block, and at which offset, is key 9?",
    "block 6, offset 1",
    {
        "block 2, offset 1": "9 // 4 is 2, the place in the table. The table says which block stands there.",
        "block 6, offset 9": "The offset is counted within the block: 9 % 4.",
    },
    right="Place 9 // 4 of the table names block 6, and 9 % 4 is 1.",
)

# %%
gathered = gather_kv_numpy(cache, np.array(TABLE), LENGTH)[:, 0, 0]
note(f"Gathered, the keys stand in the order of the tokens: {gathered.astype(int).tolist()}.")

# %% [markdown]
# ## Who sees what
#
# A chunk of three new tokens at the end of seven. A row of the table is a query, a column is a key.

# %%
table(play_attention.mask_rows(num_queries=3, seq_len=7), caption="x: sees it")

# %%
predict(
    "The same sequence in the next step: one new token, eight keys. How many keys does it see?",
    "8",
    {
        "1": "The new token's number in the step does not count. It is the last of eight tokens, and sees all of them.",
        "7": "It sees itself too.",
    },
    right="A decode sees everything, so it needs no mask at all.",
)

# %% [markdown]
# ## Weights
#
# Four keys, one query, one head. The weights sum to 1, and adding a constant to all scores changes nothing.

# %%
scores = np.array([2.0, 0.0, 1.0, -1.0])
weights = np.exp(scores) / np.exp(scores).sum()
table([{"key": i, "score": s, "weight": f"{w:.3f}"} for i, (s, w) in enumerate(zip(scores, weights, strict=True))])

# %% [markdown]
# ## Your turn
#
# Change numbers, and look: a head that reads another KV head, a key that is far away. `attend_numpy` is the lab's own;
# yours is in `my-labs/08/starter.py`.

# %%
random = np.random.default_rng(0)
q, k, v = random.normal(size=(3, 4, 8)), random.normal(size=(7, 2, 8)), random.normal(size=(7, 2, 8))
print(attend_numpy(q, k, v, scale=8**-0.5).shape)
