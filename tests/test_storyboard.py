"""The running example: one request and its companions, with their whole life in numbers taken from the real vLLM.

The notebooks tell this story. Where these numbers change, the engine is wrong, not the story.
"""

from typing import Any

import pytest

from minivllm import LLM, RequestOutput, SamplingParams
from minivllm.core.sched_output import SchedulerOutput

SETTINGS = {
    "block_size": 16,
    "num_gpu_blocks_override": 32,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 256,
    "dtype": "float32",
    "multiprocess": False,
}
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


A = chat("Name the capital of France and the capital of Italy.")
B = chat("Name the capital of France and the capital of Spain.")
C = chat("What color is the sky?")
F = [
    *A,
    {"role": "assistant", "content": "The capital of France is Paris and the capital of Italy is Rome."},
    {"role": "user", "content": "And of Spain?"},
]
G = chat("I have a question about Europe. Please tell me: what is the capital of France?")
H = chat("What is the capital of France?")
A_TEXT = "The capital of France is Paris and the capital of Italy is Rome."
A_IDS = [504, 3575, 282, 4649, 314, 7042, 284, 260, 3575, 282, 7158, 314, 7268, 30, 2]
C_TEXT = "The sky is a beautiful shade of blue. It's a reflection of the Earth's atmosphere, composed of a mix of"


class Story:
    """An engine whose plans are watched."""

    def __init__(self, **settings: Any) -> None:
        self.llm = LLM(**{**SETTINGS, **settings})
        core = self.llm.llm_engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.plans: list[SchedulerOutput] = []
        self.tables: list[dict[str, list[int]]] = []
        self.free_after_schedule: list[int] = []
        self.schedule = self.scheduler.schedule
        self.scheduler.schedule = self._watched

    def _watched(self) -> SchedulerOutput:
        plan = self.schedule()
        manager = self.scheduler.kv_cache_manager
        self.plans.append(plan)
        self.tables.append({r[0]: manager.get_block_ids(r) for r in plan.num_scheduled_tokens})
        self.free_after_schedule.append(manager.block_pool.get_num_free_blocks())
        return plan

    def tell(self, *conversations: list[dict[str, str]], params: SamplingParams = GREEDY) -> list[RequestOutput]:
        return self.llm.chat(list(conversations), params, use_tqdm=False)

    def sent(self, step: int) -> dict[str, int]:
        """Tokens of each request in a step, counted from 1, by the first letter of its id."""
        return {request_id[0]: n for request_id, n in self.plans[step - 1].num_scheduled_tokens.items()}

    def free_queue(self) -> list[int]:
        queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        return [block.block_id for block in queue.get_all_free_blocks()]


@pytest.fixture
def story():
    stories: list[Story] = []

    def start(**settings: Any) -> Story:
        stories.append(Story(**settings))
        return stories[-1]

    yield start
    for each in stories:
        each.llm.shutdown()


def test_the_whole_life_of_a(story) -> None:
    one = story()
    (output,) = one.tell(A)
    assert len(output.prompt_token_ids) == 41
    assert output.outputs[0].token_ids == A_IDS
    assert output.outputs[0].text == A_TEXT
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", None)
    assert [one.sent(step)["0"] for step in range(1, 16)] == [41] + [1] * 14
    assert one.free_after_schedule == [28] * 8 + [27] * 7  # block 4 comes at step 9, for position 48
    assert one.tables[7]["0"] == [1, 2, 3]
    assert one.tables[8]["0"] == [1, 2, 3, 4]
    assert one.free_queue() == [*range(5, 32), 4, 3, 2, 1]


def test_asked_again_and_again(story) -> None:
    again = story()
    outputs = [again.tell(conversation)[0] for conversation in (A, A, B, C, F)]
    assert [output.num_cached_tokens for output in outputs] == [0, 32, 32, 16, 48]
    assert len(again.plans) == 84
    firsts = [next(table[name] for table in again.tables if name in table) for name in "01234"]
    assert firsts == [[1, 2, 3], [1, 2, 5], [1, 2, 7], [1, 9, 10], [1, 2, 3, 12, 13]]
    assert outputs[1].outputs[0].text == A_TEXT
    assert outputs[2].outputs[0].text == "The capital of France is Paris and the capital of Spain is Madrid."
    assert outputs[3].outputs[0].text == C_TEXT
    assert outputs[4].outputs[0].text == "The capital of Spain is Madrid and the capital of Italy is Rome."
    # the worker hears that A has ended in the first plan of A', sixteenth in all
    assert [request_id[0] for request_id in again.plans[15].finished_req_ids] == ["0"]


def test_together_in_one_step(story) -> None:
    together = story()
    outputs = together.tell(A, B, C)
    assert len(together.plans) == 25
    assert together.sent(1) == {"0": 41, "1": 9, "2": 14}
    assert together.tables[0] == {"0": [1, 2, 3], "1": [1, 2, 4], "2": [1, 5]}
    assert [output.outputs[0].text for output in outputs][::2] == [A_TEXT, C_TEXT]


def test_twins_share_blocks_that_are_not_filled_yet(story) -> None:
    twins = story()
    outputs = twins.tell(A, A)
    assert twins.sent(1) == {"0": 41, "1": 9}
    assert twins.tables[0] == {"0": [1, 2, 3], "1": [1, 2, 4]}
    assert [output.outputs[0].text for output in outputs] == [A_TEXT, A_TEXT]
    assert len(twins.plans) == 15


