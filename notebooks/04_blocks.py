# %% [markdown]
# # 04 · KV blocks: pool, table, names, reuse
#
# **The question.** Where do K and V live, who may share them, and when are they lost?
#
# **Before.** [The scheduler](03_scheduler.ipynb). Plan 60 minutes, in two sittings: sections 1 to 7, then the
# rest.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("04", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_04 import block_sizes, chain, deals, filled, lowest_slot, moment, prompts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_04 as ask

one = Story(nb.trace("one"), "A")
nb.map()

# %%
ask.recall_before(one)

# %% [markdown]
# ## The puzzle

# %%
again, full = Story(nb.trace("again"), "A A′ B C F"), Story(nb.trace("full"), "G G′")
size, g = again.config("block_size"), len(full.prompt("G"))
note(f"Ask **A** twice. All {len(again.prompt('A'))} prompt tokens were computed a moment ago. *How many does the "
     f"second one, A′, skip?* Then ask **G** twice: {g} tokens, exactly {g // size} full blocks, all of them still "
     "there. *And now?* Sections 9 and 10 answer.")

# %% [markdown]
# ## 1 · The pool
#
# K and V of one token go into a [**slot**](../docs/glossary.md#slot). Slots come in
# [**blocks**](../docs/glossary.md#block), and all blocks of the cache make the
# [**pool**](../docs/glossary.md#block-pool). In vLLM it is `v1/core/block_pool.py::BlockPool`.

# %%
pool = one.trace.header.num_gpu_blocks
picture(pictures.pool(one.trace, 0, before=True, owners=one.cast, alt=f"{pool} blocks in rows of eight, all of them "
        f"empty. Block 0 is crossed out; the other {pool - 1} are free."), f"{pool} blocks, {pool - 1} of them usable.")

# %%
size = one.config("block_size")
note(f"Each block has {size} slots: block b has slots {size}·b to {size}·b + {size - 1}. Block 0 is the "
     "[**null block**](../docs/glossary.md#null-block). It fills unused places of tables and is never handed out; the "
     f"lowest slot that any step of A wrote is {lowest_slot(one.trace)}.")

# %% [markdown]
# ## 2 · A's block table
#
# A [**block table**](../docs/glossary.md#block-table) lists the blocks of one request in the order of its tokens.

# %%
cells = " + ".join(map(str, filled(one, "A", 1)))
picture(pictures.block_table(one.trace, one.at(2), "A", owners=one.cast, alt=f"A's block table {one.table('A', 2)}, "
        f"a row of {one.config('block_size')} cells for each block. {cells} cells are written, one more is planned."),
        f"After the plan of step 2: A's table is {one.table('A', 2)}, {cells} cells are written, one more is planned.")

# %% [markdown]
# Operating systems have such a thing, a page table. The likeness ends there: nothing is swapped out, sharing goes by
# content, and a table only grows at its end.
#
# ## 3 · Three moments
#
# A decodes. Two moments are shown; the third is yours.

# %%
table([moment(one, "A", step) for step in (7, 8)], caption="A, right after the plan of a step")

# %% [markdown]
# ## 4 · When does the next block come?

# %%
ask.section_4(one)

# %%
table([moment(one, "A", step) for step in (7, 8, 9)], caption="A, right after the plan of a step", mark={2})

# %% [markdown]
# ## 5 · Which call did it
#
# Every step asks `allocate_slots` for room. Most calls need no new block.

# %%
calls = len(one.trace.filter(kind="allocate_slots"))
table([{"step": call.step, "tokens asked for": call.num_new_tokens, "new blocks": call.new_block_ids,
        "free blocks": call.num_free_blocks} for call in deals(one, "A")], caption="The calls that took blocks")

# %%
note(f"`allocate_slots` was called {calls} times, and {len(deals(one, 'A'))} calls took blocks from the pool.")

