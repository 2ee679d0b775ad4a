"""delete and deletecollection, and the stages of a delete (`DELETE`): grace periods, finalizers,
propagation to dependents (local-cluster 2.4).

As with updates, the stages begin again if another write has changed the object when `store` is
reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.admission import UNDELETABLE
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.kind import ConvertedVersion, Kind
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.forms import wanted
from hekla.local.apiserver.request.reading import selected
from hekla.local.apiserver.request.selection import select
from hekla.local.apiserver.request.status import (
    Refusal,
    conflict,
    forbidden,
    method_not_allowed,
    not_found,
    success,
)
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row, encode
from hekla.local.apiserver.write.delete_options import DeleteOptions, options_tree, read_options
from hekla.local.apiserver.write.stages import Step
from hekla.local.apiserver.write.updating import Outdated, Update, earlier_write, run_update
from hekla.local.apiserver.write.writing import Writer

TOGETHER = 256
"""Objects of a collection that are deleted concurrently."""
SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


class Deleter:
    """Deletes objects."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.beginnings: dict[str, Callable[[Json], None]] = {}
        """Collection -> what to do with an object at its first delete request."""

    async def delete(self, call: Call) -> Response:
        options = read_options(call)
        if call.resource.collection.name == "jobs.batch" and not options.propagation:
            call.warn(JOB_WARNING)
        deletion = self._deletion(call, call.resource, call.route.key, options)
        await run_update(deletion, DELETE)
        return deletion.response

    async def delete_collection(self, call: Call) -> Response:
        if call.route.kind.namespaced and not call.route.namespace:
            raise method_not_allowed()
        options = read_options(call)
        request = call.request
        selection = select(
            call.resource,
            call.route.namespace,
            "",
            request.option("labelSelector"),
            request.option("fieldSelector"),
        )
        found = selected(call.resource.collection, selection)
        await self.remove_all(call, call.resource, found, options)
        if call.route.kind.conversion is not None:
            await call.route.kind.conversion.ready(found)
        metadata = {"resourceVersion": str(self.writer.store.committed)}
        return call.respond(200, wanted(call.request.headers).list(call.resource, found, metadata))

    async def remove_all(
        self, call: Call, resource: Resource, rows: list[Row], options: DeleteOptions
    ) -> None:
        """Delete rows, many in one transaction.  Rows that are already gone are skipped."""
        for start in range(0, len(rows), TOGETHER):
            removals = [
                self.remove(call, resource, row.key, options)
                for row in rows[start : start + TOGETHER]
            ]
            for result in await asyncio.gather(*removals, return_exceptions=True):
                if isinstance(result, BaseException) and not (
                    isinstance(result, Refusal) and result.code == 404
                ):
                    raise result

    async def remove(
        self, call: Call, resource: Resource, key: str, options: DeleteOptions
    ) -> tuple[Row, bool]:
        """Delete an object, or mark it if it has to wait for finalizers or a grace period.  Returns
        its last state and whether it is gone."""
        deletion = self._deletion(call, resource, key, options)
        await run_update(deletion, WITHOUT_RESPONSE)
        assert deletion.result is not None
        return deletion.result, deletion.gone

    def _deletion(
        self, call: Call, resource: Resource, key: str, options: DeleteOptions
    ) -> Deletion:
        begin = self.beginnings.get(resource.collection.name)
        deletion = Deletion(self.writer.backend, call, resource, key, None, retried=True)
        deletion.options, deletion.begin = options, begin
        return deletion


# --- the stages -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Deletion(Update):
    """A stored object on its way through the stages of a delete."""

    options: DeleteOptions = field(init=False)
    begin: Callable[[Json], None] | None = field(init=False)
    """What to do with the object at its first delete request."""
    gone: bool = field(init=False)
    """Whether it is deleted, and not only marked; from `decide` on."""


def read(deletion: Deletion) -> None:
    """Look the newest state of the object up, and check the preconditions."""
    resource, row = deletion.resource, deletion.resource.collection.newest(deletion.key)
    kind, name = resource.kind, deletion.key.rpartition("/")[2]
    if row is None:
        raise not_found(kind, name)
    check_preconditions(kind, row, deletion.options)
    if resource.collection.name == "namespaces" and name in UNDELETABLE:
        raise forbidden(kind, name, "this namespace may not be deleted")
    if name in SYSTEM_CLASSES and kind.plural == "priorityclasses":
        raise forbidden(kind, name, "this is a system priority class and cannot be deleted")
    deletion.row, deletion.old = row, row.tree()


def restrict_node(deletion: Deletion) -> None:
    """Refuse a node that is about another one's object."""
    call, resource, row = deletion.call, deletion.resource, deletion.row
    deletion.attributes = Attributes(
        call, resource, "DELETE", row.namespace, row.name, None, deletion.old
    )
    deletion.attributes.options = options_tree(call, deletion.options)
    if resource is call.resource and not call.route.subresource:
        deletion.backend.admission.restrict_node(deletion.attributes)


def call_webhooks(deletion: Deletion) -> Awaitable[None]:
    """Ask the policies and webhooks, which may refuse the delete."""
    return deletion.backend.admission.call_webhooks(deletion.attributes)


