"""The tree of a parsed expression.  Every node knows its place in the source; the checker adds its
type."""

from __future__ import annotations

from typing import Any

from hekla.cel.types import DYN, Type


class Node:
    __slots__ = ("at", "type")

    def __init__(self, at: int) -> None:
        self.at = at
        self.type: Type = DYN


class Constant(Node):
    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        super().__init__(at)
        self.value = value


class Name(Node):
    __slots__ = ("name", "slot")

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name
        self.slot: Any = None
        """Where the checker found it: a place in the frame, or a type."""


class Select(Node):
    """`operand.field`, `operand.?field`, and what `has` asks for."""

    __slots__ = ("field", "operand", "optional", "test")

    def __init__(
        self, at: int, operand: Node, field: str, *, test: bool = False, optional: bool = False
    ) -> None:
        super().__init__(at)
        self.operand = operand
        self.field = field
        self.test = test
        self.optional = optional


class Call(Node):
    __slots__ = ("arguments", "candidates", "function", "target")

    def __init__(self, at: int, function: str, target: Node | None, arguments: list[Node]) -> None:
        super().__init__(at)
        self.function = function
        self.target = target
        self.arguments = arguments
        self.candidates: Any = ()
        """The overloads that the checker left possible."""


class ListOf(Node):
    __slots__ = ("items", "optional")

    def __init__(self, at: int, items: list[Node], optional: frozenset[int]) -> None:
        super().__init__(at)
        self.items = items
        self.optional = optional
        """Positions of `?item`, which stand for nothing when they are empty."""


class MapOf(Node):
    __slots__ = ("entries",)

    def __init__(self, at: int, entries: list[tuple[Node, Node, bool]]) -> None:
        super().__init__(at)
        self.entries = entries


class Struct(Node):
    __slots__ = ("fields", "name")

    def __init__(self, at: int, name: str, fields: list[tuple[int, str, Node, bool]]) -> None:
        super().__init__(at)
        self.name = name
        self.fields = fields


class Macro(Node):
    """A macro that walks a list or a map (`all`, `map`, `transformMap`, ...), or binds a name to
    one value (`bind`, `optMap`)."""

    __slots__ = ("body", "name", "names", "slots", "subject", "test")

    def __init__(
        self, at: int, name: str, subject: Node, names: list[str], test: Node | None, body: Node
    ) -> None:
        super().__init__(at)
        self.name = name
        self.subject = subject
        self.names = names
        self.test = test
        self.body = body
        self.slots: list[int] = []


def walk(node: Node) -> list[Node]:
    """The node and all nodes below it."""
    found: list[Node] = []
    stack = [node]
    while stack:
        one = stack.pop()
        found.append(one)
        if isinstance(one, Select):
            stack.append(one.operand)
        elif isinstance(one, Call):
            stack += one.arguments
            if one.target is not None:
                stack.append(one.target)
        elif isinstance(one, ListOf):
            stack += one.items
        elif isinstance(one, MapOf):
            for key, value, _ in one.entries:
                stack += (key, value)
        elif isinstance(one, Struct):
            stack += [value for _, _, value, _ in one.fields]
        elif isinstance(one, Macro):
            stack += (one.subject, one.body)
            if one.test is not None:
                stack.append(one.test)
    return found


def names_in(node: Node) -> set[str]:
    """All names in an expression, including the variables of macros."""
    return {one.name for one in walk(node) if isinstance(one, Name)}
