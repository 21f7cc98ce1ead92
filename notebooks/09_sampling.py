# %% [markdown]
# # 09 · Logits to a token
#
# **The question.** In which order are the knobs applied, and what is reported?
#
# **Before.** [One forward pass](07_forward.ipynb); what comes between, [paged attention](08_paged_attention.ipynb),
# is not needed here. Plan 35 minutes.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("09", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_09 import choices, drawn_token, draws, kept, params
from minivllm.lessons.facts_10 import marked, verdict
from minivllm.course.notebook.story import Story
from minivllm.lessons import ask_09 as ask

nb.map()

# %%
ask.recall_before(nb)

# %% [markdown]
# ## The puzzle
#
# In step 7 request **A** has said `The capital of France is Paris` and looks for the next word. With
# `repetition_penalty=1.3` it goes on in an odd way:

# %%
plain, repeated = nb.trace("sampler"), nb.trace("sampler-repetition-1.3")
odd = drawn_token(repeated)
note(f"The engine picks {marked(odd.text)} and reports: rank **{odd.raw_rank}**, probability **{odd.raw:.3f}**. "
     "*Greedy sampling takes the best. Why this one?*")

# %% [markdown]
# ## 1 · What the model says
#
# The head gives one number for each of the model's tokens, the **logits**. Softmax makes probabilities of them. These
# are the likeliest in step 7, before any knob is turned. A token's **rank** is its place in this order.

# %%
best = choices(plain)
pictures.bars({marked(c.text): c.raw for c in best},
    alt=f"The five likeliest tokens after 'is Paris' as bars. {marked(best[0].text)} has {best[0].raw:.3f}, "
        f"{marked(best[1].text)} {best[1].raw:.3f}, and the third, {marked(best[2].text)}, only {best[2].raw:.3f}.")

# %% [markdown]
# These are the **raw** probabilities: of the logits as the model made them. What a token is drawn from after all
# knobs is called **processed**.
#
# ## 2 · Temperature
#
# The **temperature** divides the logits. Below one the best gets more, above one the others do.

# %%
cold, hot = choices(nb.trace("sampler-temperature-0.5")), choices(nb.trace("sampler-temperature-2"))
rows = [(marked(c.text), c.raw, low.processed, high.processed) for c, low, high in zip(best, cold, hot, strict=True)]
table(rows, ["token", "raw", "drawn from, temperature 0.5", "drawn from, temperature 2"])

# %%
ask.section_2(cold, hot, best)

# %% [markdown]
# The report, [logprobs](../docs/glossary.md#logprob), is computed in vLLM by
# `v1/sample/sampler.py::Sampler.compute_logprobs`, from the logits as they came in.
#
# ## 3 · top-k and top-p
#
# **top-k** keeps the k likeliest. **top-p** keeps the smallest set that together reaches p. What is left is scaled to
# one.

# %%
two = choices(nb.trace("sampler-top-k-2"))
table(
    [(marked(c.text), c.raw, c.processed or "masked") for c in two], ["token", "raw", "drawn from"], caption="`top_k=2`"
)

# %%
ask.section_3(nb, best)

# %% [markdown]
# ## 4 · min-p
#
# **min-p** keeps what is at least min_p times as likely as the best. The bar is high where the model is sure.

# %%
trace = nb.trace("sampler-min-p-0.1")
low = [c for c in choices(trace) if c.processed]
note(f"`min_p=0.1`: the bar is {0.1} × {best[0].raw:.3f} = {0.1 * best[0].raw:.3f}. It keeps {kept(trace)}: "
     + " and ".join(f"{marked(c.text)} ({c.raw:.3f} → {c.processed:.3f})" for c in low) + ".")

# %% [markdown]
# ## 5 · Penalties: what has been seen?
#
# The **repetition penalty** weakens all tokens that stand in the prompt *or* in the output: their logits are divided
# by it (negative ones multiplied). The **presence** penalty is subtracted once, the **frequency** penalty once for
# each time; both look at the output only. So each candidate has two properties:

# %%
one = Story(nb.trace("one"), "A")
prompt, said = one.prompt("A"), one.outputs("A")[:6]
seen = ["yes" if c.token_id in prompt else "no" for c in best], ["yes" if c.token_id in said else "no" for c in best]
table(list(zip([marked(c.text) for c in best], *seen, strict=True)), ["token", "in the prompt", "in the output so far"])

