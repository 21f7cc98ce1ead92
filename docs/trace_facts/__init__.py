"""What the docs say about a trace, each as a short text: `QUANTITIES[name](trace, *arguments)`.

Arguments are text; one that names a scenario is its trace.
Must not know: pages, marks, files; a running engine.
"""

from trace_facts import cache, output, plans, processes, setting
from trace_facts.lookup import QUANTITIES

__all__ = ["QUANTITIES", "cache", "output", "plans", "processes", "setting"]
