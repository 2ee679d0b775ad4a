"""Amounts of resources as Kubernetes writes them: `500m`, `2Gi`, `1e3`.

A scheduler reads the same few dozen texts a million times, so `milli` and `whole` are cached by
text and cost a dictionary look-up.  The arithmetic is exact: a quantity is a whole number of
billionths, which is the finest that the notation can hold; what is finer is rounded away from zero,
because who asks for a little must not get nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final

NANO: Final = 1_000_000_000
MICRO_PER_MILLI: Final = 1_000_000
LARGEST: Final = 2**63 - 1
"""A quantity with a binary suffix is cut off here."""
LARGEST_EXPONENT: Final = 100
LONGEST: Final = 1000
"""Characters of a text that may be a quantity: what is longer is nobody's amount, and numbers
without end cost time and memory."""
SHOWN: Final = 60
"""Characters of a text that is none that a message repeats."""

Wire = str | int | float
"""How JSON carries a quantity."""


class Format(Enum):
    """The family of suffixes of a quantity, in which it is printed."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


DECIMAL_SUFFIXES: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
"""Suffix -> power of ten."""
BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Suffix -> power of two."""

_DECIMAL_BY_POWER: Final = {power: suffix for suffix, power in DECIMAL_SUFFIXES.items()}
_BINARY_BY_POWER: Final = {0: "", **{power: suffix for suffix, power in BINARY_SUFFIXES.items()}}

_SHAPE: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_MEANT: Final = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kKmMgGtTpP])[iI]?[bB](?:ytes?)?|([gtp])[iI]?)"
)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")

BAD_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
BAD_NUMBER: Final = "unable to parse numeric part of quantity"
BAD_SUFFIX: Final = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """A text is no quantity.  `value` is the text; `wire` has the words that Kubernetes clients
    know."""

    def __init__(self, value: object, wire: str) -> None:
        shown = repr(value)
        if len(shown) > SHOWN:
            shown = f"{shown[:SHOWN]}... ({len(shown)} characters)"
        self.value = value
        self.wire = wire
        self.hint = hint(value)
        super().__init__(f"{shown} is not a quantity: {wire}{self.hint}")


def hint(value: object) -> str:
    """What an invalid text may have meant, to be added to the reason; "" if unknown."""
    meant = _MEANT.fullmatch(value) if isinstance(value, str) and len(value) < SHOWN else None
    if meant is None:
        return ""
    digits, letter = meant[1], (meant[2] or meant[3]).upper()
    return f'; did you mean "{digits}{letter if letter != "K" else "k"}" or "{digits}{letter}i"?'


@total_ordering
class Quantity:
    """An exact amount.  Immutable; equal amounts are equal in whatever suffix they were written."""

    __slots__ = ("format", "nanos")

    nanos: Final[int]
    format: Final[Format]

    def __init__(self, nanos: int, format: Format = Format.DECIMAL) -> None:
        self.nanos = nanos
        self.format = format

    @classmethod
    def parse(cls, value: Wire) -> Quantity:
        """Parse a quantity from its wire form.  Raises QuantityError."""
        return _parse(_text(value))

    @classmethod
    def of_milli(cls, milli: int) -> Quantity:
        return cls(milli * MICRO_PER_MILLI, Format.DECIMAL)

    @classmethod
    def of_whole(cls, whole: int, format: Format = Format.DECIMAL) -> Quantity:
        return cls(whole * NANO, format)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, MICRO_PER_MILLI)

    def whole(self) -> int:
        """Units, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, NANO)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nanos * factor, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __float__(self) -> float:
        return self.nanos / NANO

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix of its family that loses nothing."""
        if self.nanos == 0:
            return "0"
        if (
            self.format is Format.BINARY
            and self.nanos % NANO == 0
            and abs(self.nanos) >= 1024 * NANO
        ):
            return _with_binary_suffix(self.nanos // NANO)
        return _with_decimal_suffix(self.nanos, self.format)


ZERO: Final = Quantity(0)


@lru_cache(maxsize=65536)
def milli(value: Wire) -> int:
    """Thousandths of a unit, rounded up: millicores of a cpu quantity.  Raises QuantityError."""
    return _parse(_text(value)).milli()


@lru_cache(maxsize=65536)
def whole(value: Wire) -> int:
    """Units, rounded up: bytes of a memory quantity.  Raises QuantityError."""
    return _parse(_text(value)).whole()


@lru_cache(maxsize=16384)
def canonical(value: Wire) -> str:
    """The text that the API server stores for this one.  Raises QuantityError."""
    return str(_parse(_text(value)))


def total(lists: Iterable[Mapping[str, Wire]]) -> dict[str, str]:
    """The sum of resource lists, resource by resource, in canonical form."""
    sums: dict[str, Quantity] = {}
    for resources in lists:
        for name, value in resources.items():
            sums[name] = sums.get(name, ZERO) + Quantity.parse(value)
    return {name: str(amount) for name, amount in sums.items()}


def _text(value: Wire) -> str:
    text = value if isinstance(value, str) else repr(value)
    if len(text) > LONGEST:
        raise QuantityError(value, BAD_NUMBER)
    return text


@lru_cache(maxsize=65536)
def _parse(text: str) -> Quantity:
    shape = _SHAPE.fullmatch(text)
    if shape is None or not text:
        raise QuantityError(text, BAD_FORMAT)
    sign, whole_digits, fraction, suffix = shape.groups()
    digits = whole_digits + (fraction or "")
    if not digits:
        raise QuantityError(text, BAD_NUMBER)
    mantissa, scale = int(digits), -len(fraction or "")

    binary = BINARY_SUFFIXES.get(suffix)
    if binary is not None:
        nanos, format = _nanos(mantissa << binary, scale), Format.BINARY
        if 0 < nanos < NANO:
            format = Format.DECIMAL
        nanos = min(nanos, LARGEST * NANO)
    else:
        power, format = _decimal_power(text, suffix)
        nanos = _nanos(mantissa, scale + power)
    return Quantity(-nanos if sign == "-" else nanos, format)


def _decimal_power(text: str, suffix: str) -> tuple[int, Format]:
    power = DECIMAL_SUFFIXES.get(suffix)
    if power is not None:
        return power, Format.DECIMAL
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or len(exponent[1]) > 10 or int(exponent[1]) > LARGEST_EXPONENT:
        raise QuantityError(text, BAD_SUFFIX)
    return int(exponent[1]), Format.EXPONENT


def _nanos(mantissa: int, power: int) -> int:
    """mantissa * 10**power in billionths, rounded up.  Both come from a text, so power may be far
    below zero."""
    if mantissa == 0:
        return 0
    shift = power + 9
    if shift >= 0:
        return mantissa * int(10**shift)
    if -shift > len(str(mantissa)):
        return 1
    return -(-mantissa // int(10**-shift))


def _divide_away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _with_binary_suffix(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power < 60:
        amount //= 1024
        power += 10
    return f"{amount}{_BINARY_BY_POWER[power]}"


def _with_decimal_suffix(nanos: int, format: Format) -> str:
    amount, power = nanos, -9
    while amount % 1000 == 0 and (power < 18 or format is Format.EXPONENT):
        amount //= 1000
        power += 3
    if format is Format.EXPONENT:
        return f"{amount}e{power}" if power else f"{amount}"
    return f"{amount}{_DECIMAL_BY_POWER[power]}"
