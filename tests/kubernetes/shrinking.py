"""The shortest script that still shows a difference: what a reader can follow of forty requests
that a seed made up.

Steps are taken away as long as the difference stays, then fields of their bodies.  Every attempt
runs on the same two servers in a namespace of its own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from tests.kubernetes.exchange import Script, Step

Fails = Callable[[Script], bool]
_NUMBERS = count(1)
"""No two attempts share a namespace, also where one script shows two differences."""
ATTEMPTS = 120
"""At the most for one script; each sends what is left of it to both servers."""


class _Attempts:
    def __init__(self, fails: Fails, name: str) -> None:
        self._fails, self._name, self._made = fails, name, 0

    @property
    def left(self) -> bool:
        return self._made < ATTEMPTS

    def fails(self, steps: list[Step]) -> bool:
        self._made += 1
        return self._fails(Script(f"{self._name} {self._made}", tuple(steps)))


def shrunk(script: Script, fails: Fails) -> Script:
    """A script that `fails` too and of which no step can be missed; the whole one where it does not
    fail a second time."""
    attempts, steps = (
        _Attempts(fails, f"shrunk {next(_NUMBERS)} {script.namespace[-20:]}"),
        list(script.steps),
    )
    if not attempts.fails(steps):
        return script
    steps = _fewer(steps, attempts)
    for place in range(len(steps)):
        steps = _smaller(steps, place, attempts)
    return Script(script.name, tuple(steps))


def _fewer(steps: list[Step], attempts: _Attempts) -> list[Step]:
    size = len(steps) // 2
    while size and attempts.left:
        start = len(steps) - size
        while start >= 0 and attempts.left:
            rest = steps[:start] + steps[start + size :]
            if rest and attempts.fails(rest):
                steps = rest
            start -= size
            start = min(start, len(steps) - size)
        size //= 2
    return steps


def _smaller(steps: list[Step], place: int, attempts: _Attempts) -> list[Step]:
    """The same with a smaller body in one step."""
    again = True
    while again:
        again = False
        for body in _without_one(steps[place].body):
            if not attempts.left:
                return steps
            rest = [*steps[:place], replace(steps[place], body=body), *steps[place + 1 :]]
            if attempts.fails(rest):
                steps, again = rest, True
                break
    return steps


def _without_one(body: Any) -> Iterator[Any]:
    """The body without one of its fields or items, those on the outside first."""
    places: list[tuple[Any, ...]] = [()]
    for place in places:
        node = _at(body, place)
        keys = (
            list(node)
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else ()
        )
        for key in keys:
            if place == () and key in ("apiVersion", "kind", "metadata"):
                continue
            smaller = copy.deepcopy(body)
            del _at(smaller, place)[key]
            yield smaller
            places.append((*place, key))


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def told(script: Script) -> str:
    """A script as a reader wants it: its requests with their bodies."""
    lines = [f"{script.name}: {len(script.steps)} requests"]
    for step in script.steps:
        body = (
            ""
            if step.body is None
            else f"  {step.body!r}"
            if isinstance(step.body, bytes)
            else f"  {json.dumps(step.body)}"
        )
        lines.append(f"    {step}{body}")
    return "\n".join(lines)
