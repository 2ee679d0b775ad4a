"""The short way of writes that touch few fields at the top of an object: a status, the labels, and
not the rest.

Most writes of a cluster are such, and most of an object's bytes are its spec.  What a write does
not touch stays the bytes that it is: neither decoded nor checked again nor encoded.  The short way
either succeeds, and then the outcome is that of the long way, or nothing has happened and the long
way is gone, which also finds the words for what is wrong.  A kind says by its strategy's `parts`
whether it can do without the rest.  Decision 0180.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.kind import Kind, Parts
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.managed_fields import Owners
from hekla.local.apiserver.storage.store import Collection, Row, Write, decode, encode, split
from hekla.local.apiserver.write.outcome import committed
from hekla.local.apiserver.write.podconditions import set_condition
from hekla.local.apiserver.write.restrictions import differs_outside, new_finalizers

if TYPE_CHECKING:
    from hekla.local.apiserver.write.writing import Writer

METADATA = frozenset({"metadata"})
STATUS = frozenset({"status"})
STATED = STATUS | METADATA | {"kind", "apiVersion"}
"""What may be touched by a write that is about a status alone."""
NAMES = frozenset({"name", "namespace", "uid"})
"""What metadata says of which object it is."""


async def modify(
    writer: Writer,
    call: Call,
    change: Callable[[Json], Json],
    touched: frozenset[str] | None,
    names: Any = None,
) -> Row | None:
    """The new row; None where the long way must be gone.  What is not named in `touched` the change
    neither sees nor changes.

    `names` are all that the write says of metadata.  Where they only say whose status it is,
    metadata stays bytes too, and the change is given none.
    """
    parts = call.route.kind.strategy.parts
    if parts is None or touched is None or call.dry_run:
        return None
    collection, key = call.resource.collection, call.route.key
    row = collection.newest(key)
    if row is None:
        return None
    if call.route.subresource == "status":
        touched |= STATUS
    if touched <= STATED and ("metadata" not in touched or says_whose(names, row)):
        touched -= METADATA
    else:
        touched |= METADATA
    try:
        done = _changed(writer, call, parts, row, change, touched)
    except Refusal:
        return None
    if not done:
        return None
    # From the look at the newest state to here nothing has waited, so what lies accepted is this
    # write, or what it found.
    pending = collection.overlay.get(key)
    return row if pending is None else await committed(pending)


def _changed(
    writer: Writer,
    call: Call,
    parts: Parts,
    row: Row,
    change: Callable[[Json], Json],
    touched: frozenset[str],
) -> bool:
    """Accepts the new state, where there is one; False where the long way must be gone."""
    resource, subresource = call.resource, call.route.subresource
    kind, strategy = resource.kind, resource.kind.strategy
    pieces = split(row.data)
    named = "metadata" in touched
    kept = {
        name: piece for name, piece in pieces.items() if name not in touched and name != "metadata"
    }
    if not parts.may_stay(subresource, kept) or (
        row.owners is not None and not known(row.owners, kind)
    ):
        return False
    if not named and not may_stand(bytes(pieces["metadata"]), row.version):
        return False
    new = change(
        {"metadata": {}} | {name: decode(pieces[name]) for name in pieces if name in touched}
    )
    old = {"metadata": {}} | {name: decode(pieces[name]) for name in pieces if name in touched}
    if named:
        if "deletionTimestamp" in old["metadata"] or (
            "managedFields" in new.setdefault("metadata", {}) and not subresource
        ):
            return False
        writer.keep_identity(kind, row, old, new, call.request.method)
    parts.default(new)
    held = writer.owned(call, resource, row, old, new, None, subresource)
    operation = Attributes(call, resource, "UPDATE", row.namespace, row.name, new, old, subresource)
    admission = writer.admission
    if admission.concerned(operation) or (
        admission.asked(operation) if not named else admission.wanted(operation)
    ):
        return False
    if subresource == "status":
        strategy.prepare_status(new, old)
    else:
        strategy.prepare_update(new, old)
    if not parts.fits(new, old, kept, subresource) or new_finalizers(
        new["metadata"], old["metadata"]
    ):
        return False
    if strategy.generation and subresource != "status" and differs_outside(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if new != old or held != row.held:
        left = {name: piece for name, piece in pieces.items() if name in kept or name in new}
        if not named:
            del new["metadata"]
        resource.collection.update(new, row, held, kept=left, counts=parts.counts(new, old))
    return True


def says_whose(said: Any, row: Row) -> bool:
    """Whether what a write says of metadata is no more than which object it is about."""
    return isinstance(said, dict) and all(
        name in NAMES and getattr(row, name) == value for name, value in said.items()
    )


def may_stand(metadata: bytes, version: int) -> bool:
    """Whether an object's metadata comes out of a write that does not name it as the bytes that it
    is, but for its version."""
    return (
        metadata.count(b'"resourceVersion":"%d"' % version) == 1
        and b'"deletionTimestamp":' not in metadata
    )


def known(owners: Owners, kind: Kind) -> bool:
    """Whether all that is booked was booked in the version in which the object is written now."""
    version = kind.api_version
    return len(owners.heads) <= ownership.MOST_UPDATERS and all(
        head.version == version for head in owners.heads
    )


def bind(collection: Collection, row: Row, node: str, said: Json) -> Write | None:
    """Puts a pod on a node, with the labels and annotations that the binding brings; None where the
    long way must be gone."""
    position = collection.positions["spec.nodeName"]
    pieces = split(row.data)
    spec = bytes(pieces["spec"])
    if (
        row.fields[position]
        or b'"nodeName"' in spec
        or b'"schedulingGates"' in spec
        or len(spec) < len('{"a":1}')
    ):
        return None
    metadata: Json = decode(pieces["metadata"])
    if "deletionTimestamp" in metadata:
        return None
    for field in ("annotations", "labels"):
        if said.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **said[field]}
    status: Json = decode(pieces["status"]) if "status" in pieces else {}
    set_condition(status, "PodScheduled", "True")
    tree = {"metadata": metadata, "status": status}
    kept = {**pieces, "spec": msgspec.Raw(b'%b,"nodeName":%b}' % (spec[:-1], encode(node)))}
    fields = list(collection.fields_of(tree, kept, row.fields))
    fields[position] = node
    return collection.update(tree, row, kept=kept, fields=tuple(fields), counts=False)
