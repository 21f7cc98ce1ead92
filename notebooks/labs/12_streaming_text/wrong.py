"""Wrong solutions of lab 12: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

STREAM = "ByteStream.step"
PROMPT = "ByteStream.__init__"
SEARCH = "check_stop_strings"
START = "IncrementalDetokenizer.__init__"
UPDATE = "IncrementalDetokenizer.update"
NEXT = "IncrementalDetokenizer.get_next_output_text"
PROCESS = "OutputProcessor.process_outputs"
STEP_LINE = "return self.decoder.decode(self.get_bytes(token_id))"
START_LINE = "start = max(len(output_text) - new_char_count - len(stop_string) + 1, 0)"
FIND_LINE = "found = output_text.find(stop_string, start)"
LOOP_LINE = "for stop_string in stop:"

WRONG = [
    Wrong(
        id="each_token_alone",
        task="12.1",
        symbol=STREAM,
        old=STEP_LINE,
        new='return self.get_bytes(token_id).decode("utf-8", "replace")',
        misconception="a token is text",
        message="each token was decoded alone, and half a character came out broken. Wait for the rest of its bytes.",
    ),
    Wrong(
        id="drops_half_characters",
        task="12.1",
        symbol=STREAM,
        old=STEP_LINE,
        new='return self.get_bytes(token_id).decode("utf-8", "ignore")',
        misconception="what can't be decoded is nothing",
        message="bytes of half a character were thrown away. Keep them until the token with the rest comes.",
    ),
    Wrong(
        id="whole_text_minus_old",
        task="12.1",
        symbol=STREAM,
        old=STEP_LINE,
        new='self.data = getattr(self, "data", b"") + self.get_bytes(token_id)\n'
        '        old, self.text = getattr(self, "text", ""), self.data.decode("utf-8", "replace")\n'
        "        return self.text[len(old) :]",
        misconception="decode all of it, cut off what was said",
        message="half a character was said, broken, and counts as said when its rest comes.",
    ),
    Wrong(
        id="prompt_forgotten",
        task="12.1",
        symbol=PROMPT,
        old="self.decoder.decode(self.get_bytes(token_id))",
        new="pass",
        misconception="the output begins with a character",
        message="the prompt ended within a character, and the output begins with its rest. Keep its last bytes.",
    ),
    Wrong(
        id="prompt_said_again",
        task="12.1",
        symbol=PROMPT,
        old="            self.decoder.decode(self.get_bytes(token_id))",
        new='            self.said = getattr(self, "said", "")\n'
        "            self.said += self.decoder.decode(self.get_bytes(token_id))",
        misconception="the stream says all that it was given",
        message="the prompt's text came out with the first token. Only a character that it left half does.",
        more=(
            (
                STREAM,
                STEP_LINE,
                'said, self.said = getattr(self, "said", ""), ""\n'
                "        return said + self.decoder.decode(self.get_bytes(token_id))",
            ),
        ),
    ),
    Wrong(
        id="looks_in_the_new_text_only",
        task="12.2",
        symbol=SEARCH,
        old=START_LINE,
        new="start = len(output_text) - new_char_count",
        misconception="a stop string is a token",
        message="a stop string that began in an earlier token was not found.",
    ),
    Wrong(
        id="looks_one_too_few",
        task="12.2",
        symbol=SEARCH,
        old="+ 1, 0)",
        new="+ 2, 0)",
        misconception="an index that is off by one",
        message="the search begins one character too late: a stop string that only ends in the new text is missed.",
    ),
    Wrong(
        id="looks_everywhere",
        task="12.2",
        symbol=SEARCH,
        old=START_LINE,
        new="start = 0",
        misconception="find it anywhere",
        message="a stop string was found in text that was searched before. It must end in the new characters.",
    ),
    Wrong(
        id="earliest_match_wins",
        task="12.2",
        symbol=SEARCH,
        old=LOOP_LINE,
        new="for stop_string in sorted(stop, key=lambda one: output_text.find(one) % 10**6):",
        misconception="the first one in the text wins",
        message="the stop string that stands first in the text was taken. The first of the list wins.",
    ),
    Wrong(
        id="longest_first",
        task="12.2",
        symbol=SEARCH,
        old=LOOP_LINE,
        new="for stop_string in sorted(stop, key=len, reverse=True):",
        misconception="the most specific one wins",
        message="the longest stop string was taken. The first of the list wins.",
    ),
    Wrong(
        id="last_match",
        task="12.2",
        symbol=SEARCH,
        old=FIND_LINE,
        new="found = output_text.rfind(stop_string, start)",
        misconception="the end of the text counts",
        message="the last place was taken. The text ends where the stop string comes for the first time.",
    ),
    Wrong(
        id="must_stand_at_the_end",
        task="12.2",
        symbol=SEARCH,
        old=FIND_LINE,
        new="found = len(output_text) - len(stop_string) if output_text.endswith(stop_string) else -1",
        misconception="a token ends with its stop string",
        message="a stop string in the middle of the new text was missed: a token may go on after it.",
    ),
    Wrong(
        id="included_keeps_the_rest",
        task="12.2",
        symbol=SEARCH,
        old="return stop_string, -1 if end == len(output_text) else end",
        new="return stop_string, -1",
        misconception="included means untouched",
        message="what stands after the stop string stayed in the text. Included is the stop string, nothing beyond it.",
    ),
    Wrong(
        id="include_ignored",
        task="12.2",
        symbol=SEARCH,
        old="if not include_in_output:",
        new="if True:",
        misconception="a stop string never shows",
        message="the stop string was cut, although include_in_output is set.",
    ),
    Wrong(
        id="stop_string_stays",
        task="12.2",
        symbol=SEARCH,
        old="return stop_string, found\n",
        new="return stop_string, found + len(stop_string)\n",
        misconception="cut behind it",
        message="the stop string stayed in the text. Without include_in_output the text ends before it.",
    ),
    Wrong(
        id="ids_cut_with_the_text",
        task="12.3",
        symbol=UPDATE,
        old="            self.output_text = self.output_text[:cut]",
        new="            self.output_text = self.output_text[:cut]\n            self.token_ids.pop()",
        misconception="text and ids agree",
        message="token_ids was cut with the text. It holds all tokens that were sampled.",
    ),
    Wrong(
        id="nothing_held_back",
        task="12.3",
        symbol=START,
        old="max(map(len, self.stop)) - 1",
        new="0",
        misconception="show what is there",
        message="a character that may begin a stop string was shown. Hold back the last max(len(stop)) - 1 characters "
        "until the end.",
    ),
    Wrong(
        id="one_too_many_held",
        task="12.3",
        symbol=START,
        old="max(map(len, self.stop)) - 1",
        new="max(map(len, self.stop))",
        misconception="hold the whole length",
        message="one character too many is held back: of n characters at most n - 1 can be there already.",
    ),
    Wrong(
        id="held_by_the_shortest",
        task="12.3",
        symbol=START,
        old="max(map(len, self.stop)) - 1",
        new="min(map(len, self.stop)) - 1",
        misconception="the first one that can match",
        message="what is held back goes by the shortest stop string. The longest one begins furthest back.",
    ),
    Wrong(
        id="held_although_included",
        task="12.3",
        symbol=START,
        old="if self.stop and not self.include_stop_str_in_output:",
        new="if self.stop:",
        misconception="stop strings are always held back",
        message="text is held back although the stop string will be shown anyway: then nothing has to wait.",
    ),
    Wrong(
        id="never_flushed",
        task="12.3",
        symbol=NEXT,
        old="(0 if finished else self.stop_buffer_length)",
        new="self.stop_buffer_length",
        misconception="held stays held",
        message="the characters that were held back are lost. At the end they can't begin anything any more.",
    ),
    Wrong(
        id="stop_token_shown",
        task="12.3",
        symbol=UPDATE,
        old="hide_last = stop_terminated and not self.include_stop_str_in_output",
        new="hide_last = False",
        misconception="every token is text",
        message="the token that stopped the request is in the text. It belongs to token_ids alone.",
    ),
    Wrong(
        id="stop_token_lost",
        task="12.3",
        symbol=UPDATE,
        old="            self.token_ids.append(token_id)",
        new="            if not (hide_last and index == len(new_token_ids) - 1):\n"
        "                self.token_ids.append(token_id)",
        misconception="what is not shown is not there",
        message="the token that stopped the request is missing in token_ids. Only the text leaves it out.",
    ),
    Wrong(
        id="delta_is_everything",
        task="12.3",
        symbol=NEXT,
        old="return self.output_text[start:length]",
        new="return self.output_text[:length]",
        misconception="delta is the text of now",
        message="with delta the old text came again. Only what is new since the last call is asked for.",
    ),
    Wrong(
        id="held_counts_as_sent",
        task="12.3",
        symbol=NEXT,
        old="self._last_output_text_offset = length",
        new="self._last_output_text_offset = len(self.output_text)",
        misconception="what is there has been sent",
        message="text that was held back counts as sent, and never comes.",
    ),
    Wrong(
        id="min_tokens_ignored",
        task="12.3",
        symbol=UPDATE,
        old="if self.min_tokens and len(self.token_ids) <= self.min_tokens:",
        new="if False:",
        misconception="min_tokens is the core's business",
        message="a stop string ended the request within min_tokens. None is looked for in that text, then or later.",
        more=((UPDATE, "if not self.stop or len(self.token_ids) <= self.min_tokens:", "if not self.stop:"),),
    ),
    Wrong(
        id="min_tokens_off_by_one",
        task="12.3",
        symbol=UPDATE,
        old="if self.min_tokens and len(self.token_ids) <= self.min_tokens:",
        new="if False:",
        misconception="with the last of them the search begins",
        message="a stop string ended the request with token number min_tokens. It may with the one after that.",
        more=(
            (
                UPDATE,
                "if not self.stop or len(self.token_ids) <= self.min_tokens:",
                "if not self.stop or len(self.token_ids) < self.min_tokens:",
            ),
        ),
    ),
    Wrong(
        id="searches_the_past",
        task="12.3",
        symbol=UPDATE,
        old="searched = len(self.output_text)  # no stop string is looked for before this",
        new="searched = 0",
        misconception="search all, it is short",
        message="a stop string was found in text that min_tokens had protected. Only new characters are searched.",
    ),
    Wrong(
        id="each_token_searched_alone",
        task="12.3",
        symbol=UPDATE,
        old="                self.output_text += self.text_stream.step(token_id)\n",
        new="""\
                self.output_text += self.text_stream.step(token_id)
                found = None
                if len(self.token_ids) > self.min_tokens:
                    num_new = len(self.output_text) - searched
                    found = check_stop_strings(self.output_text, num_new, self.stop, self.include_stop_str_in_output)
                if found is not None:
                    self.token_ids += new_token_ids[index + 1 :]
                    self.output_text = self.output_text[: found[1]] if found[1] != -1 else self.output_text
                    return found[0]
