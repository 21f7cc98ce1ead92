# %% [markdown]
# # 08 · Paged attention, write and read, down to PTX
#
# **The question.** What does the block table look like to one program of a kernel?
#
# **Before.** [One forward pass](07_forward.ipynb). Plan 60 minutes; there is a stop after section 9. No GPU is
# needed: kernels run in Triton's interpreter, program after program, and a probe notes the addresses that each
# program really loads and stores. Where Triton is missing (it exists for Linux), records from the trace are shown
# instead.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[engine,pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("08", live=LIVE)

# %%
from itertools import pairwise

from minivllm.show import pictures
from minivllm.lessons import facts_07, facts_08 as facts, facts_08_ptx as ptx, facts_08_run as runs
from minivllm.lessons import ask_08 as ask

runs.can_run()  # chooses Triton's interpreter, before anything imports triton
together = nb.trace("kernels-together")
nb.map()

# %%
(batch,) = together.filter(step=1, kind="prepare_inputs")
ask.recall_before(batch)

# %% [markdown]
# ## The puzzle
#
# A **kernel** is a function that a GPU runs many times at once. One such run of it is a **program**; starting them
# all is the **launch**, and how many there are is the **grid**.

# %%
read = facts.launch_of(together, 1, "paged_attention_kernel")
programs, sizes = facts.programs_of(together, read), read.constants
idle = [program for program in programs if not program.writes]
borders = batch.query_start_loc
note("In step 1 of A, B and C a kernel reads the cache: each program takes the queries of a few tokens. But "
     f"{len(idle)} of its programs leave at once. And program 0 is in charge of {sizes['BLOCK_Q']} tokens with "
     f"{sizes['G']} query heads each, that is {sizes['BLOCK_Q'] * sizes['G']} queries; yet it has {sizes['BLOCK_M']} "
     f"rows for them. *Who are the {len(idle)}, and what happens in the last row?* Sections 4 and 6 answer.")

# %% [markdown]
# ## 1 · The write: one program, one token
#
# The write kernel gets the K and V of the flat batch, and
# `slot_mapping`. The program of a flat token looks up its slot and copies.

# %%
write = facts.launch_of(together, 1, "reshape_and_cache_kernel")
table(facts.write_rows(together, 1, "ABC", [0, 40, 41, 63]),
      caption=f"{write.name}, grid {write.grid[0]} × {write.grid[1]}: four of {write.grid[0]} programs, from the probe")

# %% [markdown]
# `4[0]` means block 4, cell 0. Program 41 has B's first sent token. Nothing in it knows B: one number, the slot, says
# where everything goes. The vLLM symbol is
# `v1/attention/ops/triton_reshape_and_cache_flash.py::reshape_and_cache_kernel_flash`.
#
# ## 2 · A slot of −1

# %%
ask.section_2(batch)

# %% [markdown]
# ## 3 · The read: who does what
#
# The read kernel cuts each request's new tokens into pieces. A program takes one piece and **one KV head**, with all
# query heads that share it. Each query, a token in one head, is a **row** of the program. So each key that it loads
# serves many rows.

# %%
rows = [f"t{row // sizes['G']} h{row % sizes['G']}" for row in range(sizes["BLOCK_Q"] * sizes["G"])]
array("rows of program 0", rows + ["idle"] * (sizes["BLOCK_M"] - len(rows)), dtype="t: token, h: query head",
    ruler="row")

# %%
note(f"The rows of a program are a power of two: {sizes['BLOCK_M']}. With {sizes['G']} heads a KV head, "
     f"{sizes['BLOCK_M']} // {sizes['G']} = {sizes['BLOCK_Q']} tokens fit. The model has {facts.HEADS} query heads and "
     f"{read.grid[1]} KV heads.")

# %% [markdown]
# ## 4 · The grid

# %%
ask.section_4(batch, borders, sizes, read)

