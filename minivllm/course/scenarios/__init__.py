"""Named runs of the engine, each made to show one thing; `minivllm record NAME` writes the trace of one.

Owns: the running example (request A and its companions: cast.py), the settings S0 that all scenarios share, and for
each scenario what differs from them (decisions.py, answers.py, close_up.py, processes.py).
Interface: SCENARIOS, get_scenario, run_scenario, run_calls; table_of_traces, write_table_of_traces.
Must not know: how a trace is written.

Everything is fixed: prompts, seeds, arrival by step number, a logical clock. So the same scenario gives the same trace
wherever it is recorded, but for rounding in the model's values. Some are recorded once and kept (Scenario.once): they
run freely on the wall clock, or depend on the processor.
"""

from pathlib import Path

from minivllm.course.scenarios import answers, close_up, decisions, processes, table
from minivllm.course.scenarios.cast import A_TOKEN_IDS, CITIES, S0, A, B, C, D, E, F, G, H, L, Messages, R, V
from minivllm.course.scenarios.run import run_calls, run_scenario
from minivllm.course.scenarios.scenario import Ask, Scenario
from minivllm.errors import InputError

__all__ = [
    "A_TOKEN_IDS",
    "CITIES",
    "S0",
    "SCENARIOS",
    "A",
    "Ask",
    "B",
    "C",
    "D",
    "E",
    "F",
    "G",
    "H",
    "L",
    "Messages",
    "R",
    "Scenario",
    "V",
    "get_scenario",
    "run_calls",
    "run_scenario",
    "table_of_traces",
    "write_table_of_traces",
]

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for group in (decisions, answers, close_up, processes) for scenario in group.SCENARIOS
}


def get_scenario(name: str) -> Scenario:
    """Raises InputError for a name that there isn't."""
    if name not in SCENARIOS:
        raise InputError(f"There is no scenario {name!r}. There are: {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def table_of_traces(folder: Path) -> str:
    """The recorded scenarios of a folder as a Markdown table, with numbers read off the traces."""
    return table.table_of_traces(folder, SCENARIOS.values())


def write_table_of_traces(folder: Path) -> None:
    """Put the table into the folder's README.md, between its marks; nothing happens where there is no such file."""
    table.write_table_of_traces(folder, SCENARIOS.values())
