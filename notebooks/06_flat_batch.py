# %% [markdown]
# # 06 · From requests to a flat batch
#
# **The question.** How do three ragged requests become a few flat arrays?
#
# **Before.** [KV blocks](04_blocks.ipynb); [preemption](05_preemption.ipynb) for the last case. Plan 40 minutes.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("06", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_06 import by_row, labels, news, slot_of, spans
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_06 as ask

again = Story(nb.trace("again"), "A A′ B C F")
nb.map()

# %%
ask.recall_before(again)

# %% [markdown]
# ## The puzzle

# %%
hard = Story(nb.trace("pool-8-nc"), "A B C")
a, b = (slot_of(hard, "C", 17, position) for position in (15, 16))
note("A, B and C ran in a small pool without caching, *pool-8-nc* in [notebook 05](05_preemption.ipynb). In step 17 "
     f"C's token at position 15 goes to slot {a}, and its neighbour at position 16 to slot **{b}**. *Is that a bug?* "
     "It is not. Say why before you reach section 11.")

# %% [markdown]
# ## 1 · Step 1 of A, worked
#
# The worker gets a [plan](../docs/glossary.md#plan): ids, tables, counts. The model wants arrays with one entry for
# each **token** of the step, all requests side by side: a [**flat batch**](../docs/glossary.md#flat-batch). Here are
# three of the arrays, for A alone.

# %%
one = Story(nb.trace("one"), "A")
array("input_ids", list(map(str, one.batch(1).input_ids)), dtype="int32", owners="A")

# %%
array("positions", one.batch(1).positions, dtype="int64", owners="A")

# %%
array("slot_mapping", one.batch(1).slot_mapping, dtype="int64", owners="A")

# %% [markdown]
# `positions` says where a token stands in its request: its [**position**](../docs/glossary.md#position).
# `slot_mapping` says in which slot of the pool its K and V go. It looks as if one were the other plus a block.
#
# ## 2 · Where does the next block lie?
#
# In the trace *late*, C arrives while A decodes, and takes blocks. Then A crosses the border of a block.

# %%
late = Story(nb.trace("late"), "A C")
table([{"planned": f"step {step}", "A's table": late.table("A", step), "C's table": late.table("C", step)}
       for step in (4, 5, 9)], caption="late: block tables right after the plan of a step")

# %%
ask.section_2(late)

# %% [markdown]
# ## 3 · The formula as a picture

# %%
picture(pictures.block_table(late.trace, late.at(9), "A", owners=late.cast, positions=(0, 44, 48), alt="A's block "
        f"table {late.table('A', 9)} in step 9, with three positions marked. Position 48 is the first cell of block "
        f"{late.table('A', 9)[3]}, which is slot {slot_of(late, 'A', 9, 48)}."),
        "Position → row and cell of the table → block → slot.")

# %% [markdown]
# In vLLM: `v1/worker/block_table.py::BlockTable.compute_slot_mapping`.
#
# ## 4 · Two requests side by side, with gaps
#
# *late*, step 5: A wants one token, C enters with the rest of its prompt. All tokens lie side by side, without
# padding. Only the first six are shown, and some are left to you.

# %%
array("positions", late.batch(5).positions[:6], owners=labels(late, 5)[:6], borders=[1], gaps=range(1, 6))

# %%
array("slot_mapping", late.batch(5).slot_mapping[:6], owners=labels(late, 5)[:6], borders=[1], gaps=range(6))

# %%
ask.section_4(late)

# %% [markdown]
# ## 5 · Borders and reach
#
# Two short arrays say which part of the batch belongs to whom. [`query_start_loc`](../docs/glossary.md#query-start)
# lists the **borders**. [`seq_lens`](../docs/glossary.md#sequence-length) lists the **reach**: how many tokens of a
# request attention may look at when the step is done.

# %%
ask.section_5(late)

