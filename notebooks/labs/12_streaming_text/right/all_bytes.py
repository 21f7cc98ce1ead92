"""A right solution of lab 12: all bytes so far, decoded anew; stop strings by where they end."""


class ByteStream(TextStream):
    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        self.data = b"".join(self.get_bytes(token_id) for token_id in prompt_ids)
        self.said = len(self.data.decode(errors="ignore"))

    def step(self, token_id: int) -> str:
        self.data += self.get_bytes(token_id)
        text = self.data.decode(errors="ignore")
        new, self.said = text[self.said :], len(text)
        return new


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    old = len(output_text) - new_char_count
    for stop_string in stop:
        for end in range(old + 1, len(output_text) + 1):
            if output_text[:end].endswith(stop_string):
                return stop_string, end if include_in_output else end - len(stop_string)
    return None


class IncrementalDetokenizer(given.IncrementalDetokenizer):
    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        longest = max([len(one) for one in self.stop], default=1)
        self.stop_buffer_length = 0 if self.include_stop_str_in_output else longest - 1
        self.output_text = ""
        self.token_ids: list[int] = []  # of the output; never cut
        self._last_output_text_offset = 0

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        if self.text_stream is None:
            self.token_ids.extend(new_token_ids)
            return None
        shown = list(new_token_ids)
        if stop_terminated and not self.include_stop_str_in_output:
            shown = shown[:-1]
        before = len(self.output_text)
        for number, token_id in enumerate(new_token_ids):
            self.token_ids.append(token_id)
            if number < len(shown):
                self.output_text += self.text_stream.step(token_id)
            if len(self.token_ids) <= self.min_tokens:
                before = len(self.output_text)
        if len(self.token_ids) <= self.min_tokens:
            return None
        found = check_stop_strings(
            self.output_text, len(self.output_text) - before, self.stop, self.include_stop_str_in_output
        )
        if found is None:
            return None
        if found[1] >= 0:
            self.output_text = self.output_text[: found[1]]
        return found[0]

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        end = len(self.output_text)
        if not finished:
            end = max(0, end - self.stop_buffer_length)
        begin = 0
        if delta:
            begin = self._last_output_text_offset
            self._last_output_text_offset = max(begin, end)
        return self.output_text[begin:end]


class OutputProcessor(given.OutputProcessor):
    @boundary("process_outputs")
    def process_outputs(self, outputs: list[EngineCoreOutput], timestamp: float) -> OutputProcessorOutput:
        result = OutputProcessorOutput()
        for output in outputs:
            state = self.request_states.get(output.request_id)
            if state is not None:
                self._update_numbers(state, output, timestamp)
                by_core = output.finish_reason
                found = self.detokenize(state, output.new_token_ids, by_core is FinishReason.STOP)
                reasons = (by_core, output.stop_reason) if found is None else (FinishReason.STOP, found)
                shown = state.make_request_output(*reasons)
                result.request_outputs += [] if shown is None else [shown]
                if reasons[0] is not None:
                    self.request_states.pop(output.request_id)
                    result.reqs_to_abort += [output.request_id] if by_core is None else []
        return result
