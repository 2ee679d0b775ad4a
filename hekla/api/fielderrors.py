"""What is wrong with a field of an object, in the words of Kubernetes: users search for them, and clients compare them.

Whoever judges objects, the API server and the webhooks, says it with these (local-cluster 2.11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from hekla.api.quoting import marshalled, quoted


class FieldError(NamedTuple):
    """One cause of an Invalid answer: `<field>: <text>`, where reason is the FieldValue... name of section 2.11."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def shown(value: Any) -> str:
    """A value as error texts print it: strings quoted, the rest as JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (bool, dict, list)) or value is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(path: str, value: Any, detail: str) -> FieldError:
    text = f"Invalid value: {shown(value)}: {detail}" if detail else f"Invalid value: {shown(value)}"
    return FieldError(path, "FieldValueInvalid", text)


def not_supported(path: str, value: Any, allowed: Iterable[str], *, plain: bool = False) -> FieldError:
    """The value of an enumeration; `plain` where Kubernetes' type is a text and not a name for one, which it prints in another way."""
    names = ", ".join(shown(name) for name in allowed)
    text = marshalled(value) if isinstance(value, str) and not plain else shown(value)
    return FieldError(path, "FieldValueNotSupported", f"Unsupported value: {text}: supported values: {names}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {shown(value)}: {detail}")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {shown(value)}: {detail}" if detail else f"Not found: {shown(value)}")
