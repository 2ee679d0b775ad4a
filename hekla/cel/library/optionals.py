"""Optional values: `a.?b.orValue(c)`."""

from __future__ import annotations

from typing import Any

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.types import BOOL, A, list_of, optional_of
from hekla.cel.values import NONE, Optional


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise Failed("optional.none() dereference")
    return optional.value


def _filled(value: Any) -> Optional:
    """An optional of a value; empty for a zero value."""
    empty = (
        value is None
        or value is False
        or (isinstance(value, (int, float, str, bytes, list, dict)) and not value)
    )
    return NONE if empty else Optional(value)


function("optional.of", (A,), optional_of(A), Optional)
function("optional.ofNonZeroValue", (A,), optional_of(A), _filled)
function("optional.none", (), optional_of(A), lambda: NONE)
method("hasValue", (optional_of(A),), BOOL, lambda optional: optional.present)
method("value", (optional_of(A),), A, _value)
method(
    "or",
    (optional_of(A), optional_of(A)),
    optional_of(A),
    lambda one, other: one if one.present else other,
)
method("orValue", (optional_of(A), A), A, lambda one, other: one.value if one.present else other)
function(
    "optional.unwrap",
    (list_of(optional_of(A)),),
    list_of(A),
    lambda items: [item.value for item in items if item.present],
)
method(
    "unwrapOpt",
    (list_of(optional_of(A)),),
    list_of(A),
    lambda items: [item.value for item in items if item.present],
)
