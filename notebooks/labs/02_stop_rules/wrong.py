"""Wrong solutions of lab 02: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

WRONG = [
    Wrong(
        id="gate_off_by_one",
        task="2.1",
        symbol="check_stop",
        old="num_output_tokens < params.min_tokens",
        new="num_output_tokens <= params.min_tokens",
        misconception="the first m tokens cannot end it",
        message="min_tokens is taken one too far: with min_tokens outputs the request may end.",
    ),
    Wrong(
        id="no_min_gate",
        task="2.1",
        symbol="check_stop",
        old=("    if num_output_tokens < params.min_tokens:\n        return False\n"),
        new="",
        misconception="a stop token always stops",
        message="the request ended before it had min_tokens outputs. Until then nothing ends it.",
    ),
    Wrong(
        id="stop_ids_before_eos",
        task="2.1",
        symbol="check_stop",
        old=(
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        return True\n"
            "    if last_token_id in params.stop_token_ids:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        request.stop_reason = last_token_id\n"
            "        return True\n"
        ),
        new=(
            "    if last_token_id in params.stop_token_ids:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        request.stop_reason = last_token_id\n"
            "        return True\n"
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        return True\n"
        ),
        misconception="the end of text is one of the stop ids",
        message=(
            "stop ids are tested before the end of text. For the end-of-text token stop_reason stays None, also "
            "when it is a stop id too."
        ),
    ),
    Wrong(
        id="eos_gets_a_reason",
        task="2.1",
        symbol="check_stop",
        old=(
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        return True\n"
        ),
        new=(
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        request.stop_reason = last_token_id\n"
            "        return True\n"
        ),
        misconception="every stop has its token as reason",
        message="the end of text sets stop_reason. It stays None: only a stop id is a reason.",
    ),
    Wrong(
        id="length_first",
        task="2.1",
        symbol="check_stop",
        old=(
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        return True\n"
            "    if last_token_id in params.stop_token_ids:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        request.stop_reason = last_token_id\n"
            "        return True\n"
            "    if num_output_tokens >= request.max_tokens or request.num_tokens >= max_model_len:\n"
            "        request.status = RequestStatus.FINISHED_LENGTH_CAPPED\n"
            "        return True\n"
        ),
        new=(
            "    if num_output_tokens >= request.max_tokens or request.num_tokens >= max_model_len:\n"
            "        request.status = RequestStatus.FINISHED_LENGTH_CAPPED\n"
            "        return True\n"
            "    if last_token_id == request.eos_token_id:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        return True\n"
            "    if last_token_id in params.stop_token_ids:\n"
            "        request.status = RequestStatus.FINISHED_STOPPED\n"
            "        request.stop_reason = last_token_id\n"
            "        return True\n"
        ),
        misconception="the cheap test first",
        message=(
            "lengths are tested before stop tokens. A stop token at the last allowed place is a stop, and no length."
        ),
    ),
    Wrong(
        id="no_context_limit",
        task="2.1",
        symbol="check_stop",
        old=" or request.num_tokens >= max_model_len",
        new="",
        misconception="max_tokens is the only length",
        message="a request that fills the context goes on. max_model_len ends it, whatever max_tokens is.",
    ),
    Wrong(
        id="context_off_by_one",
        task="2.1",
        symbol="check_stop",
        old="request.num_tokens >= max_model_len",
        new="request.num_tokens > max_model_len",
        misconception="the limit itself is allowed",
        message="a request with max_model_len tokens goes on. It has no room for another one: it ends.",
    ),
    Wrong(
        id="max_tokens_counts_prompt",
        task="2.1",
        symbol="check_stop",
        old="num_output_tokens >= request.max_tokens",
        new="request.num_tokens >= request.max_tokens",
        misconception="max_tokens counts the prompt",
        message="max_tokens is compared with prompt and outputs. It counts outputs alone.",
    ),
    Wrong(
        id="max_tokens_off_by_one",
        task="2.1",
        symbol="check_stop",
        old="num_output_tokens >= request.max_tokens",
        new="num_output_tokens > request.max_tokens",
        misconception="the limit itself is allowed",
        message="one output more than max_tokens came.",
    ),
    Wrong(
        id="ignore_eos_drops_stop_ids",
        task="2.1",
        symbol="check_stop",
        old="if last_token_id in params.stop_token_ids:",
        new="if request.eos_token_id is not None and last_token_id in params.stop_token_ids:",
        misconception="ignore means all",
        message="ignore_eos switches the stop ids off too. It is about the end-of-text token alone.",
    ),
    Wrong(
        id="looks_at_the_token_before",
        task="2.1",
        symbol="check_stop",
        old="last_token_id = request.output_token_ids[-1]",
        new="last_token_id = request.all_token_ids[-2]",
        misconception="the last token is not there yet",
        message="the token before the last one is tested. The new token has been appended already.",
    ),
    Wrong(
        id="keeps_tokens_after_stop",
        task="2.2",
        symbol="update_request_with_output",
        old="return new_token_ids[:count], True",
        new="return new_token_ids, True",
        misconception="one token a step anyway",
        message="tokens after the one that ended the request are counted. They do not count.",
    ),
    Wrong(
        id="drops_the_stop_token",
        task="2.2",
        symbol="update_request_with_output",
        old="return new_token_ids[:count], True",
        new="return new_token_ids[: count - 1], True",
        misconception="the stop token is no output",
        message="the token that ended the request is missing. It counts as an output.",
    ),
    Wrong(
        id="appends_all_then_checks",
        task="2.2",
        symbol="update_request_with_output",
        old=(
            "    for count, token_id in enumerate(new_token_ids, start=1):\n"
            "        request.append_output_token_ids(token_id)\n"
        ),
        new=(
            "    for token_id in new_token_ids:\n"
            "        request.append_output_token_ids(token_id)\n"
            "    for count, _ in enumerate(new_token_ids, start=1):\n"
        ),
        misconception="append, then look",
        message=(
            "all tokens were appended before the first was tested. What comes after the end must not be in the request."
        ),
    ),
    Wrong(
        id="tests_the_last_only",
        task="2.2",
        symbol="update_request_with_output",
        old="        if check_stop(request, max_model_len):",
        new="        if count == len(new_token_ids) and check_stop(request, max_model_len):",
        misconception="the step ends with its last token",
        message="only the last of the tokens is tested. Any of them may end the request.",
    ),
    Wrong(
        id="abort_not_announced",
        task="2.3",
        symbol="Scheduler.finish_requests",
        old=("            self._free_request(request)\n"),
        new=("            self._free_request(request)\n            self.finished_req_ids.discard(request_id)\n"),
        misconception="the caller knows",
        message="the worker is not told of an abort, and keeps the row of the request.",
    ),
    Wrong(
        id="empty_output_for_chunks",
        task="2.3",
        symbol="Scheduler.update_from_output",
        old=("            if new_token_ids:\n                outputs"),
        new=("            if True:\n                outputs"),
        misconception="every step has an output",
        message="a request whose prompt is not complete said something. It has no new token, so it says nothing.",
    ),
    Wrong(
        id="abort_not_idempotent",
        task="2.3",
        symbol="Scheduler.finish_requests",
        old=(
            "            request = self.requests.get(request_id)\n"
            "            if request is None or request.is_finished:\n"
            "                continue\n"
        ),
        new=("            request = self.requests[request_id]\n"),
        misconception="whoever is aborted is there",
        message="an abort of a request that has gone crashed. It comes late, or twice: ignore it.",
    ),
    Wrong(
        id="vanished_result_crashes",
        task="2.3",
        symbol="Scheduler.update_from_output",
        old=(
            "            request = self.requests.get(request_id)\n"
            "            if request is None:\n"
            "                continue"
        ),
        new=(
            "            request = self.requests[request_id]\n            if request is None:\n                continue"
        ),
        misconception="whoever is planned is there",
        message="a request that was aborted while its step ran crashed the update. Its result is to be dropped.",
    ),
    Wrong(
        id="waiting_one_is_not_taken_out",
        task="2.3",
        symbol="Scheduler.finish_requests",
        old="        self.waiting.remove_requests(from_waiting)",
        new="        pass",
        misconception="only running requests are aborted",
        message="an aborted request stays in the waiting queue, and is admitted later.",
    ),
    Wrong(
        id="ended_one_keeps_its_seat",
        task="2.3",
        symbol="Scheduler.update_from_output",
        old=("                stopped.add(request_id)\n"),
        new="",
        misconception="it is not scheduled any more",
        message="a request that ended stays in the running list.",
    ),
    Wrong(
        id="finished_cleared_in_place",
        task="2.4",
        symbol="Scheduler._update_after_schedule",
        old="self.finished_req_ids = set()",
        new="self.finished_req_ids.clear()",
        misconception="cleared is the same as new",
        message=(
            "the set of ended requests was emptied in place. The plan holds that very set, so the worker is told "
            "nothing: make a new one."
        ),
    ),
    Wrong(
        id="blocks_kept_until_told",
        task="2.4",
        symbol="Scheduler._free_request",
        old=("        self.kv_cache_manager.free(request)\n"),
        new=('        self.late = [*getattr(self, "late", []), request]\n'),
        misconception="the worker may still write",
        message="the blocks are freed when the worker has been told. They are free as soon as the request has ended.",
        more=(
            (
                "Scheduler._update_after_schedule",
                "        # a new set",
                (
                    '        for request in getattr(self, "late", []):\n'
                    "            self.kv_cache_manager.free(request)\n"
                    "        self.late = []\n"
                    "        # a new set"
                ),
            ),
        ),
    ),
    Wrong(
        id="end_not_told",
        task="2.4",
        symbol="Scheduler._free_request",
        old=("        self.finished_req_ids.add(request.request_id)\n"),
        new="",
        misconception="the worker sees it",
        message="the worker is never told that a request ended. The next plan carries its id.",
    ),
    Wrong(
        id="counts_not_advanced",
        task="2.4",
        symbol="Scheduler._update_after_schedule",
        old="num_computed_tokens += n",
        new="num_computed_tokens += 0",
        misconception="computed means computed",
        message=(
            "num_computed_tokens does not advance when the plan is made: the same tokens are planned again and again."
        ),
    ),
    Wrong(
        id="told_twice",
        task="2.4",
        symbol="Scheduler._update_after_schedule",
        old="        self.finished_req_ids = set()",
        new="        self.finished_req_ids = set(self.finished_req_ids)",
        misconception="better twice than never",
        message="an end is told with every plan. It is told once.",
    ),
]

HARMLESS = [
    Harmless(
        id="max_tokens_equality",
        task="2.1",
        symbol="check_stop",
        old="num_output_tokens >= request.max_tokens",
        new="num_output_tokens == request.max_tokens",
        proof="Outputs are appended one by one and each is tested, and min_tokens is at most max_tokens: the number "
        "cannot pass max_tokens unseen.",
    ),
]
