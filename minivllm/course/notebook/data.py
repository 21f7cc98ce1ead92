"""What notebooks say that is no trace: token pieces and the titles of traps. `python -m minivllm.course.notebook.build
--data` writes them to data.json, from the default model's tokenizer and docs/traps.md.

Owns: data.json, so that a notebook needs neither a tokenizer nor the docs. A test compares it with where it comes from.
Interface: read_data, make_data, write_data.
Must not know: how it is shown.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.course.places import ROOT, repo_path

DATA = Path(__file__).with_name("data.json")
TRAP = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@cache
def read_data() -> dict[str, Any]:
    """`pieces`: token id -> text. `traps`: number -> sentence."""
    return json.loads(DATA.read_text(encoding="utf-8"))


def make_data() -> dict[str, Any]:
    """What data.json should hold now. Needs the tokenizers package and the default model's tokenizer."""
    from minivllm.show.page.pieces import token_pieces
    from minivllm.trace import load

    found: dict[int, str] = {}
    for path in sorted(repo_path("traces").glob("*.jsonl.gz")):
        found |= token_pieces(load(str(path)))
    traps = {number: text for number, text, _ in TRAP.findall((ROOT / "docs/traps.md").read_text(encoding="utf-8"))}
    return {"pieces": {str(token_id): found[token_id] for token_id in sorted(found)}, "traps": traps}


def write_data() -> None:
    """Write data.json."""
    DATA.write_text(json.dumps(make_data(), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
