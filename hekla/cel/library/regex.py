"""Regular expressions in the syntax of RE2, as everywhere in Kubernetes.  Their time is
proportional to the text, whatever the pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.types import BOOL, INT, STRING, list_of

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}
"""What Go says where this library says something else."""


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        return str(
            error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        )


def pattern(text: str) -> Any:
    """A compiled pattern.  Raises Failed, in the words of Go's library."""
    found = _compiled(text)
    if isinstance(found, str):
        what, _, where = found.partition(": ")
        what = _WORDS.get(what, what)
        raise Failed(f"error parsing regexp: {what}: `{where or text}`")
    return found


def _found(text: str, expression: str) -> str:
    try:
        match = pattern(expression).search(text)
    except Failed as error:
        raise Failed(f"Illegal regex: {error}") from None
    return str(match.group(0)) if match is not None else ""


def _all(text: str, expression: str, limit: int = -1) -> list[str]:
    try:
        compiled = pattern(expression)
    except Failed as error:
        raise Failed(f"Illegal regex: {error}") from None
    found: list[str] = []
    for match in compiled.finditer(text):
        if 0 <= limit <= len(found):
            break
        found.append(match.group(0))
    return found


def _matches(text: str, expression: str) -> bool:
    return pattern(expression).search(text) is not None


function("matches", (STRING, STRING), BOOL, _matches)
method("matches", (STRING, STRING), BOOL, _matches)
method("find", (STRING, STRING), STRING, _found)
method("findAll", (STRING, STRING), list_of(STRING), _all)
method("findAll", (STRING, STRING, INT), list_of(STRING), _all)
