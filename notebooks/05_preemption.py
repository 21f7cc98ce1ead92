# %% [markdown]
# # 05 · When memory runs out: preemption, and a bug in the real thing
#
# **The question.** Who is thrown out, what does it lose, what does it cost, and can it go wrong?
#
# **Before.** [KV blocks](04_blocks.ipynb). Plan 50 minutes; there is a place to stop before the case.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("05", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_05 import cells_written, preemptions, resumption, shortages, sides, tries, turns
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_05 as ask

nb.map()

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle
#
# A long request, **V**, reads sentences about cities and then a question. Here it runs twice on the same engine,
# with the rules of vLLM 0.22.0: once with room to spare, once in a small pool beside an urgent neighbour, **R**.

# %%
roomy, case = Story(nb.trace("poison-pool-64"), "V R"), Story(nb.trace("poison-as-vllm"), "V R")
table([{"blocks in the pool": s.trace.header.num_gpu_blocks, "V answers": s.text("V")} for s in (roomy, case)],
      caption="V: “… Which city is in Greece?”")

# %%
back, ran = resumption(case, "V"), preemptions(case)[0][2].num_computed_tokens
note(f"In the small pool the engine takes {back.found} of V's {len(case.prompt('V'))} prompt tokens from the cache. "
     f"*Only {ran} of them were ever computed.* vLLM 0.22.0 itself goes wrong in this way "
     "([differences](../docs/differences.md) shows its recordings). The end solves the case, with the trace alone.")

# %% [markdown]
# ## 1 · Sharing in a small pool
#
# First the ordinary case: A, B and C together, in a small pool.

# %%
eight = Story(nb.trace("pool-8"), "A B C")
held = {name: eight.table(name, 2) for name in "ABC"}
picture(pictures.pool(eight.trace, eight.at(2), owners=eight.cast, alt="A pool with "
        f"{len(eight.state(2).free_order)} free block. A holds {held['A']}, B {held['B']}, C {held['C']}; the first "
        "block is shared by all three."),
        f"After the plan of step 2: A {held['A']}, B {held['B']}, C {held['C']}. The number behind × says how many "
        "tables hold a block; what is dotted is not written yet.")

# %% [markdown]
# A block in several tables is **shared**, the others are **private**.
#
# ## 2 · The moment of shortage
#
# A and B decode and cross the border of a block in the same step. The order of turns decides.

# %%
gone = preemptions(eight)[0][0]
table(turns(eight, gone)[:2], caption=f"Planning step {gone}; the slot is for position {eight.computed('A', gone)[0]}")

# %% [markdown]
# ## 3 · Who goes?

# %%
ask.section_3(eight)

# %%
table(turns(eight, gone), caption=f"Planning step {gone}, all of it", mark={2})

# %%
left = eight.state(gone).free_order
picture(pictures.pool(eight.trace, eight.at(gone), owners=eight.cast, alt=f"A holds {eight.table('A', gone)}, B "
        f"{eight.table('B', gone)}, C nothing. Block {left[0]} is free and hatched: it keeps its name from C."),
        f"B has taken the end of C; block {left[0]}, C's other one, is free and keeps its name.")

# %% [markdown]
# This is [**preemption**](../docs/glossary.md#preemption), and C is its [**victim**](../docs/glossary.md#victim). In
# vLLM: `v1/core/sched/scheduler.py::Scheduler._preempt_request`.
#
# ## 4 · What C loses, and what it keeps

# %%
table(sides(eight, "C", gone), caption=f"C before and after the plan of step {gone}")

# %% [markdown]
# C keeps its words, and the names stay with the blocks. It goes to the *front* of the waiting queue.
#
# ## 5 · Waiting to come back

# %%
ask.section_5(eight)

# %%
table(tries(eight, "C"), caption=f"C is tried {len(tries(eight, 'C'))} times and refused")

# %% [markdown]
# ## 6 · Coming back

# %%
ask.section_6(eight)

# %%
c = resumption(eight, "C")
picture(pictures.schedule(eight.trace, owners=eight.cast, alt=f"Tokens of A, B and C in {eight.steps} steps. C is "
        f"preempted in step {gone}, comes back in step {c.step}, finds {c.found} tokens and computes {c.computed}."),
        f"C pays with {c.step - gone} steps without a word, and with {c.twice} tokens computed twice. A hatched top: "
        "some tokens were found; the cross: preempted.")

