"""Hypothesis's strategy of scheduler workloads, in the recorded format (traces/vllm-0.22.0/README.md).

Small on purpose: few tokens make many equal blocks, pools that just fit make preemptions, and what fails shrinks to
something that can be read. Every workload can end: each request fits the pool alone, and its output is long enough.
"""

from typing import Any

from hypothesis import strategies as st

from minivllm.config import cdiv

EOS_TOKEN_ID = 2
TOKENS = st.integers(3, 5)  # so few that requests share blocks by chance
UNLIMITED = 1000

Workload = dict[str, Any]


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """The `config` of a workload: any block size from 1 to 64, a pool that fits one request and little more."""
    block_size = draw(st.sampled_from((1, 2, 3, 4, 7, 8, 16, 32, 64)))
    max_model_len = draw(st.integers(2, 40) | st.integers(41, 150))
    chunked = draw(st.sampled_from((True, True, False)))
    budget = draw(st.integers(1, 12) | st.integers(13, 200))
    if not chunked:
        budget = max(budget, max_model_len)
    return {
        "block_size": block_size,
        "num_blocks": cdiv(max_model_len, block_size) + 1 + draw(st.integers(0, 6)),
        "max_num_seqs": min(budget, draw(st.sampled_from((1, 2, 3, 6)))),
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "enable_prefix_caching": draw(st.sampled_from((True, True, False))),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": draw(st.just(0) | st.integers(1, max_model_len)),
        "policy": draw(st.sampled_from(("fcfs", "priority"))),
    }


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to eight requests that share prefixes, arrive when they like, and end in every way."""
    config = draw(configs())
    longest = config["max_model_len"] - 1
    prefix = (draw(st.lists(TOKENS, min_size=1, max_size=3)) * longest)[:longest]
    requests: list[dict[str, Any]] = []
    step = 0
    for index in range(draw(st.integers(1, 4) | st.integers(5, 10))):
        shared = draw(st.integers(0, longest))
        tail = draw(st.lists(TOKENS, min_size=0 if shared else 1, max_size=min(longest - shared, 6)))
        prompt = prefix[:shared] + tail
        requests.append(
            {"id": f"r{index}", "arrival_step": step, "prompt_token_ids": prompt}
            | draw(_request(config["max_model_len"] - len(prompt), step))
        )
        step += draw(st.sampled_from((0, 0, 0, 1, 2, 9)))
    return {
        "name": "made by hypothesis",
        "config": config,
        "eos_token_id": EOS_TOKEN_ID,
        "extras": True,
        "reset_steps": draw(st.lists(st.integers(0, step + 20), max_size=2, unique=True)),
        "requests": requests,
    }


@st.composite
def _request(draw: st.DrawFn, room: int, step: int) -> dict[str, Any]:
    """All but the prompt. room: the tokens that the context leaves for the output."""
    max_tokens = draw(st.sampled_from((1, 2, min(room, 9), min(room, 25), UNLIMITED)))
    output = (draw(st.lists(TOKENS, min_size=1, max_size=4)) * room)[:room]
    if draw(st.sampled_from((False, False, False, True))):
        output[draw(st.integers(0, min(room, 30) - 1))] = EOS_TOKEN_ID
    aborts = st.sampled_from((None,) * 24 + tuple(step + later for later in (0, 1, 2, 5, 9, 20)))
    return {
        "max_tokens": max_tokens,
        "min_tokens": draw(st.sampled_from((0, 0, 0, min(2, max_tokens, room), min(max_tokens, room)))),
        "ignore_eos": draw(st.booleans()),
        "stop_token_ids": draw(st.sampled_from(([], [], [], [], [5], [4, 5]))),
        "priority": draw(st.integers(-1, 2)),
        "abort_step": draw(aborts),
        "abort_in_flight_step": draw(aborts),
        "cache_salt": draw(st.sampled_from((None, None, None, "a", "b"))),
        "skip_reading_prefix_cache": draw(st.sampled_from((False, False, False, True))),
        "output": output,
    }
