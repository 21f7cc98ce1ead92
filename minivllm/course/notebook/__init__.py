"""What the notebooks are written with: traces, predictions, small tables, and source shown from the files.

    from minivllm.course.notebook import Notebook, predict, table
    nb = Notebook("04")
    trace = nb.trace("again")

Interface: the names below. All of them show what they make at once, and return nothing, but `Notebook`, `who` and
`tokens`. `python -m minivllm.course.notebook.build` executes the notebooks.
Must not know: torch. A notebook that needs it imports it; with LIVE the engine runs, by minivllm.course.scenarios.
"""

from minivllm.course.notebook.cards import card, cards, checks, predict, recall
from minivllm.course.notebook.compare import diff_view
from minivllm.course.notebook.html import note, picture
from minivllm.course.notebook.listings import code
from minivllm.course.notebook.names import tokens, who
from minivllm.course.notebook.notebook import Notebook
from minivllm.course.notebook.tables import array, pieces, table
from minivllm.course.notebook.traps import traps

__all__ = [
    "Notebook",
    "array",
    "card",
    "cards",
    "checks",
    "code",
    "diff_view",
    "note",
    "picture",
    "pieces",
    "predict",
    "recall",
    "table",
    "tokens",
    "traps",
    "who",
]
