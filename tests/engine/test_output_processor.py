"""OutputProcessor, fed with messages by hand: numbers, ends, ids, and what the caller may change."""

from minivllm.engine.detokenizer import IncrementalDetokenizer
from minivllm.engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason, PrefillStats
from minivllm.engine.output_processor import OutputProcessor
from minivllm.sampling_params import RequestOutputKind, SamplingParams


def opened(*names: str) -> OutputProcessor:
    """Requests 'a-1' that the caller calls 'a', without text."""
    processor = OutputProcessor(None)
    for name in names:
        params = SamplingParams(output_kind=RequestOutputKind.CUMULATIVE)
        processor.add_request(EngineCoreRequest(f"{name}-1", [5, 6], params, 1.0, external_req_id=name), None)
    return processor


def test_times_and_numbers_of_tokens() -> None:
    """The first token's time stays; what is shown is a copy."""
    processor, shown = opened("a"), []
    for at in (20.0, 21.0, 22.0):
        stats = PrefillStats(num_prompt_tokens=2, num_computed_tokens=1, num_cached_tokens=1) if at == 20.0 else None
        output = EngineCoreOutput("a-1", [int(at)], prefill_stats=stats)
        (request_output,) = processor.process_outputs([output], at).request_outputs
        shown.append(request_output)
        request_output.outputs[0].token_ids.append(99)
        request_output.prompt_token_ids.append(99)
    metrics = shown[-1].metrics
    assert (metrics.first_token_ts, metrics.last_token_ts, metrics.num_generation_tokens) == (20.0, 22.0, 3)
    assert [one.outputs[0].token_ids for one in shown] == [[20, 99], [20, 21, 99], [20, 21, 22, 99]]
    assert shown[-1].prompt_token_ids == [5, 6, 99] and shown[-1].num_cached_tokens == 1


def test_requests_are_closed_by_either_id() -> None:
    processor = opened("a", "b", "c")
    assert processor.abort_requests(["a", "c-1", "nobody"]) == ["a-1", "c-1"]
    assert list(processor.request_states) == ["b-1"]
    stopped = processor.stop_requests(["b"])
    assert stopped.reqs_to_abort == ["b-1"] and not processor.has_unfinished_requests()
    assert stopped.request_outputs[0].outputs[0].finish_reason == str(FinishReason.ABORT)


class Spelled:
    """A text stream that says what a token is spelled."""

    def step(self, token_id: int) -> str:
        return "abcdef"[token_id]


def test_new_text_is_given_once_and_held_back_by_the_longest_stop_string() -> None:
    detokenizer = IncrementalDetokenizer(Spelled(), SamplingParams(stop=["x", "zzz"]))
    said = []
    for token in range(5):
        detokenizer.update([token], stop_terminated=False)
        said.append(detokenizer.get_next_output_text(False, delta=True))
    said.append(detokenizer.get_next_output_text(True, delta=True))
    assert said == ["", "", "a", "b", "c", "de"]
