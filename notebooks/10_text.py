# %% [markdown]
# # 10 · Tokens back to text: detokenizer, stop strings, the late abort
#
# **The question.** When does a token become visible text, and who may end the request?
#
# **Before.** [The process boundary](02_boundary.ipynb) and, for the token that arrives here, [logits to a
# token](09_sampling.ipynb). Plan 35 minutes.

# %% tags=["setup"]
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[pictures] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("10", live=LIVE)

# %%
from minivllm.show import pictures
from minivllm.lessons.facts_10 import grown_text, marked, verdict
from minivllm.lessons.facts_11 import late_abort
from minivllm.lessons import ask_10 as ask

nb.map()

# %%
ask.recall_before()

# %% [markdown]
# ## The puzzle
#
# **A** asks for two capitals. Its caller streams the answer, once as it is, and once with `stop=["Paris"]`.

# %%
one, stopped = nb.trace("one"), nb.trace("stop-string")
plain, chopped = grown_text(one), grown_text(stopped)
rows = [(p.step, marked(p.shown), marked(c.shown)) for p, c in zip(plain, chopped, strict=False)]
table(rows, ["step", "what arrives", '… with stop=["Paris"]'], caption="The stream of A, up to the match")

# %% [markdown]
# Without the stop string whole words arrive. With it they are cut in the middle, although the engine samples the same
# tokens in the same steps. *Who is chopping, and why?*

# %% [markdown]
# ## 1 · From id to piece
#
# A sampled token comes back as a number. The caller's [detokenizer](../docs/glossary.md#detokenizer) makes of it a
# [**piece**](../docs/glossary.md#piece): the text that this token completes.

# %%
pieces(tokens(g.token_id for g in plain), first=41, caption="A's output tokens, with their indices after the prompt")

# %%
rows = [(g.step, str(g.token_id), marked(g.piece)) for g in (*plain[:3], *plain[-3:])]
table(rows, ["step", "token id", "piece"], caption="The first three and the last three steps")

# %%
note(
    f"A has {len(plain)} output tokens. The last, id {plain[-1].token_id}, is the end token. It counts as a token, "
    "and its "
    f"piece is {marked(plain[-1].piece)}: it adds no text."
)

# %% [markdown]
# ## 2 · The chopped stream
#
# Compare the two columns of the puzzle: in step 1 a piece is there, and with `stop=["Paris"]` nothing is shown. Later
# each step shows the end of an older piece and hides the end of its own.

# %%
ask.section_2(chopped)

# %%
rows = [(c.step, marked(p.piece), marked(c.shown), marked(c.held)) for p, c in zip(plain, chopped, strict=False)]
table(rows, ["step", "piece", "becomes visible", "held back"], caption='A with stop=["Paris"]')

# %% [markdown]
# This is the [**hold-back**](../docs/glossary.md#hold-back): while the request runs, the last *length − one*
# characters stay hidden, with the length of the longest [**stop string**](../docs/glossary.md#stop-string). At the
# end they are shown, unless a match cuts them off. vLLM computes it in
# `v1/engine/detokenizer.py::BaseIncrementalDetokenizer.get_next_output_text`.

# %% [markdown]
# ## 3 · What a match cuts
#
# In step 6 the sampled token is `␣Paris`. The stop string matches, and the request ends.

# %%
cut, ids = verdict(stopped), [str(g.token_id) for g in chopped]
ask.section_3(ids, plain, cut)

# %%
table([("token_ids", " ".join(ids)), ("text", marked(cut.text)), ("finish_reason", cut.finish_reason),
       ("stop_reason", marked(cut.stop_reason))], ["field", "value"], caption='The answer to A with stop=["Paris"]')

# %% [markdown]
# ## 4 · A stop string against a stop token
#
# The token `␣Paris` has the blank inside. So the request can be ended at this place in two ways: by the string, or by
# the id of the token.

# %%
by_token = verdict(nb.trace("stop-token"))
table([('stop=["Paris"]', marked(cut.text[-5:]), f"'{cut.stop_reason}'", "the caller"),
       ("stop_token_ids=[7042]", marked(by_token.text[-5:]), str(by_token.stop_reason), "the core")],
      ["asked for", "the text ends with", "stop_reason", "ended by"])

# %% [markdown]
# A [stop token](../docs/glossary.md#stop-token) owns its blank and takes it along: a token that ends the request in
# the core is not decoded at all. A stop string is cut out of the text, and the blank before it stays.

# %% [markdown]
# ## 5 · Half a character
#
# **E** asks for a smiley, with `max_tokens=7`. Its answer uses a character that does not fit into one token.

# %%
smiley = grown_text(nb.trace("smiley"))
ask.section_5(smiley)

# %%
rows = [(g.step, str(g.token_id), marked(g.piece)) for g in smiley]
table(rows, ["step", "token id", "piece"], caption="E: seven tokens, two characters")

# %% [markdown]
# The last token begins a third character, and then the request is cut by its length. This token has an id in the
# answer and never any text. A [**half character**](../docs/glossary.md#half-character) is kept back by the decoder
# itself, with or without a stop string.

# %% [markdown]
# ## 6 · Who may end a request
#
# The core knows ids and lengths, and no text. The caller knows the text. Each new token goes through these tests:

# %%
table([("first", "still fewer outputs than `min_tokens`", "core", "goes on, whatever the token is"),
       ("then", "the end token (EOS)", "core", "`stop`, no stop reason"),
       ("then", "an id of `stop_token_ids`", "core", "`stop`, the id"),
       ("then", "`max_model_len` or `max_tokens` reached", "core", "`length`"),
       ("last", "a stop string in the text", "caller", "`stop`, the string")],
      ["", "test", "who", "result"], caption="The order of the tests")

