"""A right solution of lab 12: an incremental codec; it holds back only what really begins a stop string."""


class ByteStream(TextStream):
    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], params: SamplingParams) -> None:
        self.tokenizer = tokenizer
        self.skip_special_tokens = params.skip_special_tokens
        self.codec = codecs.getincrementaldecoder("utf-8")("replace")
        self.codec.decode(b"".join(map(self.get_bytes, prompt_ids)))

    def step(self, token_id: int) -> str:
        return self.codec.decode(self.get_bytes(token_id), False)


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    found = (
        (stop_string, output_text.find(stop_string, max(0, 1 + len(output_text) - new_char_count - len(stop_string))))
        for stop_string in (stop if new_char_count else [])
    )
    stop_string, begin = next((pair for pair in found if pair[1] >= 0), (None, -1))
    if stop_string is None:
        return None
    return stop_string, begin + len(stop_string) * include_in_output


class IncrementalDetokenizer(given.IncrementalDetokenizer):
    def __init__(self, text_stream: TextStream | None, params: SamplingParams) -> None:
        self.text_stream = text_stream
        self.stop = params.stop
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        self.stop_buffer_length = 0  # see get_next_output_text
        self.output_text = ""
        self.token_ids: list[int] = []  # of the output; never cut
        self._last_output_text_offset = 0

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        if self.text_stream is None:
            self.token_ids.extend(new_token_ids)
            return None
        protected = max(self.min_tokens - len(self.token_ids), 0)  # so many of these may not stop it
        self.token_ids += new_token_ids
        hidden = 1 if stop_terminated and not self.include_stop_str_in_output else 0
        texts = [self.text_stream.step(token_id) for token_id in new_token_ids[: len(new_token_ids) - hidden]]
        self.output_text += "".join(texts)
        num_new = sum(map(len, texts[protected:]))
        match = None
        if protected < len(new_token_ids):
            match = check_stop_strings(self.output_text, num_new, self.stop, self.include_stop_str_in_output)
        if match is not None and match[1] != -1:
            self.output_text = self.output_text[: match[1]]
        return match and match[0]

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        text = self.output_text
        if not (finished or self.include_stop_str_in_output):
            beginnings = {one[:size] for one in self.stop for size in range(1, len(one))}
            held = max((len(one) for one in beginnings if text.endswith(one)), default=0)
            text = text[: len(text) - held]
        if delta:
            new = text[self._last_output_text_offset :]
            self._last_output_text_offset = max(len(text), self._last_output_text_offset)
            return new
        return text


class OutputProcessor(given.OutputProcessor):
    @boundary("process_outputs")
    def process_outputs(self, outputs: list[EngineCoreOutput], timestamp: float) -> OutputProcessorOutput:
        result = OutputProcessorOutput()
        for output in outputs:
            try:
                state = self.request_states[output.request_id]
            except KeyError:
                continue
            self._update_numbers(state, output, timestamp)
            string = self.detokenize(state, output.new_token_ids, output.finish_reason is FinishReason.STOP)
            ends_here = string is not None
            reason = FinishReason.STOP if ends_here else output.finish_reason
            caller_sees = state.make_request_output(reason, string if ends_here else output.stop_reason)
            if caller_sees:
                result.request_outputs.append(caller_sees)
            if reason is not None:
                self.request_states.pop(output.request_id)
            if ends_here and not output.finished:
                result.reqs_to_abort.append(output.request_id)
        return result
