# %% [markdown]
# # 11 · Finish and reclamation, in two phases
#
# **The question.** Who forgets the request when?
#
# **Before.** [KV blocks](04_blocks.ipynb) and [tokens back to text](10_text.ipynb). Plan 30 minutes. The traces here
# are of two processes, unless a cell says otherwise: in one process the last step waits for the next call.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("11", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_10 import verdict
from minivllm.lessons.facts_11 import BLOCKS, CALLER, knows, late_abort, late_events, moments
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_11 as ask

nb.map()

# %%
two = nb.trace("two-process")
plans = two.filter(kind="schedule")
ask.recall_before(two, plans)

# %% [markdown]
# ## The puzzle
#
# **A** has sampled its end token. Put what follows in order:
#
# - the caller has the answer,
# - the blocks are free,
# - the worker has dropped the row.
#
# ## 1 · Three moments
#
# The same request was recorded twice. In `one-wall` both processes run freely, on the wall clock. In `two-process` a
# **rendezvous** makes the core wait for the caller after each output, so that every recording is the same.

# %%
wall, meeting = moments(nb.trace("one-wall")), moments(two)
ask.section_1(wall, meeting)

# %%
rows = [(place, *pair) for place, pair in enumerate(zip(wall, meeting, strict=True), 1)]
table(rows, ["", "running freely", "with a rendezvous"], caption="After A's end token was sampled")

# %%
step = nb.trace("one-wall").filter(kind="step")[-2]
share = (wall[CALLER].t1 - wall[BLOCKS].t1) / step.duration
note(
    f"Running freely, the answer comes {share:.3f} of a step after the blocks are free. With the rendezvous the "
    "order of "
    "the last two is made by the recording, so it proves nothing about them."
)

# %% [markdown]
# ## 2 · Phase 1: inside the update of the last step
#
# `update_from_output` appends the end token and tests whether the request ends. It does, and the same call lets go of
# all that the scheduler has.

# %%
update = next(e for e in two.filter(kind="update_from_output") if any(u.finish_reason for u in e.updates))
before, after = knows(two, update.seq, before=True), knows(two, update.seq)
table([(what, before[what], after[what]) for what in list(before)[:4]], ["in the core", "before", "after"],
      caption=f"A, around the update of step {update.step}")

# %% [markdown]
# This is **phase 1**: the stop test, the blocks back to the pool, the request gone from `running` and `requests`.
# What is left of it in the scheduler is a note, the id in [**`finished_req_ids`**](../docs/glossary.md#flush-step).

# %%
ask.section_2(after)

# %%
table(
    [(what, before[what], after[what]) for what in list(before)[4:]],
    ["elsewhere", "before", "after"],
    caption="Untouched",
)

# %% [markdown]
# ## 3 · Phase 2: a step to say goodbye
#
# The core asks `has_requests()`. Nobody waits and nobody runs, but the note is still there. So it makes one more
# step, the [**flush step**](../docs/glossary.md#flush-step).

# %%
flush = plans[-1]
rows = two.filter(kind="update_states", step=flush.step)[0]
cards(
    (flush, ["total_num_scheduled_tokens", "finished_req_ids=finished_req_ids"]),
    (rows, ["removed", "req_ids=rows left"]),
)

# %%
counts = {"model runs": len(two.filter(kind="model_forward", step=flush.step)),
          "messages to the caller": len(two.filter(kind="core.send", step=flush.step))}
table(list(counts.items()), [f"in step {flush.step}", "how many"])

# %% [markdown]
# This is **phase 2**: a plan without tokens, with a note. The worker drops the row. The model does not run, and
# nobody is answered. In vLLM, `v1/core/sched/interface.py::SchedulerInterface.has_requests` keeps the loop awake for
# it.
#
# ## 4 · The flush in one process

