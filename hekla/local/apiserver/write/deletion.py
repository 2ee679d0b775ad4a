"""delete and deletecollection: grace periods, finalizers, propagation to dependents (local-cluster
2.4)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec

from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.admission import UNDELETABLE
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.request.call import Call, read_body
from hekla.local.apiserver.request.forms import wanted
from hekla.local.apiserver.request.reading import selected
from hekla.local.apiserver.request.selection import select
from hekla.local.apiserver.request.status import (
    Refusal,
    bad_request,
    conflict,
    forbidden,
    invalid_option,
    method_not_allowed,
    not_found,
    success,
)
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.store import Row, encode
from hekla.local.apiserver.write.stages import committed
from hekla.local.apiserver.write.updating import ATTEMPTS
from hekla.local.apiserver.write.writing import Writer

TOGETHER = 256
"""Objects of a collection that are deleted concurrently."""
SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
BODY = reader("meta.k8s.io", "v1", "DeleteOptions", any_version=True)
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a delete, from the query or the body."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


def read_options(call: Call) -> DeleteOptions:
    """Read the options from the body if there is one, else from the query."""
    request = call.request
    body: Json = {}
    if request.body:
        body = decode_options(call)
    grace: Any = body.get("gracePeriodSeconds")
    if grace is None and request.option("gracePeriodSeconds"):
        try:
            grace = int(request.option("gracePeriodSeconds"))
        except ValueError as error:
            raise bad_request(
                f'strconv.ParseInt: parsing "{request.option("gracePeriodSeconds")}": invalid syntax'
            ) from error
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )
    propagation: Any = body.get("propagationPolicy") or request.option("propagationPolicy")
    orphan: Any = body.get("orphanDependents")
    if orphan is None and request.option("orphanDependents"):
        orphan = request.flag("orphanDependents")
    errors: list[FieldError] = []
    if orphan is not None and propagation:
        text = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
        errors.append(FieldError("propagationPolicy", "FieldValueInvalid", text))
    elif propagation and propagation not in ("Orphan", "Background", "Foreground"):
        text = f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", "Orphan", "nil"'
        errors.append(FieldError("propagationPolicy", "FieldValueNotSupported", text))
    dry_run = body.get("dryRun")
    if dry_run:
        if dry_run != ["All"]:
            shown = msgspec.json.encode(dry_run).decode()
            errors.append(
                FieldError(
                    "dryRun",
                    "FieldValueNotSupported",
                    f'Unsupported value: {shown}: supported values: "All"',
                )
            )
        call.dry_run = True
    if errors:
        raise invalid_option("DeleteOptions", errors)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    wanted = body.get("preconditions") or {}
    return DeleteOptions(
        grace, propagation or "", wanted.get("uid") or "", wanted.get("resourceVersion") or ""
    )


UNRECOGNIZED = "the object provided is unrecognized (must be of type DeleteOptions): "


def _unread(text: str) -> str:
    """The error message for options that cannot be read.  Unlike that of an object, it does not
    name the kind that was expected."""
    if text.startswith(UNRECOGNIZED):
        return text.removeprefix(UNRECOGNIZED).rpartition(" (")[0]
    why = text.rpartition("cannot be handled as a DeleteOptions: ")[2]
    other = re.match(r"converting \((\w+)\.(\w+)\) to ", why)
    return (
        f'no kind "{other[2]}" is registered for version "{other[1]}" in scheme "pkg/runtime/scheme.go:111"'
        if other
        else why
    )


def decode_options(call: Call) -> Json:
    try:
        tree = read_body(call, BODY)
    except Refusal as refusal:
        raise Refusal(refusal.code, _unread(str(refusal))) from refusal
    if not isinstance(tree.get("preconditions") or {}, dict):
        raise bad_request(
            "json: cannot unmarshal array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"
        )
    return tree


class Deleter:
    """Deletes objects."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.admission = writer.admission
        self.beginnings: dict[str, Callable[[Json], None]] = {}
        """Collection -> what to do with an object at its first delete request."""

    async def delete(self, call: Call) -> Response:
        options = read_options(call)
        if call.resource.collection.name == "jobs.batch" and not options.propagation:
            call.warn(JOB_WARNING)
        row, gone = await self.remove(call, call.resource, call.route.key, options)
        kind = call.route.kind
        if gone and not kind.strategy.returns_object_on_delete:
            return call.respond(200, encode(success(kind, row.name, row.uid)))
        if kind.conversion is not None:
            await kind.conversion.ready([row])
        return call.respond(200, wanted(call.request.headers).object(call.resource, row))

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
        kind, collection = resource.kind, resource.collection
        name = key.rpartition("/")[2]
        for attempt in range(ATTEMPTS):
            row = collection.newest(key)
            if row is None:
                raise not_found(kind, name)
            check_preconditions(kind, row, options)
            if collection.name == "namespaces" and name in UNDELETABLE:
                raise forbidden(kind, name, "this namespace may not be deleted")
            if name in SYSTEM_CLASSES and kind.plural == "priorityclasses":
                raise forbidden(kind, name, "this is a system priority class and cannot be deleted")
            old = row.tree()
            attributes = Attributes(call, resource, "DELETE", row.namespace, row.name, None, old)
            attributes.options = delete_options_tree(call, options)
            if resource is call.resource and not call.route.subresource:
                self.admission.restrict_node(attributes)
            if self.admission.mutating_webhooks(attributes):
                await self.admission.call_mutating(attributes)
            if self.admission.validating_webhooks(attributes):
                await self.admission.call_validating(attributes)
            if collection.newest(key) is not row:
                if attempt == ATTEMPTS - 1:
                    raise conflict(kind, name)
                continue
            return await self._remove(call, resource, row, old, options)
        raise AssertionError("the loop above ends by return or raise")

    async def _remove(
        self, call: Call, resource: Resource, row: Row, tree: Json, options: DeleteOptions
    ) -> tuple[Row, bool]:
        collection, kind = resource.collection, resource.kind
        before = encode(tree)
        metadata = tree["metadata"]
        if collection.name == "namespaces":
            self._terminate_namespace(tree)
        if (
            "deletionTimestamp" not in metadata
            and (begin := self.beginnings.get(collection.name)) is not None
        ):
            begin(tree)
        finalizers = finalizers_after(metadata.get("finalizers") or [], options, kind)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        grace = grace_of(collection.name, tree, options)
        contents = collection.name == "namespaces" and bool(
            (tree.get("spec") or {}).get("finalizers")
        )
        waits = bool(finalizers) or contents or grace > 0
        if not waits:
            if collection.name == "pods":
                mark(tree, 0, kind)
            if call.dry_run:
                return would_be(row, tree), True
            return await committed(collection.delete(tree, row).done), True
        mark(tree, grace, kind)
        if encode(tree) == before:
            pending = collection.overlay.get(row.key)
            if pending is not None:
                await committed(pending.done)
            return row, False
        if call.dry_run:
            return would_be(row, tree), False
        return await committed(collection.update(tree, row, bounded=False).done), False

    def _terminate_namespace(self, tree: Json) -> None:
        tree.setdefault("status", {})["phase"] = "Terminating"


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


def delete_options_tree(call: Call, options: DeleteOptions) -> Json:
    """The options as webhooks get them."""
    tree: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace is not None:
        tree["gracePeriodSeconds"] = options.grace
    if options.propagation:
        tree["propagationPolicy"] = options.propagation
    if call.dry_run:
        tree["dryRun"] = ["All"]
    return tree


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
