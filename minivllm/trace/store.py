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
from typing import Any, NamedTuple

import msgspec

from minivllm.errors import InputError
from minivllm.trace.events import SCHEMA, Event
from minivllm.trace.schema import COMMON, End, Header, Line, Open, decode, decode_lines, encode_lines, from_raw

logger = logging.getLogger(__name__)

# schema number n -> what makes a line of version n one of version n + 1; lines are dicts here, the header is one too
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
GZIP_MAGIC = b"\x1f\x8b"


class TraceError(InputError):
    """A file that is no trace, or one that can't be right. The message names the line or the events.

    vLLM: none, vLLM writes no trace file
    """


class Part(NamedTuple):
    """What one file holds.

    vLLM: none, see TraceError
    """

    header: Header
    lines: list[Line]  # without header and end
    complete: bool  # for a part: it was written to its end
    truncated: bool  # the last line was cut off


# ---------------------------------------------------------------------- while the engine runs


class PartFile:
    """A sink: one process's part of a trace. A disk that is full or can't be written warns once, and no more.

    warn: False in the core's process, whose part the caller's process will find incomplete.

    vLLM: none, see TraceError
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
    """Whether a file can be made at `path`; makes the folders above it. Warns if not."""
    probe = path.with_name(f"{path.name}.{os.getpid()}.probe")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        warn_not_written(path, error)
        return False
    return True


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
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read(path: Path, upgrades: dict[int, Callable] = UPGRADES) -> Part:
    """Read a trace or a part of one. What follows the last whole line is dropped.

    Raises TraceError with the line number for a file that is no trace, is damaged in its middle, or is of a version
    that is newer than this one's.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"The trace {path} can't be read: {error.strerror}. Give the path of a .jsonl file.") from None
    truncated = False
    if data.startswith(GZIP_MAGIC):
        data, truncated = _gunzip(path, data)
    whole, newline, rest = data.rpartition(b"\n")
    if rest:
        truncated = True
    header = _read_header(path, whole)
    lines = _decode_all(path, whole + newline, header.schema, upgrades)
    complete = isinstance(lines[-1], End) if header.part else not truncated
    header = msgspec.structs.replace(lines[0], schema=SCHEMA)
    return Part(header, [line for line in lines[1:] if not isinstance(line, End)], complete, truncated)


def _gunzip(path: Path, data: bytes) -> tuple[bytes, bool]:
    """What can be had of a gzip file, and whether its end is missing."""
    stream = zlib.decompressobj(wbits=31)
    try:
        return stream.decompress(data), not stream.eof
    except zlib.error as error:
        raise TraceError(f"The trace {path} is a damaged gzip file ({error}).") from None


def _read_header(path: Path, data: bytes) -> Header:
    first = data.split(b"\n", 1)[0]
    if not first:
        raise TraceError(f"The trace {path} is empty: it has not even a header.")
    try:
        raw = msgspec.json.decode(first)
        schema = raw["schema"] if raw["kind"] == "header" else None
    except (msgspec.DecodeError, KeyError, TypeError):
        schema = None
    if not isinstance(schema, int):
        raise TraceError(f"{path}, line 1: this is no trace of minivllm. A trace begins with a line of kind header.")
    if schema > SCHEMA:
        raise TraceError(
            f"{path}, line 1: the trace has schema {schema}, and this minivllm reads up to {SCHEMA}. "
            f"It was written by minivllm {raw.get('minivllm', '?')}: install that version or a newer one."
        )
    return msgspec.convert({"minivllm": "", "vllm": "", "clock": "", "detail": 0, "processes": [], **raw}, Header)


def _decode_all(path: Path, data: bytes, schema: int, upgrades: dict[int, Callable]) -> list[Line]:
    if schema == SCHEMA:
        try:
            with _no_garbage_collection():
                lines = decode_lines(data)
        except msgspec.DecodeError:
            pass  # one of them is odd: find it, line by line
        else:
            if not any(isinstance(line, Header) for line in lines[1:]):
                return lines
    lines = []
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            lines.append(_upgraded(text, schema, upgrades))
        except (msgspec.DecodeError, KeyError) as error:
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
