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
# # Lab 13 · Break it
#
# How to read a case, on one that is nobody's: blocks are freed in their own order in place of the last one first. Then
# no answer is wrong; only fewer prefixes are found again. A trace shows it all the same.

# %%
from random import Random

from minivllm.course.grader.variants import make_workload
from minivllm.course.grader.words import tell_workload
from minivllm.course.notebook import table
from minivllm.lessons.lab13 import cases
from minivllm.lessons.lab13.members import Bug

bug = Bug("KVCacheManager.free", "blocks[::-1]", "blocks")
workload = make_workload(Random(13), prompt_len=(6, 14), arrival=(1, 2))
for line in tell_workload(cases.without_outputs(workload), whole=True).split("; "):
    print(line)

# %% [markdown]
# The sound engine and the broken one, on the same workload, with the checksum model:

# %%
sound = cases.run({}, workload)
parts = cases.broken_parts(bug)
broken = cases.run(parts, workload, len(sound["steps"]))
table(
    [
        {"request": req_id, "sound": str(tokens), "broken": str(broken["steps"][-1]["outputs"][req_id])}
        for req_id, tokens in sound["steps"][-1]["outputs"].items()
    ]
)

# %% [markdown]
# Now the traces. The first event that differs is the one that 13.1 asks for. In a case of yours there is no trace of
# the sound engine: you have to know what an event must say.

# %%
events = cases.record_run(parts, workload, len(sound["steps"]))
first = cases.first_wrong(cases.record_run({}, workload), events)
print(f"event {first.seq}, step {first.step}: {first.kind}")
print(first)

# %% [markdown]
# The events around it, by their entry. Which number could you have known to be wrong without the other trace?

# %%
near = sorted((event for event in events if abs(event.seq - first.seq) <= 4), key=lambda event: event.seq)
table([{"seq": event.seq, "step": event.step, "kind": event.kind, "requests": ", ".join(event.reqs)} for event in near])
