"""A notebook's own things: its number, its traces, its part of the map.

Owns: where a trace comes from. By default the recorded file; with `live` the scenario is run now.
Interface: Notebook.
Must not know: what a notebook tells.
"""

import tempfile
from pathlib import Path

from minivllm.course.notebook.html import picture
from minivllm.course.places import repo_path
from minivllm.errors import InputError
from minivllm.trace.replay import Trace

# number -> the stops of the road that the notebook is about
PARTS = {
    "00": range(1, 28),
    "01": (1, 2, 3, 4, 5, 6, 27),
    "02": (7, 22, 23),
    "03": (9, 10),
    "04": (11, 12),
    "05": (10, 11, 12),
    "06": (13, 14, 15),
    "07": (16, 17),
    "08": (17, 18),
    "09": (19, 20),
    "10": (23, 24, 25, 26),
    "11": (21, 26),
    "12": range(1, 28),
    "13": (18,),
    "14": range(1, 28),
}


class Notebook:
    """What the first cell makes."""

    def __init__(self, number: str, live: bool = False) -> None:
        if number not in PARTS:
            raise InputError(f"There is no notebook {number!r}. They are {', '.join(PARTS)}.")
        self.number = number
        self.live = live
        self._traces: dict[str, Trace] = {}

    def trace(self, name: str) -> Trace:
        """The trace of a scenario. Raises InputError for one that was not recorded."""
        if name not in self._traces:
            self._traces[name] = Trace.load(self._record(name) if self.live else self._recorded(name))
        return self._traces[name]

    @staticmethod
    def _recorded(name: str) -> Path:
        path = repo_path("traces") / f"{name}.jsonl.gz"
        if not path.is_file():
            known = ", ".join(sorted(one.name.removesuffix(".jsonl.gz") for one in path.parent.glob("*.jsonl.gz")))
            raise InputError(f"No trace {name!r} was recorded. Recorded ones: {known or 'none'}.")
        return path

    def _record(self, name: str) -> Path:
        """Run the scenario now. One that no scenario makes is read from its file."""
        from minivllm.course.scenarios import SCENARIOS, run_scenario

        if name not in SCENARIOS:
            return self._recorded(name)
        path = Path(tempfile.mkdtemp(prefix="minivllm-")) / f"{name}.jsonl.gz"
        run_scenario(SCENARIOS[name], trace=str(path))
        return path

    def map(self) -> None:
        """The road of a request with this notebook's part lit."""
        from minivllm.show.pictures import road

        stops = [f"B{stop}" for stop in PARTS[self.number]]
        whole = len(stops) == 27
        where = "All of the road" if whole else f"{', '.join(stops)}"
        alt = (
            "The road of a request: stops B1 to B27 in two lanes, the caller above and the engine core below. "
            f"This notebook is about {where[0].lower() + where[1:] if whole else where}."
        )
        said = "All of the road, in two processes." if whole else f"{where}: where this notebook is on the road."
        picture(road(lit=stops, alt=alt), said)
