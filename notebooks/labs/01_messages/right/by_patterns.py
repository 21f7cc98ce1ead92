"""Lab 01 · Messages over the boundary

State which frames and bytes cross the process boundary for one request, in which order, and why only declared types can
cross.

    1.1  declarations (15 points)
    1.2  arrays (20 points)
    1.3  frames and queues (10 points)
    1.4  what comes back (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 01
"""


def message_types() -> tuple[type, type, type]:

    class SamplingParams(msgspec.Struct, omit_defaults=True):
        temperature: float = 1.0
        top_p: float = 1.0
        seed: int | None = None
        max_tokens: int | None = 16
        min_tokens: int = 0
        ignore_eos: bool = False

    class EngineCoreRequest(msgspec.Struct, array_like=True, gc=False, frozen=True):
        request_id: str
        prompt_token_ids: list[int]
        sampling_params: SamplingParams
        arrival_time: float
        cache_salt: str | None = None
        priority: int = 0
        external_req_id: str | None = None

    class EngineCoreOutput(msgspec.Struct, array_like=True, gc=False, frozen=True):
        request_id: str
        new_token_ids: list[int]
        new_logprobs: LogprobsLists | None = None
        new_prompt_logprobs: LogprobsLists | None = None
        finish_reason: FinishReason | None = None
        stop_reason: int | str | None = None
        events: list[EngineCoreEvent] | None = None
        prefill_stats: PrefillStats | None = None

    return SamplingParams, EngineCoreRequest, EngineCoreOutput


class MsgpackEncoder(given.MsgpackEncoder):
    def encode(self, obj: Any) -> list[Frame]:
        self.aux_buffers = [None]
        self.aux_buffers[0] = bytes(self.encoder.encode(obj))
        return list(self.aux_buffers)

    def enc_hook(self, obj: Any) -> Any:
        match obj:
            case np.ndarray() if obj.nbytes < ZERO_COPY_THRESHOLD:
                return obj.dtype.str, obj.shape, msgspec.msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, obj.tobytes("C"))
            case np.ndarray():
                self.aux_buffers += [memoryview(np.ascontiguousarray(obj)).cast("B")]
                return obj.dtype.str, obj.shape, len(self.aux_buffers) - 1
            case _:
                raise TypeError(f"{type(obj)} is not declared")


class MsgpackDecoder(given.MsgpackDecoder):
    def decode(self, frames: Sequence[Frame]) -> Any:
        before, self.frames = self.frames, frames
        message = self.decoder.decode(frames[0])
        self.frames = before
        return message

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        assert_array = message_type is np.ndarray
        if not assert_array:
            raise TypeError(f"{message_type} is not declared")
        places = [self.frames[obj[2]]] if isinstance(obj[2], int) else [obj[2]]
        return np.ndarray(tuple(obj[1]), np.dtype(obj[0]), buffer=bytes(places[0]))

    def ext_hook(self, code: int, data: memoryview) -> Any:
        match code:
            case 3:
                return memoryview(data)
            case other:
                raise TypeError(f"no extension {other} here")


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    return [identity, *(request_type.value,), *encoder.encode(payload)]


def read_request(
    frames: Sequence[Frame],
    decode_add: Callable[[Sequence[Frame]], Any],
    decoder: MsgpackDecoder,
    input_queue: SimpleQueue[Any],
    aborts_queue: SimpleQueue[Any],
) -> tuple[EngineCoreRequestType, Any]:
    match EngineCoreRequestType(bytes(frames[0])):
        case EngineCoreRequestType.ADD as kind:
            payload = decode_add(frames[1:])
        case kind:
            payload = decoder.decode(frames[1:])
    queued = kind is not EngineCoreRequestType.ADD or payload is not None
    for _ in range(queued):
        input_queue.put((kind, payload))
    for _ in range(kind is EngineCoreRequestType.ABORT):
        aborts_queue.put(payload)
    return kind, payload


def is_core_dead(frames: Sequence[Frame]) -> bool:
    match [bytes(frame) for frame in frames]:
        case [only]:
            return only == ENGINE_CORE_DEAD
        case _:
            return False


def read_output(
    frames: Sequence[Frame],
    decoder: MsgpackDecoder,
    outputs_queue: SimpleQueue[Any],
    utility_results: dict[int, Future[Any]],
) -> EngineCoreOutputs:
    message = decoder.decode(frames)
    match message.utility_output:
        case None:
            outputs_queue.put(message)
        case answer if answer.failure_message is None:
            utility_results.pop(answer.call_id).set_result(answer.result)
        case answer:
            utility_results.pop(answer.call_id).set_exception(RuntimeError(answer.failure_message))
    return message
