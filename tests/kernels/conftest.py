"""The kernels' tests run in Triton's interpreter, or on a GPU where there is one (see tests/conftest.py)."""

import os

import pytest
import torch

from minivllm_kernels import interpreter

# The whole product of shapes and the long recordings take half an hour in the interpreter: `make kernels-full`.
collect_ignore = [] if os.environ.get("KERNELS_FULL") == "1" else ["test_full.py"]

interpreter.speed_up()


@pytest.fixture(scope="session")
def device() -> str:
    return "cpu" if interpreter.is_interpreting() else "cuda"


@pytest.fixture(autouse=True, scope="session")
def no_gradients():
    with torch.inference_mode():
        yield
