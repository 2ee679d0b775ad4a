"""The table of functions: what the library files put in, the checker looks up, and the program
calls.

An overload takes its receiver as the first argument.  A function whose argument types are known
before it runs is called directly; one with dynamic arguments looks its overload up by the kinds of
the values, once for each combination of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hekla.cel.errors import Failed
from hekla.cel.types import Type
from hekla.cel.values import kind_of

Work = Callable[..., Any]


class Overload:
    __slots__ = ("arguments", "kinds", "member", "result", "work")

    def __init__(self, arguments: tuple[Type, ...], result: Type, work: Work, member: bool) -> None:
        self.arguments = arguments
        self.result = result
        self.work = work
        self.member = member
        self.kinds = tuple(_kind(argument) for argument in arguments)


def _kind(type: Type) -> str | None:
    if type.name in ("dyn", "<A>", "<B>"):
        return None
    return "null_type" if type.name == "null" else type.name


FUNCTIONS: dict[str, list[Overload]] = {}


def function(
    name: str, arguments: Sequence[Type], result: Type, work: Work, *, member: bool = False
) -> None:
    FUNCTIONS.setdefault(name, []).append(Overload(tuple(arguments), result, work, member))


def method(name: str, arguments: Sequence[Type], result: Type, work: Work) -> None:
    function(name, arguments, result, work, member=True)


def dispatcher(candidates: Sequence[Overload]) -> Work:
    """A function that calls the overload for its arguments' types; it fails as CEL does if there is
    none."""
    known: dict[tuple[str, ...], Work | None] = {}

    def call(*arguments: Any) -> Any:
        kinds = tuple(map(kind_of, arguments))
        work = known.get(kinds)
        if work is None:
            work = known[kinds] = _fitting(candidates, kinds)
            if work is None:
                raise Failed("no such overload")
        return work(*arguments)

    return call


def _fitting(candidates: Sequence[Overload], kinds: tuple[str, ...]) -> Work | None:
    for overload in candidates:
        if len(overload.kinds) == len(kinds) and all(
            wanted is None or wanted == kind for wanted, kind in zip(overload.kinds, kinds)
        ):
            return overload.work
    return None
