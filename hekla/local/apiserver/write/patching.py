"""PATCH: reads a body in one of the patch languages and applies it."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.encoding.typecheck import type_name
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging import patch as patches
from hekla.local.apiserver.objects.merging import restored
from hekla.local.apiserver.request.call import Call, read_again
from hekla.local.apiserver.request.status import Refusal, bad_request, invalid_option, not_found
from hekla.local.apiserver.request.subresources import READ_SCALE, SCALE, Subresources
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.write.applying import apply_patch
from hekla.local.apiserver.write.partial_update import METADATA, PartialUpdate
from hekla.local.apiserver.write.stages import Backend
from hekla.local.apiserver.write.writing import Writer, update_of

JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def unsupported(kind: Kind) -> Refusal:
    if kind.merge_keys is not None:
        return Refusal(415, "415: Unsupported Media Type", details={})
    types = ", ".join((JSON_PATCH, MERGE, APPLY))
    return Refusal(
        415,
        f"the body of the request was in an unknown format - accepted media types include: {types}",
    )


async def patch(writer: Writer, subresources: Subresources, call: Call) -> Response:
    """PATCH on an object or one of its subresources."""
    kind = call.route.kind
    media = call.media_type
    if media == APPLY:
        return await apply_patch(writer, subresources, call)
    if media not in (JSON_PATCH, MERGE, STRATEGIC) or (
        media == STRATEGIC and kind.merge_keys is None
    ):
        raise unsupported(kind)
    if call.request.option("force"):
        forbidden = fielderrors.forbidden("force", "may not be specified for non-apply patch")
        raise invalid_option("PatchOptions", [forbidden])
    if call.route.subresource == "scale":
        return await patch_scale(subresources, call, read_patch(call.request.body, media), media)
    return await writer.status_patch_cache.patch(
        call, media, lambda: patch_update(writer.backend, call, media)
    )


def patch_update(backend: Backend, call: Call, media: str) -> PartialUpdate:
    """The update that a patch asks for.  Raises Refusal where the patch cannot be read."""
    patch = Patch(call, media)
    metadata = patch.metadata
    names_version = isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))
    update = update_of(backend, call, patch.change, retried=not names_version)
    update.said_of_metadata = metadata
    update.touched = None if patch.sets_managed_fields else patch.touched
    return update


class Patch:
    """A patch that can be applied repeatedly, whenever another write has changed the object."""

    def __init__(self, call: Call, media: str) -> None:
        self.call = call
        self.kind = call.route.kind
        self.media = media
        document = read_patch(call.request.body, media)
        self.metadata = document.get("metadata") if isinstance(document, dict) else None
        """The metadata in the patch."""
        self.touched = touched(document)
        self.sets_managed_fields = b"managedFields" in call.request.body
        self._unused: list[Any] = [document]

    def change(self, old: Json) -> Json:
        """Apply the patch to an object and decode the result like a request body.  Raises Refusal."""
        # What comes of a document may share with it, and is changed later: each attempt has its own.
        document = self._unused.pop() if self._unused else self._document()
        if self.sets_managed_fields:
            row = self._newest()
            if row is not None and row.owners is not None:
                old["metadata"]["managedFields"] = row.managed()
        # An empty one stays bytes: the patch only says which object it is about.
        keeps_metadata = not old["metadata"]
        new = apply(self.kind, old, document, self.media)
        if keeps_metadata:
            new["metadata"] = {}
        changed = self.touched
        if changed is not None and (keeps_metadata or only_names(document, old)):
            changed -= METADATA
        metadata = new.get("metadata")
        resets_owners = (
            self.sets_managed_fields
            and isinstance(metadata, dict)
            and metadata.get("managedFields") == []
        )
        try:
            new = read_again(self.call, self.kind, new, changed)
        except Refusal as refusal:
            row = self._newest()
            if row is None:
                raise
            raise self._unfit(row, refusal) from refusal
        if resets_owners:
            new["metadata"]["managedFields"] = []
        return new

    def _newest(self) -> Row | None:
        return self.call.resource.collection.newest(self.call.route.key)

    def _document(self) -> Any:
        return read_patch(self.call.request.body, self.media)

    def _unfit(self, row: Row, refusal: Refusal) -> Refusal:
        """The refusal of a patch whose result cannot be decoded."""
        old = row.tree()  # what was read again may have lost fields by that
        if self.kind.present is not None:
            old = self.kind.present(old)
        patched = apply(self.kind, old, self._document(), self.media)
        return unfit(self.kind, patched, refusal, misfit(self.kind, patched, self.media))


def misfit(kind: Kind, patched: Json, media: str) -> str | None:
    """The first error in a patched object, in the order in which it is decoded."""
    if media == STRATEGIC:
        return restored.misfit(patched, kind.group, kind.version, kind.kind)
    if kind.decode is not None:
        try:
            kind.decode(
                msgspec.json.encode(patched, order="deterministic"), "application/json", "Ignore"
            )
        except BadBody as error:
            return str(error).rpartition(f"cannot be handled as a {kind.kind}: ")[2]
    return None


def unfit(kind: Kind, patched: Json, refusal: Refusal, why: str | None = None) -> Refusal:
    """The refusal of a patch whose result is no valid object of the kind.  As in Kubernetes, it
    quotes the whole result."""
    if refusal.code != 400:
        return refusal
    why = why or str(refusal).rpartition(f"cannot be handled as a {kind.kind}: ")[2]
    shown = msgspec.json.encode(msgspec.json.encode(patched).decode()).decode()
    text = f"Invalid value: {shown}: {why}"
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": "patch"}]
    return Refusal(422, f' "" is invalid: patch: {text}', details={"causes": causes})


def read_patch(body: bytes, media: str) -> Any:
    prefix = "" if media == STRATEGIC else "error decoding patch: "
    try:
        document = documents.json_tree(body)
    except BadBody as error:
        raise bad_request(f"{prefix}{error}") from error
    if media == JSON_PATCH:
        if not isinstance(document, list):
            what = type_name(document)
            raise bad_request(
                f"{prefix}json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp"
            )
        for operation in document:
            check_operation(operation)
        if len(document) > 10000:
            raise Refusal(
                413,
                f"The allowed maximum operations in a JSON patch is 10000, got {len(document)}",
                details={},
            )
    elif document is None:
        if media == MERGE:
            raise bad_request("Invalid JSON Patch")
        return {}
    elif not isinstance(document, dict):
        raise bad_request(
            f"{prefix}json: cannot unmarshal {type_name(document)} into Go value of type map[string]interface {{}}"
        )
    return document


def check_operation(operation: Any) -> None:
    """Check the types of an operation's fields in a JSON patch.  Raises Refusal."""
    wrong = "error decoding patch: json: cannot unmarshal"
    if not isinstance(operation, dict):
        if operation is not None:
            raise bad_request(
                f"{wrong} {type_name(operation)} into Go value of type handlers.jsonPatchOp"
            )
        return
    for name in ("op", "path", "from"):
        value = operation.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"{wrong} {type_name(value)} into Go struct field jsonPatchOp.{name} of type string"
            )


