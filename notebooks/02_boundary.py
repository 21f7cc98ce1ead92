# %% [markdown]
# # 02 · The process boundary: `step()` consumes, it does not compute
#
# **The question.** What crosses between the processes, and who waits for whom?
#
# **Before.** [01 · The facade](01_facade.ipynb): what the caller does until B6, and its loop over `step()`. Plan 30
# minutes.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("02", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_02 as facts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_02 as ask

nb.map()

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle

# %%
nap = nb.trace("nap")
slept = facts.nap(nap)
note("Submit A, **sleep for some seconds**, then call `step()` until A is done, and time these calls together. A "
     f"takes {slept.calls} steps of computing. *How long do the {slept.calls} calls take, compared with that "
     "computing?*")

# %% [markdown]
# ## 1 · The nap
#
# These lines were traced. None of them runs here.
#
# ```python
# engine = llm.llm_engine
# engine.add_request("0", engine.input_processor.render_chat(A), SamplingParams(temperature=0, max_tokens=24))
# time.sleep(6)
# while engine.has_unfinished_requests():
#     engine.step()
# ```
#
# ## 2 · What do the calls cost?

# %%
ask.section_2(slept)

# %% [markdown]
# ## 3 · Who was awake?

# %%
picture(pictures.timeline(nap, owners="A", alt="Lanes for caller, messages, engine core and worker during the nap. "
        f"Core and worker are busy at the left, and {len(slept.waiting)} messages go up; the caller does something at "
        "both ends only."),
        "The caller's lane is empty while the core works; at the right end it reads everything at once.")

# %%
array("messages in the queue", slept.waiting, ruler="before call", owners="A")

# %% [markdown]
# The core has a loop of its own, the [**busy loop**](../docs/glossary.md#busy-loop). It takes in what has arrived,
# runs a step, and begins again. It never asks whether somebody reads its messages. In vLLM it is
# `v1/engine/core.py::EngineCoreProc.run_busy_loop`.
#
# ## 4 · From the ADD message to the first plan
#
# A [**message**](../docs/glossary.md#message) of type ADD takes A to the core. There, three threads share the work;
# two more belong to the caller. (The caller's monitor thread only watches whether the core is alive, so it leaves no
# event.)

# %%
wall = nb.trace("one-wall")
table(facts.threads(wall), ("process", "thread", "what it does"))

# %%
table(facts.hand_over(wall), caption="A's way into the core")

# %% [markdown]
# ## 5 · Who hashes the prompt?
#
# A full block of a prompt gets a hash, by which others may find it ([notebook 04](04_blocks.ipynb)). At B8 A's two
# full blocks get theirs.

# %%
ask.section_5(wall)

# %% [markdown]
# ## 6 · The wire
#
# Messages are **msgpack**: a compact form of lists and numbers. This is what A's ADD message is made of.

# %%
parts = facts.add_bytes(wall)
table(parts, ("field", "bytes", ""), caption=f"ADD: {sum(size for _, size, _ in parts)} bytes in two frames")

# %%
first, *later = facts.replies(wall)
note(f"An answer is a list in a list. That of step {later[0][0]} has {later[0][1]} bytes:\n\n"
     f"`{facts.reply_fields(wall, later[0][0])}`\n\nNo text crosses, and no tensor: only ids, and numbers about them. "
     f"The first answer of a request is longer, here {first[1]} bytes: it also says how many tokens of the prompt were "
     "computed and how many were found in the cache. vLLM's structs have a few fields more, and so a few bytes.")

# %% [markdown]
# ## 7 · Two short messages

# %%
ask.section_7(wall, later)

# %%
table([(f"`{tokens(ids)[0]}`", str(ids[0]), facts.id_bytes(ids[0]), size) for _, size, ids in later[::4]],
      ("token", "id", "bytes of the id in msgpack", "bytes of the message"), "Every fourth answer")

# %% [markdown]
# ## 8 · Nobody waits
#
# Three events around the end of step 1: the message with A's first token leaves, it arrives, and step 2 is planned.
# Here they are in the order in which they began, by the wall clock.

# %%
table([(one.seq, one.boundary, f"`{one.kind}`", f"{one.proc}, {one.thread}", one.step)
       for one in facts.around_step(wall, 1)], ("event", "stop", "what", "thread", "of step"))

# %% [markdown]
# The core plans step 2 before the caller has read the token of step 1, here even before the message has left. The
# core's main thread puts the result into a queue and goes on; the output thread encodes and sends it beside the next
# step.
#
# ## 9 · How many messages?
#
# With a budget of 16 tokens a step, A's prompt needs three steps ([notebook 03](03_scheduler.ipynb)).

# %%
ask.section_9(nb)

# %% [markdown]
# ## 10 · The sockets
#
# Two one-way roads lie between the processes. They are sockets of [ZeroMQ](https://zeromq.org), a library for
# messages; ROUTER, DEALER, PUSH and PULL are kinds of them. Both ends in the caller's process are made first (they
# *bind*); the core comes to them (it *connects*).

