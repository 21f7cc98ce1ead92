"""Named runs of the engine, each made to show one thing; `minivllm record NAME` writes the trace of one.

Owns: the running example (request A and its companions), the settings S0 that all scenarios share, and for each
scenario what differs from them.
Interface: SCENARIOS, get_scenario, run_scenario; write_table_of_traces.
Must not know: how a trace is written.

Everything is fixed: prompts, seeds, arrival by step number, a logical clock. So the same scenario gives the same trace
wherever it is recorded, but for rounding in the model's values. The free-running ones are recorded once, since two
processes do not run at the same pace twice.

vLLM: none, vLLM has no scenarios
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.outputs import RequestOutput
from minivllm.sampling_params import SamplingParams

Messages = list[dict[str, str]]


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


A = _user("Name the capital of France and the capital of Italy.")
B = _user("Name the capital of France and the capital of Spain.")
C = _user("What color is the sky?")
D = _user("Count from one to ten in words.")
E = _user("Write a smiley.")
F = [
    *A,
    {"role": "assistant", "content": "The capital of France is Paris and the capital of Italy is Rome."},
    *_user("And of Spain?"),
]
G = _user("I have a question about Europe. Please tell me: what is the capital of France?")
H = _user("What is the capital of France?")
CITIES = "".join(
    f"{city} is a city in {country}. "
    for city, country in (
        ("Paris", "France"),
        ("Rome", "Italy"),
        ("Madrid", "Spain"),
        ("Berlin", "Germany"),
        ("Vienna", "Austria"),
        ("Lisbon", "Portugal"),
        ("Athens", "Greece"),
        ("Oslo", "Norway"),
    )
)
L = _user(CITIES + "Name the city in Norway.")
V = _user(CITIES + CITIES + "Which city is in Greece?")
R = _user("Name the capital of France and the capital of Italy. Answer in one full sentence, please.")

S0: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks_override": 32,  # 31 usable: a picture of 4 rows of 8
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 256,
    "dtype": "float32",
}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a scenario. Steps count from 1 within the call that it belongs to."""

    messages: Messages
    params: dict[str, Any] = field(default_factory=dict)  # on top of temperature 0, max_tokens 24
    priority: int = 0
    before_step: int = 1  # when it arrives
    abort_before_step: int | None = None  # when its caller gives it up

    def sampling_params(self) -> SamplingParams:
        return SamplingParams(**{"temperature": 0, "max_tokens": 24, **self.params})


@dataclass(frozen=True, slots=True)
class Scenario:
    """What runs, and what it shows. `calls` follow one another, each when the one before has ended."""

    name: str
    shows: str  # one sentence for traces/README.md
    calls: tuple[tuple[Ask, ...], ...]
    settings: dict[str, Any] = field(default_factory=dict)  # on top of S0
    detail: int = 0
    free_running: bool = False  # two processes and the wall clock: no two recordings are the same


def _one(messages: Messages, **params: Any) -> tuple[tuple[Ask, ...], ...]:
    return ((Ask(messages, params),),)


def _together(*conversations: Messages) -> tuple[tuple[Ask, ...], ...]:
    return (tuple(Ask(messages) for messages in conversations),)


def _in_turn(*conversations: Messages) -> tuple[tuple[Ask, ...], ...]:
    return tuple((Ask(messages),) for messages in conversations)


NO_CACHE = {"enable_prefix_caching": False}
TIGHT = {"max_model_len": 96}
POISON = {
    "scheduling_policy": "priority",
    "long_prefill_token_threshold": 32,
    "max_num_batched_tokens": 256,
    "max_model_len": 176,
    "num_gpu_blocks_override": 13,
}
_LATE = ((Ask(A), Ask(C, before_step=5)),)
_POISON_CALLS = ((Ask(V, priority=3), Ask(R, priority=0, before_step=4)),)
_QUEUE = {**NO_CACHE, "num_gpu_blocks_override": 8, "max_model_len": 112}