# %%
lines = facts.read_rows(together, 1, "ABC")
rows = [f"program {line['program']}, {line['request']}" for line in lines]
picture(pictures.grid(facts.keys_by_block(lines), rows=rows,
                      columns=[f"block {block}" for block in facts.blocks_of(lines)],
                      owners=facts.owners_by_block(lines), alt="Keys that each program of KV head 0 read from each "
                      f"block, {len(lines)} programs. A's programs read more blocks the later their tokens are; B's "
                      "read two of A's blocks and one of their own; program "
                      f"{idle[0].program[0]} reads nothing."),
        "Keys read, by program and block: A and B share two blocks, all three share one.")

# %%
table([line for line in lines if line["program"] in (0, 1, 8, 9, 10, 11, 12)], caption="Seven of them in detail, "
    "from the probe: `2[0–8]` are cells 0 to 8 of block 2")

# %%
numbers = sorted({program.program[0] for program in idle})
note(f"Idle is number {numbers[0]}, once for each of the {read.grid[1]} KV heads: B's third piece. B sends "
     f"{borders[2] - borders[1]} tokens, which fill two pieces; the upper bound gave it three.")

# %% [markdown]
# ## 5 · How a program finds its request
#
# A program knows its number and nothing else. The borders are `query_start_loc`; request r begins with number
# `border[r] // BLOCK_Q + r`. A binary search
# over the borders finds the last request that begins at or before the program. The probe noted which borders were
# loaded.

