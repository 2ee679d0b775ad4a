"""Values of a JSON tree in a hashable form, so that sets and dictionaries can hold them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

_NESTED = frozenset({dict, list})
_encode = msgspec.json.Encoder(order="sorted").encode


def hashable(value: Any) -> Hashable:
    """A hashable that is equal for equal values."""
    return value if type(value) not in _NESTED else (_encode(value),)


def hashables(values: Iterable[Any]) -> set[Hashable]:
    """The set of `hashable` of all values."""
    return set(map(hashable, values))


def first_positions(values: Iterable[Any]) -> dict[Hashable, int]:
    """The first position of each value, by its `hashable`."""
    positions: dict[Hashable, int] = {}
    for position, value in enumerate(values):
        positions.setdefault(hashable(value), position)
    return positions
