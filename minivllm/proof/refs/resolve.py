"""Where a symbol is defined in one file, and what its text is.

Owns: the rules. A name is the dotted path of `class` and `def` from the module down; the last part may be an assigned
name in a module or class, or an attribute that a method of the class assigns to `self`. A name with several definitions
means the first one that is neither an `overload` nor the setter or deleter of a property. Names that are imported or
inherited are not defined here: `imports` and `bases` tell where they may be.
The text of a symbol is its lines from the first decorator to the last line, each with its line end: what
`sed -n '5,9p' FILE` prints. Nothing is normalised but the line ends themselves.
Must not know: which symbols matter.
"""

import ast
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

BLANK, TRIVIAL = 0, 1
KEY_BITS = 24
FOUR_LETTERS = re.compile(r"\w\W*\w\W*\w\W*\w")


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition. Line numbers count from 1 and include both ends."""

    name: str
    kind: str  # class, function, method, kernel (a Triton kernel), constant, field (of a class), attribute (of self)
    first: int  # its first decorator, or `line`
    line: int  # its def, class or assignment
    last: int


@dataclass(slots=True)
class Source:
    """One parsed file. Raises SyntaxError when it is made from a text that this Python can't parse."""

    text: str
    lines: list[str] = field(init=False)
    symbols: dict[str, Symbol] = field(init=False, default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)  # local name -> (module, name there)
    bases: dict[str, list[str]] = field(init=False, default_factory=dict)  # class -> its bases, as written
    line_keys: list[int] = field(init=False)  # of every line, see `line_key`

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")
        self.line_keys = [line_key(line) for line in self.lines]
        tree = ast.parse(self.text)
        _Reader(self).read(tree.body, "", "module")

    def text_of(self, symbol: Symbol) -> str:
        """The lines of the symbol, each ended by a newline."""
        return "".join(line + "\n" for line in self.lines[symbol.first - 1 : symbol.last])

    def sha256_of(self, symbol: Symbol) -> str:
        """The sha256 of the symbol's text, as hex digits."""
        return hashlib.sha256(self.text_of(symbol).encode()).hexdigest()

    def keys_of(self, symbol: Symbol) -> list[int]:
        """One number a line, see `line_key`."""
        return self.line_keys[symbol.first - 1 : symbol.last]


def line_key(line: str) -> int:
    """A line as 24 bits, whatever its indentation: 0 if blank, 1 if it says little (`)`), else its crc32."""
    line = line.strip()
    if not line:
        return BLANK
    if not FOUR_LETTERS.search(line):
        return TRIVIAL
    return max(TRIVIAL + 1, checksum(line))


def checksum(text: str) -> int:
    """The low 24 bits of the crc32."""
    return zlib.crc32(text.encode()) & ((1 << KEY_BITS) - 1)


class _Reader:
    """Fills a Source from its syntax tree."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def read(self, body: Iterable[ast.stmt], prefix: str, scope: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._function(node, prefix, scope)
                case ast.ClassDef():
                    self._add(prefix + node.name, "class", node)
                    self.source.bases.setdefault(prefix + node.name, [ast.unparse(base) for base in node.bases])
                    self.read(node.body, prefix + node.name + ".", "class")
                    self._attributes(node, prefix + node.name + ".")
                case ast.Import() | ast.ImportFrom() if scope == "module":
                    self._import(node)
                case _ if type(node).__name__ == "TypeAlias" and scope != "function":  # Python 3.12
                    self._add(prefix + node.name.id, "constant", node)
                case ast.Assign() | ast.AnnAssign() if scope != "function":
                    for name in _assigned_names(node):
                        self._add(prefix + name, "field" if scope == "class" else "constant", node)
                case _:
                    for block in _blocks(node):
                        self.read(block, prefix, scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, scope: str) -> None:
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if not any(d.endswith(("overload", ".setter", ".deleter")) for d in decorators):
            is_kernel = any(d.startswith("triton.jit") for d in decorators)
            kind = "kernel" if is_kernel else "method" if scope == "class" else "function"
            self._add(prefix + node.name, kind, node)
        self.read(node.body, prefix + node.name + ".", "function")

    def _attributes(self, node: ast.ClassDef, prefix: str) -> None:
        """What methods assign to `self`; the constructor's assignments come first."""
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        for method in sorted(methods, key=lambda item: item.name not in ("__init__", "__post_init__")):
            for item in ast.walk(method):
                if isinstance(item, ast.Assign | ast.AnnAssign):
                    for target in _targets(item):
                        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                            self._add(prefix + target.attr, "attribute", item)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
        for alias in node.names:
            self.source.imports.setdefault(alias.asname or alias.name, (module, alias.name))

    def _add(self, name: str, kind: str, node: ast.stmt) -> None:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        self.source.symbols.setdefault(name, Symbol(name, kind, first, node.lineno, node.end_lineno or node.lineno))


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.expr]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple | ast.List):
            yield from target.elts
        else:
            yield target


def _assigned_names(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    return (target.id for target in _targets(node) if isinstance(target, ast.Name))


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statement lists inside `if`, `try`, `with`, `for`, `while` and `match`."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
        yield part.body
