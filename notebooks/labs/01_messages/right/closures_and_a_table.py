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
    optional = {
        "new_logprobs": LogprobsLists,
        "new_prompt_logprobs": LogprobsLists,
        "finish_reason": FinishReason,
        "stop_reason": int | str,
        "events": list[EngineCoreEvent],
        "prefill_stats": PrefillStats,
    }
    params = msgspec.defstruct(
        "SamplingParams",
        [
            ("temperature", float, 1.0),
            ("top_p", float, 1.0),
            ("seed", int | None, None),
            ("max_tokens", int | None, 16),
            ("min_tokens", int, 0),
            ("ignore_eos", bool, False),
        ],
        omit_defaults=True,
    )
    request = msgspec.defstruct(
        "EngineCoreRequest",
        [
            ("request_id", str),
            ("prompt_token_ids", list[int]),
            ("sampling_params", params),
            ("arrival_time", float),
            ("cache_salt", str | None, None),
            ("priority", int, 0),
            ("external_req_id", str | None, None),
        ],
        array_like=True,
    )
    fields = [("request_id", str), ("new_token_ids", list[int])]
    fields += [(name, kind | None, None) for name, kind in optional.items()]
    return params, request, msgspec.defstruct("EngineCoreOutput", fields, array_like=True)


class MsgpackEncoder(given.MsgpackEncoder):
    def encode(self, obj: Any) -> list[Frame]:
        aux: list[Frame] = []

        def hook(array: Any) -> Any:
            self.aux_buffers = aux  # enc_hook writes there
            return self.enc_hook(array)

        main = msgspec.msgpack.Encoder(enc_hook=hook).encode(obj)
        return [main, *aux]

    def enc_hook(self, obj: Any) -> Any:
        if not isinstance(obj, np.ndarray):
            raise TypeError(f"{type(obj).__name__} may not cross")
        data = np.array(obj, order="C", copy=True).tobytes()
        large = len(data) >= ZERO_COPY_THRESHOLD
        if large:
            self.aux_buffers.append(data)
        third = len(self.aux_buffers) if large else msgspec.msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, data)
        return obj.dtype.str, obj.shape, third


class MsgpackDecoder(given.MsgpackDecoder):
    def decode(self, frames: Sequence[Frame]) -> Any:
        self.frames = tuple(frames)
        main = self.frames[0]
        return self.decoder.decode(main)

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        if message_type is not np.ndarray:
            raise TypeError(f"{message_type.__name__}: not declared")
        kind, shape, where = obj
        if isinstance(where, int):
            where = self.frames[where]
        array = np.frombuffer(where, dtype=kind)
        array.shape = tuple(shape)
        return array

    def ext_hook(self, code: int, data: memoryview) -> Any:
        known = {CUSTOM_TYPE_RAW_VIEW: bytes}
        if code not in known:
            raise TypeError(f"code {code}")
        return known[code](data)


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    head = [identity, bytes(request_type.value)]
    return head + list(encoder.encode(payload))


def read_request(
    frames: Sequence[Frame],
    decode_add: Callable[[Sequence[Frame]], Any],
    decoder: MsgpackDecoder,
    input_queue: SimpleQueue[Any],
    aborts_queue: SimpleQueue[Any],
) -> tuple[EngineCoreRequestType, Any]:

    def add(rest: Sequence[Frame]) -> Any:
        request = decode_add(rest)
        if request is not None:
            input_queue.put((EngineCoreRequestType.ADD, request))
        return request

    def abort(rest: Sequence[Frame]) -> Any:
        ids = decoder.decode(rest)
        for queue, item in ((aborts_queue, ids), (input_queue, (EngineCoreRequestType.ABORT, ids))):
            queue.put(item)
        return ids

    def utility(rest: Sequence[Frame]) -> Any:
        call = decoder.decode(rest)
        input_queue.put((EngineCoreRequestType.UTILITY, call))
        return call

    table = {
        EngineCoreRequestType.ADD: add,
        EngineCoreRequestType.ABORT: abort,
        EngineCoreRequestType.UTILITY: utility,
    }
    kind = EngineCoreRequestType(bytes(frames[0]))
    return kind, table[kind](frames[1:])


def is_core_dead(frames: Sequence[Frame]) -> bool:
    if len(frames) != 1:
        return False
    return b"".join(map(bytes, frames)) == ENGINE_CORE_DEAD


def read_output(
    frames: Sequence[Frame],
    decoder: MsgpackDecoder,
    outputs_queue: SimpleQueue[Any],
    utility_results: dict[int, Future[Any]],
) -> EngineCoreOutputs:
    outputs = decoder.decode(frames)
    if (answer := outputs.utility_output) is None:
        outputs_queue.put(outputs)
    else:
        future, failed = utility_results.pop(answer.call_id), answer.failure_message
        future.set_exception(RuntimeError(failed)) if failed is not None else future.set_result(answer.result)
    return outputs
