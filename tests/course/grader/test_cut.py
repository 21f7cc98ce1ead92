"""Starters are cut from the engine: whole bodies, and what stands between markers."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from minivllm.course.grader.build import stale
from minivllm.course.grader.catalog import Lab, TaskText, all_labs
from minivllm.course.grader.child import engine_symbols
from minivllm.course.grader.cut import MarkerError, Source, blocks_in, build_starter, check_starter, own_blocks
from minivllm.course.grader.wrong import solution

LABS = all_labs()
MAX_LINES = 170


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
def test_what_is_checked_in_is_what_the_engine_gives(lab: Lab) -> None:
    assert stale(lab) == []


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
def test_signatures_and_docstrings_are_the_engines(lab: Lab) -> None:
    starter, engine = (_shapes(text) for text in (build_starter(lab), solution(lab)))
    assert starter == engine
    assert set(engine_symbols(lab)) <= set(starter)
    for symbol, member in engine_symbols(lab).items():
        assert starter[symbol][1] == _own_docstring(member), symbol


def _shapes(text: str) -> dict[str, tuple[str, str | None, list[str]]]:
    """Symbol -> arguments, docstring, decorators."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = ("", ast.get_docstring(node), [])
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in inner:
            if isinstance(function, ast.FunctionDef):
                name = f"{node.name}.{function.name}" if isinstance(node, ast.ClassDef) else function.name
                decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
                found[name] = (ast.unparse(function.args), ast.get_docstring(function), decorators)
    return found


def _own_docstring(member: object) -> str | None:
    import inspect

    text = getattr(member, "fn", member).__doc__  # fn: of a kernel
    return inspect.cleandoc(text) if text else None


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
def test_a_starter_is_short_and_every_missing_body_says_its_task(lab: Lab) -> None:
    text = build_starter(lab)
    assert len(text.splitlines()) <= MAX_LINES
    asked = {
        line.split('"Lab ')[1].partition(":")[0]
        for line in text.splitlines()
        if "NotImplementedError" in line and "raise" in line and '"Lab ' in line
    }
    assert asked and asked <= {task.id for task in lab.tasks}


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (["# >>> lab 04.1 a", "x = 1"], "1"),
        (["# >>> lab 04.1 a", "# >>> lab 04.2 b", "x = 1"], "2.*1"),
        (["# >>> lab 04.1 a", "# <<< lab 04.1"], "2.*1"),
        (["# >>> lab 04.1 a", "# a comment", "# <<< lab 04.1"], "3.*1"),
        (["# >>> lab 04.1 a", "x = 1", "    # <<< lab 04.1"], "3.*1"),
        (["# >>> lab 04.1 a", "x = 1", "# <<< lab 04.2"], "3.*1"),
        (["x = 1", "# <<< lab 04.1"], "2"),
        (["# >>> lab 4.1 a", "x = 1"], "1"),
    ],
)
def test_a_bad_marker_is_refused_with_its_lines(lines: list[str], numbers: str) -> None:
    with pytest.raises(MarkerError, match=numbers):
        blocks_in(lines, "file.py")


def test_a_leaking_starter_is_noticed(tmp_path) -> None:
    lab = _copy_of(next(lab for lab in LABS if lab.number == "04"), tmp_path)
    assert check_starter(lab) == []
    path = tmp_path / lab.symbols[0].partition("::")[0]
    text = path.read_text()
    block = next(block for block in blocks_in(text.splitlines(), "x") if block.lab == lab.number)
    lines = text.splitlines()
    leaked = next(line for line in lines[block.first - 1 : block.last] if len("".join(line.split())) > 20)
    lines.insert(block.first - 2, block.indent + leaked.strip().rstrip(":") if not leaked.endswith(":") else leaked)
    path.write_text("\n".join(lines) + "\n")
    assert "gives away" in check_starter(lab)[0]


@pytest.mark.parametrize(
    ("symbol", "more", "message"),
    [
        ("BlockPool.nowhere", "", "has no BlockPool.nowhere"),
        ("BlockPool.get_num_free_blocks", "::BlockPool.get_num_free_blocks", "no task grades"),
    ],
)
def test_a_body_that_is_not_there_or_is_not_graded_is_refused(symbol: str, more: str, message: str) -> None:
    lab = next(lab for lab in LABS if lab.number == "04")
    pool = "minivllm/core/block_pool.py"
    symbols = (*lab.symbols, pool + (more or f"::{symbol}"))
    with pytest.raises(MarkerError, match=message):
        build_starter(replace(lab, symbols=symbols, bodies=lab.bodies | {symbol: "do it"}))


def test_a_body_of_no_symbol_is_refused() -> None:
    lab = next(lab for lab in LABS if lab.number == "04")
    with pytest.raises(MarkerError, match="evict_all"):
        build_starter(replace(lab, bodies=lab.bodies | {"BlockPool.evict_all": "do it"}))


def test_a_body_is_cut_whole_whatever_stands_in_it(tmp_path: Path) -> None:
    """Its comments and blank lines go with it; decorators, signature, docstring and what comes after it stay."""
    (tmp_path / "f.py").write_text(BODY)
    source = Source(tmp_path, "f.py")
    lab = replace(LABS[0], number="07", symbols=("f.py::K",), bodies={"K.a": "a body", "K.b": "more"}, tasks=TASKS)
    text = "\n".join(source.cut("K", own_blocks(lab, source, "K")))
    assert text == LEFT


TASKS = (TaskText("7.2", "title", 1, ("K.a",)), TaskText("7.3", "title", 1, ("K",)))
BODY = '''class K:
    @property
    def a(
        self,  # a comment
    ) -> int:
        """Says.

        More.
        """

        # first
        def inner() -> int:
            return 1

        return inner()

    def b(self) -> int:
        # no docstring
        return 2

    # not of b
    c = 3
'''
LEFT = '''class K:
    @property
    def a(
        self,  # a comment
    ) -> int:
        """Says.

        More.
        """
        raise NotImplementedError("Lab 7.2: a body")

    def b(self) -> int:
        raise NotImplementedError("Lab 7.3: more")

    # not of b
    c = 3'''


def _copy_of(lab: Lab, root) -> Lab:
    """The lab in a repository of its own, with the engine files that it is cut from."""
    import shutil

    from minivllm.course.grader.catalog import read_lab

    for place in lab.symbols:
        path = place.partition("::")[0]
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(lab.root / path, root / path)
    folder = root / lab.folder.relative_to(lab.root)
    shutil.copytree(lab.folder, folder)
    return read_lab(folder / "lab.toml")
