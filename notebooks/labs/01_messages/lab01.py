# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01 · Messages over the boundary
#
# Bytes to look at. Nothing here is graded: you work in `starter.py` (`minivllm lab start 01`), and
# `minivllm lab check 01` grades it.

# %%
import msgspec
import numpy as np

from minivllm.course.grader import play_text
from minivllm.course.notebook import note, predict, table
from minivllm.engine.serial import MsgpackEncoder


def show(message: object) -> str:
    return msgspec.msgpack.encode(message).hex(" ")


table(
    [{"value": repr(value), "bytes": show(value)} for value in (5, 127, 128, 300, 70000, "hi", [1, 2], {"a": 1}, 1.5)]
)

# %% [markdown]
# ## A Struct as a map, and as an array


# %%
class AsMap(msgspec.Struct, omit_defaults=True):
    number: int
    name: str = "x"
    priority: int = 0


class AsArray(msgspec.Struct, array_like=True, omit_defaults=True):
    number: int
    name: str = "x"
    priority: int = 0


table([{"declared": type(one).__name__, "bytes": show(one)} for one in (AsMap(7), AsArray(7), AsMap(7, priority=2))])

# %%
answer = len(msgspec.msgpack.encode(AsArray(7, priority=2)))
predict(
    "How many bytes has AsArray(7, priority=2)?",
    str(answer),
    {
        str(answer - 2): "The name is a default, but an array sends it all the same: priority must stand at its place.",
        str(len(msgspec.msgpack.encode(AsMap(7, priority=2)))): "That is the map, with its field names.",
    },
    right="One byte for the array, one for each number, two for the name: a default in the middle can't be left out.",
)

# %% [markdown]
# ## An array, in the message or beside it

# %%
rows = []
for count in (10, 63, 64, 1000):
    frames = MsgpackEncoder().encode([np.zeros(count, dtype=np.float32)])
    rows.append({"floats": count, "bytes": 4 * count, "frames": str([len(bytes(frame)) for frame in frames])})
table(rows)

# %% [markdown]
# The message stays at a few bytes, however large the array is. Frames are not copied: here is what that means.

# %%
array = np.zeros(100, dtype=np.float32)
frames = MsgpackEncoder().encode([array])
before = bytes(frames[1])
array[0] = 1.0
print("the frame has changed with the array:", bytes(frames[1]) != before)

# %% [markdown]
# ## Two processes
#
# Caller and core, each in a process of its own, with a script in place of a model. They take turns: after a step the
# core sends what it brought, plans the next one, and waits until the caller has taken the message in.

# %%
told = play_text.conversation(
    {"r0": ["a", "b", "c", "d", "e"], "r1": ["x", "y", "z"]}, acts=[(1, "add", "r1"), (2, "abort", "r0")]
)
table(play_text.message_rows(told), caption="r1 is added after the first message with outputs, r0 given up after two")

# %%
after = [row for row in play_text.message_rows(told) if row["type"] != "ADD"]
place = next(number for number, row in enumerate(after) if row["type"] == "ABORT")
predict(
    "How many messages with a token of r0 does the core send after the ABORT?",
    str(sum("r0" in row["requests"] for row in after[place + 1 :])),
    {
        "1": "The next step was planned with r0, and its token is computed. But who is aborted gets no token any more.",
        "3": "It has three tokens left; but an ABORT does not wait until the request is over.",
    },
    right="The aborts queue is read between the model and the taking in of its tokens.",
)

# %%
note(f"Computed in vain: {play_text.computed_in_vain(told)['r0']} token of r0, in the step that was planned already.")