# %%
again = Story(nb.trace("again"), "A A′ B C F")
carrier = next(plan for plan in again.trace.filter(kind="schedule") if plan.finished_req_ids)
ask.section_4(carrier)

# %%
note(f"In `again`, step {carrier.step} carries A's id together with {carrier.total_num_scheduled_tokens} tokens of A′. "
     "Until then A's row outlives A.")

# %% [markdown]
# ## 5 · A block with a new owner and an old row

# %%
ask.section_5(again, carrier)

# %%
event = again.event("update_states", carrier.step)
steps = [("forget", event.finished_req_ids), ("drop the row of", event.removed), ("add a row for", event.added)]
table([(place, what, " ".join(again.names[i] for i in ids)) for place, (what, ids) in enumerate(steps, 1)],
      ["", "`update_states`", "request"], caption=f"The worker in step {carrier.step} of `again`")

# %% [markdown]
# ## 6 · Two leave, one stays
#
# In `together`, A and B end in the same step, and C goes on. Block 1 belongs to all three.

# %%
story = Story(nb.trace("together"), "A B C")
last = story.last_step("A")
states = [story.ended(last - 1), story.ended(last)]
rows = [
    ("free blocks", *(len(s.free_blocks) for s in states)),
    ("owners of block 1", *(len(s.owners(1)) for s in states)),
    ("end of the free queue", *(" ".join(map(str, s.free_order[-5:])) for s in states)),
]
table(rows, ["", f"after step {last - 1}", f"after step {last}"], caption="A and B leave")

# %%
table([(step, " ".join(story.rows(step))) for step in (last, last + 1)], ["step", "rows of the worker"],
      caption="C moves into the first hole (notebook 06)")

# %% [markdown]
# Each request gives its blocks back last first, A's before B's. A shared block loses one owner at a time, and returns
# with the last of them.
#
# ## 7 · The late abort, event by event
#
# In [notebook 10](10_text.ipynb) the caller ended A with a stop string that it found in the token of step 6. The core
# does not wait: it had sent that token and gone on.

# %%
late = nb.trace("two-process-late-abort")
story_of = late_abort(late)
ask.section_7(story_of)

# %%
rows = [
    (place, t.step, *((t.what, "") if t.lane == "caller" else ("", t.what)))
    for place, t in enumerate(late_events(late), 1)
]
table(rows, ["", "step", "the caller's lane", "the core's lane"], caption='A with stop=["Paris"], two processes')

# %% [markdown]
# The lanes are read from top to bottom. The abort waits in a queue of its own until the model has run. It is applied
# **between execution and update**, by `v1/engine/core.py::EngineCore._process_aborts_queue`. Earlier, the plan is
# being executed and cannot be changed. Later, the update would have appended one more token and answered somebody who
# is gone.
#
# ## 8 · The same abort, twice
#
# The core's input thread puts an ABORT into two queues: a fast one, read in mid-step, and the ordinary one, read
# between steps.

# %%
table([(place, "a request ends" if ended else "nothing to end") for place, ended in enumerate(story_of.handled, 1)],
      ["time", "result"], caption="One ABORT message in `finish_requests`")

# %% [markdown]
# **Idempotent** is the word for it: done twice is the same as done once. It must be so in any case, since a request
# can end by itself while its abort is on the way.
#
# ## 9 · Replaced, never cleared
#
# The plan holds the very set `finished_req_ids` that the scheduler filled. For the next step the scheduler takes a
# new set. If it called `clear()`, the plan's set would be empty too: the worker would never hear, and its rows would
# leak.

# %%
code("minivllm/core/scheduler.py::Scheduler._update_after_schedule", mark=("finished_req_ids = set()",),
     same="The same replacement, at the same place.")

# %% [markdown]
# ## 10 · At rest

