"""What several test files of this folder use."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from minivllm import LLM, RequestOutput, SamplingParams

MODES = ("in_process", "two_processes")
SETTINGS = {
    "dtype": "float32",
    "block_size": 4,
    "num_gpu_blocks_override": 80,
    "max_model_len": 96,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 48,
}
PATIENCE_SECONDS = 25  # five times what the slowest of these things may take


def is_idle(llm: LLM) -> bool:
    """Whether nothing is open and every block is free: the prefix cache can be reset only then.

    Across processes the core answers after it has done all that came before.
    """
    return not llm.llm_engine.has_unfinished_requests() and llm.reset_prefix_cache()


def greedy(llm: LLM, prompts: Any, max_tokens: int = 8, **params: Any) -> list[list[int]]:
    """The greedy token ids of each prompt."""
    outputs = run(llm, prompts, temperature=0, max_tokens=max_tokens, **params)
    return [output.outputs[0].token_ids for output in outputs]


def run(llm: LLM, prompts: Any, on_output: Any = None, priority: Any = None, **params: Any) -> list[RequestOutput]:
    return llm.generate(prompts, SamplingParams(**params), use_tqdm=False, on_output=on_output, priority=priority)


def core_process(llm: LLM) -> psutil.Process:
    """The process of an engine's core."""
    return psutil.Process(llm.llm_engine.engine_core.manager.process.pid)


def core_processes(parent: psutil.Process | None = None) -> list[psutil.Process]:
    """The living cores among a process's descendants (None: this one's)."""
    return [child for child in (parent or psutil.Process()).children(recursive=True) if is_alive(child, core=True)]


def is_alive(process: psutil.Process, core: bool = False) -> bool:
    """Whether a process runs; `core`: and is an engine core."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return not core or any("minivllm.engine.core" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def socket_dirs(home: Path) -> list[Path]:
    """The private folders of sockets that are there now."""
    return [path for path in home.glob("minivllm-*") if any(entry.is_socket() for entry in path.iterdir())]


class Surroundings:
    """What an engine could leave behind: processes, threads, folders. Those of the shared engines don't count."""

    def __init__(self, home: Path) -> None:
        self.home = home  # where temporary folders are made now
        self.cores_before = set(core_processes())
        self.threads_before = set(threading.enumerate())

    def cores(self) -> list[psutil.Process]:
        return [process for process in core_processes() if process not in self.cores_before]

    def threads(self) -> list[threading.Thread]:
        """New ones, but for the one that tqdm keeps for all its bars."""
        new = [thread for thread in threading.enumerate() if thread not in self.threads_before]
        return [thread for thread in new if thread.name != "tqdm_monitor"]

    def check_nothing_left(self) -> None:
        wait_until(lambda: not self.cores(), "the core has ended")
        wait_until(lambda: not self.threads(), "the threads have ended")
        assert not list(self.home.glob("minivllm-*"))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_SECONDS} s"
        time.sleep(0.05)
