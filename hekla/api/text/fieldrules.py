"""Checks that many kinds share: labels, annotations, selectors, enumerations (local-cluster 2.1).

A check takes a value, its path, and the list to which it adds errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from hekla.api.text import fielderrors, syntax
from hekla.api.text.fielderrors import FieldError

Tree = dict[str, Any]

LARGEST_ANNOTATIONS = 256 * 1024
"""Bytes of all keys and values."""
label_key = lru_cache(maxsize=8192)(syntax.qualified_name)
label_value = lru_cache(maxsize=8192)(syntax.label_value)


class Errors(list[FieldError]):
    """The list to which a check adds errors, each kind with the method of its name."""

    __slots__ = ()

    def required(self, path: str, detail: str = "") -> None:
        self.append(fielderrors.required(path, detail))

    def invalid(self, path: str, value: Any, detail: str) -> None:
        self.append(fielderrors.invalid(path, value, detail))

    def malformed(self, path: str, value: Any, reasons: Iterable[str]) -> None:
        """An error for each reason why the value breaks its grammar; nothing if there is none."""
        for reason in reasons:
            self.append(fielderrors.invalid(path, value, reason))

    def not_supported(
        self, path: str, value: Any, allowed: Iterable[str], *, plain: bool = False
    ) -> None:
        self.append(fielderrors.not_supported(path, value, allowed, plain=plain))

    def duplicate(self, path: str, value: Any) -> None:
        self.append(fielderrors.duplicate(path, value))

    def forbidden(self, path: str, detail: str) -> None:
        self.append(fielderrors.forbidden(path, detail))

    def too_long(self, path: str, limit: int) -> None:
        self.append(fielderrors.too_long(path, limit))

    def too_many(self, path: str, count: int, limit: int) -> None:
        self.append(fielderrors.too_many(path, count, limit))

    def type_invalid(self, path: str, value: Any, detail: str) -> None:
        self.append(fielderrors.type_invalid(path, value, detail))

    def not_found(self, path: str, value: Any, detail: str = "") -> None:
        self.append(fielderrors.not_found(path, value, detail))


def labels(values: Tree | None, path: str, found: Errors) -> None:
    for key, value in (values or {}).items():
        for reason in label_key(key):
            found.invalid(path, key, reason)
        for reason in label_value(value):
            found.invalid(path, value, reason)


def check_annotations(values: Tree | None, path: str, found: Errors) -> None:
    size = 0
    for key, value in (values or {}).items():
        size += len(key) + len(value)
        reasons = label_key(key)
        if reasons:
            found.malformed(path, key, label_key(key.lower()))
    if size * 4 > LARGEST_ANNOTATIONS:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in (values or {}).items())
        if size > LARGEST_ANNOTATIONS:
            found.too_long(path, LARGEST_ANNOTATIONS)


def selector(value: Tree | None, path: str, found: Errors) -> None:
    """Check a LabelSelector."""
    if not value:
        return
    labels(value.get("matchLabels"), f"{path}.matchLabels", found)
    for position, term in enumerate(value.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{position}]"
        operator, values = term.get("operator", ""), term.get("values")
        operator_fits(operator, values or (), where, found)
        found.malformed(f"{where}.key", term.get("key", ""), label_key(term.get("key", "")))
        for index, text in enumerate(values or ()):
            found.malformed(f"{where}.values[{index}]", text, label_value(text))


def operator_fits(
    operator: str, values: Sequence[str], path: str, found: Errors, *, numbers: bool = False
) -> None:
    """Check that the values of a requirement fit its operator.  `numbers`: whether operators may
    compare numbers."""
    if operator in ("In", "NotIn"):
        if not values:
            found.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            found.forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif numbers and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        found.invalid(f"{path}.operator", operator, "not a valid selector operator")


def named(
    text: str | None, grammar: Callable[[str], syntax.Reasons], path: str, found: Errors
) -> None:
    """Check a required text that must follow a grammar."""
    if not text:
        found.required(path)
    else:
        found.malformed(path, text, grammar(text))


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
            found.not_supported(path, "", allowed)
        elif needed:
            found.required(path)
    elif value not in allowed:
        found.not_supported(path, value, allowed)


def not_negative(value: Any, path: str, found: Errors) -> None:
    if isinstance(value, int) and value < 0:
        found.invalid(path, value, "must be greater than or equal to 0")
