"""Events on the caller's side: B1 to B6, and B23 to B27."""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from typing import Any

import msgspec

from minivllm.trace.events import Call, Change, Event, Text, TokenIds


def params_dict(params: Any) -> dict[str, Any]:
    """The SamplingParams that differ from their defaults."""
    fields = msgspec.to_builtins(params, str_keys=True)
    return {name: value for name, value in fields.items() if not name.startswith("_") and value not in (None, [], {})}


def _params_list(params: Any) -> list[dict[str, Any]]:
    return [params_dict(one) for one in (params if isinstance(params, list | tuple) else [params]) if one is not None]


class _Ask(Event):
    num_requests: int | None = None  # prompts, and so RequestOutputs
    sampling_params: list[dict[str, Any]] = []  # one for all, or one each; what differs from the defaults

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "num_requests": len(call.out),
            "sampling_params": _params_list(call.arg(1, "sampling_params")),
        }


class Generate(_Ask, tag="generate"):
    """A whole `generate` call, from its prompts to its outputs."""


class Chat(_Ask, tag="chat"):
    """A whole `chat` call."""


class RenderCmpl(Event, tag="render_cmpl"):
    """A prompt becomes token ids, as it is."""

    secret = ("prompt", "prompt_token_ids")
    num_prompt_tokens: int | None = None
    prompt: Text | None = None  # None: it was given as token ids
    prompt_token_ids: TokenIds = []
    arrival_time: float | None = None  # the caller's wall clock, seconds

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return _rendered(call.out)


class RenderChat(Event, tag="render_chat"):
    """A conversation becomes token ids, through the model's chat template."""

    secret = ("messages", "prompt", "prompt_token_ids")
    messages: list[dict[str, Any]] | int = []  # as the caller gave them
    num_prompt_tokens: int | None = None
    prompt: Text | None = None  # what the template made
    prompt_token_ids: TokenIds = []
    arrival_time: float | None = None  # the caller's wall clock, seconds

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        messages = [{key: str(value) for key, value in message.items()} for message in call.arg(0, "messages")]
        return {"messages": messages, **_rendered(call.out)}


def _rendered(engine_input: Any) -> dict[str, Any]:
    return {
        "num_prompt_tokens": len(engine_input.prompt_token_ids),
        "prompt": engine_input.prompt,
        "prompt_token_ids": list(engine_input.prompt_token_ids),
        "arrival_time": engine_input.arrival_time,
    }


class LLMEngineAddRequest(Event, tag="llm_engine.add_request"):
    """One prompt enters the engine; n > 1 makes several requests of it."""

    request_id: str | None = None  # internal; with n > 1 the parent's, of which the core never hears
    external_req_id: str | None = None  # the number of the prompt in the LLM's life
    n: int | None = None
    priority: int | None = None

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        params = call.arg(2, "params")
        return {
            "reqs": [call.out] if params.n == 1 else [],
            "request_id": call.out,
            "external_req_id": call.arg(0, "request_id"),
            "n": params.n,
            "priority": call.arg(3, "priority", 0),
        }


class ProcessInputs(Event, tag="process_inputs"):
    """The request is checked, its parameters are copied and completed."""

    secret = ("eos_token_id", "all_stop_token_ids")
    num_prompt_tokens: int | None = None
    max_tokens: int | None = None
    eos_token_id: int | None = None  # None: no such token, or ignore_eos
    all_stop_token_ids: TokenIds = []  # masked until min_tokens is reached
    sampling_params: dict[str, Any] = {}  # what differs from the defaults

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        params = call.out.sampling_params
        return {
            "num_prompt_tokens": len(call.out.prompt_token_ids),
            "max_tokens": params.max_tokens,
            "eos_token_id": params._eos_token_id,
            "all_stop_token_ids": sorted(params._all_stop_token_ids),
            "sampling_params": params_dict(params),
        }


class AssignRequestId(Event, tag="assign_request_id"):
    """The caller's id becomes the external one; the internal one is unique."""

    external_req_id: str | None = None
    request_id: str | None = None  # internal

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request = call.arg(0, "request")
        return {"external_req_id": request.external_req_id, "request_id": request.request_id}


class OutputProcessorAddRequest(Event, tag="output_processor.add_request"):
    """The request is opened on the caller's side, before the core hears of it."""

    external_req_id: str | None = None
    parent_req_id: str | None = None  # with n > 1
    request_index: int | None = None  # among the parent's children
    num_open: Change | None = None  # requests in the caller's table

    @staticmethod
    def before(call: Call) -> int:
        return len(call.owner.request_states)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request, parent = call.arg(0, "request"), call.arg(2, "parent_req")
        return {
            "reqs": [request.request_id],
            "external_req_id": request.external_req_id,
            "parent_req_id": parent.request_id if parent else None,
            "request_index": call.arg(3, "request_index", 0),
            "num_open": (call.before, len(call.owner.request_states)),
        }


