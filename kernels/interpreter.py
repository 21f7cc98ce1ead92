"""Triton's interpreter: kernels as Python, on a CPU, program after program.

Interface: is_interpreting; speed_up, which the kernels' modules need not know of.
Must not know: any kernel.
"""

from typing import Any

import triton


def is_interpreting() -> bool:
    """Whether kernels of this process are interpreted. It was decided when triton was imported.

    vLLM: none, vLLM does not run Triton's interpreter
    """
    return type(triton.language.standard.sum).__name__ == "InterpretedFunction"


def speed_up() -> None:
    """Make the interpreter call helper functions 2.5 times faster; does nothing where it does not apply.

    For each call of a function inside a kernel (also tl.max, tl.sum), the interpreter exchanges all functions of
    triton.language for interpreting ones. The launch has done that already, so once for each module is enough.

    vLLM: none, see `is_interpreting`
    """
    if not is_interpreting():
        return
    from triton.runtime import interpreter

    patch_language = getattr(interpreter, "_patch_lang", None)
    prepared: set[str] = set()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ not in prepared:
            patch_language(self.fn)
            prepared.add(self.fn.__module__)
        return self.rewrite()(*args, **kwargs)

    if patch_language is not None and hasattr(interpreter.InterpretedFunction, "rewrite"):
        interpreter.InterpretedFunction.__call__ = call
