"""The events of a trace: which kinds there are, what every event has, how an event is made of a call.

Owns: the table of kinds; `Event`, the fields that all kinds share; `Call`, what an event's `view` is given.
Interface: KINDS, Event, Unfinished, Unknown, Call. The kinds' own fields are in events_caller, events_ipc, events_core,
events_cache, events_worker and events_kernel; schema.py puts them together.
Must not know: the engine. A view is handed live objects and reads small things off them: ids, lengths, lists on the
CPU, shapes. Below detail 2 it never reads a tensor's values: on a GPU that would wait for the device.

An event is one call of a marked method. Its fields are named as in vLLM. [before, after] is a value at the call's entry
and at its exit. An empty list is left out of the file. A field that is None is left out too: the call failed, or there
is nothing to say.
"""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

if TYPE_CHECKING:  # reading a trace needs nothing of the engine
    from minivllm.config import TraceWatch

SCHEMA = 1  # goes up when a kind or a field is renamed, removed, or changes its meaning or unit: see store.UPGRADES


class Kind(NamedTuple):
    """One row of the table."""

    kind: str  # as @boundary names it
    boundary: str | None  # B1..B27 of the map of vLLM; None: a parent that has no number there
    process: str  # where it happens when the core has a process of its own
    method: str  # the marked one
    vllm: str  # its counterpart
    absent: str = ""  # when a finished request can be without it


_CACHE_OFF = "prefix caching off"
_CORE = "v1/engine/core.py::EngineCore"
_CLIENT = "v1/engine/core_client.py::SyncMPClient"
_SCHEDULER = "v1/core/sched/scheduler.py::Scheduler"
_MANAGER = "v1/core/kv_cache_manager.py::KVCacheManager"
_SINGLE = "v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager"
_POOL = "v1/core/block_pool.py::BlockPool"
_RUNNER = "v1/worker/gpu_model_runner.py::GPUModelRunner"
_TRITON = "v1/attention/backends/triton_attn.py::TritonAttentionImpl"

