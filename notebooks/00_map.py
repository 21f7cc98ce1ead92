# %% [markdown]
# # 00 · The map, and how to read a trace
#
# **The question.** What happens between the call and the answer, in which order, in which process, and how do I ask
# the trace?
#
# **Before.** You know transformers (prefill, decode, KV cache) and Python. Nothing of vLLM is needed. Plan 20
# minutes. How to run the notebooks, and in which order, says the [list of notebooks](README.md).

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("00", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_00 as facts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_00 as ask

ask.recall_before()

# %% [markdown]
# ## The puzzle

# %%
wall = nb.trace("one-wall")
one = Story(wall, "A")
runs, calls = (facts.num_calls(wall, kind) for kind in ("model_forward", "attention"))
taken = facts.num_calls(wall, "get_new_blocks")
note(f"{len(facts.answer_of(wall))} characters come back. For them the model ran **{runs}** times, attention "
     f"**{calls}** times, and memory for keys and values was taken only **{taken}** times. *How often did the "
     f"scheduler run?* Section 5 answers. *And why only {taken}?* The last question below asks you again; [notebook "
     "04](04_blocks.ipynb) has the whole answer.")

# %% [markdown]
# ## 1 · One request, with its answer
#
# All notebooks follow the same **request**: one prompt, with the settings for its answer. It is called **A**. Here
# are its prompt and its answer, cut into tokens. The number below a piece is its place.

# %%
pieces(tokens(one.prompt("A")), owner="A", caption=f"A's prompt: {len(one.prompt('A'))} tokens, sixteen to a line")
pieces(tokens(one.outputs("A")), owner="A", first=len(one.prompt("A")),
       caption=f"A's answer: {len(one.outputs('A'))} tokens. The last one says that the answer ends.")

# %% [markdown]
# The answer is shown first, since nothing here depends on suspense about the text. A blank is drawn as ␣, a newline
# as ⏎.
#
# ## 2 · The map
#
# Two processes work on A. The **caller** is the process in which you call `LLM.chat`. The [**engine
# core**](../docs/glossary.md#engine-core) is the one that plans and computes. Between the parts of the engine there
# are twenty-seven hand-overs, here called **stops**; the trace calls such a place a
# [**boundary**](../docs/glossary.md#boundary).

# %%
nb.map()

# %%
note("<details><summary>What is handed over at each stop</summary>\n\n| stop | from → to |\n|---|---|\n"
     + "\n".join(f"| {stop} | {what} |" for stop, what in facts.stops()) + "\n\n</details>")

# %% [markdown]
# Bytes cross from one process to the other at two stops only: B7 on the way in, B22 on the way out. Every later
# notebook shows this map with its own part filled.
#
# ## 3 · A trace
#
# While A ran, every hand-over was written down as an [**event**](../docs/glossary.md#event), one line of a file each.
# The first line of the file says what ran.

# %%
table(facts.header_rows(wall), ("header", ""))

# %%
note(f"A's [trace](../docs/glossary.md#trace) has **{len(wall)}** events. Its **detail** is {wall.header.detail}: ids, "
     "lengths and tables, no values of tensors. Its clock is the wall clock. Most other traces here are recorded in "
     "one process on a [logical clock](../docs/glossary.md#logical-clock), which only counts events.")

# %% [markdown]
# ## 4 · Three events
#
# A card says when and where an event happened, and two or three of its numbers.

# %%
sent = wall.filter(boundary="B7", proc="caller")[0]
planned, said = one.plan(1), one.event("detokenize", 1)
cards((sent, ["message_type", "num_bytes"]), (planned, ["num_scheduled_tokens"], ["num_free_blocks"]),
      (said, ["new_text"], ["num_chars"]))

# %% [markdown]
# The caller sends a message. The engine core's scheduler plans a step. The caller turns a token id into text. Under
# the name stand the event's number, its step, its process and its thread.

# %%
size = one.config("block_size")
note("Most events are calls. They are numbered in the order in which the calls are entered; `a → b` is a value at the "
     "call's entry and at its exit. `num_free_blocks` counts memory: the **pool** for keys and values is cut into "
     f"[**blocks**](../docs/glossary.md#block), each with room for {size} tokens.")

# %% [markdown]
# ## 5 · How many plans?
#
# The engine core works in [**steps**](../docs/glossary.md#step). Each begins with a plan: a call of `schedule()`.

# %%
came, asked = len(one.outputs("A")), len(one.prompt("A"))
ask.section_5(came, wall, asked)

# %% [markdown]
# ## 6 · Counting, and the path of a request

# %%
table(facts.counts(wall), ("stop", "kind of event", "what it counts", "calls"), "A's whole life in eight counts")

# %% [markdown]
# `trace.filter(kind=…, step=…, request=…)` gives events by what they are. `trace.path("0")` gives all events of a
# request in order; `"0"` is the id that the caller knows. These are the stops on A's path, each where it is entered
# first.

# %%
note(" → ".join(facts.first_pass(wall, "0")))

# %% [markdown]
# Two stops come early. B27 is the caller's loop: it is entered before the answer exists, and left last. B23 is the
# caller waiting for a message: it waits already when the core puts A into its queue (B9). One stop is missing, B26:
# nobody aborted A.
#
# ## 7 · One event, before and after

# %%
card(planned, fields=["num_scheduled_tokens=tokens in the plan"], before_after=["num_free_blocks"])

# %% [markdown]
# A counter moved inside this one call: the blocks are A's. The model has not run yet.
#
# ## 8 · When does a counter move?
#
# The call holds another counter. `num_computed_tokens` counts, for each request, the tokens whose keys and values are
# in the cache. So says its name.

# %%
ask.section_8(one)

# %%
card(planned, before_after=["num_computed_tokens", "num_free_blocks"])

# %% [markdown]
# In vLLM it is the same: `v1/core/sched/scheduler.py::Scheduler._update_after_schedule` moves the counter.
#
# ## 9 · The state at any moment
#
# `trace.state_at(seq)` rebuilds the whole engine after an event, and with `before=True` at its entry. Here is the
# pool, in which keys and values live, on both sides of the first plan.

# %%
free, left = planned.num_free_blocks
picture(pictures.pool(wall, planned.seq, before=True, owners="A", alt="The pool before the plan of step 1, a grid of "
        f"four rows of eight blocks. All {free} usable blocks are free, and block 0 is crossed out."),
        f"Before the plan: {free} blocks are free. The crossed one, block 0, is never handed out.")

# %%
held = one.table("A", 1)
picture(pictures.pool(wall, planned.seq, owners="A", alt="The pool after the plan of step 1, as the same grid. Blocks "
        f"{held[0]} to {held[-1]} are A's and not written yet; {left} are free."),
        f"After it: blocks {held[0]} to {held[-1]} belong to A. They are dotted: of {size} places none is written yet.")

# %% [markdown]
# ## 10 · A step fits a screen
#
# This is the method behind every step of the core. The marked lines are its five calls.

# %%
code("minivllm/engine/core.py::EngineCore.step",
     mark=("scheduler.schedule()", "execute_model(", "sample_tokens()", "process_aborts()", "update_from_output("),
     same="The same five calls in the same order. There, `execute_model` returns a future, since the worker may be "
          "another process.")

# %% [markdown]
# ## 11 · Two doors out
#
# A trace answers in words as well. In a terminal, `minivllm why traces/one-wall.jsonl.gz 0 --step 1` says why A got
# what it got in step 1:

# %%
table(facts.story(wall, "0", 1), ("", "`minivllm why`, request 0, step 1"))

# %% [markdown]
# A's table lists its blocks, so block 0 *of the table* is A's first one, whatever its number in the pool. A seat is a
# place among the requests that run at once, `max_num_seqs` of them.
#
# And `minivllm export traces/one-wall.jsonl.gz --to chrome` writes a file for <https://ui.perfetto.dev>: lanes of
# processes and threads, with time to the right. In a notebook, the same view of the first step is a picture.

# %%
picture(pictures.timeline(wall, steps=(1, 1), owners="A", alt="Lanes for caller, messages, engine core and worker "
        "during step 1, time to the right. The caller sends A and waits; one forward pass fills nearly all the time."),
        "Nearly all of step 1 is the model; what comes before it, the plan included, is a sliver.")

# %% [markdown]
# ## What if …
#
# **… a step may take fewer tokens?** The setting `max_num_batched_tokens` goes from 64 to 16. Will there be more
# steps, or fewer? More messages?

# %%
small = nb.trace("chunk-16")
diff_view(nb.trace("one"), small, names=("budget 64", "budget 16"))

# %%
plans = [facts.num_calls(one, "schedule") for one in (nb.trace("one"), small)]
voiced = sum(1 for event in small.filter(kind="get_output") if event.num_outputs)
note("The first difference is the first plan; `num_scheduled_tokens.0` is what it gives to request 0. There are "
     f"{plans[1]} plans instead of {plans[0]}, but the caller still gets tokens only {voiced} times: steps that end "
     "inside the prompt speak to nobody ([notebook 02](02_boundary.ipynb)). Both runs were in one process; there the "
     "goodbye of section 5 waits for the next call.")

# %% [markdown]
# **… the question is shorter?** H asks for one capital instead of two. More memory, or less?

# %%
short = Story(nb.trace("hello"), "H")
ask.what_if(short, taken)

# %%
blocks = len(short.table("H", 1))
last = max(position for batch in short.trace.filter(kind="prepare_inputs") for position in batch.positions)
table([(meaning, facts.num_calls(wall, kind), facts.num_calls(short.trace, kind)) for kind, meaning in
       facts.MEANS.items() if kind in ("model_forward", "attention", "get_new_blocks")], ("", "A", "H"),
      f"H takes {blocks} blocks, room for {blocks * size} tokens; its last position, {last}, lies in them.")

# %% [markdown]
# ## Traps

# %%
traps({20: "section 8", 51: "the `0` of section 6 is the caller's id; inside, A has another", 58: "the first what-if",
       59: "section 3: this engine always writes a trace"})

# %% [markdown]
# ## The code
#
# Section 10 showed the step. This is the method that section 6 used.

# %%
code("minivllm/trace/replay.py::Trace.path")
code("minivllm/trace/replay.py::Trace.filter", same="vLLM writes no trace of this kind. With `log_stats` it counts, "
     "and it can send one span a request to OpenTelemetry.")

# %% [markdown]
# ## Left out
#
# Several kinds of input (images, audio), LoRA, pooling models, speculative decoding, several GPUs. Also asynchronous
# scheduling: with it, vLLM plans the next step before the last one has given its tokens, so that the five calls of
# section 10 overlap, and the counters run one step ahead. [Differences](../docs/differences.md) has the whole list.
#
# ## Summary
#
# Two processes pass messages; one loop of five calls does the work. Every hand-over is an event with its numbers
# before and after. Ask a trace by request, by step, by kind, or by moment.
#
# ## Check yourself

# %%
ask.check_yourself(one, held, came, taken, size)

# %% [markdown]
# ## Next
#
# The road begins with a line that anybody can write. What does `LLM.generate` do itself? Almost nothing: [01 · `LLM`
# is a facade](01_facade.ipynb).
