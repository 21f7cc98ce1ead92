"""Trace files: written while the engine runs, read years later.

Owns: the format on disk, its versions, and what to do with files that are cut off, broken or not ours.
Interface: PartFile (a sink), find_parts; read, write; TraceError.
Must not know: what an event means, or how parts are put in one order (merge.py).

While the engine runs, each process writes a part of its own next to the target: `run.jsonl.PID-N.caller.part`. They are
merged into `run.jsonl` when the engine is shut down. If the caller's process was killed, the parts are what is left,
and reading `run.jsonl` reads them.
"""

import errno
import gc
import gzip
import logging
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from minivllm.files import refusal, write_file
from minivllm.trace.check import TraceError
from minivllm.trace.events import SCHEMA, Event
from minivllm.trace.schema import COMMON, End, Header, Line, Open, decode, decode_lines, encode_lines, from_raw

logger = logging.getLogger(__name__)

# schema number n -> what makes a line of version n one of version n + 1; lines are dicts here, the header is one too
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 14
MAX_MIB = (
    56  # of text, over 110,000 events, unless MINIVLLM_TRACE_MIB says more; in memory they take up to 8 times as much
)
NO_TRACE = (
    "this is no trace of minivllm. A trace begins with a line of kind header, which has a schema, a number from 1 up."
)


class Part(NamedTuple):
    """What one file holds."""

    header: Header
    lines: list[Line]  # without header and end
    complete: bool  # for a part: it was written to its end
    truncated: bool  # the last line was cut off


# ---------------------------------------------------------------------- while the engine runs