def decide(deletion: Deletion) -> None:
    """Whether the object goes at once, or waits with a mark for finalizers or a grace period."""
    collection, kind, options = (
        deletion.resource.collection,
        deletion.resource.kind,
        deletion.options,
    )
    # Copies of what changes: reading the whole object again would take as long as all other stages.
    metadata = dict(deletion.old["metadata"])
    new = deletion.new = {**deletion.old, "metadata": metadata}
    if collection.name == "namespaces":
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
    if "deletionTimestamp" not in metadata and deletion.begin is not None:
        deletion.begin(new)
    finalizers = finalizers_after(metadata.get("finalizers") or [], options, kind)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = grace_of(collection.name, new, options)
    contents = collection.name == "namespaces" and (new.get("spec") or {}).get("finalizers")
    deletion.gone = not (finalizers or contents or grace > 0)
    if not deletion.gone or collection.name == "pods":
        mark(new, 0 if deletion.gone else grace, kind)


def store(deletion: Deletion) -> Awaitable[Row] | None:
    """Delete the object or accept its mark, and wait until that is on the disk."""
    collection, row, new = deletion.resource.collection, deletion.row, deletion.new
    if collection.newest(deletion.key) is not row:
        raise Outdated
    deletion.result = row
    if new == deletion.old and not deletion.gone:
        return earlier_write(deletion)
    if deletion.call.dry_run:
        deletion.result = would_be(row, new)
        return None
    if deletion.gone:
        write = collection.delete(new, row)
    else:
        write = collection.update(new, row, bounded=False)
    deletion.result = write.row
    return write.done


def answer(deletion: Deletion) -> Awaitable[None] | None:
    """Show the client the last state of its object; of most that are gone, only that they are."""
    call, row = deletion.call, deletion.result
    kind = call.route.kind
    assert row is not None
    if deletion.gone and not kind.strategy.returns_object_on_delete:
        deletion.response = call.respond(200, encode(success(kind, row.name, row.uid)))
    elif kind.conversion is not None:
        return _answer_converted(deletion, row, kind.conversion)
    else:
        show(deletion, row)
    return None


async def _answer_converted(deletion: Deletion, row: Row, conversion: ConvertedVersion) -> None:
    await conversion.ready([row])
    show(deletion, row)


def show(deletion: Deletion, row: Row) -> None:
    call = deletion.call
    deletion.response = call.respond(200, wanted(call.request.headers).object(call.resource, row))


DELETE: tuple[Step[Deletion], ...] = (
    read,
    restrict_node,
    call_webhooks,
    decide,
    store,
    answer,
)
"""From the newest state of the object to the response.  Nothing shortens this list, so that it does
not say what its steps depend on."""
WITHOUT_RESPONSE = DELETE[:-1]
"""For evictions, collections, and objects that the server itself deletes."""


# --- rules of single stages -----------------------------------------------------------------------


def would_be(row: Row, tree: Json) -> Row:
    """The row that a dry run shows."""
    return Row(
        row.id,
        row.namespace,
        row.name,
        row.uid,
        row.version,
        encode(tree),
        row.labels,
        row.fields,
        row.held,
    )


def check_preconditions(kind: Kind, row: Row, options: DeleteOptions) -> None:
    if options.uid and options.uid != row.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({row.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind, row.name, why, kind.kind)
    if options.version and options.version != str(row.version):
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({row.version}). The object might have been modified"
        )
        raise conflict(kind, row.name, why, kind.kind)


def finalizers_after(finalizers: list[str], options: DeleteOptions, kind: Kind) -> list[str]:
    """The finalizers, with those that the propagation policy adds."""
    policy = options.propagation
    if not policy:
        # What an earlier request or the object's author asked for stays.
        if ORPHAN in finalizers or FOREGROUND in finalizers:
            return finalizers
        policy = kind.strategy.default_propagation
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        return [*kept, ORPHAN]
    if policy == "Foreground":
        return [*kept, FOREGROUND]
    return kept


def grace_of(collection: str, tree: Json, options: DeleteOptions) -> int:
    """The grace period in seconds.  Only pods that are bound to a node have one."""
    if collection != "pods":
        return 0
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.grace
    if grace is None:
        grace = tree["metadata"].get("deletionGracePeriodSeconds")
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    return 1 if grace < 0 else int(grace)


def mark(tree: Json, grace: int, kind: Kind) -> None:
    """Set the deletion fields.  A second request may only shorten the grace period."""
    metadata = tree["metadata"]
    known = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in metadata:
        if known is None or grace >= known:
            return
        started = instant(metadata["deletionTimestamp"]) - known
        metadata["deletionTimestamp"] = stamp(max(started, 0) + grace)
        metadata["deletionGracePeriodSeconds"] = grace
        return
    metadata["deletionTimestamp"] = stamp(time.time() + grace)
    if kind.kind not in ("Namespace", "CustomResourceDefinition"):
        metadata["deletionGracePeriodSeconds"] = grace
    if "generation" in metadata and kind.kind != "CustomResourceDefinition":
        metadata["generation"] += 1
