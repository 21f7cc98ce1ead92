"""TokenizeParams: how one prompt's text becomes token ids, and how many of them are kept."""

from dataclasses import dataclass, replace
from typing import Any

from minivllm.errors import InputError

# what a caller may hand over as tokenization_kwargs
KNOWN = (
    "max_length",
    "truncation",
    "truncate_prompt_tokens",
    "truncation_side",
    "do_lower_case",
    "add_special_tokens",
    "needs_detokenization",
)


@dataclass(frozen=True, slots=True)
class TokenizeParams:
    """Raises InputError for a value outside its limits.

    vLLM: renderers/params.py::TokenizeParams (simplified: no padding)
    """

    max_model_len: int
    max_length: int | None = None  # tokens that a prompt may have; None: max_model_len
    truncate_prompt_tokens: int | None = None  # keep so many; negative: as many as it may have; None: all
    truncation_side: str | None = None  # "left" keeps the last tokens, as None does; "right" the first
    do_lower_case: bool = False
    add_special_tokens: bool = True
    needs_detokenization: bool = False  # a prompt of token ids gets its text

    def __post_init__(self) -> None:
        for name in ("max_length", "truncate_prompt_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | None):
                raise InputError(f"{name}={value!r} of tokenization_kwargs must be an integer.")
        if self.max_length is not None and self.max_length < 1:
            raise InputError(f"max_length={self.max_length} of tokenization_kwargs must be at least 1.")
        for name in ("do_lower_case", "add_special_tokens", "needs_detokenization"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}={getattr(self, name)!r} of tokenization_kwargs must be True or False.")
        if self.truncation_side not in (None, "left", "right"):
            raise InputError(f"truncation_side={self.truncation_side!r} must be 'left' or 'right'.")
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens > self.max_input_tokens:
            raise InputError(
                f"truncate_prompt_tokens={self.truncate_prompt_tokens} is more than the {self.max_input_tokens} tokens "
                "that a prompt may have. Ask for fewer."
            )

    def with_kwargs(self, kwargs: dict[str, Any]) -> "TokenizeParams":
        """These, changed by a caller's tokenization_kwargs.

        vLLM: renderers/params.py::TokenizeParams.with_kwargs (refuses unknown names in place of a warning)
        """
        if not isinstance(kwargs, dict):
            raise InputError(f"tokenization_kwargs={kwargs!r} must be a dict.")
        unknown = [name for name in kwargs if name not in KNOWN]
        if unknown:
            raise InputError(
                f"tokenization_kwargs holds {', '.join(map(repr, unknown))}, which is not covered. Known: "
                f"{', '.join(KNOWN)}."
            )
        changes = dict(kwargs)
        truncation = changes.pop("truncation", None)
        if truncation in (True, "longest_first"):
            changes["truncate_prompt_tokens"] = -1
        elif truncation == "do_not_truncate":
            changes["truncate_prompt_tokens"] = None
        elif truncation not in (None, False):  # which say nothing, as in vLLM
            raise InputError(f"truncation={truncation!r} of tokenization_kwargs must be True or False.")
        return replace(self, **changes)

    @property
    def max_input_tokens(self) -> int:
        """How many tokens a prompt may have."""
        return self.max_model_len if self.max_length is None else self.max_length

    @property
    def kept(self) -> int | None:
        """How many tokens are kept at most; None: all."""
        kept = self.truncate_prompt_tokens
        return self.max_input_tokens if kept is not None and kept < 0 else kept

    def encode(self, tokenizer: Any, text: str) -> list[int]:
        """A text's token ids. Unless a side is named the tokenizer cuts, so its special tokens stay at the head.

        vLLM: renderers/params.py::TokenizeParams.get_encode_kwargs
        """
        if not self.kept or self.truncation_side is not None:
            return tokenizer.encode(text, add_special_tokens=self.add_special_tokens)
        tokenizer.truncation_side = "left"  # what generation needs: the last tokens
        return tokenizer.encode(text, add_special_tokens=self.add_special_tokens, truncation=True, max_length=self.kept)

    def apply_post_tokenization(self, tokenizer: Any | None, token_ids: list[int]) -> list[int]:
        """Token ids, cut if that is asked for. Raises InputError if they are more than max_length then.

        vLLM: renderers/params.py::TokenizeParams.apply_post_tokenization
        """
        if self.kept is not None and self.kept < len(token_ids):
            side = self.truncation_side or ("left" if tokenizer is not None else "right")  # as in vLLM
            start = len(token_ids) - self.kept if side == "left" else 0
            token_ids = token_ids[start : start + self.kept]
        if self.max_length is not None and len(token_ids) > self.max_length:
            raise InputError(
                f"The prompt has {len(token_ids)} tokens, more than max_length={self.max_length} of "
                "tokenization_kwargs. Shorten it, or add truncation=True."
            )
        return token_ids
