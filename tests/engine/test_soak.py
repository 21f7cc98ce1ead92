"""A few rounds of tests/soak.py; `make soak` runs it for half an hour."""

from engine.helpers import Surroundings
from faults import fault
from soak import soak


@fault(
    "Soak",
    "engines made, used, abused and ended at random, one after the other",
    how="seeded: tiny and ample pools, requests of all lengths, aborts, errors in callbacks, threads, SIGSTOP, kills",
    then="every request ends, with the tokens that an ample pool gives; no memory, descriptor, thread, process or file "
    "is left",
)
def test_a_short_soak(surroundings: Surroundings) -> None:
    done = soak(7, surroundings.home, lambda rounds: rounds < 8)
    assert done["rounds"] == 8 and done["short"] > 30
