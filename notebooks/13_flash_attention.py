# %% [markdown]
# # 13 · FlashAttention, from PyTorch to Triton
#
# **The question.** Why is attention written in tiles, and what does that save, measured?
#
# **Before.** [One forward pass](07_forward.ipynb), and [paged attention](08_paged_attention.ipynb), sections 7 to 9;
# the road itself ended with [the whole life](12_whole_life.ipynb). Plan 60 minutes; there is a stop after section 6.
# Bytes marked *computed* follow from shapes; those marked *measured* are counted at the loads and stores of Triton's
# interpreter.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[engine,pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("13", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_07, facts_08_run as runs, facts_13 as facts
from minivllm.lessons.facts_13 import megabytes as mb
from minivllm.lessons import ask_13 as ask

runs.can_run()  # chooses Triton's interpreter, before anything imports triton
head = facts_07.read_by_head(nb.trace("values-rome"), step=13, layer=16, head=0)
carried = list(runs.carried(head.query, head.keys, tile=16))
nb.map()

# %% tags=["floats"]
ask.recall_before(carried)

# %% [markdown]
# ## The puzzle

# %%
from minivllm_kernels.flash_attention.traffic import Shapes, naive, needed, tiled
large = Shapes(num_tokens=4096)
note(f"Attention among {large.num_tokens:,} tokens in one layer of this model: the output has "
     f"{mb(large.query_bytes)}. Three lines of torch move **{mb(sum(naive(large).values()))}** between the chip and "
     f"its memory for it (computed). *How much is needed at least?* Section 2 answers.")

# %% [markdown]
# ## 1 · Naive: three lines
#
# Here are A's own q, k and v of step 1, layer 16, through the formula as it stands in a textbook.

# %%
code("kernels/flash_attention/naive.py::naive_attention", start="hidden =", mark=("scores =", "weights ="),
    vllm="v1/attention/backends/flash_attn.py::FlashAttentionImpl.forward",
     same="The same function; vLLM calls a compiled kernel that works in tiles.")

