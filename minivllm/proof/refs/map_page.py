"""The page docs/vllm-map.md: where each step of a request is in vLLM.

Owns: its layout. It is made of the table of event kinds, the `@boundary` marks, the docstrings and the lock.
Must not know: vLLM's source; the lock has all that is told of it.
"""

import json
from collections.abc import Iterable, Iterator

from minivllm.proof.refs.collect import Project
from minivllm.proof.refs.events import EventKind, boundary_marks, event_kinds
from minivllm.proof.refs.lock import Lock
from minivllm.proof.refs.prose import GENERATED
from minivllm.proof.refs.report import cell
from minivllm.proof.refs.uses import Collected, Use

PAGE = "docs/vllm-map.md"
SOURCE_URL = "https://github.com/vllm-project/vllm/blob/v{version}/vllm/{path}#L{first}-L{last}"
HANDOVERS = {
    "B1": "you → LLM",
    "B2": "LLM → renderer",
    "B3": "LLM → LLMEngine",
    "B4": "LLMEngine → InputProcessor",
    "B5": "LLMEngine → OutputProcessor",
    "B6": "LLMEngine → core client",
    "B7": "caller's process → core's process",
    "B8": "input thread: message → Request",
    "B9": "core → Scheduler: a request comes in",
    "B10": "core → Scheduler: plan a step",
    "B11": "Scheduler → KVCacheManager",
    "B12": "KVCacheManager → BlockPool",
    "B13": "core → Executor",
    "B14": "Executor → Worker",
    "B15": "Worker → ModelRunner: the flat batch",
    "B16": "ModelRunner → model",
    "B17": "layer → KV cache: write",
    "B18": "layer → kernel: attention",
    "B19": "ModelRunner → head: logits",
    "B20": "core → Executor → Sampler",
    "B21": "core → Scheduler: take the result",
    "B22": "core's process → caller's process",
    "B23": "core client → LLMEngine",
    "B24": "LLMEngine → OutputProcessor",
    "B25": "OutputProcessor → detokenizer",
    "B26": "caller → core: abort",
    "B27": "LLM → you",
}
HEAD = """{generated} map`; it says what the code says -->

# Where each step is in vLLM

A request's path, in the order in which it passes the boundaries. Each row is one kind of event: it has our method, the
symbol of vLLM {version} that it stands for with its lines there, and the notebooks in which it is looked at. A kind
without a number is a parent of others.

The lines count from a symbol's first decorator to its last line. `minivllm refs check --vllm {version}` compares every
symbol on this page with the real source; `minivllm refs drift --vllm VERSION` tells where it is in another version.

"""


def page(project: Project, lock: Lock, collected: Collected) -> str:
    """The whole page."""
    parts = [HEAD.format(generated=GENERATED, version=lock.version), "## The request's path\n\n"]
    parts += _path_table(project, lock)
    parts.append("\n## Everything that has a counterpart\n")
    parts += _counterparts(collected.uses, lock)
    return "".join(parts)


def _path_table(project: Project, lock: Lock) -> Iterator[str]:
    marks: dict[str, list[str]] = {}
    for package in project.code:
        for mark in boundary_marks(project.root, package):
            marks.setdefault(mark.kind, []).append(mark.owner)
    notebooks = _notebook_texts(project)
    yield "| | hand-over | event kind | ours | vLLM's | lines | notebooks |\n|---|---|---|---|---|---|---|\n"
    previous = None
    for kind in event_kinds(project.root):
        number = kind.boundary or ""
        title = HANDOVERS.get(number, "") if number != previous else ""
        previous = number
        ours = "<br>".join(f"`{owner}`" for owner in marks.get(kind.kind, [kind.method]))
        told, lines = _vllm_cells(kind, lock)
        seen = ", ".join(name for name, text in notebooks if _looks_at(text, kind)) or "–"
        yield f"| {number} | {title} | `{kind.kind}` | {ours} | {told} | {lines} | {seen} |\n"


def _vllm_cells(kind: EventKind, lock: Lock) -> tuple[str, str]:
    reference, _, note = (kind.reference or "").partition(" ")
    path, _, name = reference.partition("::")
    entry = lock.entries.get((path, name))
    if entry is None:
        return cell(kind.reference or ""), ""
    shown = f"`{name}`<br>`{path}`" + (f"<br>{cell(note)}" if note else "")
    url = SOURCE_URL.format(version=lock.version, path=path, first=entry.first, last=entry.last)
    return shown, f"[{entry.first}–{entry.last}]({url})"


def _notebook_texts(project: Project) -> list[tuple[str, str]]:
    """Name and text of each notebook, outputs left out."""
    found = []
    for path in project.texts:
        if path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8")).get("cells", [])
            found.append((path.stem, "\n".join("".join(cell.get("source", "")) for cell in cells)))
    return found


def _looks_at(text: str, kind: EventKind) -> bool:
    """Whether a notebook names the event kind in quotes, or the symbol of vLLM."""
    reference = (kind.reference or "").partition(" ")[0]
    return f'"{kind.kind}"' in text or f"'{kind.kind}'" in text or ("::" in reference and reference in text)


def _counterparts(uses: Iterable[Use], lock: Lock) -> Iterator[str]:
    """By file of ours, each of our symbols with the one it stands for."""
    file = ""
    for use in uses:
        entry = lock.entries.get((use.path, use.name))
        if use.kind != "code" or entry is None or use.owner in ("(module)", "(comment)"):
            continue
        if use.file != file:
            file = use.file
            yield f"\n### {file}\n\n| ours | vLLM's | lines | note |\n|---|---|---|---|\n"
        url = SOURCE_URL.format(version=lock.version, path=use.path, first=entry.first, last=entry.last)
        lines = f"[{entry.first}–{entry.last}]({url})"
        yield f"| `{use.owner}` | `{use.path}::{use.name}` | {lines} | {cell(use.text)} |\n"
