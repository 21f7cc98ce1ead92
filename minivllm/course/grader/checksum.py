"""A whole engine whose model is a checksum: what attention reads through the block table decides the next token.

Owns: the order of a step, the model and its cache, what a run looks like afterwards. Built of parts, as labs do.
Interface: ChecksumEngine, run_case (an observer).
Must not know: which parts are broken, or what is expected.

The next token of a row is a hash over what its attention reads, so any wrong slot, stale block, lost position or
exchanged row changes the text; a step takes about a millisecond, and no model is needed.

A workload is a recorded one (lockstep), and may have besides: `scripted`, the tokens are the requests' `output`;
`sampling`, temperature and top_p for every request; `texts`, the outputs are bytes of a text, which is streamed.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from minivllm.boundary import boundary
from minivllm.core.request import Request
from minivllm.core.sched_output import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader.checksum_worker import FIRST_TOKEN, NUM_TOKENS
from minivllm.course.grader.child import Endless, Parts
from minivllm.course.grader.observe import Adapter, make_scheduler, picture
from minivllm.engine.detokenizer import TextStream
from minivllm.engine.messages import EngineCoreOutputs, EngineCoreRequest
from minivllm.engine.output_processor import OutputProcessor
from minivllm.proof.lockstep.recording import Workload
from minivllm.sample.sampler import Sampler
from minivllm.sampling_params import SamplingParams
from minivllm.worker.batch import FlatBatch, flatten
from minivllm.worker.input_batch import InputBatch

SMALL_VOCAB = 32  # of workloads with `sampling`
BYTE_TOKEN = 10  # token 10 is byte 0, in workloads with `texts`


class ChecksumModel:
    """Two layers. K and V of the first are the token and its position; those of the second, a hash over all that the
    token's attention has read in the first: so they depend on every token before it, as in a real model.
    """

    def __init__(self, num_slots: int) -> None:
        self.cache = np.full((num_slots, 3), -1, dtype=np.int64)  # by slot: token, position; hash

    def digests(self, batch: FlatBatch, block_table: np.ndarray, block_size: int) -> list[bytes]:
        """Write the step's tokens to their slots, then read every row back through the block table."""
        kept = batch.slot_mapping >= 0
        self.cache[batch.slot_mapping[kept], :2] = np.stack([batch.input_ids[kept], batch.positions[kept]], axis=1)
        read = [self._second_layer(batch, row, block_table[row], block_size) for row in range(len(batch.seq_lens))]
        return [hashlib.sha1(self.cache[slots].tobytes()).digest() for slots in read]

    def _second_layer(self, batch: FlatBatch, row: int, table: np.ndarray, block_size: int) -> np.ndarray:
        """Write the hashes of a row's tokens; returns the slots that the row reads."""
        first, end = batch.query_start_loc[row : row + 2]
        places = np.arange(batch.seq_lens[row])
        slots = table[places // block_size].astype(np.int64) * block_size + places % block_size
        before = max(len(places) - (end - first), 0)
        state = hashlib.sha1(self.cache[slots[:before], :2].tobytes())
        for slot, written in zip(slots[before:], batch.slot_mapping[first:end], strict=False):
            state.update(self.cache[slot, :2].tobytes())
            self.cache[written, 2] = int.from_bytes(state.digest()[:8], "big", signed=True)
        return slots


class ChecksumRunner:
    """vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner (role)"""

    def __init__(self, workload: Workload, parts: Parts) -> None:
        config = workload["config"]
        self.workload = workload
        self.block_size = config["block_size"]
        self.script = {r["id"]: r["output"] for r in workload["requests"]} if workload.get("scripted") else None
        self.model = ChecksumModel(config["num_blocks"] * self.block_size)
        self.input_batch = parts.get("InputBatch", InputBatch)(
            config["max_num_seqs"],
            config["max_model_len"] + 1,
            self.block_size,
            SMALL_VOCAB if workload.get("sampling") else FIRST_TOKEN + NUM_TOKENS,
            torch.device("cpu"),
            parts.get("flatten", flatten),
        )
        self.sampler = parts.get("Sampler", Sampler)(0, torch.device("cpu"))

    @boundary("prepare_inputs")
    def prepare_inputs(self, plan: SchedulerOutput) -> FlatBatch:
        """vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs"""
        return self.input_batch.flatten(plan)

    @boundary("sample_tokens")
    def sample_tokens(self, batch: FlatBatch) -> ModelRunnerOutput:
        """Run the model and choose a token for every row; none where the prompt is not complete yet.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner.sample_tokens
        """
        rows = self.input_batch
        digests = self.model.digests(batch, rows.block_table.block_table, self.block_size)
        discarded = rows.rows_with_incomplete_prompt(batch.seq_lens)
        tokens = self._choose(digests, discarded)
        sampled = [[] if row in discarded else [token] for row, token in enumerate(tokens)]
        rows.append_sampled_tokens(sampled)
        return ModelRunnerOutput(list(rows.req_ids), dict(rows.req_id_to_index), sampled)

    def _choose(self, digests: list[bytes], discarded: set[int]) -> list[int]:
        if self.script is not None:
            states = [self.input_batch.requests[req_id] for req_id in self.input_batch.req_ids]
            return [self._scripted(state.req_id, len(state.output_token_ids)) for state in states]
        if self.workload.get("sampling"):
            logits = torch.tensor([[byte / 64 for byte in (digest + digest)[:SMALL_VOCAB]] for digest in digests])
            metadata = self.input_batch.make_sampling_metadata()
            return self.sampler.forward(logits, metadata, discarded).sampled_token_ids.tolist()
        return [FIRST_TOKEN + int.from_bytes(digest[:8], "big") % NUM_TOKENS for digest in digests]

    def _scripted(self, req_id: str, place: int) -> int:
        output = self.script[req_id]
        return output[min(place, len(output) - 1)]


class _Requests(Adapter):
    """Requests of a workload, with the settings of its sampling."""

    def __init__(self, workload: Workload, parts: Parts) -> None:
        super().__init__(workload, parts)
        self.sampling = workload.get("sampling") or {}

    def make_request(self, recorded: dict[str, Any], arrival_time: float) -> Request:
        request = super().make_request(recorded, arrival_time)
        if self.sampling:
            number = int(recorded["id"].lstrip("r"))
            params = SamplingParams(max_tokens=recorded["max_tokens"], ignore_eos=True, seed=number, **self.sampling)
            request.sampling_params = params
        return request


class ChecksumEngine:
    """vLLM: v1/engine/core.py::EngineCore (role)"""

    def __init__(self, workload: Workload, parts: Parts) -> None:
        self.workload = workload
        self.scheduler = make_scheduler(workload["config"], parts)
        self.runner = ChecksumRunner(workload, parts)
        self.outputs: dict[str, list[int]] = {}
        self.texts: dict[str, str] = {}
        self.processor = OutputProcessor(byte_tokenizer() if workload.get("texts") else None)
        self._text_stream = parts.get("TextStream", TextStream)
        self._requests = _Requests(workload, parts)
        self._pending = list(workload["requests"])

    @property
    def owners(self) -> list[Any]:
        """The objects with boundaries, for a recorder."""
        manager = self.scheduler.kv_cache_manager
        rows = self.runner.input_batch
        return [
            self,
            self.scheduler,
            manager,
            manager.block_pool,
            self.runner,
            rows,
            self.runner.sampler,
            self.processor,
        ]

    def has_work(self) -> bool:
        return bool(self._pending) or self.scheduler.has_requests()

    def add_arrivals(self, number: int) -> None:
        """Add the requests that arrive before this step."""
        while self._pending and self._pending[0]["arrival_step"] <= number:
            recorded = self._pending.pop(0)
            request = self._requests.make_request(recorded, float(number * 1000 + len(self.outputs)))
            self.outputs[request.request_id] = []
            if self.workload.get("texts"):
                self._open_text(request)
            self.scheduler.add_request(request)

    def _open_text(self, request: Request) -> None:
        message = EngineCoreRequest(
            request.request_id,
            request.prompt_token_ids,
            request.sampling_params,
            request.arrival_time,
            external_req_id=request.request_id,
        )
        self.processor.add_request(message, None)
        detokenizer = self.processor.request_states[request.request_id].detokenizer
        detokenizer.text_stream = self._text_stream(
            self.processor.tokenizer.backend_tokenizer, request.prompt_token_ids, request.sampling_params
        )

    @boundary("step")
    def step(self) -> tuple[EngineCoreOutputs, bool]:
        """One step, as EngineCore.step has it; the outputs are kept.

        vLLM: v1/engine/core.py::EngineCore.step
        """
        self.plan, self.batch = self.scheduler.schedule(), None
        self.planned = picture(self.scheduler)
        self.runner.input_batch.update_states(self.plan)
        result = EMPTY_MODEL_RUNNER_OUTPUT
        if self.plan.num_scheduled_tokens:
            self.batch = self.runner.prepare_inputs(self.plan)
            result = self.runner.sample_tokens(self.batch)
        outputs = self.scheduler.update_from_output(self.plan, result)
        for output in outputs:
            self.outputs[output.request_id] += output.new_token_ids
        if self.workload.get("texts"):
            for done in self.processor.process_outputs(outputs, 0.0).request_outputs:
                self.texts[done.request_id] = done.outputs[0].text
        return EngineCoreOutputs(outputs, 1.0), bool(self.plan.num_scheduled_tokens)

    def describe_step(self) -> dict[str, Any]:
        """The latest step as plain values: the plan, the flat batch, and the states after both."""
        batch = self.batch
        arrays = ("input_ids", "positions", "query_start_loc", "seq_lens", "slot_mapping", "logits_indices")
        return {
            "tokens": list(self.plan.num_scheduled_tokens.items()),
            "preempted": sorted(self.plan.preempted_req_ids),
            "rows": list(self.runner.input_batch.req_ids),
            "batch": {} if batch is None else {name: getattr(batch, name).tolist() for name in arrays},
            "planned": self.planned,
            "updated": picture(self.scheduler),
            "outputs": {req_id: list(tokens) for req_id, tokens in self.outputs.items()},
            "texts": dict(self.texts),
        }


def run_case(parts: Parts, asked: Mapping[str, Any], seen: list[Any]) -> list[Any]:
    """Every step of a workload on the checksum engine."""
    engine, number = ChecksumEngine(asked["workload"], parts), 0
    while engine.has_work():
        if number >= asked["max_steps"]:
            raise Endless(f"it did not end within {number} steps")
        engine.add_arrivals(number)
        if engine.scheduler.has_requests():
            engine.step()
            seen.append(engine.describe_step())
        number += 1
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


def byte_tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


def _byte_of(letter: str) -> int:
    """The byte that a letter of the byte-level alphabet stands for: printable bytes for themselves, others from 256."""
    code = ord(letter)
    if code < 256:
        return code
    hidden = [byte for byte in range(256) if not (33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255)]
    return hidden[code - 256]
