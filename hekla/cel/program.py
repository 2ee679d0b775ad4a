"""A checked expression as closures.

A closure takes a frame: a list whose place 0 counts the steps that are left, then the declared
variables, then those of macros.  Walking a list takes its length off the count, so that no
expression runs for ever, however deep its macros nest.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from hekla.cel.errors import Failed, TooCostly
from hekla.cel.functions import dispatcher
from hekla.cel.nodes import Call, Constant, ListOf, Macro, MapOf, Name, Node, Select, Struct
from hekla.cel.types import DYN, Type
from hekla.cel.values import NONE, Duration, Optional, Timestamp, TypeValue, same

Frame = list[Any]
Run = Callable[[Frame], Any]
MISSING = object()
STEPS = 300_000
LETTERS = 64
"""Letters of a text that count as one step for a function that reads it through."""
READING = frozenset(
    ("split", "replace", "matches", "find", "findAll", "join", "lowerAscii", "upperAscii", "format", "contains", "indexOf",
     "lastIndexOf", "trim", "_+_", "@in", "isSorted", "sum", "min", "max", "distinct", "sort", "reverse", "slice", "flatten",
     "sets.contains", "sets.equivalent", "sets.intersects", "string", "bytes", "strings.quote")
)  # fmt: skip
"""Functions that look at all of a text or a list, which they are charged for."""


class Object(dict[str, Any]):
    """A struct literal of a mutation: a JSON object that remembers its type's name."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


class Thunk:
    """A variable that is evaluated when it is first read."""

    __slots__ = ("error", "run", "value")

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run: Callable[[], Any] | None = run
        self.value: Any = None
        self.error: Failed | None = None

    def get(self) -> Any:
        if self.run is not None:
            run, self.run = self.run, None
            try:
                self.value = run()
            except Failed as error:
                self.error = error
        if self.error is not None:
            raise self.error
        return self.value


class Variables(dict[str, Thunk]):
    """The lazy `variables` of a policy."""


def compiled(node: Node) -> Run:
    return _MAKERS[type(node)](node)


# --- names and fields -----------------------------------------------------------------------------


def _constant(node: Constant) -> Run:
    value = node.value
    return lambda frame: value


def _name(node: Name) -> Run:
    slot = node.slot
    if isinstance(slot, TypeValue):
        return lambda frame: slot

    def look(frame: Frame) -> Any:
        value = frame[slot]
        if value is MISSING:
            raise Failed(f"no such attribute(s): {node.name}")
        return value.get() if type(value) is Thunk else value

    return look


def reader(type: Type) -> Callable[[Any], Any] | None:
    """The function that turns a JSON value into a value of a declared type; None if there is
    nothing to convert."""
    if type.raw:
        return _READERS[type.name]
    if type.name in ("list", "map") and type.parameters:
        inner = reader(type.parameters[-1])
        if inner is not None:
            return _list_reader(inner) if type.name == "list" else _map_reader(inner)
    return None


def _read_bytes(value: Any) -> Any:
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise Failed(f"type conversion error from '{value}' to 'bytes'") from None


def _read_time(value: Any) -> Any:
    return Timestamp.read(
        f"{value}T00:00:00Z" if isinstance(value, str) and len(value) == 10 else str(value)
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "timestamp": lambda value: _read_time(value) if value is not None else None,
    "duration": lambda value: Duration.read(value) if value is not None else None,
    "bytes": lambda value: _read_bytes(value) if value is not None else None,
    "double": lambda value: float(value) if value is not None else None,
    "int": lambda value: int(value) if type(value) is float else value,
}


def _list_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: [inner(item) for item in value] if type(value) is list else value


def _map_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: (
        {key: inner(item) for key, item in value.items()} if type(value) is dict else value
    )


def _select(node: Select) -> Run:
    if not node.field:
        return compiled(node.operand)
    holder = node.operand.type
    if holder.name == "optional_type" and holder.parameters:
        holder = holder.parameters[0]
    field, read, operand = node.field, None, compiled(node.operand)
    if holder.fields is not None:
        field, kind = holder.fields[node.field]
        read = reader(kind)
    if node.test:
        return _presence(operand, field)
    if (
        node.optional
        or node.operand.type.name == "optional_type"
        or (node.operand.type is DYN and _may_be_optional(node.operand))
    ):
        return _optional_field(operand, field, read, node.optional)
    if read is not None:
        return _read_field(operand, field, node.field, read)

    def look(frame: Frame) -> Any:
        value = operand(frame)
        try:
            found = value[field]
        except KeyError:
            raise Failed(f"no such key: {node.field}") from None
        except (TypeError, IndexError):
            raise Failed(
                "no such overload" if value is not None else f"no such key: {node.field}"
            ) from None
        return found.get() if type(found) is Thunk else found

    return look