# %% [markdown]
# ## 6 · The end of A
#
# When a request ends, its blocks go back to the [**free queue**](../docs/glossary.md#free-queue). New blocks are
# taken from its head; freed ones join its tail.

# %%
end = one.event("update_from_output", one.last_step("A"))
free, kept = end.num_free_blocks, sorted(one.ended(end.step).block_hashes)
picture(pictures.pool(one.trace, end.seq, owners=one.cast, alt=f"The pool after A has ended; nobody holds a block. All "
        f"{free[1]} usable blocks are free; {kept} are hatched, since they keep their names."),
        f"{free[0]} blocks were free before the last result was taken in, {free[1]} after. Hatched: free, and what "
        "lies in them can still be found (section 8).")

# %% [markdown]
# ## 7 · In which order?

# %%
ask.section_7(one)

# %%
end, order = one.event("update_from_output", one.last_step("A")).seq, one.ended(one.last_step("A")).free_order
picture(pictures.queue(one.trace, end, alt=f"The free queue after A, head first: {order[0]} to {order[-5]}, then "
        f"{', '.join(map(str, order[-4:]))}. The last three are hatched: they have names."),
        f"The four blocks of A stand last, in the order {' '.join(map(str, order[-4:]))}.")

# %% [markdown]
# **Stop here if you like.** So far: K and V live in blocks, a table per request maps positions to blocks, a new block
# comes when a token needs it, and blocks return to the tail of a queue. The second sitting is about sharing.
#
# ## 8 · Names for blocks
#
# A [full block](../docs/glossary.md#full-block) gets a [**block hash**](../docs/glossary.md#block-hash), from here on
# its **name**. It is made of the name before it and of the block's own tokens, so one name stands for a whole
# beginning of a text. In vLLM: `v1/core/kv_cache_utils.py::hash_block_tokens`. The root of all names is random in
# each process; in these traces it comes from a fixed seed, so that they repeat.

# %%
table(chain(one, "A"), caption="The named blocks of A; of each name the first six digits")

# %%
arrival = one.trace.filter(kind="preprocess_add_request")[0].block_hashes
named = {step: sorted(one.state(step).block_hashes) for step in (1, 7, 8)}
note(f"A arrives with {len(arrival)} names, one for each full block of its prompt. After the plan of step 1 the blocks "
     f"{named[1]} can be found by name, after that of step 7 still {named[7]}, after that of step 8 {named[8]}. So a "
     "block is named when it is planned, *before* the model has filled it.")

# %% [markdown]
# ## 9 · A′: the same question again
#
# A has ended; nobody holds a block. A′ looks up the names of its full blocks one by one. What it finds is a
# [**hit**](../docs/glossary.md#hit).

# %%
array("block table of A′", again.table("A′", again.first_step("A′")), gaps={0, 1, 2},
      ruler=["positions 0..15", "positions 16..31", f"positions 32..{len(again.prompt('A′')) - 1}"])

# %%
ask.section_9(again)

# %%
step = again.first_step("A′")
mine = again.table("A′", step)
picture(pictures.pool(again.trace, again.at(step), owners=again.cast, alt=f"The pool after the plan of A′, which holds "
        f"{mine}. The third block of A lies free beside it, hatched, with the name of A's answer."),
        f"A′ holds {mine}: two old blocks, full already, and a new one to fill.")

# %%
before, after = again.trace.state_at(again.at(step), before=True).free_order, again.state(step).free_order
table([{"free queue": when, "head": " ".join(map(str, order[:3])) + " …", "tail": "… " + " ".join(map(str, order[-5:]))}
       for when, order in (("before", before), ("after", after))], caption="The free queue around the plan of A′")

# %%
note(f"{mine[1]} and {mine[0]} are unlinked near the far end of the queue; {mine[2]} is taken from its head. Taking "
     "hold of a found block is called [**touch**](../docs/glossary.md#touch). It raises the block's "
     "[**reference count**](../docs/glossary.md#reference-count), the number of tables that hold it.")

