"""Quantities of resources, as exact numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING
from hekla.cel.values import HIGHEST, LOWEST

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,3})?")
_FACTORS: dict[str, Fraction] = {
    **{
        sign: Fraction(1000) ** power
        for power, sign in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)
    },
    **{
        sign: Fraction(1024) ** power
        for power, sign in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
    },
}
_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    kind = QUANTITY.name
    amount: Fraction

    @classmethod
    def read(cls, text: str) -> Quantity:
        match = _FORM.fullmatch(text)
        if match is None:
            raise Failed(_WRONG)
        suffix = match[2] or ""
        if suffix in _FACTORS:
            factor = _FACTORS[suffix]
        else:
            factor = Fraction(10) ** int(suffix[1:])
        return cls(Fraction(Decimal(match[1])) * factor)


def _is(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def _is_integer(value: Quantity) -> bool:
    return value.amount.denominator == 1 and LOWEST <= value.amount <= HIGHEST


def _integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise Failed("cannot convert value to integer")
    return int(value.amount)


def _compare(one: Quantity, other: Quantity) -> int:
    return (one.amount > other.amount) - (one.amount < other.amount)


def _plus(one: Quantity, other: Any, sign: int = 1) -> Quantity:
    return Quantity(one.amount + sign * (other.amount if isinstance(other, Quantity) else other))


function("quantity", (STRING,), QUANTITY, Quantity.read)
function("isQuantity", (STRING,), BOOL, _is)
method("sign", (QUANTITY,), INT, lambda value: (value.amount > 0) - (value.amount < 0))
method("isGreaterThan", (QUANTITY, QUANTITY), BOOL, lambda one, other: one.amount > other.amount)
method("isLessThan", (QUANTITY, QUANTITY), BOOL, lambda one, other: one.amount < other.amount)
method("compareTo", (QUANTITY, QUANTITY), INT, _compare)
method("asApproximateFloat", (QUANTITY,), DOUBLE, lambda value: float(value.amount))
method("asInteger", (QUANTITY,), INT, _integer)
method("isInteger", (QUANTITY,), BOOL, _is_integer)
for _other in (QUANTITY, INT):
    method("add", (QUANTITY, _other), QUANTITY, _plus)
    method("sub", (QUANTITY, _other), QUANTITY, lambda one, other: _plus(one, other, -1))
