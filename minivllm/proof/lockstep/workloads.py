"""Random workloads for the scheduler: what arrives when, in which pool, and which tokens a model would say.

Owns: the families of workloads. The same random numbers give the same workload.
Interface: FAMILIES, make_workload (any source of random numbers, also hypothesis's), generate_workloads (from a seed).
Must not know: schedulers.

Every workload can end: each request fits the pool alone, and its `output` is long enough.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from minivllm.config import cdiv
from minivllm.proof.lockstep.recording import Recording, Workload, numbers

EOS_TOKEN_ID = 2
UNLIMITED = 1000  # a max_tokens beyond every max_model_len here: only the context ends the request


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's workloads have in common. A tuple is a range or a choice; a float is a probability."""

    about: str
    block_size: tuple[int, ...] = (4, 8, 16)
    max_model_len: tuple[int, ...] = (128, 200)
    spare_blocks: tuple[int, ...] = (8, 16, 40)  # beyond what the longest request takes
    max_num_seqs: tuple[int, ...] = (2, 4, 8, 16)
    budget: tuple[int, ...] = (32, 64, 256)
    threshold: tuple[int, ...] = (0,)
    chunked: float = 1.0
    caching: float = 1.0
    priority_policy: float = 0.0
    num_requests: tuple[int, int] = (3, 12)
    prompt_len: tuple[int, int] = (1, 120)
    output_len: tuple[int, int] = (1, 24)
    alphabet: int = 900  # how many different tokens there are: few of them make many equal blocks
    shared: float = 0.3  # begins with a prefix that others have too
    repeated: float = 0.1  # is another request's prompt again
    edges: float = 0.1  # ends at, or next to, a block's or the context's edge
    stops: float = 0.1  # end-of-text in the output, stop ids, min_tokens, no max_tokens: each with this probability
    aborts: float = 0.0
    together: float = 0.4  # arrives in the same step as the one before
    extras: bool = False  # uses the optional keys: resets, aborts in flight, salts, requests that don't read the cache


FAMILIES: dict[str, Family] = {
    "chunked": Family("prompts longer than the budget", budget=(16, 24, 32, 50), threshold=(0, 0, 8, 20)),
    "prefix": Family("shared prefixes", shared=0.7, repeated=0.3),
    "preempt": Family(
        "a pool too small for all", spare_blocks=(1, 2, 4, 7), prompt_len=(8, 70), output_len=(8, 50), shared=0.5
    ),
    "priority": Family(
        "priorities, and a pool too small for all",
        priority_policy=1.0,
        spare_blocks=(3, 5, 9),
        prompt_len=(8, 70),
        output_len=(8, 50),
        shared=0.5,
    ),
    "victims": Family(
        "victims that had tokens in the same step: here vLLM can go wrong (docs/differences.md)",
        block_size=(4,),
        max_model_len=(64,),
        spare_blocks=(0, 2, 3),
        max_num_seqs=(4,),
        budget=(64,),
        threshold=(8, 16),
        priority_policy=1.0,
        num_requests=(3, 4),
        prompt_len=(10, 50),
        output_len=(4, 20),
        shared=0.0,
        repeated=0.0,
        edges=0.0,
        stops=0.0,
    ),
    "nocache": Family("no prefix cache", caching=0.0, spare_blocks=(1, 4, 16)),
    "nochunk": Family("no chunked prefill", chunked=0.0),
    "neither": Family("no prefix cache and no chunked prefill", chunked=0.0, caching=0.0, spare_blocks=(0, 3, 9)),
    "stops": Family("everything that ends a request", max_model_len=(64, 128), output_len=(1, 80), stops=0.4),
    "blocks": Family(
        "block sizes from 1 to 64", block_size=(1, 2, 3, 5, 8, 16, 32, 64), alphabet=20, shared=0.6, edges=0.4
    ),
    "budget": Family("budgets of a few tokens", budget=(1, 2, 3, 5, 7), max_num_seqs=(1, 2, 3, 5), prompt_len=(1, 40)),
    "tight": Family("a pool that just fits one request", spare_blocks=(0,), output_len=(1, 90), stops=0.2, edges=0.3),
    "seats": Family("more requests than seats", max_num_seqs=(1, 2, 3), num_requests=(6, 18), together=0.8),
    "threshold": Family("a limit on one request's tokens in a step", threshold=(1, 3, 8, 20), budget=(8, 33, 64)),
    "aborts": Family("aborts while running, waiting, preempted", aborts=0.6, spare_blocks=(0, 2, 5), stops=0.3),
    "context": Family("requests that fill the context", max_model_len=(32, 48, 100), edges=0.8, stops=0.4),
    "resets": Family(
        "prefix-cache resets, aborts in flight, salts", caching=0.8, aborts=0.4, shared=0.7, repeated=0.4, extras=True
    ),
    "hard": Family(
        "a bit of everything",
        block_size=(1, 2, 4, 8, 16, 32, 64),
        max_model_len=(32, 64, 100, 128, 200),
        spare_blocks=(0, 0, 1, 2, 3, 5, 9, 40),
        max_num_seqs=(1, 2, 3, 5, 16),
        budget=(1, 2, 7, 16, 33, 64, 200),
        threshold=(0, 0, 0, 3, 8, 20),
        chunked=0.8,
        caching=0.75,
        priority_policy=0.5,
        alphabet=20,
        shared=0.6,
        repeated=0.25,
        edges=0.3,
        stops=0.3,
        aborts=0.35,
        extras=True,
    ),
}


