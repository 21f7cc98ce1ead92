"""Every combination of shapes and dtypes. A quarter of an hour in the interpreter: `make kernels-full`."""

import pytest

from minivllm_kernels.cases import INTERPRETER_TUNINGS, Case, lengths, product, run_case


@pytest.mark.parametrize("case", product(), ids=str)
def test_product(case: Case, device: str) -> None:
    run_case(case, lengths(case.block_size, case.seed, num_seqs=10), device, INTERPRETER_TUNINGS["wide"])
