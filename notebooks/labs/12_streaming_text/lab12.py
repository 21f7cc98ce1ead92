# %% [markdown]
# # Lab 12 · Streaming text and stop strings
#
# Small texts to play with. Nothing here is graded: you work in `starter.py` (`minivllm lab start 12`), and
# `minivllm lab check 12` grades it.

# %%
from minivllm.course.grader import play_text
from minivllm.course.notebook import note, predict, table

# %% [markdown]
# ## A token is not a text
#
# Each token here is a few bytes. A character may take several tokens.

# %%
pieces = ["a", "b", b"\xf0\x9f", b"\x98", b"\x80", "c"]
steps = play_text.stream(pieces)
table(play_text.rows(steps), caption="tokens as bytes, and the text after each of them")

# %%
predict(
    "Token 2 has the first two bytes of an emoji. What is shown after it?",
    steps[2]["shown"],
    {
        "ab\N{REPLACEMENT CHARACTER}": "That would be shown for good, and the emoji would never come.",
        "": "What is whole stays shown.",
    },
    right="Half a character says nothing; its bytes wait.",
)

# %% [markdown]
# ## Text that must wait

# %%
steps = play_text.stream(["x", "a", "a", "b", "a", "b", "c"], stop=["abc"])
table(play_text.rows(steps), caption="stop string abc")

# %%
predict(
    "After token 2 the text is xaa, and the stop string has three characters. How many characters are held back?",
    str(len(steps[2]["text"]) - len(steps[2]["shown"])),
    {
        "0": "The text may go on with bc. Then the last a must never have been shown.",
        "1": "That is what could really begin the stop string here. vLLM holds back by length alone.",
        "3": "A stop string of three characters has at most two in the text before it is complete.",
    },
    right="Always the longest stop string's length less one, whatever the text is.",
)

# %%
end = steps[-1]
note(
    f"The request ends with token {len(steps) - 1}: the stop string `{end['stopped_by']}` is complete. The text is "
    f"`{end['shown']}`; the token ids stay, all {len(steps)} of them."
)

# %% [markdown]
# ## The stop string is shown

# %%
steps = play_text.stream(["x", "a", "ab", "cd"], stop=["abc"], include_stop_str_in_output=True)
table(play_text.rows(steps), caption="stop string abc, include_stop_str_in_output")

# %%
note(f"Nothing waits. The text ends with the stop string: `{steps[-1]['shown']}`. What stands behind it is cut.")

# %% [markdown]
# ## Who still works
#
# Caller and core in two processes, which take turns: after a step the core sends what it brought, plans the next one,
# and waits until the caller has taken the message in. The core does not know of the stop string.

# %%
told = play_text.conversation({"r0": list("xabcde"), "r1": list("yz")}, stop={"r0": ["bc"]})
table(play_text.message_rows(told), caption="r0 says x a b c d e, its stop string is bc")

# %%
vain = play_text.computed_in_vain(told)
predict(
    "The text of r0 ends before bc. How many of the tokens that the core computes for r0 does nobody get?",
    str(vain["r0"]),
    {
        "0": "When the caller finds the stop string, the core has planned the next step with r0 in it.",
        "2": "The tokens d and e were left. Before e the abort has arrived.",
    },
    right="One step is planned already; its token d is computed, and goes nowhere. So is every abort one step late.",
)

# %%
note(f"r1 ends by its length. The core knows of that end: {vain['r1']} tokens in vain, and no ABORT.")

# %% [markdown]
# ## Your turn
#
# Change pieces and stop strings, and look. With the path of your starter as `starter=` the same tokens run through your
# code. Try min_tokens=2, or two stop strings of which one begins with the other.

# %%
table(play_text.rows(play_text.stream(["a", "b", "a", "b", "c"], stop=["ba", "abc"], min_tokens=1)))
