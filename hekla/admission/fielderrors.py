"""Field errors as Kubernetes words them, so that a client's matching of texts keeps working."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def quoted(value: Any) -> str:
    """A value as it stands in a message: texts in quotes, numbers and booleans bare."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid(path: str, value: Any, detail: str) -> str:
    return f"{path}: Invalid value: {quoted(value)}: {detail}"


def required(path: str, detail: str = "") -> str:
    return f"{path}: Required value" + (f": {detail}" if detail else "")


def duplicate(path: str, value: Any) -> str:
    return f"{path}: Duplicate value: {quoted(value)}"


def unsupported(path: str, value: Any, valid: Iterable[str]) -> str:
    return f"{path}: Unsupported value: {quoted(value)}: supported values: " + ", ".join(quoted(choice) for choice in valid)


def not_found(path: str, value: Any) -> str:
    return f"{path}: Not found: {quoted(value)}"


def forbidden(path: str, detail: str) -> str:
    return f"{path}: Forbidden: {detail}"


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text: bracketed where there is more than one, exact repetitions once."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else "[" + ", ".join(unique) + "]" if unique else ""