# %% [markdown]
# ## 7 · The worker's side of it
#
# The worker keeps a table for each request and extends it. For a [resumed](../docs/glossary.md#resume) request that
# would be wrong: its new block ids **replace** the old ones.

# %%
moved, batch, old = eight.event("update_states", c.step), eight.batch(c.step), eight.table("C", gone - 1)
table([("its table until step " + str(gone - 1), str(old)), ("the table that replaces it", str(c.table)),
       ("computed before this step", moved.num_computed_tokens[0]),
       ("positions in this step", f"{batch.positions[0]}..{batch.positions[-1]}")],
      columns=["C at the worker", f"step {c.step}"])

# %% [markdown]
# ## 8 · A running request cannot pause

# %%
ask.section_8(nb)

# %% [markdown]
# ## 9 · What a small pool costs

# %%
pools = {f"pool-{n}": Story(nb.trace(f"pool-{n}"), "A B C") for n in (10, 9, 8, 7)}
table(shortages(pools), caption="A, B and C together, prefix caching on")

# %% [markdown]
# ## 10 · The same shortage without names

# %%
plain = {name: Story(nb.trace(name), "A B C") for name in ("pool-12-nc", "pool-8-nc")}
table(shortages(plain), caption="A, B and C together, prefix caching off")

# %% [markdown]
# Without names nothing can be found, and the victim computes all of it a second time. In the smaller pool the victim
# is B: there was never room for C, so B was the last admitted.
#
# **Stop here if you like.** So far: the last admitted goes, loses its blocks, keeps its words and its names, comes
# back to the front, and computes again what others have recycled. The rest is a detective story with the same means.
#
# ## 11 · The case: evidence one
#
# Back to the wrong answer. The policy is *priority* here: of the running requests the least important goes, and a
# smaller number is more important. R arrives while V still reads its prompt.

# %%
chunk = case.config("long_prefill_token_threshold")
note(f"No request gets more than {chunk} tokens a step here, so V's {len(case.prompt('V'))} prompt tokens need several "
     "steps.")

# %%
picture(pictures.schedule(case.trace, steps=(1, 24), owners=case.cast, alt="Tokens of V and R in the first steps. V "
        f"reads its prompt in chunks, is preempted in step {preemptions(case)[0][0]}, and comes back when R has "
        f"ended, in step {resumption(case, 'V').step}."), "V is preempted just before the end of its prompt.")

# %%
step = preemptions(case)[0][0]
asked = {name: case.trace.filter(kind="scheduler.add_request", request=case.ids[name])[0] for name in case.cast}
table(turns(case, step), caption=f"Planning step {step}. Priorities: V {asked['V'].priority}, R {asked['R'].priority}")

# %%
mine = turns(case, step)[0]
plan = ", ".join(f"{name} {tokens}" for name, tokens in case.sent(step).items())
note(f"V has its turn first and is served: {mine['tokens']} tokens, blocks {mine['blocks']}. Then R needs one block, "
     "none is left, and the least important request goes: V, *already served in this very step*. Its tokens are "
     f"taken out of the plan, which now reads {plan}.")

# %% [markdown]
# ## 12 · Evidence two: names and contents
#
# Names are given at hand-out ([notebook 04](04_blocks.ipynb), section 8). So one of V's new blocks had a name
# already.

# %%
ask.section_12(case, step)

# %%
found, written = resumption(case, "V").table[:-1], cells_written(case, resumption(case, "V").step)
array("slots written", [written.get(block, 0) for block in found], owners="V",
      ruler=[f"block {block}" for block in found])

# %%
new = max(case.state(step).block_hashes)
picture(pictures.pool(case.trace, case.at(step), owners=case.cast, wrong=[new], alt="The pool after the plan of "
        f"step {step}: R holds {case.table('R', step)}, V nothing. Block {new}, in red, is named and never written."),
        f"Block {new} has a name and no content.")

# %% [markdown]
# ## 13 · Evidence three: what the model never saw

