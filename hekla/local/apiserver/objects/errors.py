"""How this room refuses: one exception for a body that cannot be read, and makers for the causes of an Invalid answer.

The texts are those of Kubernetes (local-cluster 2.11), because users search for them and clients compare them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hekla.local.apiserver.kind import FieldError
from hekla.local.apiserver.objects.gowords import marshalled, quoted


class BadBody(Exception):
    """A request body that is not an object of the kind it was sent to.  `code` is the HTTP status, `str()` the message."""

    def __init__(self, message: str, *, code: int = 400, reason: str = "BadRequest") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


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


def not_found(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {shown(value)}")
