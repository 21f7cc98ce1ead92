"""Story: a trace asked by the names of its cast, A, B, C, in steps.

Owns: which request has which name.
Interface: Story; sent, known, computed, table, state, ended, batch, skips, first_word, last_step, text.
Must not know: how anything is shown.

"In step n" means right after the plan of step n, where the notebooks look unless they say otherwise.
"""

from collections.abc import Iterable
from typing import Any

from minivllm.trace import State, Trace
from minivllm.trace.events import Event


class Story:
    """A trace whose requests have names, in the order of their external ids."""

    def __init__(self, trace: Trace, names: str) -> None:
        """names: one for each request, split at blanks. Raises ValueError where the numbers differ."""
        self.trace = trace
        self.ids = dict(zip(names.split(), trace.request_ids, strict=True))
        self.names = {request_id: name for name, request_id in self.ids.items()}

    # ------------------------------------------------------------------ plans

    def config(self, name: str) -> Any:
        """A setting of the engine."""
        return self.trace.header.config[name]

    @property
    def budget(self) -> int:
        """Tokens that one step may compute."""
        return self.config("max_num_batched_tokens")

    @property
    def steps(self) -> int:
        """Steps in which the model ran."""
        return sum(1 for plan in self.trace.filter(kind="schedule") if plan.num_scheduled_tokens)

    @property
    def cast(self) -> list[str]:
        """The names in order of arrival, for pictures."""
        return list(self.ids)

    def at(self, step: int) -> int:
        """The number of the event that plans a step."""
        return self.plan(step).seq

    def event(self, kind: str, step: int, name: str | None = None) -> Any:
        """The first event of a kind in a step, of one request or any. Raises LookupError where there is none."""
        request = None if name is None else self.ids[name]
        for event in self.trace.filter(kind=kind, step=step, request=request):
            return event
        raise LookupError(f"no {kind} of {name or 'any request'} in step {step}")

    def plan(self, step: int) -> Any:
        return self.event("schedule", step)

    def plans(self, name: str) -> list[Any]:
        """The plans that give a request tokens."""
        request_id = self.ids[name]
        return [plan for plan in self.trace.filter(kind="schedule") if request_id in plan.num_scheduled_tokens]

    def sent(self, step: int) -> dict[str, int]:
        """Tokens of each request in a step, in the order of the plan; 0 for those that got none."""
        scheduled = {self.names[i]: n for i, n in self.plan(step).num_scheduled_tokens.items()}
        return scheduled | {name: 0 for name in self.ids if name not in scheduled}

    def known(self, name: str, step: int) -> int:
        """num_tokens when the step is planned."""
        return self.plan(step).num_tokens[self.ids[name]]

    def computed(self, name: str, step: int) -> tuple[int, int]:
        """num_computed_tokens before and after the plan."""
        return self.plan(step).num_computed_tokens[self.ids[name]]

    def hit(self, name: str) -> int:
        """Tokens that a request found in the prefix cache when it was admitted first."""
        return self.computed(name, self.first_step(name))[1] - self.sent(self.first_step(name))[name]

    def skips(self, name: str) -> dict[int, Any]:
        """Step -> why a request got nothing, of the steps that passed it over."""
        plans = self.trace.filter(kind="schedule")
        return {plan.step: one for plan in plans for one in plan.skipped if one.req_id == self.ids[name]}

    # ------------------------------------------------------------------ lives

    def blocks_for(self, name: str) -> int:
        """Blocks that a request's prompt takes."""
        return -(-len(self.prompt(name)) // self.config("block_size"))

    def first_step(self, name: str) -> int:
        return self.plans(name)[0].step

    def last_step(self, name: str) -> int:
        return self.plans(name)[-1].step

    def first_word(self, name: str) -> int:
        """The step that gives a request its first output token."""
        return min(event.step for event, update in self._updates(name) if update.new_token_ids)

    def outputs(self, name: str) -> list[int]:
        """All output tokens of a request."""
        return [token_id for _, update in self._updates(name) for token_id in update.new_token_ids]

    def prompt(self, name: str) -> list[int]:
        """The prompt's token ids."""
        (rendered, *_) = self.trace.filter(kind=("render_chat", "render_cmpl"), request=self.ids[name])
        return rendered.prompt_token_ids

    def text(self, name: str) -> str:
        """What the caller has read at the end."""
        return self.trace.final_state().requests[self.ids[name]].output_text

    def _updates(self, name: str) -> Iterable[tuple[Event, Any]]:
        for event in self.trace.filter(kind="update_from_output", request=self.ids[name]):
            yield from ((event, update) for update in event.updates if update.req_id == self.ids[name])

    # ------------------------------------------------------------------ states

    def state(self, step: int) -> State:
        """The engine right after the plan of a step."""
        return self.trace.state_at(self.plan(step).seq)

    def ended(self, step: int) -> State:
        """The engine after the results of a step are taken in."""
        return self.trace.state_at(self.event("update_from_output", step).seq)

    def table(self, name: str, step: int) -> list[int]:
        """The block table of a request after the plan of a step; empty if it holds none."""
        return self.state(step).block_tables.get(self.ids[name], [])

    def free(self, step: int) -> tuple[int, int]:
        """Free blocks before and after the plan of a step."""
        return self.plan(step).num_free_blocks

    def rows(self, step: int) -> list[str]:
        """Names by row of the worker's batch."""
        return [self.names[i] for i in self.event("update_states", step).req_ids]

    def batch(self, step: int) -> Any:
        """The flat batch of a step: its prepare_inputs event."""
        return self.event("prepare_inputs", step)
