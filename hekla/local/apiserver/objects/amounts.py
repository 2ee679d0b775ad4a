"""Quantities inside bodies: the canonical text that Kubernetes stores, and exact comparison.

Kubernetes rewrites every quantity when it decodes a body (`1000m` becomes `1`, `1024Mi` becomes `1Gi`), so two clients that mean
the same amount read the same text.  The same few texts occur in every pod: results are cached.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from hekla.local.apiserver.objects.errors import BadBody

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"

_SPLIT = re.compile(r"([+-]?)([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII).fullmatch
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", re.ASCII).fullmatch
_EXPONENT = re.compile(r"[eE][+-]?[0-9]{1,3}", re.ASCII).fullmatch
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)
_LARGEST = 2**63 - 1


class Amount(NamedTuple):
    """An amount in billionths, as Kubernetes keeps them, and the notation in which it was written."""

    nano: int
    notation: str
    """"binary", "decimal" or "exponent"."""


@lru_cache(maxsize=8192)
def parse(text: str) -> Amount:
    """Raises ValueError with Kubernetes' sentence."""
    parts = _SPLIT(text)
    if parts is None:
        raise ValueError(WRONG_FORMAT)
    sign, number, suffix = parts.groups()
    if _NUMBER(number) is None:
        raise ValueError(_WRONG_NUMBER if number.count(".") < 2 else WRONG_FORMAT)
    whole, _, fraction = number.partition(".")
    digits, scale = int((whole + fraction)[:400] or "0"), -len(fraction)
    if suffix in _DECIMAL:
        exact, notation = _scaled(digits, scale + _DECIMAL[suffix] + 9), "decimal"
    elif suffix in _BINARY:
        exact, notation = _scaled(digits << _BINARY[suffix], scale + 9), "binary"
    elif _EXPONENT(suffix):
        exact, notation = _scaled(digits, scale + int(suffix[1:]) + 9), "exponent"
    else:
        raise ValueError(_WRONG_SUFFIX)
    nano = min(exact, _LARGEST * 10**9)
    return Amount(-nano if sign == "-" else nano, notation)


def _scaled(digits: int, exponent: int) -> int:
    """digits * 10^exponent, rounded away from zero: no amount that was asked for becomes nothing."""
    if exponent >= 0:
        return digits * 10 ** min(exponent, 400)
    return -(-digits // 10 ** min(-exponent, 800))


@lru_cache(maxsize=8192)
def _canonical(text: str) -> str:
    nano, notation = parse(text)
    if nano == 0:
        return "0"
    size = abs(nano)
    sign = "-" if nano < 0 else ""
    if notation == "binary" and size >= 1024 * 10**9:
        units, step = -(-size // 10**9), 0
        while units % 1024 == 0 and step < 6:
            units //= 1024
            step += 1
        return f"{sign}{units}{_BINARY_SUFFIX[step]}"
    exponent = -9
    while size % 1000 == 0 and exponent < 18:
        size //= 1000
        exponent += 3
    if notation == "exponent":
        return f"{sign}{size}e{exponent}" if exponent else f"{sign}{size}"
    return f"{sign}{size}{_DECIMAL_SUFFIX[exponent]}"


def canonical(value: str | int | float) -> str:
    """The text that is stored.  Raises BadBody."""
    try:
        return _canonical(_text(value))
    except ValueError as error:
        raise BadBody(str(error)) from None


def nano(value: str | int | float) -> int:
    """The amount in billionths.  Raises ValueError."""
    return parse(_text(value)).nano


def exact(value: str | int | float) -> Fraction:
    return Fraction(nano(value), 10**9)


def _text(value: str | int | float) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(WRONG_FORMAT)
    return repr(value) if isinstance(value, float) else str(value) if abs(value) < 10**400 else "0" * 400
