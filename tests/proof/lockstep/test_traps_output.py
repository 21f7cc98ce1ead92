"""Traps 51 to 66 of docs/traps.md: what the caller sees."""

import time
from collections.abc import Iterator

import pytest
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.engine.detokenizer import IncrementalDetokenizer
from minivllm.engine.logprobs import LogprobsProcessor
from minivllm.engine.messages import EngineCoreRequest
from minivllm.errors import InputError
from minivllm.models.tokenizer import load_tokenizer
from minivllm.sampling_params import RequestOutputKind

GREEDY = SamplingParams(temperature=0, max_tokens=4)


@pytest.fixture
def llm() -> Iterator[LLM]:
    """One for each test: some drive it by hand."""
    with LLM(str(tiny_model()), dtype="float32", multiprocess=False, device="cpu") as llm:
        yield llm


def test_the_caller_sees_its_own_ids_and_the_order_of_its_prompts(llm: LLM) -> None:
    first = int(llm.generate([[5]], GREEDY, use_tqdm=False)[0].request_id) + 1
    lengths = [9, 1, 5, *([2] * 9)]  # the second ends first; from ten requests on, text would sort wrongly
    params = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in lengths]
    outputs = llm.generate([[5 + i] for i in range(12)], params, use_tqdm=False)
    assert [output.request_id for output in outputs] == [str(first + i) for i in range(12)]
    assert [len(output.outputs[0].token_ids) for output in outputs] == lengths


def test_two_requests_of_one_name_are_two_inside(llm: LLM) -> None:
    engine_input = llm.llm_engine.input_processor.render_cmpl([5, 6])
    ids = [llm.llm_engine.add_request("same", engine_input, GREEDY) for _ in range(2)]
    assert ids[0] != ids[1]
    llm.llm_engine.abort_request(["same"])
    assert not llm.llm_engine.has_unfinished_requests()


def test_generate_sets_the_output_kind_of_the_callers_own_parameters(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=2)
    llm.generate([[5]], params, use_tqdm=False)
    assert params.output_kind is RequestOutputKind.FINAL_ONLY
    llm.generate([[5]], params, use_tqdm=False, on_output=lambda output: None)
    assert params.output_kind is RequestOutputKind.CUMULATIVE


def test_a_stop_string_cuts_the_text_and_not_the_tokens(llm: LLM) -> None:
    free = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, skip_special_tokens=False)
    (whole,) = llm.generate([[70, 71, 72]], free, use_tqdm=False)
    text = whole.outputs[0].text
    stop = text[4:6]
    stopping = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, skip_special_tokens=False, stop=[stop])
    (cut,) = llm.generate([[70, 71, 72]], stopping, use_tqdm=False)
    completion = cut.outputs[0]
    assert completion.text == text[: text.index(stop)]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    count = len(completion.token_ids)
    assert completion.token_ids == whole.outputs[0].token_ids[:count]
    decoded = llm.tokenizer.decode(completion.token_ids, skip_special_tokens=False)
    assert stop in decoded, "the token that completes the stop string is still there"


