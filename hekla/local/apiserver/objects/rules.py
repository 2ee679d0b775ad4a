"""A small part of CEL: the rules of `x-kubernetes-validations` that compare, count and ask what is there (local-cluster 4.4).

Sound and incomplete: a rule is compiled only when every construct of it is known here, and `compiled` returns None otherwise;
such a rule is accepted and not asked.  What is known: literals, `self` and `oldSelf`, fields and positions, `has`, `size`, the
logical, comparing and arithmetic operators, `in`, the conditional, `startsWith`, `endsWith`, `contains`, `matches`, and the
macros `all`, `exists` and `exists_one` with one variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Scope = dict[str, Any]
Evaluate = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:().,\[\]]))"""
)
_DEEPEST = 60


class Unknown(Exception):
    """A construct that is not known here."""


class Failed(Exception):
    """A rule that cannot be evaluated on this value; the text says why."""


def compiled(rule: str) -> Evaluate | None:
    """What evaluates a rule, None when it uses more of the language than is known here."""
    try:
        parser = _Parser(_tokens(rule))
        found = parser.expression(0)
        parser.expect("")
        return found
    except Unknown:
        return None


def _tokens(rule: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = rule.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise Unknown(text[at:])
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return [*found, ("end", "")]


_BINARY: dict[str, int] = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str:
        kind, text = self.tokens[self.at]
        return "" if kind == "text" else text

    def take(self) -> tuple[str, str]:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def expect(self, text: str) -> None:
        if self.take()[1] != text:
            raise Unknown(text)

    def expression(self, depth: int) -> Evaluate:
        condition = self.binary(1, depth + 1)
        if self.peek() != "?":
            return condition
        self.take()
        then = self.expression(depth + 1)
        self.expect(":")
        other = self.expression(depth + 1)
        return lambda scope: then(scope) if _truth(condition(scope)) else other(scope)

    def binary(self, level: int, depth: int) -> Evaluate:
        if depth > _DEEPEST:
            raise Unknown("nested too deeply")
        left = self.unary(depth + 1)
        while _BINARY.get(self.peek(), 0) >= level:
            sign = self.take()[1]
            left = _operation(sign, left, self.binary(_BINARY[sign] + 1, depth + 1))
        return left

    def unary(self, depth: int) -> Evaluate:
        if depth > _DEEPEST:
            raise Unknown("nested too deeply")
        if self.peek() == "!":
            self.take()
            inner = self.unary(depth + 1)
            return lambda scope: not _truth(inner(scope))
        if self.peek() == "-":
            self.take()
            number = self.unary(depth + 1)
            return lambda scope: -_number(number(scope))
        return self.member(self.primary(depth), depth)

    def primary(self, depth: int) -> Evaluate:
        kind, text = self.take()
        if kind == "number":
            value: Any = float(text) if "." in text else int(text)
            return lambda scope: value
        if kind == "text":
            content = _unquoted(text)
            return lambda scope: content
        if text == "(":
            inner = self.expression(depth + 1)
            self.expect(")")
            return inner
        if text == "[":
            items = self.arguments("]", depth)
            return lambda scope: [item(scope) for item in items]
        if kind != "name":
            raise Unknown(text)
        if text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda scope: constant
        if self.peek() == "(":
            return self.call(text, depth)
        return lambda scope: _variable(scope, text)

    def call(self, name: str, depth: int) -> Evaluate:
        self.take()
        if name == "has":
            return self.has(depth)
        arguments = self.arguments(")", depth)
        if name == "size" and len(arguments) == 1:
            return lambda scope: _size(arguments[0](scope))
        raise Unknown(name)

    def has(self, depth: int) -> Evaluate:
        """`has(a.b.c)`: whether the last field is there; all before it must be."""
        path = []
        while True:
            kind, text = self.take()
            if kind != "name":
                raise Unknown(text)
            path.append(text)
            sign = self.take()[1]
            if sign == ")":
                break
            if sign != ".":
                raise Unknown(sign)
        if len(path) < 2:
            raise Unknown("has")

        def present(scope: Scope) -> bool:
            value = _variable(scope, path[0])
            for name in path[1:-1]:
                value = _field(value, name)
            return isinstance(value, dict) and path[-1] in value

        return present

    def arguments(self, end: str, depth: int) -> list[Evaluate]:
        found: list[Evaluate] = []
        while self.peek() != end:
            found.append(self.expression(depth + 1))
            if self.peek() == ",":
                self.take()
            elif self.peek() != end:
                raise Unknown(self.peek())
        self.take()
        return found

    def member(self, value: Evaluate, depth: int) -> Evaluate:
        while self.peek() in (".", "["):
            if self.take()[1] == "[":
                position = self.expression(depth + 1)
                self.expect("]")
                value = _at(value, position)
                continue
            kind, name = self.take()
            if kind != "name":
                raise Unknown(name)
            if self.peek() != "(":
                value = _select(value, name)
                continue
            self.take()
            value = self.macro(value, name, depth) if name in _MACROS else _method(value, name, self.arguments(")", depth))
        return value

    def macro(self, value: Evaluate, name: str, depth: int) -> Evaluate:
        kind, variable = self.take()
        if kind != "name":
            raise Unknown(variable)
        self.expect(",")
        body = self.expression(depth + 1)
        self.expect(")")
        enough = _MACROS[name]

        def over(scope: Scope) -> bool:
            items = value(scope)
            if not isinstance(items, (list, dict)):
                raise Failed("no such overload")
            return enough([_truth(body({**scope, variable: item})) for item in items])

        return over


_MACROS: dict[str, Callable[[list[bool]], bool]] = {
    "all": all,
    "exists": any,
    "exists_one": lambda found: sum(found) == 1,
}


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    try:
        return str(json.loads('"' + inner.replace("\\'", "'").replace('\\"', '"').replace('"', '\\"') + '"'))
    except ValueError:
        raise Unknown(text) from None


def _operation(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if sign == "&&":
        return lambda scope: _truth(left(scope)) and _truth(right(scope))
    if sign == "||":
        return lambda scope: _truth(left(scope)) or _truth(right(scope))
    work = _WORK[sign]
    return lambda scope: work(left(scope), right(scope))


def _same(one: Any, other: Any) -> bool:
    return (isinstance(one, bool) is isinstance(other, bool)) and bool(one == other)


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, other: Any) -> bool:
        both_text = isinstance(one, str) and isinstance(other, str)
        if not both_text:
            one, other = _number(one), _number(other)
        return test(one, other)

    return compare


def _plus(one: Any, other: Any) -> Any:
    for kind in (str, list):
        if isinstance(one, kind) and isinstance(other, kind):
            return one + other  # type: ignore[operator]
    return _number(one) + _number(other)


def _divided(one: Any, other: Any) -> Any:
    one, other = _number(one), _number(other)
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, float) or isinstance(other, float):
        return one / other
    size = abs(one) // abs(other)
    return size if (one < 0) == (other < 0) else -size


