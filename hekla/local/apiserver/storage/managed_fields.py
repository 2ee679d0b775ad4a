"""Who owns the fields of stored objects, kept small: thousands of objects of one template share one
description.

An object's row holds two things: a reference to its Owners (the entries of managedFields without
times, shared by all objects with the same), and its stamps (the times, and the few keys that differ
from object to object, as bytes).  The JSON that clients read is put together when it is asked for.
What a create or update makes of an object's owners is looked up by its shape: equal shapes have
equal owners, so the sets themselves are worked with once a template, not once an object.

On the disk every row says its own managedFields in full, so that rows do not depend on each other
there. Reference: local-cluster 2.7; docs/decisions/0125.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.local.apiserver.objects.merging import fieldsets, merging, ownership
from hekla.local.apiserver.objects.merging.merging import KeyPlaceholders
from hekla.local.apiserver.objects.merging.ownership import Owner, Scope, Share, Shares
from hekla.local.apiserver.objects.merging.topology import ANY, LEAF, MAP, SET, Node

MAX_CACHED_SHAPES = 4096
"""The most results of creates, and of updates, that are cached."""

MAX_CACHED_SPECS = 1024
_encode = msgspec.json.Encoder().encode

_KEY = re.compile(rb'k:\{\\"(ip|uid)\\":\\"([0-9A-Za-z.:-]+)\\"\}')
_MARKED = re.compile(rb'k:\{\\"(ip|uid)\\":\\"\\u0001(\d+)\\u0001\\"\}')
_LENGTHS = [struct.Struct(f"<{count}I") for count in range(32)]


class Entry:
    """One entry of managedFields without its time, shared between objects."""

    __slots__ = (
        "__weakref__",
        "after",
        "before",
        "fields",
        "marked",
        "numbers",
        "owner",
        "pieces",
        "version",
    )

    def __init__(self, owner: Owner, version: str, fields: bytes) -> None:
        self.owner = owner
        self.version = version
        self.fields = fields
        """The field set as JSON.  Keys that differ between objects are replaced by numbers between
        marks."""
        self.marked = b"\\u0001" in fields
        first = {"manager": owner.manager, "operation": owner.operation, "apiVersion": version}
        last = f',"subresource":{_text(owner.subresource)}' if owner.subresource else ""
        self.before = msgspec.json.encode(first)[:-1]
        self.after = b',"fieldsType":"FieldsV1","fieldsV1":' + fields + last.encode() + b"}"
        literal, *rest = _MARKED.split(self.after)
        self.numbers = tuple(int(number) for number in rest[1::3])
        """The numbers of the marks between the pieces."""
        self.pieces = [literal]
        for key, following in zip(rest[::3], rest[2::3], strict=True):
            self.pieces[-1] += b'k:{\\"%b\\":\\"' % key
            self.pieces.append(b'\\"}' + following)

    def with_keys(self, values: Sequence[bytes]) -> bytes:
        """`after` with an object's own keys instead of the marks."""
        found = [self.pieces[0]]
        for number, piece in zip(self.numbers, self.pieces[1:], strict=True):
            found += (values[number], piece)
        return b"".join(found)

    def tree(self, values: Sequence[str]) -> fieldsets.Tree:
        return fieldsets.decode(filled(self.fields, values) if self.marked else self.fields)  # type: ignore[no-any-return]  # JSON


class Owners:
    """The entries of managedFields without their times, in order, shared between objects."""

    __slots__ = ("__weakref__", "_rendered", "_stamps", "entries", "times")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._stamps, self._rendered = b"", b"[]"
        """The stamps that were rendered last, and the result.  A write renders them for the disk and
        for its response, and the next object of the template often has the same."""
        self.times = (
            _LENGTHS[len(entries)]
            if len(entries) < len(_LENGTHS)
            else struct.Struct(f"<{len(entries)}I")
        )

    def values(self, stamps: bytes) -> list[str]:
        """The object's own keys, to which the numbers in the field sets refer."""
        rest = stamps[self.times.size :]
        return rest.decode().split("\0") if rest else []

    def render(self, stamps: bytes) -> bytes:
        """managedFields as JSON."""
        if stamps == self._stamps:
            return self._rendered
        pieces: list[bytes] = []
        values = None
        for entry, moment in zip(self.entries, self.times.unpack_from(stamps), strict=True):
            after = entry.after
            if entry.marked:
                if values is None:
                    values = stamps[self.times.size :].split(b"\0")
                after = entry.with_keys(values)
            pieces.append(b"%b%b%b" % (entry.before, _time(moment), after))
        self._stamps, self._rendered = stamps, b"[" + b",".join(pieces) + b"]"
        return self._rendered

    def shares(self, stamps: bytes) -> Shares:
        values = self.values(stamps)
        times = self.times.unpack_from(stamps)
        return {
            entry.owner: Share(entry.version, entry.tree(values), moment)
            for entry, moment in zip(self.entries, times, strict=True)
        }


