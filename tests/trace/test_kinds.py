"""The table of kinds, the marks in the engine, the event classes and the written schema say the same; every mark is
driven by a run."""

import importlib.util
import inspect
import pkgutil
from functools import cache
from pathlib import Path

import pytest
from traced_runs import llm_of, record

import minivllm
from minivllm.show.document import field_comments, json_schema, markdown, structs
from minivllm.trace import Trace
from minivllm.trace.events import KINDS
from minivllm.trace.schema import EVENTS

ROOT = Path(__file__).parents[2]
HAS_TRITON = importlib.util.find_spec("triton") is not None
KERNELS = {"kernel.launch", "kernel.program"}  # driven by test_kernels.py
ENGINE = ("llm", "engine", "core", "worker", "attention", "models", "sample")


@cache
def marked_methods() -> dict[str, list[tuple[type, str]]]:
    """Kind -> the classes and methods of the engine that bear its mark."""
    found: dict[str, list[tuple[type, str]]] = {}
    for module in pkgutil.walk_packages(minivllm.__path__, "minivllm."):
        if module.name.split(".")[1] not in ENGINE or (module.name.endswith("triton_backend") and not HAS_TRITON):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if not (isinstance(value, type) and value.__module__ == module.name):
                continue
            for name, member in vars(value).items():
                kind = getattr(member, "__boundary__", None)
                if kind is not None:
                    found.setdefault(kind, []).append((value, name))
    return found


def reference_of(cls: type, name: str) -> str:
    """What a method's docstring says of its counterpart."""
    return " ".join(inspect.cleandoc(getattr(cls, name).__doc__ or "").partition("vLLM: ")[2].split())


def test_the_marks_of_the_engine_are_the_kinds_of_the_table() -> None:
    assert set(EVENTS) == set(KINDS)
    marks = set(marked_methods())
    assert marks - KERNELS == set(KINDS) - KERNELS
    assert ("kernel.launch" in marks) == HAS_TRITON


def test_boundaries_1_to_27_all_have_their_kinds_in_order() -> None:
    numbers = [int(row.boundary[1:]) for row in KINDS.values() if row.boundary]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, 28))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - KERNELS))
def test_a_row_of_the_table_is_true(kind: str) -> None:
    row = KINDS[kind]
    owners = {cls.__name__: (cls, name) for cls, name in marked_methods()[kind]}
    class_name, _, method = row.method.partition(".")
    assert class_name in owners, f"{kind} is marked on {sorted(owners)}"
    cls, name = owners[class_name]
    assert name == method
    found = reference_of(cls, name)
    assert found == row.vllm or found.startswith(f"{row.vllm} (")  # with a remark


def test_everything_is_explained() -> None:
    for cls in structs():
        comments = field_comments(cls)
        assert set(comments) == set(cls.__struct_fields__), f"{cls.__name__}: a definition spans lines"
        silent = [name for name, comment in comments.items() if not comment]
        assert not silent, f"{cls.__name__}: no comment, and nothing in the glossary"
        assert inspect.cleandoc(cls.__doc__).split("\n\nvLLM:")[0].endswith("."), f"{cls.__name__} has no docstring"


def test_secret_fields_exist() -> None:
    for kind, cls in EVENTS.items():
        assert set(cls.secret) <= set(cls.__struct_fields__), kind


def test_the_written_schema_is_fresh() -> None:
    remedy = "run: python -m minivllm.show.document"
    assert (ROOT / "docs/trace-schema.json").read_bytes() == json_schema(), remedy
    assert (ROOT / "docs/trace-schema.md").read_text(encoding="utf-8") == markdown(), remedy


# ---------------------------------------------------------------------- every mark is driven

RUNS = [("three", True), ("stop", True), ("prefix", False), ("preempt", False)]


def test_every_mark_is_driven(tmp_path: Path) -> None:
    seen = {event.kind for name, across in RUNS for event in record(name, multiprocess=across).trace}
    path = tmp_path / "chat.jsonl"
    with llm_of("plain", multiprocess=False, trace=str(path)) as llm:
        llm.chat([{"role": "user", "content": "fox"}], use_tqdm=False)
        assert llm.reset_prefix_cache()
    seen |= {event.kind for event in Trace.load(path)}
    assert seen == set(KINDS) - KERNELS
    failed = [e for name, across in RUNS for e in record(name, multiprocess=across).trace if e.error or e.view_error]
    assert not failed