# %%
table([("B7, in", "ROUTER, binds", "DEALER, connects", "the core: a ROUTER can't address one who has not spoken"),
       ("B22, out", "PULL, binds", "PUSH, connects", "the core; nothing goes the other way")],
      ("road", "caller's end", "core's end", "who speaks first"))

# %% [markdown]
# Calls that bring no request, such as `reset_prefix_cache`, go in by the same road, and their answers come back on
# the road of outputs. So the caller's output thread must tell them from outputs by what they hold.
#
# ## 11 · Starting, and dying

# %%
table([("the caller binds its sockets and starts the core's process", ""),
       ("HELLO", "core → caller"), ("where to connect, and what to build: addresses, config, model", "caller → core"),
       ("the core builds model and cache; then its DEALER says what became of the config", "core → caller"),
       ("READY: requests may come", "core → caller")], ("the five rungs of start-up", ""))

# %% [markdown]
# A core that dies of an error sends one last frame, `ENGINE_CORE_DEAD`. One that is killed sends nothing, and the
# caller's monitor thread sees its process end. Either way everybody who waits gets an `EngineDeadError`, in vLLM
# `v1/engine/exceptions.py::EngineDeadError`. And a core whose caller dies ends by itself.
#
# ## 12 · The exception: everything in one process

# %%
alone = nb.trace("one")
note("With `multiprocess=False` the client owns the core. Then the first plan happens inside of `get_output`, which is "
     f"called by the loop: `{' → '.join(facts.inside(alone, 'schedule'))}`. With two processes the same plan has "
     f"nobody above it but its step: `{' → '.join(facts.inside(wall, 'schedule'))}`.")

# %% [markdown]
# So in one process `step()` does compute: it runs one step of the core, then reads what that brought. Debuggers like
# it. That is the only exception to the title.
#
# ## What if …
#
# **… there are two processes instead of one?** `multiprocess` goes from no to yes. Which events are new, and is any
# gone?

# %%
diff_view(alone, wall, names=("one process", "two processes"))

# %% [markdown]
# **… two requests are sent in one call?** A and B, to one process and to two. Will step 1 be the same?

# %%
pair = nb.trace("together-wall")
inproc = nb.trace("together")
table([{"step": row["step"], "A": row["A"], "B": row["B"]} for row in facts.plans(inproc, 2, "ABC")],
      caption="In one process (C is there as well): both prompts are in step 1")
table(facts.plans(pair, 2, "AB"), caption="Across processes: A's step began before B's message arrived")

# %%
said = [len(event.reqs) for event in pair.filter(kind="core.send")]
b = Story(inproc, "A B C")
note(f"B computes {b.sent(1)['B']} of its {len(b.prompt('B'))} tokens: it begins as A does, and finds those "
     f"{b.hit('B')} tokens computed ([notebook 04](04_blocks.ipynb)). Across processes there are {len(said)} messages, "
     f"{said.count(2)} of them with two outputs. It is the same call, with other steps and the same "
     "text. A recording of two processes that run freely is not the same twice. Most traces "
     "here are therefore made in one, or by two that take turns.")

# %% [markdown]
# ## Traps

# %%
traps({56: "section 10", 57: "section 10", 58: "section 9", 24: "section 9",
       60: "section 8 compares stamps of two processes; their clocks were compared first, at start-up"})

# %% [markdown]
# ## The code
#
# The caller's end, whole; and the core's loop, whole.

# %%
code("minivllm/engine/core_client.py::SyncMPClient.get_output", mark=("_wait_for_output()",),
     same="The same: it takes the next message from a queue. Ours also says so when a minute passes without one.")

# %%
code("minivllm/engine/core_proc.py::EngineCoreProc.run_busy_loop", mark=("_process_engine_step",),
     same="The same two calls for ever.")

# %%
code("minivllm/engine/core_proc.py::EngineCoreProc.process_input_sockets", mark=("socket.send", "self.receive"),
     same="The same thread, with the same first word. vLLM's listens to several callers. Its encoder is "
          "`v1/serial_utils.py::MsgpackEncoder`.")

# %% [markdown]
# ## Left out
#
# Coordination of several cores (data parallel); the worker as a third process, as in vLLM on a CPU; a queue of two
# batches (`max_concurrent_batches`), with which a plan does not wait for the step before it.
#
# ## Summary
#
# The caller posts a request and later reads answers. The core runs by itself, as fast as it can, and speaks only when
# it has something to say. What crosses is ids, never text and never tensors.
#
# ## Check yourself

# %%
ask.check_yourself(wall)

# %% [markdown]
# ## Next

# %%
plan = Story(wall, "A").sent(1)["A"]
note(f"The core decided: {plan} tokens, now. Why {plan}, and what if three people ask at once? "
     "[03 · The scheduler](03_scheduler.ipynb).")
