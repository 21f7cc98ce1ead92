"""The compiled kernels: tensors that C would misread are refused, and kernels that compute nonsense are not used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from faults import fault

from minivllm.paths import kernels_dir
from minivllm_kernels import library
from minivllm_kernels.compiler import find_compiler
from minivllm_kernels.cpu_kernels import CpuKernels, load_kernels, self_test

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    found = load_kernels(kernels_dir(), torch.float32)
    assert isinstance(found, CpuKernels), found
    return found


def arguments() -> dict[str, dict[str, object]]:
    """By kernel, what it takes: 3 tokens in 2 rows, blocks of 4."""
    cache = torch.zeros(4, 2, 4, 2, 16)
    return {
        "rms_norm": {"x": torch.ones(3, 32), "weight": torch.ones(32), "eps": 1e-5, "residual": torch.ones(3, 32)},
        "rotary_embedding": {
            "x": torch.ones(3, 64),
            "positions": torch.arange(3),
            "cos": torch.ones(8, 8),
            "sin": torch.ones(8, 8),
            "heads": 3,
            "head_size": 16,
        },
        "silu_and_mul": {"x": torch.ones(3, 32)},
        "reshape_and_cache": {
            "key": torch.ones(3, 2, 16),
            "value": torch.ones(3, 2, 16),
            "kv_cache": cache,
            "slots": torch.arange(3),
        },
        "paged_attention": {
            "query": torch.ones(3, 4, 16),
            "kv_cache": cache,
            "starts": torch.tensor([0, 2, 3], dtype=torch.int32),
            "seq_lens": torch.tensor([2, 1], dtype=torch.int32),
            "block_table": torch.tensor([[1], [2]], dtype=torch.int32),
            "scale": 0.25,
            "out": torch.zeros(3, 4, 16),
        },
    }


TENSORS = [
    (kernel, name)
    for kernel, given in arguments().items()
    for name, value in given.items()
    if isinstance(value, torch.Tensor)
]


def wider(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.short()


def elsewhere(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, every second place in memory."""
    return torch.stack((tensor, tensor), dim=-1)[..., 0]


def one_more(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat((tensor, tensor[..., -1:]), dim=-1).contiguous()


@pytest.mark.parametrize("change", [wider, elsewhere, with_gaps])
@pytest.mark.parametrize(("kernel", "name"), TENSORS)
def test_what_c_would_misread_is_refused_by_name(kernel: str, name: str, change: Callable, kernels: CpuKernels) -> None:
    given = arguments()[kernel]
    getattr(kernels, kernel)(**given)
    with pytest.raises(TypeError, match=rf"^{name} is torch\..* The kernel reads torch\.\w+ on the CPU"):
        getattr(kernels, kernel)(**given | {name: change(given[name])})


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("rms_norm", "weight"),
        ("rms_norm", "residual"),
        ("rotary_embedding", "positions"),
        ("rotary_embedding", "cos"),
        ("reshape_and_cache", "key"),
        ("reshape_and_cache", "value"),
        ("reshape_and_cache", "slots"),
        ("paged_attention", "query"),
        ("paged_attention", "starts"),
        ("paged_attention", "seq_lens"),
        ("paged_attention", "out"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(kernel: str, name: str, kernels: CpuKernels) -> None:
    given = arguments()[kernel]
    with pytest.raises(TypeError, match=rf"{name}.*fit"):
        getattr(kernels, kernel)(**given | {name: one_more(given[name])})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_pass_their_own_test_and_draw_nothing(dtype: torch.dtype) -> None:
    before = torch.random.get_rng_state()
    assert isinstance(load_kernels(kernels_dir(), dtype), CpuKernels)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "kernel", ["rms_norm", "silu_and_mul", "rotary_embedding", "reshape_and_cache", "paged_attention"]
)
def test_one_wrong_number_is_noticed(kernel: str, kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(kernels, kernel)

    def wrong(*args: torch.Tensor, **kwargs: object) -> torch.Tensor | None:
        out = right(*args, **kwargs)
        written = {"rotary_embedding": args[0], "reshape_and_cache": args[2] if len(args) > 2 else None}
        target = out if out is not None else args[-1] if kernel == "paged_attention" else written[kernel]
        target.view(-1)[5] += 0.1
        return out

    monkeypatch.setattr(kernels, kernel, wrong)
    assert self_test(kernels) == kernel


@fault(
    "Memory and kernels",
    "a compiler that compiles something else than was written",
    how="a comparison in the C source is changed",
    then="the kernels are tried after loading, and not used; the reason names the one that is off",
)
def test_a_compiler_that_compiles_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = library.SOURCE.read_text()
    wrong = text.replace("if (slots[t] < 0) continue;", "if (slots[t] < 5) continue;")
    assert wrong != text
    source = tmp_path / "cpu_kernels.c"
    source.write_text(wrong)
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-O0"))  # in less time
    found = load_kernels(tmp_path / "kernels", torch.float32)
    assert found == "reshape_and_cache of the compiled kernels gives other numbers than torch"
