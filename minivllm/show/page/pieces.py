"""The text of single tokens, where the tokenizer is at hand: a trace holds ids and whole texts.

Owns: how a tokenizer is found, and the proof that it is the right one.
Interface: token_pieces.
Must not know: models. Only the `tokenizers` package is used, and none is no error: the page shows ids then.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minivllm.paths import default_model_dir
from minivllm.trace.events import Event
from minivllm.trace.replay import Trace

TOKENIZER = "tokenizer.json"


def token_pieces(trace: Trace, tokenizer: str | Path | None = None) -> dict[int, str]:
    """Token id -> its text, of all ids in the trace; bytes of a part of a character as ⟨E2⟩.

    tokenizer: a folder with a tokenizer.json, where the default model's is not the right one. Without any, those tokens
    are known of which the trace itself tells what text they added.
    """
    if trace.header.redacted:
        return {}
    ids = {token_id for event in trace for token_id in _token_ids(event)}
    for folder in _folders(trace, tokenizer):
        found = _load(folder / TOKENIZER)
        if found is not None and _fits(found, trace):
            pieces = {token_id: _piece(found, token_id) for token_id in sorted(ids)}
            return {token_id: piece for token_id, piece in pieces.items() if piece is not None}
    return _told(trace)


def _told(trace: Trace) -> dict[int, str]:
    """What single tokens added to a text, as far as that was all that they added."""
    pieces: dict[int, str] = {}
    for event in trace.filter(kind="detokenize"):
        ids, text = event.new_token_ids, event.new_text
        if event.stop_string is None and isinstance(text, str) and text and isinstance(ids, list) and len(ids) == 1:
            pieces.setdefault(ids[0], text)
    return pieces


def _token_ids(event: Any) -> Iterator[int]:
    """All token ids that an event holds."""
    for name in ("prompt_token_ids", "input_ids", "new_token_ids"):
        value = getattr(event, name, ())
        yield from value if isinstance(value, list) else ()
    for row in getattr(event, "sampled_token_ids", ()):
        yield from row if isinstance(row, list) else ()
    candidates = getattr(event, "candidates", ())
    for row in candidates if isinstance(candidates, list) else ():
        yield from (candidate.token_id for candidate in row)


def _folders(trace: Trace, tokenizer: str | Path | None) -> Iterator[Path]:
    """Where the tokenizer may be: where the caller says, then the default model's folder."""
    if tokenizer is not None:
        yield Path(tokenizer)
        return
    yield default_model_dir()


def _load(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        return None
    return Tokenizer.from_file(str(path))


def _fits(tokenizer: Any, trace: Trace) -> bool:
    """Whether it turns the trace's own prompts back into their texts."""
    prompts = [event for event in trace if event.kind in ("render_cmpl", "render_chat")]
    return bool(prompts) and all(_reads(tokenizer, event) for event in prompts)


def _reads(tokenizer: Any, event: Event | Any) -> bool:
    known = tokenizer.get_vocab_size(with_added_tokens=True)
    if any(token_id >= known for token_id in event.prompt_token_ids):
        return False
    text = tokenizer.decode(event.prompt_token_ids, skip_special_tokens=False)
    return event.prompt is None or text.strip() == event.prompt.strip()


def _byte_letters() -> dict[str, int]:
    """Letter -> byte, of byte-level vocabularies: printable bytes stand for themselves, others from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_letters()


def _piece(tokenizer: Any, token_id: int) -> str | None:
    token = tokenizer.id_to_token(token_id)
    if token is None:
        return None
    decoded = tokenizer.decode([token_id], skip_special_tokens=False)
    if "\ufffd" not in decoded:
        return decoded
    if all(letter in BYTES for letter in token):
        raw = bytes(BYTES[letter] for letter in token)
        text = raw.decode("utf-8", errors="backslashreplace")
        return re.sub(r"\\x([0-9a-f]{2})", lambda match: f"⟨{match[1].upper()}⟩", text)
    return decoded
