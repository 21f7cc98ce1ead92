"""For instructors: a table of submissions, and grading again on one's own machine.

Owns: the table, the signature. Interface: collect, regrade, sign.
Must not know: checks.

A folder holds one folder per student, named by the student's id, and in it the labs' folders: ID/04/starter.py,
answers.toml, lab-04.json. Only what `regrade` wrote, lab-04.regraded.json, counts: a student can write any JSON.
"""

import csv
import hashlib
import hmac
import json
from itertools import combinations
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.labs import originality, seeds
from minivllm.labs.catalog import Lab, all_labs, every_lab
from minivllm.labs.report import as_json
from minivllm.labs.work import STARTER, check

REGRADED = "lab-{}.regraded.json"


def collect(folder: Path, csv_path: Path | None = None) -> str:
    """A table of the results in a folder, and the pairs that are alike. Raises InputError if it is empty.

    vLLM: none, vLLM has no labs
    """
    rows = [_row(path, lab) for lab in every_lab() for path in sorted(folder.glob(f"*/{lab.number}")) if path.is_dir()]
    if not rows:
        raise InputError(f"{folder} holds no submission: a student's lab 04 is expected in {folder}/STUDENT/04.")
    if csv_path is not None:
        with csv_path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    widths = {
        key: max(len(str(row[key])) for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]) for key in rows[0]
    }
    lines = ["  ".join(f"{key:<{widths[key]}}" for key in rows[0])]
    lines += ["  ".join(f"{row[key]!s:<{widths[key]}}" for key in row) for row in rows]
    alike = [line for lab in all_labs() for line in _alike(folder, lab)]
    return "\n".join(lines + (["", "Alike, to be talked about:", *alike] if alike else []))


def _row(path: Path, lab: Lab) -> dict[str, Any]:
    regraded = path / REGRADED.format(lab.number)
    own = path / f"lab-{lab.number}.json"
    source = regraded if regraded.exists() else own
    result = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
    tasks = " ".join(f"{task['id']}:{task['points']}" for task in result.get("tasks", []))
    questions = sum(question["points"] for question in result.get("questions", []))
    engine = result.get("originality", {}).get("engine", [])
    likeness = max((entry["similarity"] for entry in engine), default=0.0)
    return {
        "student": path.parent.name,
        "lab": lab.number,
        "total": result.get("total", "-"),
        "tasks": tasks or "-",
        "questions": questions,
        "hints": len(result.get("hints", [])),
        "like engine": likeness if likeness >= originality.REPORTED_FROM else "",
        "source": "regraded" if regraded.exists() else "student" if own.exists() else "none",
        "signed": "yes" if result.get("signature") else "",
    }


def _alike(folder: Path, lab: Lab) -> list[str]:
    texts = {path.parent.parent.name: path.read_text("utf-8") for path in folder.glob(f"*/{lab.number}/{STARTER}")}
    found = []
    for one, other in combinations(sorted(texts), 2):
        try:
            entries = originality.engine_likeness(lab, texts[one], texts[other])
        except SyntaxError:
            continue
        for entry in entries:
            if entry["similarity"] >= originality.REPORTED_FROM:
                found.append(f"  {one} and {other}, lab {lab.number}, {entry['symbol']}: {entry['similarity']:.2f}")
    return found


def regrade(folder: Path, salt: str = "", key: str | None = None):
    """Check every starter of a folder again, with seeds from the folders' names; yields a line for each.

    vLLM: none, vLLM has no labs
    """
    for lab in every_lab():
        for path in sorted(folder.glob(f"*/{lab.number}/{lab.begun_with}")):
            student = path.parent.parent.name
            checked = check(lab, path, seed=seeds.seed_of(lab, student, salt))
            result = as_json(checked.result, checked.questions, **checked.facts)
            result["student"] = hashlib.sha256(f"{salt}\0{student}".encode()).hexdigest()
            result["signature"] = sign(result, key) if key else None
            target = path.parent / REGRADED.format(lab.number)
            target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            yield f"{student}  lab {lab.number}  {result['total']}/{result['max']}  {target}"


def sign(result: dict[str, Any], key: str) -> str:
    """HMAC over the result without its signature.

    vLLM: none, vLLM has no labs
    """
    text = json.dumps({name: value for name, value in result.items() if name != "signature"}, sort_keys=True)
    return "hmac-sha256:" + hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
