"""What the notebooks are written with: traces, predictions, small tables, and source shown from the files.

    from minivllm.notebook import Notebook, predict, table
    nb = Notebook("04")
    trace = nb.trace("again")

Interface: the names below. All of them show what they make at once, and return nothing, but `Notebook`, `who` and
`tokens`. `python -m minivllm.notebook.build` executes the notebooks.
Must not know: torch. A notebook that needs it imports it; with LIVE the engine is run, through minivllm.scenarios.

vLLM: none, vLLM has no notebooks of this kind
"""

from minivllm.notebook.cards import card, cards, checks, predict, recall
from minivllm.notebook.compare import diff_view
from minivllm.notebook.html import note, picture
from minivllm.notebook.listings import code
from minivllm.notebook.names import tokens, who
from minivllm.notebook.notebook import Notebook
from minivllm.notebook.tables import array, pieces, table
from minivllm.notebook.traps import traps

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
