"""`lab build`: everything of a lab that is made from the engine's source.

Owns: what is made, and how it is told that it is stale.
Interface: build, build_notebook, build_schema, stale, stale_schema.
"""

import json
from pathlib import Path

from minivllm.course.grader import seeds
from minivllm.course.grader.catalog import Lab, casework_of
from minivllm.course.grader.cut import MarkerError, check_starter
from minivllm.course.grader.result import SCHEMA_FILE, json_schema
from minivllm.course.grader.wrong import build_fingerprints, edited, fingerprint_path, read_wrong

NUM_SEEDS = 300  # over which questions are admitted


def build(lab: Lab) -> list[str]:
    """Write the fingerprints of the wrong solutions; returns what was written, a line each."""
    fingerprints = build_fingerprints(lab)
    path = fingerprint_path(lab)
    path.write_text(json.dumps(fingerprints, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return [f"{path}: {sum(map(len, fingerprints.values()))} of {len(read_wrong(lab))} wrong solutions"]


def build_notebook(lab: Lab) -> str:
    """Run check.py and write labNN.ipynb beside it; returns what was written."""
    import nbformat

    from minivllm.course.notebook.build import execute, read_source

    source = lab.folder / f"lab{lab.number}.py"
    book = execute(read_source(source), lab.folder)
    path = source.with_suffix(".ipynb")
    nbformat.write(book, path)
    return f"{path}: {len(book.cells)} cells"


def stale(lab: Lab) -> list[str]:
    """What is not up to date, a line each. The fingerprints take long and are a test of their own."""
    if lab.form == "cases":
        return casework_of(lab).stale_bugs(lab)
    found = check_starter(lab)
    for wrong in read_wrong(lab):
        try:
            edited(lab, wrong)
        except MarkerError as error:
            found.append(str(error))
    return found


def refused_questions(lab: Lab) -> list[str]:
    """Why a lab's questions can't be asked, a line each: over 300 seeds their answers could be guessed."""
    return seeds.admission(lab, range(NUM_SEEDS))


def build_schema(root: Path) -> str:
    """Write the form of a result, docs/lab-result.schema.json; returns what was written."""
    path = root / SCHEMA_FILE
    path.write_text(json_schema(), encoding="utf-8")
    return str(path)


def stale_schema(root: Path) -> list[str]:
    """Whether docs/lab-result.schema.json is not what the structs give: nothing, or a line that says so."""
    path = root / SCHEMA_FILE
    if path.exists() and path.read_text(encoding="utf-8") == json_schema():
        return []
    return [f"{SCHEMA_FILE} is not what the structs give: run `minivllm lab build`"]
