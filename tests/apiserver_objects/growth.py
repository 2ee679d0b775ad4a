"""Objects with one long list or map, for every list and map of every kind, and what the server does
with such an object.

What one request may cost follows from what is in it: a list of four times as many entries may take
four times the work, not sixteen. `python -m benchmarks.apiserver_growth` measures each step's processor time,
`test_growth.py` counts calls and comparisons.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging import merging, ownership, patch, topology
from hekla.local.apiserver.objects.merging.ownership import Owner, Scope
from hekla.local.apiserver.request.status import Refusal, invalid
from hekla.local.apiserver.storage.managed_fields import ManagedFields

KINDS = {
    (kind.group, kind.version, kind.kind): kind
    for kind in builtin.kinds()
    if kind.decode is not None
}
DEEPEST = 8
MOST_KINDS = 2
OTHERS = {
    "Quantity": "1",
    "Time": "2024-05-06T07:08:09Z",
    "MicroTime": "2024-05-06T07:08:09.000012Z",
    "bytes": "aGk=",
    "Duration": "1s",
}
NUMBERS = ("int32", "int64", "double")
STATUS = frozenset({"status"})


class Place(NamedTuple):
    """A list or map of a kind: the fields on the way there, each with whether it is a list or map
    itself."""

    kind: Kind
    way: tuple[tuple[str, str], ...]
    field: fields.Field
    message: fields.Message | None

    def __str__(self) -> str:
        kind = self.kind
        inner = {"list": "[]", "map": "{}", "": ""}
        return f"{kind.group or 'core'}/{kind.version} {kind.kind} " + ".".join(
            f"{name}{inner[many]}" for name, many in self.way
        )


def places() -> Iterator[Place]:
    """Every list and map of every kind; those of a message that stands in several places once in a
    kind, and in two kinds."""
    often: Counter[tuple[str, str]] = Counter()
    for key, kind in KINDS.items():
        root = fields.root(*key)
        if root is not None:
            seen = {name for name, count in often.items() if count >= MOST_KINDS}
            before = set(seen)
            yield from _below(kind, root, (), seen)
            often.update(seen - before)


def _below(
    kind: Kind,
    message: fields.Message,
    way: tuple[tuple[str, str], ...],
    seen: set[tuple[str, str]],
) -> Iterator[Place]:
    if (message.section, message.name) in seen or len(way) > DEEPEST:
        return
    seen.add((message.section, message.name))
    inner = []
    for field, owner in fields.flat(message):
        below = fields.message(owner.section, field.type)
        here = (*way, (field.name, field.many))
        if field.many:
            yield Place(kind, here, field, below)
        if below is not None:
            inner.append((below, here))
    for below, here in inner:
        yield from _below(kind, below, here, seen)


def value(type: str, section: str, number: int, depth: int = 0) -> Any:
    """Something of a type; other for another number as far as that can be."""
    if type == "string":
        return f"a{number}"
    if type in NUMBERS or type == "IntOrString":
        return 1 + number
    if type == "bool":
        return True
    if type in OTHERS:
        return OTHERS[type]
    message = fields.message(section, type)
    return element(message, number, depth) if message is not None else {}


@cache
def _parts(section: str, name: str) -> tuple[tuple[fields.Field, str], ...]:
    message = fields.message(section, name)
    assert message is not None
    return tuple((field, owner.section) for field, owner in fields.flat(message))


def element(message: fields.Message, number: int, depth: int = 0) -> Json:
    """An entry that says all it can, but lists and what is far below."""
    tree: Json = {}
    for field, section in _parts(message.section, message.name):
        nested = fields.message(section, field.type) is not None
        if field.many or (nested and depth >= 1):
            continue
        tree[field.name] = value(field.type, section, number, depth + 1)
    return tree


def many(place: Place, count: int, of: int = 0) -> Any:
    """The list or map itself: entries from `of` on."""
    section = place.message.section if place.message is not None else ""
    items = [value(place.field.type, section, of + number) for number in range(count)]
    if place.field.many == "map":
        return {f"a{of + number}": item for number, item in enumerate(items)}
    return items


def grown(place: Place, base: Json, inner: Any) -> Json:
    """An object of the kind whose list or map at the place is `inner`."""
    tree = copy.deepcopy(base)
    node = tree
    for name, kind in place.way[:-1]:
        known = node.get(name)
        if kind == "list":
            if not (isinstance(known, list) and known and isinstance(known[0], dict)):
                known = node[name] = [{}]
            node = known[0]
        elif kind == "map":
            if not isinstance(known, dict):
                known = node[name] = {}
            node = known.setdefault("a", {})
        else:
            if not isinstance(known, dict):
                known = node[name] = {}
            node = known
    node[place.way[-1][0]] = inner
    return tree


def pointer(place: Place) -> str:
    """Where the list or map is, as JSON patch says it."""
    steps = []
    for name, kind in place.way[:-1]:
        steps += [name, *({"list": ["0"], "map": ["a"]}.get(kind, []))]
    return "/" + "/".join([*steps, place.way[-1][0]])


class Steps:
    """What a request with such an object goes through, as functions without arguments, by name."""

    def __init__(self, place: Place, base: Json, count: int) -> None:
        kind = self.kind = place.kind
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **base}
        self.typed = grown(place, typed, many(place, count))
        self.body = json.dumps(self.typed).encode()
        root = fields.root(kind.group, kind.version, kind.kind)
        assert root is not None
        self.node = topology.of_kind(root.section, root.name)
        without = STATUS if "status" in kind.subresources else frozenset()
        self.scope = Scope(self.node, kind.api_version, without)
        self.empty = grown(place, typed, type(many(place, 1))())
        self.half = grown(place, typed, many(place, count // 2, count // 4))
        self.turned = grown(
            place,
            typed,
            many(place, count) if place.field.many == "map" else many(place, count)[::-1],
        )
        self.same = grown(
            place, typed, many(place, 1) if place.field.many == "map" else many(place, 1) * count
        )
        where, section = pointer(place), place.message.section if place.message is not None else ""
        self.operations = [
            {
                "op": "add",
                "path": f"{where}/{f'b{n}' if place.field.many == 'map' else '-'}",
                "value": value(place.field.type, section, n),
            }
            for n in range(min(count, 10_000))
        ]

    def steps(self) -> dict[str, Callable[[], Any]]:
        kind = self.kind
        found: dict[str, Callable[[], Any]] = {
            "decode": lambda: self.decoded(self.body),
            "create": lambda: self.create(self.typed),
            "create, all alike": lambda: self.create(self.same),
            "update": lambda: self.update(self.typed, self.half),
            "update, turned": lambda: self.update(self.typed, self.turned),
            "status": lambda: self.status(self.typed, self.half),
            "json patch": lambda: patch.apply_json(copy.deepcopy(self.empty), self.operations),
            "merge patch": lambda: patch.apply_merge(self.half, self.typed),
            "owners": lambda: self.owners(self.half, self.typed),
            "owners, turned": lambda: self.owners(self.typed, self.turned),
            "apply": lambda: self.apply(self.half, self.typed),
            "apply, turned": lambda: self.apply(self.typed, self.turned),
            "apply, given up": lambda: self.apply(self.typed, self.half),
            "apply, all alike": lambda: self.apply(self.half, self.same),
            "protobuf": self.protobuf,
            "printed": lambda: [
                column.cell(self.typed, 1_700_000_000.0) for column in kind.columns
            ],
        }
        if kind.merge_keys is not None:
            found["strategic patch"] = lambda: self.strategic(self.half, self.typed)
            found["strategic patch, turned"] = lambda: self.strategic(self.typed, self.turned)
            found["strategic patch, all alike"] = lambda: self.strategic(self.same, self.same)
            found["strategic patch, removed"] = lambda: self.strategic(
                self.typed, directed(self.typed, self.half)
            )
            found["strategic patch, in order"] = lambda: self.strategic(
                self.half, ordered(self.typed)
            )
        return found

    def decoded(self, body: bytes) -> Json:
        assert self.kind.decode is not None
        return self.kind.decode(body, "application/json", "Strict").tree

    def refused(self, errors: Any) -> None:
        if errors:
            invalid(self.kind, "a", errors).response()

    def create(self, tree: Json) -> None:
        tree, strategy = copy.deepcopy(tree), self.kind.strategy
        tree.setdefault("metadata", {}).setdefault("name", "a")
        strategy.default(tree)
        strategy.prepare_create(tree)
        self.refused(strategy.validate_create(tree))
        if strategy.warnings is not None:
            strategy.warnings(tree, None)

    def update(self, new: Json, old: Json) -> None:
        new, old, strategy = copy.deepcopy(new), copy.deepcopy(old), self.kind.strategy
        strategy.default(new)
        strategy.default(old)
        strategy.prepare_update(new, old)
        self.refused(strategy.validate_update(new, old))

    def status(self, new: Json, old: Json) -> None:
        new, old, strategy = copy.deepcopy(new), copy.deepcopy(old), self.kind.strategy
        strategy.prepare_status(new, old)
        self.refused(strategy.validate_status(new, old))

    def strategic(self, tree: Json, document: Json) -> None:
        patch.apply_strategic(tree, document, self.kind.merge_keys)

    def owners(self, old: Json, new: Json) -> None:
        book, owner = ManagedFields(), Owner("a", ownership.UPDATE, "", self.scope.version)
        held = book.created(self.scope, old, owner)
        held = book.updated(self.scope, old, new, held, owner._replace(manager="b"))
        if held[0] is not None:
            book.read(json.loads(held[0].render(held[1])))

    def apply(self, live: Json, configuration: Json) -> None:
        owner = Owner("a", ownership.APPLY)
        live, shares = {**live, "metadata": {"name": "a", "uid": "u"}}, {}
        configuration = {**configuration, "metadata": {"name": "a"}}
        for said in (live, configuration):
            wanted = {name: part for name, part in said.items() if name != "status"}
            wanted["metadata"] = {"name": "a"}
            if merging.check(self.node, wanted):
                continue
            live, shares = ownership.applied(self.scope, live, wanted, shares, owner, 1, force=True)
        rival = Owner("b", ownership.APPLY)
        try:
            ownership.applied(
                self.scope, live, {**configuration, "kind": "other"}, shares, rival, 2, force=False
            )
        except ownership.Conflicts as conflicts:
            ownership.conflict_message(conflicts.found)

    def protobuf(self) -> None:
        from hekla.local.apiserver.objects.encoding import protobuf

        kind = self.kind
        root = fields.root(kind.group, kind.version, kind.kind)
        assert root is not None and kind.decode is not None
        raw = protobuf.enclose(kind.api_version, kind.kind, protobuf.encode(self.typed, root))
        kind.decode(raw, "application/vnd.kubernetes.protobuf", "Ignore")


def directed(tree: Any, gone: Any) -> Any:
    """A patch that removes what `gone` has, entry for entry."""
    if isinstance(gone, list):
        return [{**item, "$patch": "delete"} if isinstance(item, dict) else item for item in gone]
    if isinstance(gone, dict):
        result = {}
        for name, item in gone.items():
            result[name] = directed(tree.get(name), item)
            if isinstance(item, list) and item and not isinstance(item[0], dict):
                result[f"$deleteFromPrimitiveList/{name}"] = item
                del result[name]
        return result
    return gone


def ordered(tree: Any) -> Any:
    """A patch that says the order of every list beside it."""
    if not isinstance(tree, dict):
        return tree
    result = {}
    for name, item in tree.items():
        result[name] = ordered(item)
        if isinstance(item, list):
            result[f"$setElementOrder/{name}"] = item
    return result


def carried(step: Callable[[], Any]) -> str:
    """Runs a step to its end; what it says where it refuses."""
    try:
        step()
    except (BadBody, Refusal, merging.Unmergeable) as refusal:
        return str(refusal)[:200] or type(refusal).__name__
    return ""
