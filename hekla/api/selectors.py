"""Selectors of objects by labels and fields: as texts, and inside objects.

Both become a tuple of requirements that all must hold.  Texts are read by one grammar, whose errors
are those of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from hekla.api import meta
from hekla.api.kubernetes.placement import NodeSelector, NodeSelectorRequirement
from hekla.api.text import syntax


class SelectorError(ValueError):
    """A selector is invalid; the text has the API server's words."""


class Operator(StrEnum):
    """The operators of requirements.  Their values are those of selectors inside objects."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class Requirement(NamedTuple):
    """One condition on one key."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        number, bound = _integer(value), _integer(next(iter(self.values), None))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GREATER else number < bound

    def __str__(self) -> str:
        values = sorted(self.values)
        match self.operator:
            case Operator.IN:
                return (
                    f"{self.key}={values[0]}"
                    if len(values) == 1
                    else f"{self.key} in ({','.join(values)})"
                )
            case Operator.NOT_IN:
                return (
                    f"{self.key}!={values[0]}"
                    if len(values) == 1
                    else f"{self.key} notin ({','.join(values)})"
                )
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
        return f"{self.key}{'>' if self.operator is Operator.GREATER else '<'}{values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; without any, everything matches.  `nothing` matches no object at
    all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def everything(self) -> bool:
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """The text form, requirements in order of their keys."""
        return ",".join(
            str(requirement) for requirement in sorted(self.requirements, key=lambda one: one.key)
        )


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)


def of_map(labels: Mapping[str, str]) -> LabelSelector:
    """The selector of a service or a node selector map: every label has exactly this value."""
    return LabelSelector(
        tuple(
            Requirement(key, Operator.IN, frozenset((value,)))
            for key, value in sorted(labels.items())
        )
    )


def of_object(selector: meta.LabelSelector | None) -> LabelSelector:
    """The selector that an object carries: absent matches nothing, empty matches everything.
    Raises SelectorError."""
    if selector is None:
        return NOTHING
    expressions = tuple(
        _expression(one.key, one.operator, one.values) for one in selector.match_expressions
    )
    return LabelSelector(of_map(selector.match_labels).requirements + expressions)


