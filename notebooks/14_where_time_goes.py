# %% [markdown]
# # 14 · Where the time goes
#
# **The question.** What do latency and throughput consist of, and which knob moves which?
#
# **Before.** [The scheduler](03_scheduler.ipynb) and [preemption](05_preemption.ipynb);
# [FlashAttention](13_flash_attention.ipynb) counted bytes, this one counts time. Plan 40 minutes. Some traces
# here were recorded on the wall clock of one small machine, with one thread. Its seconds are of no interest, so none
# are shown: ratios are the lesson.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("14", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_14 as facts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_14 as ask

nb.map()

# %%
ask.recall_before(nb)

# %% [markdown]
# ## The puzzle
#
# Sixteen copies of A decode together: sixteen tokens in one step, in place of one. *How much longer is a step than for
# one copy?*
#
# ## 1 · Sixteen for the price of …

# %% tags=["floats"]
crowds = {n: nb.trace(f"batch-{n}") for n in (1, 2, 4, 8, 16, 32, 64)}
longer = facts.relative(crowds)
free = max(n for n, ratio in longer.items() if ratio < 1.15)

# %% tags=["floats"]
ask.section_1(longer, free)

# %% [markdown]
# ## 2 · The curve

# %% tags=["floats"]
pictures.bars({f"{n} {'copy' if n == 1 else 'copies'}": round(ratio, 2) for n, ratio in longer.items()}, unit="×",
    alt="How long a decode step takes for batches of " + ", ".join(map(str, longer)) + " copies, as multiples of one: "
        + ", ".join(f"{ratio:.1f}" for ratio in longer.values()) + ". It grows far slower than the batch.",
    caption="A decode step grows far slower than its batch")

# %% tags=["floats"]
table([(n, f"{ratio:.2f}", f"{n / ratio:.1f}") for n, ratio in longer.items()], ("copies", "time of a step",
    "tokens a second"), caption="Both as multiples of one copy. bfloat16, one thread, caching off, so that nothing "
                                "is shared")

# %% [markdown]
# **Throughput** is tokens a second for all; **latency** is one reader's wait. A larger batch raises the first a lot and
# the second a little.
#
# ## 3 · The share of the scheduler
#
# The scheduler is Python, and decides anew in every step.

# %% tags=["floats"]
alone, crowd = facts.parts(crowds[1]), facts.parts(crowds[64])

# %% tags=["floats"]
ask.section_3(alone)

# %% [markdown]
# ## 4 · One decode step, opened

# %% tags=["floats"]
table([(name, facts.share(alone[name]), facts.share(crowd[name])) for name in alone], ("part of a decode step",
    "1 copy", f"{max(crowds)} copies"), caption="Shares of the step, from the events of the trace")

# %% [markdown]
# ## 5 · Why company is cheap
#
# Every step reads all weights once, for however many tokens. K and V are read for each request.

# %%
model = nb.trace("one").header.model
weights, cell = facts.weight_bytes(model), facts.kv_bytes(model)
known = nb.trace("one").filter(step=9, kind="prepare_inputs")[0].seq_lens[0]
table([("weights, once a step", f"{weights:,}", "100%"), (f"A's K and V in step 9, {known} tokens × {cell:,}",
    f"{known * cell:,}", f"{known * cell / weights:.1%}")],
      ("read in a step", "bytes in float32", "of the weights"), caption="From the shapes of the model; in bfloat16 "
          "both halve")

# %% [markdown]
# ## 6 · When K and V catch up

# %%
ask.section_6(weights, cell, crowds, model)

# %% [markdown]
# ## 7 · Two latencies of one request
#
# **TTFT** is the time to the first token: from the request's arrival to its first text. **TPOT** is the time per output
# token after that. Both are differences of two events. Here is A across two processes.

# %% tags=["floats"]
wall = nb.trace("one-wall")
ratio, shares = facts.way_to_first_token(wall)
marks = [wall.filter(kind=kind)[place] for kind, place in (("llm_engine.add_request", 0), ("core.receive", 0),
    ("detokenize", 0), ("detokenize", -1))]
table([(one.seq, one.kind, one.proc, what) for one, what in zip(marks, ("TTFT begins", "the message is there",
    "TTFT ends", "the last TPOT ends"), strict=True)], ("event", "kind", "process", "what it marks"))

# %% tags=["floats"]
table([(name, facts.share(part)) for name, part in shares.items()], ("until the first token", "share of the TTFT"),
    caption=f"TTFT is {ratio:.1f} times TPOT here: one step with the whole prompt against steps with one token")

# %% [markdown]
# The message itself is small beside a step. The vLLM symbol is `v1/metrics/stats.py::IterationStats`.
#
# ## 8 · A hole in a stream
#
# In `pool-8` A, B and C share a small pool. C is preempted ([notebook 05](05_preemption.ipynb)).

# %%
pool = Story(nb.trace("pool-8"), "A B C")
stretches = facts.stretches(pool, "C")
place, before, after = facts.hole(pool, "C")
tried = facts.refused(pool, "C")
table([(name, steps) for name, steps in stretches], ("C's time went to", "steps"), caption="C's life in pool-8")

