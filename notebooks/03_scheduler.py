# %% [markdown]
# # 03 · The scheduler: a budget of tokens
#
# **The question.** Who gets how many tokens in this step, and why not more?
#
# **Before.** [The process boundary](02_boundary.ipynb): the engine core runs by itself, step after step. Plan 40
# minutes. Prefix caching is **off** in this notebook, so that one rule is seen alone; the [next
# one](04_blocks.ipynb) turns it on.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("03", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_03 import budgets, discarded_draws, reasons, turns
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_03 as ask

nb.map()

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle

# %%
nc = Story(nb.trace("together-nc"), "A B C")
a, b, c = (len(nc.prompt(name)) for name in "ABC")
note(f"**A** ({a} prompt tokens), **B** ({b}: the same question about other countries) and **C** ({c}: the colour of "
     f"the sky) arrive together. One step takes {nc.budget} tokens. C comes last and gets {nc.sent(1)['C']} "
     "tokens in step 1. *Who sees their first word first, B or C?* "
     "You answer that in section 5.")

# %% [markdown]
# ## 1 · All that the scheduler looks at: two numbers
#
# For each request the scheduler keeps two counters. **Known** (`num_tokens`) counts the tokens that exist: the
# prompt, and what was sampled so far. **Computed** (`num_computed_tokens`) counts those whose K and V are spoken
# for. In each step a request wants the difference.

# %%
start = {name: nc.trace.state_at(nc.at(1), before=True).requests[nc.ids[name]] for name in nc.cast}
table([{"request": name, "known": now.num_tokens, "computed": now.num_computed_tokens,
        "wants": now.num_tokens - now.num_computed_tokens} for name, now in start.items()], caption="Before step 1")

# %%
table([{"before step": step, "known": nc.known("A", step), "computed": nc.computed("A", step)[0],
        "wants": nc.known("A", step) - nc.computed("A", step)[0]} for step in (1, 2, 3)],
      caption="A, before its first three steps")

# %% [markdown]
# A prompt is a large wish, a decode is a wish of one. There is no "prefill phase" and no "decode phase" in the
# scheduler: the same subtraction covers both. The symbol in vLLM is `v1/core/sched/scheduler.py::Scheduler.schedule`.
#
# ## 2 · The budget of step 1
#
# `max_num_batched_tokens` is the [**token budget**](../docs/glossary.md#budget) of a step, for all requests
# together. The scheduler goes through the requests in order of arrival, and each takes what it wants, at most what
# is left. A's turn is worked out here.

# %%
table(turns(nc, 1)[:1], caption="Step 1, the first turn")

# %% [markdown]
# ## 3 · The rest of step 1

# %%
ask.section_3(nc)

# %%
a, b, c = (nc.sent(1)[name] for name in "ABC")
picture(pictures.budget(nc.trace, 1, owners=nc.cast, alt=f"The token budget of step 1 as a bar of {nc.budget}. "
        f"A fills {a}, B the remaining {b} of the {nc.known('B', 1)} that it wants, and C gets {c}."),
        f"Step 1: A takes all that it wants, B is cut at {b}, and nothing is left for C.")

# %% [markdown]
# B's prompt is cut into [**chunks**](../docs/glossary.md#chunk): this is chunked prefill. B has a
# [**seat**](../docs/glossary.md#seat) now, one of `max_num_seqs`: it is *running*. C is still *waiting*.
#
# ## 4 · Step 2, with gaps
#
# Running requests have their turn first, in order of admission. Then the waiting queue has its turn, from its head.
# Fill the gaps before you open the answers.

# %%
table([{"turn": row["turn"], "from": row["from"], "left before": "?", "wants": row["wants"], "gets": "?"}
       for row in turns(nc, 2)], caption="Step 2: fill the gaps")

# %%
ask.section_4(nc)

# %%
a, b, c = (nc.sent(2)[name] for name in "ABC")
picture(pictures.budget(nc.trace, (1, 2), owners=nc.cast, alt="The token budgets of the first two steps as bars. "
        f"In step 2 A takes {a}, B its last {b}, C all its {c}, and {nc.plan(2).token_budget[1]} stay unused."),
        f"Step 2 serves all three; {nc.plan(2).token_budget[1]} of {nc.budget} tokens stay unused.")

# %% [markdown]
# ## 5 · Who speaks first?

# %%
ask.section_5(nc)

# %% [markdown]
# ## 6 · All steps at once