_ALL = [
    Scenario("hello", "The default prompt: 37 tokens in three blocks, eight steps.", _one(H)),
    Scenario("one", "The running example, request A alone: a block border crossed while decoding.", _one(A)),
    Scenario("again", "Five requests in turn: what each finds in the prefix cache.", _in_turn(A, A, B, C, F)),
    Scenario("twins", "Two equal requests in one step share blocks that are not filled yet.", _together(A, A)),
    Scenario("order", "Two requests of different length: they end apart and return in order.", _together(A, H)),
    Scenario("together", "Three requests in one flat batch; the budget is used to its last token.", _together(A, B, C)),
    Scenario(
        "together-nc", "The same without the prefix cache: the third waits for budget.", _together(A, B, C), NO_CACHE
    ),
    Scenario(
        "together-nc128",
        "The same with twice the budget: all three at once.",
        _together(A, B, C),
        {**NO_CACHE, "max_num_batched_tokens": 128},
    ),
    Scenario(
        "together-nc-nochunk",
        "The same without chunked prefill: a prompt that does not fit waits.",
        _together(A, B, C),
        {**NO_CACHE, "enable_chunked_prefill": False, "max_model_len": 64},
    ),
    *(
        Scenario(
            f"chunk-{n}",
            f"Request A in chunks of at most {n} tokens.",
            _one(A),
            {"max_num_batched_tokens": n, "max_num_seqs": min(8, n)},
        )
        for n in (8, 16, 40, 41)
    ),
    Scenario("late", "A newcomer's prompt and a decode in one flat batch.", _LATE),
    Scenario("late-nc", "The same without the prefix cache.", _LATE, NO_CACHE),
    Scenario("late16-nc", "The same with 16 tokens a step.", _LATE, {**NO_CACHE, "max_num_batched_tokens": 16}),
    Scenario(
        "seats1", "One seat: the second request waits beside an empty pool.", _together(A, B), {"max_num_seqs": 1}
    ),
    Scenario(
        "queue-LC",
        "Head of line: a long request that does not fit stops a short one that would.",
        ((Ask(A), Ask(L, {"max_tokens": 4}, before_step=2), Ask(C, {"max_tokens": 4}, before_step=2)),),
        _QUEUE,
    ),
    Scenario(
        "queue-CL",
        "The same two the other way round.",
        ((Ask(A), Ask(C, {"max_tokens": 4}, before_step=2), Ask(L, {"max_tokens": 4}, before_step=2)),),
        _QUEUE,
    ),
    *(
        Scenario(
            f"pool-{n}",
            f"Preemption and recompute: three requests on {n - 1} usable blocks.",
            _together(A, B, C),
            {**TIGHT, "num_gpu_blocks_override": n},
        )
        for n in (7, 8, 9, 10)
    ),
    *(
        Scenario(
            f"pool-{n}-nc",
            f"The same on {n - 1} usable blocks, without the prefix cache.",
            _together(A, B, C),
            {**TIGHT, **NO_CACHE, "num_gpu_blocks_override": n},
        )
        for n in (8, 12)
    ),
    Scenario(
        "evict",
        "What was cached is overwritten by others, the end of it first.",
        ((Ask(A),), (Ask(C),), (Ask(D, {"max_tokens": 60}),), (Ask(A),)),
        {**TIGHT, "num_gpu_blocks_override": 8},
    ),
    Scenario("full", "A prompt that is cached to its last token: its last block is computed again.", _in_turn(G, G)),
    *(
        Scenario(
            f"block-{n}",
            f"Request A twice with blocks of {n} tokens.",
            _in_turn(A, A),
            {"block_size": n, "num_gpu_blocks_override": 512 // n},
        )
        for n in (8, 32)
    ),
    Scenario("poison", "Trap 62: a victim's blocks that were never filled, with our rule.", _POISON_CALLS, POISON),
    Scenario(
        "poison-as-vllm",
        "The same without our rule, as vLLM 0.22.0 does it: a hit on blocks that hold nothing, and a wrong answer.",
        _POISON_CALLS,
        {**POISON, "parts": {"scheduler": "minivllm.lockstep.scheduler:PoisonedScheduler"}},
    ),
    *(
        Scenario(
            f"poison-pool-{n}",
            f"The same requests with {n - 1} usable blocks, as a control.",
            _POISON_CALLS,
            {**POISON, "num_gpu_blocks_override": n},
        )
        for n in (14, 64)
    ),
    Scenario(
        "stop-string",
        "A stop string ends the request from the caller's side; the core is told.",
        _one(A, stop=["Paris"]),
    ),
    Scenario("stop-token", "A stop token ends it in the core.", _one(A, stop_token_ids=[7042])),
    Scenario("stop-over-border", "A stop string over the border of two tokens.", _one(A, stop=["is Pa"])),
    Scenario("stop-min-tokens", "min_tokens guards a stop string.", _one(A, stop=["Paris"], min_tokens=6)),
    Scenario("smiley", "One character in three tokens.", _one(E, max_tokens=7)),
    Scenario("max-tokens-1", "A request that ends with its first token.", _one(A, max_tokens=1)),
    Scenario("default-length", "The default max_tokens cuts an answer off.", _one(D, max_tokens=16)),
    Scenario("min-tokens", "min_tokens keeps an answer from ending.", _one(A, min_tokens=16)),
    Scenario(
        "prompt-logprobs",
        "Prompt logprobs: a cached prompt is computed again, from its first token.",
        ((Ask(A),), (Ask(A, {"prompt_logprobs": 1, "max_tokens": 1}),)),
    ),
    Scenario(
        "seeds",
        "Three draws side by side, two of them with the same seed.",
        (tuple(Ask(A, {"temperature": 1.0, "seed": seed}) for seed in (1, 1, 2)),),
    ),
    Scenario("seed-alone", "The draw with that seed, alone.", _one(A, temperature=1.0, seed=1)),
    Scenario(
        "hesitation", "Request A until it wavers between two tokens, with values.", _one(A, max_tokens=7), detail=2
    ),
    Scenario(
        "hot",
        "Its first token at temperature 2, with values.",
        _one(A, temperature=2.0, seed=0, max_tokens=1),
        detail=2,
    ),
    Scenario("abort", "A caller gives a request up; another takes its row.", ((Ask(A, abort_before_step=6), Ask(B)),)),
    Scenario("n2", "Two answers to one prompt: two requests that share blocks.", _one(A, n=2, temperature=1.0, seed=0)),
    Scenario(
        "priority",
        "Three requests on two seats, the most important last to arrive.",
        ((Ask(A, priority=2), Ask(B, priority=1, before_step=2), Ask(C, priority=0, before_step=3)),),
        {"scheduling_policy": "priority", "max_num_seqs": 2},
    ),
    Scenario("one-detail1", "Request A with every layer.", _one(A, max_tokens=2), detail=1),
    Scenario("one-detail2", "Request A with values.", _one(A, max_tokens=2), detail=2),
    Scenario("one-wall", "Request A across two processes: messages and their bytes.", _one(A), free_running=True),
    Scenario(
        "late-abort-wall",
        "A stop string across two processes: the core is told while it runs ahead.",
        _one(A, stop=["Paris"]),
        free_running=True,
    ),
]

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def get_scenario(name: str) -> Scenario:
    """Raises InputError for a name that there isn't."""
    if name not in SCENARIOS:
        raise InputError(f"There is no scenario {name!r}. There are: {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def run_scenario(
    scenario: Scenario, model: str | None = None, trace: str | None = None, **settings: Any
) -> list[RequestOutput]:
    """Run a scenario in this process and on a logical clock, if not free_running; write its trace to the file `trace`.

    settings: more fields of EngineConfig. Returns what the callers got, in the order of the requests.

    vLLM: none, see scenarios.py
    """
    from minivllm.llm import LLM

    config = {**S0, **scenario.settings, "multiprocess": scenario.free_running, **settings}
    if trace is not None:
        clock = "monotonic" if scenario.free_running else "logical"
        config |= {"trace": trace, "trace_detail": scenario.detail, "trace_clock": clock}
    with LLM(model, **config) as llm:
        return [output for asks in scenario.calls for output in _run_call(llm, asks)]


def _run_call(llm: Any, asks: tuple[Ask, ...]) -> list[RequestOutput]:
    if (
        all(ask.before_step == 1 and ask.abort_before_step is None for ask in asks)
        and len({a.priority for a in asks}) == 1
    ):
        return llm.chat([ask.messages for ask in asks], [ask.sampling_params() for ask in asks], use_tqdm=False)
    return _run_step_by_step(llm, asks)


def _run_step_by_step(llm: Any, asks: tuple[Ask, ...]) -> list[RequestOutput]:
    """What LLM.chat does, with requests that come and go between steps."""
    engine = llm.llm_engine
    outputs: list[RequestOutput] = []
    ids: dict[int, str] = {}
    step = 0
    while len(ids) < len(asks) or engine.has_unfinished_requests():
        step += 1
        for index, ask in enumerate(asks):
            if ask.before_step == step:
                ids[index] = llm.next_request_id()
                engine_input = engine.input_processor.render_chat(ask.messages)
                engine.add_request(ids[index], engine_input, ask.sampling_params(), ask.priority)
            if ask.abort_before_step == step:
                engine.abort_request([ids[index]])
        outputs += [output for output in engine.step() if output.finished]
    return sorted(outputs, key=lambda output: int(output.request_id))


# ---------------------------------------------------------------------- the list of recorded traces


def table_of_traces(folder: Path) -> str:
    """The recorded scenarios of a folder as a Markdown table, with numbers read off the traces."""
    from minivllm.trace import load

    lines = ["| trace | what it shows | requests | steps | events |", "|---|---|---:|---:|---:|"]
    for scenario in _ALL:
        path = folder / f"{scenario.name}.jsonl.gz"
        if path.exists():
            trace = load(path)
            numbers = f"{len(trace.request_ids)} | {len(trace.steps)} | {len(trace):,}"
            lines.append(f"| [{scenario.name}]({path.name}) | {scenario.shows} | {numbers} |")
    return "\n".join(lines)


def write_table_of_traces(folder: Path) -> None:
    """Put the table into the folder's README.md, between its marks; nothing happens where there is no such file."""
    readme = folder / "README.md"
    if not readme.exists():
        return
    before, _, rest = readme.read_text(encoding="utf-8").partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- /table -->")
    readme.write_text(f"{before}<!-- table -->\n{table_of_traces(folder)}\n<!-- /table -->{after}", encoding="utf-8")
