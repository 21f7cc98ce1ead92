"""A whole engine whose model is a checksum: what attention reads through the block table decides the next token.

Owns: the model, and what a run looks like afterwards. Core, runner and sampler are the engine's, built of parts.
Interface: ChecksumRun, run_case (an observer).
Must not know: which parts are broken, or what is expected.

The next token of a row is a hash over what its attention reads, so any wrong slot, stale block, lost position or
exchanged row changes the text; a step takes about a millisecond, and no model is needed.

A workload is a recorded one (lockstep), and may have besides: `scripted`, the tokens are the requests' `output`;
`sampling`, temperature and top_p for every request; `texts`, the outputs are bytes of a text, which is streamed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from minivllm.attention.metadata import CommonAttentionMetadata
from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.request import Request
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader.checksum_worker import FIRST_TOKEN, NUM_TOKENS
from minivllm.course.grader.child import Endless, Parts
from minivllm.course.grader.observe import HASH_SEED, picture
from minivllm.engine.core import EngineCore
from minivllm.engine.messages import EngineCoreRequest
from minivllm.engine.output_processor import OutputProcessor
from minivllm.parts import load_part
from minivllm.proof.lockstep.recording import Workload
from minivllm.proof.lockstep.scheduler import Between, SchedulerAdapter, build_core
from minivllm.sampling_params import SamplingParams
from minivllm.worker.model_runner import ModelRunner
from minivllm.worker.recorded_executor import ExecutorWithoutModel

SMALL_VOCAB = 32  # of workloads with `sampling`
BYTE_TOKEN = 10  # token 10 is byte 0, in workloads with `texts`


class ChecksumModel:
    """Two layers. K and V of the first are the token and its position; those of the second, a hash over all that the
    token's attention has read in the first: so they depend on every token before it, as in a real model. What comes out
    at the last token of a row is a hash over all that the row reads in the second: 20 bytes.

    sampling: logits of all tokens are made of those bytes; else one token's is 1.0 and the others' are 0.0.
    """

    def __init__(self, block_size: int, vocab_size: int, sampling: bool) -> None:
        self.block_size, self.vocab_size, self.sampling = block_size, vocab_size, sampling

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: list[torch.Tensor],
        metadata: Any,
    ) -> torch.Tensor:
        """Write the step's tokens to their slots, then read every row back through the block table: uint8[tokens, 20].

        kv_caches: one, int64[num_slots, 3]: token, position; hash.
        """
        common: CommonAttentionMetadata = metadata.common
        cache, slot_mapping = kv_caches[0].numpy(), common.slot_mapping.numpy()
        kept = slot_mapping >= 0
        written = np.stack([input_ids.numpy(), positions.numpy()], axis=1)
        cache[slot_mapping[kept], :2] = written[kept]
        starts, tables = common.query_start_loc.numpy(), common.block_table_tensor.numpy()
        hidden = torch.zeros(len(input_ids), 20, dtype=torch.uint8)
        read = [
            self._second_layer(cache, slot_mapping[first:end], tables[row], length)
            for row, (first, end, length) in enumerate(zip(starts, starts[1:], common.seq_lens.numpy(), strict=False))
        ]
        for slots, end in zip(read, starts[1:], strict=True):
            digest = hashlib.sha1(cache[slots].tobytes()).digest()
            hidden[end - 1] = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        return hidden

    def _second_layer(self, cache: np.ndarray, own_slots: np.ndarray, table: np.ndarray, length: int) -> np.ndarray:
        """Write the hashes of a row's tokens; returns the slots that the row reads."""
        places = np.arange(length)
        slots = table[places // self.block_size].astype(np.int64) * self.block_size + places % self.block_size
        before = max(length - len(own_slots), 0)
        state = hashlib.sha1(cache[slots[:before], :2].tobytes())
        for slot, written in zip(slots[before:], own_slots, strict=False):
            state.update(cache[slot, :2].tobytes())
            cache[written, 2] = int.from_bytes(state.digest()[:8], "big", signed=True)
        return slots

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32[rows, vocab_size]."""
        digests = hidden.numpy()
        if self.sampling:
            return torch.from_numpy(np.concatenate([digests, digests], axis=1)[:, : self.vocab_size] / 64).float()
        logits = torch.zeros(len(digests), self.vocab_size)
        for row, digest in enumerate(digests):
            logits[row, FIRST_TOKEN + int.from_bytes(digest[:8].tobytes(), "big") % NUM_TOKENS] = 1.0
        return logits


class _ChecksumBackend:
    """The attention backend of the checksum model: a cache of three numbers a slot, and metadata as they are."""

    def kv_cache_shape(self, num_blocks: int, block_size: int, *model: int) -> tuple[int, int]:
        return num_blocks * block_size, 3

    def build(self, common: CommonAttentionMetadata) -> SimpleNamespace:
        return SimpleNamespace(common=common)


class ChecksumExecutor(ExecutorWithoutModel):
    """The engine's own model runner, around a checksum.

    vLLM: v1/executor/uniproc_executor.py::UniProcExecutor (role)
    """

    def __init__(self, workload: Workload, parts: Parts) -> None:
        self.sampling, self.parts = bool(workload.get("sampling")), parts

    def initialize_from_config(self, config: EngineConfig, num_blocks: int) -> None:
        """The runner is made here: it has arrays of max_model_len."""
        vocab_size = SMALL_VOCAB if self.sampling else FIRST_TOKEN + NUM_TOKENS
        self.runner = ModelRunner(
            config,
            SimpleNamespace(num_kv_heads=1, head_size=1, num_layers=1, vocab_size=vocab_size),
            ChecksumModel(config.block_size, vocab_size, self.sampling),
            _ChecksumBackend(),
            num_blocks,
            torch.int64,
            torch.device("cpu"),
            *(load_part(seam, self.parts) for seam in ("input_batch", "flatten", "sampler")),
        )
        self.runner.kv_caches[0].fill_(-1)  # no token and no position, in a slot that nobody has written

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        self.batch = None
        result = self.runner.execute_model(plan)
        if self.runner.execute_model_state is not None:
            self.batch = self.runner.execute_model_state.batch
        return result

    def describe_batch(self) -> dict[str, list[int]]:
        """The flat batch of the latest step; {} if that had no tokens."""
        arrays = ("input_ids", "positions", "query_start_loc", "seq_lens", "slot_mapping", "logits_indices")
        return {} if self.batch is None else {name: getattr(self.batch, name).tolist() for name in arrays}

    @boundary("sample_tokens")
    def sample_tokens(self) -> ModelRunnerOutput:
        """vLLM: v1/executor/uniproc_executor.py::UniProcExecutor.sample_tokens"""
        return self.runner.sample_tokens()


class _Requests(SchedulerAdapter):
    """Requests of a workload, with the settings of its sampling."""

    def __init__(self, workload: Workload, core: EngineCore) -> None:
        super().__init__(workload, core)
        self.sampling = workload.get("sampling") or {}

    def make_request(self, recorded: dict[str, Any], arrival_time: float) -> Request:
        request = super().make_request(recorded, arrival_time)
        if self.sampling:
            number = int(recorded["id"].lstrip("r"))
            params = SamplingParams(max_tokens=recorded["max_tokens"], ignore_eos=True, seed=number, **self.sampling)
            request.sampling_params = params
        return request


class ChecksumRun:
    """A workload on an engine core with the checksum, or with the tokens that a `scripted` one says."""

    def __init__(self, workload: Workload, parts: Parts) -> None:
        self.workload = workload
        self.executor = None if workload.get("scripted") else ChecksumExecutor(workload, parts)
        self.core = build_core(workload, parts, self.executor, hash_seed=HASH_SEED)
        self.core.model_executor = Between(self.core.model_executor, self._note_plan)
        self.outputs: dict[str, list[int]] = {}
        self.texts: dict[str, str] = {}
        tokenizer = ByteTokenizer() if workload.get("texts") else None
        self.processor = OutputProcessor(tokenizer, text_stream_class=load_part("text_stream", parts))
        self._requests = _Requests(workload, self.core)
        self._pending = list(workload["requests"])

    @property
    def owners(self) -> list[Any]:
        """The objects with boundaries, for a recorder."""
        scheduler = self.core.scheduler
        manager = scheduler.kv_cache_manager
        owners = [self.core, scheduler, manager, manager.block_pool, self.processor]
        if self.executor is not None:
            runner = self.executor.runner
            owners += [self.executor, runner, runner.input_batch]
            if self.workload.get("sampling"):  # elsewhere one token has all, so there is nothing to see
                owners.append(runner.sampler)
        return owners

    def steps(self, most: int) -> Iterator[dict[str, Any]]:
        """Every step of the workload. Raises Endless after so many rounds; one in which nobody is there is no step."""
        for number in range(most):
            self._add_arrivals(number)
            if self.core.scheduler.has_requests():
                outputs, _ = self.core.step()
                self._take_in([] if outputs is None else outputs.outputs)
                yield self._describe_step()
            if not self._pending and not self.core.scheduler.has_requests():
                return
        raise Endless(f"it did not end within {most} steps")

    def _add_arrivals(self, number: int) -> None:
        while self._pending and self._pending[0]["arrival_step"] <= number:
            recorded = self._pending.pop(0)
            request = self._requests.make_request(recorded, float(number * 1000 + len(self.outputs)))
            self.outputs[request.request_id] = []
            if self.workload.get("texts"):
                message = EngineCoreRequest(
                    request.request_id,
                    request.prompt_token_ids,
                    request.sampling_params,
                    request.arrival_time,
                    external_req_id=request.request_id,
                )
                self.processor.add_request(message, None)
            self.core.add_request(request)

    def _note_plan(self, plan: SchedulerOutput) -> None:
        self.plan, self.planned = plan, picture(self.core.scheduler)

    def _take_in(self, outputs: list[Any]) -> None:
        for output in outputs:
            self.outputs[output.request_id] += output.new_token_ids
        if self.workload.get("texts"):
            for done in self.processor.process_outputs(outputs, 0.0).request_outputs:
                self.texts[done.request_id] = done.outputs[0].text

    def _describe_step(self) -> dict[str, Any]:
        """The latest step as plain values: the plan, the rows, and the states after plan and update."""
        return {
            "tokens": list(self.plan.num_scheduled_tokens.items()),
            "preempted": sorted(self.plan.preempted_req_ids),
            "rows": [] if self.executor is None else list(self.executor.runner.input_batch.req_ids),
            "batch": {} if self.executor is None else self.executor.describe_batch(),
            "planned": self.planned,
            "updated": picture(self.core.scheduler),
            "outputs": {req_id: list(tokens) for req_id, tokens in self.outputs.items()},
            "texts": dict(self.texts),
        }


def run_case(parts: Parts, asked: Mapping[str, Any], seen: list[Any]) -> list[Any]:
    """Every step of a workload on the checksum engine."""
    for step in ChecksumRun(asked["workload"], parts).steps(asked["max_steps"]):
        seen.append(step)  # one by one: a crash leaves what came before it
    return seen


# ---------------------------------------------------------------------- text


class ByteTokenizer:
    """A tokenizer with one token for each byte: a character of four bytes is four tokens."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
        vocab = {f"<{number}>": number for number in range(BYTE_TOKEN)}
        vocab |= {letter: BYTE_TOKEN + place for place, letter in enumerate(alphabet)}
        self.backend_tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        self.backend_tokenizer.decoder = decoders.ByteLevel()

    def encode(self, text: str) -> list[int]:
        return [BYTE_TOKEN + byte for byte in text.encode()]


def _byte_of(letter: str) -> int:
    """The byte that a letter of the byte-level alphabet stands for: printable bytes for themselves, others from 256."""
    code = ord(letter)
    if code < 256:
        return code
    hidden = [byte for byte in range(256) if not (33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255)]
    return hidden[code - 256]