def filled(fields: bytes, values: Sequence[str]) -> bytes:
    """A field set in which the numbers are replaced by an object's own keys."""

    def key(match: re.Match[bytes]) -> bytes:
        number = int(match[2])
        return (
            b'k:{\\"%b\\":\\"%b\\"}' % (match[1], values[number].encode())
            if number < len(values)
            else match[0]
        )

    return _MARKED.sub(key, fields)


@lru_cache(maxsize=4096)
def _time(moment: int) -> bytes:
    return f',"time":"{stamp(moment)}"'.encode() if moment else b""


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


Ownership = tuple[Owners | None, bytes]
"""Who owns an object's fields, as its row holds it: shared owners, and the object's own stamps."""
NOBODY: Ownership = (None, b"")


def with_managed_fields(tree: Json, held: Ownership) -> Json:
    """The object with its managedFields, as a dry run shows it."""
    owners, stamps = held
    if owners is None:
        return tree
    shown = msgspec.json.decode(owners.render(stamps))
    return {**tree, "metadata": {**tree["metadata"], "managedFields": shown}}


class _Clock:
    """The current time as the stamp of an object with one owner; packed once a second."""

    __slots__ = ("second", "stamp")

    def __init__(self) -> None:
        self.second = 0
        self.stamp = b""

    def now(self) -> tuple[int, bytes]:
        second = int(time.time())
        if second != self.second:
            self.second, self.stamp = second, _LENGTHS[1].pack(second)
        return self.second, self.stamp


