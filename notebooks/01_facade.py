# %% [markdown]
# # 01 · `LLM` is a facade, `generate()` is a loop
#
# **The question.** Which work is done before the engine core hears of the request, and what drives the loop?
#
# **Before.** [00 · The map](00_map.ipynb): stops, events, the moments before and after. Plan 20 minutes.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("01", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_01 as facts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_01 as ask

nb.map()

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle

# %%
one = Story(nb.trace("one"), "A")
kind = facts.completed(one.trace)[0]
note(f"You typed one sentence; the model reads {len(one.prompt('A'))} tokens. You passed a `SamplingParams`, and "
     f"after the call your own object has changed: its `output_kind` was {kind[2]} and is {kind[3]}. "
     "*Who did that, and when?*")

# %% [markdown]
# ## 1 · The facade
#
# `LLM` is a [**facade**](../docs/architecture.md): it looks like the engine, and hands everything on. Behind it
# stands the `LLMEngine`, and the `LLMEngine` has four helpers. All of them live in the caller's process.

# %%
table([("renderer (`InputProcessor`)", "B2", "turns messages into token ids"),
       ("`InputProcessor`", "B4", "checks, copies, completes, names"),
       ("`OutputProcessor`", "B5, B24", "keeps the table of open requests; turns ids into text"),
       ("`EngineCoreClient`", "B6, B23", "talks to the engine core")],
      ("helper of `LLMEngine`", "stops", "what it does"))

# %% [markdown]
# In vLLM they are `v1/engine/llm_engine.py::LLMEngine`, `v1/engine/input_processor.py::InputProcessor`,
# `v1/engine/output_processor.py::OutputProcessor` and `v1/engine/core_client.py::EngineCoreClient`.
#
# ## 2 · How many are yours?
#
# At B2 the messages of the conversation become token ids. The model's [**chat
# template**](../docs/glossary.md#chat-template) puts marks and headers around what you typed, and a system message in
# front where you send none.

# %%
texts = tokens(one.prompt("A"))
parts = facts.segments(texts)
typed = next(part for part in parts if part.yours)
note(f"You typed *{''.join(texts[typed.first : typed.last + 1])}*")
ask.section_2(parts, texts, typed)

# %% [markdown]
# ## 3 · Rendering: who wrote these tokens?

# %%
for part in parts:
    pieces(texts[part.first : part.last + 1], "A" if part.yours else "template", first=part.first,
           caption=f"{part.name}: tokens {part.first} to {part.last}")

# %% [markdown]
# ## 4 · Named, copied, completed
#
# At B3 the request enters the `LLMEngine`. At B4 it is checked, its parameters are copied, and what is missing is
# filled in. It also gets a second id. `max_tokens` was given, so it stays.

# %%
table(facts.completed(one.trace), ("stop", "what", "before", "after"), caption="What becomes of A's id and parameters")

# %% [markdown]
# The number that you see is the [**external id**](../docs/glossary.md#internal-id); outputs carry it. The **internal
# id** has eight more hexadecimal digits, so that no two requests of a core are alike (in a recorded trace they are a
# count). The copy is completed, but `output_kind` was set on your own object, before the copy: that is the change of
# the puzzle. vLLM does the same in `entrypoints/offline_utils.py::OfflineInferenceMixin._add_request`.
#
# ## 5 · Who is told first?
#
# Now A has to be known on both sides: the caller's `OutputProcessor` gets a row for it in its table (its
# **RequestState**), and the engine core gets the request.

# %%
wall = nb.trace("one-wall")
rows = facts.who_knows(wall, "0")
ask.section_5(rows)

# %% [markdown]
# ## 6 · The gap between B5 and B6

# %%
table(rows, caption="A on its way into the core, with two processes: who knows it when each event ends",
      mark={place for place, row in enumerate(rows) if row["stop"] == "B5"})

# %% [markdown]
# From B5 on the caller waits for A. The core has A in its queue only at B9. A mistake in this order shows up rarely,
# and then as an answer that never comes. In vLLM both calls are in `v1/engine/llm_engine.py::LLMEngine.add_request`.
#
# ## 7 · The loop
#
# Everything is handed over. What follows is this loop.

# %%
code("minivllm/llm.py::LLM._run_engine", start="while self.llm_engine", lines=8, mark=("has_unfinished", ".step()"),
     vllm="entrypoints/offline_utils.py::OfflineInferenceMixin._run_engine", same="The same loop and question.")

# %%
passes = facts.loop(one.trace)
table([*passes[:2], dict.fromkeys(passes[0], "…"), *passes[-2:]], caption="The loop of A's call, pass by pass")

# %% [markdown]
# ## 8 · How often is `step()` called?
#
# There are two of that name: the caller's loop calls `LLMEngine.step()`, and the core works in `EngineCore.step()`.
# In one process each call of the first runs the second once; with two processes it waits for a message of the core.
#
# The token budget of a step goes from 64 to 16, so that A's prompt is cut into chunks.