# %%
a, b, c = (nc.last_step(name) for name in "ABC")
picture(pictures.schedule(nc.trace, owners=nc.cast,
        alt=f"Tokens of A, B and C in {nc.steps} steps. A ends in step {a}, B in step {b}, C in step {c}."),
        f"A ends in step {a}, B in step {b}, C in step {c}: nobody waits for the slowest.")

# %% [markdown]
# The set of requests changes from step to step. This is
# [**continuous batching**](../docs/glossary.md#continuous-batching).
#
# ## 7 · A newcomer beside a decode
#
# Now a small budget. A is alone and decoding when C arrives.

# %%
late16 = Story(nb.trace("late16-nc"), "A C")
step = late16.first_step("C")
note(f"Budget {late16.budget}. C ({len(late16.prompt('C'))} prompt tokens) arrives before step {step}. A wants "
     f"{late16.known('A', step) - late16.computed('A', step)[0]} token there.")

# %% [markdown]
# ## 8 · Prefill first, or decode first?

# %%
ask.section_8(late16)

# %%
first = late16.first_word("C")
chunks = [late16.sent(step)["C"] for step in range(late16.first_step("C"), first + 1)]
picture(pictures.schedule(late16.trace, steps=(1, 12), owners=late16.cast, alt="Tokens of A and C in twelve steps. "
        f"C's prompt takes {len(chunks)} steps, {' + '.join(map(str, chunks))}, and A decodes in each of them."),
        f"C's prompt goes in as {' + '.join(map(str, chunks))}; A speaks in every one of these steps.")

# %% [markdown]
# ## 9 · What a chunk says, and nobody hears
#
# The model gives a next token after the last token of every chunk. The scheduler throws it away as long as the prompt
# is not complete.

# %%
table(discarded_draws(nb.trace("chunk-16-values")), caption="A in chunks: the two likeliest tokens after each of them")

# %% [markdown]
# These words are computed, drawn and [dropped](../docs/glossary.md#discarded-token). No message carries them, and
# the caller never sees them.

# %% [markdown]
# ## 10 · The head of the line
#
# The front of the queue can block all behind it: [**head-of-line
# blocking**](../docs/glossary.md#head-of-line-blocking). So far only the budget was scarce. K and V also need
# memory, and memory comes in **blocks**, which here are only a count; [notebook 04](04_blocks.ipynb) opens them.
# Three requests share a small pool; L has a long prompt and a short answer.

# %%
lc = Story(nb.trace("queue-LC"), "A L C")
needs = {name: next(skip.blocks_needed for skip in lc.skips(name).values() if skip.blocks_needed) for name in "LC"}
table([{"place in line": place, "request": name, "prompt tokens": len(lc.prompt(name)), "blocks needed": needs[name],
        "blocks free": lc.free(2)[0]} for place, name in enumerate("LC", 1)],
      caption=f"Waiting before step 2; A runs, and has {len(lc.table('A', 2))} of "
              f"{lc.trace.header.num_gpu_blocks - 1} blocks")

# %%
chunk, size = lc.budget - lc.sent(2)["A"], lc.config("block_size")
note(f"A request is admitted only if there is room for its *whole* prompt. L's first chunk, {chunk} tokens, would fit "
     f"into {-(-chunk // size)} blocks, and {lc.free(2)[0]} are free. But L needs {needs['L']} for all of it.")

# %% [markdown]
# ## 11 · When does C start?

# %%
ask.section_11(lc)

# %%
waits = lc.skips("C")
room = sum(lc.free(step)[1] >= waits[lc.first_step("L") + 1].blocks_needed for step in waits)
picture(pictures.schedule(lc.trace, owners=lc.cast, alt=f"Tokens of A, L and C in {lc.steps} steps. L starts in step "
        f"{lc.first_step('L')}, when A has ended; C behind it starts in step {lc.first_step('C')}."),
        f"C waits {len(waits)} steps, in {room} of them beside as many free blocks as it needs.")

# %% [markdown]
# ## 12 · Three reasons for one wait
#
# For each request that got nothing there is a [reason](../docs/glossary.md#skip-reason). vLLM does not say it; ours does
# when it is asked: `Scheduler.find_skipped(plan)`.

# %%
back = lc.first_step("L")
table(reasons(lc, "C", (2, back, back + 1)), caption="C is passed over: three of its steps, three reasons")

