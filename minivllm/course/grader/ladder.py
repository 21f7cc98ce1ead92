"""The ladder: 61 smallest workloads, in a notation of one line each (traces/labs/ladder.txt).

Owns: the notation, read and written. Interface: parse_ladder, parse_rung, describe.
Must not know: schedulers, or what came out.
"""

import re
from typing import Any

from minivllm.proof.lockstep.recording import Workload

EOS_TOKEN_ID = 2
TOKENS = {"a": 10, "b": 11, "E": EOS_TOKEN_ID}
SETTINGS = {"B": "block_size", "N": "num_blocks", "S": "max_num_seqs", "T": "max_num_batched_tokens"}
REQUEST = re.compile(r"(?:(\d+)\+)?([abE*\d]+)>(\d+)(?:=([abE*\d]+))?((?: \S+)*)")


def parse_ladder(text: str) -> list[Workload]:
    """All workloads of a ladder file; lines that begin with # are comments."""
    lines = (line.strip() for line in text.splitlines())
    return [parse_rung(line) for line in lines if line and not line.startswith("#")]


def parse_rung(line: str) -> Workload:
    """One line as a workload of the lockstep format, without steps. Raises ValueError for anything else."""
    head, _, tail = line.partition(":")
    name, *words = head.split()
    config: dict[str, Any] = {
        "block_size": 0,
        "num_blocks": 0,
        "max_num_seqs": 0,
        "max_num_batched_tokens": 0,
        "max_model_len": 0,
        "enable_prefix_caching": "cache" in words,
        "enable_chunked_prefill": "whole" not in words,
        "long_prefill_token_threshold": 0,
        "policy": "priority" if "prio" in words else "fcfs",
    }
    for word in words:
        if word[0] in SETTINGS:
            config[SETTINGS[word[0]]] = int(word[1:])
        elif word[0] == "M":
            config["max_model_len"] = int(word[1:])
        elif word.startswith("thr"):
            config["long_prefill_token_threshold"] = int(word[3:])
        elif word not in ("cache", "whole", "prio"):
            raise ValueError(f"{name}: {word!r} is no setting of the ladder's notation")
    requests = [_parse_request(name, index, part.strip()) for index, part in enumerate(tail.split(","))]
    return {"name": name, "notation": line, "config": config, "eos_token_id": EOS_TOKEN_ID, "requests": requests}


def _parse_request(name: str, index: int, part: str) -> dict[str, Any]:
    found = REQUEST.fullmatch(part)
    if found is None:
        raise ValueError(f"{name}: {part!r} is no request of the ladder's notation")
    arrival, prompt, max_tokens, output, flags = found.groups()
    request: dict[str, Any] = {
        "id": f"r{index}",
        "arrival_step": int(arrival or 0),
        "prompt_token_ids": _tokens(prompt),
        "max_tokens": int(max_tokens),
        "min_tokens": 0,
        "ignore_eos": False,
        "stop_token_ids": [],
        "priority": 0,
        "abort_step": None,
        "output": _tokens(output or ""),
    }
    request["output"] += [TOKENS["a"]] * (request["max_tokens"] + 2 - len(request["output"]))
    for flag in flags.split():
        if flag == "ign":
            request["ignore_eos"] = True
        elif flag.startswith("stop="):
            request["stop_token_ids"] = _tokens(flag[5:])
        elif flag.startswith("min"):
            request["min_tokens"] = int(flag[3:])
        elif flag.startswith("pri"):
            request["priority"] = int(flag[3:])
        elif flag.startswith("abort"):
            request["abort_step"] = int(flag[5:])
        else:
            raise ValueError(f"{name}: {flag!r} is no flag of the ladder's notation")
    return request


def _tokens(text: str) -> list[int]:
    found: list[int] = []
    for token, times in re.findall(r"([abE])(?:\*(\d+))?", text):
        found += [TOKENS[token]] * int(times or 1)
    return found