# %%
table(by_row(late, 5), ["row", "request", "tokens", "positions", "block table", "slots", "seq_lens"],
      "late, step 5; a row is a request's place in the worker's arrays (section 8)")

# %% [markdown]
# ## 6 · Three requests, no padding

# %%
three = Story(nb.trace("together"), "A B C")
table(by_row(three, 1), ["row", "request", "tokens", "positions", "slots", "seq_lens"], "together, step 1")

# %%
batch, sent = three.batch(1), three.sent(1)
note(f"{batch.num_tokens} tokens and not one cell of padding: `query_start_loc` is {batch.query_start_loc}. B sends "
     f"{sent['B']} tokens and reaches {batch.seq_lens[1]}; the other {three.hit('B')} lie in blocks that it shares.")

# %% [markdown]
# ## 7 · Which tokens reach the head?
#
# The model makes one [hidden state](../docs/glossary.md#hidden-states) for each token, in the order of the flat
# batch. The head makes [logits](../docs/glossary.md#logits) of a few of them only: they have one entry for each token
# of the vocabulary. Which ones, counted from the left, is what `logits_indices` says.

# %%
ask.section_7(three)

# %%
batch, sent, rows = three.batch(1), three.sent(1), three.batch(1).logits_indices
picture(pictures.flat_batch(three.trace, 1, owners=three.cast, alt=f"{batch.num_tokens} tokens of step 1 in one row: "
        f"A {sent['A']}, B {sent['B']}, C {sent['C']}. Rows {rows} give logits, and the draw of C is thrown away."),
        "The last token of each request gives logits; C's draw is thrown away, since its prompt is not complete.")

# %% [markdown]
# ## 8 · Rows persist, and move
#
# The flat arrays are made anew in each step. Something stays: each request has a [**row**](../docs/glossary.md#row)
# of its own in the worker's arrays as long as it is scheduled. When requests end, the last row moves into the hole:
# this is [**condense**](../docs/glossary.md#condense).

# %%
end = three.last_step("A")
table([{"step": step, **{f"row {row}": dict(enumerate(three.rows(step))).get(row) for row in range(3)},
        "C's block table": three.table("C", step)} for step in (end, end + 1)], caption="together: A and B end")

# %%
old, new = three.event("update_states", end + 1).moved[three.ids["C"]]
note(f"C moves from row {old} to row **{new}**, and its row of the block table moves along.")

# %% [markdown]
# ## 9 · What is not sent again

# %%
table(news(late, 9), caption="late, the plan of step 9, as the worker gets it")

# %% [markdown]
# The tokens that A and C feed in this step were sampled in the step before. They are not in the plan: the worker has
# kept them. Old block ids are not sent either; only new ones travel, and `None` says that there are none.
#
# ## 10 · The shuffled batch, alone
#
# *pool-8-nc*: B was preempted ([notebook 05](05_preemption.ipynb), section 10), and comes back in the step in which C
# starts.

# %%
sent = hard.sent(16)
note(f"The plan of step 16 gives, in this order: B {sent['B']} tokens (resumed, table {hard.table('B', 16)}), C "
     f"{sent['C']} tokens (new, table {hard.table('C', 16)}). A has ended.")

# %%
ask.section_10(hard)

# %%
table(by_row(hard, 16), ["row", "request", "tokens", "positions", "block table", "slots"], "pool-8-nc, step 16")

# %% [markdown]
# ## 11 · The puzzle, answered

# %%
mine = hard.table("C", 17)
picture(pictures.block_table(hard.trace, hard.at(17), "C", owners=hard.cast, positions=(15, 16, 32), alt="C's block "
        f"table {mine} in step 17. Position 15 ends block {mine[0]}, the next one begins block {mine[1]}."),
        f"C's blocks are {mine}, so neighbours in the text lie far apart in the pool.")

# %% [markdown]
# ## 12 · Borders of the shuffled batch

# %%
ask.section_12(hard)

# %%
table(by_row(hard, 16), ["row", "request", "tokens", "seq_lens", "logits index", "draw"], "pool-8-nc, step 16")

