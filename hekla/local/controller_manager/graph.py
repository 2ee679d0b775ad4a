"""Who owns whom: the objects of a cluster by uid, as far as owner references go.

Kept by the garbage collector from the events of all kinds.  An object is one small record; what an
event says beyond that is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hekla.api.meta import OwnerReference
from hekla.local.controller_manager.resources import Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(slots=True, eq=False)
class Record:
    """One object."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    owners: tuple[OwnerReference, ...]
    finalizers: tuple[str, ...]
    deleting: bool

    @property
    def held_by(self) -> str:
        """The collector's own finalizer that waits for its dependents, if any: orphan wins over
        foreground."""
        if not self.deleting:
            return ""
        return (
            ORPHAN
            if ORPHAN in self.finalizers
            else FOREGROUND
            if FOREGROUND in self.finalizers
            else ""
        )


class Graph:
    """Records by uid, and the dependents of each uid, also of uids that have no record."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.dependents: dict[str, set[str]] = {}

    def put(self, record: Record) -> None:
        """Adds or replaces a record."""
        before = self.records.get(record.uid)
        if before is not None:
            self.unlink(before)
        self.records[record.uid] = record
        for owner in record.owners:
            self.dependents.setdefault(owner.uid, set()).add(record.uid)

    def remove(self, uid: str) -> Record | None:
        """Takes a record out; what depended on it stays known."""
        record = self.records.pop(uid, None)
        if record is not None:
            self.unlink(record)
        return record

    def unlink(self, record: Record) -> None:
        for owner in record.owners:
            known = self.dependents.get(owner.uid)
            if known is not None:
                known.discard(record.uid)
                if not known:
                    del self.dependents[owner.uid]

    def of(self, uid: str) -> Iterable[Record]:
        """The records that name this uid as an owner."""
        return [self.records[dependent] for dependent in self.dependents.get(uid, ())]

    def blocking(self, uid: str) -> list[Record]:
        """The dependents that must be gone before an owner deleted in the foreground may go."""
        return [
            record
            for record in self.of(uid)
            if any(owner.uid == uid and owner.block_owner_deletion for owner in record.owners)
        ]
