"""Updates that touch few top-level fields of an object: a status, the labels, and not the rest.

Most updates of a cluster are such, and most of an object's bytes are its spec.  The fields that an
update does not touch keep their bytes: they are not decoded, checked or encoded again.  That is the
list `BEFORE_STORE`.  It gives what `UPDATE` would give, or it stops before anything is written and
`UPDATE` runs from the beginning, which also finds the words for what is wrong.  A kind says by its
strategy's `partial_updates` whether it can do without the rest.  Decision 0180.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.local.apiserver.objects.kind import Kind, PartialUpdates
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.managed_fields import Owners
from hekla.local.apiserver.storage.rows import Row, decode, split
from hekla.local.apiserver.write import updating
from hekla.local.apiserver.write.stages import NeedsFullPath, On, Step, remaining
from hekla.local.apiserver.write.updating import UPDATE, Update

METADATA = frozenset({"metadata"})
STATUS = frozenset({"status"})
OF_STATUS_UPDATES = STATUS | METADATA | {"kind", "apiVersion"}
"""The top-level fields of a request that is about a status alone."""
NAMES = frozenset({"name", "namespace", "uid"})
"""The fields of metadata that say which object it is."""


@dataclass(slots=True, eq=False)
class PartialUpdate(Update):
    """An update that touches few top-level fields."""

    touched: frozenset[str] | None = None
    """The top-level fields that the change reads and writes; None where all may be."""
    said_of_metadata: Any = None
    """What the request says of metadata.  Where that only names the object, metadata stays bytes
    too, and `change` gets an empty one."""
    rules: PartialUpdates = field(init=False)
    """How the kind handles such updates."""
    pieces: Mapping[str, msgspec.Raw] = field(init=False)
    """The top-level fields of the stored object, as bytes; from `read_pieces` on."""
    untouched: Mapping[str, msgspec.Raw] = field(init=False)
    """Those of them that the change does not touch, metadata apart."""
    reads_metadata: bool = field(init=False)


def prepare(update: PartialUpdate) -> bool:
    """Run the steps before `store`; False where the update is unusual in some way and needs all
    stages.  If it is prepared, nothing may wait before it is stored."""
    rules = update.resource.kind.strategy.partial_updates
    if rules is None or update.touched is None or update.call.dry_run:
        return False
    update.rules = rules
    try:
        for step in BEFORE_STORE:
            step(update)
    except (NeedsFullPath, Refusal):
        return False
    return True


def read_pieces(update: PartialUpdate) -> None:
    """Split the newest state by its fields, and see that the kind can do without the others."""
    row = update.resource.collection.newest(update.key)
    if row is None:
        raise NeedsFullPath
    update.row = row
    assert update.touched is not None
    touched = update.touched | STATUS if update.subresource == "status" else update.touched
    update.reads_metadata = not (
        touched <= OF_STATUS_UPDATES
        and ("metadata" not in touched or names_object(update.said_of_metadata, row))
    )
    pieces = split(row.data)
    untouched = {
        name: piece for name, piece in pieces.items() if name not in touched and name != "metadata"
    }
    if not update.rules.may_stay(update.subresource, untouched):
        raise NeedsFullPath
    if row.owners is not None and not are_current(row.owners, update.resource.kind):
        raise NeedsFullPath
    if not update.reads_metadata and not may_stay_bytes(bytes(pieces["metadata"]), row.version):
        raise NeedsFullPath
    update.pieces, update.untouched = pieces, untouched


def change_touched(update: PartialUpdate) -> None:
    """Let the client's change make the new state of the fields that it touches."""
    assert update.change is not None
    update.new = update.change(decode_touched(update))
    update.old = decode_touched(update)
    if update.reads_metadata and (
        "deletionTimestamp" in update.old["metadata"]
        or ("managedFields" in update.new.setdefault("metadata", {}) and not update.subresource)
    ):
        raise NeedsFullPath


def decode_touched(update: PartialUpdate) -> Json:
    """A fresh copy of the fields that the change touches."""
    found: Json = {"metadata": {}}
    for name, piece in update.pieces.items():
        if name in update.untouched or (name == "metadata" and not update.reads_metadata):
            continue
        found[name] = decode(piece)
    return found


def keep_identity(update: PartialUpdate) -> None:
    """Restore the metadata that only the server sets, where metadata is read at all."""
    if update.reads_metadata:
        updating.restore_identity(update, update.call.request.method)


def default_touched(update: PartialUpdate) -> None:
    """Fill in the defaults of the fields that are there."""
    update.rules.default(update.new)


def own(update: PartialUpdate) -> None:
    """Make the client the owner of the fields that it has changed."""
    update.ownership = updating.owned(update, None)


def refuse_watched(update: PartialUpdate) -> None:
    """Give up where admission wants to see the whole object."""
    admission, attributes = update.backend.admission, updating.attributes_of(update)
    if admission.needs_plugins(attributes) or (
        admission.wanted(attributes)
        if update.reads_metadata
        else admission.matches_rules(attributes)
    ):
        raise NeedsFullPath


def validate_touched(update: PartialUpdate) -> None:
    """Check the new state, as far as it is there."""
    strategy, new, old = update.resource.kind.strategy, update.new, update.old
    if update.subresource == "status":
        strategy.prepare_status(new, old)
    else:
        strategy.prepare_update(new, old)
    if not update.rules.fits(new, old, update.untouched, update.subresource):
        raise NeedsFullPath
    if updating.new_finalizers(new["metadata"], old["metadata"]):
        raise NeedsFullPath
    updating.count_generation(update)


def join_pieces(update: PartialUpdate) -> None:
    """Put the new fields between the bytes of the others."""
    new = update.new
    update.kept = {
        name: piece
        for name, piece in update.pieces.items()
        if name in update.untouched or name in new
    }
    update.counts = update.rules.counts(new, update.old)
    update.stored = (
        new
        if update.reads_metadata
        else {name: value for name, value in new.items() if name != "metadata"}
    )


INSTEAD: Mapping[Any, Step[PartialUpdate] | None] = {
    updating.read: read_pieces,
    updating.change: change_touched,
    updating.keep_identity: keep_identity,
    updating.default: default_touched,
    updating.own: own,
    updating.run_mutating_plugins: refuse_watched,
    updating.call_mutating_webhooks: None,  # `refuse_watched` has seen that none is to be asked
    updating.validate: validate_touched,
    updating.call_validating_webhooks: None,
    updating.admit: None,
    updating.convert: join_pieces,
}
BEFORE_STORE: tuple[Step[PartialUpdate], ...] = remaining(UPDATE[:-2], On(0), INSTEAD)
"""The steps of an update of few fields, up to `store` and `answer`.  None of them waits."""


# --- rules that the status-patch cache shares -----------------------------------------------------


def names_object(metadata: Any, row: Row) -> bool:
    """Whether a request says no more of metadata than which object it is about."""
    return isinstance(metadata, dict) and all(
        name in NAMES and getattr(row, name) == value for name, value in metadata.items()
    )


def may_stay_bytes(metadata: bytes, version: int) -> bool:
    """Whether an update that does not touch metadata can keep its bytes, but for its version."""
    return (
        metadata.count(b'"resourceVersion":"%d"' % version) == 1
        and b'"deletionTimestamp":' not in metadata
    )


def are_current(owners: Owners, kind: Kind) -> bool:
    """Whether all managed fields are of the version in which the object is written now."""
    version = kind.api_version
    return len(owners.entries) <= ownership.MOST_UPDATERS and all(
        entry.version == version for entry in owners.entries
    )