# %%
chunks = nb.trace("chunk-16")
ask.section_8(chunks, nb, texts)

# %%
table(facts.loop(chunks)[:4], caption="The first passes with chunks")

# %% [markdown]
# ## 9 · Two requests, two ends
#
# A and H are asked in one call. They end apart.

# %%
both = nb.trace("order")
ends = facts.endings(both)
names = {"0": "A", "1": "H"}
returned = [one.request_id for one in both.filter(kind="run_engine")[0].outputs]
table([{"request": names[request], "external id": request, "ended in step": step, "place among the ends": place,
        "place in the list returned": returned.index(request)} for place, (request, step) in enumerate(ends)])

# %% [markdown]
# The list comes back in the order of the prompts, sorted by the number in the external id. Who ends first has no say.
#
# ## 10 · When does the loop end?

# %%
left, limit = facts.untold(one.trace), one.trace.filter(kind="process_inputs")[0].max_tokens
ask.section_10(left, limit)

# %%
note(f"Here is the proof. When A's row leaves the caller's table, the core has {len(left)} request whose end it "
     "still has to tell the worker. In one process it does that at the beginning of your next call "
     "([notebook 11](11_reclamation.ipynb)).")

# %% [markdown]
# ## 11 · A default that surprises
#
# You need not set `max_tokens`. C asks for the colour of the sky without it.

# %%
cut = nb.trace("default-length-C").filter(kind="run_engine")[0].outputs[0]
sky = Story(nb.trace("together"), "A B C")
table([("not set", cut.num_output_tokens, f"… {cut.text[-40:]}", cut.finish_reason),
       (limit, len(sky.outputs("C")), f"… {sky.text('C')[-40:]}", "length")],
      ("`max_tokens`", "output tokens", "the end of the answer", "finish reason"))

# %% [markdown]
# The default is small, and the only sign is the [finish reason](../docs/glossary.md#finish-reason) `length`. It is
# vLLM's default as well: `sampling_params.py::SamplingParams`.
#
# ## What if …
#
# **… you ask for two answers?** `n` goes from 1 to 2, and `temperature` from 0 to 1 (seed 0). One request, or two?

# %%
pair = nb.trace("n2")
plan = pair.filter(kind="schedule")[0]
held = pair.state_at(plan.seq).block_tables
table([{"internal id": f"`{request}`", "tokens in step 1": count, "its blocks after the plan": held[request]}
       for request, count in plan.num_scheduled_tokens.items()], caption="The children of request 0")

# %%
first, second = held.values()
note(f"Two requests, as far as the core can tell. Blocks {[block for block in second if block in first]} are in both "
     "lists: the second request finds these tokens there and computes the rest ([notebook 04](04_blocks.ipynb)). The "
     "caller puts both texts into one output:\n\n" + "\n".join(
         f"- “{one.text}” ({one.num_output_tokens} tokens, {one.finish_reason})".replace("\n", "⏎")
         for one in pair.filter(kind="run_engine")[0].outputs))

# %% [markdown]
# **… two greedy answers?** `n` is still two, and `temperature` goes back to 0. And what about a temperature that is
# no number?

# %%
table([("`n=2, temperature=0`", facts.refusal(n=2, temperature=0)),
       ("`temperature=nan`", facts.refusal(temperature=float("nan")))], ("asked", "said, before anything is sent"))

# %% [markdown]
# vLLM refuses the first as well. The second it takes silently, and the answer is noise; see
# [differences](../docs/differences.md).
#
# ## Traps

# %%
traps({50: "the first what-if: two children, two requests", 52: "`output_kind`, section 4", 54: "section 5",
       65: "the last what-if", 51: "sections 4 and 9"})

# %% [markdown]
# ## The code
#
# The whole of B3 to B6 in one method.

# %%
code("minivllm/engine/llm_engine.py::LLMEngine.add_request",
     mark=("process_inputs(", "output_processor.add_request(", "engine_core.add_request("),
     same="The same order. vLLM's can also wait for a queue of the async front end.")

# %%
code("minivllm/llm.py::LLM._add_request", mark=("params.output_kind",), same="The same assignment on your own object.")

# %% [markdown]
# ## Left out
#
# The async server front end, embeddings and multimodal inputs, and the hundred fields of `EngineArgs` (here one
# frozen config).
#
# ## Summary
#
# The facade renders, checks, names, registers, sends. Then it loops over `step()` until its own table is empty. It
# returns outputs sorted by submission, not by completion.
#
# ## Check yourself

# %%
ask.check_yourself()

# %% [markdown]
# ## Next
#
# `step()` was called once for each token of A's answer. Across processes it computed nothing. Then who did? [02 · The
# process boundary](02_boundary.ipynb).