# fmt: off
_TABLE = [
    ("generate", "B1", "caller", "LLM.generate", "entrypoints/llm.py::LLM.generate", "asked through chat"),
    ("chat", "B1", "caller", "LLM.chat", "entrypoints/llm.py::LLM.chat", "asked through generate"),
    ("render_cmpl", "B2", "caller", "InputProcessor.render_cmpl",
     "renderers/base.py::BaseRenderer.render_cmpl", "asked through chat"),
    ("render_chat", "B2", "caller", "InputProcessor.render_chat",
     "renderers/base.py::BaseRenderer.render_chat", "asked through generate"),
    ("llm_engine.add_request", "B3", "caller", "LLMEngine.add_request",
     "v1/engine/llm_engine.py::LLMEngine.add_request"),
    ("process_inputs", "B4", "caller", "InputProcessor.process_inputs",
     "v1/engine/input_processor.py::InputProcessor.process_inputs"),
    ("assign_request_id", "B4", "caller", "InputProcessor.assign_request_id",
     "v1/engine/input_processor.py::InputProcessor.assign_request_id"),
    ("output_processor.add_request", "B5", "caller", "OutputProcessor.add_request",
     "v1/engine/output_processor.py::OutputProcessor.add_request"),
    ("core_client.add_request", "B6", "caller", "SyncMPClient.add_request", f"{_CLIENT}.add_request"),
    ("core_client.send", "B7", "caller", "SyncMPClient.send_input", f"{_CLIENT}._send_input", "in process"),
    ("core.receive", "B7", "core", "EngineCoreProc.receive", f"{_CORE}Proc.process_input_sockets", "in process"),
    ("preprocess_add_request", "B8", "core", "EngineCore.preprocess_add_request", f"{_CORE}.preprocess_add_request"),
    ("scheduler.add_request", "B9", "core", "Scheduler.add_request", f"{_SCHEDULER}.add_request"),
    ("step", None, "core", "EngineCore.step", f"{_CORE}.step"),
    ("schedule", "B10", "core", "Scheduler.schedule", f"{_SCHEDULER}.schedule"),
    ("get_computed_blocks", "B11", "core", "KVCacheManager.get_computed_blocks", f"{_MANAGER}.get_computed_blocks"),
    ("allocate_slots", "B11", "core", "KVCacheManager.allocate_slots", f"{_MANAGER}.allocate_slots"),
    ("cache_blocks", "B11", "core", "KVCacheManager.cache_blocks", f"{_SINGLE}.cache_blocks", _CACHE_OFF),
    ("forget_uncomputed_blocks", "B11", "core", "KVCacheManager.forget_uncomputed_blocks",
     "none, vLLM leaves the hashes (docs/differences.md)", "never preempted"),
    ("free", "B11", "core", "KVCacheManager.free", f"{_MANAGER}.free"),
    ("get_cached_block", "B12", "core", "BlockPool.get_cached_block", f"{_POOL}.get_cached_block",
     f"{_CACHE_OFF}, or a prompt shorter than a block"),
    ("touch", "B12", "core", "BlockPool.touch", f"{_POOL}.touch", "no prefix hit"),
    ("get_new_blocks", "B12", "core", "BlockPool.get_new_blocks", f"{_POOL}.get_new_blocks"),
    ("cache_full_blocks", "B12", "core", "BlockPool.cache_full_blocks", f"{_POOL}.cache_full_blocks",
     f"{_CACHE_OFF}, or no block ever full"),
    ("free_blocks", "B12", "core", "BlockPool.free_blocks", f"{_POOL}.free_blocks"),
    ("reset_prefix_cache", "B12", "core", "BlockPool.reset_prefix_cache", f"{_POOL}.reset_prefix_cache",
     "nobody asked for it"),
    ("executor.execute_model", "B13", "core", "UniProcExecutor.execute_model",
     "v1/executor/uniproc_executor.py::UniProcExecutor.execute_model"),
    ("worker.execute_model", "B14", "core", "Worker.execute_model", "v1/worker/gpu_worker.py::Worker.execute_model"),
    ("update_states", "B15", "core", "InputBatch.update_states", f"{_RUNNER}._update_states"),
    ("prepare_inputs", "B15", "core", "ModelRunner.prepare_inputs", f"{_RUNNER}._prepare_inputs"),
    ("get_slot_mappings", "B15", "core", "ModelRunner.get_slot_mappings", f"{_RUNNER}._get_slot_mappings"),
    ("build_attention_metadata", "B15", "core", "ModelRunner.build_attention_metadata",
     f"{_RUNNER}._build_attention_metadata"),
    ("model_forward", "B16", "core", "ModelRunner.model_forward", f"{_RUNNER}._model_forward"),
    ("do_kv_cache_update", "B17", "core", "AttentionBackend.do_kv_cache_update", f"{_TRITON}.do_kv_cache_update"),
    ("attention", "B18", "core", "AttentionBackend.forward", f"{_TRITON}.forward"),
    ("kernel.launch", None, "core", "TritonBackend.launch", "none, vLLM launches each kernel where it is needed",
     "below detail 1, or another attention_backend than triton"),
    ("kernel.program", None, "core", "TritonBackend.launch", "none, vLLM's programs leave no record",
     "below detail 2, or not in Triton's interpreter, or of a layer or step that is not watched"),
    ("compute_logits", "B19", "core", "LlamaForCausalLM.compute_logits",
     "model_executor/models/llama.py::LlamaForCausalLM.compute_logits"),
    ("sample_tokens", "B20", "core", "UniProcExecutor.sample_tokens",
     "v1/executor/uniproc_executor.py::UniProcExecutor.sample_tokens"),
    ("sampler.forward", "B20", "core", "Sampler.forward", "v1/sample/sampler.py::Sampler.forward"),
    ("update_from_output", "B21", "core", "Scheduler.update_from_output", f"{_SCHEDULER}.update_from_output"),
    ("core.send", "B22", "core", "EngineCoreProc.send", f"{_CORE}Proc.process_output_sockets", "in process"),
    ("core_client.receive", "B22", "caller", "SyncMPClient.receive",
     f"{_CLIENT}.__init__.process_outputs_socket", "in process"),
    ("get_output", "B23", "caller", "SyncMPClient.get_output", f"{_CLIENT}.get_output"),
    ("process_outputs", "B24", "caller", "OutputProcessor.process_outputs",
     "v1/engine/output_processor.py::OutputProcessor.process_outputs"),
    ("detokenize", "B25", "caller", "OutputProcessor.detokenize",
     "v1/engine/detokenizer.py::BaseIncrementalDetokenizer.update"),
    ("abort_requests", "B26", "caller", "SyncMPClient.abort_requests", f"{_CLIENT}.abort_requests",
     "the core ended it by itself: only a stop string, an abort, Ctrl-C or an error needs this"),
    ("finish_requests", "B26", "core", "Scheduler.finish_requests", f"{_SCHEDULER}.finish_requests",
     "as abort_requests"),
    ("run_engine", "B27", "caller", "LLM._run_engine",
     "entrypoints/offline_utils.py::OfflineInferenceMixin._run_engine"),
]
# fmt: on

