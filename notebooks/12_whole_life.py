# %% [markdown]
# # 12 · The whole life of one request
#
# **The question.** Can you tell it?
#
# **Before.** All notebooks from [the map](00_map.ipynb) to [reclamation](11_reclamation.ipynb), or the two-hour path
# through them. Plan 45 minutes; there is a stop sign after section 5.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("12", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons import facts_12 as facts
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_12 as ask

nb.map()

# %% [markdown]
# One line from each of six notebooks, in an order that a seed decides. Say the answer before you open it.

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle
#
# **H** asks `What is the capital of France?`. It is the request that `make trace` makes. You know two numbers about
# it and the settings. Fill the nine blanks *before* you look at its trace: here is the form, and section 9 marks it.

# %%
hello = Story(nb.trace("hello-again"), "H H′")
prompt, outputs, size = len(hello.prompt("H")), len(hello.outputs("H")), hello.config("block_size")
note(
    f"H has **{prompt}** prompt tokens with the chat template and **{outputs}** output tokens; the last is the "
    "end token. "
    f"A block has {size} tokens, {hello.config('num_gpu_blocks_override') - 1} blocks are usable, and all are free. "
    "Later H is asked again."
)

# %%
table([(place, line, "?") for place, line in enumerate(facts.FORM, 1)], ["", "line", "your answer"])

# %% [markdown]
# ## 1 · The viewer
#
# This is the page that `make trace` writes, here for **A**. The arrow keys go from event to event, and a click on the
# strip goes to a step. The caller's lane is on top, the core's below. Where scripts are not shown, as on GitHub, read
# on: all facts are in the tables below as well.

# %%
from minivllm.show.page.notebook import show

show(nb.trace("one"), event=0, height=700, name="A", pieces=facts.known_pieces(nb.trace("one")))

# %% [markdown]
# ## 2 · First walk: the hand-overs of step 1
#
# One request, one step, and every stop that it passes. The last column is what the trace itself says about the event.

# %%
two = nb.trace("two-process")
table(
    facts.hand_overs(two, step=1),
    ["stop", "event", "what the trace says"],
    caption="A across two processes, up to the end of step 1",
)

# %% [markdown]
# ## 3 · Second walk: only block 3
#
# The same block through a whole series of requests (`again`: A, A′, B, C, F one after another).

# %%
again = nb.trace("again")
table(
    [(m.step, m.what) for m in facts.block_life(again, 3)],
    ["step", "block 3"],
    caption="Taken, named, filled, freed, found",
)

# %% [markdown]
# It is named before it is filled, and found long after its owner has gone: F asks with A's answer in its prompt.

# %% [markdown]
# ## 4 · Third walk: only the token ` Italy` at index 51

# %%
one = nb.trace("one")
table(
    [(m.step, m.what) for m in facts.token_life(one, "0", 51)],
    ["step", "token 51 of A"],
    caption="One token: ␣Italy, in the answer",
)

# %% [markdown]
# A token is sampled in one step, fed in the next, and read from the one after it on.

# %% [markdown]
# ## 5 · The whole road: boundaries and steps

# %%
found = facts.counts(two)
once = sum(1 for row in found.calls if [c for c in row if c] and sum(1 for c in row if c) == 1)
layers = max(c for row in found.calls for c in row if c)
picture(
    pictures.grid(
        found.calls, rows=found.boundaries, columns=found.steps, column_title="step", alt=facts.counts_alt(found)
    ),
    f"Once in a life ({once} stops), once a step, and {layers} times a step: the two stops inside the layers.",
)

# %% [markdown]
# White is never. B26 stays white: nobody gave A up. The last column is the flush: a plan, a row dropped, no model.
#
# **Stop sign.** Half of the way. You have seen every stop once (section 2), one block and one token through all steps
# (sections 3 and 4), and how often each stop is crossed. What follows asks whether all this is always so.

# %% [markdown]
# ## 6 · Five invariants
#
# An **invariant** is a sentence that is true at every moment of every run. Five of them, checked on every trace that
# this project has recorded.

# %%
from minivllm.course.places import repo_path
from minivllm.proof.invariants import RULES, check

results = {name: check(trace) for name, trace in facts.recorded(repo_path("traces")).items()}
broken = [one for result in results.values() for one in result.broken]
rows = [
    (sentence, sum(r.checks[rule] for r in results.values()), sum(one.rule == rule for one in broken))
    for rule, sentence in RULES.items()
]
table(rows, ["invariant", "checks", "broken"], caption=f"On all {len(results)} recorded traces")

