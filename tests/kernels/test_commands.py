"""`minivllm kernels` and `minivllm bench gpu`, as their modules."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minivllm.errors import InputError
from minivllm.proof import kernels_cli
from minivllm.proof.bench import gpu as bench_gpu


def event(kind: str, seq: int, **fields) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, seq=seq, **fields)


EVENTS = [
    event("step", 1),
    event("kernel.launch", 2, step=1, name="reshape_and_cache_kernel", grid=[2, 1]),
    event("kernel.launch", 3, step=1, name="paged_decode_kernel", grid=[1, 3]),
    *(
        event(
            "kernel.program",
            4 + head,
            parent=3,
            program=[0, head, 0],
            reads={"k_cache": [[7, 0, 15, head], [2, 0, 3, head]]},
            writes={"out": [[0, 3 * head, 3 * head + 2]]},
        )
        for head in range(3)
    ),
]


def test_show_lists_the_launches() -> None:
    first, second = (" ".join(line.split()) for line in kernels_cli.show(EVENTS, None).splitlines())
    assert first == "0 step 1 reshape_and_cache_kernel 2 x 1 (programs not recorded)"
    assert second == "1 step 1 paged_decode_kernel 1 x 3"


def test_show_draws_one_launch() -> None:
    text = kernels_cli.show(EVENTS, 1)
    assert "paged_decode_kernel: grid 1 x 3 = 3 programs" in text
    assert "(0, 0-2)  reads 7[0-15] 2[0-3] for token 0" in text


@pytest.mark.parametrize(
    ("events", "number", "message"),
    [
        (EVENTS, 2, "--launch 2 is not one of this trace's launches, 0 to 1"),
        (EVENTS, 0, "programs of launch 0 were not recorded; those of launch 1 were"),
        (EVENTS[:3], 0, "Record with trace_detail=2"),
        (EVENTS[:1], None, "no kernel launches. Record one with attention_backend='triton'"),
    ],
)
def test_show_says_what_is_missing(events: list, number: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kernels_cli.show(events, number)


def arguments_of(module, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(words)


def test_arguments() -> None:
    compiling = arguments_of(kernels_cli, "compile", "--target", "sm_90", "--stage", "ptx")
    assert (compiling.target, compiling.stage) == ("sm_90", ["ptx"])
    assert arguments_of(kernels_cli, "show", "x.jsonl", "--launch", "3").launch == 3


def test_bench_runs_on_a_cpu_with_a_tiny_model(tmp_path: Path, capsys) -> None:
    out = tmp_path / "result.json"
    words = ["--device", "cpu", "--tiny", "--requests", "2", "--prompt-len", "20", "--output-len", "4", "--out"]
    assert bench_gpu.run(arguments_of(bench_gpu, *words, str(out))) == 0
    measured = json.loads(out.read_text())["torch_backend"]
    assert measured["requests"] == 2 and measured["output_tokens_per_s"] > 0
    assert "output_tokens_per_s" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_bench_without_a_gpu() -> None:
    with pytest.raises(InputError, match="--device cpu --tiny"):
        bench_gpu.run(arguments_of(bench_gpu))


def test_bench_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real_import = builtins.__import__

    def without_transformers(name: str, *rest):
        if name == "transformers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_transformers)
    with pytest.raises(InputError, match="needs the package 'transformers'"):
        bench_gpu.run(arguments_of(bench_gpu, "--device", "cpu"))
