"""At detail 0 and 1 the trace reads no tensor's values: on a GPU each such look would wait for the device."""

from collections import Counter
from typing import Any

import pytest
import torch
from traced_runs import generate, llm_of

# Whoever wants a value of a tensor goes through one of these.
LOOKS = ("tolist", "item", "cpu", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__iter__")


def looks(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Counter[str]:
    """How often a run of the engine looks at values."""
    count: Counter[str] = Counter()

    def counted(name: str, method: Any) -> Any:
        def look(*args: Any, **kwargs: Any) -> Any:
            count[name] += 1
            return method(*args, **kwargs)

        return look

    with llm_of("three", multiprocess=False, **settings) as llm, monkeypatch.context() as patch:
        for name in LOOKS:
            patch.setattr(torch.Tensor, name, counted(name, getattr(torch.Tensor, name)))
        generate(llm, "three")
    return count


@pytest.mark.parametrize("detail", [0, 1])
def test_no_look_at_a_tensor_is_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, detail: int) -> None:
    without = looks(monkeypatch)
    assert without["tolist"], "the engine itself looks at what it has sampled"
    assert looks(monkeypatch, trace=str(tmp_path / "t.jsonl"), trace_detail=detail) == without


def test_detail_2_does_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with_values = looks(monkeypatch, trace=str(tmp_path / "t.jsonl"), trace_detail=2)
    assert with_values["tolist"] > looks(monkeypatch)["tolist"]
