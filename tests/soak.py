"""Soak: engines are made, used, abused and ended at random, for as long as one likes.

    python tests/soak.py --minutes 30 --seed 1     (make soak MINUTES=30)
    python tests/soak.py --seed 1 --only 17        one round again

Each round is drawn from seed and number alone. It makes an engine (in this process or two, a tiny pool or an ample
one), asks it for short and long answers, aborts, raises in callbacks, calls from two threads, stops and kills its core,
and ends it in one of several ways. Then it must be true that
- every call came back, with the tokens that an engine with an ample pool gives, or the first of them (abort), or the
  error that belongs to the fault;
- no process, thread, descriptor, socket or temporary file is left, and memory does not grow.

A call that hangs ends the run with all stacks. Exit status 0 only if all is well.
"""

import argparse
import faulthandler
import gc
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import psutil  # noqa: E402
from engine.helpers import Surroundings, core_process, is_idle  # noqa: E402
from tiny_models import VOCAB_SIZE, write_tiny_model  # noqa: E402

from minivllm import LLM, RequestOutput, SamplingParams  # noqa: E402
from minivllm.errors import EngineDeadError, InputError  # noqa: E402

HANG_SECONDS = 300  # for one round
WARM_UP_ROUNDS = 6  # until memory and descriptors are what they will be
GROWTH_BYTES = 48 << 20
AMPLE = {"dtype": "float32", "block_size": 4, "num_gpu_blocks_override": 2000, "max_model_len": 160, "max_num_seqs": 32}
POOLS = (41, 60, 2000)  # blocks; the first holds one long request and no more
TINY_ROUND = 0.5  # of the rounds have a tiny pool


class Alas(Exception):
    """Raised by a callback."""


@dataclass
class Round:
    """One engine's life."""

    number: int
    rng: random.Random
    ample: LLM  # says what is right
    done: Counter[str] = field(default_factory=Counter)

    def run(self, folder: str) -> None:
        rng = self.rng
        multiprocess = rng.random() < 0.6
        settings = AMPLE | {
            "num_gpu_blocks_override": rng.choice(POOLS),
            "max_num_seqs": rng.choice((1, 4, 32)),
            "max_num_batched_tokens": rng.choice((32, 160)),
            "enable_prefix_caching": rng.random() < 0.8,
        }
        self.llm = LLM(folder, multiprocess=multiprocess, **settings)
        self.done["engines"] += 1
        acts: list[Callable[[], None]] = [self.ask, self.ask, self.abort, self.raise_in_callback, self.two_threads]
        if multiprocess:
            acts.append(self.pause_core)
        for _ in range(rng.randint(1, 6)):
            rng.choice(acts)()
        rng.choice([self.shut_down, self.shut_down_from_a_thread, self.forget, *[self.kill_core] * multiprocess])()
        del self.llm

    # ------------------------------------------------------------------ what is asked, and what is right

    def draw(self) -> tuple[list[list[int]], list[SamplingParams]]:
        """Short requests and now and then a long one; greedy and seeded; some share a prefix."""
        rng = self.rng
        prompts, params = [], []
        for number in range(rng.choice((1, 3, 12, 40))):
            is_long = rng.random() < 0.15
            self.done["long" if is_long else "short"] += 1
            start = rng.choice(([5, 6, 7, 8] * 4, [], []))
            prompts.append(start + [rng.randrange(3, VOCAB_SIZE) for _ in range(rng.randint(1, 60 if is_long else 8))])
            kind = rng.choice(({"temperature": 0}, {"seed": number, "top_k": 20}))
            params.append(SamplingParams(max_tokens=rng.randint(40, 80) if is_long else rng.randint(1, 8), **kind))
        return prompts, params

    def right(self, prompts: list[list[int]], params: list[SamplingParams]) -> list[list[int]]:
        return tokens(self.ample.generate(prompts, params, use_tqdm=False))

    def ask(self) -> None:
        prompts, params = self.draw()
        assert tokens(self.llm.generate(prompts, params, use_tqdm=False)) == self.right(prompts, params)

    # ------------------------------------------------------------------ what is done to it

    def abort(self) -> None:
        prompts, params = self.draw()
        right = self.right(prompts, params)
        stop = {self.rng.randrange(len(prompts)) for _ in range(3)}
        after = self.rng.randint(1, 5)
        first = self.llm.request_counter

        def on_output(output: RequestOutput) -> bool:
            if self.rng.random() < 0.05:
                self.llm.abort(str(first + min(stop)))
            return int(output.request_id) - first in stop and len(output.outputs[0].token_ids) >= after

        outputs = self.llm.generate(prompts, params, use_tqdm=False, on_output=on_output)
        assert len(outputs) == len(prompts)
        for place, output in enumerate(outputs):
            (completion,) = output.outputs
            if completion.finish_reason == "abort":
                self.done["aborts"] += 1
                assert place in stop and completion.token_ids == right[place][: len(completion.token_ids)]
            else:
                assert completion.token_ids == right[place]
        assert is_idle(self.llm)

    def raise_in_callback(self) -> None:
        prompts, params = self.draw()
        left = self.rng.randint(0, 20)

        def on_output(output: RequestOutput) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Alas

        try:
            self.llm.generate(prompts, params, use_tqdm=False, on_output=on_output)
        except Alas:
            self.done["errors in callbacks"] += 1
        assert is_idle(self.llm)

    def two_threads(self) -> None:
        drawn = [self.draw() for _ in range(2)]
        right = [self.right(*one) for one in drawn]
        results: list[Any] = [None, None]

        def work(index: int) -> None:
            try:
                results[index] = tokens(self.llm.generate(*drawn[index], use_tqdm=False))
            except InputError:
                results[index] = "refused"

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(result in ("refused", right[index]) for index, result in enumerate(results)), results
        assert results != ["refused", "refused"]
        self.done["calls refused"] += results.count("refused")
        assert is_idle(self.llm)

    def pause_core(self) -> None:
        core = core_process(self.llm)
        timer = threading.Timer(self.rng.random() / 2, core.resume)
        core.suspend()
        timer.start()
        self.ask()
        timer.join()
        self.done["pauses"] += 1

    # ------------------------------------------------------------------ how it ends

    def shut_down(self) -> None:
        assert is_idle(self.llm)
        self.llm.shutdown()
        self.llm.shutdown()

    def shut_down_from_a_thread(self) -> None:
        timer = threading.Timer(self.rng.random() / 5, self.llm.shutdown)
        timer.start()
        self._ask_to_the_end("shut down")
        timer.join()

    def kill_core(self) -> None:
        timer = threading.Timer(
            self.rng.random() / 5, core_process(self.llm).send_signal, [self.rng.choice((9, 6, 35))]
        )
        timer.start()
        self._ask_to_the_end("by signal")
        timer.join()
        self.done["kills"] += 1
        self.llm.shutdown()

    def forget(self) -> None:
        self.done["forgotten"] += 1

    def _ask_to_the_end(self, words: str) -> None:
        prompts, params = self.draw()
        for _ in range(2):
            try:
                while True:
                    self.llm.generate(prompts, params, use_tqdm=False)
            except EngineDeadError as error:
                assert words in str(error), error


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


