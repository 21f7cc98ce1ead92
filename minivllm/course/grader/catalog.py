"""Where the labs lie, and what each lab.toml says.

Owns: the list of labs and their folders. Interface: all_labs, get_lab, Lab, TaskText.
Must not know: how anything is checked (check.py), or what a student wrote.

A lab is listed when it is whole: all files of WHOLE are in its folder.
"""

import importlib.util
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from minivllm.course.places import ROOT, lab_folders
from minivllm.errors import InputError

WHOLE = ("check.py", "README.md", "hints.md", "questions.py", "wrong.toml", "fingerprints.json")
WHOLE_OF_CASES = ("README.md", "hints.md", "bugs.py")


@dataclass(frozen=True, slots=True)
class TaskText:
    """One task of a lab: its number, what is to be written, its points, and the symbols that it grades."""

    id: str  # "4.1"
    title: str
    points: int
    symbols: tuple[str, ...]  # "BlockPool.touch", or a class or function whole


@dataclass(frozen=True, slots=True)
class Lab:
    """What lab.toml says. symbols: file and qualified name, in the order of the starter."""

    number: str  # "04"
    title: str
    minutes: int
    revision: int  # raised whenever tasks or checks change: older results stay results of their revision
    goal: str
    needs: str
    folder: Path
    tasks: tuple[TaskText, ...]
    symbols: tuple[str, ...]
    extra_imports: tuple[str, ...] = ()  # names that a solution is likely to need
    bodies: dict[str, str] = field(default_factory=dict)  # function that is written whole -> what is to be done
    parts: dict[str, str] = field(default_factory=dict)  # seam of minivllm.parts -> symbol of the starter
    run: dict[str, Any] = field(default_factory=dict)  # for `lab run`: prompt, max_tokens, settings of the engine
    in_interpreter: bool = False  # its kernels run under TRITON_INTERPRET=1
    call_s: float = 2.0  # seconds for one call of a student's code
    strict: bool = False  # a task is all or nothing: no share for families and invariants
    form: str = "parts"  # to be written; or "cases": broken engines to be diagnosed, by a casework.py of the lab's own

    @property
    def root(self) -> Path:
        """The repository, or the folder that the package is installed in."""
        return self.folder.parents[2]  # of notebooks/labs/NN_name, and of minivllm/lessons/labNN

    @property
    def begun_with(self) -> str:
        """The file of a student's folder that shows that the lab has been started."""
        return "starter.py" if self.form == "parts" else "lab.json"

    def task(self, task_id: str) -> TaskText:
        """Raises InputError for a task that this lab does not have."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise InputError(
            f"Lab {self.number} has no task {task_id}. Its tasks are: {', '.join(t.id for t in self.tasks)}."
        )


def all_labs(root: Path | None = None) -> list[Lab]:
    """Every lab of parts that is whole, in order."""
    return [lab for lab in every_lab(root) if lab.form == "parts"]


def every_lab(root: Path | None = None) -> list[Lab]:
    """Every lab that is whole, in order, those of cases too."""
    wanted = {"parts": WHOLE, "cases": WHOLE_OF_CASES}
    return [lab for lab in begun_labs(root) if all((lab.folder / name).exists() for name in wanted[lab.form])]


def begun_labs(root: Path | None = None) -> list[Lab]:
    """Every lab that can be built, in order: it has a lab.toml and its checks."""
    labs = [read_lab(folder / "lab.toml") for folder in lab_folders(root or ROOT)]
    return [lab for lab in labs if lab.form == "cases" or (lab.folder / "check.py").is_file()]


def get_lab(number: str, root: Path | None = None, begun: bool = False) -> Lab:
    """The lab of this number; "4" and "04" are the same. Raises InputError when there is none.

    begun: also one that is not whole yet.
    """
    labs = begun_labs(root) if begun else every_lab(root)
    for lab in labs:
        if lab.number == number.zfill(2):
            return lab
    raise InputError(f"There is no lab {number}. The labs are: {', '.join(lab.number for lab in labs)}.")


def load_file(path: Path) -> ModuleType:
    """A Python file of a lab's folder as a module, run anew."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def casework_of(lab: Lab) -> ModuleType:
    """The module of a lab of cases that starts and grades it: start, check, stale_bugs, FOLDER."""
    return importlib.import_module(f"minivllm.lessons.lab{lab.number}.casework")


def read_lab(path: Path) -> Lab:
    """Read one lab.toml."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    tasks = tuple(
        TaskText(task["id"], task["title"], task["points"], tuple(task.get("symbols", ()))) for task in text.pop("task")
    )
    symbols, extra_imports = tuple(text.pop("symbols", ())), tuple(text.pop("extra_imports", ()))
    return Lab(folder=path.resolve().parent, tasks=tasks, symbols=symbols, extra_imports=extra_imports, **text)
