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

    class EngineCoreRequest(msgspec.Struct, array_like=True):
        request_id: str
        prompt_token_ids: list[int]
        sampling_params: SamplingParams
        arrival_time: float
        cache_salt: str | None = None
        priority: int = 0
        external_req_id: str | None = None

    class EngineCoreOutput(msgspec.Struct, array_like=True):
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
        frames = [b""]
        self.aux_buffers = frames
        frames[0] = self.encoder.encode(obj)
        return frames

    def enc_hook(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            raw = obj.tobytes()
            if len(raw) < ZERO_COPY_THRESHOLD:
                place = msgspec.msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, raw)
            else:
                place = len(self.aux_buffers)
                self.aux_buffers.append(raw)
            return [obj.dtype.str, list(obj.shape), place]
        raise TypeError(f"a {type(obj).__name__} is no message and no array: it stays here")


class MsgpackDecoder(given.MsgpackDecoder):
    def decode(self, frames: Sequence[Frame]) -> Any:
        self.frames = list(frames)
        return self.decoder.decode(self.frames[0])

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        if message_type is np.ndarray:
            dtype, shape, place = obj
            raw = place if not isinstance(place, int) else self.frames[place]
            return np.frombuffer(raw, np.dtype(dtype)).reshape(shape)
        raise TypeError(f"nobody declared {message_type.__name__}")

    def ext_hook(self, code: int, data: memoryview) -> Any:
        if code == CUSTOM_TYPE_RAW_VIEW:
            return bytes(data)
        raise TypeError(f"extension {code} is refused")


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    frames = encoder.encode(payload)
    frames.insert(0, request_type.value)
    frames.insert(0, identity)
    return frames


def read_request(
    frames: Sequence[Frame],
    decode_add: Callable[[Sequence[Frame]], Any],
    decoder: MsgpackDecoder,
    input_queue: SimpleQueue[Any],
    aborts_queue: SimpleQueue[Any],
) -> tuple[EngineCoreRequestType, Any]:
    head, *rest = frames
    kind = EngineCoreRequestType(bytes(head))
    adding = kind is EngineCoreRequestType.ADD
    payload = decode_add(rest) if adding else decoder.decode(rest)
    if not (adding and payload is None):
        if kind is EngineCoreRequestType.ABORT:
            aborts_queue.put(payload)
        input_queue.put((kind, payload))
    return kind, payload


def is_core_dead(frames: Sequence[Frame]) -> bool:
    return [bytes(frame) for frame in frames] == [ENGINE_CORE_DEAD]


def read_output(
    frames: Sequence[Frame],
    decoder: MsgpackDecoder,
    outputs_queue: SimpleQueue[Any],
    utility_results: dict[int, Future[Any]],
) -> EngineCoreOutputs:
    message = decoder.decode(frames)
    reply = message.utility_output
    if reply is not None:
        waiting = utility_results[reply.call_id]
        del utility_results[reply.call_id]
        if reply.failure_message is None:
            waiting.set_result(reply.result)
        else:
            waiting.set_exception(RuntimeError(reply.failure_message))
    else:
        outputs_queue.put(message)
    return message
