"""What is wrong with a field of an object, in the words of Kubernetes: users search for them, and
clients compare them.

Whoever judges objects, the API server and the webhooks, says it with these (local-cluster 2.11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from hekla.api.text.quoting import marshalled, quoted

MOST_SHOWN = 1000
"""Entries of an object or list that a message shows whole."""
ENTRY = 64
"""Characters of a text that count as an entry."""
BEGINNING, LONGEST_SHOWN = 100, 1024
"""Of one that has more: entries at most, and characters."""


class FieldError(NamedTuple):
    """One cause of an Invalid answer: `<field>: <text>`, where reason is the FieldValue... name of
    section 2.11."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def shown(value: Any) -> str:
    """A value in an error message: strings quoted, everything else as JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (dict, list)) and is_long(value):
        return shortened(value)
    if isinstance(value, (bool, dict, list)) or value is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def is_long(value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value is so large that messages show its beginning alone.

    A message for each of its entries, with the whole value in each, would grow with the square of
    its size.
    """
    left, nested = MOST_SHOWN, [value]
    while nested:
        inner = nested.pop()
        left -= len(inner)
        if left < 0:
            return True
        for item in inner.values() if isinstance(inner, dict) else inner:
            if isinstance(item, str):
                left -= len(item) // ENTRY
            elif isinstance(item, (dict, list)):
                nested.append(item)
    return left < 0


def shortened(value: dict[str, Any] | list[Any]) -> str:
    """The beginning of a long object or list."""
    begun = dict(islice(value.items(), BEGINNING)) if isinstance(value, dict) else value[:BEGINNING]
    text = ""
    for piece in json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode(begun):
        text += piece
        if len(text) > LONGEST_SHOWN:
            break
    return f"{text[:LONGEST_SHOWN]}..."


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(
        path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def invalid(path: str, value: Any, detail: str) -> FieldError:
    text = (
        f"Invalid value: {shown(value)}: {detail}" if detail else f"Invalid value: {shown(value)}"
    )
    return FieldError(path, "FieldValueInvalid", text)


def not_supported(
    path: str, value: Any, allowed: Iterable[str], *, plain: bool = False
) -> FieldError:
    """The value of an enumeration; `plain` where Kubernetes' type is a text and not a name for one,
    which it prints in another way."""
    names = ", ".join(shown(name) for name in allowed)
    text = marshalled(value) if isinstance(value, str) and not plain else shown(value)
    return FieldError(
        path, "FieldValueNotSupported", f"Unsupported value: {text}: supported values: {names}"
    )


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(
        path, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items"
    )


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {shown(value)}: {detail}")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(
        path,
        "FieldValueNotFound",
        f"Not found: {shown(value)}: {detail}" if detail else f"Not found: {shown(value)}",
    )
