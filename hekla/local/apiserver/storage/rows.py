"""A stored object and a committed change of one, as the store keeps them and watchers get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from hekla.api.trees import Json
from hekla.local.apiserver.storage.managed_fields import NOBODY, Ownership

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Split an object into its top-level fields, each as bytes."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
METADATA_FIRST = b'{"metadata":{'
METADATA = len(METADATA_FIRST)
"""The offset of an object's first metadata field in its bytes."""


class Row:
    """One stored object: its bytes, and the values that selectors compare."""

    __slots__ = (
        "data",
        "fields",
        "id",
        "key",
        "labels",
        "name",
        "namespace",
        "owners",
        "stamps",
        "uid",
        "version",
    )

    def __init__(
        self,
        id: int,
        namespace: str,
        name: str,
        uid: str,
        version: int,
        data: bytes,
        labels: Mapping[str, str],
        fields: tuple[str, ...],
        held: Ownership = NOBODY,
    ) -> None:
        self.id = id
        self.namespace = namespace
        self.name = name
        self.key = f"{namespace}/{name}" if namespace else name
        self.uid = uid
        self.version = version
        self.data = data
        """JSON of the object without kind, apiVersion and managedFields; its metadata comes first.
        """
        self.labels = labels
        self.fields = fields
        """Values of the collection's selectable fields, in its order."""
        self.owners, self.stamps = held
        """Who owns the object's fields; see managed_fields.py."""

    def tree(self) -> Json:
        """A fresh copy of the object without managedFields, which the caller may change."""
        return decode(self.data)  # type: ignore[no-any-return]  # what is kept is an object

    @property
    def held(self) -> Ownership:
        return self.owners, self.stamps

    def managed(self) -> Any:
        """managedFields; None if nobody owns a field."""
        return None if self.owners is None else decode(self.owners.render(self.stamps))

    def whole(self, prefix: bytes = b"{") -> bytes:
        """The object with managedFields as JSON.  The prefix replaces its opening brace."""
        if self.owners is None:
            return prefix + self.data[1:]
        return b'%b"metadata":{"managedFields":%b,%b' % (
            prefix,
            self.owners.render(self.stamps),
            self.data[METADATA:],
        )


class Index(Protocol):
    """What works out the values that selectors compare: a collection."""

    def labels_of(self, metadata: Json) -> Mapping[str, str]: ...
    def fields_of(self, tree: Json) -> tuple[str, ...]: ...


class LoadedRow(Row):
    """A row as it was read from the disk.  Its uid and what selectors compare are read from its
    bytes when somebody asks for them; then it becomes an ordinary row.

    A server that starts with hundreds of thousands of objects must not wait for them to be decoded,
    and of most of them nobody asks anything but their bytes.
    """

    __slots__ = ()

    def __init__(
        self, id: int, collection: str, key: str, version: int, data: bytes, held: Ownership
    ) -> None:
        self.id = id
        self.key = key
        self.namespace, _, self.name = key.rpartition("/")
        self.version = version
        self.data = data
        self.owners, self.stamps = held
        _FIELDS.__set__(self, collection)

    @property
    def collection(self) -> str:
        """The name of its collection, until it is indexed."""
        return cast("str", _FIELDS.__get__(self))

    def index_by(self, index: Index) -> None:
        """Say who works out the values that selectors compare."""
        _FIELDS.__set__(self, index)

    def settle(self) -> None:
        """Become an ordinary row."""
        index: Index = _FIELDS.__get__(self)
        tree = decode(self.data)
        metadata = tree["metadata"]
        labels, fields = index.labels_of(metadata), index.fields_of(tree)
        self.__class__ = Row  # type: ignore[assignment]  # it has the same slots
        self.uid, self.labels, self.fields = metadata.get("uid", ""), labels, fields


_FIELDS: Any = Row.__dict__["fields"]
"""The slot that holds the index of a loaded row until its fields are known."""


def _settled(name: str) -> property:
    def value(row: LoadedRow) -> Any:
        row.settle()
        return getattr(row, name)

    return property(value)


for _name in ("uid", "labels", "fields"):
    setattr(LoadedRow, _name, _settled(_name))


class Event:
    """One committed change.  `encoded` caches wire forms while a batch is sent to watchers."""

    __slots__ = ("encoded", "old", "row", "time", "type", "version")

    def __init__(self, type: str, version: int, row: Row, old: Row | None, now: float) -> None:
        self.type = type
        self.version = version
        self.row = row
        self.old = old
        self.time = now
        self.encoded: dict[Any, bytes] = {}
