"""What a kind is to a program: where its objects live on the API server, which struct they decode
into, what users call it.

Decoding a whole list or watch event into structs is one call and takes microseconds.  When one
object in it does not fit its struct, only that object is given up, and the reader is told which and
why: a scheduler must not go blind because somebody stored something odd.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from hekla.api.meta import ListMeta, Object, Status, Struct
from hekla.api.trees import without_nulls

T = TypeVar("T")
U = TypeVar("U")
AnObject = TypeVar("AnObject", bound=Object)


class Malformed(msgspec.Struct, frozen=True):
    """An object that could not be decoded: its key, its version, and why."""

    kind: str
    key: str
    resource_version: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key or 'without a name'} cannot be read: {self.reason}"


class Listing(msgspec.Struct, Generic[T]):
    """One page of a list."""

    items: list[T] = []
    resource_version: str = ""
    continue_: str = ""
    remaining: int | None = None
    malformed: list[Malformed] = []


class WatchEvent(msgspec.Struct, Generic[T]):
    """One line of a watch.  `object` is a Status where type is ERROR, and Malformed where it could
    not be decoded."""

    type: str
    object: T | Status | Malformed


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom resource."""

    name: str
    type: str
    path: str
    priority: int = 0


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of one API group and version, and the struct that its objects decode into."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T]
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    status: bool = False
    """The kind is a custom resource with a status subresource."""

    def __hash__(self) -> int:
        return hash((self.group, self.version, self.kind, self.type))

    def __repr__(self) -> str:
        return f"Kind({self.api_version} {self.kind})"

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def resource(self) -> str:
        """`jobs.batch.volcano.sh`, or `pods` in the core group: the word for kubectl, and the name
        of a CRD."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def untyped(self) -> Kind[dict[str, Any]]:
        """The same kind, decoded into JSON trees."""
        return read_as(self, dict[str, Any])

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path of the collection, of one object or of its subresource; without a namespace, the
        collection of all."""
        path = (
            f"{self._root}/namespaces/{_segment(namespace, '')}/{self.plural}"
            if self.namespaced and namespace
            else self._everywhere
        )
        if name is not None:
            if self.namespaced and not namespace:
                raise ValueError(
                    f"{self.kind} {name}: a {self.kind} lives in a namespace, and none was given"
                )
            path = f"{path}/{_segment(name, ':')}"
        return f"{path}/{subresource}" if subresource else path

    @cached_property
    def _root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @cached_property
    def _everywhere(self) -> str:
        return f"{self._root}/{self.plural}"

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object.  Raises msgspec.ValidationError with the path of the bad field."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError:
            return self._decode_without_nulls(body)

    def decode_list(self, body: bytes) -> Listing[T]:
        """Decode a page of a list.  Objects that cannot be decoded are in `malformed` and not in
        `items`."""
        try:
            page = self._list_decoder.decode(body)
        except msgspec.ValidationError:
            return self._decode_each(body)
        return Listing(
            page.items,
            page.metadata.resource_version,
            page.metadata.continue_,
            page.metadata.remaining_item_count,
        )

    def decode_event(self, line: bytes) -> WatchEvent[T]:
        """Decode one line of a watch."""
        try:
            event = self._event_decoder.decode(line)
        except msgspec.ValidationError:
            return self._decode_odd_event(line)
        if event.type == "ERROR":
            return self._decode_odd_event(line)
        return WatchEvent(event.type, event.object)

    def convert(self, tree: dict[str, Any]) -> T:
        """A struct from a JSON tree."""
        try:
            return msgspec.convert(tree, self.type)
        except msgspec.ValidationError:
            return msgspec.convert(without_nulls(tree), self.type)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.type)

    @cached_property
    def _list_decoder(self) -> msgspec.json.Decoder[_Page[T]]:
        return msgspec.json.Decoder(_Page[self.type])  # type: ignore[name-defined]  # a type made at run time

    @cached_property
    def _event_decoder(self) -> msgspec.json.Decoder[_Event[T]]:
        return msgspec.json.Decoder(_Event[self.type])  # type: ignore[name-defined]  # as above

    def _decode_without_nulls(self, body: bytes | msgspec.Raw) -> T:
        """Decode again with null read as absent: Go clients write `null` for an empty list, and the
        API server may store it."""
        return msgspec.convert(without_nulls(msgspec.json.decode(body)), self.type)

    def _decode_or_name(self, body: bytes | msgspec.Raw) -> T | Malformed:
        try:
            return self.decode(body)
        except msgspec.ValidationError as error:
            return _malformed(self.kind, body, str(error))

    def _decode_each(self, body: bytes) -> Listing[T]:
        page = _raw_page.decode(body)
        listing: Listing[T] = Listing(
            [],
            page.metadata.resource_version,
            page.metadata.continue_,
            page.metadata.remaining_item_count,
            [],
        )
        for raw in page.items or ():
            item = self._decode_or_name(raw)
            if isinstance(item, Malformed):
                listing.malformed.append(item)
            else:
                listing.items.append(item)
        return listing

    def _decode_odd_event(self, line: bytes) -> WatchEvent[T]:
        event = _raw_event.decode(line)
        if event.type == "ERROR":
            return WatchEvent("ERROR", _status_decoder.decode(event.object))
        return WatchEvent(event.type, self._decode_or_name(event.object))


class _Page(Struct, Generic[T]):
    items: list[T]
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _RawPage(Struct):
    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _Event(msgspec.Struct, Generic[T]):
    type: str
    object: T


_plain = re.compile(r"[A-Za-z0-9._-]+").fullmatch
_raw_page = msgspec.json.Decoder(_RawPage)
_raw_event = msgspec.json.Decoder(_Event[msgspec.Raw])
_status_decoder = msgspec.json.Decoder(Status)


def _segment(name: str, safe: str) -> str:
    """A name in a path, quoted if necessary."""
    return name if _plain(name) else quote(name, safe=safe)


def _malformed(kind: str, body: bytes | msgspec.Raw, reason: str) -> Malformed:
    tree = msgspec.json.decode(body)
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        metadata = {}

    def text(member: str) -> str:
        value = metadata.get(member)
        return value if isinstance(value, str) else ""

    namespace, name = text("namespace"), text("name")
    return Malformed(
        kind, f"{namespace}/{name}" if namespace else name, text("resourceVersion"), reason
    )


def kind_of(
    type: type[AnObject],
    plural: str,
    *,
    namespaced: bool = True,
    short_names: tuple[str, ...] = (),
    columns: tuple[Column, ...] = (),
    status: bool = False,
) -> Kind[AnObject]:
    """The kind whose objects decode into this struct; an empty object says its group, version and
    kind."""
    empty = type()
    group, _, version = empty.api_version.rpartition("/")
    return Kind(group, version, empty.kind, plural, namespaced, type, short_names, columns, status)


def names_of(kinds: Sequence[Kind[Any]]) -> dict[str, Kind[Any]]:
    """All words that a person may type for one of these kinds: plural, singular, short names,
    `plural.group`."""
    words: dict[str, Kind[Any]] = {}
    for kind in kinds:
        for word in (kind.plural, kind.singular, *kind.short_names, kind.resource):
            words.setdefault(word, kind)
    return words


def read_as(kind: Kind[Any], type: type[U]) -> Kind[U]:
    """The same kind, decoded into another type, for readers that need fewer fields."""
    return replace(kind, type=type)