def _may_be_optional(node: Node) -> bool:
    return any(
        (isinstance(part, Select) and part.optional) or part.type.name == "optional_type"
        for part in _chain(node)
    )


def _chain(node: Node) -> list[Node]:
    found = [node]
    while isinstance(node, Select):
        node = node.operand
        found.append(node)
    return found


def _read_field(operand: Run, field: str, shown: str, read: Callable[[Any], Any]) -> Run:
    def look(frame: Frame) -> Any:
        try:
            return read(operand(frame)[field])
        except KeyError:
            raise Failed(f"no such key: {shown}") from None
        except (TypeError, ValueError):
            raise Failed("no such overload") from None

    return look


def _presence(operand: Run, field: str) -> Run:
    def ask(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is Optional:
            value = value.value if value.present else {}
        if not isinstance(value, dict):
            if value is None:
                raise Failed(f"no such key: {field}")
            raise Failed("no such overload")
        found = value.get(field, MISSING)
        return found is not MISSING and found is not None

    return ask


def _optional_field(
    operand: Run, field: str, read: Callable[[Any], Any] | None, optional: bool
) -> Run:
    def look(frame: Frame) -> Any:
        value = operand(frame)
        if type(value) is Optional:
            if not value.present:
                return NONE
            value = value.value
        elif not optional:
            try:
                return value[field]
            except KeyError:
                raise Failed(f"no such key: {field}") from None
            except TypeError:
                raise Failed("no such overload") from None
        if not isinstance(value, dict):
            if value is None:
                return NONE
            raise Failed("no such overload")
        found = value.get(field, MISSING)
        if found is MISSING or found is None:
            return NONE
        if type(found) is Thunk:
            found = found.get()
        return Optional(found if read is None else read(found))

    return look


# --- operators and calls --------------------------------------------------------------------------


def _either_side(node: Call, decisive: bool) -> Run:
    """`&&` and `||`: one False or one True decides, even if the other side has failed."""
    left, right = (compiled(argument) for argument in node.arguments)
    idle = not decisive

    def decided(frame: Frame) -> bool:
        try:
            one = left(frame)
        except TooCostly:
            raise
        except Failed:
            if right(frame) is decisive:
                return bool(decisive)
            raise
        if one is decisive:
            return bool(one)
        other = right(frame)
        if other is decisive or (one is idle and other is idle):
            return bool(other)
        raise Failed("no such overload")

    return decided


def _conditional(node: Call) -> Run:
    condition, then, other = (compiled(argument) for argument in node.arguments)

    def choose(frame: Frame) -> Any:
        found = condition(frame)
        if found is True:
            return then(frame)
        if found is False:
            return other(frame)
        raise Failed("no such overload")

    return choose


def _equal(node: Call) -> Run:
    equal = equality(node.arguments[0].type, node.arguments[1].type)
    left, right = (compiled(argument) for argument in node.arguments)
    if node.arguments[0].type.name in ("list", "map", "dyn"):
        return _charged_equal(left, right, equal, node.function == "_==_")
    if node.function == "_==_":
        return lambda frame: equal(left(frame), right(frame))
    return lambda frame: not equal(left(frame), right(frame))


def _charged_equal(left: Run, right: Run, equal: Callable[[Any, Any], bool], wanted: bool) -> Run:
    def compare(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        if isinstance(one, (list, dict)):
            frame[0] -= len(one)
            if frame[0] < 0:
                raise TooCostly
        return equal(one, other) is wanted

    return compare


def equality(one: Type, other: Type) -> Callable[[Any, Any], bool]:
    """The function that compares values of two types: by their schema where order does not count,
    directly where both are plain."""
    if one.list_type and other.list_type == one.list_type:
        return _unordered(one)
    return same


def _unordered(kind: Type) -> Callable[[Any, Any], bool]:
    keys = kind.map_keys

    def equal(one: Any, other: Any) -> bool:
        if type(one) is not list or type(other) is not list or len(one) != len(other):
            return False
        if keys:
            known = {identity(item, keys): item for item in other}
            return all(
                identity(item, keys) in known and same(item, known[identity(item, keys)])
                for item in one
            )
        return all(any(same(item, candidate) for candidate in other) for item in one)

    return equal


def identity(item: Any, keys: tuple[str, ...]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) else None


def _joined(node: Call) -> Run:
    """`+` of lists that are sets or maps: equal entries are replaced, new ones appended."""
    keys = node.arguments[0].type.map_keys
    left, right = (compiled(argument) for argument in node.arguments)

    def join(frame: Frame) -> list[Any]:
        found = list(left(frame))
        places = {identity(item, keys): place for place, item in enumerate(found)} if keys else {}
        for item in right(frame):
            if keys:
                place = places.get(identity(item, keys))
                if place is None:
                    found.append(item)
                else:
                    found[place] = item
            elif not any(same(item, other) for other in found):
                found.append(item)
        return found

    return join


def _call(node: Call) -> Run:
    special = _SPECIAL.get(node.function)
    if special is not None:
        return special(node)
    if node.function == "_+_" and node.arguments[0].type.list_type:
        return _joined(node)
    nodes = node.arguments if node.target is None else [node.target, *node.arguments]
    known = len(node.candidates) == 1 and all(
        one.type is not DYN or wanted is None
        for one, wanted in zip(nodes, node.candidates[0].kinds)
    )
    work = (
        node.candidates[0].work if known and not _nullable(nodes) else dispatcher(node.candidates)
    )
    if node.function == "matches":
        _precompile(nodes)
    runs = [compiled(one) for one in nodes]
    if node.function in READING:
        return _charged(runs, work, node.function.startswith("sets."))
    if len(runs) == 1:
        (first,) = runs
        return lambda frame: work(first(frame))
    if len(runs) == 2:
        first, second = runs
        return lambda frame: work(first(frame), second(frame))
    return lambda frame: work(*[run(frame) for run in runs])


def _charged(runs: list[Run], work: Callable[..., Any], product: bool) -> Run:
    """A call whose cost depends on the sizes of its arguments.  For sets, one is searched for each
    element of the other."""

    def call(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        cost = 1
        for value in values:
            kind = type(value)
            if kind is str or kind is bytes:
                cost += len(value) // LETTERS
            elif kind is list:
                cost = cost * (len(value) + 1) if product else cost + len(value)
        if cost > 1:
            frame[0] -= cost
            if frame[0] < 0:
                raise TooCostly
        return work(*values)

    return call


def _nullable(nodes: list[Node]) -> bool:
    """A declared field may hold null if its schema is nullable."""
    return any(
        isinstance(one, (Select, Name))
        and one.type.name not in ("string", "int", "bool", "list", "map")
        for one in nodes
    )


def _precompile(nodes: list[Node]) -> None:
    from hekla.cel.library.regex import pattern

    if len(nodes) == 2 and isinstance(nodes[1], Constant):
        try:
            pattern(nodes[1].value)
        except Failed:
            pass  # said when it is evaluated


# --- literals -------------------------------------------------------------------------------------


def _list(node: ListOf) -> Run:
    items = [compiled(item) for item in node.items]
    if not node.optional:
        if all(isinstance(item, Constant) for item in node.items):
            values = [item.value for item in node.items if isinstance(item, Constant)]
            return lambda frame: values
        return lambda frame: [item(frame) for item in items]
    plan = [(item, position in node.optional) for position, item in enumerate(items)]

    def build(frame: Frame) -> list[Any]:
        found: list[Any] = []
        for item, optional in plan:
            value = item(frame)
            if optional:
                if not value.present:
                    continue
                value = value.value
            found.append(value)
        return found

    return build


def _map(node: MapOf) -> Run:
    plan = [(compiled(key), compiled(value), optional) for key, value, optional in node.entries]

    def build(frame: Frame) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value, optional in plan:
            name, content = key(frame), value(frame)
            if name in found:
                raise Failed(f"Failed with repeated key: {name}")
            if optional:
                if not content.present:
                    continue
                content = content.value
            found[name] = content
        return found

    return build


def _struct(node: Struct) -> Run:
    plan = [(name, compiled(value), optional) for _, name, value, optional in node.fields]

    def build(frame: Frame) -> Object:
        found = Object(node.name)
        for name, value, optional in plan:
            content = value(frame)
            if optional:
                if not content.present:
                    continue
                content = content.value
            found[name] = content
        return found

    return build


# --- macros ---------------------------------------------------------------------------------------


def _pairs(node: Macro) -> Callable[[Frame], list[tuple[Any, ...]] | list[Any]]:
    """The elements that a macro iterates over: single ones, or pairs where it has two variables.
    They are counted against the frame's steps."""
    subject = compiled(node.subject)
    two = len(node.names) == 2

    def elements(frame: Frame) -> Any:
        value = subject(frame)
        if not isinstance(value, (list, dict)):
            raise Failed("no such overload")
        frame[0] -= len(value) + 1
        if frame[0] < 0:
            raise TooCostly
        if not two:
            return value
        return list(enumerate(value)) if isinstance(value, list) else value.items()

    return elements


def _setter(node: Macro) -> Callable[[Frame, Any], None]:
    if len(node.slots) == 1:
        (slot,) = node.slots

        def one(frame: Frame, item: Any) -> None:
            frame[slot] = item

        return one
    first, second = node.slots

    def two(frame: Frame, item: Any) -> None:
        frame[first], frame[second] = item

    return two


def _quantifier(node: Macro, decisive: bool) -> Run:
    elements, put, body = _pairs(node), _setter(node), compiled(node.body)

    def over(frame: Frame) -> bool:
        error: Failed | None = None
        for item in elements(frame):
            put(frame, item)
            try:
                found = body(frame)
                if found is decisive:
                    return bool(found)
                if type(found) is not bool:
                    raise Failed("no such overload")
            except TooCostly:
                raise
            except Failed as failure:
                error = error or failure
        if error is not None:
            raise error
        return not decisive

    return over


def _exists_one(node: Macro) -> Run:
    elements, put, body = _pairs(node), _setter(node), compiled(node.body)

    def over(frame: Frame) -> bool:
        count = 0
        for item in elements(frame):
            put(frame, item)
            count += 1 if _truth(body(frame)) else 0
        return count == 1

    return over


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Failed("no such overload")


def _filtered(node: Macro) -> Callable[[Frame], Any]:
    """Iterate over the elements that pass the macro's test, each in its slot of the frame."""
    elements, put = _pairs(node), _setter(node)
    test = compiled(node.test) if node.test is not None else None

    def walk(frame: Frame) -> Any:
        for item in elements(frame):
            put(frame, item)
            if test is None or _truth(test(frame)):
                yield item

    return walk


def _mapped(node: Macro) -> Run:
    walk, body = _filtered(node), compiled(node.body)
    return lambda frame: [body(frame) for _ in walk(frame)]


def _kept(node: Macro) -> Run:
    elements, put, body = _pairs(node), _setter(node), compiled(node.body)

    def over(frame: Frame) -> list[Any]:
        found = []
        for item in elements(frame):
            put(frame, item)
            if _truth(body(frame)):
                found.append(item)
        return found

    return over


def _transformed(node: Macro) -> Run:
    walk, body = _filtered(node), compiled(node.body)
    return lambda frame: {key: body(frame) for key, _ in walk(frame)}


def _entries(node: Macro) -> Run:
    walk, body = _filtered(node), compiled(node.body)

    def over(frame: Frame) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in walk(frame):
            made = body(frame)
            if not isinstance(made, dict):
                raise Failed("no such overload")
            for key, value in made.items():
                if key in found:
                    raise Failed(f"insert failed: key {key} already exists")
                found[key] = value
        return found

    return over


def _bound(node: Macro) -> Run:
    subject, body, (slot,) = compiled(node.subject), compiled(node.body), node.slots

    def run(frame: Frame) -> Any:
        frame[slot] = Thunk(lambda: subject(frame))
        return body(frame)

    return run


def _optional_map(node: Macro) -> Run:
    subject, body, (slot,) = compiled(node.subject), compiled(node.body), node.slots
    flat = node.name == "optFlatMap"

    def run(frame: Frame) -> Any:
        value = subject(frame)
        if type(value) is not Optional:
            raise Failed("no such overload")
        if not value.present:
            return NONE
        frame[slot] = value.value
        found = body(frame)
        return found if flat else Optional(found)

    return run


def _sorted_by(node: Macro) -> Run:
    from hekla.cel.library.lists import in_order

    elements, put, body = _pairs(node), _setter(node), compiled(node.body)

    def run(frame: Frame) -> list[Any]:
        keyed = []
        for item in elements(frame):
            put(frame, item)
            keyed.append((body(frame), item))
        return in_order(keyed)

    return run


_MACROS: dict[str, Callable[[Macro], Run]] = {
    "all": lambda node: _quantifier(node, False), "exists": lambda node: _quantifier(node, True), "exists_one": _exists_one,
    "map": _mapped, "transformList": _mapped, "filter": _kept, "transformMap": _transformed, "transformMapEntry": _entries,
    "bind": _bound, "optMap": _optional_map, "optFlatMap": _optional_map, "sortBy": _sorted_by,
}  # fmt: skip


def _macro(node: Macro) -> Run:
    return _MACROS[node.name](node)


_SPECIAL: dict[str, Callable[[Call], Run]] = {
    "_&&_": lambda node: _either_side(node, False),
    "_||_": lambda node: _either_side(node, True),
    "_?_:_": _conditional,
    "_==_": _equal,
    "_!=_": _equal,
}
_MAKERS: dict[type[Node], Callable[[Any], Run]] = {
    Constant: _constant,
    Name: _name,
    Select: _select,
    Call: _call,
    ListOf: _list,
    MapOf: _map,
    Struct: _struct,
    Macro: _macro,
}
