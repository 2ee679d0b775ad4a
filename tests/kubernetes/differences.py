"""Where two answers to the same request differ, and which of it is intended."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.cluster.api import Answer
from tests.kubernetes import normal
from tests.kubernetes.exchange import Script, Step
from tests.kubernetes.intended import INTENDED, Intention

__all__ = ["ABSENT", "INTENDED", "Difference", "between", "report", "sorted_out"]

ABSENT = "<absent>"
ANYWHERE = re.compile(r"\[[^\]]*\]")
"""A place in a list."""


class Difference(NamedTuple):
    """One place at which the two servers do not say the same."""

    script: str
    request: str
    place: str
    """`status`, `header NAME`, or a path into the body."""
    reference: Any
    ours: Any

    @property
    def likeness(self) -> tuple[str, str, str]:
        """What two differences of the same cause have in common: the method, the place, and a
        status where it is about that."""
        statuses = (
            f"{str(self.reference)[:3]} {str(self.ours)[:3]}" if self.place == "status" else ""
        )
        return self.request.partition(" ")[0], ANYWHERE.sub("[]", self.place), statuses

    def __str__(self) -> str:
        return f"{self.request}\n    {self.place}\n      reference: {_short(self.reference)}\n      ours:      {_short(self.ours)}"


def between(script: Script, step: Step, reference: Answer, ours: Answer) -> Iterator[Difference]:
    """Every difference of two answers; when the statuses differ, only that and the messages, for
    the rest follows from it."""

    def found(place: str, one: Any, other: Any) -> Difference:
        return Difference(script.name, str(step), place, one, other)

    if reference.status != ours.status:
        yield found(
            "status", f"{reference.status} {_message(reference)}", f"{ours.status} {_message(ours)}"
        )
        return
    expected, given = normal.headers(reference), normal.headers(ours)
    for name in sorted(expected.keys() | given.keys()):
        if expected.get(name) != given.get(name):
            yield found(f"header {name}", expected.get(name, ABSENT), given.get(name, ABSENT))
    for place, one, other in _walk("", normal.body(reference), normal.body(ours)):
        yield found(place or ".", one, other)


def _walk(place: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _walk(f"{place}.{name}", one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        yield from _walk_lists(place, one, other)
    elif one != other or type(one) is not type(other):
        yield place, one, other


def _walk_lists(place: str, one: list[Any], other: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    mine, theirs = _by_name(one), _by_name(other)
    # Lists of named things: by name, so that one that is missing is told once.
    if mine is not None and theirs is not None:
        for name in [*mine, *(name for name in theirs if name not in mine)]:
            yield from _walk(f"{place}[{name}]", mine.get(name, ABSENT), theirs.get(name, ABSENT))
        if list(mine) != list(theirs) and set(mine) == set(theirs):
            yield f"{place} (order)", list(mine), list(theirs)
        return
    for number in range(max(len(one), len(other))):
        yield from _walk(
            f"{place}[{number}]",
            one[number] if number < len(one) else ABSENT,
            other[number] if number < len(other) else ABSENT,
        )


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by their names; None unless each has one of its own."""
    found: dict[str, Any] = {}
    for item in items:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = (
            metadata.get("name")
            if isinstance(metadata, dict)
            else item.get("name")
            if isinstance(item, dict)
            else None
        )
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def sorted_out(differences: Iterable[Difference]) -> tuple[list[Difference], dict[Intention, int]]:
    """(those that nobody intended, how often each intention was met)."""
    rest: list[Difference] = []
    met: dict[Intention, int] = defaultdict(int)
    for difference in differences:
        intention = next(
            (
                known
                for known in INTENDED
                if known.covers(
                    difference.request,
                    difference.place,
                    _text(difference.reference),
                    _text(difference.ours),
                )
            ),
            None,
        )
        if intention is None:
            rest.append(difference)
        else:
            met[intention] += 1
    return rest, met


def report(differences: list[Difference], examples: int = 3) -> str:
    """The differences, those at the same place together, the commonest places first; of each place
    some examples."""
    places: dict[str, dict[tuple[str, str], list[Difference]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for difference in differences:
        place = ANYWHERE.sub("[]", difference.place)
        places[place][_short(difference.reference), _short(difference.ours)].append(difference)
    lines = []
    for place, values in sorted(
        places.items(), key=lambda found: -sum(map(len, found[1].values()))
    ):
        lines.append(f"{sum(map(len, values.values()))} x {place}")
        for (reference, ours), members in sorted(values.items(), key=lambda found: -len(found[1]))[
            : None if place == "status" else examples
        ]:
            lines += [
                f"    {members[0].script}: {members[0].request}"
                + (f"  and {len(members) - 1} more" if len(members) > 1 else "")
            ]
            lines += [f"        reference: {reference}", f"        ours:      {ours}"]
    return "\n".join(lines)


def _message(answer: Answer) -> str:
    if answer.status < 400:
        return ""
    found = normal.body(answer)
    return str(found.get("message", "")) if isinstance(found, dict) else str(found)[:200]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"
