"""Lists and sets: Kubernetes' own functions, CEL's list extension, and `sets`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import hekla.cel.library.operators  # noqa: F401  (fills in the operators used below)
from hekla.cel.errors import Failed, TooCostly
from hekla.cel.functions import FUNCTIONS, dispatcher, function, method
from hekla.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
    optional_of,
)
from hekla.cel.values import NONE, Duration, Optional, Uint, kind_of, same

LONGEST = 1_000_000
ORDERED = (INT, UINT, DOUBLE, BOOL, STRING, BYTES, TIMESTAMP, DURATION)
_less = dispatcher(FUNCTIONS["_<_"])
_plus = dispatcher(FUNCTIONS["_+_"])


def _is_sorted(items: list[Any]) -> bool:
    return not any(_less(other, one) for one, other in itertools.pairwise(items))


def _extreme(items: list[Any], name: str) -> Any:
    if not items:
        raise Failed(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if _less(item, best) if name == "min" else _less(best, item):
            best = item
    return best


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((place for place, item in enumerate(items) if same(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next(
        (place for place in range(len(items) - 1, -1, -1) if same(items[place], wanted)), -1
    )


def _sum(items: list[Any], zero: Any) -> Any:
    """The sum of a list.  For dynamic elements the first one decides the type."""
    if items and kind_of(items[0]) != kind_of(zero):
        zero, items = items[0], items[1:]
    for item in items:
        zero = _plus(zero, item)
    return zero


def _declare_sum(kind: Type, zero: Any) -> None:
    method("sum", (list_of(kind),), kind, lambda items: _sum(items, zero))


def _declare_ordered(kind: Type) -> None:
    method("isSorted", (list_of(kind),), BOOL, _is_sorted)
    method("min", (list_of(kind),), kind, lambda items: _extreme(items, "min"))
    method("max", (list_of(kind),), kind, lambda items: _extreme(items, "max"))


for _kind in ORDERED:
    _declare_ordered(_kind)
for _kind, _zero in ((INT, 0), (UINT, Uint(0)), (DOUBLE, 0.0), (DURATION, Duration(0))):
    _declare_sum(_kind, _zero)
method("indexOf", (list_of(A), A), INT, _index_of)
method("lastIndexOf", (list_of(A), A), INT, _last_index_of)


# --- CEL's list extension -------------------------------------------------------------------------


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise Failed(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise Failed(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise Failed(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flat(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise Failed("level must be non-negative")
    found: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            found += _flat(item, depth - 1)
        else:
            found.append(item)
    return found


def _range(size: int) -> list[int]:
    if size > LONGEST:
        raise TooCostly
    return list(range(size))


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    seen: set[Any] = set()
    for item in items:
        if isinstance(item, str):
            if item not in seen:
                seen.add(item)
                found.append(item)
        elif not any(same(item, other) for other in found):
            found.append(item)
    return found


def in_order(keyed: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The second parts of pairs, sorted by the first; equal ones keep their order."""
    if keyed and len({kind_of(key) for key, _ in keyed}) > 1:
        raise Failed("list elements must have the same type")
    if keyed and kind_of(keyed[0][0]) not in {kind.name for kind in ORDERED}:
        raise Failed("list elements must be comparable")

    def compare(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
        return -1 if _less(one[0], other[0]) else int(_less(other[0], one[0]))

    return [item for _, item in sorted(keyed, key=cmp_to_key(compare))]


method("slice", (list_of(A), INT, INT), list_of(A), _slice)
method("flatten", (list_of(list_of(A)),), list_of(A), _flat)
method("flatten", (list_of(A), INT), list_of(A), _flat)
function("lists.range", (INT,), list_of(INT), _range)
method("distinct", (list_of(A),), list_of(A), _distinct)
method("reverse", (list_of(A),), list_of(A), lambda items: items[::-1])
method("sort", (list_of(A),), list_of(A), lambda items: in_order([(item, item) for item in items]))
method("first", (list_of(A),), optional_of(A), lambda items: Optional(items[0]) if items else NONE)
method("last", (list_of(A),), optional_of(A), lambda items: Optional(items[-1]) if items else NONE)


# --- sets -----------------------------------------------------------------------------------------


def _contains(holder: list[Any], items: list[Any]) -> bool:
    if len(holder) * len(items) > LONGEST * 10:
        raise TooCostly
    return all(any(same(item, other) for other in holder) for item in items)


def _meets(one: list[Any], other: list[Any]) -> bool:
    if len(one) * len(other) > LONGEST * 10:
        raise TooCostly
    return any(same(item, candidate) for item in one for candidate in other)


function("sets.contains", (list_of(A), list_of(A)), BOOL, _contains)
function(
    "sets.equivalent",
    (list_of(A), list_of(A)),
    BOOL,
    lambda one, other: _contains(one, other) and _contains(other, one),
)
function("sets.intersects", (list_of(A), list_of(A)), BOOL, _meets)