def apply(kind: Kind, old: Json, document: Any, media: str) -> Json:
    """Apply a patch to an object.  Raises Refusal with the patch language's error."""
    typed = {"kind": kind.kind, "apiVersion": kind.api_version, **old}
    try:
        if media == JSON_PATCH:
            new = patches.apply_json(typed, document)
        elif media == MERGE:
            new = patches.apply_merge(typed, document)
        else:
            new = patches.apply_strategic(typed, document, kind.merge_keys)
    except BadBody as error:
        raise Refusal(error.code, str(error), reason=error.reason, details={}) from error
    if not isinstance(new, dict):
        raise Refusal(
            422, "the server rejected our request due to an error in our request", details={}
        )
    return new


def touched(document: Any) -> frozenset[str] | None:
    """The top-level fields that a patch may change; None if its top level does not tell."""
    if not isinstance(document, dict) or any(name.startswith("$") for name in document):
        return None
    return frozenset(document) | {"kind", "apiVersion"}


def only_names(document: Json, old: Json) -> bool:
    """Whether a patch leaves metadata as it is.  Patches of a status often name the uid of their
    object, and no more."""
    said, metadata = document.get("metadata"), old["metadata"]
    return isinstance(said, dict) and all(
        type(value) is str and metadata.get(name) == value for name, value in said.items()
    )


async def patch_scale(
    subresources: Subresources, call: Call, document: Any, media: str
) -> Response:
    row = call.resource.collection.newest(call.route.key)
    if row is None:
        raise not_found(call.route.kind, call.route.name)
    scale = subresources.scale_of(call, row)
    try:
        if media == JSON_PATCH:
            patched = patches.apply_json(scale, document)
        else:
            patched = patches.apply_merge(scale, document)
    except BadBody as error:
        raise Refusal(error.code, str(error), reason=error.reason, details={}) from error
    try:
        scale = READ_SCALE(
            msgspec.json.encode(patched), "application/json", call.field_validation
        ).tree
    except BadBody as error:
        raise unfit(SCALE, patched, Refusal(error.code, str(error), reason=error.reason)) from error
    given = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(scale.get("metadata"), dict) and not (
        isinstance(given, dict) and given.get("resourceVersion")
    ):
        scale["metadata"].pop("resourceVersion", None)
    return await subresources.put_scale(call, scale)
