"""Values of a JSON tree as sets and dictionaries know them, so that looking for one among many is
one step and not one for each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

_NESTED = frozenset({dict, list})
_encode = msgspec.json.Encoder(order="sorted").encode


def hashable(value: Any) -> Hashable:
    """The same for what is equal."""
    return value if type(value) not in _NESTED else (_encode(value),)


def hashables(values: Iterable[Any]) -> set[Hashable]:
    return set(map(hashable, values))


def first_places(values: Iterable[Any]) -> dict[Hashable, int]:
    """Where each value stands first."""
    places: dict[Hashable, int] = {}
    for position, value in enumerate(values):
        places.setdefault(hashable(value), position)
    return places
