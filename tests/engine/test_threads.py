"""Several threads, forks and callbacks around one LLM: refused by name or served, never mixed, never hung."""

import json
import threading
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engine.helpers import (
    MODES,
    PATIENCE_SECONDS,
    SETTINGS,
    Surroundings,
    core_process,
    greedy,
    is_idle,
    run,
    wait_until,
)
from engine.scripts import line_with, started
from engine.test_one_end import Waiter
from faults import fault

from minivllm import LLM, RequestOutput, SamplingParams
from minivllm.errors import InputError
from minivllm.trace import Trace

PROMPT = [5, 6, 7]
WITHOUT_END = {"ignore_eos": True, "max_tokens": 90}
both_modes = pytest.mark.parametrize("multiprocess", [False, True], ids=MODES)

# ---------------------------------------------------------------------- threads


@fault(
    "Threads and forks",
    "four threads share an LLM",
    how="each gets 50 calls through, with text and token prompts, while a fifth resets the prefix cache and aborts",
    then="each call is refused with an InputError, or gets its own answers, the right ones; none hangs",
)
def test_four_threads_of_fifty_calls(llm: LLM) -> None:
    prompts = {number: [[5 + number, 6, 7], "fox " * (1 + number)] for number in range(4)}
    right = {number: greedy(llm, prompts[number], 3) for number in range(4)}
    refused, wrong, done = [], [], threading.Event()

    def work(number: int) -> None:
        accepted = 0
        while accepted < 50:
            try:
                answer = greedy(llm, prompts[number], 3)
            except InputError as error:
                refused.append(str(error))
                done.wait(0.002)
                continue
            accepted += 1
            if answer != right[number]:
                wrong.append((number, answer))

    def disturb() -> None:
        while not done.wait(0.01):
            llm.reset_prefix_cache()
            llm.abort("0")  # long gone

    disturber = Waiter(disturb)
    workers = [Waiter(lambda number=number: work(number)) for number in range(4)]
    for worker in workers:
        assert worker.result() is None
    done.set()
    assert disturber.result() is None
    assert not wrong
    assert refused and all("in the middle of another generate" in message for message in refused)
    assert is_idle(llm)


@fault(
    "Threads and forks",
    "a call from within a call",
    how="`generate` and `chat` in `on_output`, and in a thread that `on_output` waits for",
    then="each is refused with an InputError; the outer answer is the right one",
)
def test_a_call_from_on_output_is_refused(llm: LLM) -> None:
    right = greedy(llm, [PROMPT])
    refused: list[Exception | None] = []

    def call_again(_: RequestOutput) -> None:
        with pytest.raises(InputError, match="in the middle of another generate"):
            run(llm, PROMPT)
        with pytest.raises(InputError, match="in the middle of another generate"):
            llm.chat([{"role": "user", "content": "hi"}], use_tqdm=False)
        refused.append(Waiter(lambda: run(llm, PROMPT)).result())

    outputs = run(llm, [PROMPT], temperature=0, max_tokens=8, on_output=call_again)
    assert [output.outputs[0].token_ids for output in outputs] == right
    assert len(refused) == 8 and all(isinstance(error, InputError) for error in refused)
    assert greedy(llm, [PROMPT]) == right and is_idle(llm)


# ---------------------------------------------------------------------- callbacks own what they get


def spoil(value: Any, seen: set[int]) -> Any:
    """Change everything that can be changed in what a callback was given; returns what to put in its place."""
    if id(value) in seen:
        return value
    seen.add(id(value))
    if is_dataclass(value):
        for field in fields(value):
            setattr(value, field.name, spoil(getattr(value, field.name), seen))
    elif isinstance(value, list):
        value[:] = [spoil(one, seen) for one in value] + [999_999]
    elif isinstance(value, dict):
        for key in list(value):
            value[key] = spoil(value[key], seen)
        value[-1] = None
    elif isinstance(value, bool):
        return value  # `finished` is what the caller's own loop asks for; it is spoiled below
    elif isinstance(value, int | float):
        return value + 1000
    elif isinstance(value, str):
        return value + "spoiled"
    return value


def split(outputs: list[RequestOutput]) -> tuple[list[RequestOutput], list[float]]:
    """All that outputs say of the answers; by themselves the logprobs, which another batch rounds in another way."""
    outputs = [replace(output, request_id="", metrics=None, num_cached_tokens=0) for output in deepcopy(outputs)]
    numbers = []
    for output in outputs:
        for completion in output.outputs:
            numbers.append(completion.cumulative_logprob)
            completion.cumulative_logprob = 0
        for places in (output.prompt_logprobs[1:], *(completion.logprobs for completion in output.outputs)):
            for logprob in (one for place in places for one in place.values()):
                numbers.append(logprob.logprob)
                logprob.logprob = 0
    return outputs, numbers