# %%
ask.section_5(nb, best)

# %% [markdown]
# vLLM applies all three in `v1/sample/ops/penalties.py::apply_all_penalties`.
#
# ## 6 · The puzzle solved
#
# Now put the columns together: divided are the logits of tokens that stand in the prompt, and of no others.

# %%
after = choices(repeated)
places = [c.processed_rank if c.processed_rank <= 10 else f">{10}" for c in after]
rows = [(marked(c.text), seen[0][i], c.raw, c.raw_rank, c.processed, places[i]) for i, c in enumerate(after)]
table(rows, ["token", "in the prompt", "raw", "raw rank", "processed", "its rank"], mark={odd.raw_rank - 1},
      caption="`repetition_penalty=1.3` in step 7")

# %%
note(
    f"{marked(odd.text)} is the likeliest that is not penalised: {odd.raw:.3f} becomes {odd.processed:.3f}, rank "
    f"{odd.processed_rank}. Greedy takes the best of the *processed* row; the report shows the *raw* one, and "
    "there it has "
    f"rank {odd.raw_rank}."
)

# %% [markdown]
# ## 7 · The order
#
# | | what | changes greedy? |
# |---|---|---|
# | before all | the report, from the raw logits; then everything in float32 | no |
# | masks | allowed tokens, `bad_words`, `min_tokens` | yes |
# | shifts | `logit_bias`, then penalties | yes |
# | **greedy** | the best of what is there now | |
# | for drawing | temperature, then min-p, then top-k and top-p | no |
# | the draw | from what is left | |
#
# Greedy is decided in the middle of the list. What comes after it cannot change a greedy answer.
#
# ## 8 · The draw
#
# A token is drawn by an **exponential race**: divide each probability by a noise of its own, and take the largest
# result. No sums, no sorting, one line on the device. Here is the same line ten thousand times.

# %%
times = 10_000
counts = draws([c.raw for c in best], times, seed=0)
rows = [(marked(c.text), c.raw, count / times) for c, count in zip(best, counts, strict=True)]
table(rows, ["token", "probability", "share of the races won"], caption=f"{times:,} races in numpy")

# %%
code("minivllm/sample/sampler.py::random_sample", mark=("exponential_(generator=generator)", "argmax"),
     same="The same race.")

# %% [markdown]
# ## 9 · A seed belongs to a request

# %%
alone, company = nb.trace("seed-0"), nb.trace("seed-0-company")
ask.section_9(alone, company)

# %%
rows = [("alone", "0", verdict(alone).text), *(("in company", seed, verdict(company, seed).text) for seed in "012")]
table(rows, ["", "seed", "text"], caption="Drawn at temperature 1")

# %% [markdown]
# In vLLM on a CPU the text changes as soon as a request *without* a seed shares the batch: then
# `v1/sample/ops/topk_topp_sampler.py::TopKTopPSampler.forward_cpu` draws without the generators. Ours stays the same,
# one of the listed [differences](../docs/differences.md).
#
# ## 10 · Greedy in mixed company
#
# A batch can hold greedy and drawing rows. A greedy row stores temperature zero. It is divided by one instead, takes
# part in the draw like all others, and is overwritten by its greedy choice at the end.

# %%
mixed = nb.trace("sampler-mixed")
event = mixed.filter(kind="sampler.forward")[0]
rows = [(row, asked, marked(drawn_token(mixed, row=row).text)) for row, asked in enumerate(params(mixed))]
flags = " and ".join(f"`{name}` {getattr(event, name)}" for name in ("all_greedy", "all_random"))
table(rows, ["row", "asked for", "token"], caption=f"Two rows in one call of the sampler: {flags}")

# %%
code("minivllm/sample/sampler.py::process", start="greedy = None", mark=("greedy = None", "apply_temperature"),
     same="The same order.")

# %% [markdown]
# ## 11 · Discarded rows
#
# A chunk that ends in the middle of a prompt has a row in the logits too. Its token is thrown away ([notebook
# 03](03_scheduler.ipynb)). A seeded request must not draw noise for it, or its text would depend on how its prompt
# was cut. vLLM rewinds the generator; ours does not draw.

