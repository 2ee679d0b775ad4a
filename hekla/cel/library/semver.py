"""Semantic versions."""

from __future__ import annotations

import re
from functools import total_ordering

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.types import BOOL, INT, SEMVER, STRING

_FORM = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?",
    re.ASCII,
)


@total_ordering
class Semver:
    __slots__ = ("numbers", "order")
    kind = SEMVER.name

    def __init__(self, numbers: tuple[int, int, int], before: str) -> None:
        self.numbers = numbers
        parts = (
            [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")]
            if before
            else []
        )
        self.order = (numbers, not before, parts)

    @classmethod
    def read(cls, text: str, normalize: bool = False) -> Semver:
        if normalize:
            text = _normal(text)
        match = _FORM.fullmatch(text)
        if match is None:
            raise Failed(_reason(text))
        before = match[4] or ""
        parts = before.split(".") if match[4] is not None else []
        parts += match[5].split(".") if match[5] is not None else []
        if any(not part for part in parts) or any(
            part.isdigit() and len(part) > 1 and part[0] == "0" for part in before.split(".")
        ):
            raise Failed("Invalid character(s) found in prerelease")
        return cls((int(match[1]), int(match[2]), int(match[3])), before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and other.order == self.order

    def __lt__(self, other: Semver) -> bool:
        return self.order < other.order

    def __hash__(self) -> int:
        return hash(self.numbers)


def _reason(text: str) -> str:
    if not text:
        return "Version string empty"
    parts = re.split(r"[-+]", text, maxsplit=1)[0].split(".")
    if len(parts) != 3:
        return "No Major.Minor.Patch elements found"
    for name, part in zip(("major", "minor", "patch"), parts):
        if not part.isascii() or not part.isdigit():
            return f'Invalid character(s) found in {name} number "{part}"'
        if len(part) > 1 and part[0] == "0":
            return f'{name.capitalize()} number must not contain leading zeroes "{part}"'
    return "Invalid character(s) found in prerelease"


def _normal(text: str) -> str:
    """`v1.2` -> `1.2.0`."""
    text = text.removeprefix("v")
    place = next((at for at, sign in enumerate(text) if sign in "-+"), len(text))
    parts = [part.lstrip("0") or "0" for part in text[:place].split(".")]
    if len(parts) < 3 and place < len(text):
        return text
    return ".".join(parts + ["0"] * (3 - len(parts))) + text[place:]


def _is(text: str, normalize: bool = False) -> bool:
    try:
        Semver.read(text, normalize)
    except Failed:
        return False
    return True


function("semver", (STRING,), SEMVER, Semver.read)
function("semver", (STRING, BOOL), SEMVER, Semver.read)
function("isSemver", (STRING,), BOOL, _is)
function("isSemver", (STRING, BOOL), BOOL, _is)
for _place, _name in enumerate(("major", "minor", "patch")):
    method(_name, (SEMVER,), INT, lambda value, place=_place: value.numbers[place])
method("isGreaterThan", (SEMVER, SEMVER), BOOL, lambda one, other: one > other)
method("isLessThan", (SEMVER, SEMVER), BOOL, lambda one, other: one < other)
method("compareTo", (SEMVER, SEMVER), INT, lambda one, other: (one > other) - (one < other))