class ManagedFields:
    """The shared entries of managedFields, and cached results of creates and updates by their
    shape."""

    def __init__(self) -> None:
        self._entries: WeakValueDictionary[tuple[Owner, str, bytes], Entry] = WeakValueDictionary()
        self._owners: WeakValueDictionary[tuple[Entry, ...], Owners] = WeakValueDictionary()
        self._created: BoundedCache[Any, Owners | None] = BoundedCache(MAX_CACHED_SHAPES)
        self._updated: BoundedCache[
            Any, tuple[tuple[Entry, ...], tuple[int, ...], tuple[int, ...]]
        ] = BoundedCache(MAX_CACHED_SHAPES)
        self._specs: BoundedCache[tuple[Node, bytes], int] = BoundedCache(MAX_CACHED_SPECS)
        self._shapes: BoundedCache[tuple[Any, ...], int] = BoundedCache(MAX_CACHED_SPECS)
        self._numbers = 0
        """The last number of a shape.  No number is used twice, even after `_shapes` was cleared.
        """
        self._clock = _Clock()

    # --- writes -----------------------------------------------------------------------------------

    def created(self, scope: Scope, tree: Json, owner: Owner) -> Ownership:
        """The ownership of a new object."""
        marks = KeyPlaceholders([])
        shape: list[Any] = []
        known_spec = self.shape_of(scope, tree)
        if known_spec:
            shape.append(known_spec)
            signature(
                scope.node,
                {name: value for name, value in tree.items() if name != "spec"},
                shape,
                marks,
                scope.without,
            )
        else:
            signature(scope.node, tree, shape, marks, scope.without)
        key = (scope.node, scope.version, scope.without, owner, tuple(shape))
        known = self._created.get(key, self)
        if known is self:
            known = self._create(scope, tree, owner, marks)
            self._created[key] = known
        return self._stamped(known, marks.values)

    def shape_of(self, scope: Scope, tree: Json) -> int:
        """The number of the shape of a new object's spec; 0 if it has none."""
        spec = tree.get("spec")
        return (
            self._spec_shape(scope.node, spec)
            if type(spec) is dict and "spec" not in scope.without
            else 0
        )

    def created_alike(
        self, scope: Scope, metadata: Json, spec: int, owner: Owner
    ) -> Ownership | None:
        """The ownership of a new object whose spec has a known shape; None if no object of this
        shape was created before."""
        marks = KeyPlaceholders([])
        shape: list[Any] = [spec]
        signature(scope.node, {"metadata": metadata}, shape, marks, scope.without)
        known = self._created.get(
            (scope.node, scope.version, scope.without, owner, tuple(shape)), self
        )
        if known is self:
            return None
        return self._stamped(known, marks.values)

    def _stamped(self, known: Any, values: list[str]) -> Ownership:
        if known is None:
            return NOBODY
        assert isinstance(known, Owners)
        stamp = self._clock.now()[1]
        return known, (stamp + "\0".join(values).encode() if values else stamp)

    def _spec_shape(self, node: Node, spec: Json) -> int:
        """A number for the signature of a spec; 0 where it has keys that differ from object to
        object.

        Specs of one template are the same bytes but for a few scalars, of which a signature knows
        no more than that they are there.
        """
        child = node.open().get("spec")
        if child is None or child.kind is not MAP:
            return 0
        nested = {
            name: value
            for name, value in spec.items()
            if type(value) is dict or type(value) is list
        }
        key = (child, _encode([list(spec), nested]))
        number = self._specs.get(key)
        if number is None:
            found: list[Any] = []
            marks = KeyPlaceholders([])
            signature(child, spec, found, marks)
            self._numbers += 1
            number = 0 if marks.values else self._shapes.setdefault(tuple(found), self._numbers)
            self._specs[key] = number
        return number

    def _create(
        self, scope: Scope, tree: Json, owner: Owner, marks: KeyPlaceholders
    ) -> Owners | None:
        difference = merging.compare(scope.node, {}, tree, marks, scope.without)
        fields = fieldsets.difference(
            fieldsets.from_paths((*difference.added, *difference.modified)), ownership.SERVER_SET
        )
        return (
            self._shared((self._entry(owner, scope.version, fieldsets.text(fields)),))
            if fields
            else None
        )

    def updated(
        self,
        scope: Scope,
        old: Json,
        new: Json,
        held: Ownership,
        owner: Owner,
        *,
        timed: bool = True,
    ) -> Ownership:
        """The ownership of a changed object."""
        owners, stamps = held
        if owners is None:
            return held  # nobody is tracked until the first apply
        values = owners.values(stamps)
        known_values = len(values)
        difference = merging.compare(scope.node, old, new, KeyPlaceholders(values), scope.without)
        if not (difference.added or difference.modified or difference.removed):
            return held
        now = self.now() if timed else 0
        if len(owners.entries) > ownership.MOST_UPDATERS or any(
            entry.version != scope.version for entry in owners.entries
        ):
            return self.compact(
                ownership.updated(scope, old, new, owners.shares(stamps), owner, now)
            )
        key = (owners, owner, difference, known_values)
        outcome = self._updated.get(key)
        if outcome is None:
            outcome = self._update(scope, owners, owner, difference)
            self._updated[key] = outcome
        entries, sources, wanted = outcome
        if not entries:
            return NOBODY
        times = (*owners.times.unpack_from(stamps), now)
        dated = [(entry, times[source]) for entry, source in zip(entries, sources, strict=True)]
        return self.packed(dated, [values[number] for number in wanted])

    def _update(
        self, scope: Scope, owners: Owners, owner: Owner, difference: merging.Difference
    ) -> tuple[tuple[Entry, ...], tuple[int, ...], tuple[int, ...]]:
        """The new entries, for each the index of its time (the last one is now), and the values
        that they refer to."""
        shares = {
            entry.owner: Share(entry.version, fieldsets.decode(entry.fields), number)
            for number, entry in enumerate(owners.entries)
        }
        after = ownership.updated_by(scope, {}, {}, shares, owner, len(owners.entries), difference)
        texts = [(found, share, fieldsets.text(share.fields)) for found, share in after.items()]
        wanted: dict[int, int] = {}
        entries = tuple(
            self._entry(found, share.version, renumbered(text, wanted))
            for found, share, text in texts
        )
        return entries, tuple(share.time for _, share, _ in texts), tuple(wanted)

    def compact(self, shares: Shares) -> Ownership:
        """Convert shares to the form in which a row holds them."""
        if not shares:
            return NOBODY
        numbers: dict[str, int] = {}

        def number(match: re.Match[bytes]) -> bytes:
            place = numbers.setdefault(match[2].decode(), len(numbers))
            return b'k:{\\"%b\\":\\"\\u0001%d\\u0001\\"}' % (match[1], place)

        dated = []
        for owner, share in sorted(shares.items(), key=lambda pair: ownership.order_of(*pair)):
            text = _KEY.sub(number, fieldsets.text(share.fields))
            dated.append((self._entry(owner, share.version, text), share.time))
        return self.packed(dated, list(numbers))

    def read(self, wire: Any) -> Ownership | None:
        """Read managedFields from a client or the disk; None if they are invalid."""
        shares = ownership.from_wire(wire)
        return None if shares is None else self.compact(shares)

    # --- sharing ----------------------------------------------------------------------------------

    def _entry(self, owner: Owner, version: str, text: bytes) -> Entry:
        key = (owner, version, text)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(owner, version, text)
        return entry

    def _shared(self, entries: tuple[Entry, ...]) -> Owners:
        owners = self._owners.get(entries)
        if owners is None:
            owners = self._owners[entries] = Owners(entries)
        return owners

    def now(self) -> int:
        return self._clock.now()[0]

    def packed(self, dated: list[tuple[Entry, int]], values: list[str]) -> Ownership:
        """Convert pairs (entry, time of its last change) and the keys that the entries refer to
        into the form in which a row holds them."""
        if len(dated) > 1:
            dated.sort(key=_order)
        owners = self._shared(tuple([entry for entry, _ in dated]))
        stamps = owners.times.pack(*[moment for _, moment in dated])
        return owners, (stamps + "\0".join(values).encode() if values else stamps)