""",
        misconception="one token after the other",
        message="each token of a message was searched alone. All its tokens are taken in first; then the first stop "
        "string of the list wins that ends anywhere in the new text.",
    ),
    Wrong(
        id="core_not_told",
        task="12.4",
        symbol=PROCESS,
        old="result.reqs_to_abort.append(output.request_id)",
        new="pass",
        misconception="the core knows",
        message="the core was not told of a stop string. It knows tokens alone, and would go on.",
    ),
    Wrong(
        id="aborts_the_finished",
        task="12.4",
        symbol=PROCESS,
        old="if not output.finished:",
        new="if True:",
        misconception="every end is an abort",
        message="a request that the core has ended itself is to be aborted. It knows of that end.",
    ),
    Wrong(
        id="late_output_accepted",
        task="12.4",
        symbol=PROCESS,
        old="del self.request_states[output.request_id]",
        new="pass",
        misconception="the core stops sending",
        message="an ended request stays open, and tokens that the core computed in vain are shown.",
    ),
    Wrong(
        id="everybody_is_known",
        task="12.4",
        symbol=PROCESS,
        old="self.request_states.get(output.request_id)",
        new="self.request_states[output.request_id]",
        misconception="the core speaks of open requests alone",
        message="an output of a request that has ended here crashes. The core may be a step ahead: ignore it.",
    ),
    Wrong(
        id="the_core_wins",
        task="12.4",
        symbol=PROCESS,
        old="if stop_string is not None:",
        new="if stop_string is not None and finish_reason is None:",
        misconception="the core knows best",
        message="the core's reason was kept, although the same token completed a stop string. That counts.",
    ),
    Wrong(
        id="reason_without_the_string",
        task="12.4",
        symbol=PROCESS,
        old="finish_reason, stop_reason = FinishReason.STOP, stop_string",
        new="finish_reason = FinishReason.STOP",
        misconception="a stop is a stop",
        message="stop_reason does not say which stop string it was.",
    ),
    Wrong(
        id="length_hides_the_last",
        task="12.4",
        symbol=PROCESS,
        old="finish_reason is FinishReason.STOP)",
        new="finish_reason is not None)",
        misconception="the last token is a stop token",
        message="the last token of a request that ended by its length was kept out of the text. Only a stop token is.",
    ),
]

HARMLESS = [
    Harmless(
        id="second_guard_off_by_one",
        task="12.3",
        symbol=UPDATE,
        old="if not self.stop or len(self.token_ids) <= self.min_tokens:",
        new="if not self.stop or len(self.token_ids) < self.min_tokens:",
        proof=(
            "With token number min_tokens `searched` is the text's whole length, so that there are no new characters, "
            "in which no stop string can end."
        ),
    ),
    Harmless(
        id="second_guard_gone",
        task="12.3",
        symbol=UPDATE,
        old="if not self.stop or len(self.token_ids) <= self.min_tokens:",
        new="if not self.stop:",
        proof=(
            "Up to token number min_tokens `searched` is the text's whole length, so that there are no new characters, "
            "in which no stop string can end."
        ),
    ),
]
