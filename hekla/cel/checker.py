"""The type checker: the type of each part of an expression, and the overloads that its calls may
mean. Errors have their place in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.cel import library
from hekla.cel.errors import Issue, Refused
from hekla.cel.functions import Overload
from hekla.cel.nodes import Call, Constant, ListOf, Macro, MapOf, Name, Node, Select, Struct, walk
from hekla.cel.types import (
    ANY_ERROR,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Substitution,
    Type,
    assignable,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from hekla.cel.values import TypeValue, Uint

_CONSTANTS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
TYPE_NAMES = {
    name: (TypeValue(name), type_of(kind))
    for name, kind in {
        "bool": BOOL,
        "int": INT,
        "uint": UINT,
        "double": DOUBLE,
        "string": STRING,
        "bytes": BYTES,
        "null_type": NULL,
        "list": list_of(DYN),
        "map": map_of(DYN, DYN),
        "type": type_of(DYN),
        "optional_type": optional_of(DYN),
        "google.protobuf.Timestamp": TIMESTAMP,
        "google.protobuf.Duration": DURATION,
        "net.IP": Type("net.IP"),
        "net.CIDR": Type("net.CIDR"),
    }.items()
}
FIRST_SLOT = 1
"""Place 0 of a frame counts the steps that are left."""


def cooked(type: Type) -> Type:
    """The type of a value after it has been read from the JSON tree."""
    if type.raw:
        return Type(type.name)
    if type.parameters and any(part is not cooked(part) for part in type.parameters):
        made = Type(type.name, tuple(cooked(part) for part in type.parameters))
        made.list_type, made.map_keys = type.list_type, type.map_keys
        return made
    return type


class Checker:
    """Checks one expression; `size` is the number of slots that its frame needs."""

    def __init__(
        self, source: str, variables: Mapping[str, Type], structs: Mapping[str, Type] | None = None
    ) -> None:
        self.source = source
        self.issues: list[Issue] = []
        self.structs = structs
        self.scopes: list[dict[str, tuple[int, Type]]] = [
            {
                name: (FIRST_SLOT + position, kind)
                for position, (name, kind) in enumerate(variables.items())
            }
        ]
        self.size = FIRST_SLOT + len(variables)
        self.mixed: set[Node] = set()
        """Literals inside the arguments of `format`, whose elements may be of different types."""

    def check(self, root: Node) -> Type:
        """Check the expression.  Raises Refused."""
        try:
            found = self.of(root)
        except RecursionError:
            raise Refused(self.source, [Issue(0, "expression recursion limit exceeded")]) from None
        if self.issues:
            raise Refused(self.source, self.issues)
        return found

    def of(self, node: Node) -> Type:
        node.type = self._RULES[type(node)](self, node)
        return node.type

    def wrong(self, at: int, text: str) -> Type:
        self.issues.append(Issue(at, text))
        return ANY_ERROR

    # --- one rule a kind of node ------------------------------------------------------------------

    def constant(self, node: Constant) -> Type:
        return _CONSTANTS[type(node.value)]

    def name(self, node: Name) -> Type:
        for scope in reversed(self.scopes):
            if node.name in scope:
                node.slot, kind = scope[node.name]
                return kind
        known = TYPE_NAMES.get(node.name)
        if known is not None:
            node.slot = known[0]
            return known[1]
        return self.wrong(node.at, f"undeclared reference to '{node.name}' (in container '')")

    def select(self, node: Select) -> Type:
        dotted = _path(node)
        if dotted in TYPE_NAMES and not self.declared(dotted.partition(".")[0]):
            node.operand = Constant(node.at, TYPE_NAMES[dotted][0])
            node.field = ""
            return TYPE_NAMES[dotted][1]
        if dotted and self.declared(dotted) and not node.test:
            node.operand, node.field = Name(node.at, dotted), ""
            return self.of(node.operand)
        holder = self.of(node.operand)
        optional = node.optional
        if holder.name == "optional_type":
            holder, optional = holder.parameters[0] if holder.parameters else DYN, True
        found = self.field(node, holder)
        if node.test:
            return BOOL
        if found is ANY_ERROR:
            return optional_of(DYN) if optional else found
        return optional_of(found) if optional and found.name != "optional_type" else found

    def declared(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def field(self, node: Select, holder: Type) -> Type:
        if holder is DYN or holder is ANY_ERROR:
            return holder
        if holder.name == "map":
            if holder.parameters[0].name not in ("string", "dyn"):
                return self.wrong(node.at, f"type '{holder}' does not support field selection")
            return holder.parameters[1]
        if holder.fields is not None:
            found = holder.fields.get(node.field)
            if found is None:
                return self.wrong(node.at, f"undefined field '{node.field}'")
            return cooked(found[1])
        if "." in holder.name:
            return self.wrong(node.at, f"unexpected failed resolution of '{holder}'")
        return self.wrong(node.at, f"type '{holder}' does not support field selection")

    def call(self, node: Call) -> Type:
        if node.target is not None:
            path = _path(node.target)
            whole = f"{path}.{node.function}" if path else ""
            if whole and library.known(whole) and not self.declared(path.partition(".")[0]):
                node.function, node.target = whole, None
        if node.function == "format":
            self.mixed.update(one for argument in node.arguments for one in walk(argument))
        arguments = [self.of(argument) for argument in node.arguments]
        target = self.of(node.target) if node.target is not None else None
        types = arguments if target is None else [target, *arguments]
        if node.function == "_?_:_":
            return self.conditional(node, types)
        if node.function in ("_&&_", "_||_"):
            for argument, found in zip(node.arguments, arguments):
                self.must_be_bool(argument, found)
            return BOOL
        overloads = library.overloads(node.function)
        if overloads is None:
            return self.wrong(
                node.at, f"undeclared reference to '{node.function}' (in container '')"
            )
        return self.resolved(node, overloads, types, target is not None)

    def resolved(
        self, node: Call, overloads: list[Overload], types: list[Type], member: bool
    ) -> Type:
        found: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member is not member or len(overload.arguments) != len(types):
                continue
            substitution = Substitution()
            if all(map(substitution.takes, overload.arguments, types)):
                found.append(overload)
                made = substitution.result(overload.result)
                result = made if result is None or result == made else DYN
        if result is None:
            shown = ", ".join(map(str, types[member:]))
            applied = f"{types[0]}.({shown})" if member else f"({shown})"
            return self.wrong(
                node.at, f"found no matching overload for '{node.function}' applied to '{applied}'"
            )
        node.candidates = found
        return result

    def conditional(self, node: Call, types: list[Type]) -> Type:
        condition, then, other = types
        if not assignable(BOOL, condition) or not (
            assignable(then, other) or assignable(other, then)
        ):
            if ANY_ERROR in types:
                return ANY_ERROR
            shown = ", ".join(map(str, types))
            return self.wrong(
                node.at, f"found no matching overload for '_?_:_' applied to '({shown})'"
            )
        return other if then is NULL or then is DYN else then

    def list_literal(self, node: ListOf) -> Type:
        common: Type | None = None
        mixed = node in self.mixed
        for position, item in enumerate(node.items):
            found = self.of(item)
            if position in node.optional:
                found = self.unwrapped(item, found)
                if found is DYN:  # nothing is of every type
                    continue
            if mixed:
                common = DYN
            else:
                common = self.joined(common, found, item)
        return list_of(common or DYN)

    def unwrapped(self, item: Node, found: Type) -> Type:
        if found.name == "optional_type":
            return found.parameters[0]
        if found is not DYN:
            return self.wrong(
                item.at, f"expected type 'optional_type({found})' but found '{found}'"
            )
        return found

    def joined(self, common: Type | None, found: Type, item: Node) -> Type:
        """The common type of the elements of a literal."""
        if common is None or common is ANY_ERROR or found is ANY_ERROR:
            return found if common is None else common
        if (common is DYN) is (found is DYN) and assignable(common, found):
            return common
        if found is not DYN and common is not DYN and assignable(found, common):
            return found
        return self.wrong(item.at, f"expected type '{common}' but found '{found}'")

    def map_literal(self, node: MapOf) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self.joined(keys, self.of(key), key)
            found = self.of(value)
            if optional:
                found = self.unwrapped(value, found)
            values = DYN if node in self.mixed else self.joined(values, found, value)
        return map_of(keys or DYN, values or DYN)

    def struct(self, node: Struct) -> Type:
        known = (self.structs or {}).get(node.name)
        if known is None and self.structs and node.name.startswith("Object."):
            known = Type(node.name)
        if known is None:
            for _, _, value, _ in node.fields:
                self.of(value)
            return self.wrong(node.at, f"undeclared reference to '{node.name}' (in container '')")
        for at, name, value, optional in node.fields:
            found = self.of(value)
            if optional:
                found = self.unwrapped(value, found)
            if known.fields is None:
                continue
            declared = known.fields.get(name)
            if declared is None:
                self.wrong(
                    at, f"expected type of field '{name}' is '' but provided type is '{found}'"
                )
            elif not assignable(declared[1], found):
                self.wrong(
                    at,
                    f"expected type of field '{name}' is '{declared[1]}' but provided type is '{found}'",
                )
        return known

    def macro(self, node: Macro) -> Type:
        subject = self.of(node.subject)
        variables = self.variables(node, subject)
        scope: dict[str, tuple[int, Type]] = {}
        node.slots = []
        for name, kind in zip(node.names, variables):
            scope[name] = (self.size, kind)
            node.slots.append(self.size)
            self.size += 1
        self.scopes.append(scope)
        try:
            if node.test is not None:
                self.boolean(node.test)
            return self.outcome(node, subject, self.of(node.body))
        finally:
            self.scopes.pop()

    def boolean(self, node: Node) -> None:
        self.must_be_bool(node, self.of(node))

    def must_be_bool(self, node: Node, found: Type) -> None:
        if found is not ANY_ERROR and not assignable(BOOL, found):
            self.wrong(node.at, f"expected type 'bool' but found '{found}'")

    def variables(self, node: Macro, subject: Type) -> list[Type]:
        if node.name == "bind":
            return [subject]
        if node.name in ("optMap", "optFlatMap"):
            if subject.name == "optional_type":
                return [subject.parameters[0] if subject.parameters else DYN]
            if subject is not DYN and subject is not ANY_ERROR:
                self.wrong(
                    node.at,
                    f"found no matching overload for '{node.name}' applied to '{subject}.()'",
                )
            return [DYN]
        two = len(node.names) == 2
        if subject.name == "list":
            item = subject.parameters[0] if subject.parameters else DYN
            return [INT, item] if two else [item]
        if subject.name == "map":
            key, value = subject.parameters or (DYN, DYN)
            return [key, value] if two else [key]
        if subject is not DYN and subject is not ANY_ERROR:
            text = f"expression of type '{subject}' cannot be range of a comprehension (must be list, map, or dynamic)"
            self.wrong(node.subject.at, text)
        return [DYN, DYN] if two else [DYN]

    def outcome(self, node: Macro, subject: Type, body: Type) -> Type:
        name = node.name
        if name in ("all", "exists", "exists_one"):
            self.must_be_bool(node.body, body)
            return BOOL
        if name == "filter":
            self.must_be_bool(node.body, body)
            return (
                subject
                if subject.name == "list"
                else list_of(subject.parameters[0] if subject.name == "map" else DYN)
            )
        if name == "sortBy":
            return subject
        if name in ("map", "transformList"):
            return list_of(body)
        if name == "transformMap":
            key = (
                INT
                if subject.name == "list"
                else subject.parameters[0]
                if subject.name == "map"
                else DYN
            )
            return map_of(key, body)
        if name == "transformMapEntry":
            return body if body.name == "map" else map_of(DYN, DYN)
        if name == "optMap":
            return optional_of(body)
        return body

    _RULES: dict[type[Node], Any] = {
        Constant: constant,
        Name: name,
        Select: select,
        Call: call,
        ListOf: list_literal,
        MapOf: map_literal,
        Struct: struct,
        Macro: macro,
    }


def _path(node: Node) -> str:
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Select) and not node.test and not node.optional:
        before = _path(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""
