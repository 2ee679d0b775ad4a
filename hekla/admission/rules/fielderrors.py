"""Field errors as the messages of the batch kinds show them: several errors joined into one text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.api.text import fielderrors


def invalid(path: str, value: Any, detail: str) -> str:
    return str(fielderrors.invalid(path, value, detail))


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text: in brackets if there is more than one, without repetitions."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else "[" + ", ".join(unique) + "]" if unique else ""
