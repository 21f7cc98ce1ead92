"""References in a file of code: `vLLM:` lines of docstrings, and `# vLLM:` behind a field.

Owns: where in a docstring a reference stands, and what must have one: every `@boundary`, and every public class of a
room that mirrors vLLM. A module may say `vLLM: none, reason` once for all its classes. Elsewhere nobody looks for a
counterpart, and nothing needs to be said.
Must not know: whether a reference is right; nothing is imported, all is read as text.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from minivllm.proof.refs.uses import IN_TEXT, NONE, STATEMENT, Collected, Problem, Use, references_in, what_is_wrong

MARKER = re.compile(r"(?:^|(?<=[.!?)] ))vLLM:(?: |$)")
MIRRORS = {  # the rooms and files that vLLM has too
    *("attention", "core", "engine", "models", "sample", "worker"),
    *("config", "llm", "outputs", "sampling_params"),
}
COMMENT = re.compile(r"#\s*vLLM:\s*(?P<what>\S+)")


def mirrors_vllm(file: str) -> bool:
    """Whether a file, named from the root, lies where a reader expects vLLM's classes."""
    top, _, rest = file.partition("/")
    room = rest.partition("/")[0].removesuffix(".py")
    return top in ("kernels", "minivllm_kernels") or (top == "minivllm" and room in MIRRORS)


class Module:
    """Collects from one file of code."""

    def __init__(self, file: str, text: str, found: Collected) -> None:
        self.file, self.text, self.found = file, text, found
        self.class_targets: list[tuple[int, int, str, str]] = []  # first and last line, vLLM's path and name

    def collect(self) -> None:
        tree = ast.parse(self.text)
        says_none = self._docstring(tree, "") == "none"
        self._definitions(tree.body, "", covered=says_none or not mirrors_vllm(self.file))
        self._comments()

    def _definitions(self, body: list[ast.stmt], prefix: str, covered: bool) -> None:
        for node in body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            owner = prefix + node.name
            said = self._docstring(node, owner)
            private = node.name.startswith("_")
            if said is None:
                self._must_say(node, owner, covered or private)
            self._definitions(node.body, owner + ".", covered or private or not isinstance(node, ast.ClassDef))

    def _must_say(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, owner: str, covered: bool) -> None:
        """A public class must have a line unless its module or room covers it; a boundary must, whatever holds it."""
        place = f"{self.file}:{node.lineno}"
        if isinstance(node, ast.ClassDef):
            if not covered:
                message = f"the public class {owner} has no `vLLM:` line; without a counterpart: `vLLM: none, reason`"
                self.found.problems.append(Problem("class-without", place, message))
            return
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "boundary":
                message = f"the boundary {ast.unparse(decorator.args[0])} ({owner}) has no `vLLM:` line"
                self.found.problems.append(Problem("boundary-without", place, message))

    def _docstring(
        self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, owner: str
    ) -> str | None:
        """Collect from the docstring; says `none`, `reference`, `problem`, or None if it has no `vLLM:` line."""
        raw = ast.get_docstring(node, clean=False)
        if raw is None:
            return None
        first_line = node.body[0].lineno
        owner = owner or "(module)"
        said = None
        rest = []
        for number, statement in _statements(raw):
            if number is None:
                rest.append(statement)
                continue
            line = first_line + number
            said = self._statement(statement, line, owner, node)
        for use in references_in(" ".join(rest), "code", self.file, first_line, owner):
            self.found.uses.append(use)
        return said

    def _statement(self, statement: str, line: int, owner: str, node: ast.AST) -> str:
        if NONE.fullmatch(statement):
            self.found.nones += 1
            return "none"
        match = STATEMENT.fullmatch(statement)
        if match is None:
            problem = Problem("malformed", f"{self.file}:{line}", f"{owner}: {what_is_wrong(statement)}")
            self.found.problems.append(problem)
            return "problem"
        note = match["note"] or ""
        self.found.uses.append(Use(match["path"], match["name"], "code", self.file, line, owner, note))
        self.found.uses += references_in(note, "code", self.file, line, owner)
        if isinstance(node, ast.ClassDef):
            self.class_targets.append((node.lineno, node.end_lineno or node.lineno, match["path"], match["name"]))
        return "reference"

    def _comments(self) -> None:
        """`# vLLM: NAME` behind a field whose name differs: a name in the class that ours mirrors, or a reference."""
        if "# vLLM:" not in self.text:
            return
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            match = COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
            if match is None:
                continue
            line, what = token.start[0], match["what"].rstrip(".,;")
            holders = [target for target in self.class_targets if target[0] <= line <= target[1]]
            full = IN_TEXT.fullmatch(what)
            if full:
                use = Use(full["path"], full["name"], "code", self.file, line, "(comment)", "")
                self.found.uses.append(use)
            elif holders and re.fullmatch(r"[A-Za-z_]\w*", what):
                _, _, path, name = holders[-1]
                self.found.uses.append(Use(path, f"{name}.{what}", "code", self.file, line, "(comment)", ""))
            else:
                message = f"`# vLLM: {what}` is neither file.py::Name nor a name in the class that ours mirrors"
                self.found.problems.append(Problem("malformed", f"{self.file}:{line}", message))


def _statements(raw: str) -> Iterator[tuple[int | None, str]]:
    """The `vLLM:` statements of a docstring, each with its line counted from 0; other lines come with None.

    A statement ends at the next one or with the docstring, so what follows it makes it malformed.
    """
    current: tuple[int, list[str]] | None = None
    for number, line in enumerate(raw.split("\n")):
        line = line.strip()
        match = MARKER.search(line)
        if match:
            if current:
                yield current[0], " ".join(current[1])
            if line[: match.start()]:
                yield None, line[: match.start()]
            current = number, [line[match.end() :].strip()]
        elif current is None:
            yield None, line
        elif line:
            current[1].append(line)
    if current:
        yield current[0], " ".join(current[1])