# %%
state = two.final_state()
rest = {
    "free blocks": len(state.free_blocks),
    "blocks with an owner": len(state.ref_cnts),
    "rows of the worker": len(state.rows),
    "notes for the worker": len(state.finished_req_ids),
    "blocks with a name": " ".join(map(str, sorted(state.block_hashes))),
}
table(list(rest.items()), ["after the flush", ""], caption="Nobody owns anything, and the names are still there")

# %%
pictures.pool(two, owners="A", alt=f"The pool after the flush: {len(state.free_blocks)} blocks, all free. Blocks "
              f"{rest['blocks with a name']} are hatched: free, with a name that the next request can hit.")

# %% [markdown]
# ## What if …
#
# **The user gives A up after step 5** (`abort`: A and B together, in one process). Which row does B have afterwards?

# %%
gone = Story(nb.trace("abort"), "A B")
told = next(plan.step for plan in gone.trace.filter(kind="schedule") if plan.finished_req_ids)
table(
    [
        (step, " ".join(gone.names[i] for i in gone.plan(step).finished_req_ids) or "–", " ".join(gone.rows(step)))
        for step in (told - 1, told)
    ],
    ["step", "finished_req_ids", "rows of the worker"],
    caption=f"A got {len(gone.outputs('A'))} tokens",
)

# %% [markdown]
# **`max_tokens` from `24` to `1`.** How many steps are left, and what is at the end of the free queue?

# %%
single = nb.trace("max-tokens-1")
diff_view(nb.trace("one"), single, names=("24", "1"))

# %%
note(f"{len(single.steps)} step, reason `{verdict(single).finish_reason}`. The free queue ends with "
     f"`… {' '.join(map(str, single.final_state().free_order[-4:]))}`.")

# %% [markdown]
# **`max_model_len` from `256` to `48`.** Is the token at the limit ever fed?

# %%
capped = Story(nb.trace("max-len-48"), "A")
fed = max(position for event in capped.trace.filter(kind="prepare_inputs") for position in event.positions)
note(
    f"{len(capped.outputs('A'))} output tokens, reason `{verdict(capped.trace).finish_reason}`. The last one makes "
    f"{capped.trace.header.config['max_model_len']} tokens in all. The highest position that was ever fed is "
    f"{fed}: the "
    "token at the limit is sampled and not fed."
)

# %% [markdown]
# ## Traps

# %%
traps(
    {
        21: "the last What if",
        22: "sections 2 and 9",
        23: "section 3",
        25: "section 2",
        26: "section 7",
        55: "sections 7 and 8",
        31: "in vLLM, each end found late",
    }
)

# %% [markdown]
# ## The code

# %%
code("minivllm/core/scheduler.py::Scheduler._free_request", mark=("finished_req_ids.add", "kv_cache_manager.free"),
     same="The same note and the same free. vLLM can delay the second, for a connector that still copies the blocks.")

# %%
code(
    "minivllm/core/scheduler.py::Scheduler.update_from_output",
    mark=("if request is None", "self._free_request(request)"),
    same="The same order, without speculated tokens, connectors and statistics.",
)

# %%
code("minivllm/core/scheduler.py::Scheduler.finish_requests", same="The same: an unknown id is passed over.")

# %%
code("minivllm/engine/core.py::EngineCore.process_aborts", mark=("self.abort_requests",),
     same="The same queue, emptied at the same place of a step.")

# %% [markdown]
# ## Left out
#
# Frees that wait until blocks have been copied elsewhere
# (`distributed/kv_transfer/kv_connector/v1/base.py::KVConnectorBase_V1`), and several clients of one core
# (`v1/engine/coordinator.py::DPCoordinator`).
#
# ## Summary
#
# Blocks return inside the update that ends the request. The worker learns it with the next plan, if need be an empty
# one. Aborts travel the same road, are applied between execution and update, and may come twice.
#
# ## Check yourself

# %%
ask.check_yourself(state)

# %% [markdown]
# ## Next
#
# You have seen every stop. Now the whole line at once, without help. [The whole life of one
# request](12_whole_life.ipynb)