class PartFile:
    """A sink: one process's part of a trace. A disk that is full or can't be written warns once, and no more.

    warn: False in the core's process, whose part the caller's process will find incomplete.
    """

    def __init__(self, path: str, header: Header, warn: bool = True) -> None:
        self.path = path
        self.warn = warn
        self.failed = False
        self._file = None
        try:
            self._file = open(path, "wb")  # noqa: SIM115  (it stays open for as long as the engine lives)
        except OSError as error:
            self._give_up(error)
        self.write([msgspec.structs.replace(header, part=True)])

    def write(self, lines: list[Line]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(encode_safely(lines))
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        self.write([End()])
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        self.failed = True
        if self.warn:
            warn_not_written(self.path, error)
        if self._file is not None:
            try:
                self._file.close()  # tries to write once more what is still in its buffer
            except OSError:
                logger.debug("Closing %s failed as well.", self.path)
            self._file = None


def warn_not_written(path: str | Path, error: OSError) -> None:
    """Say that a trace is not being written. The engine runs on."""
    logger.warning(
        "The trace can't be written to %s (%s). The engine runs on without it: give `trace` another path.",
        path,
        error.strerror or error,
    )


def encode_safely(lines: list[Line]) -> bytes:
    """As encode_lines; an event with something in it that JSON has no form for loses its own fields."""
    try:
        return encode_lines(lines)
    except (TypeError, ValueError, OverflowError):
        return b"".join(map(_encode_one_safely, lines))


def _encode_one_safely(line: Line) -> bytes:
    try:
        return encode_lines([line])
    except (TypeError, ValueError, OverflowError) as error:
        common = {name: getattr(line, name) for name in COMMON} | {"reqs": [], "view_error": str(error)}
        return encode_lines([type(line)(**common)])


def check_writable(path: Path) -> bool:
    """Whether a trace can be recorded at `path`; makes the folders above it. Warns if not."""
    error = why_not_writable(path)
    if error is not None:
        warn_not_written(path, error)
    return error is None


def why_not_writable(path: Path) -> OSError | None:
    """What is against a trace at `path`; makes the folders above it."""
    probe = path.with_name(f"{path.name}.{os.getpid()}.probe")
    try:
        in_the_way = refusal(path)
        if in_the_way is not None:  # no device either: while the engine runs, parts lie beside the trace
            return OSError(errno.EINVAL, in_the_way)
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        return error
    return None


def find_parts(path: Path) -> list[Path]:
    """The parts of the latest run that was to become `path`."""
    runs: dict[str, list[Path]] = {}
    for part in path.parent.glob(f"{glob_escape(path.name)}.*.part"):
        run = part.name.removeprefix(path.name + ".").split(".")[0]
        runs.setdefault(run, []).append(part)
    return sorted(max(runs.values(), key=lambda parts: max(p.stat().st_mtime for p in parts))) if runs else []


def glob_escape(name: str) -> str:
    """`name` with what a glob pattern would take for a wildcard made literal."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


# ---------------------------------------------------------------------- whole files


def write(path: Path, header: Header, events: list[Event]) -> None:
    """Write a trace, plain or .gz, all of it or nothing. The same trace gives the same bytes. Raises OSError."""
    data = encode_safely([header, *events])
    write_file(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def read(path: Path, upgrades: dict[int, Callable] = UPGRADES, limit: int | None = None) -> Part:
    """Read a trace or a part of one. A last line that was cut off is dropped; one that only lacks its newline is kept.

    Raises TraceError with the line number for a file that is no trace, is damaged in its middle, or is of a version
    that is newer than this one's.
    """
    data, truncated = _read_bytes(path, _limit() if limit is None else limit)
    end = data.rfind(b"\n") + 1
    if end < len(data):
        if _is_whole(data[end:]):
            data += b"\n"
        else:
            truncated = True
            del data[end:]
    header = _read_header(path, data, min([SCHEMA, *upgrades]))
    lines = _decode_all(path, data, header.schema, upgrades)
    complete = isinstance(lines[-1], End) if header.part else not truncated
    header = msgspec.structs.replace(lines[0], schema=SCHEMA)
    return Part(header, [line for line in lines[1:] if not isinstance(line, End)], complete, truncated)


def _read_bytes(path: Path, limit: int) -> tuple[bytearray, bool]:
    """What a file holds, unpacked if it is a .gz, and whether its end is missing. limit: bytes of text at most."""
    try:
        with open(path, "rb") as file:
            data = bytearray(file.read(CHUNK))
            if data.startswith(GZIP_MAGIC):
                return _gunzip(path, bytes(data), file, limit)
            if data and not data.lstrip().startswith(b"{"):
                raise TraceError(f"{path}, line 1: {NO_TRACE}")
            most = min(limit, path.stat().st_size) if path.is_file() else limit  # so much is set aside at once
            data += file.read(max(most + 1 - len(data), 0))
    except OSError as error:
        raise TraceError(f"The trace {path} can't be read: {error.strerror}. Give the path of a .jsonl file.") from None
    _check_size(path, data, limit)
    return data, False


def _gunzip(path: Path, chunk: bytes, file: BinaryIO, limit: int) -> tuple[bytearray, bool]:
    """All members of a gzip file, of which `chunk` has been read already: files that were joined are one."""
    data, stream, fresh = bytearray(), zlib.decompressobj(wbits=31), True
    try:
        while chunk:
            if fresh:
                chunk = chunk.lstrip(b"\0")  # padding after a member is allowed
            fresh = fresh and not chunk
            data += stream.decompress(chunk, limit + 1 - len(data))
            _check_size(path, data, limit)
            chunk = stream.unused_data
            if stream.eof:
                stream, fresh = zlib.decompressobj(wbits=31), True
            chunk = chunk or file.read(CHUNK)
    except zlib.error as error:
        raise TraceError(f"The trace {path} is a damaged gzip file ({error}).") from None
    return data, not fresh


def _limit() -> int:
    """Bytes of text that a trace may have."""
    said = os.environ.get("MINIVLLM_TRACE_MIB", str(MAX_MIB))
    if not said.isdecimal() or not 0 < int(said) < 1 << 20:
        raise TraceError(
            f"MINIVLLM_TRACE_MIB={said} is no limit for traces. Give a whole number of MiB, such as {MAX_MIB}."
        )
    return int(said) << 20


def _check_size(path: Path, data: bytearray, limit: int) -> None:
    if len(data) > limit:
        raise TraceError(
            f"The trace {path} has more than {limit >> 20} MiB of text, the limit here: in memory it takes up to eight "
            "times as much. To read it all the same, set MINIVLLM_TRACE_MIB to a larger number."
        )


def _is_whole(text: bytes | bytearray) -> bool:
    """Whether a line is whole JSON: it was not cut off, it only lacks its newline."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _read_header(path: Path, data: bytearray, oldest: int) -> Header:
    first = data.split(b"\n", 1)[0]
    if not first:
        raise TraceError(f"The trace {path} is empty: it has not even a header.")
    try:
        raw = msgspec.json.decode(first)
        schema = raw["schema"] if raw["kind"] == "header" else None
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        schema = None
    if type(schema) is not int or schema < oldest:
        raise TraceError(f"{path}, line 1: {NO_TRACE}")
    if schema > SCHEMA:
        raise TraceError(
            f"{path}, line 1: the trace has schema {schema}, and this minivllm reads up to {SCHEMA}. "
            f"It was written by minivllm {raw.get('minivllm', '?')}: install that version or a newer one."
        )
    try:
        known = {"minivllm": "", "vllm": "", "clock": "", "detail": 0, "processes": [], **raw}
        return msgspec.convert(known, Header)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}, line 1: the header can't be right ({error}). The file is damaged.") from None


def _decode_all(path: Path, data: bytearray, schema: int, upgrades: dict[int, Callable]) -> list[Line]:
    if schema == SCHEMA:
        try:
            with _no_garbage_collection():
                lines = decode_lines(data)
        except (msgspec.DecodeError, RecursionError):
            pass  # one of them is odd: find it, line by line
        else:
            if not any(isinstance(line, Header) for line in lines[1:]):
                return lines
    lines = []
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            lines.append(_upgraded(text, schema, upgrades))
        except (msgspec.DecodeError, KeyError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: this is no event ({error}). The file is damaged.") from None
        if number > 1 and isinstance(lines[-1], Header):
            raise TraceError(f"{path}, line {number}: a second header. Two traces were joined in one file: split it.")
    return lines


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Nothing of a trace is garbage while it is read, and looking for some takes seven times as long as reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _upgraded(text: bytes, schema: int, upgrades: dict[int, Callable]) -> Line:
    if schema == SCHEMA:
        return decode(text)
    raw = msgspec.json.decode(text)
    for version in range(schema, SCHEMA):
        raw = upgrades[version](raw)
    return from_raw(raw)


__all__ = ["UPGRADES", "Open", "Part", "PartFile", "TraceError", "check_writable", "find_parts", "read", "write"]