@fault(
    "Callbacks",
    "a callback changes what it gets",
    how="`on_output` changes every field of every output, and the prompt's list; n is 1 and 3, logprobs of both kinds",
    then="the answers are those of a run without it",
)
@pytest.mark.parametrize("n", [1, 3])
def test_a_callback_changes_every_field(llm: LLM, n: int) -> None:
    params = {"n": n, "seed": 3, "max_tokens": 9, "logprobs": 2, "prompt_logprobs": 2, "ignore_eos": True}
    prompts = [[5, 6, 7, 8, 9], [11] * 13]
    right = run(llm, prompts, **params)
    calls = 0

    def meddle(output: RequestOutput) -> None:
        nonlocal calls
        calls += 1
        spoil(output, set())
        output.finished = not output.finished
        output.outputs.clear()
        prompts[0].append(3)

    found = run(llm, prompts, on_output=meddle, **params)
    assert calls >= 18 * n

    assert split(found)[0] == split(right)[0]
    assert split(found)[1] == pytest.approx(split(right)[1], abs=1e-3)  # a batch of another shape
    assert all(output.metrics.num_generation_tokens == 9 for output in found)
    assert is_idle(llm)


# ---------------------------------------------------------------------- one answer is stopped


def test_a_true_result_of_on_output_stops_that_request(llm: LLM) -> None:
    whole = greedy(llm, [PROMPT, [9, 9]], 20, ignore_eos=True)
    seen: list[RequestOutput] = []

    def stop_the_first(output: RequestOutput) -> bool:
        seen.append(output)
        return output.prompt_token_ids == PROMPT and len(output.outputs[0].token_ids) >= 5

    first, second = run(llm, [PROMPT, [9, 9]], temperature=0, max_tokens=20, ignore_eos=True, on_output=stop_the_first)
    (stopped,), (untouched,) = first.outputs, second.outputs
    assert (stopped.finish_reason, stopped.stop_reason) == ("abort", None)
    assert 5 <= len(stopped.token_ids) < 20 and stopped.token_ids == whole[0][: len(stopped.token_ids)]
    assert stopped.text == llm.tokenizer.decode(stopped.token_ids, skip_special_tokens=True)
    assert (untouched.finish_reason, untouched.token_ids) == ("length", whole[1])
    own = [output for output in seen if output.request_id == first.request_id]
    assert [output.finished for output in own] == [False] * (len(own) - 1) + [True]
    assert own[-1].outputs[0].finish_reason == "abort"
    assert first.metrics.finished_time > 0 and is_idle(llm)


def test_abort_from_on_output(llm: LLM) -> None:
    """Another request, one that still waits, all n answers to a prompt, and one that has ended."""
    asked = False

    def abort(output: RequestOutput) -> None:
        nonlocal asked
        if not asked:
            asked = True
            base = int(output.request_id)
            for place in (1, 3, 8):
                llm.abort(str(base + place))

    params = [SamplingParams(seed=1, ignore_eos=True, max_tokens=30, n=3 if i == 3 else 1) for i in range(9)]
    outputs = llm.generate([[5 + i, 6] for i in range(9)], params, use_tqdm=False, on_output=abort)
    reasons = [[completion.finish_reason for completion in output.outputs] for output in outputs]
    assert [reasons[place] for place in (1, 3, 8)] == [["abort"], ["abort"] * 3, ["abort"]]
    assert all(reasons[place] == ["length"] for place in (0, 2, 4, 5, 6, 7))
    assert [int(output.request_id) for output in outputs] == list(
        range(int(outputs[0].request_id), int(outputs[0].request_id) + 9)
    )
    llm.abort(outputs[0].request_id)  # it has ended
    llm.abort("nobody")
    assert is_idle(llm) and greedy(llm, PROMPT, 3) == greedy(llm, PROMPT, 3)


def test_answers_of_n_that_have_ended_keep_their_reason(llm: LLM) -> None:
    def stop_late(output: RequestOutput) -> bool:
        return any(completion.finish_reason == "stop" for completion in output.outputs)

    tokens = [completion.token_ids for completion in run(llm, PROMPT, n=4, seed=1, max_tokens=30)[0].outputs]
    end = next(token for token in tokens[0][2:] if sum(token in others for others in tokens) < 4)
    (output,) = run(llm, PROMPT, n=4, seed=1, max_tokens=60, ignore_eos=True, stop_token_ids=[end], on_output=stop_late)
    assert {completion.finish_reason for completion in output.outputs} == {"stop", "abort"}
    assert is_idle(llm)


@pytest.mark.parametrize("request_id", [0, None, b"0", ["0"]])
def test_an_id_that_is_no_text(llm: LLM, request_id: Any) -> None:
    with pytest.raises(InputError, match="must be a text"):
        llm.abort(request_id)