# %%
cl = Story(nb.trace("queue-CL"), "A C L")
note(f"Swap the two arrivals (C before L): C is done in step {cl.last_step('C')}, and everything in {cl.steps} steps "
     f"instead of {lc.steps}. The order of arrival is the only difference.")

# %% [markdown]
# ## What if …
#
# **… the budget is smaller?** Before you look: does A's first word come earlier, later, or in the same step?

# %%
runs = {64: "one", **{n: f"chunk-{n}" for n in (41, 40, 16, 8, 1)}}
table(budgets({n: Story(nb.trace(name), "A") for n, name in runs.items()}), caption="A alone")

# %%
diff_view(nb.trace("chunk-41"), nb.trace("chunk-40"), names=("budget 41", "budget 40"))

# %% [markdown]
# **… the budget is larger, or chunking is off?** Guess the direction first: how many steps do A, B and C need?

# %%
variants = {"budget 128": "together-nc128", "budget 64": "together-nc", "chunking off": "together-nc-nochunk"}
told = {what: Story(nb.trace(name), "A B C") for what, name in variants.items()}
table([{"setting": what, **{f"{name} in step 1": one.sent(1)[name] for name in "ABC"}, "steps in all": one.steps,
        "C's first word": f"step {one.first_word('C')}"} for what, one in told.items()], caption="Caching off")

# %% [markdown]
# A smaller budget costs few steps in all, and C waits longer for its first word.
#
# **… there is one seat?** `max_num_seqs` is the number of requests that may run at once.

# %%
seat = Story(nb.trace("seats1"), "A B")
waits = seat.skips("B")
note(f"B waits {len(waits)} steps, reason *{waits[1].reason}*. In step 1 {seat.free(1)[1]} blocks lie free beside it, "
     f"and {waits[1].token_budget} tokens of the budget are left.")

# %% [markdown]
# **… one request may take few tokens a step?** `long_prefill_token_threshold` cuts every request, also a lone one.

# %%
few = Story(nb.trace("threshold-10"), "A")
chunks = [few.sent(step)["A"] for step in range(1, few.first_word("A") + 1)]
note(f"Threshold {few.config('long_prefill_token_threshold')}: A's prompt goes in as {', '.join(map(str, chunks))}, "
     f"with a budget of {few.budget}.")

# %% [markdown]
# **… the context ends?** The last token that `max_model_len` allows is sampled, and never fed.

# %%
edge = Story(nb.trace("max-len-48"), "A")
(ended,) = edge.event("update_from_output", edge.last_step("A")).updates
note(f"`max_model_len` {edge.config('max_model_len')}: A has {len(edge.prompt('A'))} prompt tokens and "
     f"{len(edge.outputs('A'))} outputs, reason *{ended.finish_reason}*. {ended.num_computed_tokens} tokens were fed.")

# %% [markdown]
# ## Traps

# %%
traps({14: "section 10", 16: "section 8", 17: "section 11", 20: "section 1", 21: "the last What if", 24: "section 9"})

# %% [markdown]
# ## The code
#
# Ours first. The two marked lines are the whole order of service.

# %%
code("minivllm/core/scheduler.py::Scheduler.schedule", mark=("_schedule_running(step)", "_schedule_waiting(step)"),
     same="The same order. There it is one method of some six hundred lines; the two passes are its two while loops.")

# %%
code("minivllm/core/scheduler.py::Scheduler._schedule_running", mark=("n = self._num_new_tokens", "token_budget -= n"),
     same="The same loop over `running`, with the same two limits: the budget, and the length of the context.")

# %%
code("minivllm/core/scheduler.py::Scheduler._update_after_schedule", mark=("num_computed_tokens += n",),
     same="The same: what is planned counts as computed before anything runs.")

# %% [markdown]
# ## Left out
#
# vLLM has, and this engine has not: asynchronous scheduling (placeholders for tokens on their way), budgets for
# encoders, structured output, LoRA limits, connectors.
#
# ## Summary
#
# Each step has a budget of tokens. Running requests are served first, one chunk each, then the queue in order. A
# prompt is a large wish, a decode a wish of one. The head of the queue can block those behind it, by seats, budget
# or blocks.
#
# ## Check yourself

# %%
ask.check_yourself(nb)

# %% [markdown]
# ## Next
#
# Twice the answer was "not enough blocks". What is a block, and why does B ask for the room of a whole prompt when
# most of it is A's prompt too? → [04 · KV blocks](04_blocks.ipynb)
