"""Patterns over names, in the syntax that Kubernetes' own tools read: RE2's, whose time grows with
the text and not with the pattern."""

from __future__ import annotations

from collections.abc import Iterable

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def found_in(pattern: str, names: Iterable[str]) -> set[str]:
    """The names that contain the pattern; none if the pattern is invalid."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error:
        return set()
    return {name for name in names if compiled.search(name)}


__all__ = ["found_in"]
