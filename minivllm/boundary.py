"""Marks for the hand-overs between components.

A boundary is a method that one component calls on another: the places where a request changes hands.
`@boundary("schedule")` only sets an attribute on the function, so nothing is wrapped and nothing is slower.
`minivllm.trace.recorder.observe` reads the marks, and only when a trace is asked for.

Must not know: what a trace is, or that anybody looks.
"""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable)


def boundary(kind: str) -> Callable[[F], F]:
    """Mark a method as the boundary `kind` (the name of its trace event). Returns the method itself."""

    def mark(method: F) -> F:
        method.__boundary__ = kind
        return method

    return mark


def boundaries(cls: type) -> dict[str, str]:
    """Method name -> boundary kind for every marked method of `cls`.

    A subclass that overrides a marked method keeps the mark, also when it drops the decorator.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            kind = getattr(member, "__boundary__", None)
            if kind is not None:
                found[name] = kind
    return found