def test_the_core_goes_on_until_it_is_told_of_a_stop_string(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    (whole,) = llm.generate([[70, 71, 72]], params, use_tqdm=False)
    engine, params = llm.llm_engine, SamplingParams(temperature=0, stop=[whole.outputs[0].text[1]], ignore_eos=True)
    engine.add_request("stops", engine.input_processor.render_cmpl([70, 71, 72]), params)
    scheduler = engine.engine_core.engine_core.scheduler
    to_abort: list[str] = []
    while not to_abort:
        (message,) = engine.engine_core.get_output().outputs
        to_abort = engine.output_processor.process_outputs([message], 0.0).reqs_to_abort
    assert message.finish_reason is None, "the core knows of no end"
    assert len(scheduler.running) == 1
    assert to_abort == [message.request_id]
    engine.engine_core.abort_requests(to_abort)
    assert not scheduler.running
    engine.engine_core.abort_requests(to_abort)  # a second time changes nothing
    assert scheduler.finished_req_ids == {message.request_id}


def test_an_abort_that_arrives_while_the_model_runs_comes_before_the_update(llm: LLM) -> None:
    engine = llm.llm_engine
    request_id = engine.add_request("late", engine.input_processor.render_cmpl([70, 71]), GREEDY)
    core = engine.engine_core.engine_core
    core.aborts_queue.put([request_id])
    core.aborts_queue.put([request_id])
    outputs, executed = core.step()
    assert executed and outputs is None
    assert request_id not in core.scheduler.requests
    engine.output_processor.abort_requests([request_id])


def test_the_callers_table_knows_a_request_before_the_core_does(llm: LLM) -> None:
    engine = llm.llm_engine
    seen = []
    add_to_core = engine.engine_core.add_request

    def noting(request: EngineCoreRequest) -> None:
        seen.append(request.request_id in engine.output_processor.request_states)
        add_to_core(request)

    engine.engine_core.add_request = noting
    try:
        llm.generate([[5, 6]], SamplingParams(n=2, temperature=1.0, seed=1, max_tokens=2), use_tqdm=False)
    finally:
        engine.engine_core.add_request = add_to_core
    assert seen == [True, True]


def test_a_step_without_outputs_says_nothing() -> None:
    settings = {"dtype": "float32", "device": "cpu", "max_num_batched_tokens": 4, "max_num_seqs": 4}
    with LLM(str(tiny_model()), multiprocess=False, **settings) as llm:
        engine = llm.llm_engine
        engine.add_request("long", engine.input_processor.render_cmpl([5] * 10), GREEDY)
        core = engine.engine_core.engine_core
        assert core.step() == (None, True)
        assert core.step() == (None, True)
        outputs, _ = core.step()
        assert len(outputs.outputs) == 1


def test_times_of_the_core_are_on_its_own_clock(llm: LLM) -> None:
    before, wall = time.monotonic(), time.time()
    (output,) = llm.generate([[5, 6]], GREEDY, use_tqdm=False)
    metrics = output.metrics
    assert wall <= metrics.arrival_time <= time.time()
    stamps = [metrics.queued_ts, metrics.scheduled_ts, metrics.first_token_ts, metrics.last_token_ts]
    in_order = [before, *stamps, time.monotonic()]
    assert in_order == sorted(in_order)


def test_a_failed_call_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(InputError):
        llm.generate([[5, 6], [10**9]], GREEDY, use_tqdm=False)
    outputs = llm.generate([[7, 8]], GREEDY, use_tqdm=False)
    assert len(outputs) == 1


def test_half_a_character_has_no_text_of_its_own(llm: LLM) -> None:
    processor = LogprobsProcessor(llm.tokenizer, 1, None)
    e_acute = llm.tokenizer.encode("é", add_special_tokens=False)
    assert len(e_acute) == 2, "two bytes, two tokens"
    assert processor._decode(e_acute[0], []) == ""
    assert processor._decode(e_acute[1], [e_acute[0]]) == "é"


def detokenizer(prompt_token_ids: list[int], **params: object) -> IncrementalDetokenizer:
    request = EngineCoreRequest("r", prompt_token_ids, SamplingParams(**params), arrival_time=0.0)
    return IncrementalDetokenizer.from_new_request(load_tokenizer(tiny_model()), request)


def test_a_prompt_that_ends_inside_a_character_shows_the_whole_of_it() -> None:
    first, second = load_tokenizer(tiny_model()).encode("é", add_special_tokens=False)
    stream = detokenizer([first])
    stream.update([second], stop_terminated=False)
    assert stream.get_next_output_text(finished=True, delta=False) == "é"


def test_a_stop_string_may_lie_across_tokens() -> None:
    ids = load_tokenizer(tiny_model()).encode("qzj", add_special_tokens=False)
    assert len(ids) == 3
    stream = detokenizer([5], stop=["zj"])
    assert [stream.update([token], stop_terminated=False) for token in ids] == [None, None, "zj"]
    assert stream.output_text == "q"
    assert stream.token_ids == ids


def test_what_may_become_a_stop_string_is_held_back_until_the_end() -> None:
    ids = load_tokenizer(str(tiny_model())).encode("qzjx", add_special_tokens=False)
    stream = detokenizer([5], stop=["jxx"])
    shown = []
    for token in ids:
        stream.update([token], stop_terminated=False)
        shown.append(stream.get_next_output_text(finished=False, delta=False))
    assert shown == ["", "", "q", "qz"]
    assert stream.get_next_output_text(finished=True, delta=False) == "qzjx"


def test_stop_strings_count_only_after_min_tokens() -> None:
    ids = load_tokenizer(str(tiny_model())).encode("qzqz", add_special_tokens=False)
    stream = detokenizer([5], stop=["z"], min_tokens=2)
    assert [stream.update([token], stop_terminated=False) for token in ids] == [None, None, None, "z"]
    assert stream.output_text == "qzq"


@pytest.mark.parametrize(
    ("prompt", "params", "call", "says"),
    [
        ([5], {"temperature": float("nan")}, {}, "temperature=nan"),
        ([5], {}, {"priority": 1}, "priority=1"),
        ([320], {}, {}, "0 to 319"),
        ([-5], {}, {}, "-5"),
        ([5], {"min_tokens": 512, "max_tokens": 600}, {}, "min_tokens=512"),
        ([], {}, {}, "empty"),
        ([5], {"logprobs": -1}, {}, "max_logprobs"),
    ],
)
def test_what_cannot_work_is_refused(llm: LLM, prompt: list[int], params: dict, call: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        llm.generate([prompt], SamplingParams(**params), use_tqdm=False, **call)
    assert not llm.llm_engine.has_unfinished_requests()


def test_no_prompts_give_no_answers(llm: LLM) -> None:
    assert llm.generate([], GREEDY, use_tqdm=False) == []