def matches_node(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node matches one of the terms; a term without conditions matches none.  Raises
    SelectorError."""
    fields = {"metadata.name": name}
    for term in selector.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        if _all_match(term.match_expressions, labels) and _all_match(term.match_fields, fields):
            return True
    return False


def _all_match(requirements: Iterable[NodeSelectorRequirement], values: Mapping[str, str]) -> bool:
    return all(
        _expression(one.key, one.operator, one.values).matches(values) for one in requirements
    )


def _expression(key: str, operator: str, values: Sequence[str]) -> Requirement:
    try:
        return Requirement(key, Operator(operator), frozenset(values))
    except ValueError:
        known = ", ".join(Operator)
        raise SelectorError(
            f'"{operator}" is not a valid label selector operator (key "{key}"); valid are {known}'
        ) from None


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        return None
    return int(text)


# The text of a label selector: `a=b, c in (d, e), !f, g>5`.

BINARY_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]+)")
_SIGNS = frozenset(("==", "!=", "=", "!", "<", ">", "(", ")", ","))


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector; an empty text matches everything.  Raises SelectorError."""
    return LabelSelector(tuple(_Reader(text).requirements()))


class _Reader:
    """The tokens of one text, and the grammar over them."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> Iterable[Requirement]:
        while self._peek():
            if not self._is_word() and self._peek() != "!":
                raise SelectorError(
                    f"found '{self._peek()}', expected: !, identifier, or 'end of string'"
                )
            try:
                yield self._requirement()
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if not self._peek():
                return
            if self._peek() != ",":
                raise SelectorError(f"found '{self._peek()}', expected: ',' or 'end of string'")
            self._take()
            if not self._is_word() and self._peek() != "!":
                raise SelectorError(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._take()
        if not self._is_word():
            raise SelectorError(f"found '{self._peek()}', expected: identifier")
        key = self._take()
        if reasons := syntax.qualified_name(key):
            raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(reasons)}')
        if absent:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key, Operator.EXISTS)
        return self._compared(key)

    def _compared(self, key: str) -> Requirement:
        match self._take():
            case "in":
                return _checked(key, Operator.IN, self._set())
            case "notin":
                return _checked(key, Operator.NOT_IN, self._set())
            case "=" | "==":
                return _checked(key, Operator.IN, [self._value()])
            case "!=":
                return _checked(key, Operator.NOT_IN, [self._value()])
            case ">":
                return _checked(key, Operator.GREATER, [self._value()])
            case "<":
                return _checked(key, Operator.LESS, [self._value()])
            case other:
                raise SelectorError(f"found '{other}', expected: {', '.join(BINARY_OPERATORS)}")

    def _set(self) -> list[str]:
        """`(a, b)`; an empty text between commas is the empty value."""
        if self._peek() != "(":
            raise SelectorError(f"found '{self._peek()}' expected: '('")
        self._take()
        if self._peek() == ")":
            self._take()
            return [""]
        values = []
        while True:
            values.append(self._take() if self._is_word() else "")
            if self._peek() not in (",", ")"):
                expected = "',' or ')'" if values[-1] else "',', ')' or identifier"
                raise SelectorError(f"found '{self._peek()}', expected: {expected}")
            if self._take() == ")":
                return values

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        if not self._is_word():
            raise SelectorError(f"found '{self._peek()}', expected: identifier")
        return self._take()

    def _peek(self) -> str:
        """The next token, or "" at the end."""
        return str(self._tokens[self._at]) if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _is_word(self) -> bool:
        return bool(self._peek()) and self._peek() not in _SIGNS


def _checked(key: str, operator: Operator, values: list[str]) -> Requirement:
    if not values:
        raise SelectorError(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in (Operator.GREATER, Operator.LESS) and _integer(values[0]) is None:
        raise SelectorError(
            f"values[0]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )
    for position, value in enumerate(values):
        if reasons := syntax.label_value(value):
            raise SelectorError(
                f'values[{position}][{key}]: Invalid value: "{value}": {"; ".join(reasons)}'
            )
    return Requirement(key, operator, frozenset(values))


# Field selectors: `status.phase=Running,spec.nodeName!=`.


class FieldRequirement(NamedTuple):
    field: str
    equal: bool
    value: str

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{_escape(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements must hold.  Each kind knows its selectable fields."""

    requirements: tuple[FieldRequirement, ...] = ()

    @property
    def everything(self) -> bool:
        return not self.requirements

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """`value_of` gives the text of a field of the object, "" where it is absent."""
        return all((value_of(one.field) == one.value) is one.equal for one in self.requirements)

    def exact(self, field: str) -> str | None:
        """The value that this field must have, if the selector requires one."""
        for one in self.requirements:
            if one.equal and one.field == field:
                return one.value
        return None

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


_FIELD_TERM = re.compile(r"((?:[^\\,]|\\.|\\$)*)(?:,|$)", re.DOTALL)
_FIELD_SIGN = re.compile(r"!=|==|=")


@lru_cache(maxsize=1024)
def parse_fields(text: str) -> FieldSelector:
    """Parse a field selector; an empty text matches everything.  Raises SelectorError."""
    requirements = []
    for term in _FIELD_TERM.findall(text):
        if not term:
            continue
        sign = _FIELD_SIGN.search(term)
        if sign is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        if term in ("=", "==", "!="):
            continue  # asks for nothing
        requirements.append(
            FieldRequirement(term[: sign.start()], sign[0] != "!=", _unescape(term[sign.end() :]))
        )
    return FieldSelector(tuple(requirements))


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def _unescape(value: str) -> str:
    """`\\,`, `\\=` and `\\\\` stand for themselves; nothing else may be escaped, and these may not
    stand unescaped."""
    pieces = []
    at = 0
    while at < len(value):
        character = value[at]
        if character == "\\":
            escaped = value[at + 1 : at + 2]
            if escaped not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            character = escaped
            at += 1
        elif character in ",=":
            raise SelectorError(
                f"invalid field selector: unescaped character in value: {character}"
            )
        pieces.append(character)
        at += 1
    return "".join(pieces)