KINDS: dict[str, Kind] = {row[0]: Kind(*row) for row in _TABLE}

Change = tuple[int, int]  # [before, after]
Text = str | int  # a text; in a redacted trace its length in characters
TokenIds = list[int] | int  # token ids; in a redacted trace how many


class Call:
    """One call of a marked method, as `before` and `view` see it."""

    __slots__ = ("args", "before", "detail", "kwargs", "notes", "number", "out", "owner", "step", "watch")

    def __init__(
        self,
        owner: Any,
        args: tuple,
        kwargs: dict[str, Any],
        detail: int,
        notes: dict[Any, Any],
        number: int,
        step: int | None,
        watch: "TraceWatch | None",
    ) -> None:
        self.owner = owner  # the object whose method it is
        self.args = args
        self.kwargs = kwargs
        self.detail = detail
        self.notes = notes  # what one view leaves for another; of one recorder
        self.number = number  # of calls of this kind before this one
        self.step = step  # the core's step that it is part of
        self.watch = watch  # which tensors detail 2 looks at
        self.before: Any = None  # what the event's `before` returned
        self.out: Any = None  # what the method returned

    @property
    def watched(self) -> bool:
        """Values of this step are asked for."""
        if self.detail < 2 or self.watch is None:
            return False
        return self.watch.steps is None or self.step in self.watch.steps

    def arg(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, whichever way the caller passed it."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)


class Event(msgspec.Struct, tag_field="kind", omit_defaults=True, gc=False):
    """What every event has. Times are in ns from the first event of the trace."""

    seq: int  # its place in the order of entries
    proc: str  # caller or core; in process, caller
    t0: int  # entry, ns
    t1: int  # exit, ns
    parent: int | None = None  # seq of the event during which it happened, in the same thread
    thread: str = "main"  # within its process: main, input, output, or its own name
    step: int | None = None  # the core's step, from 1; None: between steps, or before the first
    reqs: list[str] = []  # internal ids of the requests it concerns
    error: str | None = None  # the call raised this
    view_error: str | None = None  # the call went well, and looking at it failed

    min_detail: ClassVar[int] = 0  # of the trace; below it the kind does not occur
    secret: ClassVar[tuple[str, ...]] = ()  # fields with text or token ids; a redacted trace has their lengths

    @property
    def kind(self) -> str:
        return self.__struct_config__.tag

    @property
    def boundary(self) -> str | None:
        """B1..B27, or None for a parent without a number."""
        row = KINDS.get(self.kind)
        return row.boundary if row else None

    @property
    def duration(self) -> int:
        """ns from entry to exit, what happened inside included."""
        return self.t1 - self.t0

    @staticmethod
    def before(call: Call) -> Any:
        """What must be looked at before the call, if anything."""

    @staticmethod
    def failed(call: Call) -> None:
        """Undo what `before` did, after a call that raised."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        """The fields of the event, after the call.

        `inside`: (class, fields) of events that happened within the call, of methods that nobody can mark. `later`: a
        function that gives more fields when the step is over.
        """
        return {}


class Unfinished(Event, tag="unfinished"):
    """A call that never came back: its process ended first. t1 is the last sign of life."""

    of: str = ""  # the kind it would have had; "" if nobody knows


class Unknown(Event, tag="unknown"):
    """A kind that this version does not know, from a newer one."""

    raw: dict[str, Any] = {}  # the line of the file

    @property
    def kind(self) -> str:
        return self.raw["kind"]
