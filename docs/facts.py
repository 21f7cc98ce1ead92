"""The numbers in the docs, read off recorded traces: `python docs/facts.py` writes them into the pages anew.

A page marks each number with what it is: a scenario, a quantity, and its arguments. GitHub shows the number alone.

    It hits <!-- fact: again hit 1 -->32<!-- /fact --> tokens.

Owns: the marks, and how a page is refreshed.
Interface: refreshed, PAGES, load; as a program it rewrites the pages, or with --check names those that are not fresh.
Must not know: how a quantity is found in a trace (trace_facts).
"""

import functools
import re
import sys
from pathlib import Path

import trace_facts

from minivllm.trace import Trace

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "traces"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FACT = re.compile(r"<!-- fact: (.+?) -->(.*?)<!-- /fact -->", re.DOTALL)


@functools.cache
def load(scenario: str, folder: Path = TRACES) -> Trace:
    """The recorded trace of a scenario."""
    return Trace.load(folder / f"{scenario}.jsonl.gz")


def value(fact: str, folder: Path = TRACES) -> str:
    """What stands between the marks of a fact: `SCENARIO QUANTITY ARGUMENT…`, or `all QUANTITY` over all traces.

    A text of several lines becomes a fenced block. Raises ValueError, which names the fact, for one that can't be read.
    """
    scenario, name, *arguments = fact.split()
    if name not in trace_facts.QUANTITIES:
        raise ValueError(f"fact {fact!r}: there is no quantity {name!r}")
    traces = sorted(folder.glob("*.jsonl.gz")) if scenario == "all" else []
    about = [load(path.name.removesuffix(".jsonl.gz"), folder) for path in traces] if traces else load(scenario, folder)
    others = {word: load(word, folder) for word in arguments if (folder / f"{word}.jsonl.gz").exists()}
    try:
        found = trace_facts.QUANTITIES[name](about, *(others.get(word, word) for word in arguments))
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"fact {fact!r}: {error}") from error
    return f"\n\n```text\n{found}\n```\n\n" if "\n" in found else found


def refreshed(page: str, folder: Path = TRACES) -> str:
    """The text of a page with every fact as the traces have it."""
    return FACT.sub(lambda match: f"<!-- fact: {match[1]} -->{value(match[1], folder)}<!-- /fact -->", page)


def main(arguments: list[str]) -> int:
    """Rewrite the pages; with --check only name those that are not fresh, and return 1 if there is one."""
    stale = []
    for path in PAGES:
        old = path.read_text(encoding="utf-8")
        new = refreshed(old)
        if new != old:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'not fresh' if '--check' in arguments else 'written anew'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