# %% [markdown]
# ## 10 · G twice: everything is there

# %%
ask.section_10(full)

# %%
(look,) = full.trace.filter(kind="get_computed_blocks", request=full.ids["G′"])
size = full.config("block_size")
note(f"The look-up tries `(num_tokens - 1) // block_size` names: ({look.num_tokens} − 1) // {size} = "
     f"{look.num_looked_up}, and not {look.num_tokens // size}. At least one token is always left to compute.")

# %% [markdown]
# ## 11 · F, alone
#
# F is a conversation: A's question, **A's own answer**, then a new question. This one is yours, without help.

# %%
lived = again.prompt("A") + again.outputs("A")
same = sum(x == y for x, y in zip(again.prompt("F"), lived, strict=False))
ran = again.computed("A", again.last_step("A"))[1]
note(f"F's prompt has {len(again.prompt('F'))} tokens. The first {same} equal A's prompt and answer, token by token. A "
     f"computed {ran} tokens in its life, {len(again.prompt('A'))} of them its prompt.")

# %%
ask.section_11(again, size)

# %% [markdown]
# ## 12 · Twins
#
# A and A′ arrive together, in an empty pool. Nothing has been computed for anybody.

# %%
ask.section_12(nb)

# %%
twins = Story(nb.trace("twins"), "A A′")
both = [block for block in twins.table("A", 1) if block in twins.table("A′", 1)]
picture(pictures.pool(twins.trace, twins.at(1), owners=twins.cast, alt=f"A holds {twins.table('A', 1)}, A′ holds "
        f"{twins.table('A′', 1)}, and nothing is written yet. Both hold {both}."),
        f"Blocks {both} have two holders, while all their cells are still dotted: planned, not written.")

# %% [markdown]
# ## 13 · Two blocks with one name
#
# Equal blocks are not merged. Back in the pool of sections 9 and 11, where A, A′, B, C and F come one after the
# other: A′ wrote the same answer as A, into a block of its own.

# %%
step = again.first_step("F")
(pair,) = (blocks for blocks in again.state(step).cached_blocks.values() if len(blocks) > 1)
note(f"When F is planned, blocks {pair[0]} and {pair[1]} have one name: they are [duplicates](../docs/glossary.md"
     f"#duplicate-block). The look-up takes the first one, {pair[0]}; F's table is {again.table('F', step)}.")

# %% [markdown]
# ## 14 · When names are lost
#
# A name is lost when its block is handed out again: [**eviction**](../docs/glossary.md#eviction). In a small pool, C
# and another request, D, come between A and A′.

# %%
small = Story(nb.trace("evict"), "A C D A′")
table([{"request": name, "found": small.hit(name), "computed": small.sent(small.first_step(name))[name],
        "first table": small.table(name, small.first_step(name))} for name in small.cast],
      caption=f"evict: {small.trace.header.num_gpu_blocks - 1} usable blocks")

# %%
old = small.table("A", small.last_step("A"))
lost = [block for call in deals(small, "D") for block in call.new_block_ids if block in old]
picture(pictures.blocks_over_time(small.trace, owners=small.cast, alt="Blocks of the small pool over all steps, "
        f"coloured by holder. D takes A's blocks {lost} in this order, and A′ finds {small.hit('A′')} tokens."),
        f"D takes A's blocks {lost}, the tail first. A′ finds {small.hit('A′')} tokens; in the large pool it found "
        f"{again.hit('A′')}.")

# %% [markdown]
# ## What if …
#
# **… the block size changes?** First guess: do larger blocks find more or less?

# %%
sizes = {n: Story(nb.trace(f"block-{n}"), "A A′") for n in (1, 4, 8, 32, 64)}
table(block_sizes(sizes | {16: again}), caption="A asked twice, by block size")

# %% [markdown]
# Small blocks find more and make longer tables. Large ones lose every part that does not fill a block.
#
# **… `again` runs with caching off?** Guess which number changes more: tokens computed, or steps?

