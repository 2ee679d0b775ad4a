"""A stored object and a committed change of one, as the store keeps them and watchers get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.local.apiserver.storage.managed_fields import NOBODY, Ownership

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Split an object into its top-level fields, each as bytes."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
METADATA = len(b'{"metadata":{')
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
