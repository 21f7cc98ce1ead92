"""What the marks of all pictures have in common: colours, sizes, and the names of requests.

Interface: Owners, Owner; INK and the other colours; BODY and the other sizes.
Must not know: how anything is drawn.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minivllm.errors import InputError
from minivllm.trace.replay import Trace
from minivllm.trace.state import State

WIDTH = 800  # px, of every picture
MARGIN = 12  # px
SMALL, BODY, TITLE = 12, 13, 15  # px; 12 px are 9 pt

INK, SOFT, RULE, BAND, PAPER, LOSS = "#14171C", "#4A515C", "#C3C9D2", "#F2F4F7", "#FFFFFF", "#BE1128"
HATCH = "#8F98A5"
BY_LETTER = {"A": "#0072B2", "B": "#E69F00", "C": "#009E73", "L": "#CC79A7", "V": "#CC79A7"}
OTHER = "#8C6D46"
BY_ARRIVAL = ("#0072B2", "#E69F00", "#009E73")
BRIGHT = frozenset({"#E69F00", "#CC79A7", "#009E73"})  # dark text reads better on these


class Owner(NamedTuple):
    """A request as the pictures show it."""

    label: str
    colour: str

    @property
    def text_colour(self) -> str:
        """Of text that stands on the colour."""
        return INK if self.colour in BRIGHT else PAPER


def owner(name: str) -> Owner:
    """The owner that a name stands for: its first letter gives the colour."""
    return Owner(name, BY_LETTER.get(name[:1], OTHER))


Names = Sequence[str] | Mapping[str, str] | None


class Owners:
    """Internal id -> Owner, of all requests of a trace or a state.

    names: in order of arrival ("ABC", or ["A", "A′"]), or external id -> name. None: the external ids themselves, and
    colours by order of arrival. Raises InputError for too few names.
    """

    def __init__(self, source: Trace | State, names: Names = None) -> None:
        external = (
            source.external_ids
            if isinstance(source, Trace)
            else {i: r.external_req_id or i for i, r in source.requests.items()}
        )
        if names is not None and len(names) < len(external):
            raise InputError(
                f"owners names {len(names)} requests, and there are {len(external)} ({', '.join(external.values())}). "
                "Name all of them, in order of arrival."
            )
        self._owners: dict[str, Owner] = {}
        for place, (internal, outside) in enumerate(external.items()):
            if names is None:
                repeated = list(external.values()).count(outside) > 1
                label = f"{outside}.{internal.partition('_')[0]}" if repeated else outside
                self._owners[internal] = Owner(label, BY_ARRIVAL[place] if place < len(BY_ARRIVAL) else OTHER)
            else:
                self._owners[internal] = owner(names[outside] if isinstance(names, Mapping) else names[place])

    def __getitem__(self, internal: str) -> Owner:
        return self._owners.get(internal) or Owner(internal, OTHER)

    def __iter__(self):
        return iter(self._owners)

    def find(self, name: str) -> str:
        """The internal id of a name (a label, or an internal id). Raises InputError where there is none."""
        for internal, found in self._owners.items():
            if name in (internal, found.label):
                return internal
        known = ", ".join(found.label for found in self._owners.values())
        raise InputError(f"There is no request {name!r}. There are: {known}.")