# ---------------------------------------------------------------------- the run


def soak(seed: int, home: Path, go_on: Callable[[int], bool], only: int | None = None) -> Counter[str]:
    """Rounds until `go_on` (of how many there have been) says no; returns what was done. Raises AssertionError.

    home: an empty folder with a short path, in which tempfile makes its folders.
    """
    folder = home / "model"
    folder.mkdir()
    write_tiny_model(folder, seed=seed)
    done: Counter[str] = Counter()
    memory: list[int] = []
    descriptors = 0
    this = psutil.Process()
    with LLM(str(folder), multiprocess=False, **AMPLE) as ample:
        surroundings = Surroundings(home)
        number = 0 if only is None else only
        while go_on(done["rounds"]):
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            one = Round(number, random.Random(f"{seed}-{number}"), ample)
            try:
                one.run(str(folder))
                gc.collect()
                surroundings.check_nothing_left()
                left = {path.name for path in home.iterdir()} - {"model"}
                assert not [name for name in left if not name.startswith("torchinductor_")], left
                memory.append(this.memory_info().rss)
                if done["rounds"] == WARM_UP_ROUNDS:
                    descriptors = this.num_fds()
                assert not descriptors or this.num_fds() <= descriptors, "descriptors are left"
                _check_memory(memory)
            except BaseException as error:
                error.add_note(f"Round {number}: python tests/soak.py --seed {seed} --only {number}")
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()
            done += one.done
            done["rounds"] += 1
            number += 1
    done["MB at the end"] = memory[-1] >> 20
    return done


def _check_memory(memory: list[int]) -> None:
    """The latest rounds take no more than those after the warm-up."""
    settled = memory[WARM_UP_ROUNDS:]
    if len(settled) >= 40:
        before, now = statistics.median(settled[:20]), statistics.median(settled[-20:])
        assert now - before < GROWTH_BYTES, f"memory has grown from {before / 1e6:.0f} to {now / 1e6:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this round alone")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes

    def go_on(rounds: int) -> bool:
        if arguments.only is not None:
            return rounds == 0
        if rounds and rounds % 20 == 0:
            print(f"{rounds} rounds, {psutil.Process().memory_info().rss >> 20} MB", flush=True)
        return time.monotonic() < end

    with tempfile.TemporaryDirectory(prefix="mv-") as home:
        tempfile.tempdir = os.environ["TMPDIR"] = home
        done = soak(arguments.seed, Path(home), go_on, arguments.only)
        tempfile.tempdir = None
    print(", ".join(f"{count} {what}" for what, count in sorted(done.items())))


if __name__ == "__main__":
    main()
