"""Reasons against a text, as the messages of the batch kinds show them."""

from __future__ import annotations

from collections.abc import Iterable


def listed(errors: Iterable[str]) -> str:
    """The reasons in brackets, separated by blanks."""
    return "[" + " ".join(errors) + "]"