# %%
ask.section_8(place, before, after, tried)

# %%
pictures.ttft_tpot(pool.trace, owners="ABC", unit="steps", alt=f"Tokens of A, B and C over the steps of pool-8. C's "
    f"ticks stop after step {before} and go on in step {after}; A and B have none missing.",
    caption=f"C is silent from step {before} to step {after}")

# %% [markdown]
# ## 9 · The budget is a dial
#
# C's prompt arrives while A decodes. How many tokens share A's step decides how long A's reader waits for that step.

# %%
dials = {name: Story(nb.trace(name), "A C") for name in ("late-nc", "late", "late16-nc")}
told = {"late-nc": "budget 64", "late": "budget 64, with a prefix hit", "late16-nc": "budget 16"}
table([(told[name], max(sum(one.sent(step).values()) for step in range(2, 9)), one.first_word("C")) for name,
    one in dials.items()],
      ("setting", "most tokens in one of A's steps", "C's first word in step"), caption="A decodes, C arrives before "
          "step 5")

# %% [markdown]
# A small budget: longer waits for the newcomer, a smoother stream for those who are already reading. vLLM's default
# budget and seats come from `engine/arg_utils.py::EngineArgs.get_batch_defaults`.
#
# ## 10 · The same file in Perfetto
#
# `minivllm export --to chrome traces/one-wall.jsonl.gz` writes a file that [Perfetto](https://ui.perfetto.dev) and
# chrome://tracing open. Look for three things: gaps between `step` bars (nobody had work), a `step` that is much longer
# than its neighbours (a prompt), and the counter of free blocks near 0 (preemption is near).
#
# ## 11 · What vLLM would have told you
#
# With default settings of `LLM`, nothing: statistics are off (`disable_log_stats` is set). With them on, a request has
# three kinds of events with times: queued, scheduled, preempted (`v1/engine/__init__.py::EngineCoreEventType`), and
# sums are made when it ends (`v1/metrics/stats.py::IterationStats.update_from_finished_request`). Why a request was
# passed over stands nowhere.
#
# ## What if …
#
# **… prefix caching is off?** Five requests in turn. Guess first: does the number of steps fall, or the number of
# tokens?

# %%
turns = {name: Story(nb.trace(name), "A A′ B C F") for name in ("again", "again-nc")}
table([("on" if name == "again" else "off", facts.prompt_tokens(one), one.steps) for name, one in turns.items()],
      ("prefix caching", "prompt tokens computed", "steps"))

# %% [markdown]
# Caching saves tokens, and so seconds; it hardly saves steps.
#
# **… there is one seat?** Guess first: what does B's reader lose, TTFT or TPOT?

# %%
seats, both = Story(nb.trace("seats1"), "A B"), Story(nb.trace("together"), "A B C")
note(f"TTFT: B's first word comes in step {seats.first_word('B')} in place of step {both.first_word('B')}. From then "
     f"on one token a step, as always.")

# %% [markdown]
# **… the pool is smaller?** Guess first: where is the edge below which steps are lost?

# %%
pools = {n: Story(nb.trace(f"pool-{n}"), "A B C") for n in (7, 8, 9, 10)}
pictures.bars({f"pool {n}": one.steps for n, one in pools.items()}, unit="steps", alt="Steps that A, B and C take "
    "with pools of 7, 8, 9 and 10 blocks: "
    + ", ".join(str(one.steps) for one in pools.values()) + f". From {max(pools)} blocks on nothing is lost.",
        caption="Blocks buy steps, up to what is needed")

# %% [markdown]
# ## Traps

# %%
traps({58: "counting messages is not counting steps", 59: "section 11", 60: "TTFT is a difference on one clock: the "
    "caller's", 31: "planning ahead has a price: a stop is found one step late"})

# %% [markdown]
# ## The code

# %%
code("minivllm/show/pictures/latency.py::Latency", lines=20, mark=("def ttft", "def tpot"),
    vllm=("v1/metrics/stats.py::IterationStats.update_from_finished_request", "v1/metrics/stats.py::RequestStateStats"),
     same="The same differences. vLLM takes TTFT on the caller's wall clock, and the time between tokens on the "
          "core's clock.")

# %%
code("minivllm/show/phases.py::phases", lines=18, mark=("_marks",), same="vLLM knows queue, prefill and decode, and "
    "sums them up at the end; ours also has preempted and recompute.")

# %%
code("minivllm/show/export_chrome.py::_counters", vllm=(), same="vLLM writes no file for Perfetto; torch's profiler "
    "can, of the kernels.")

# %% [markdown]
# ## Left out
#
# Present in vLLM, and not here: CUDA graphs, compilation, planning while a step runs, several GPUs.
#
# ## Summary
#
# A decode step mostly reads weights, so company is nearly free until arithmetic or K and V catch up. Latency is queue,
# prefill, decode, and holes. Every number is a difference of two events.
#
# ## Check yourself

# %%
ask.check_yourself(dials, tried)

# %% [markdown]
# ## Next
#
# The labs: build the parts that you have just predicted. → [the map of everything](00_map.ipynb)