class CoreClientAddRequest(Event, tag="core_client.add_request"):
    """The request is handed to the core. In process that contains B8 and B9."""

    num_prompt_tokens: int | None = None

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request = call.arg(0, "request")
        return {"reqs": [request.request_id], "num_prompt_tokens": len(request.prompt_token_ids)}


class GetOutput(Event, tag="get_output"):
    """The caller takes the next message. In process that computes a step; across processes it waits for one."""

    msg: int | None = None  # number of the message from the core, from 0; None in process
    num_outputs: int | None = None

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {"reqs": [o.request_id for o in call.out.outputs], "num_outputs": len(call.out.outputs)}


class ProcessOutputs(Event, tag="process_outputs"):
    """The outputs of one message become text, logprobs and RequestOutputs."""

    num_outputs: int | None = None
    ignored: list[str] = []  # outputs of requests that have ended here already
    finished: dict[str, str] = {}  # those that end here: core (it says so) or stop_string
    reqs_to_abort: list[str] = []  # ended by a stop string; the core does not know yet
    num_request_outputs: int | None = None  # new ones for the caller
    num_open: Change | None = None  # requests in the caller's table

    @staticmethod
    def before(call: Call) -> set[str]:
        return set(call.owner.request_states)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        outputs, still_open = call.arg(0, "outputs"), call.owner.request_states
        reqs = [output.request_id for output in outputs]
        to_abort = list(call.out.reqs_to_abort)
        return {
            "reqs": reqs,
            "num_outputs": len(outputs),
            "ignored": [i for i in reqs if i not in call.before],
            "finished": {
                i: "stop_string" if i in to_abort else "core" for i in reqs if i in call.before and i not in still_open
            },
            "reqs_to_abort": to_abort,
            "num_request_outputs": len(call.out.request_outputs),
            "num_open": (len(call.before), len(still_open)),
        }


class Detokenize(Event, tag="detokenize"):
    """New tokens of one request become text, and stop strings are looked for."""

    secret = ("new_token_ids", "new_text", "stop_string")
    new_token_ids: TokenIds = []
    new_text: Text | None = None  # what the text has grown by; "" while a character is not complete
    stop_string: Text | None = None  # found: the request ends here, and the core is told
    num_chars: Change | None = None  # length of the text; smaller after than before where a stop string cut it
    num_held_chars: int | None = None  # of these, held back while it runs: they may begin a stop string
    num_output_tokens: Change | None = None  # of the request

    @staticmethod
    def before(call: Call) -> Change:
        state = call.arg(0, "state").detokenizer
        return len(state.output_text), len(state.token_ids)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        state = call.arg(0, "state")
        num_chars, num_tokens = call.before
        detokenizer = state.detokenizer
        text = detokenizer.output_text
        return {
            "reqs": [state.request_id],
            "new_token_ids": list(call.arg(1, "new_token_ids")),
            "new_text": text[num_chars:],
            "stop_string": call.out,
            "num_chars": (num_chars, len(text)),
            "num_held_chars": 0 if call.out is not None else min(detokenizer.stop_buffer_length, len(text)),
            "num_output_tokens": (num_tokens, len(detokenizer.token_ids)),
        }


class AbortRequests(Event, tag="abort_requests"):
    """The caller's side tells the core to end requests: a stop string was found, or they are given up."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {"reqs": list(call.arg(0, "request_ids"))}


class Completion(msgspec.Struct, omit_defaults=True):
    """One answer, as the caller gets it."""

    request_id: str  # external
    index: int  # among the n answers to a prompt
    text: Text  # without what was cut off at a stop string
    num_output_tokens: int
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class RunEngine(Event, tag="run_engine"):
    """The caller's loop: step until its table is empty; the outputs in the order of the prompts."""

    secret = ("outputs",)
    num_requests: int | None = None
    outputs: list[Completion] = []  # one for each answer, as the caller gets them

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "num_requests": call.arg(0, "num_requests"),
            "outputs": [
                Completion(
                    request_id=output.request_id,
                    index=completion.index,
                    text=completion.text,
                    num_output_tokens=len(completion.token_ids),
                    finish_reason=completion.finish_reason,
                    stop_reason=completion.stop_reason,
                )
                for output in call.out
                for completion in output.outputs
            ],
        }
