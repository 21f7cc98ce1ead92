"""docs/where.md: every file and name is there, and the README's tree leads to it."""

import ast
import re
from pathlib import Path

import pytest
from docs.pages import ROOT, sections

ROW = re.compile(r"^\| (.+\?) \| \[(\S+)\]\(\.\./(\S+)\) \| `([\w.]+)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs/where.md").read_text(encoding="utf-8"))


def tree_of_readme() -> set[str]:
    """Every file and folder that the README's tree names, as a path."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listing = re.search(r"```\n(.*?)```", sections(readme, 2)["Where things are"], re.DOTALL)[1]
    found, folders = set(), {}
    for line in listing.splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.match(r"\S+(?:  \S+\.py)*", line.strip())[0].split():
            path = folders.get(depth - 1, "") + name
            found.add(path)
            if name.endswith("/"):
                folders[depth] = path
    return found


def defined(path: Path, name: str) -> bool:
    scope: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for part in name.split("."):
        names = {getattr(node, "name", None): node for node in scope.body}
        names |= {t.id: node for node in scope.body if isinstance(node, ast.Assign) for t in node.targets}
        names |= {n.target.id: n for n in scope.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        if part not in names:
            return False
        scope = names[part]
    return True


def test_the_page_answers_two_dozen_questions() -> None:
    assert len(ROWS) == 24
    assert len({question for question, *_ in ROWS}) == 24
    lines = (ROOT / "docs/where.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("|") for line in lines) == len(ROWS) + 2 * 3, "a row that ROW does not match"


@pytest.mark.parametrize(("question", "shown", "file", "name"), ROWS, ids=[name for *_, name in ROWS])
def test_the_name_is_in_the_file_and_the_file_in_the_tree(question: str, shown: str, file: str, name: str) -> None:
    assert shown == file
    assert defined(ROOT / file, name), f"{question}: {file} defines no {name}"
    tree = tree_of_readme()
    folder = Path(file).parent.as_posix() + "/"
    labs = folder.startswith("notebooks/labs/") and "notebooks/labs/" in tree
    assert file in tree or folder in tree or labs, f"the README's tree leads to neither {file} nor {folder}"


def test_the_tree_is_the_code() -> None:
    """What the tree names is there, and every folder of the package is named or lies in one that is."""
    tree = tree_of_readme()
    assert [path for path in sorted(tree) if not (ROOT / path).exists()] == []
    packages = {path.parent.relative_to(ROOT).as_posix() + "/" for path in (ROOT / "minivllm").rglob("*.py")}
    assert packages <= tree


def test_a_name_that_is_gone_would_be_noticed() -> None:
    assert not defined(ROOT / "minivllm/core/block_pool.py", "BlockPool.release_blocks")
    assert not defined(ROOT / "minivllm/core/block_pool.py", "Blocks")
