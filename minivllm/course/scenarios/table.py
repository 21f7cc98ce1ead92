"""The list of recorded traces in traces/README.md, with numbers read off the traces."""

from collections.abc import Iterable
from pathlib import Path

from minivllm.course.scenarios.scenario import Scenario


def table_of_traces(folder: Path, scenarios: Iterable[Scenario]) -> str:
    """The recorded scenarios of a folder as a Markdown table, with numbers read off the traces."""
    from minivllm.trace import load

    lines = ["| trace | what it shows | requests | steps | events |", "|---|---|---:|---:|---:|"]
    for scenario in scenarios:
        path = folder / f"{scenario.name}.jsonl.gz"
        if path.exists():
            trace = load(path)
            numbers = f"{len(trace.request_ids)} | {len(trace.steps)} | {len(trace):,}"
            lines.append(f"| [{scenario.name}]({path.name}) | {scenario.shows} | {numbers} |")
    return "\n".join(lines)


def write_table_of_traces(folder: Path, scenarios: Iterable[Scenario]) -> None:
    """Put the table into the folder's README.md, between its marks; nothing happens where there is no such file."""
    readme = folder / "README.md"
    if not readme.exists():
        return
    before, _, rest = readme.read_text(encoding="utf-8").partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- /table -->")
    readme.write_text(
        f"{before}<!-- table -->\n{table_of_traces(folder, scenarios)}\n<!-- /table -->{after}", encoding="utf-8"
    )