# %%
both = verdict(nb.trace("stop-and-length"))
ask.section_6(both)

# %%
table([("the core", both.core_said, "–"), ("the answer", both.finish_reason, both.stop_reason)],
      ["who", "finish_reason", "stop_reason"], caption="`max_tokens` and a match in the same step")

# %% [markdown]
# ## 7 · Protected by `min_tokens`

# %%
guarded = verdict(nb.trace("stop-min-tokens"))
ask.section_7(guarded)

# %%
note(f"The text is *{guarded.text}* ({guarded.num_output_tokens} tokens), and `Paris` stands in the middle of it.")

# %% [markdown]
# ## 8 · Across processes: one step too many
#
# So far everything ran in one process, where the core waits for the caller after every step. Usually it does not
# wait: when the caller finds the stop string, the core has planned the next step already.

# %%
late = late_abort(nb.trace("two-process-late-abort"))
pictures.timeline(
    nb.trace("two-process-late-abort"),
    steps=(late.found_in, late.planned),
    owners="A",
    alt=f"The caller, the messages between, and the core in steps {late.found_in} and {late.planned} of A with a stop "
    "string. "
    f"The caller's ABORT comes while step {late.planned} runs, which samples one token that nobody gets.",
)

# %%
note(
    f"The string is complete with the token of step {late.found_in}. The core has planned step {late.planned} by "
    "the time "
    f"that the ABORT arrives, a message of {late.abort_bytes} bytes. So {late.sampled} tokens are sampled, and "
    f"{late.delivered} reach the caller. [Notebook 11](11_reclamation.ipynb) follows this **late abort** event "
    "by event."
)

# %% [markdown]
# ## 9 · Same text, other reason
#
# The text alone does not say how a request ended. `max_tokens=14` cuts A right before its end token.

# %%
short, full = verdict(nb.trace("max-tokens-14")), verdict(one)
rows = [
    (v.num_output_tokens, len(v.text), v.finish_reason, "yes" if v.text == full.text else "no") for v in (full, short)
]
table(rows, ["output tokens", "characters", "finish_reason", "the same text"], caption="A, ended by itself and cut")

# %% [markdown]
# ## What if …
#
# **`include_stop_str_in_output` from False to True.** Does anything still have to be held back?

# %%
included = nb.trace("stop-included")
diff_view(stopped, included, names=("False", "True"))

# %%
note(f"Nothing can be cut off any more, so nothing is held back. The text is {marked(verdict(included).text)}.")

# %% [markdown]
# **`stop` from `["Paris"]` to `["is Pa"]`**, which lies over the border of two tokens. Is it found?

# %%
over = nb.trace("stop-over-border")
diff_view(stopped, over, names=("Paris", "is Pa"))

# %%
note(
    "It is, in the same step: strings are looked for in the text, not in tokens. The text is "
    f"{marked(verdict(over).text)}."
)

# %% [markdown]
# **Two stop strings, in both orders.** `Par` and `Paris` match with the same token. Which one is the reason?

# %%
orders = {'["Par", "Paris"]': "stop-order-short", '["Paris", "Par"]': "stop-order-long"}
table([(stop, verdict(nb.trace(name)).stop_reason) for stop, name in orders.items()], ["stop", "stop_reason"],
      caption="The first of the list that matches wins")

# %% [markdown]
# **`ignore_eos` from False to True, with `max_tokens=20`.** What does the model say after its end token?

# %%
on = verdict(nb.trace("ignore-eos"))
note(f"After `Rome.` comes {marked(on.text[len(full.text):])}: the model opens a new turn of the conversation. "
     f"It stops after {on.num_output_tokens} tokens, reason `{on.finish_reason}`.")

# %% [markdown]
# ## Traps

# %%
traps(
    {
        25: "section 6",
        26: "section 8",
        53: "sections 2, 3 and 8",
        64: "section 5",
        66: "section 5, from the prompt's side",
    }
)

# %% [markdown]
# ## The code
#
# The search for a stop string, and the two places that decide.

# %%
code("minivllm/engine/detokenizer.py::check_stop_strings", mark=("for stop_string in stop", "output_text.find"),
     same="The same search: the first string of the list that matches wins.")

# %%
code("minivllm/engine/output_processor.py::OutputProcessor.process_outputs", lines=24,
     mark=("stop_string = self.detokenize", "FinishReason.STOP, stop_string", "reqs_to_abort.append"),
     same="The same order of decisions. vLLM also fills the queues of asynchronous callers here.")

# %%
code(
    "minivllm/core/request.py::check_stop",
    mark=("params.min_tokens", "request.eos_token_id", "params.stop_token_ids"),
    same="The same order. vLLM can also stop when the output repeats itself.",
)

# %% [markdown]
# ## Left out
#
# Parsers of tool calls and of reasoning (`tool_parsers/abstract_tool_parser.py::ToolParser`), the slow detokenizer
# for tokenizers without a fast form (`v1/engine/detokenizer.py::SlowIncrementalDetokenizer`), and streams that get
# only every n-th piece (`config/scheduler.py::SchedulerConfig.stream_interval`).
#
# ## Summary
#
# The caller turns ids into text as soon as characters are whole. Stop strings are its business alone: it cuts the
# text and never the ids, and must tell the core afterwards. The core knows the end token, stop ids and lengths.
#
# ## Check yourself

# %%
ask.check_yourself()

# %% [markdown]
# ## Next
#
# The caller says: done. Who else must hear it, and in which order? [Finish and reclamation, in two
# phases](11_reclamation.ipynb)