# %% tags=["floats"]
import torch
from minivllm_kernels.flash_attention.naive import naive_attention
q, k, v = facts.prompt(nb.trace("values-prompt"))
out, theirs = naive_attention(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
gap = float((out - theirs).abs().max())
note(f"q, k, v: {list(q.shape)} each, KV heads repeated for the query heads that share them. Largest difference to "
     f"torch's own attention: {facts_07.tiny(gap)}.")

# %%
small = Shapes(num_tokens=q.shape[1])
note(f"The scores have one number for each head, query and key: {small.num_heads} × {small.num_tokens} × "
     f"{small.num_tokens} × {small.itemsize} = {small.score_bytes:,} bytes. For so short a prompt nobody minds.")

# %% tags=["floats"]
shade = naive_attention(q[:1], k[:1], torch.eye(q.shape[1])[None])[0].sqrt()  # v = 1: the weights themselves
squares = [[round(0.1 + float(one), 2) if key <= row else None for key, one in enumerate(line)] for row,
    line in enumerate(shade)]
names = [str(place) for place in range(len(squares))]
pictures.grid(squares, rows=names, columns=names, row_title="query", column_title="key", caption="Grey: scores that "
    "are used. White: stored all the same, and never used",
    alt=f"The scores of head 0 as a square of {len(squares)} by {len(squares)}, darker for a larger weight. "
        f"Everything above the diagonal is white: {sum(row.count(None) for row in squares)} of {len(squares) ** 2} "
        f"scores are stored for nothing.")

# %% [markdown]
# ## 2 · Count the bytes
#
# Every line of the naive form reads tensors from memory and writes one back. **Traffic** is the sum of all that. The
# least possible: read q, k and v once, write the output once.

# %%
sizes = [Shapes(num_tokens=n) for n in (41, 256, 1024, 4096)]
table([(f"{s.num_tokens:,}", mb(s.score_bytes), mb(sum(naive(s).values())), mb(needed(s)),
    f"{sum(naive(s).values()) / needed(s):.0f}") for s in sizes],
      ("tokens", "scores", "naive, in all", "needed", "times too much"), caption=f"One layer, {large.num_heads} "
          f"query heads, {large.num_kv_heads} KV heads, float32 (computed)")

# %% [markdown]
# ## 3 · Four times the tokens

# %%
ask.section_3(sizes)

# %% [markdown]
# ## 4 · The obstacle
#
# The scores could stay on the chip, if only a few rows and columns were looked at at a time. But softmax divides by the
# sum of a whole row, and subtracts its max. The way out is the pair from notebook 08, carried along and repaired:

# %% tags=["floats"]
table([(number, f"{first}–{last}", f"{top:.3f}", f"{factor:.4f}", f"{total:.4f}") for number, (first, last, top,
    factor, total) in enumerate(carried, 1)],
      ("tile", "keys", "running max", "correction", "sum"), caption="Step 13, layer 16, head 0, in tiles of 16 keys")

# %% [markdown]
# ## 5 · Tiles, in torch

# %%
code("kernels/flash_attention/tiled.py::tiled_attention", start="for head in range", lines=24, mark=("new_max =",
    "correction =", "acc = acc"),
     same="The outer loops are vLLM's grid, the inner one is its kernel's; pages are left out.")

# %%
from minivllm_kernels.flash_attention.tiled import tiled_attention
gaps = {size: float((tiled_attention(q, k, v, size, size) - out).abs().max()) for size in (16, 64)}
tile = max(gaps)
table([(size, facts_07.tiny(gap)) for size, gap in gaps.items()], ("tile", "largest difference to the naive form"))

# %%
ask.section_5(tile)

# %% [markdown]
# ## 6 · The same in Triton
#
# The outer loop has become the grid, the inner loop is the kernel. The lines have the same names.

# %%
table(facts.side_by_side("tiled.py", "triton_forward.py"), ("tiled.py, torch", "triton_forward.py"),
    caption="The inner loop, line by line, from the files")

# %% [markdown]
# > **A good place to stop.** Naive attention is limited by moving scores, not by multiplying. With max and sum carried
# > along, a tile of scores is computed, used and forgotten.
#
# ## 7 · Measured, not modelled
#
# The probe counts every number that every program loads or stores.

# %%
tokens_256 = facts.random_heads(256)
counted = facts.measured(facts.flash(*tokens_256, block_m=tile, tile=tile)) or facts.expected_flash(256, tile)
how = "measured" if runs.can_run() else "computed: measuring needs Triton, which exists for Linux"
table([(name, f"{number:,}") for name, number in counted.items()], ("tensor", "bytes asked for"),
    caption=f"triton_forward.py, {tokens_256[0].shape[1]} tokens, {tile} queries a program, {tile} keys a tile ({how})")

# %%
model = tiled(Shapes(256), block_m=tile, tile=tile)
note(f"All together {sum(counted.values()):,} bytes; the formula of `traffic.py` says {model:,}. No scores: they "
     f"have no address. K and V are asked for {counted['k'] / tokens_256[1].nbytes:.1f} times, since each "
     f"block of queries reads them again, up to its own diagonal.")

# %% [markdown]
# ## 8 · The serving kernel
#
# The kernel of notebook 08 takes few tokens a program, with all query heads of one KV head. Let it attend within one
# prompt of as many tokens.

# %%
ask.section_8()

# %%
dial = {block_m: tiled(Shapes(256), block_m, block_m) - 2 * Shapes(256).query_bytes for block_m in (16, 32, 64, 128)}
pictures.bars({f"{block_m} queries a program": round(number / 1e6, 2) for block_m, number in dial.items()}, unit="MB",
    alt=f"Bytes of K and V asked for by programs of {', '.join(map(str, dial))} queries, for one prompt. They fall "
        f"from {mb(dial[16])} to {mb(dial[128])}: the block of queries is the dial.",
    caption="The more queries a program has, the less often keys are read again (computed)")

# %% [markdown]
# ## 9 · Then why so few queries a program?

# %%
decode = nb.trace("kernels-one")
asked_k, asked_v, stored = facts.decode_bytes(decode, 9)
note(f"Decode: one token a request, so there is one block of queries, whatever its size. Step 9 of A, one layer, "
     f"measured: {asked_k:,} bytes of K and {asked_v:,} of V. A has {stored:,} bytes of K and V in the cache: each "
     f"number is read exactly once. Nothing to save.")

# %% [markdown]
# The serving kernel must do both, prompts and decodes. On a GPU ours takes larger blocks for prompts, and has a kernel
# of its own for decodes (`kernels/tuning.py`).
#
# ## 10 · Asked for is not fetched
#
# What a program asks for need not come from memory: a GPU keeps what its neighbours have just read in its caches.
# Programs of the same KV head that run side by side read the same keys. So bytes asked for are an upper bound of bytes
# fetched, and the order of programs matters. How fast a real GPU is in the end, `kernels/gpu_check.py` measures on one;
# this notebook holds no such record.
#
# ## 11 · The order of sums

# %%
by_tile = [tiled_attention(q, k, v, tile, tile) for tile in (16, 32)]
note(f"Two sizes of tiles: equal to the last bit? {'Yes' if torch.equal(*by_tile) else 'No'}. Largest difference: "
     f"{facts_07.tiny(float((by_tile[0] - by_tile[1]).abs().max()))}. Sums of float32 depend on their order, and "
     f"tiles choose the order.")

# %% [markdown]
# ## What if …
#
# **… tiles are larger?** Guess first: which of the three columns fall, which rise?

# %%
table([(size, size * size, mb(tiled(Shapes(4096), size, size)),
    f"{tiled(Shapes(4096), size, size) / needed(large):.1f}") for size in (16, 32, 64, 128)],
      ("queries and keys a tile", "scores alive a head", "traffic", "times what is needed"),
      caption=f"{large.num_tokens:,} tokens (computed)")

# %% [markdown]
# Tiles of 16 ask for as much as the naive form moves. Large tiles ask for less and need more room on the chip: scores,
# queries and output of a tile live in registers.
#
# **… the causal bound is off?** Tiles behind the diagonal are then computed and masked. Guess first: how much more?

# %%
table([(mb(tiled(Shapes(n), 64, 64)), mb(tiled(Shapes(n), 64, 64, causal=False)), n) for n in (256, 4096)],
    ("with the bound", "without", "tokens"), caption="Traffic, tiles of 64 (computed)")

# %% [markdown]
# Nearly twice, the nearer the longer the prompt: half of the tiles lie behind the diagonal.
#
# ## Traps

# %%
traps({43: "prompts and decodes have kernels of their own", 38: "behind a row's last block the table holds zeros, "
    "block 0; the mask keeps a tile from reading it",
       37: "a padding row sees no key: its max stays −∞, and −∞ − (−∞) must become 0, not NaN"})

# %% [markdown]
# ## The code
#
# Four files of `kernels/flash_attention/`, to be read in this order: `naive.py`, `tiled.py`, `triton_forward.py`,
# `traffic.py`.

# %%
code("kernels/flash_attention/triton_forward.py::flash_attention_kernel", start="first_query = tl.program_id(0)",
    lines=13, mark=("first_query = tl.program_id(0)", "row_max ="))

# %%
code("kernels/flash_attention/traffic.py::tiled", mark=("last_key =",), vllm=(), same="vLLM counts no bytes.")

# %% [markdown]
# ## Left out
#
# The backward pass, dropout, warp specialisation, FP8, pipelines of later FlashAttentions.
#
# ## Summary
#
# Naive attention is limited by moving scores, not by multiplying. Carrying max and sum lets a tile be used and
# forgotten. The block of queries decides how often K and V are read again.
#
# ## Check yourself

# %%
ask.check_yourself(large, asked_k)

# %% [markdown]
# ## Next
#
# Bytes are measured. Now seconds. → [14 · Where the time goes](14_where_time_goes.ipynb)
