"""TritonBackend beside TorchBackend: the same output, the same tokens; and how it comes to run at all."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_driver import common_metadata
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.attention.backend import AttentionBackend
from minivllm.attention.selector import get_attn_backend
from minivllm.boundary import boundaries
from minivllm.errors import InputError
from minivllm_kernels.tuning import choose_form


def backends(heads: int = 4, kv_heads: int = 2, device: str = "cpu") -> list[AttentionBackend]:
    shape = {"num_heads": heads, "num_kv_heads": kv_heads, "head_size": 16, "block_size": 4}
    return [get_attn_backend(name, device, **shape) for name in ("triton", "torch")]


def outputs_of(rows: list[tuple[int, int]], device: str, padding: int = 0, rows_of_nothing: int = 0) -> list:
    """(output, cache, metadata) of both backends: rows of (new tokens, all tokens), then tokens of padding."""
    results = []
    for backend in backends(device=device):
        randomness = torch.Generator().manual_seed(0)
        pool = torch.randperm(400, generator=randomness).tolist()
        tables = [[pool.pop() + 1 for _ in range(-(-length // 4))] for _, length in rows]
        cache = torch.full(backend.kv_cache_shape(402, 4, 2, 16), torch.nan)
        lengths = [length for _, length in rows]
        everything = common_metadata(lengths, lengths, tables, 4)
        key, value = (torch.randn(sum(lengths), 2, 16, generator=randomness) for _ in range(2))
        common = common_metadata(
            [new for new, _ in rows] + [0] * rows_of_nothing,
            lengths + [0] * rows_of_nothing,
            tables + [[]] * rows_of_nothing,
            4,
        )
        for metadata in (everything, common):
            for name in ("query_start_loc", "seq_lens", "block_table_tensor", "slot_mapping"):
                setattr(metadata, name, getattr(metadata, name).to(device))
        cache = cache.to(device)
        backend.do_kv_cache_update(0, key.to(device), value.to(device), cache, everything.slot_mapping)
        query = torch.randn(sum(new for new, _ in rows) + padding, 4, 16, generator=randomness).to(device)
        attn_metadata = backend.build(common)
        results.append((backend.forward(0, query, cache, attn_metadata), cache, attn_metadata))
    return results


@settings(max_examples=20)
@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 1, 2, 9]), st.integers(0, 30)), min_size=1, max_size=5),
    padding=st.integers(0, 2),
    rows_of_nothing=st.integers(0, 2),
)
def test_any_mix_of_rows_equals_the_torch_backend(
    device: str, rows: list[tuple[int, int]], padding: int, rows_of_nothing: int
) -> None:
    rows = [(new, new + before) for new, before in rows]
    (got, got_cache, _), (expected, expected_cache, _) = outputs_of(rows, device, padding, rows_of_nothing)
    assert torch.equal(got_cache.nan_to_num(7.0), expected_cache.nan_to_num(7.0))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("rows", "form"), [([(1, 9)] * 3, "split"), ([(1, 9)] * 65, "decode"), ([(1, 9), (2, 9)], "varlen")]
)
def test_form_follows_the_batch(rows: list[tuple[int, int]], form: str, device: str) -> None:
    (got, _, metadata), (expected, _, _) = outputs_of(rows, device)
    assert metadata.backend.form == form
    assert metadata.backend.num_segments == (16 if form == "split" else 1)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_rule_is_vllms() -> None:
    """3D iff each row has one new token and there are at most 128 // KV heads rows."""
    assert choose_form(42, 42, 1, num_kv_heads=3) == "split"
    assert choose_form(43, 43, 1, num_kv_heads=3) == "decode"
    assert choose_form(16, 16, 1, num_kv_heads=8) == "split"
    assert choose_form(17, 17, 1, num_kv_heads=8) == "decode"
    assert choose_form(3, 4, 2, num_kv_heads=8) == "varlen"
    assert choose_form(3, 2, 1, num_kv_heads=8) == "varlen", "a row without a token is padding"