# %% [markdown]
# ## 13 · What attention asks

# %%
batch, rows = hard.batch(16), hard.rows(16)
table([("input_ids", "which tokens?", len(batch.input_ids)), ("positions", "where am I?", len(batch.positions)),
       ("slot_mapping", "where do I write?", len(batch.slot_mapping)), ("seq_lens", "how far may I look?", len(rows)),
       ("query_start_loc", "whose tokens are these?", len(batch.query_start_loc)),
       ("block table", "in which blocks?", f"{len(rows)} rows")], ["array", "the question", "entries in step 16"])

# %% [markdown]
# ## What if …
#
# **… a block holds twice as many tokens?** Guess which of the arrays change, and which do not.

# %%
told = {16: one, 32: Story(nb.trace("block-32"), "A A′")}
table([{"block size": n, "A's table, step 1": a.table("A", 1), "slots of step 1": spans(a.batch(1).slot_mapping),
        "A's table, step 9": a.table("A", 9), "position 48 goes to": slot_of(a, "A", 9, 48)} for n, a in told.items()])

# %% [markdown]
# **… C finds nothing in the cache?** Guess which of C's arrays change.

# %%
bare = Story(nb.trace("late-nc"), "A C")
table([{"caching": what} | row for what, told in (("on", late), ("off", bare)) for row in by_row(told, 5)],
      ["caching", "row", "request", "positions", "block table", "slots", "seq_lens"], "late and late-nc, step 5")

# %%
diff_view(nb.trace("late"), nb.trace("late-nc"), lines=6, names=("caching on", "caching off"))

# %% [markdown]
# **… A is given up while B goes on?** The caller aborts A after step 5. Guess which row B has in step 6.

# %%
given = Story(nb.trace("abort"), "A B")
table([{"step": step} | row for step in (5, 6) for row in by_row(given, step)],
      ["step", "row", "request", "positions", "block table", "slots"], "abort: the steps around the end of A")

# %%
note(f"B moves to row {given.rows(6).index('B')}, and its slots go on as before: they depend on the table, not on "
     f"the row. The free queue ends with {given.state(6).free_order[-1]}, the private block of A.")

# %% [markdown]
# ## Traps

# %%
traps({13: "section 9", 20: "section 5", 32: "section 10", 33: "section 10", 34: "section 10", 35: "section 9",
       36: "section 7", 39: "[notebook 09](09_sampling.ipynb)"})

# %% [markdown]
# ## The code

# %%
code("minivllm/worker/batch.py::locate_tokens", start="cumulative = ", mark=("query_pos =", "positions ="),
     same="The same arrays, from the same formulas.")

# %%
code("minivllm/worker/batch.py::read_tables", start="req_indices = ", mark=("blocks =", "slot_mapping ="),
     same="The same formula. vLLM computes the slots in a kernel on the device.")

# %%
code("minivllm/worker/input_batch.py::InputBatch.update_states", mark=("joining = [", "self.condense()"),
     same="The same order: drop, add, extend, close the holes.")

# %%
code("minivllm/worker/input_batch.py::InputBatch.condense", mark=("self._move_last_row(hole)",),
     same="The same: the lowest hole gets the last row.")

# %% [markdown]
# ## Left out
#
# vLLM has, and this engine has not: padding for CUDA graphs (slot −1, repeated borders), the device-side feed of
# sampled tokens in asynchronous scheduling, kernel block sizes other than the manager's, the order of the V2 runner
# (trap 61).
#
# ## Summary
#
# All tokens of all requests lie side by side without padding. Positions say where a token is in its request, slots
# where its K and V go, borders whose it is. One hidden state per request reaches the head.
#
# ## Check yourself

# %%
ask.check_yourself(again, three)

# %% [markdown]
# ## Next
#
# These arrays enter the model. Inside, one line per layer uses them. → [07 · One forward pass](07_forward.ipynb)