def _order(dated: tuple[Entry, int]) -> tuple[str, int, str, str, str]:
    entry, moment = dated
    return (
        entry.owner.operation,
        moment,
        entry.owner.manager,
        entry.version,
        entry.owner.subresource,
    )


def renumbered(text: bytes, wanted: dict[int, int]) -> bytes:
    """The field set with its marks numbered in order of appearance.  `wanted` maps old numbers to
    new ones."""
    if b"\\u0001" not in text:
        return text

    def number(match: re.Match[bytes]) -> bytes:
        place = wanted.setdefault(int(match[2]), len(wanted))
        return b'k:{\\"%b\\":\\"\\u0001%d\\u0001\\"}' % (match[1], place)

    return _MARKED.sub(number, text)


# --- shapes ---------------------------------------------------------------------------------------


def signature(
    node: Node,
    tree: Json,
    found: list[Any],
    marks: KeyPlaceholders,
    without: frozenset[str] = frozenset(),
) -> None:
    """Collect everything that an object's field set depends on: names of fields, and keys of list
    elements.

    Keys that differ between objects of one template go to `marks`; in the signature, as in the set,
    they are numbers.
    """
    found.append(tuple(tree))
    fields = node.fields
    if fields is None:
        fields = node.open()
    if node.empty:
        found.append(tuple([not tree.get(name) for name in node.empty]))
    element, deep = node.element, node.deep
    if element is None or element.kind is LEAF:
        if not deep:
            return
        element = None
    for name, value in tree.items():
        child = deep.get(name)
        if child is None and element is not None and name not in fields:
            child = element
        if child is None or (without and name in without):
            continue
        kind = child.kind
        if kind is MAP:
            if type(value) is dict:
                signature(child, value, found, marks)
            else:
                found.append(value is None)
        elif kind is ANY:
            _guess(value, found)
        elif type(value) is list:
            _list_signature(child, value, found, marks)
        else:
            found.append(None)


def _list_signature(node: Node, items: list[Any], found: list[Any], marks: KeyPlaceholders) -> None:
    if node.kind is SET:
        found.append(tuple([repr(item) for item in items]))
        return
    keys = node.keys
    inner = node.element
    if node.mark:
        found.append(tuple([marks.mark(item.get(keys[0])) for item in items]))
    elif len(keys) == 1:
        key = keys[0]
        found.append(tuple([item.get(key) for item in items]))
    else:
        found.append(tuple([tuple([item.get(key) for key in keys]) for item in items]))
    if inner is None or inner.kind is not MAP:
        return
    inner.open()
    plain, deep = inner.element is None or inner.element.kind is LEAF, inner.deep.keys()
    for item in items:
        if type(item) is dict:
            if plain and deep.isdisjoint(item):
                found.append(tuple(item))
            else:
                signature(inner, item, found, marks)


def _guess(value: Any, found: list[Any]) -> None:
    """Collect the signature of a value without a schema."""
    if type(value) is dict:
        found.append((tuple(value), tuple([type(item) is dict for item in value.values()])))
        for item in value.values():
            if type(item) is dict:
                _guess(item, found)
    else:
        found.append(type(value) is list)
