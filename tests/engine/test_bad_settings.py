"""What a caller may get wrong when an engine is built: the same clear error in both modes, and nothing left behind."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from engine.helpers import MODES, Surroundings
from safetensors.torch import load_file, save_file
from tiny_models import tiny_model, write_tiny_model

from minivllm import LLM
from minivllm.errors import EngineDeadError, InputError, ModelError, UnknownNameError

both_modes = pytest.mark.parametrize("multiprocess", [False, True], ids=MODES)


def check_refused(error: type[Exception], words: list[str], surroundings: Surroundings, **settings: Any) -> None:
    with pytest.raises(error) as caught:
        LLM(**settings)
    assert type(caught.value) is error
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
    surroundings.check_nothing_left()


SETTINGS = {
    "block_size 0": ({"block_size": 0}, InputError, ["block_size=0", "at least 1"]),
    "a length of -1": ({"max_model_len": -1}, InputError, ["max_model_len=-1", "at least 1"]),
    "max_num_seqs": ({"max_num_seqs": 0}, InputError, ["max_num_seqs=0", "at least 1"]),
    "seats beyond the budget": (
        {"max_num_seqs": 9, "max_num_batched_tokens": 4},
        InputError,
        ["max_num_batched_tokens=4", "max_num_seqs=9", "Raise"],
    ),
    "a switch": ({"enable_prefix_caching": "yes"}, InputError, ["enable_prefix_caching='yes'", "True or False"]),
    "unknown": ({"blocksize": 4}, UnknownNameError, ["'blocksize'", "block_size"]),
    "unknown too": ({"tensor_parallel_size": 2}, UnknownNameError, ["'tensor_parallel_size'"]),
    "device": ({"device": "tpu"}, InputError, ["device='tpu'", "cpu"]),
}


@both_modes
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_wrong_at_once(
    name: str, multiprocess: bool, tiny_folder: str, surroundings: Surroundings
) -> None:
    settings, error, words = SETTINGS[name]
    check_refused(error, words, surroundings, model=tiny_folder, multiprocess=multiprocess, **settings)


FOUND_BY_THE_CORE = {
    "pool too small": (
        {"num_gpu_blocks_override": 5, "block_size": 4, "max_model_len": 17},
        ["5 blocks of 4 tokens", "16 tokens", "max_model_len=17", "num_gpu_blocks_override", "Lower"],
    ),
    "the pool without its null block": (
        {"num_gpu_blocks_override": 5, "block_size": 4, "max_model_len": 20},
        ["5 blocks of 4 tokens", "16 tokens", "max_model_len=20"],
    ),
    "pool too small for the model": (
        {"num_gpu_blocks_override": 5, "block_size": 4},
        ["16 tokens", "max_model_len=512", "Lower max_model_len"],
    ),
    "memory too small": (
        {"kv_cache_memory_bytes": 1000, "max_model_len": 32},
        ["0 blocks", "max_model_len=32", "kv_cache_memory_bytes"],
    ),
    "blocks larger than all memory": ({"block_size": 10**9}, ["0 blocks", "max_model_len"]),
    "more blocks than memory": (
        {"num_gpu_blocks_override": 10**12},
        ["1000000000000 blocks", "can't be allocated", "Lower num_gpu_blocks_override"],
    ),
    "more seats than memory": (
        {"max_num_seqs": 10**12, "max_num_batched_tokens": 10**12},
        ["max_num_seqs=1000000000000", "can't be allocated"],
    ),
    "beyond the model": ({"max_model_len": 513}, ["max_model_len=513", "512"]),
    "no chunks": (
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 100},
        ["max_num_batched_tokens=100", "max_model_len=512", "enable_chunked_prefill"],
    ),
    "threshold": ({"long_prefill_token_threshold": 600}, ["long_prefill_token_threshold=600", "512"]),
}


@pytest.mark.parametrize("name", FOUND_BY_THE_CORE)
def test_settings_that_do_not_fit_the_model(name: str, tiny_folder: str, surroundings: Surroundings) -> None:
    settings, words = FOUND_BY_THE_CORE[name]
    check_refused(InputError, words, surroundings, model=tiny_folder, multiprocess=False, **settings)


def test_what_the_core_finds_comes_to_the_caller(tiny_folder: str, surroundings: Surroundings) -> None:
    """The same error as in one process, and the core ends by itself."""
    settings, words = FOUND_BY_THE_CORE["pool too small"]
    check_refused(InputError, words, surroundings, model=tiny_folder, multiprocess=True, **settings)


def test_a_pool_that_just_fits(tiny_folder: str) -> None:
    with LLM(tiny_folder, multiprocess=False, num_gpu_blocks_override=5, block_size=4, max_model_len=16) as llm:
        (output,) = llm.generate([[5] * 15], use_tqdm=False)
        assert len(output.outputs[0].token_ids) == 1
        with pytest.raises(InputError, match="16 tokens, and max_model_len=16"):
            llm.generate([[5] * 16], use_tqdm=False)


# ---------------------------------------------------------------------- folders


def copy_of(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def without(name: str) -> Any:
    def damage(folder: Path) -> None:
        (folder / name).unlink()

    return damage


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_a_misshapen_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_half_a_file(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


FOLDERS = {
    "no config": (without("config.json"), ["config.json"]),
    "no weights": (without("model.safetensors"), ["safetensors weights"]),
    "no tokenizer": (without("tokenizer.json"), ["tokenizer", "skip_tokenizer_init"]),
    "a tensor is missing": (without_a_tensor, ["missing: model.layers.1.mlp.up_proj.weight"]),
    "a tensor is misshapen": (with_a_misshapen_tensor, ["wrong shape: model.norm.weight", "(63,)", "(64,)"]),
    "half a file": (with_half_a_file, ["model.safetensors", "not a whole safetensors file"]),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_cannot_be_used(name: str, tmp_path: Path, surroundings: Surroundings) -> None:
    damage, words = FOLDERS[name]
    folder = copy_of(tiny_model("llama"), tmp_path / "model")
    damage(folder)
    check_refused(ModelError, words, surroundings, model=folder, multiprocess=False)


@pytest.mark.parametrize("name", ["no weights", "a tensor is missing"])  # found by the caller, and by the core
def test_a_folder_that_cannot_be_used_across_processes(name: str, tmp_path: Path, surroundings: Surroundings) -> None:
    damage, words = FOLDERS[name]
    folder = copy_of(tiny_model("llama"), tmp_path / "model")
    damage(folder)
    check_refused(ModelError, words, surroundings, model=folder, multiprocess=True)


@both_modes
def test_no_such_folder(multiprocess: bool, tmp_path: Path, surroundings: Surroundings) -> None:
    missing = tmp_path / "nowhere"
    words = [str(missing), "no model folder", "config.json", "default"]
    check_refused(ModelError, words, surroundings, model=missing, multiprocess=multiprocess)


@both_modes
def test_an_architecture_that_is_not_covered(multiprocess: bool, tmp_path: Path, surroundings: Surroundings) -> None:
    folder = write_tiny_model(tmp_path / "model")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("LlamaForCausalLM", "GPT2LMHeadModel"))
    words = ["GPT2LMHeadModel", "LlamaForCausalLM"]
    check_refused(ModelError, words, surroundings, model=folder, multiprocess=multiprocess)


# ---------------------------------------------------------------------- a core that does not come up


def test_a_core_that_dies_while_it_starts(
    tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed at once, with the last that the core wrote."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'minivllm.engine.core_proc' in sys.orig_argv:\n"
        "    print('no memory left, alas', file=sys.stderr, flush=True)\n"
        "    os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EngineDeadError) as caught:
        LLM(tiny_folder, multiprocess=True)
    assert "signal 6 (SIGABRT)" in str(caught.value) and "no memory left, alas" in str(caught.value)
    surroundings.check_nothing_left()


def test_a_temporary_folder_with_too_long_a_path(
    tiny_folder: str, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path may have about a hundred characters."""
    deep = surroundings.home / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    check_refused(InputError, ["TMPDIR", "short"], surroundings, model=tiny_folder, multiprocess=True)
    assert not list(deep.iterdir())