# %%
back, first = resumption(case, "V"), preemptions(case)[0][2].num_computed_tokens
pieces(tokens(case.prompt("V")[first : back.found]), owner="V", first=first, caption=f"What block {new} stands for")

# %%
note(f"In step {back.step} V comes back and finds {back.found} tokens, block {new} among its blocks {back.table}. "
     "The sentence above is the last one about cities, **and the question**. The model attends to whatever lies in "
     "those slots. It never saw the question, and so it goes on telling about cities.")

# %% [markdown]
# ## 14 · The cure
#
# One rule mends it: *a victim's blocks that its K and V have not reached lose their names*. vLLM does not have it;
# ours does, as the event `forget_uncomputed_blocks`.

# %%
diff_view(nb.trace("poison-as-vllm"), nb.trace("poison"), names=("vLLM's rule", "ours"))

# %%
cured = Story(nb.trace("poison"), "V R")
(forgot,) = cured.trace.filter(kind="forget_uncomputed_blocks")
sides_of_it = (("vLLM's", None, back, case.text("V")[:29] + " …"),
               ("ours", forgot.block_ids, resumption(cured, "V"), cured.text("V")))
table([(rule, names, found.found, found.computed, answer) for rule, names, found, answer in sides_of_it],
      columns=["rule", "names forgotten", "V finds", "V computes", "V answers"])

# %% [markdown]
# ## What if …
#
# **… there is one block more, or many more?** Guess: how small must the pool be for the bug?

# %%
rooms = {f"{n} blocks": Story(nb.trace(f"poison-pool-{n}"), "V R") for n in (14, 64)}
table([{"pool": what, "preemptions": len(preemptions(told)), "V answers": told.text("V")}
       for what, told in rooms.items()])

# %% [markdown]
# **… the policy is first come, first served?** The pool is the small one again. Guess the victim, and whether a name
# is left without content.

# %%
fcfs = Story(nb.trace("poison-fcfs"), "V R")
step, who_goes, numbers = preemptions(fcfs)[0]
served = "had been served" if numbers.was_scheduled else "had not been served yet"
note(f"{who_goes} goes in step {step}: it was admitted last, and {served} in this step. It had "
     f"{numbers.num_computed_tokens} tokens computed, and finds {resumption(fcfs, who_goes).found} of them again. V "
     f"answers *{fcfs.text('V')}*")

# %% [markdown]
# ## Traps

# %%
traps({8: "section 5", 13: "section 7", 14: "section 5", 16: "section 5", 18: "section 8", 19: "section 4",
       33: "section 7", 34: "section 7", 62: "section 12"})

# %% [markdown]
# ## The code

# %%
code("minivllm/core/scheduler.py::Scheduler._preempt_request", mark=("_forget_uncomputed_blocks", "manager.free"),
     same="The same, but for the first marked line: vLLM has nothing there.")

# %%
code("minivllm/core/scheduler.py::Scheduler._take_from_running", mark=("step.token_budget +=",),
     same="The same: what the victim was given goes back into the budget, and its place in the plan is gone.")

# %%
code("minivllm/core/kv_cache_manager.py::KVCacheManager.get_num_blocks_to_allocate", mark=("return num_new_blocks",),
     same="The same sum: new blocks, and found ones that nobody holds.")

# %%
code("minivllm/core/kv_cache_manager.py::KVCacheManager.free", mark=("blocks[::-1]",), same="The same order: last "
                                                                                            "one first.")

# %% [markdown]
# ## Left out
#
# vLLM has, and this engine has not: connectors that offload K and V, preemption while a token is on its way
# (asynchronous scheduling). Neither swaps blocks to the host's memory: vLLM V1 has no such thing.
#
# ## Summary
#
# Memory runs out only when a running request grows. The last admitted (or least important) loses all blocks, keeps
# its words and its names, and computes again what others have recycled. A name without content is a lie the engine
# believes.
#
# ## Check yourself

# %%
ask.check_yourself(gone, back, new, eight)

# %% [markdown]
# ## Next
#
# Blocks are decided. The worker now has ids and tables, and a model that knows neither requests nor blocks.
# → [06 · From requests to a flat batch](06_flat_batch.ipynb)