def generate_workloads(seed: int, count: int, families: list[str] | None = None) -> Recording:
    """`count` workloads of each family (None: of all), from a seed."""
    names = families or list(FAMILIES)
    workloads = [
        make_workload(Random(f"{name}-{number}"), name, number) for name in names for number in numbers(seed, count)
    ]
    return Recording("scheduler", f"minivllm lockstep --generate {seed}", workloads)


def make_workload(random: Random, family_name: str, number: int = 0) -> Workload:
    """A workload of a family. Another `random` gives another one."""
    family = FAMILIES[family_name]
    config = _make_config(random, family)
    workload = {
        "name": f"{family_name}-{number}",
        "config": config,
        "eos_token_id": EOS_TOKEN_ID,
        "requests": _make_requests(random, family, config),
    }
    if family.extras:
        last_step = workload["requests"][-1]["arrival_step"] + 30
        workload |= {"extras": True, "reset_steps": sorted({random.randint(1, last_step) for _ in range(6)})}
    return workload


def _make_config(random: Random, family: Family) -> dict[str, Any]:
    block_size = random.choice(family.block_size)
    max_model_len = random.choice(family.max_model_len)
    chunked = random.random() < family.chunked
    budget = random.choice(family.budget)
    if not chunked:
        budget = max(budget, max_model_len)  # or a long prompt could never be scheduled
    return {
        "block_size": block_size,
        "num_blocks": cdiv(max_model_len, block_size) + 1 + random.choice(family.spare_blocks),
        "max_num_seqs": min(random.choice(family.max_num_seqs), budget),
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "enable_prefix_caching": random.random() < family.caching,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": min(random.choice(family.threshold), max_model_len),
        "policy": "priority" if random.random() < family.priority_policy else "fcfs",
    }


def _make_requests(random: Random, family: Family, config: dict[str, Any]) -> list[dict[str, Any]]:
    longest = config["max_model_len"] - 1
    prefixes = [_tokens(random, family, random.randint(1, longest)) for _ in range(2)]
    requests: list[dict[str, Any]] = []
    step = 0
    for index in range(random.randint(*family.num_requests)):
        prompt = _tokens(random, family, min(random.randint(*family.prompt_len), longest))
        if random.random() < family.shared:
            prompt = (random.choice(prefixes) + prompt)[: random.randint(1, longest)]
        if random.random() < family.edges:
            prompt = _cut_to_an_edge(random, prompt + _tokens(random, family, longest), config)
        if requests and random.random() < family.repeated:
            prompt = list(random.choice(requests)["prompt_token_ids"])
        request = _make_request(random, family, config["max_model_len"] - len(prompt), step)
        requests.append({"id": f"r{index}", "arrival_step": step, "prompt_token_ids": prompt} | request)
        if random.random() >= family.together:
            step += random.choice((1, 1, 2, 3, 5, 20))
    return requests


def _make_request(random: Random, family: Family, room: int, step: int) -> dict[str, Any]:
    """All but the prompt. room: the tokens that the context leaves for the output."""
    max_tokens = random.randint(*family.output_len)
    if random.random() < family.stops:
        max_tokens = random.choice((1, room, max(room - 1, 1), UNLIMITED))
    elif max_tokens > room:
        max_tokens = room
    output = _tokens(random, family, room + 2)
    if random.random() < family.stops:
        output[random.randrange(room)] = EOS_TOKEN_ID
    request = {
        "max_tokens": max_tokens,
        "min_tokens": random.randint(0, min(max_tokens, room)) if random.random() < family.stops else 0,
        "ignore_eos": random.random() < family.stops,
        "stop_token_ids": sorted(set(random.choices(output, k=2))) if random.random() < family.stops else [],
        "priority": random.randint(-1, 3),
        "abort_step": step + random.randint(0, 30) if random.random() < family.aborts else None,
        "output": output,
    }
    if family.extras:
        request |= {
            "abort_in_flight_step": step + random.randint(0, 20) if random.random() < family.aborts else None,
            "cache_salt": random.choice((None, None, "a", "b")),
            "skip_reading_prefix_cache": random.random() < 0.2,
        }
    return request


def _cut_to_an_edge(random: Random, tokens: list[int], config: dict[str, Any]) -> list[int]:
    """As many tokens as fill whole blocks or the context, or one more or less."""
    longest = config["max_model_len"] - 1
    whole_blocks = config["block_size"] * random.randint(1, max(longest // config["block_size"], 1))
    edge = random.choice((whole_blocks, longest)) + random.choice((-1, 0, 1))
    return tokens[: min(max(edge, 1), longest)]


def _tokens(random: Random, family: Family, count: int) -> list[int]:
    return [random.randint(10, 9 + family.alphabet) for _ in range(count)]
