"""What all tests share: an environment that is the same everywhere, the default model, and a watch over processes.

Must not know: how any part of the engine works.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Before anything imports torch or transformers; child processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "2")
# Threads that spin while they wait make a busy machine many times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.pop("MINIVLLM_ENABLE_V1_MULTIPROCESSING", None)
if shutil.which("nvidia-smi") is None:
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run in Triton's interpreter

import psutil
import pytest
from hypothesis import HealthCheck, settings

# `ci` gives the same examples in every run; pytest's --hypothesis-profile=thorough looks for new ones.
# No deadlines and no health check by the clock: a busy machine is no error.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is no CUDA GPU."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, and this machine has none"))


def _core_processes() -> list[psutil.Process]:
    """The living engine cores among this process's descendants."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            alive = child.status() != psutil.STATUS_ZOMBIE
            if alive and any("minivllm.engine.core" in argument for argument in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def no_core_left_behind() -> Iterator[None]:
    """After the last test no engine core may be alive. It is the first fixture, so it ends after all others."""
    yield
    left = _core_processes()
    report = ", ".join(map(str, left))
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10)
    assert not left, f"these engine cores outlived the tests: {report}"


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The folder of the default model, made in the user's cache if it is not there yet."""
    from minivllm.models import default_model

    return Path(default_model.default_model_path())
