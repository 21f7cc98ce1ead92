"""InputProcessor: a prompt and its parameters, checked and turned into the message that the core gets.

Owns: the tokenizer, and every check of what a caller hands in. What passes here, the core can run.
Interface: render_cmpl / render_chat (prompt to token ids), process_inputs, assign_request_id.
Must not know: blocks, or which other requests there are.
"""

import math
import operator
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.engine.chat_template import check_rendered, check_template, within_limits
from minivllm.engine.chat_utils import ANSWER_NEXT, ChatParams, detect_content_format, parse_chat_messages
from minivllm.engine.messages import EngineCoreRequest
from minivllm.engine.tokenize_params import TokenizeParams
from minivllm.errors import InputError
from minivllm.models.model_config import ModelConfig
from minivllm.sampling_params import MAX_INT, SamplingParams, is_text

PromptType = str | Sequence[int] | Mapping[str, Any]  # text, token ids, or {"prompt" | "prompt_token_ids": …}


class EngineInput(msgspec.Struct):
    """A prompt as token ids.

    vLLM: inputs/engine.py::TokensInput
    """

    prompt_token_ids: list[int]
    prompt: str | None
    arrival_time: float  # wall clock, seconds
    cache_salt: str | None = None


def random_id_suffix() -> str:
    """Eight hex digits that nobody has had before.

    vLLM: utils/__init__.py::random_uuid
    """
    return uuid.uuid4().hex[:8]


