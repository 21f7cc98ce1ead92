"""LLM: the facade. `generate()` adds the requests, then loops over steps until its own are done.

Owns: the engine, and the counter that numbers requests.
Interface: generate, chat, abort, get_tokenizer, reset_prefix_cache, shutdown; usable in a `with` statement.
Must not know: how anything is done.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from tqdm import tqdm

from minivllm.attention.triton_mode import prepare_triton
from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.engine.chat_utils import ChatParams
from minivllm.engine.input_processor import EngineInput, PromptType
from minivllm.engine.llm_engine import LLMEngine
from minivllm.errors import InputError
from minivllm.outputs import RequestOutput
from minivllm.sampling_params import RequestOutputKind, SamplingParams

OnOutput = Callable[[RequestOutput], Any]


class LLM:
    """A model, ready to generate. `model` is a Hugging Face folder or hub id; None is the default model.

    Other settings: the fields of EngineConfig. Raises InputError for a wrong setting, ModelError for a model that
    can't be used.

    Threads: one generate or chat runs at a time; another one meanwhile, from another thread or from on_output, is
    refused with an InputError. abort, reset_prefix_cache and shutdown may be called from any thread at any time. In a
    forked child everything is refused, except shutdown, which does nothing there.

    vLLM: entrypoints/llm.py::LLM
    """

    def __init__(self, model: str | None = None, **config: Any) -> None:
        self.config = EngineConfig.from_kwargs(model=None if model is None else str(model), **config)
        prepare_triton(self.config.attention_backend, self.config.device)  # before transformers imports triton
        self.llm_engine = LLMEngine(self.config)
        self.model_config = self.llm_engine.model_config
        self.tokenizer = self.llm_engine.tokenizer
        self.request_counter = 0
        self._running = threading.Lock()  # held by the generate or chat that runs
        if self.llm_engine.trace:
            self.llm_engine.trace.observe(self)
        # a caller that forgets to shut down must not leave a process behind
        self._finalizer = weakref.finalize(self, self.llm_engine.shutdown)

    # ------------------------------------------------------------------ generate and chat

    @boundary("generate")
    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., tqdm] = True,
        on_output: OnOutput | None = None,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or several; the answers come in the order of the prompts.

        prompts: a text, token ids, a dict with prompt or prompt_token_ids, or a list of these. sampling_params: one
        for all, or one each; None: the model's own defaults. use_tqdm: a progress bar, or what makes one. on_output is
        called with every new partial output, which is its own to change; if it returns something true, that request is
        stopped as by abort. priority: one for all, or one each; a smaller one goes first. tokenization_kwargs: how
        prompts are tokenized and cut, see TokenizeParams.

        Raises InputError for bad input or while another call runs, EngineDeadError when the core has died. What this
        call had added is then given up, and the next call returns only its own.

        vLLM: entrypoints/llm.py::LLM.generate
        """
        _refuse(lora_request=lora_request, mm_processor_kwargs=mm_processor_kwargs)
        renderers = [
            partial(self.llm_engine.input_processor.render_cmpl, prompt, tokenization_kwargs)
            for prompt in _as_prompt_list(prompts)
        ]
        return self._run(renderers, sampling_params, use_tqdm, on_output, priority)

    @boundary("chat")
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., tqdm] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: None = None,
        *,
        on_output: OnOutput | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, through the model's chat template or another.

        A conversation is a list of messages like {"role": "user", "content": "Hello"}; content may also be None or a
        list of text parts. add_generation_prompt: the text ends with the head of an answer. continue_final_message: it
        ends within the last message. tools and chat_template_kwargs are for the template. The rest is as in generate.

        vLLM: entrypoints/llm.py::LLM.chat
        """
        _refuse(lora_request=lora_request, mm_processor_kwargs=mm_processor_kwargs)
        if not isinstance(messages, list | tuple):
            raise InputError(f"messages={messages!r} must be a list of messages, or a list of such lists.")
        one = messages and not isinstance(messages[0], list | tuple)
        conversations = [messages] if one else messages
        chat_params = ChatParams(chat_template, chat_template_content_format, chat_template_kwargs or {}).with_kwargs(
            add_generation_prompt=add_generation_prompt, continue_final_message=continue_final_message, tools=tools
        )
        renderers = [
            partial(self.llm_engine.input_processor.render_chat, conversation, chat_params, tokenization_kwargs)
            for conversation in conversations
        ]
        return self._run(renderers, sampling_params, use_tqdm, on_output, None)

    def abort(self, request_id: str) -> None:
        """Stop a request that a generate or chat is answering, by the `request_id` of its outputs. What it has so far
        comes back in its place, with finish_reason "abort" (all n answers to a prompt are stopped, those that have
        ended keep their reason). From on_output or another thread; an id that isn't running is ignored.

        vLLM: v1/engine/async_llm.py::AsyncLLM.abort (its LLM has none)
        """
        self.llm_engine.engine_core.check_process()
        if not isinstance(request_id, str):
            raise InputError(f"request_id={request_id!r} must be a text, as RequestOutput.request_id is.")
        self.llm_engine.stop_request(request_id)

    def get_tokenizer(self) -> Any:
        """The tokenizer, of transformers. Raises InputError with skip_tokenizer_init.

        vLLM: entrypoints/llm.py::LLM.get_tokenizer
        """
        if self.tokenizer is None:
            raise InputError("There is no tokenizer, since skip_tokenizer_init=True.")
        return self.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's authors set in generation_config.json; max_tokens is 16 unless they say otherwise.

        vLLM: entrypoints/llm.py::LLM.get_default_sampling_params
        """
        return SamplingParams(**self.model_config.generation_defaults)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False while requests run.

        vLLM: entrypoints/llm.py::LLM.reset_prefix_cache
        """
        return self.llm_engine.reset_prefix_cache()

    # ------------------------------------------------------------------ the loop

    def _run(
        self,
        renderers: list[Callable[[], EngineInput]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool | Callable[..., tqdm],
        on_output: OnOutput | None,
        priority: int | Sequence[int] | None,
    ) -> list[RequestOutput]:
        """Add every request, then run until they are done. Whatever goes wrong, they are given up.

        vLLM: entrypoints/offline_utils.py::OfflineInferenceMixin._run_completion
        """
        self.llm_engine.engine_core.check_process()
        if not self._running.acquire(blocking=False):
            raise InputError(
                "This LLM is in the middle of another generate or chat (a call from on_output, or from another "
                "thread). Wait until it has returned, or make a second LLM."
            )
        try:
            return self._run_alone(renderers, sampling_params, use_tqdm, on_output, priority)
        finally:
            self._running.release()

    def _run_alone(
        self,
        renderers: list[Callable[[], EngineInput]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
        on_output: OnOutput | None,
        priority: int | Sequence[int] | None,
    ) -> list[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params_list = _one_each(sampling_params, SamplingParams, len(renderers), "sampling_params")
        priorities = _one_each(0 if priority is None else priority, int, len(renderers), "priority")
        added: list[str] = []
        try:
            for render, params, its_priority in zip(renderers, params_list, priorities, strict=True):
                engine_input = render()
                added.append(self.next_request_id())
                self._add_request(added[-1], engine_input, params, its_priority, streaming=on_output is not None)
            return self._run_engine(len(added), use_tqdm, on_output)
        except BaseException:  # Ctrl-C too
            self.llm_engine.abort_request(added)
            raise

    def next_request_id(self) -> str:
        """The external id: the number of the request in this LLM's life, as text.

        vLLM: utils/counter.py::Counter
        """
        self.request_counter += 1
        return str(self.request_counter - 1)

    def _add_request(
        self, request_id: str, engine_input: EngineInput, params: SamplingParams, priority: int, streaming: bool
    ) -> None:
        """vLLM: entrypoints/offline_utils.py::OfflineInferenceMixin._add_request"""
        if isinstance(params, SamplingParams):
            # on the caller's own object, as vLLM does
            params.output_kind = RequestOutputKind.CUMULATIVE if streaming else RequestOutputKind.FINAL_ONLY
        self.llm_engine.add_request(request_id, engine_input, params, priority)

    @boundary("run_engine")
    def _run_engine(
        self, num_requests: int, use_tqdm: bool | Callable[..., tqdm], on_output: OnOutput | None
    ) -> list[RequestOutput]:
        """Step until the caller's table is empty; the outputs sorted as the prompts were.

        vLLM: entrypoints/offline_utils.py::OfflineInferenceMixin._run_engine
        """
        finished: list[RequestOutput] = []
        # disable=None: no bar where nobody watches (no terminal)
        make_bar = use_tqdm if callable(use_tqdm) else partial(tqdm, disable=None if use_tqdm else True)
        with make_bar(total=num_requests, desc="Processed prompts", dynamic_ncols=True) as bar:
            while self.llm_engine.has_unfinished_requests():
                for output in self.llm_engine.step():
                    if output.finished:
                        # the callback's own to change, and so no more the answer
                        finished.append(output if on_output is None else deepcopy(output))
                        bar.update()
                    if on_output is not None and on_output(output):
                        self.abort(output.request_id)
        return sorted(finished, key=lambda output: int(output.request_id))

    # ------------------------------------------------------------------ start and end

    def shutdown(self) -> None:
        """End the core and its process. May be called again.

        vLLM: none, vLLM's LLM ends with its last reference
        """
        self._finalizer()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _refuse(**arguments: Any) -> None:
    """Raise InputError for an argument of vLLM's that is given here, and not covered."""
    for name, value in arguments.items():
        if value is not None:
            raise InputError(f"{name}={value!r} is not covered by this engine. Leave it out.")


def _as_prompt_list(prompts: Any) -> list[PromptType]:
    """One prompt or several, as a list. A list of numbers is one prompt of token ids.

    vLLM: renderers/inputs/preprocess.py::prompt_to_seq
    """
    if isinstance(prompts, str | dict):
        return [prompts]
    if hasattr(prompts, "tolist"):  # an array: one row of ids, or several
        prompts = prompts.tolist()
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise InputError(f"{prompts!r} is no prompt. Give a text, a list of token ids, or a list of either.")
    if prompts and not hasattr(prompts[0], "__len__"):
        return [prompts]
    return list(prompts)


def _one_each(value: Any, single_type: type, count: int, name: str) -> list[Any]:
    """`value` for everybody, or its elements if it is a list of the right length.

    vLLM: entrypoints/offline_utils.py::OfflineInferenceMixin._params_to_seq
    """
    if isinstance(value, single_type):
        return [value] * count
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(
            f"{name}={value!r} must be of type {single_type.__name__}, or a list with one for each prompt."
        )
    if len(value) != count:
        raise InputError(f"{name} has {len(value)} elements for {count} prompts. Give one, or one for each prompt.")
    return list(value)
