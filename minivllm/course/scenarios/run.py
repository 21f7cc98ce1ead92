"""Run a scenario on the engine."""

import time
from typing import Any

from minivllm.config import TraceWatch
from minivllm.course.scenarios.cast import S0
from minivllm.course.scenarios.scenario import Ask, Scenario
from minivllm.outputs import RequestOutput


def run_scenario(
    scenario: Scenario, model: str | None = None, trace: str | None = None, **settings: Any
) -> list[RequestOutput]:
    """Run a scenario; write its trace to the file `trace`.

    settings: more fields of EngineConfig. Returns what the callers got, in the order of the requests.
    """
    from minivllm.llm import LLM

    config = {**S0, **scenario.settings, "multiprocess": scenario.multiprocess, **settings}
    if trace is not None:
        config |= {"trace": trace, "trace_detail": scenario.detail, "trace_clock": scenario.clock}
        config["trace_watch"] = scenario.watch or TraceWatch()
    with LLM(model, **config) as llm:
        return run_calls(llm, scenario)


def run_calls(llm: Any, scenario: Scenario) -> list[RequestOutput]:
    """What the callers of a scenario do, on an LLM with its settings."""
    return [output for asks in scenario.calls for output in _run_call(llm, asks, scenario.nap_seconds)]


def _run_call(llm: Any, asks: tuple[Ask, ...], nap_seconds: float) -> list[RequestOutput]:
    params = [ask.sampling_params() for ask in asks]
    if any(ask.given or ask.cache_salt for ask in asks):
        return llm.generate([_prompt(llm, ask) for ask in asks], params, use_tqdm=False)
    if (
        nap_seconds
        or any(ask.before_step > 1 or ask.abort_before_step for ask in asks)
        or len({ask.priority for ask in asks}) > 1
    ):
        return _run_step_by_step(llm, asks, nap_seconds)
    return llm.chat([ask.messages for ask in asks], params, use_tqdm=False)


def _prompt(llm: Any, ask: Ask) -> dict[str, Any]:
    """As LLM.chat renders it, and what a chat can't have."""
    text = llm.tokenizer.apply_chat_template(ask.messages, tokenize=False, add_generation_prompt=True)
    prompt = {"prompt_token_ids": [*llm.tokenizer.encode(text, add_special_tokens=False), *ask.given]}
    return prompt if ask.cache_salt is None else {**prompt, "cache_salt": ask.cache_salt}


def _run_step_by_step(llm: Any, asks: tuple[Ask, ...], nap_seconds: float) -> list[RequestOutput]:
    """What LLM.chat does, with requests that come and go between steps; the caller may sleep before the first."""
    engine = llm.llm_engine
    outputs: list[RequestOutput] = []
    ids: dict[int, str] = {}
    step = 0
    while len(ids) < len(asks) or engine.has_unfinished_requests():
        step += 1
        for index, ask in enumerate(asks):
            if ask.before_step == step:
                ids[index] = llm.next_request_id()
                engine_input = engine.input_processor.render_chat(ask.messages)
                engine.add_request(ids[index], engine_input, ask.sampling_params(), ask.priority)
            if ask.abort_before_step == step:
                engine.abort_request([ids[index]])
        if step == 1:
            time.sleep(nap_seconds)
        outputs += [output for output in engine.step() if output.finished]
    return sorted(outputs, key=lambda output: int(output.request_id))