# %%
events = nb.trace("chunk-16-values").filter(kind="sampler.forward")
rows = [(e.step, e.logits_shape[0], ", ".join(f"row {row}" for row in e.discarded_rows) or "none") for e in events]
table(rows, ["step", "rows in the logits", "rows thrown away"], caption="`chunk-16-values`: A's prompt in three chunks")

# %% [markdown]
# ## What if …
#
# **`bad_words=["Rome"]`, or `logit_bias={7042: -100}`** (that is `␣Paris`). Both change a greedy answer: they come
# before it.

# %%
variants = {'bad_words=["Rome"]': "bad-words", "logit_bias={7042: -100}": "logit-bias"}
table(
    [(f"`{what}`", verdict(nb.trace(f"sampler-{name}")).text) for what, name in variants.items()], ["setting", "text"]
)

# %% [markdown]
# **A penalty, from weak to strong.** Which of these change the greedy text of A?

# %%
names = {
    "repetition_penalty=1.1": "repetition-1.1",
    "presence_penalty=1.0": "presence-1",
    "repetition_penalty=1.3": "repetition-1.3-whole",
}
original = verdict(one.trace).text
rows = [
    (f"`{what}`", "no" if (text := verdict(nb.trace(f"sampler-{name}")).text) == original else text)
    for what, name in names.items()
]
table(rows, ["setting", "another text?"])

# %% [markdown]
# **`min_tokens` from none to `16`.** Where A would have ended, its end token is masked. What comes instead?

# %%
longer = nb.trace("sampler-min-tokens-16")
diff_view(one.trace, longer, lines=4, names=("none", "16"))

# %%
note(f"After `Rome.` it goes on: {marked(verdict(longer).text[len(original):])}.")

# %% [markdown]
# **Temperature from `1` to `1.5`**, with six seeds. How many of them still name both cities?

# %%
rambling = nb.trace("rambling")
texts = {seed: verdict(rambling, seed).text for seed in "012345"}
rows = [(seed, text[:40] + "…", "yes" if "Paris" in text and "Rome" in text else "no") for seed, text in texts.items()]
table(rows, ["seed", "the text begins", "names both cities"])

# %% [markdown]
# ## Traps

# %%
traps({36: "section 11", 40: "section 7", 44: "sections 2 and 6", 45: "section 10", 46: "section 3", 47: "section 5",
       48: "the first check", 49: "section 9", 12: "for prompts, see the trace `prompt-logprobs`"})

# %% [markdown]
# ## The code

# %%
code(
    "minivllm/sample/sampler.py::Sampler.forward",
    mark=("process(logits, metadata)", "raw_logprobs = logits"),
    same="The same steps. vLLM makes the report first, since it changes the logits in place later. On a CPU, batches "
    "without "
    "any seed are drawn from sums here, with one random number a row; vLLM races on every device.",
)

# %%
code("minivllm/sample/logits_processors.py::apply_top_k_top_p", mark=("kth_largest", "cumsum"),
     same="The same two masks on one sorted row.")

# %%
code("minivllm/sample/logits_processors.py::apply_penalties", mark=("in_prompt |", "presence[:, None]"),
     vllm=["v1/sample/ops/penalties.py::apply_all_penalties", "model_executor/layers/utils.py::apply_penalties"])

# %% [markdown]
# ## Left out
#
# Structured output (`v1/structured_output/__init__.py::StructuredOutputManager`), thinking budgets
# (`v1/sample/thinking_budget_state.py::ThinkingBudgetStateHolder`), acceptance of speculated tokens
# (`v1/sample/rejection_sampler.py::RejectionSampler`), and FlashInfer's sampling kernels
# (`v1/sample/ops/topk_topp_sampler.py::flashinfer_sample`).
#
# ## Summary
#
# Masks, biases and penalties come before greedy's choice; temperature and cuts come after it. Reports describe the
# raw distribution. A seed belongs to a request and must not depend on its company.
#
# ## Check yourself

# %%
ask.check_yourself(event)

# %% [markdown]
# ## Next
#
# A token id is chosen. Nobody reads numbers. [Tokens back to text](10_text.ipynb)
