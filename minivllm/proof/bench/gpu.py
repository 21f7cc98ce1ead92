"""`minivllm bench gpu`: a random model of 1B-like shapes, end to end on a GPU, and a trace of it with device times.

Owns: the model's shapes, the workload, what is measured.
Interface: add_arguments, run.
Must not know: how the engine does it.

The weights are random, so no download is needed, and the text is none: prompts are token ids.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

KV_CACHE_BYTES = 8 << 30

# Llama 3.2 1B, with a quarter of its vocabulary
LIKE_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 32768,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 320,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to see that it runs")
    parser.add_argument("--tiny", action="store_true", help="a tiny model in place of the 1B-like one")
    parser.add_argument("--requests", type=int, default=64, metavar="N", help="default: %(default)s")
    parser.add_argument("--prompt-len", type=int, default=1024, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument("--output-len", type=int, default=128, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument("--trace", type=Path, help="also write a detail-1 trace of one short request to this file")
    parser.add_argument("--out", type=Path, help="write the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        import torch
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"minivllm bench gpu needs the package {error.name!r}: pip install 'minivllm[engine]'. For the kernels "
            "alone, python kernels/gpu_check.py needs torch and triton only."
        ) from error
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no CUDA GPU. To see that it runs: --device cpu --tiny --requests 2")
    with tempfile.TemporaryDirectory(prefix="minivllm-bench-") as folder:
        model = write_random_model(Path(folder), TINY if arguments.tiny else LIKE_1B)
        result = {
            backend: measure(model, backend, arguments)
            for backend in (("triton", "torch") if arguments.device == "cuda" else ("torch",))
        }
        if arguments.trace:
            trace_one_request(model, arguments)
    print(table(result))
    if arguments.out:
        gpu = torch.cuda.get_device_name() if arguments.device == "cuda" else None
        measured = {f"{backend}_backend": one for backend, one in result.items()}
        record = {"gpu": gpu, "torch": torch.__version__, **measured}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def write_random_model(folder: Path, shapes: dict[str, int]) -> Path:
    """A Llama of these shapes with random weights in bfloat16, as a Hugging Face folder without a tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "llama",
        **shapes,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def measure(model: Path, backend: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of all requests together; and the time to the first token and between tokens of one alone."""
    from minivllm import LLM, SamplingParams

    longest = arguments.prompt_len + arguments.output_len
    settings = {"device": arguments.device, "attention_backend": backend, "skip_tokenizer_init": True}
    if arguments.device == "cuda":
        settings["kv_cache_memory_bytes"] = KV_CACHE_BYTES  # not all there is: another engine comes after this one
    # one process: nothing but the engine's own work is measured
    with LLM(str(model), max_model_len=longest, multiprocess=False, **settings) as llm:
        vocabulary = llm.model_config.vocab_size

        def generate(count: int, output_len: int, seed: int) -> float:
            prompts = [
                {
                    "prompt_token_ids": [
                        3 + (seed + 7 * row + 13 * i) % (vocabulary - 3) for i in range(arguments.prompt_len)
                    ]
                }
                for row in range(count)
            ]
            params = SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True)
            start = time.perf_counter()
            llm.generate(prompts, params, use_tqdm=False)
            return time.perf_counter() - start

        generate(min(arguments.requests, 2), 4, seed=1)  # compiles what is to be compiled
        first_token = generate(1, 1, seed=100)
        alone = generate(1, arguments.output_len, seed=200)
        together = generate(arguments.requests, arguments.output_len, seed=300)
    outputs = arguments.requests * arguments.output_len
    return {
        "requests": arguments.requests,
        "prompt_len": arguments.prompt_len,
        "output_len": arguments.output_len,
        "first_token_ms": round(first_token * 1000, 2),
        "ms_per_token_alone": round((alone - first_token) * 1000 / max(arguments.output_len - 1, 1), 3),
        "output_tokens_per_s": round(outputs / together, 1),
        "all_tokens_per_s": round((outputs + arguments.requests * arguments.prompt_len) / together, 1),
    }


def trace_one_request(model: Path, arguments: argparse.Namespace) -> None:
    """A short request on the triton backend, with every kernel launch; on a GPU with its time on the device."""
    from minivllm import LLM, SamplingParams

    backend = "triton" if arguments.device == "cuda" else "torch"
    with LLM(
        str(model),
        device=arguments.device,
        attention_backend=backend,
        max_model_len=128,
        skip_tokenizer_init=True,
        multiprocess=False,
        trace=str(arguments.trace),
        trace_detail=1,
    ) as llm:
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        llm.generate({"prompt_token_ids": list(range(3, 44))}, params, use_tqdm=False)


def table(result: dict[str, dict[str, Any]]) -> str:
    """For the terminal."""
    names = list(next(iter(result.values())))
    lines = [f"{'':22}" + "".join(f"{backend:>12}" for backend in result)]
    lines += [f"{name:22}" + "".join(f"{one[name]:>12}" for one in result.values()) for name in names]
    return "\n".join(lines)
