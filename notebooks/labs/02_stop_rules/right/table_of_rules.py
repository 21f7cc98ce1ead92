"""A right solution of lab 02: the rules are a table that is walked from the top."""


def check_stop(request: Request, max_model_len: int) -> bool:
    if request.num_output_tokens < request.sampling_params.min_tokens:
        return False
    last = request.output_token_ids[-1]
    is_stop_id = last in request.sampling_params.stop_token_ids
    rules = [
        (last == request.eos_token_id, RequestStatus.FINISHED_STOPPED, None),
        (is_stop_id, RequestStatus.FINISHED_STOPPED, last),
        (request.num_tokens >= max_model_len, RequestStatus.FINISHED_LENGTH_CAPPED, None),
        (request.num_output_tokens >= request.max_tokens, RequestStatus.FINISHED_LENGTH_CAPPED, None),
    ]
    for applies, status, reason in rules:
        if applies:
            request.status, request.stop_reason = status, reason
            return True
    return False


def update_request_with_output(
    request: Request,
    new_token_ids: list[int],
    max_model_len: int,
    check_stop: Callable[[Request, int], bool] = check_stop,
) -> tuple[list[int], bool]:
    counted: list[int] = []
    for token_id in new_token_ids:
        request.append_output_token_ids(token_id)
        counted.append(token_id)
        if check_stop(request, max_model_len):
            return counted, True
    return counted, False


class Scheduler(given.Scheduler):
    @boundary("update_from_output")
    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        outputs: list[EngineCoreOutput] = []
        for request_id in list(plan.num_scheduled_tokens):
            if request_id not in self.requests:
                continue
            request, row = self.requests[request_id], result.req_id_to_index[request_id]
            sampled = result.sampled_token_ids[row]
            if not sampled:
                continue
            counted, ended = update_request_with_output(request, sampled, self.max_model_len, self.check_stop)
            if ended:
                self.running.remove(request)
                self._free_request(request)
            outputs.append(self._make_output(request, counted, result, row))
        return outputs

    @boundary("finish_requests")
    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[str]:
        finished = []
        for request_id in request_ids:
            if request_id not in self.requests:
                continue
            request = self.requests[request_id]
            if request in self.running:
                self.running.remove(request)
            else:
                self.waiting.remove_request(request)
            request.status = status
            self._free_request(request)
            finished.append(request_id)
        return finished

    def _free_request(self, request: Request) -> None:
        del self.requests[request.request_id]
        self.kv_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)

    def _update_after_schedule(self, plan: SchedulerOutput) -> None:
        self.finished_req_ids = set()
        for request in self.running:
            request.num_computed_tokens += plan.num_scheduled_tokens.get(request.request_id, 0)
