"""Reasons against a text, as the messages of the batch kinds print them."""

from __future__ import annotations

from collections.abc import Iterable


def listed(errors: Iterable[str]) -> str:
    """Bracketed, parted by blanks."""
    return "[" + " ".join(errors) + "]"
