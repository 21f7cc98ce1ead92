# %% [markdown]
# # 07 · One forward pass through one layer
#
# **The question.** Where in a layer do the flat arrays matter?
#
# **Before.** [From requests to a flat batch](06_flat_batch.ipynb). Plan 35 minutes. The numbers are the model's own,
# taken from traces of detail 2.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[engine,pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("07", live=LIVE)

# %%
import numpy as np
from minivllm.show import pictures
from minivllm.lessons import facts_07 as facts
from minivllm.lessons import ask_07 as ask

nb.map()

# %%
one = nb.trace("one")
ask.recall_before(one)

# %% [markdown]
# ## The puzzle

# %%
france = nb.trace("values-france")
ids = [i for e in france.filter(kind="prepare_inputs") for i in e.input_ids]
places = [place for place, piece in enumerate(tokens(ids)) if piece == " France"]
pieces(tokens(ids)[24:], owner="A", first=24, caption=f"A, positions 24 to {len(ids) - 1}. ␣France stands at "
    f"{places[0]} and {places[1]}.")

# %% tags=["floats"]
kv = {place: facts.cached(france, place) for place in places}
gaps = sorted(float(abs(a - b).max()) for a, b in zip(*kv.values(), strict=True))
note(f"Layer 0 puts two vectors into the cache for each token, K and V. For ` France` one of them is the same in "
     f"both places, up to rounding in the seventh digit ({gaps[0]:.1f}). The other differs by up to {gaps[1]:.2f}, "
     f"although its length is the same. *Which is which, and why?* Section 3 answers.")

# %% [markdown]
# ## 1 · Shapes along a layer

# %%
model, rows = one.header.model, facts.shapes(nb.trace("one-detail1"))
note(f"Each token has a vector of {model['hidden_size']} numbers, its **hidden state**. From it come one **query**, "
     f"one **key** and one **value**, cut into heads of {model['head_size']} numbers. Step 1 of A, in each of "
     f"{model['num_layers']} layers: "
         + " → ".join(f"{what} `{shape}`" for what, shape, _ in rows) + ". The first number is always the tokens.")

# %% [markdown]
# ## 2 · One box mixes tokens

# %%
table(rows, ("what", "shape, step 1", "depends on which tokens"), mark=[4], caption="One layer")

# %% [markdown]
# Norm, projections and MLP treat every token alone. They don't care whose token it is, so a flat batch of three
# requests costs nothing there. Attention is the only place that must know whose neighbour is whose. The vLLM symbol is
# `model_executor/models/llama.py::LlamaDecoderLayer.forward`.
#
# ## 3 · The same word in two places
#
# In layer 0 all that a token brings along is its own embedding. Where does its position come in?

# %%
ask.section_3()

# %% tags=["floats"]
table([(name, *(f"{number:.2f}" for number in np.linalg.norm(kv[places[0]][part], axis=1)),
    f"{abs(kv[places[0]][part] - kv[places[1]][part]).max():.2f}")
       for part, name in enumerate("KV")], ("layer 0", "length, KV head 0", "KV head 1", "KV head 2",
           "largest difference between the two places"))

# %% tags=["floats"]
lengths = np.array([np.linalg.norm(kv[place][0], axis=1) for place in places])
note(f"K's lengths in both places: {' · '.join(f'{a:.2f} and {b:.2f}' for a, b in lengths.T)}. A rotation turns and "
     f"keeps the length.")

# %% [markdown]
# Before attention, q and k are **rotated**: each pair of numbers is turned by an angle that grows with the position
# (RoPE). The value is left as it is. The vLLM symbol is
# `model_executor/layers/rotary_embedding/base.py::RotaryEmbedding`.
#
# ## 4 · More query heads than KV heads
#
# Several query heads share one KV head. This is **GQA**: the cache holds one K and one V for the whole group.