# %%
starts = [border // sizes["BLOCK_Q"] + row for row, border in enumerate(borders[:-1])]
array("border // BLOCK_Q + request", starts, ruler="request", owners=list("ABC"))

# %%
first = {p.program[0]: p for p in programs if p.program[1] == 0}
looked = {number: facts.searched(first[number], borders) for number in (0, 9, 12)}
table([{"program": number, "looks at requests": " then ".join("ABC"[row] for row in tried),
        "whose first programs are": ", ".join(str(starts[row]) for row in tried), "finds": "ABC"[found]}
       for number, (tried, found) in looked.items()], caption="The search, as loaded")

# %% [markdown]
# The vLLM symbol is `v1/attention/ops/triton_attention_helpers.py::find_seq_idx`.
#
# ## 6 · The last row

# %%
note(f"Program 0 reads keys {facts.show_cells(first[0].reads['k_cache'])}, {sizes['BLOCK_Q']} keys for tokens 0 to "
     f"{sizes['BLOCK_Q'] - 1}. Row {sizes['BLOCK_M'] - 1} is masked: it loads nothing and stores nothing. vLLM's "
     f"kernel lets that row work: it computes head 0 of token {sizes['BLOCK_Q']}, which program 1 computes too, with "
     f"the same result. So vLLM's program 0 reads {sizes['BLOCK_Q'] + 1} keys. The cause is the same for both: "
     f"{sizes['G']} does not divide {sizes['BLOCK_M']}.")

# %% [markdown]
# ## 7 · A decode, tile by tile
#
# Eight steps later each of the three sends one token, and a fourth request arrives with its whole prompt. A's program
# now has one token, and walks over all keys of A, one **tile** after the other. For each tile it asks the table where
# those keys lie.

# %%
mixed = nb.trace("kernels-mixed")
decode = runs.flat_batch(mixed, 9)
array("A's row of block_table", decode.tables[0], dtype="int32", ruler="block of A")

# %%
program = facts.program_of(mixed, 9, row=0)
tiles = [facts.show_cells(tile.keys) for tile in program.tiles]
width = facts.launch_of(mixed, 9, "paged_attention_kernel").constants["TILE"]
note(f"Step 9: A has {decode.seq_lens[0]} keys, a tile has {width}. Tile 1 reads {tiles[0]}, {width} keys from two "
     f"blocks.")

# %%
ask.section_7(program, decode, width, tiles)

# %%
step_9 = runs.flat_batch(together, 9)
note(f"Fill all slots that no token was written to with NaN, then with zeros, and run the kernel on both. Largest "
     f"difference of the outputs: {runs.change(step_9, step_9.without_nan())}. A masked key is not loaded at all.")

# %% [markdown]
# ## 8 · The running max
#
# Softmax subtracts the largest score, and divides by a sum over all keys. A program that sees one tile at a time has
# neither yet. So it carries a **running max** and a sum, and repairs both. Here is the head of
# [notebook 07](07_forward.ipynb): layer 16, head 0, step 13, in tiles of 16 keys.

# %% tags=["floats"]
seen = facts_07.read_by_head(nb.trace("values-rome"), step=13, layer=16, head=0)
carried = list(runs.carried(seen.query, seen.keys, tile=16))
lines = [{"tile": number, "keys": f"{first}–{last}", "running max": f"{top:.3f}", "correction": f"{factor:.4f}",
    "sum": f"{total:.4f}"}
         for number, (first, last, top, factor, total) in enumerate(carried, 1)]
table(lines[:3], caption=f"The first three of {len(lines)} tiles")

# %% [markdown]
# ## 9 · A larger score in the last tile

# %% tags=["floats"]
ask.section_9(carried)

# %% tags=["floats"]
table(lines[3:], caption="The last tile")

# %% [markdown]
# This is **online softmax**. The vLLM symbol is `v1/attention/ops/triton_attention_helpers.py::softmax_step`.
#
# > **A good place to stop.** One program writes one token. One program reads a few tokens' queries against tiles of
# > keys, found through the table. Max and sum are carried along and repaired.
#
# ## 10 · The split form
#
# Without the fourth request step 9 is a decode for all: one token each. One program for each request and KV head
# would be too few for a GPU, which has a hundred processors and more. So the keys are **split** into segments, one
# program each, and a second kernel joins their parts. The rule is `tuning.choose_form`; in vLLM it is in
# `v1/attention/ops/triton_unified_attention.py::unified_attention`.

# %%
split, join = (facts.launch_of(together, 9, f"{name}_kernel") for name in ("paged_decode_segments", "reduce_segments"))
parts = [part for part in facts.programs_of(together, split) if part.writes]
busy = [sum(part.program[:2] == [row, 0] for part in parts) for row in range(split.grid[0])]
note(f"Step 9 of the three: grid {tuple(split.grid)}, {facts.count(split)} programs, {len(parts)} work: "
     f"{' + '.join(map(str, busy))} segments of {split.constants['TILE']} keys for A, B and C, times {split.grid[1]} "
     f"KV heads. The grid's third number is a constant, the most segments of a request. Then {facts.count(join)} "
     "programs join them.")

# %%
table([{"segment": part.program[2], "reads block[cells]": facts.show_cells(part.reads["k_cache"])}
       for part in parts if part.program[:2] == [0, 0]], caption="A's segments, KV head 0")

# %%
note(f"A joining program, one for each request and query head, weighs each segment's sum and output by 2^(its max − "
     f"largest max): the repair of section 9 once more. Difference to one pass over all keys: "
     f"{runs.change(step_9, step_9, 'decode')}.")

# %% [markdown]
# ## 11 · The launch
#
# A program can know what it is handed, and its own number. These are all arguments of the read launch of step 1.

# %%
table([{"pointer to": name, "shape": info.shape, "strides": info.strides, "dtype": info.dtype} for name,
    info in read.tensors.items()])

# %%
table([("at run time", ", ".join(f"{name} {value:g}" for name, value in read.numbers.items())),
       ("when compiled", ", ".join(f"{name} {value}" for name, value in read.constants.items() if value))],
           ("numbers", "names and values"))

# %% [markdown]
# The block size is a constant of the compilation, and a power of two. So the block of a slot, `slot // BLOCK_SIZE`,
# needs no division: it is a shift, and `slot % BLOCK_SIZE` a mask. Another block size is another kernel; another
# batch is not.
#
# ## 12 · Down to PTX
#
# **PTX** is the last readable form before machine code. Triton builds it for a GPU that need not be there, here for
# `sm_90`, an H100. First the write kernel: the lines that turn a slot into block and cell.

# %%
writes, reads, reads_half = ptx.machine_code(
    ("reshape_and_cache", "float32"), ("paged_decode", "float32"), ("paged_decode", "bfloat16"))
ptx.show_lines(writes, ("shr.u64", "and.b64"))

# %%
ask.section_12(reads)

# %%
ptx.show_lines(reads, ("0f3FB8AA3B", "ex2.approx"))

# %% [markdown]
# `0f3FB8AA3B` is log2 e in float32. What else is in there, counted:

# %%
ptx.show_counts({"float32": reads, "bfloat16": reads_half})

# %% [markdown]
# No integer division. In float32 our products stay float32; vLLM's kernel hands them to the tensor cores as **tf32**,
# which keeps fewer than half of the bits after the point. In bfloat16 both use the tensor cores. So the same weights
# give other last digits on another device, and where two tokens are close, another token.
#
# ## 13 · Who read what, in the terminal
#
# `minivllm kernels show TRACE --launch N` prints the map of a launch. Here is the split launch of section 10.

# %%
facts.show_map(together, split)

# %% [markdown]
# ## What if …
#
# **… `block_size` is `32` in place of `16`?** Guess first: do A's segments read more keys, fewer, or the same?

# %%
one, wide = nb.trace("kernels-one"), nb.trace("kernels-one-block-32")
rows = [facts.segments(trace, 9, row=0) for trace in (one, wide)]
table([(number, *pair) for number, pair in enumerate(zip(*rows, strict=True))], ("segment", "blocks of 16",
    "blocks of 32"), caption="A alone, step 9, KV head 0")

# %% [markdown]
# The same keys; only their addresses differ. `seq_lens` decides how many, the table decides where.
#
# **… a fourth request arrives in step 9?** Guess first: does A's own token run through the same kernel?

# %%
table([(name, launch.name.removesuffix("_kernel"), str(tuple(launch.grid))) for name, trace in (("three", together),
    ("four", mixed))
       for launch in facts.launches(trace, 9)], ("requests in step 9", "kernel", "grid"))

# %% [markdown]
# No: one prompt in the batch, and all take the kernel for mixed lengths. Sums run in another order there, so A's
# numbers differ in their last digits.
#
# **… one key of block 2, KV head 0, is NaN?** Guess first: whose output is spoilt, and in which query heads?

# %%
runs.show_spoilt(step_9.with_nan(block=2, cell=5, kv_head=0), "ABC")

# %% [markdown]
# Block 2 is shared by A and B, and a group of query heads reads KV head 0. Sharing and GQA in one table.
#
# ## Traps

# %%
traps({1: "block 0 pads the table's rows; the mask keeps it from being read", 37: "sections 2 and 4",
    38: "section 7: the table says what is next",
       41: "section 11: strides are arguments", 43: "section 10, and the second what-if"})

# %% [markdown]
# ## The code

# %%
code("kernels/reshape_and_cache.py::reshape_and_cache_kernel", mark=("if slot < 0:", "line = slot"), start="token =",
     same="The same for each token; vLLM's also scales to FP8 and knows a second layout.")

# %%
code("kernels/paged_attention.py::paged_attention_kernel", start="q_block = tl.program_id(0)", lines=14,
     mark=("find_sequence", "if first_query >= query_len", "context_len ="), same="The same search and the same "
         "early exit; ours leaves the last row idle (section 6).")

# %%
code("kernels/tile_ops.py::attend", start="for tile in range", lines=12, mark=("blocks = tl.load(table_row",),
    vllm="v1/attention/ops/triton_unified_attention.py::kernel_unified_attention")

# %%
code("kernels/tile_ops.py::softmax_step", mark=("new_max = tl", "correction ="), same="The same step, in powers of "
    "two.")

# %% [markdown]
# ## Left out
#
# Present in vLLM, and not here: FP8 caches, attention sinks, ALiBi, tensor descriptors, CUDA graphs,
# FlashAttention's own kernels. Sliding windows and soft caps are in our kernel and not in this notebook. vLLM's tile
# sizes hold in the interpreter; on a GPU ours are larger (`kernels/tuning.py`).
#
# ## Summary
#
# One program writes one token. One program reads a few tokens' queries against tiles of keys, each tile found through
# the table. Max and sum are carried along and repaired, so no row of scores is ever stored.
#
# ## Check yourself

# %%
ask.check_yourself(one)

# %% [markdown]
# ## Next
#
# After the last layer there is one number for each token of the vocabulary, for each request. One must be chosen.
# → [09 · Logits to a token](09_sampling.ipynb)
