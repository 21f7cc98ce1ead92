"""An executor without tensors: in place of a model, a checksum of what attention reads through the block tables.

Owns: block tables as the worker is told them, and what lies in each slot.
Interface: PlanChecksumExecutor, generated (an observer).
Must not know: the scheduler's state, which parts are broken, or what is expected.

The next token of a request is 10 + sha1 mod 900 over the (token, position) pairs that its attention reads. A wrong
block, a stale slot, a lost or repeated token: each changes the text from there on. Labs 04 to 06 have scheduler and
cache alone, and need no torch; lab 13 has a checksum inside the engine's own model runner.
"""

import hashlib
from typing import Any

from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader.child import Endless, Parts
from minivllm.course.grader.observe import HASH_SEED
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps
from minivllm.worker.recorded_executor import ExecutorWithoutModel

FIRST_TOKEN, NUM_TOKENS = 10, 900  # a checksum gives tokens 10 to 909
NO_TOKEN = -1
EMPTY = (NO_TOKEN, -1)  # a slot that nobody has written


class PlanChecksumExecutor(ExecutorWithoutModel):
    """vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner (role)"""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, tuple[int, int]] = {}  # slot -> token, position
        self.tables: dict[str, list[int]] = {}
        self.tokens: dict[str, list[int]] = {}  # prompt and outputs
        self.num_prompt_tokens: dict[str, int] = {}

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Write the step's tokens, then read; a request samples once its tokens are all computed."""
        computed = self._take_in(plan)
        for req_id, n in plan.num_scheduled_tokens.items():
            for position in range(computed[req_id], computed[req_id] + n):
                token = self.tokens[req_id][position] if position < len(self.tokens[req_id]) else NO_TOKEN
                self.slots[self._slot(req_id, position)] = (token, position)
        req_ids = list(plan.num_scheduled_tokens)
        sampled = [self._sample(req_id, computed[req_id] + plan.num_scheduled_tokens[req_id]) for req_id in req_ids]
        return ModelRunnerOutput(req_ids, {req_id: row for row, req_id in enumerate(req_ids)}, sampled)

    def _take_in(self, plan: SchedulerOutput) -> dict[str, int]:
        """What the plan says of each request; returns the computed tokens before the step."""
        computed = {}
        for new in plan.scheduled_new_reqs:
            self.tables[new.req_id] = list(new.block_ids)
            self.tokens[new.req_id] = list(new.prompt_token_ids)
            self.num_prompt_tokens[new.req_id] = len(new.prompt_token_ids)
            computed[new.req_id] = new.num_computed_tokens
        known = plan.scheduled_cached_reqs
        rows = zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, known.num_output_tokens, strict=True)
        for req_id, block_ids, num_computed, num_outputs in rows:
            kept = [] if req_id in known.resumed_req_ids else self.tables[req_id]
            self.tables[req_id] = kept + list(block_ids or ())
            del self.tokens[req_id][self.num_prompt_tokens[req_id] + num_outputs :]
            computed[req_id] = num_computed
        return computed

    def _sample(self, req_id: str, num_computed: int) -> list[int]:
        if num_computed < len(self.tokens[req_id]):
            return []
        read = [self.slots.get(self._slot(req_id, position), EMPTY) for position in range(num_computed)]
        digest = hashlib.sha1(repr(read).encode()).digest()
        token = FIRST_TOKEN + int.from_bytes(digest[:8], "big") % NUM_TOKENS
        self.tokens[req_id].append(token)
        return [token]

    def _slot(self, req_id: str, position: int) -> int:
        """Beyond the table it is a slot of the null block, as in a table that is padded."""
        table, place = self.tables[req_id], position // self.block_size
        return (table[place] if place < len(table) else 0) * self.block_size + position % self.block_size


def generated(parts: Parts, asked: dict[str, Any], seen: list[Any]) -> dict[str, list[int]]:
    """The tokens that every caller gets from scheduler and cache of the parts.

    asked: a workload without its steps, and max_steps. Written into `seen` after each step.
    """
    workload = asked["workload"]
    core = build_core(workload, parts, PlanChecksumExecutor(workload["config"]["block_size"]), hash_seed=HASH_SEED)
    outputs: dict[str, list[int]] = {}
    for step in iterate_steps(workload, core):
        if len(seen) >= asked["max_steps"]:
            raise Endless(f"it did not end within {len(seen)} steps")
        outputs |= {req_id: [] for req_id in step["added"]}
        for output in step["outputs"]:
            outputs[output["id"]] += output["new_token_ids"]
        seen.append({req_id: list(tokens) for req_id, tokens in outputs.items()})
    return outputs
