"""Checks that many kinds share: labels, annotations, selectors, enumerations (local-cluster 2.1).

A check takes a value, its path, and the list to which it adds errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hekla.api.text import syntax
from hekla.api.text.fielderrors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)

Tree = dict[str, Any]
Errors = list[FieldError]

LARGEST_ANNOTATIONS = 256 * 1024
"""Bytes of all keys and values."""
label_key = lru_cache(maxsize=8192)(syntax.qualified_name)
label_value = lru_cache(maxsize=8192)(syntax.label_value)


def labels(values: Tree | None, path: str, found: Errors) -> None:
    for key, value in (values or {}).items():
        for reason in label_key(key):
            found.append(invalid(path, key, reason))
        for reason in label_value(value):
            found.append(invalid(path, value, reason))


def check_annotations(values: Tree | None, path: str, found: Errors) -> None:
    size = 0
    for key, value in (values or {}).items():
        size += len(key) + len(value)
        reasons = label_key(key)
        if reasons:
            found += [invalid(path, key, reason) for reason in label_key(key.lower())]
    if size * 4 > LARGEST_ANNOTATIONS:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in (values or {}).items())
        if size > LARGEST_ANNOTATIONS:
            found.append(too_long(path, LARGEST_ANNOTATIONS))


def selector(value: Tree | None, path: str, found: Errors) -> None:
    """Check a LabelSelector."""
    if not value:
        return
    labels(value.get("matchLabels"), f"{path}.matchLabels", found)
    for position, term in enumerate(value.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{position}]"
        operator, values = term.get("operator", ""), term.get("values")
        operator_fits(operator, values or (), where, found)
        found += [
            invalid(f"{where}.key", term.get("key", ""), reason)
            for reason in label_key(term.get("key", ""))
        ]
        for index, text in enumerate(values or ()):
            found += [
                invalid(f"{where}.values[{index}]", text, reason) for reason in label_value(text)
            ]


def operator_fits(
    operator: str, values: Sequence[str], path: str, found: Errors, *, numbers: bool = False
) -> None:
    """Check that the values of a requirement fit its operator.  `numbers`: whether operators may
    compare numbers."""
    if operator in ("In", "NotIn"):
        if not values:
            found.append(
                required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            found.append(
                forbidden(
                    f"{path}.values",
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
            )
    elif numbers and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(
                required(
                    f"{path}.values",
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                )
            )
    else:
        found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))


def named(
    text: str | None, grammar: Callable[[str], syntax.Reasons], path: str, found: Errors
) -> None:
    """Check a required text that must follow a grammar."""
    if not text:
        found.append(required(path))
    else:
        found += [invalid(path, text, reason) for reason in grammar(text)]


def one_of(
    value: Any,
    allowed: tuple[str, ...],
    path: str,
    found: Errors,
    *,
    needed: bool = False,
    known: bool = False,
) -> None:
    """Check an enumeration.  An absent value is an error with `needed` (as a required field) or
    `known` (as an unsupported value)."""
    if not value:
        if known:
            found.append(not_supported(path, "", allowed))
        elif needed:
            found.append(required(path))
    elif value not in allowed:
        found.append(not_supported(path, value, allowed))


def not_negative(value: Any, path: str, found: Errors) -> None:
    if isinstance(value, int) and value < 0:
        found.append(invalid(path, value, "must be greater than or equal to 0"))