class InputProcessor:
    """vLLM: v1/engine/input_processor.py::InputProcessor (with renderers/base.py::BaseRenderer)"""

    def __init__(
        self,
        config: EngineConfig,
        model_config: ModelConfig,
        max_model_len: int,
        tokenizer: Any | None,
        id_suffix: Callable[[], str] = random_id_suffix,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.max_logprobs = config.max_logprobs
        self.enable_prefix_caching = config.enable_prefix_caching
        self.policy = config.scheduling_policy
        self.max_model_len = max_model_len
        self.default_cmpl_tok_params = TokenizeParams(max_model_len)
        self.default_chat_tok_params = TokenizeParams(max_model_len, add_special_tokens=False)
        self.vocab_size = model_config.vocab_size
        self.eos_token_ids = model_config.eos_token_ids
        self.tokenizer = tokenizer
        self.id_suffix = id_suffix
        self.clock = clock  # of arrival times

    # ------------------------------------------------------------------ text to token ids

    @boundary("render_cmpl")
    def render_cmpl(self, prompt: PromptType, tokenization_kwargs: dict[str, Any] | None = None) -> EngineInput:
        """A prompt as it is, without a chat template. Raises InputError for anything that is no prompt.

        tokenization_kwargs: changes of the TokenizeParams.

        vLLM: renderers/base.py::BaseRenderer.render_cmpl
        """
        arrival_time = self.clock()
        tok_params = self.default_cmpl_tok_params.with_kwargs(tokenization_kwargs or {})
        cache_salt = None
        if isinstance(prompt, Mapping):
            unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
            if unknown or not {"prompt", "prompt_token_ids"} & set(prompt):
                raise InputError(
                    f"A prompt given as a dict has the key prompt or prompt_token_ids, and may have cache_salt; this "
                    f"one has {', '.join(map(repr, prompt)) or 'none'}."
                )
            cache_salt = prompt.get("cache_salt")
            text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        else:
            text, token_ids = (prompt, None) if isinstance(prompt, str) else (None, prompt)
        if token_ids is None:
            self._check_text("prompt", text)
            text = text.lower() if tok_params.do_lower_case else text
            token_ids = tok_params.encode(self._tokenizer_for("a text prompt"), text)
        token_ids = self._as_token_ids(token_ids)
        if text is None and tok_params.needs_detokenization:
            text = self._tokenizer_for("needs_detokenization").decode(token_ids)
        if cache_salt is not None:
            self._check_text("cache_salt", cache_salt)
        token_ids = tok_params.apply_post_tokenization(self.tokenizer, token_ids)
        return EngineInput(token_ids, text, arrival_time, cache_salt)

    @boundary("render_chat")
    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        chat_params: ChatParams = ANSWER_NEXT,
        tokenization_kwargs: dict[str, Any] | None = None,
    ) -> EngineInput:
        """A conversation through a chat template. Raises InputError for what the template does not take.

        vLLM: renderers/base.py::BaseRenderer.render_chat (with renderers/hf.py::HfRenderer.render_messages)
        """
        arrival_time = self.clock()
        tok_params = self.default_chat_tok_params.with_kwargs(tokenization_kwargs or {})
        tokenizer = self._tokenizer_for("a chat")
        template = self._chat_template(chat_params)
        if not messages:
            raise InputError("The conversation is empty: it has no message. Give at least one.")
        content_format = chat_params.chat_template_content_format
        kwargs = chat_params.chat_template_kwargs | {"chat_template": template, "tokenize": False}
        check_template(template)
        try:
            with within_limits():
                if content_format == "auto":
                    content_format = detect_content_format(template)  # compiles it, which computes what is constant
                conversation = parse_chat_messages(messages, content_format)
                text = tokenizer.apply_chat_template(conversation, **kwargs)
        except InputError:
            raise
        except Exception as error:  # a template may raise what it likes
            raise InputError(f"The model's chat template does not take these messages: {error}") from error
        self._check_text("The conversation", text)
        check_rendered(text)
        text = text.lower() if tok_params.do_lower_case else text
        token_ids = self._as_token_ids(tok_params.encode(tokenizer, text))
        return EngineInput(tok_params.apply_post_tokenization(tokenizer, token_ids), text, arrival_time)

    def _chat_template(self, chat_params: ChatParams) -> str:
        """The template's source.

        vLLM: renderers/hf.py::resolve_chat_template (simplified: no fallbacks of vLLM's own)
        """
        if chat_params.chat_template is None and not self.tokenizer.chat_template:
            raise InputError(
                "This model has no chat template. Give one as chat_template=, or use generate() with a prompt that you "
                "format yourself."
            )
        try:
            tools = chat_params.chat_template_kwargs.get("tools")
            return self.tokenizer.get_chat_template(chat_params.chat_template, tools=tools)
        except ValueError as error:  # several templates, and none of that name
            raise InputError(f"No chat template could be chosen: {error}") from error

    @staticmethod
    def _check_text(what: str, text: Any) -> None:
        if not is_text(text):
            raise InputError(f"{what}={text!r} is no text: it must be a string that can be written as UTF-8.")

    def _tokenizer_for(self, what: str) -> Any:
        if self.tokenizer is None:
            raise InputError(f"{what} needs the tokenizer, but skip_tokenizer_init=True. Give token ids instead.")
        return self.tokenizer

    def _as_token_ids(self, token_ids: Any) -> list[int]:
        if hasattr(token_ids, "tolist"):  # an array or a tensor
            token_ids = token_ids.tolist()
        if isinstance(token_ids, str | bytes) or not isinstance(token_ids, Sequence):
            raise InputError(f"{token_ids!r} is no prompt. Give a text, a list of token ids, or a list of either.")
        checked = []
        for place, token_id in enumerate(token_ids):
            if isinstance(token_id, bool) or not hasattr(token_id, "__index__"):
                raise InputError(f"Token id {token_id!r} at place {place} of the prompt is not an integer.")
            token_id = operator.index(token_id)
            if not 0 <= token_id < self.vocab_size:
                raise InputError(
                    f"Token id {token_id} at place {place} of the prompt is outside the vocabulary: "
                    f"ids go from 0 to {self.vocab_size - 1}."
                )
            checked.append(token_id)
        return checked

    # ------------------------------------------------------------------ token ids to a request

    @boundary("process_inputs")
    def process_inputs(
        self, request_id: str, engine_input: EngineInput, params: SamplingParams, priority: int = 0
    ) -> EngineCoreRequest:
        """Check everything and make the core's message; the caller's params are copied, then completed.

        Raises InputError, before anything knows of the request.

        vLLM: v1/engine/input_processor.py::InputProcessor.process_inputs
        """
        if not isinstance(params, SamplingParams):
            raise InputError(f"sampling_params={params!r} must be a SamplingParams or a list of them.")
        self._check_text("request_id", request_id)  # another type would end the core, which could not decode it
        params = params.clone()
        prompt_len = len(engine_input.prompt_token_ids)
        self._check_prompt_len(prompt_len)
        self._check_params(params, prompt_len)
        self._check_priority(priority)
        if params.max_tokens is None:
            params.max_tokens = self.max_model_len - prompt_len
        tokenizer_eos = self.tokenizer.eos_token_id if self.tokenizer is not None else None
        params.set_stop_tokens(tokenizer_eos, self.eos_token_ids)
        params._bad_words_token_ids = self._tokenize_bad_words(params.bad_words)
        self._check_masks(params)
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=engine_input.prompt_token_ids,
            sampling_params=params,
            arrival_time=engine_input.arrival_time,
            cache_salt=engine_input.cache_salt,
            priority=priority,
        )

    @boundary("assign_request_id")
    def assign_request_id(self, request: EngineCoreRequest) -> None:
        """Keep the caller's id as the external one, and give the request an id that nobody has had before.

        vLLM: v1/engine/input_processor.py::InputProcessor.assign_request_id
        """
        request.external_req_id = request.request_id
        request.request_id = f"{request.external_req_id}-{self.id_suffix()}"

    def _check_prompt_len(self, prompt_len: int) -> None:
        """vLLM: v1/engine/input_processor.py::InputProcessor._validate_prompt_len"""
        if prompt_len == 0:
            raise InputError("The prompt is empty: it has no token. Give at least one.")
        if prompt_len >= self.max_model_len:
            raise InputError(
                f"The prompt has {prompt_len} tokens, and max_model_len={self.max_model_len} leaves room for at most "
                f"{self.max_model_len - 1} and one token of output. Shorten the prompt, or raise max_model_len."
            )

    def _check_params(self, params: SamplingParams, prompt_len: int) -> None:
        """vLLM: sampling_params.py::SamplingParams.verify"""
        room = self.max_model_len - prompt_len
        if params.min_tokens > room:
            raise InputError(
                f"min_tokens={params.min_tokens} is more than the {room} tokens that max_model_len="
                f"{self.max_model_len} leaves after a prompt of {prompt_len}. Lower min_tokens."
            )
        for field in ("logprobs", "prompt_logprobs"):
            self._check_logprobs(field, getattr(params, field))
        if params.prompt_logprobs is not None and not params.skip_reading_prefix_cache and self.enable_prefix_caching:
            raise InputError(
                f"prompt_logprobs={params.prompt_logprobs} with skip_reading_prefix_cache=False: tokens from the "
                "prefix cache are not computed, so they have no logprobs. Leave skip_reading_prefix_cache out."
            )
        for field in ("logit_bias", "allowed_token_ids", "stop_token_ids"):
            for token_id in getattr(params, field) or ():
                if token_id >= self.vocab_size:
                    raise InputError(
                        f"{field} holds {token_id}, which is outside the vocabulary: ids go from 0 to "
                        f"{self.vocab_size - 1}."
                    )
        if (params.stop or params.bad_words) and self.tokenizer is None:
            raise InputError("stop and bad_words need the tokenizer, but skip_tokenizer_init=True. Use token ids.")

    def _check_masks(self, params: SamplingParams) -> None:
        """Raise InputError if no token at all can come first. Later on the same may come of a bad word of several
        tokens; nobody can know it before.

        vLLM: none, vLLM then takes token 0
        """
        forbidden = {token for token, bias in (params.logit_bias or {}).items() if bias == -math.inf}
        forbidden.update(words[0] for words in params._bad_words_token_ids or () if len(words) == 1)
        if params.min_tokens > 0:
            forbidden |= params._all_stop_token_ids
        allowed = range(self.vocab_size) if params.allowed_token_ids is None else set(params.allowed_token_ids)
        if len(forbidden) >= len(allowed) and forbidden.issuperset(allowed):
            raise InputError(
                "No token can be chosen: bad_words, logit_bias of -inf and, as long as min_tokens is not reached, stop "
                f"tokens forbid {'all' if params.allowed_token_ids is None else 'all of allowed_token_ids'}. Allow one."
            )

    def _check_logprobs(self, field: str, value: int | None) -> None:
        wanted = self.vocab_size if value == -1 else value
        if wanted is not None and self.max_logprobs != -1 and wanted > self.max_logprobs:
            raise InputError(
                f"{field}={value} is more than max_logprobs={self.max_logprobs}. Ask for fewer, or build the LLM "
                "with a larger max_logprobs (-1 for no limit)."
            )
        if wanted is not None and wanted > self.vocab_size:
            raise InputError(
                f"{field}={value} is more than the {self.vocab_size} tokens of the vocabulary. Use -1 for all of them."
            )

    def _check_priority(self, priority: int) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_INT:
            raise InputError(
                f"priority={priority!r} must be an integer from {-MAX_INT} to {MAX_INT}; a smaller one goes first."
            )
        if priority != 0 and self.policy != "priority":
            raise InputError(
                f"priority={priority} has no effect with scheduling_policy={self.policy!r}. "
                "Build the LLM with scheduling_policy='priority'."
            )

    def _tokenize_bad_words(self, bad_words: list[str] | None) -> list[list[int]] | None:
        """Each word as it stands at the start of a text, and as it stands after a space if that is another token.

        vLLM: sampling_params.py::SamplingParams.update_from_tokenizer
        """
        if not bad_words:
            return None
        sequences: list[list[int]] = []
        for word in bad_words:
            at_start = self.tokenizer.encode(word.lstrip(), add_special_tokens=False)
            after_space = self.tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
            sequences.append(at_start)
            if len(after_space) == len(at_start) and after_space[0] != at_start[0]:
                sequences.append(after_space)
        return sequences