def test_every_kernel_goes_through_launch(device: str) -> None:
    """An observer that replaces the marked method on the object sees all launches, with names for all arguments."""
    backend = backends(device=device)[0]
    assert boundaries(type(backend)) == {
        "do_kv_cache_update": "do_kv_cache_update",
        "forward": "attention",
        "launch": "kernel.launch",
    }
    seen = []

    def watched(kernel, grid, **arguments) -> None:
        seen.append(backend.probe.describe_launch(kernel, grid, arguments)["name"])
        type(backend).launch(backend, kernel, grid, **arguments)

    backend.launch = watched
    cache = torch.zeros(backend.kv_cache_shape(8, 4, 2, 16), device=device)
    for new in (3, 1):
        common = common_metadata([new], [new], [[5]], 4)
        for name in ("query_start_loc", "seq_lens", "block_table_tensor", "slot_mapping"):
            setattr(common, name, getattr(common, name).to(device))
        backend.do_kv_cache_update(0, *torch.ones(2, new, 2, 16, device=device), cache, common.slot_mapping)
        backend.forward(0, torch.ones(new, 4, 16, device=device), cache, backend.build(common))
    write = "reshape_and_cache_kernel"
    assert seen == [
        write,
        "paged_attention_kernel",
        write,
        "paged_decode_segments_kernel",
        "reduce_segments_kernel",
    ]


# ---------------------------------------------------------------------- in the engine


@pytest.mark.parametrize("multiprocess", [False, True])
def test_same_tokens_as_the_torch_backend(multiprocess: bool, device: str) -> None:
    """Chunks, mixed batches and decodes of three requests, on a tiny model."""
    prompts = [list(range(3, 30)), [7, 8, 9], list(range(40, 57))]
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    tokens = {}
    for name in ("triton", "torch"):
        settings = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "block_size": 4, "num_gpu_blocks_override": 64}
        settings |= {"dtype": "float32", "max_model_len": 64, "skip_tokenizer_init": True}
        settings["multiprocess"] = multiprocess
        with LLM(str(tiny_model()), device=device, attention_backend=name, **settings) as llm:
            assert llm.llm_engine.engine_core.ready.attention_backend == name
            answers = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
            tokens[name] = [answer.outputs[0].token_ids for answer in answers]
    assert tokens["triton"] == tokens["torch"]


# ---------------------------------------------------------------------- Triton's interpreter, chosen in time

BACKEND = "get_attn_backend('triton', 'cpu', num_heads=4, num_kv_heads=2, head_size=16, block_size=4)"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process where nobody has chosen anything about Triton."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


def test_the_interpreter_is_chosen_for_a_cpu() -> None:
    code = f"""
from minivllm.attention.selector import get_attn_backend
backend = {BACKEND}
from minivllm_kernels.interpreter import is_interpreting
print(backend.name, is_interpreting())
"""
    result = python(code)
    assert result.stdout.split() == ["triton", "True"], result.stderr


def test_too_late_is_an_error_that_says_what_to_do() -> None:
    code = f"""
import triton
from minivllm.attention.selector import get_attn_backend
from minivllm.errors import InputError
try:
    {BACKEND}
except InputError as error:
    print(error)
"""
    result = python(code)
    assert "must be chosen before triton is imported" in result.stdout, result.stderr
    assert "start Python with TRITON_INTERPRET=1, or use multiprocess=True" in result.stdout


@pytest.mark.parametrize("multiprocess", [False, True])
def test_an_llm_chooses_before_transformers_imports_triton(multiprocess: bool) -> None:
    code = f"""
from minivllm import LLM
with LLM({str(tiny_model())!r}, attention_backend="triton", device="cpu", max_model_len=64,
         num_gpu_blocks_override=16, skip_tokenizer_init=True, multiprocess={multiprocess}) as llm:
    print(llm.llm_engine.engine_core.ready.attention_backend)
"""
    result = python(code)
    assert result.stdout.split() == ["triton"], result.stderr


def test_torch_backend_leaves_triton_alone() -> None:
    code = """
import os
from minivllm.attention.triton_mode import prepare_triton
prepare_triton("torch", "cpu")
prepare_triton("auto", "auto")
prepare_triton("triton", "cuda")
print(os.environ.get("TRITON_INTERPRET"))
"""
    assert python(code).stdout.split() == ["None"]


@pytest.mark.parametrize(
    ("head_size", "block_size", "message"),
    [(16, 12, "block_size=12 is not a power of two"), (512, 16, "head size 512 is larger than 256")],
)
def test_shapes_that_the_kernels_do_not_know(head_size: int, block_size: int, message: str, device: str) -> None:
    with pytest.raises(InputError, match=message):
        get_attn_backend("triton", device, num_heads=4, num_kv_heads=2, head_size=head_size, block_size=block_size)


def test_where_triton_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="runs on cuda and cpu, not on mps"):
        get_attn_backend("triton", "mps", num_heads=4, num_kv_heads=2, head_size=16, block_size=4)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the package triton"):
        get_attn_backend("triton", "cpu", num_heads=4, num_kv_heads=2, head_size=16, block_size=4)
