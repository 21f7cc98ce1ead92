"""A right solution of lab 02: while loops, and ends that are collected first."""


def check_stop(request: Request, max_model_len: int) -> bool:
    last = request.output_token_ids[-1]
    if request.num_output_tokens >= request.sampling_params.min_tokens:
        if request.eos_token_id == last:
            request.status = RequestStatus.FINISHED_STOPPED
        elif last in set(request.sampling_params.stop_token_ids):
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = last
        elif max_model_len <= request.num_tokens or request.max_tokens <= request.num_output_tokens:
            request.status = RequestStatus.FINISHED_LENGTH_CAPPED
    return request.is_finished


def update_request_with_output(
    request: Request,
    new_token_ids: list[int],
    max_model_len: int,
    check_stop: Callable[[Request, int], bool] = check_stop,
) -> tuple[list[int], bool]:
    rest = list(new_token_ids)
    taken: list[int] = []
    while rest:
        taken.append(rest.pop(0))
        request.append_output_token_ids(taken[-1])
        if check_stop(request, max_model_len):
            return taken, True
    return taken, False


class Scheduler(given.Scheduler):
    @boundary("update_from_output")
    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        outputs: list[EngineCoreOutput] = []
        ids = list(plan.num_scheduled_tokens)
        stopped: list[Request] = []
        while ids:
            request = self.requests.get(ids.pop(0))
            if request is not None:
                row = result.req_id_to_index[request.request_id]
                if result.sampled_token_ids[row]:
                    new, ended = update_request_with_output(
                        request, result.sampled_token_ids[row], self.max_model_len, self.check_stop
                    )
                    outputs.append(self._make_output(request, new, result, row))
                    stopped += [request] * ended
        for request in stopped:
            self.running.remove(request)
            self._free_request(request)
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
        self.requests = {name: one for name, one in self.requests.items() if one is not request}
        self.finished_req_ids.add(request.request_id)
        self.kv_cache_manager.free(request)

    def _update_after_schedule(self, plan: SchedulerOutput) -> None:
        told = self.finished_req_ids
        for request_id, n in plan.num_scheduled_tokens.items():
            self.requests[request_id].num_computed_tokens += n
        self.finished_req_ids = self.finished_req_ids - told
