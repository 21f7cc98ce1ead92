"""Recordings: files that say what the real vLLM did, or what it is to be asked.

Owns: how a file is read, which of the three levels it holds, and how it is written.
Interface: load, save, Recording.
Must not know: what a workload means.

A file is a JSON object, gzipped or not. One of three keys says what it holds, a list of workloads: `workloads` is the
scheduler, `cases` the sampler, `scenarios` the whole engine. Without their results (`steps`, …) they can be recorded,
but not compared. traces/vllm-0.22.0/README.md describes all fields.
"""

import gzip
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

Workload = dict[str, Any]

LIST_KEYS = {"scheduler": "workloads", "sampler": "cases", "engine": "scenarios"}
# of a workload; and of the dict, or the dicts of the list, under one of its keys
NEEDED_KEYS = {
    "scheduler": {
        "": ("name", "config", "eos_token_id", "requests"),
        "config": (
            "block_size",
            "num_blocks",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "enable_prefix_caching",
            "enable_chunked_prefill",
            "long_prefill_token_threshold",
            "policy",
        ),
        "requests": (
            "id",
            "arrival_step",
            "prompt_token_ids",
            "max_tokens",
            "min_tokens",
            "ignore_eos",
            "stop_token_ids",
            "priority",
            "abort_step",
            "output",
        ),
    },
    "sampler": {
        "": ("rows",),
        "rows": ("sampling", "prompt_token_ids", "output_token_ids", "bad_words_token_ids", "logits"),
    },
    "engine": {
        "": ("name", "engine_args", "requests"),
        "engine_args": (),
        "requests": ("prompt", "prompt_token_ids", "sampling"),
    },
}
RESULT_KEYS = {"scheduler": ("steps",), "sampler": (), "engine": ("steps", "outputs")}
ROW_RESULT_KEYS = ("processed_logprobs", "greedy_token")  # a sampler case has its results in its rows
MAX_COUNT = 1000  # workloads of one family from one seed
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(slots=True)
class Recording:
    """The workloads of one file. level: scheduler, sampler or engine."""

    level: str
    source: str
    workloads: list[Workload] = field(default_factory=list)

    def names(self) -> list[str]:
        """A name for every workload; sampler cases have numbers."""
        return [workload.get("name", f"case-{index}") for index, workload in enumerate(self.workloads)]

    def families(self) -> list[str]:
        """The family of every workload: its name without the number at the end."""
        return [_family(name) for name in self.names()]

    def select(self, only: str | None = None, limit: int | None = None) -> "Recording":
        """The workloads whose name or family is `only`, at most `limit` of them.

        Raises InputError when there is none of that name, or the limit is none.
        """
        chosen = self.workloads
        if limit is not None and limit < 1:
            raise InputError(f"--limit {limit} must be at least 1.")
        if only is not None:
            names = zip(self.workloads, self.names(), self.families(), strict=True)
            chosen = [workload for workload, name, family in names if only in (name, family)]
            if not chosen:
                families = ", ".join(dict.fromkeys(self.families()))
                raise InputError(f"--only {only}: no workload or family of this name. The families are: {families}.")
        return Recording(self.level, self.source, chosen[:limit])

    def without_results(self) -> "Recording":
        """The workloads alone, as a replay or a recorder takes them."""
        return Recording(self.level, self.source, [without_results(self.level, work) for work in self.workloads])


def without_results(level: str, workload: Workload) -> Workload:
    """A workload as it is handed to a replay: what is asked, not what came out."""
    if level == "sampler":
        rows = [{key: value for key, value in row.items() if key not in ROW_RESULT_KEYS} for row in workload["rows"]]
        return {"rows": rows}
    return {key: value for key, value in workload.items() if key not in RESULT_KEYS[level]}


def has_results(level: str, workload: Workload) -> bool:
    if level == "sampler":
        return all(key in row for row in workload["rows"] for key in ROW_RESULT_KEYS)
    return all(isinstance(workload.get(key), list) for key in RESULT_KEYS[level])


def numbers(seed: int, count: int) -> range:
    """The numbers of the workloads that are made from a seed: no other seed has them.

    Raises InputError for a seed below 0, or a count outside 1 to MAX_COUNT.
    """
    if seed < 0 or not 1 <= count <= MAX_COUNT:
        raise InputError(f"--generate {seed} --count {count}: a seed is at least 0, a count is 1 to {MAX_COUNT}.")
    return range(seed * MAX_COUNT, seed * MAX_COUNT + count)


def load(path: Path) -> Recording:
    """Read a recording. Raises InputError for a file that isn't there, is cut off, or is something else."""
    data = _read_json(path)
    levels = [level for level, key in LIST_KEYS.items() if isinstance(data, dict) and isinstance(data.get(key), list)]
    if len(levels) != 1:
        raise InputError(
            f"{path} is no recording: a recording is a JSON object with one of the lists workloads (scheduler), cases "
            "(sampler) or scenarios (engine)."
        )
    (level,) = levels
    recording = Recording(level, str(data.get("source", "")), data[LIST_KEYS[level]])
    if not recording.workloads:
        raise InputError(f"{path} is a recording of the {level}, but it is empty.")
    for index, workload in enumerate(recording.workloads):
        missing = [name for where, keys in NEEDED_KEYS[level].items() for name in _missing(workload, where, keys)]
        if missing:
            raise InputError(
                f"{path}: number {index} of its {LIST_KEYS[level]} has no {' and no '.join(missing)}. "
                "Is this another format, or a newer one?"
            )
    return recording


def _missing(workload: Any, where: str, keys: tuple[str, ...]) -> list[str]:
    """Which of `keys` the workload lacks, in itself (where is "") or under one of its keys."""
    if not isinstance(workload, dict):
        return list(keys)
    inside = workload.get(where) if where else workload
    for part in inside if isinstance(inside, list) else [inside]:
        if not isinstance(part, dict):
            return [where]
        if missing := [f"{where}.{key}".strip(".") for key in keys if key not in part]:
            return missing
    return []


def save(path: Path, recording: Recording) -> None:
    """Write a recording, gzipped if the name ends in .gz. The same recording gives the same bytes."""
    content = {"source": recording.source, LIST_KEYS[recording.level]: recording.workloads}
    data = json.dumps(content, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror or error}.") from error


def _read_json(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
        return json.loads(data)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise InputError(f"{path} can't be unpacked: {error}. It is damaged.") from error
        raise InputError(f"{path} can't be read: {error.strerror or error}.") from error
    except zlib.error as error:
        raise InputError(f"{path} can't be unpacked: {error}. It is damaged.") from error
    except EOFError as error:
        raise InputError(f"{path} is cut off: its gzip stream has no end. Copy it again.") from error
    except ValueError as error:  # no JSON, or no text at all
        raise InputError(f"{path} is no JSON, or is cut off ({error}).") from error


def _family(name: str) -> str:
    stem, _, number = name.rpartition("-")
    return stem if stem and number.isdigit() else name