@fault(
    "Threads and forks",
    "abort from another thread, while the core says nothing",
    how="SIGSTOP; generate waits; `abort` of all its requests",
    then='generate returns at once, with finish_reason "abort" for each; the engine goes on after SIGCONT',
)
def test_abort_wakes_a_generate_that_waits(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    path = tmp_path / "trace.jsonl"
    with LLM(tiny_folder, multiprocess=True, trace=str(path), **SETTINGS) as llm:
        core = core_process(llm)
        core.suspend()
        results: list[RequestOutput] = []
        waiter = Waiter(lambda: results.extend(run(llm, [PROMPT, [9]], **WITHOUT_END)))
        wait_until(lambda: len(llm.llm_engine.output_processor.request_states) == 2, "both requests are open")
        for request_id in ("0", "1"):
            llm.abort(request_id)
        assert waiter.result() is None
        assert [(one.request_id, one.outputs[0].finish_reason, one.outputs[0].token_ids) for one in results] == [
            ("0", "abort", []),
            ("1", "abort", []),
        ]
        core.resume()
        assert len(greedy(llm, PROMPT)[0]) == 8 and is_idle(llm)
    surroundings.check_nothing_left()
    trace = Trace.load(path)
    messages = [event.msg for event in trace.filter(kind="get_output") if event.num_outputs]
    assert messages == sorted(messages) and len(messages) == len(trace.filter(kind="core.send")) - 1


def test_abort_from_another_thread(llm: LLM) -> None:
    begun = threading.Event()
    results: list[RequestOutput] = []
    first = llm.request_counter
    waiter = Waiter(lambda: results.extend(run(llm, [PROMPT] * 60, on_output=lambda _: begun.set(), **WITHOUT_END)))
    assert begun.wait(PATIENCE_SECONDS)
    for number in range(first, first + 60):
        llm.abort(str(number))
    assert waiter.result() is None
    assert [output.request_id for output in results] == [str(number) for number in range(first, first + 60)]
    assert [output.outputs[0].finish_reason for output in results].count("abort") > 50
    assert is_idle(llm)


# ---------------------------------------------------------------------- forks

FORKS = """
import json, multiprocessing, os, sys
from minivllm import LLM, SamplingParams
greedy = SamplingParams(temperature=0, max_tokens=8)
ask = lambda: [output.outputs[0].token_ids for output in llm.generate([[5, 6, 7]], greedy, use_tqdm=False)]

def refused(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"

def leave():
    sys.exit(3)

def forget():
    global llm
    del llm
    sys.exit(3)

def shut_down():
    llm.shutdown()
    llm.shutdown()
    sys.exit(3)

def use():
    words = [refused(call) for call in (ask, llm.reset_prefix_cache, lambda: llm.abort("0"), ask)]
    sys.exit(3 if all(w and w.startswith("InputError: This LLM belongs to process") for w in words) else 4)

def fork(child):
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def by_multiprocessing(child):
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode

llm = LLM({folder!r}, multiprocess={multiprocess}, trace={trace!r}, trace_clock="logical", **{settings!r})
answers, codes = [ask()], []
for way in {ways}:
    for child in (leave, forget, shut_down, use):
        codes.append(way(child))
        answers.append(ask())
while len(answers) < 9:
    answers.append(ask())
llm.shutdown()
print("SAID", json.dumps([codes, answers]))
"""


@both_modes
@fault(
    "Threads and forks",
    "a forked child ends, forgets, shuts down or uses its parent's LLM",
    how="`os.fork()` and multiprocessing; in the child `sys.exit`, `del llm`, `llm.shutdown()`, `llm.generate()`",
    then="the child ends as it should, every call in it is refused; the parent's answers, and the bytes of its trace, "
    "are those of a run without forks; nothing is left",
)
def test_forks(multiprocess: bool, tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    traces = []
    for ways in ("(fork, by_multiprocessing)", "()"):
        folder = tmp_path / str(len(traces))
        folder.mkdir()
        traces.append(folder / "trace.jsonl")
        script = FORKS.format(
            folder=tiny_folder, multiprocess=multiprocess, settings=SETTINGS, trace=str(traces[-1]), ways=ways
        )
        with started(script, surroundings.home, folder) as process:
            codes, answers = json.loads(line_with(process, "SAID"))
            _, err = process.communicate(timeout=60)
        assert codes == ([3] * 8 if ways != "()" else []) and process.returncode == 0, err
        assert "Traceback" not in err
        assert len(answers) == 9 and answers == [answers[0]] * 9
        assert not list(surroundings.home.iterdir())
        assert sorted(path.name for path in folder.iterdir()) == ["script.py", "trace.jsonl"]
    with_forks, without = (path.read_bytes() for path in traces)
    assert with_forks == without
