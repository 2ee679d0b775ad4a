"""Types as the checker sees them, and their names in messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Type:
    """A type.  Scalars and opaque types are one object each; lists, maps and optionals are compared
    by their parts."""

    __slots__ = ("fields", "list_type", "map_keys", "name", "parameters", "raw")

    def __init__(
        self, name: str, parameters: tuple[Type, ...] = (), fields: Fields | None = None
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.fields = fields
        """Of an object: its declared fields."""
        self.list_type = ""
        """Of a list with x-kubernetes-list-type: set or map, which compare without order."""
        self.map_keys: tuple[str, ...] = ()
        self.raw = False
        """Values of this type lie in the tree in another form (a time as a string) and are read
        when they are reached."""

    def __str__(self) -> str:
        if self.name in ("list", "map", "type", "optional_type") and self.parameters:
            return f"{self.name}({', '.join(map(str, self.parameters))})"
        return self.name

    def __repr__(self) -> str:
        return f"<{self}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if (
            not isinstance(other, Type)
            or self.name != other.name
            or self.parameters != other.parameters
        ):
            return False
        return self.fields is None or other.fields is None or self.fields is other.fields

    def __hash__(self) -> int:
        return hash((self.name, self.parameters))

    @property
    def is_object(self) -> bool:
        return self.fields is not None


Fields = Mapping[str, tuple[str, Type]]
"""Name in expressions -> (name in the tree, type)."""

DYN, ANY_ERROR = Type("dyn"), Type("!error!")
BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL = (
    Type(name) for name in ("bool", "int", "uint", "double", "string", "bytes", "null")
)
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
QUANTITY, IP, CIDR, URL, SEMVER, FORMAT = (
    Type("kubernetes.Quantity"),
    Type("net.IP"),
    Type("net.CIDR"),
    Type("kubernetes.URL"),
    Type("kubernetes.Semver"),
    Type("kubernetes.NamedFormat"),
)
AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION = (
    Type(f"kubernetes.authorization.{name}")
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)
A, B = Type("<A>"), Type("<B>")
"""Parameters of generic functions."""


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", (value,))


NULLABLE = frozenset({"timestamp", "duration"})


def formal(kind: Type) -> str:
    """The full name of a type, which messages about results use."""
    if kind.name in ("timestamp", "duration"):
        return f"google.protobuf.{kind.name.capitalize()}"
    return "null_type" if kind.name == "null" else str(kind)


class Substitution:
    """The types for which the parameters of a generic function stand, while its arguments are
    checked."""

    __slots__ = ("bound",)

    def __init__(self) -> None:
        self.bound: dict[str, Type] = {}

    def takes(self, formal: Type, actual: Type) -> bool:
        if formal.name in ("<A>", "<B>"):
            known = self.bound.get(formal.name)
            if known is None:
                self.bound[formal.name] = actual
                return True
            if known is ANY_ERROR or actual is ANY_ERROR:
                return True
            if known is DYN or actual is DYN:
                if known is not DYN:
                    self.bound[formal.name] = DYN
                return True
            if assignable(known, actual):
                return True
            if assignable(actual, known):
                self.bound[formal.name] = actual
                return True
            return False
        if formal is DYN or actual is DYN or actual is ANY_ERROR:
            return True
        if formal.name == "type" and actual.name == "type":
            return True
        if formal.name != actual.name:
            return actual is NULL and (formal.name in NULLABLE or formal.is_object)
        if formal.parameters:
            if not actual.parameters:
                return True
            return all(
                self.takes(one, other) for one, other in zip(formal.parameters, actual.parameters)
            )
        return not formal.is_object or not actual.is_object or formal.fields is actual.fields

    def result(self, formal: Type) -> Type:
        if formal.name in ("<A>", "<B>"):
            return self.bound.get(formal.name, DYN)
        if not formal.parameters:
            return formal
        return Type(formal.name, tuple(self.result(part) for part in formal.parameters))


def assignable(wanted: Type, given: Type) -> bool:
    return Substitution().takes(wanted, given)


class LazyFields(Mapping[str, tuple[str, Type]]):
    """Fields whose types are read on demand: schemas are large, and expressions use few of their
    fields."""

    __slots__ = ("_known", "_make", "_names")

    def __init__(
        self, names: Mapping[str, Any], make: Callable[[str, Any], tuple[str, Type] | None]
    ) -> None:
        self._names = names
        self._make = make
        self._known: dict[str, tuple[str, Type] | None] = {}

    def __getitem__(self, name: str) -> tuple[str, Type]:
        if name not in self._known:
            self._known[name] = self._make(name, self._names[name])
        found = self._known[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