# %%
bad = [(f"`{name}`", len(r.broken), r.first.step, RULES[r.first.rule]) for name, r in results.items() if not r.holds]
table(bad, ["trace", "broken checks", "first in step", "invariant"])

# %% [markdown]
# That trace was recorded on purpose without our rule, to show what vLLM 0.22.0 does. [Notebook
# 05](05_preemption.ipynb) found the same tokens by hand. The invariant finds them without knowing what to look for.

# %% [markdown]
# ## 7 · Break one on purpose
#
# In a copy of `one`, the first two of the blocks that A gets change places in one event: its table begins with block
# 2, then block 1. Nothing else in the trace is touched.

# %%
from minivllm.proof.invariants import swapped_blocks

wrong = check(swapped_blocks(one, one.filter(kind="allocate_slots")[0].seq))
ask.section_7(wrong)

# %%
note(
    f"In step {wrong.first.step}: {wrong.first.what}. It fails {len(wrong.broken)} times, for every token of these "
    "two blocks "
    "and for none of the third."
)

# %% [markdown]
# ## 8 · The form
#
# Now yours. Six questions stand for the nine lines. Answer each before you open it.

# %%
told = facts.told(hello.trace)
ask.section_8(told, prompt, size)

# %%
ask.section_8_2(told, prompt, outputs, size)

# %%
ask.section_8_3(hello, told, prompt, outputs)

# %%
ask.section_8_4(prompt, outputs, told, size)

# %%
ask.section_8_5(hello, outputs, told)

# %%
ask.section_8_6(told, prompt)

# %% [markdown]
# ## 9 · Form and trace, line by line
#
# Write your nine answers between the quotes and run the cell. Do it before you scroll on: the next table has all
# answers.

# %%
answers = ["", "", "", "", "", "", "", "", ""]
table(facts.marked(dict(zip(facts.FORM, answers, strict=True)), told), ["line", "yours", "the trace", ""])

# %% [markdown]
# The form can also be computed, from two lengths and the size of a block. On the left what six short formulas say, on
# the right what the trace says.

# %%
rows = facts.marked(facts.foretold(prompt, outputs, size), told)
right = sum(mark == "✓" for *_, mark in rows)
table(rows, ["line", "computed", "the trace", ""], caption=f"{right} of {len(rows)}: you can predict the engine")

# %%
code("notebooks/facts_12.py::foretold", mark=("first = -(", "hit = (", "border = "), vllm=())

# %% [markdown]
# The same formulas on other recorded requests, that were first in a fresh pool and were asked twice:

# %%
names = ("hello-again", "again", "full", "block-8", "block-32")
table(
    [(f"`{name}`", *facts.score(nb.trace(name))) for name in names],
    ["trace", "prompt", "outputs", "block size", "lines right"],
)

# %% [markdown]
# To record H yourself, run `make trace`, or set `LIVE = True` in the first cell: then this notebook runs the engine,
# and compares with what it did just now.
#
# ## 10 · Your own prompt
#
# Change two numbers: how many tokens your prompt has with its template, and how many outputs you expect. The form is
# made from them. Then ask it with `make trace PROMPT="…"`, and compare.

# %%
my_prompt, my_outputs = 92, 4
table(list(facts.foretold(my_prompt, my_outputs).items()), ["line", "your request"])

# %% [markdown]
# ## 11 · Ask the trace
#
# `minivllm why` says in words why a step gave a request what it gave it, from the trace alone:

# %%
from minivllm.show.explain import explain, format_explanation

print(format_explanation(explain(nb.trace("one"), "0", step=9)))

# %% [markdown]
# `minivllm diff` compares two traces, as below. `minivllm export --to chrome` makes a file for
# [Perfetto](https://ui.perfetto.dev). A trace can go with a bug report: `--redact` puts the length of every text and
# of every list of token ids in its place, and keeps all else.
#
# ## What if …
#
# **`max_num_batched_tokens` from `64` to `16`.** Where is the first difference?

# %%
diff_view(nb.trace("one"), nb.trace("chunk-16"), names=("one", "chunk-16"))

# %% [markdown]
# **`block_size` from `16` to `32`** (and A asked twice). Which event notices first?

# %%
diff_view(nb.trace("one"), nb.trace("block-32"), names=("one", "block-32"))

