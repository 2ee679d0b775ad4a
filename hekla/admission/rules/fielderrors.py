"""Field errors as the messages of the batch kinds carry them: texts, gathered into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.api.text import fielderrors


def invalid(path: str, value: Any, detail: str) -> str:
    return str(fielderrors.invalid(path, value, detail))


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text: bracketed where there is more than one, exact repetitions once."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else "[" + ", ".join(unique) + "]" if unique else ""
