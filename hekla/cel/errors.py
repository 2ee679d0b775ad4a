"""Errors of expressions: before they run, with their place, and while they run."""

from __future__ import annotations

from typing import NamedTuple


class Failed(Exception):
    """An evaluation ended in an error; the text is CEL's own (`no such key: a`)."""


class TooCostly(Failed):
    """An evaluation was ended because it took too many steps; `||` never absorbs this error."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Issue(NamedTuple):
    at: int
    """Offset in the source."""
    text: str


class Refused(Exception):
    """An expression does not parse or does not fit the declared types.  `str()` shows the places as
    CEL does."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.source = source
        self.issues = sorted(issues, key=lambda issue: issue.at)
        super().__init__("\n".join(_shown(source, issue) for issue in self.issues))


def _shown(source: str, issue: Issue) -> str:
    if not source:
        return f"ERROR: <input>:1:0: {issue.text}"
    at = min(issue.at, len(source))
    start = source.rfind("\n", 0, at) + 1
    end = source.find("\n", at)
    line = source[start : end if end >= 0 else len(source)].replace("\t", " ")
    row, column = source.count("\n", 0, at) + 1, at - start
    wide = "".join("．" if ord(sign) > 0x2E7F else "." for sign in line[:column])
    return f"ERROR: <input>:{row}:{column + 1}: {issue.text}\n | {line}\n | {wide}^"