# %% [markdown]
# **One process becomes two.** Does any decision change?

# %%
diff_view(nb.trace("one"), two, names=("one", "two-process"))

# %% [markdown]
# ## Traps
#
# On the first five a trial reading of the notebooks stopped longest.

# %%
traps(
    {
        23: "[notebook 00](00_map.ipynb), section 5: one plan more than tokens",
        17: "[notebook 03](03_scheduler.ipynb), section 11: nobody overtakes",
        4: "[notebook 04](04_blocks.ipynb), section 12: twins share what is not computed yet",
        8: "[notebook 05](05_preemption.ipynb), section 5: a found block can be the only free one",
        32: "[notebook 06](06_flat_batch.ipynb), section 10: the batch is not in the order of the plan",
        61: "if your model is a Qwen3",
        63: "if a call fails in the middle",
    }
)

# %% [markdown]
# ## The code
#
# Nothing new runs here. One method rebuilds the engine's state at any event:

# %%
code("minivllm/trace/replay.py::Trace.state_at", vllm=(), same="vLLM has no counterpart: it records no events.")

# %% [markdown]
# ## Left out
#
# Everything that the notebooks named as left out, with the symbol of vLLM to read next.
#
# | notebook | left out here | read in vLLM |
# |---|---|---|
# | [00](00_map.ipynb) | asynchronous scheduling | `v1/core/sched/async_scheduler.py::AsyncScheduler` |
# | [00](00_map.ipynb) | speculative decoding | `v1/spec_decode/ngram_proposer.py::NgramProposer` |
# | [00](00_map.ipynb) | LoRA adapters | `v1/worker/lora_model_runner_mixin.py::LoRAModelRunnerMixin` |
# | [00](00_map.ipynb) | pooling models | `v1/pool/metadata.py::PoolingMetadata` |
# | [00](00_map.ipynb), [01](01_facade.ipynb) | images and other inputs | `v1/core/encoder_cache_manager.py::EncoderCacheManager` |
# | [01](01_facade.ipynb) | the asynchronous front end | `v1/engine/async_llm.py::AsyncLLM` |
# | [02](02_boundary.ipynb) | data parallelism | `v1/engine/coordinator.py::DPCoordinator` |
# | [02](02_boundary.ipynb) | workers in processes of their own | `v1/executor/multiproc_executor.py::MultiprocExecutor` |
# | [02](02_boundary.ipynb) | a queue of several batches | `v1/engine/core.py::EngineCore.step_with_batch_queue` |
# | [04](04_blocks.ipynb) | several kinds of KV cache in one model | `v1/core/kv_cache_coordinator.py::HybridKVCacheCoordinator` |
# | [05](05_preemption.ipynb), [11](11_reclamation.ipynb) | KV caches elsewhere | `distributed/kv_transfer/kv_connector/v1/base.py::KVConnectorBase_V1` |
# | [06](06_flat_batch.ipynb) | CUDA graphs and padding for them | `v1/cudagraph_dispatcher.py::CudagraphDispatcher` |
# | [08](08_paged_attention.ipynb) | other attention backends | `v1/attention/backends/flash_attn.py::FlashAttentionImpl` |
# | [09](09_sampling.ipynb) | structured output | `v1/structured_output/__init__.py::StructuredOutputManager` |
# | [09](09_sampling.ipynb) | acceptance of speculated tokens | `v1/sample/rejection_sampler.py::RejectionSampler` |
# | [09](09_sampling.ipynb) | thinking budgets | `v1/sample/thinking_budget_state.py::ThinkingBudgetStateHolder` |
# | [09](09_sampling.ipynb) | sampling kernels of FlashInfer | `v1/sample/ops/topk_topp_sampler.py::flashinfer_sample` |
# | [10](10_text.ipynb) | parsers of tool calls and of reasoning | `tool_parsers/abstract_tool_parser.py::ToolParser` |
# | [10](10_text.ipynb) | tokenizers without a fast form | `v1/engine/detokenizer.py::SlowIncrementalDetokenizer` |

# %% [markdown]
# ## Summary
#
# A request is a row of numbers that moves through five calls. Everything else is who owns which number at which
# moment. You can now say what vLLM will do before it does it.
#
# ## Check yourself

# %%
ask.check_yourself(nb)

# %% [markdown]
# ## Next
#
# One box was opened only a crack: the kernel that never stores a score. [FlashAttention, from PyTorch to
# Triton](13_flash_attention.ipynb)