def test_a_prompt_that_is_cached_to_its_last_token(story) -> None:
    full = story()
    first, second = full.tell(G)[0], full.tell(G)[0]
    assert len(first.prompt_token_ids) == 48
    assert second.num_cached_tokens == 32  # not 48: one token must be left, and hits are whole blocks


def test_in_the_order_of_the_prompts(story) -> None:
    order = story()
    outputs = order.tell(A, H)
    assert [output.request_id for output in outputs] == ["0", "1"]
    assert len(order.plans) == 15
    assert [len(output.outputs[0].token_ids) for output in outputs] == [15, 8]


@pytest.mark.parametrize(("budget", "first_token_step", "steps"), [(16, 3, 17), (40, 2, 16), (41, 1, 15), (8, 6, 20)])
def test_chunks(story, budget: int, first_token_step: int, steps: int) -> None:
    chunked = story(max_num_batched_tokens=budget)
    (output,) = chunked.tell(A)
    assert output.outputs[0].token_ids == A_IDS
    assert len(chunked.plans) == steps
    sent = [chunked.sent(step)["0"] for step in range(1, steps + 1)]
    assert sum(sent[:first_token_step]) == 41


@pytest.mark.parametrize(("pool", "steps"), [(7, 32), (8, 32), (9, 26), (10, 25)])
def test_preemption_in_four_sizes(story, pool: int, steps: int) -> None:
    tight = story(num_gpu_blocks_override=pool, max_model_len=96)
    outputs = tight.tell(A, B, C)
    assert len(tight.plans) == steps
    assert [output.outputs[0].text for output in outputs][::2] == [A_TEXT, C_TEXT]


def test_without_the_prefix_cache(story) -> None:
    plain = story(enable_prefix_caching=False)
    plain.tell(A, B, C)
    assert len(plain.plans) == 25
    assert plain.sent(1) == {"0": 41, "1": 23}


def test_streaming_with_a_stop_string_holds_back_four_characters(story) -> None:
    texts: list[str] = []
    stopped = story()
    (output,) = stopped.llm.chat(
        A,
        SamplingParams(temperature=0, max_tokens=24, stop=["Paris"]),
        use_tqdm=False,
        on_output=lambda partial: texts.append(partial.outputs[0].text),
    )
    pieces = [after[len(before) :] for before, after in zip(["", *texts], texts, strict=False)]
    assert pieces == ["", "The cap", "ita", "l of Fr", "anc", "e is "]
    assert output.outputs[0].token_ids == A_IDS[:6]  # the ids are not cut
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", "Paris")


PARIS = "The capital of France is "
VARIANTS = [
    ({"max_tokens": 6, "stop": ["Paris"]}, PARIS, "stop", "Paris"),
    ({"stop": ["Paris"], "min_tokens": 6}, A_TEXT, "stop", None),
    ({"stop": ["is Pa"]}, "The capital of France ", "stop", "is Pa"),
    ({"stop": ["Par", "Paris"]}, PARIS, "stop", "Par"),
    ({"stop": ["Paris", "Par"]}, PARIS, "stop", "Paris"),
    ({"stop": ["Paris"], "include_stop_str_in_output": True}, PARIS + "Paris", "stop", "Paris"),
    ({"stop_token_ids": [7042]}, "The capital of France is", "stop", 7042),
    ({"max_tokens": 14}, A_TEXT, "length", None),
    ({"ignore_eos": True, "max_tokens": 20}, A_TEXT + "\nsystem\n", "length", None),
    ({"bad_words": ["Rome"]}, A_TEXT.replace("Rome", "Florence"), "stop", None),
    ({"logit_bias": {7042: -100}}, A_TEXT.replace("Paris", "City of Culture,"), "stop", None),
    ({"repetition_penalty": 1.1}, A_TEXT, "stop", None),
    ({"presence_penalty": 1.0}, A_TEXT, "stop", None),
]


def test_variants_of_sampling_and_stopping(story) -> None:
    varied = story()
    conversations = [A] * len(VARIANTS)
    params = [SamplingParams(**{"temperature": 0, "max_tokens": 24, **change}) for change, *_ in VARIANTS]
    outputs = varied.llm.chat(conversations, params, use_tqdm=False)
    for output, (change, text, finish_reason, stop_reason) in zip(outputs, VARIANTS, strict=True):
        completion = output.outputs[0]
        assert (completion.text, completion.finish_reason, completion.stop_reason) == (
            text,
            finish_reason,
            stop_reason,
        ), change


def test_a_seed_belongs_to_a_request(story) -> None:
    drawn = story()
    alone = drawn.tell(A, params=SamplingParams(temperature=1, seed=0, max_tokens=24))[0].outputs[0]
    params = [
        SamplingParams(temperature=1, max_tokens=24),
        SamplingParams(temperature=1, seed=0, max_tokens=24),
        SamplingParams(temperature=1, seed=1, max_tokens=24),
    ]
    in_company = drawn.llm.chat([A, A, A], params, use_tqdm=False)[1].outputs[0]
    assert in_company.token_ids == alone.token_ids
    assert alone.text == "The capital of France is Paris, and the capital of Italy is Rome."


def test_half_a_character_is_not_text(story) -> None:
    smiley = story()
    (output,) = smiley.tell(chat("Write a smiley."), params=SamplingParams(temperature=0, max_tokens=7))
    assert len(output.outputs[0].token_ids) == 7
    assert output.outputs[0].text == "👌👌"  # three tokens each; the seventh token never shows