# %%
plain = Story(nb.trace("again-nc"), "A A′ B C F")
table([{"caching": what, "prompt tokens computed": " + ".join(map(str, prompts(told))), "sum": sum(prompts(told)),
        "steps": told.steps} for what, told in (("on", again), ("off", plain))], caption="A, A′, B, C and F in turn")

# %% [markdown]
# Caching saves work, and hardly a step: only F no longer fits into one.
#
# **… `together` runs with caching on?** In [notebook 03](03_scheduler.ipynb) C got nothing in step 1.

# %%
diff_view(nb.trace("together-nc"), nb.trace("together"), names=("caching off", "caching on"))

# %%
three = Story(nb.trace("together"), "A B C")
tail, sums = three.ended(three.last_step("A")).free_order[-5:], [three.sent(1)[name] for name in "ABC"]
note(f"Step 1 is {' + '.join(map(str, sums))} = {sum(sums)}: all three are in at once, C cut by the budget. When A and "
     f"B end in step {three.last_step('A')}, the queue gets `{' '.join(map(str, tail))}`, and not block "
     f"{three.table('C', 1)[0]}: C still holds it.")

# %%
common = three.plan(1).num_common_prefix_blocks
note(f"The plan also counts the leading blocks that *all* requests with blocks share: {common} in step 1. A kernel may "
     "read such blocks once for all.")

# %% [markdown]
# **… a request has a salt, or wants the log-probabilities of its prompt?** Both times A has ended before.

# %%
salt, probs = Story(nb.trace("salt"), "A A′ A″"), Story(nb.trace("prompt-logprobs"), "A A′")
table([("A′ with a salt of its own", salt.hit("A′")), ("A″ after that, without", salt.hit("A″")),
       ("A′ with `prompt_logprobs`", probs.hit("A′"))], ["who asks", "tokens found"])

# %% [markdown]
# A **salt** enters the first name of a request, and through the chain all others: tenants with different salts share
# nothing. For the log-probabilities of a prompt every position must be computed, so nothing is read from the cache.
#
# ## Traps

# %%
traps({1: "section 1", 2: "section 10", 3: "section 9", 4: "section 12", 5: "section 9", 6: "section 7", 7: "section 9",
       9: "section 13", 10: "section 8", 11: "What if", 12: "What if", 15: "section 11", 28: "What if"})

# %% [markdown]
# ## The code

# %%
code("minivllm/core/kv_cache_manager.py::KVCacheManager.get_computed_blocks", mark=("max_num_hits =", "break"),
     same="The same rule; there the search may run over several KV groups.")

# %%
code("minivllm/core/kv_cache_manager.py::KVCacheManager.allocate_slots", start="blocks = self.req_to_blocks",
     mark=("block_pool.touch", "num_new_blocks =", "self.cache_blocks"), same="The same order: touch, take, name.")

# %%
code("minivllm/core/block_pool.py::BlockPool.free_blocks", mark=("free_block_queue.append(block)",),
     same="The same: the hash stays.")

# %%
code("minivllm/core/block_hash.py::hash_block_tokens", mark=("hashlib.sha256(parent)",),
     same="The same chain. vLLM pickles the three parts before it hashes them; here their bytes are hashed.")

# %% [markdown]
# ## Left out
#
# vLLM has, and this engine has not: several KV groups (sliding window, Mamba), connectors, KV events, hybrid block
# sizes.
#
# ## Summary
#
# K and V live in blocks; a table per request maps positions to blocks. Full blocks get a chained name when they are
# handed out, keep it when freed, lose it when reused. A new request takes over the longest chain of named blocks, and
# always leaves at least one token to compute.
#
# ## Check yourself

# %%
ask.check_yourself(one, size, three)

# %% [markdown]
# ## Next
#
# The pool had room in every scene so far. Take it away. → [05 · When memory runs out](05_preemption.ipynb)