# %%
group = model["num_attention_heads"] // model["num_kv_heads"]
array("reads KV head", [head // group for head in range(model["num_attention_heads"])], ruler="query head")

# %%
from minivllm.config import CPU_KV_CACHE_BYTES as room
factors = (2, model["num_kv_heads"], model["head_size"], 4)  # K and V; bytes of a float32
cell, size = int(np.prod(factors)), one.header.config["block_size"]
block = cell * size * model["num_layers"]
note(f"One token costs {' × '.join(map(str, factors))} = {cell:,} bytes a layer in float32. A block of {size} tokens "
     f"over {model['num_layers']} layers costs {block:,} bytes. Our default on a CPU, {room // 2**20} MiB, holds "
     f"{room // block} blocks.")

# %% [markdown]
# ## 5 · The write
#
# In each layer `slot_mapping` says where K and V of the step's tokens go. A slot is the only address that all backends
# share; how the tensor's axes lie is the backend's own business.

# %%
cache = facts.layer_event(nb.trace("one-detail1"), "attention", 1, 0).kv_cache_shape
axes = dict(zip(("blocks", "K or V", "cells", "KV heads", "head size"), cache, strict=True))
layouts = {"ours, and vLLM's Triton backend": list(axes), "vLLM's FlashAttention backend": facts.moved(axes, 1, 0),
           "vLLM's CPU backend": facts.moved(facts.moved(axes, 1, 0), 3, 2)}
table([(who, "[" + ", ".join(order) + "]", str([axes[one] for one in order])) for who, order in layouts.items()],
      ("backend", "KV tensor of one layer", "here"))

# %% [markdown]
# The symbols are
# `v1/attention/backends/triton_attn.py::TritonAttentionBackend.get_kv_cache_shape` and its namesakes in `flash_attn.py`
# and `cpu_attn.py`.
#
# ## 6 · The read
#
# The next word will be ` Rome`. In layer 16, query head 0 of step 13 compares its query with all keys of A, through the
# block table. Softmax turns the scores into **weights** that sum to 1.

# %% tags=["floats"]
rome = nb.trace("values-rome")
head = facts.read_by_head(rome, step=13, layer=16, head=0)
text = [piece.replace(" ", "␣") for piece in tokens([i for e in rome.filter(kind="prepare_inputs")
    for i in e.input_ids])]
(table_row,) = [row.block_ids for row in rome.state_at(rome.filter(kind="prepare_inputs", step=13)[0].seq).rows]
heaviest, last = int(head.weights.argmax()), len(text) - 1
note(f"The query comes from {text[-1]} at position {len(text) - 1}. It meets {len(head.weights)} keys, in blocks "
     f"{' '.join(map(str, table_row))}.")

# %% [markdown]
# ## 7 · Which token does this head read?

# %% tags=["floats"]
ask.section_7(text, heaviest, last, head)

# %% tags=["floats"]
pictures.weights([round(float(w), 4) for w in head.weights], text, named=3, block_size=16, alt=f"Attention weights "
    f"of the token at position {last} on positions 0 to {last}, layer 16, head 0. {text[heaviest]} at {heaviest} "
    f"gets {head.weights[heaviest]:.3f}, position 0 gets {head.weights[0]:.3f}, all others together "
    f"{1 - head.weights[heaviest] - head.weights[0]:.3f}.", caption=f"{text[heaviest]} at {heaviest} gets nearly all "
        f"of the weight")

# %% tags=["floats"]
full = heaviest // 16 * 16
note(f"Position {heaviest} lives in block {table_row[heaviest // 16]}, the newest. Its {last + 1 - full} keys carry "
     f"{head.weights[full:].sum():.3f} of the weight, the other {full} keys {head.weights[:full].sum():.3f}.")

# %% [markdown]
# ## 8 · A sink

# %% tags=["floats"]
sink = facts.weights_on(rome, step=13, place=0)
note(f"The second largest weight, {head.weights[0]:.3f}, lies on position 0: `<|im_start|>`, which says nothing "
     f"about Italy. At this step {sink.mean():.2f} of all weight (mean of {sink.size} heads) lies there, and "
     f"{(sink > 0.5).sum()} heads put more than half on it. Such a token is a **sink**: heads with nothing to look "
     f"for look there. Block {table_row[0]} of the pool holds it, for every request that begins like this.")

# %% [markdown]
# ## 9 · Shared in the same step
#
# In `twins`, A and A′ arrive together. A′ finds A's blocks 1 and 2 by their hashes, before any K or V is in them. Both
# requests run in step 1. The trace shows the order of events in each layer.

# %%
twins = nb.trace("twins")
order = [e for e in nb.trace("one-detail1").filter(step=1, kind=("do_kv_cache_update", "attention")) if e.layer in (4,
    5)]
table([(e.seq, e.kind, e.layer, e.num_tokens) for e in order], ("event", "kind", "layer", "tokens"),
    caption="Two layers of step 1, A alone (detail 1)")

# %%
ask.section_9(twins)

# %% [markdown]
# ## 10 · A check by hand
#
# One head of the engine's attention, in two lines: scaled scores, softmax, weighted sum of the values.

# %% tags=["floats"]
scores = head.keys @ head.query / np.sqrt(len(head.query))
weights = np.exp(scores) / np.exp(scores).sum()
error = abs(weights @ head.values - head.output).max()
note(f"{len(head.keys)} keys of {len(head.query)} numbers. Largest difference to the engine's output: "
     f"{facts.tiny(error)}.")

# %% [markdown]
# ## 11 · How a layer finds its arrays
#
# In ours `attn_metadata` and `kv_cache` are arguments, all the way down. In vLLM a layer knows its name, and looks its
# metadata, cache and slots up in a context that is set around the forward pass
# (`forward_context.py::ForwardContext`). So torch.compile sees no cache in the model's code.

# %%
code("minivllm/attention/layer.py::Attention.forward", start="query = query", mark=("do_kv_cache_update",
    "self.backend.forward"), same="The same order: write, then read. vLLM calls both as registered operations.")

# %% [markdown]
# ## 12 · The last stop
#
# After the last layer only some rows go on: those of `logits_indices`, one for each request.

# %%
(logits,) = one.filter(kind="compute_logits", step=1)
note(f"Step 1 of A: of {one.filter(kind='model_forward', step=1)[0].hidden_states_shape} hidden states the head gets "
     f"{logits.hidden_states_shape}, row {one.filter(kind='prepare_inputs', step=1)[0].logits_indices[0]}, and gives "
     f"logits {logits.logits_shape}.")

# %% [markdown]
# What would the head say if it were read earlier? Step 6 samples ` Paris`.

# %% tags=["floats"]
early = nb.trace("values-early")
table([(f"{n} layers", *(f"{tokens([i])[0].replace(' ', '␣')} {p:.3f}" for i, p in best[:3])) for n,
    best in facts.early(early, 6).items() if n > 27],
      ("after", "first", "second", "third"), caption="Step 6 of A, if the head were read after so many layers")

# %% [markdown]
# ## What if …
#
# **… the model runs in bfloat16?** Guess first: does A's text change, and do the probabilities of step 7?

# %% tags=["floats"]
runs = {"float32": "hesitation", "bfloat16, alone": "bfloat16", "bfloat16, in company": "bfloat16-64"}
best = {name: facts.likeliest(nb.trace(trace), 7)[:2] for name, trace in runs.items()}
table([(name, *(f"{tokens([i])[0].replace(' ', '␣')} {p:.3f}" for i, p in two)) for name, two in best.items()],
    ("step 7 of A", "likeliest", "second"))

# %% tags=["floats"]
gap = {name: float(np.log(two[0][1] / two[1][1])) for name, two in best.items()}
unit = 2**-3  # of bfloat16 between 16 and 32, where these logits are
company = len(nb.trace("bfloat16-64").request_ids)
note(f"The word stays. The two logits are {gap['float32']:.2f} apart in float32. In bfloat16, numbers of this size "
     f"come in steps of {unit}: alone they are {gap['bfloat16, alone'] / unit:.0f} steps apart, among {company} "
     f"copies of A {gap['bfloat16, in company'] / unit:.0f}, because a larger batch sums in another order. This is "
     f"how temperature 0 can depend on who else is there. In exchange {room // 2**20} MiB hold {2 * room // block} "
     f"blocks in place of {room // block}.")

# %% [markdown]
# **… a trace notes every layer?** Guess first: do the tokens change?

# %%
details = {name: nb.trace(name).filter(kind=("do_kv_cache_update", "attention"), step=2) for name in ("one",
    "one-detail1")}
note(f"Detail 0 has {len(details['one'])} events of B17 and B18 in step 2, detail 1 has "
     f"{len(details['one-detail1'])}, a pair for each layer in place of two sums. The tokens are the same; looking "
     f"changes nothing.")

# %% [markdown]
# ## Traps

# %%
traps({4: "section 9", 41: "section 5", 42: "ours and vLLM's Triton backend write before the read; vLLM's CPU "
    "backend inside its forward", 67: "section 3: which rotation"})

# %% [markdown]
# ## The code

# %%
code("minivllm/models/llama.py::LlamaAttention.forward", start="q = self", mark=("apply_rotary",),
    vllm="model_executor/models/llama.py::LlamaAttention.forward", same="vLLM projects q, k and v in one product; "
        "then the same.")

# %%
code("minivllm/models/llama.py::LlamaDecoderLayer.forward", start="normed =", mark=("self.self_attn",),
    vllm="model_executor/models/llama.py::LlamaDecoderLayer.forward", same="vLLM adds the residual inside the norm.")

# %%
code("minivllm/attention/torch_backend.py::TorchBackend.do_kv_cache_update", mark=("lines[k_lines] = key",
    "lines[v_lines] = value"),
     vllm="model_executor/layers/attention/attention.py::unified_kv_cache_update", same="The slot is the address in "
         "both.")

# %% [markdown]
# ## Left out
#
# Present in vLLM, and not here: tensor parallelism, quantisation, torch.compile and CUDA graphs, sliding windows.
#
# ## Summary
#
# Everything but attention treats tokens alone, so a flat batch costs nothing there. K, rotated, and V go to slots; then
# the queries read through the table. Only the last row of each request reaches the head.
#
# ## Check yourself

# %%
ask.check_yourself(places)

# %% [markdown]
# ## Next
#
# "Reads through the table" was one line of torch. On a GPU it is a grid of programs, each with a small view.
# → [08 · Paged attention](08_paged_attention.ipynb)
