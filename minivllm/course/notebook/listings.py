"""Our source, shown from the files, with the symbol of vLLM that it stands for.

Owns: how a symbol is cut out of a file, and what stands above and below it. Nothing is imported to be shown.
Interface: code.
Must not know: what the code does.
"""

import ast
import re
from collections.abc import Sequence
from html import escape

from minivllm.course.notebook.html import GREY, TINT, inline, show
from minivllm.course.places import repo_path
from minivllm.errors import InputError
from minivllm.show.page.sources import vllm_source

FONT = "font-family:monospace;font-size:90%;line-height:1.35"
LAB_MARKS = ("# >>> lab", "# <<< lab")
PRE = f"background:{TINT};padding:8px 12px;overflow-x:auto;margin:2px 0;{FONT}"


def code(
    symbol: str,
    lines: int = 25,
    mark: Sequence[str] = (),
    start: str | None = None,
    vllm: str | Sequence[str] | None = None,
    same: str | None = None,
) -> None:
    """A symbol of minivllm/ or kernels/, written as in a reference, without its docstring, with file and line numbers.

    lines: at most so many; what follows is counted. mark: lines that hold one of these are marked. start: begin at the
    first line that holds this. vllm: `path::name` of its counterparts, by default the one that the docstring names.
    same: a sentence about what is the same there, or differs.
    Raises InputError for a symbol, a mark or a start that is not there.
    """
    file, text, node = _find(symbol)
    numbered = _numbered(text, node)
    if start is not None:
        at = next((place for place, (_, line) in enumerate(numbered) if start in line), None)
        if at is None:
            raise InputError(f"{symbol} has no line with {start!r}.")
        numbered = numbered[at:]
    shown, left = numbered[:lines], len(numbered) - lines
    missing = [one for one in mark if not any(one in line for _, line in shown)]
    if missing:
        raise InputError(f"No shown line of {symbol} holds {missing[0]!r}. Give `start` or more `lines`.")
    rows = [_line(number, line, any(one in line for one in mark)) for number, line in shown]
    rows += [f'<span style="{GREY}">     … {left} more lines</span>'] if left > 0 else []
    targets = [vllm] if isinstance(vllm, str) else list(vllm or _told(node))
    head = f"<p><b>Ours:</b> <code>{file}</code>, <code>{symbol.partition('::')[2]}</code>, "
    head += f"lines {shown[0][0]} to {shown[-1][0]}</p>"
    foot = "".join(f"<p><b>vLLM's:</b> {_vllm(target)}</p>" for target in targets)
    foot += f"<p>{inline(same)}</p>" if same else ""
    plain = "\n".join([f"{file}, {symbol.partition('::')[2]}", *(line for _, line in shown)])
    show(f'<div>{head}<pre style="{PRE}">' + "\n".join(rows) + f"</pre>{foot}</div>", plain)


def _find(symbol: str) -> tuple[str, str, ast.ClassDef | ast.FunctionDef]:
    """The file as it is called in the repository, its text, and the definition."""
    file, _, name = symbol.partition("::")
    path = repo_path(file)
    if not path.is_file():
        raise InputError(f"There is no file {file!r}. Give it as in the repository: minivllm/… or kernels/….")
    text = path.read_text(encoding="utf-8")
    scope: ast.AST = ast.parse(text)
    for part in name.split("."):
        scope = next((node for node in getattr(scope, "body", ()) if getattr(node, "name", None) == part), None)
        if scope is None:
            raise InputError(f"{file} defines no {name!r}.")
    return file, text, scope


def _numbered(text: str, node: ast.ClassDef | ast.FunctionDef) -> list[tuple[int, str]]:
    """(line number, line) without the docstring and the marks of labs, moved to the left."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    left_out = set() if docstring is None else set(range(docstring.lineno, docstring.end_lineno + 1))
    source = text.split("\n")
    left_out |= {number for number, line in enumerate(source, 1) if line.strip().startswith(LAB_MARKS)}
    numbers = [number for number in range(first, node.end_lineno + 1) if number not in left_out]
    return [(number, source[number - 1][node.col_offset :]) for number in numbers]


def _line(number: int, line: str, marked: bool) -> str:
    text = f"{number:4} {'►' if marked else ' '} {escape(line, quote=False)}"
    return f"<b>{text}</b>" if marked else text


def _told(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """What the docstring's `vLLM:` line names."""
    docstring = ast.get_docstring(node) or ""
    found = re.search(r"vLLM: ([\w./-]+\.py::[\w.]+)", docstring)
    return [found[1]] if found else []


def _vllm(target: str) -> str:
    source = vllm_source(target)
    if source is None:
        raise InputError(f"The lock of vLLM's symbols has no {target}.")
    first, last = source["lines"]
    place = f"{source['file']}, lines {first} to {last}"
    return f'<code>{escape(source["name"])}</code> in <a href="{source["url"]}">{place}</a>'
