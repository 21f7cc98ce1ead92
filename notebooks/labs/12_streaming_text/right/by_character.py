"""A right solution of lab 12: the length of a character from its first byte; a search character by character."""


class ByteStream(TextStream):
    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        self.rest = b""
        for token_id in prompt_ids:
            self.step(token_id)

    def step(self, token_id: int) -> str:
        self.rest += self.get_bytes(token_id)
        text = ""
        while self.rest:
            first = self.rest[0]
            length = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            if len(self.rest) < length:
                break
            text += self.rest[:length].decode(errors="replace")
            self.rest = self.rest[length:]
        return text


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    for stop_string in stop:
        size = len(stop_string)
        for begin in range(len(output_text) - size + 1):
            ends_in_new = begin + size > len(output_text) - new_char_count
            if ends_in_new and output_text[begin : begin + size] == stop_string:
                cut = begin + size if include_in_output else begin
                return stop_string, -1 if cut == len(output_text) else cut
    return None


class IncrementalDetokenizer(given.IncrementalDetokenizer):
    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        self.stop_buffer_length = 0
        for one in [] if self.include_stop_str_in_output else self.stop:
            self.stop_buffer_length = max(self.stop_buffer_length, len(one) - 1)
        self.output_text = ""
        self.token_ids: list[int] = []  # of the output; never cut
        self._last_output_text_offset = 0

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        if self.text_stream is None:
            self.token_ids.extend(new_token_ids)
            return None
        new = ""
        for number, token_id in enumerate(new_token_ids, start=1):
            self.token_ids.append(token_id)
            is_stop_token = stop_terminated and number == len(new_token_ids)
            text = "" if is_stop_token and not self.include_stop_str_in_output else self.text_stream.step(token_id)
            self.output_text += text
            new = new + text if len(self.token_ids) > self.min_tokens else ""
        found = check_stop_strings(self.output_text, len(new), self.stop, self.include_stop_str_in_output)
        if found is None:
            return None
        if found[1] != -1:
            self.output_text = self.output_text[: found[1]]
        return found[0]

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        held = 0 if finished else self.stop_buffer_length
        ready = self.output_text[: len(self.output_text) - held] if held < len(self.output_text) else ""
        if not delta:
            return ready
        new = ready[self._last_output_text_offset :]
        self._last_output_text_offset += len(new)
        return new


class OutputProcessor(given.OutputProcessor):
    @boundary("process_outputs")
    def process_outputs(self, outputs: list[EngineCoreOutput], timestamp: float) -> OutputProcessorOutput:
        result = OutputProcessorOutput()
        for output in outputs:
            if output.request_id not in self.request_states:
                continue
            state = self.request_states[output.request_id]
            self._update_numbers(state, output, timestamp)
            stopped_by_token = output.finish_reason == FinishReason.STOP
            reason, detail = output.finish_reason, output.stop_reason
            stop_string = self.detokenize(state, output.new_token_ids, stopped_by_token)
            if stop_string is not None:
                detail = stop_string
                if reason is None:
                    result.reqs_to_abort.append(output.request_id)
                reason = FinishReason.STOP
            seen = state.make_request_output(reason, detail)
            if seen is not None:
                result.request_outputs.append(seen)
            if reason is not None:
                del self.request_states[output.request_id]
        return result