def _remainder(one: Any, other: Any) -> Any:
    return _number(one) - _number(other) * _divided(one, other)


def _contains(item: Any, holder: Any) -> bool:
    if isinstance(holder, dict):
        return item in holder
    if isinstance(holder, list):
        return any(_same(item, other) for other in holder)
    raise Failed("no such overload")


_WORK: dict[str, Callable[[Any, Any], Any]] = {
    "==": _same,
    "!=": lambda one, other: not _same(one, other),
    "<": _compare(lambda one, other: one < other),
    "<=": _compare(lambda one, other: one <= other),
    ">": _compare(lambda one, other: one > other),
    ">=": _compare(lambda one, other: one >= other),
    "in": _contains,
    "+": _plus,
    "-": lambda one, other: _number(one) - _number(other),
    "*": lambda one, other: _number(one) * _number(other),
    "/": _divided,
    "%": _remainder,
}


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Failed("no such overload")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Failed("no such overload")
    return value


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise Failed(f"undeclared reference to '{name}'")
    return scope[name]


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise Failed(f"no such key: {name}")
    return value[name]


def _select(value: Evaluate, name: str) -> Evaluate:
    return lambda scope: _field(value(scope), name)


def _at(value: Evaluate, position: Evaluate) -> Evaluate:
    def pick(scope: Scope) -> Any:
        holder, where = value(scope), position(scope)
        if isinstance(holder, list) and isinstance(where, int) and 0 <= where < len(holder):
            return holder[where]
        if isinstance(holder, dict) and isinstance(where, str):
            return _field(holder, where)
        raise Failed(f"index out of bounds: {where}")

    return pick


def _size(value: Any) -> int:
    if not isinstance(value, (str, list, dict)):
        raise Failed("no such overload")
    return len(value)


_METHODS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
}


def _method(value: Evaluate, name: str, arguments: list[Evaluate]) -> Evaluate:
    if name == "size" and not arguments:
        return lambda scope: _size(value(scope))
    work = _METHODS.get(name)
    if work is None or len(arguments) != 1:
        raise Unknown(name)

    def ask(scope: Scope) -> bool:
        text, argument = value(scope), arguments[0](scope)
        if not isinstance(text, str) or not isinstance(argument, str):
            raise Failed("no such overload")
        try:
            return work(text, argument)
        except re.error:
            raise Failed(f"invalid regular expression {argument!r}") from None

    return ask
