"""Redaction: a trace without what people wrote. Lengths stand in the place of texts and token ids.

Interface: redact.

Kept: ids of requests and blocks, counters, slots, positions, times, sizes, shapes, settings. Block hashes become names
(h0, h1, …), since with a known hash seed a hash gives its tokens away to whoever can guess them. Error texts, which may
quote a prompt, are cut to the error's name; paths go.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from minivllm.trace.events import Event, Unknown
from minivllm.trace.schema import Header

SECRET_PARAMS = ("stop", "bad_words", "stop_token_ids", "logit_bias", "allowed_token_ids")
SECRET_ENVIRONMENT = ("model", "tokenizer", "pids")
SECRET_CONFIG = ("hash_seed",)
WITHHELD = "redacted"


def redact(header: Header, events: Iterable[Event]) -> tuple[Header, list[Event]]:
    """A redacted copy. An event of an unknown kind is left out: nobody can say what is in it."""
    names: dict[str, str] = {}
    environment = {name: value for name, value in header.environment.items() if name not in SECRET_ENVIRONMENT}
    config = {name: value for name, value in header.config.items() if name not in SECRET_CONFIG}
    header = msgspec.structs.replace(header, redacted=True, environment=environment, config=config)
    return header, [_redacted(event, names) for event in events if not isinstance(event, Unknown)]


def _redacted(event: Event, names: dict[str, str]) -> Event:
    changes: dict[str, Any] = {}
    for field in event.secret:
        changes[field] = _SPECIAL.get(field, _length)(getattr(event, field))
    for field in ("error", "view_error"):
        text = getattr(event, field)
        if text is not None:
            changes[field] = text.partition(":")[0]
    if hasattr(event, "sampling_params"):
        params = event.sampling_params
        changes["sampling_params"] = _params(params) if isinstance(params, dict) else list(map(_params, params))
    if hasattr(event, "block_hash") and event.block_hash is not None:
        changes["block_hash"] = _name(event.block_hash, names)
    if hasattr(event, "block_hashes"):
        changes["block_hashes"] = [_name(block_hash, names) for block_hash in event.block_hashes]
    return msgspec.structs.replace(event, **changes)


def _name(block_hash: str, names: dict[str, str]) -> str:
    return names.setdefault(block_hash, f"h{len(names)}")


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | list | dict) else value


def _params(params: dict[str, Any]) -> dict[str, Any]:
    return {name: len(value) if name in SECRET_PARAMS else value for name, value in params.items()}


def _outputs(outputs: list[Any]) -> list[Any]:
    return [msgspec.structs.replace(o, text=_length(o.text), stop_reason=_reason(o.stop_reason)) for o in outputs]


def _updates(updates: list[Any]) -> list[Any]:
    return [
        msgspec.structs.replace(u, new_token_ids=_length(u.new_token_ids), stop_reason=_reason(u.stop_reason))
        for u in updates
    ]


def _reason(stop_reason: int | str | None) -> str | None:
    return None if stop_reason is None else WITHHELD


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "outputs": _outputs,
    "updates": _updates,
    "sampled_token_ids": lambda rows: [_length(row) for row in rows],
    "eos_token_id": lambda token_id: None,
}
