"""A right solution of lab 02: a pure verdict on numbers, then the assignment."""


def check_stop(request: Request, max_model_len: int) -> bool:
    params = request.sampling_params
    verdict = _verdict(
        request.output_token_ids,
        params.min_tokens,
        request.eos_token_id,
        params.stop_token_ids,
        min(request.max_tokens, max_model_len - request.num_prompt_tokens),
    )
    if verdict is None:
        return False
    request.status, request.stop_reason = verdict
    return True


def update_request_with_output(
    request: Request,
    new_token_ids: list[int],
    max_model_len: int,
    check_stop: Callable[[Request, int], bool] = check_stop,
) -> tuple[list[int], bool]:
    for place in range(len(new_token_ids)):
        request.append_output_token_ids(new_token_ids[place])
        ended = check_stop(request, max_model_len)
        if ended:
            return new_token_ids[: place + 1], ended
    return new_token_ids, False


class Scheduler(given.Scheduler):
    @boundary("update_from_output")
    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        outputs: list[EngineCoreOutput] = []
        ended_ids: list[str] = []
        planned = [self.requests[request_id] for request_id in plan.num_scheduled_tokens if request_id in self.requests]
        for request in planned:
            row = result.req_id_to_index[request.request_id]
            new = result.sampled_token_ids[row]
            ended = False
            if len(new) > 0:
                new, ended = update_request_with_output(request, new, self.max_model_len, self.check_stop)
                outputs.append(self._make_output(request, new, result, row))
            if ended:
                ended_ids.append(request.request_id)
        for request_id in ended_ids:
            request = self.requests[request_id]
            self._free_request(request)
            self.running = [other for other in self.running if other is not request]
        return outputs

    @boundary("finish_requests")
    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[str]:
        ids = list(dict.fromkeys(request_ids))
        live = [self.requests[request_id] for request_id in ids if request_id in self.requests]
        for request in live:
            if request.status is RequestStatus.RUNNING:
                self.running = [other for other in self.running if other is not request]
            else:
                self.waiting.remove_request(request)
            request.status = status
            self._free_request(request)
        return [request.request_id for request in live]

    def _free_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        self.requests.pop(request.request_id)
        self.finished_req_ids |= {request.request_id}

    def _update_after_schedule(self, plan: SchedulerOutput) -> None:
        for request_id in plan.num_scheduled_tokens:
            request = self.requests[request_id]
            request.num_computed_tokens = request.num_computed_tokens + plan.num_scheduled_tokens[request_id]
        self.finished_req_ids = set()


def _verdict(
    outputs: list[int], min_tokens: int, eos: int | None, stop_ids: list[int], most: int
) -> tuple[RequestStatus, int | None] | None:
    """Status and reason, or None to go on."""
    if len(outputs) < min_tokens:
        return None
    if eos is not None and outputs[-1] == eos:
        return RequestStatus.FINISHED_STOPPED, None
    if outputs[-1] in stop_ids:
        return RequestStatus.FINISHED_STOPPED, outputs[-1]
    return (RequestStatus.FINISHED_LENGTH_CAPPED, None) if len(outputs) >= most else None
