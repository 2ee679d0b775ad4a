"""PATCH: which of the patch languages a body is in, and what it is applied to."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.encoding.typecheck import type_name
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.objects.merging import patch as patches
from hekla.local.apiserver.objects.merging import restored
from hekla.local.apiserver.request import bodies
from hekla.local.apiserver.request.call import Call, read_again
from hekla.local.apiserver.request.status import Refusal, bad_request, invalid_option, not_found
from hekla.local.apiserver.request.subresources import SCALE, Subresources
from hekla.local.apiserver.write import partial_update as parts
from hekla.local.apiserver.write.applying import apply_patch
from hekla.local.apiserver.write.outcome import committed, response_with
from hekla.local.apiserver.write.writing import Writer

JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


METADATA = frozenset({"metadata"})


def unsupported(kind: Kind) -> Refusal:
    if kind.merge_keys is not None:
        return Refusal(415, "415: Unsupported Media Type", details={})
    types = ", ".join((JSON_PATCH, MERGE, APPLY))
    return Refusal(
        415,
        f"the body of the request was in an unknown format - accepted media types include: {types}",
    )


async def patch(writer: Writer, subresources: Subresources, call: Call) -> Response:
    kind = call.route.kind
    media = call.media_type
    if media == APPLY:
        return await apply_patch(writer, subresources, call)
    if media not in (JSON_PATCH, MERGE, STRATEGIC) or (
        media == STRATEGIC and kind.merge_keys is None
    ):
        raise unsupported(kind)
    if call.request.option("force"):
        forbidden = FieldError(
            "force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch"
        )
        raise invalid_option("PatchOptions", [forbidden])
    cached_patch = writer.status_patch_cache.read(call, media)
    if cached_patch is not None:
        write = writer.status_patch_cache.write(call, cached_patch)
        if write is not None:
            return response_with(call, 200, await committed(write), {})
    document = read_patch(call.request.body, media)
    sets_managed_fields = b"managedFields" in call.request.body
    if call.route.subresource == "scale":
        return await patch_scale(subresources, call, document, media)

    fresh: list[Any] = [document]
    named = touched(document)

    def change(old: Json) -> Json:
        # What comes of a patch may share with it, and is changed later: each attempt has one of its
        # own.
        document = fresh.pop() if fresh else read_patch(call.request.body, media)
        if sets_managed_fields:
            row = call.resource.collection.newest(call.route.key)
            if row is not None and row.owners is not None:
                old["metadata"]["managedFields"] = row.managed()
        stays = not old[
            "metadata"
        ]  # as the bytes that it is: the patch says of it whose status this is (parts.py)
        new = apply(kind, old, document, media)
        if stays:
            new["metadata"] = {}
        changed = (
            named - METADATA
            if named is not None and (stays or only_names(document, old))
            else named
        )
        emptied = (
            sets_managed_fields
            and isinstance(new.get("metadata"), dict)
            and new["metadata"].get("managedFields") == []
        )
        try:
            new = read_again(call, kind, new, changed)
        except Refusal as refusal:
            row = call.resource.collection.newest(call.route.key)
            if row is None:
                raise
            old = row.tree()  # what was read again may have lost fields by that
            if kind.present is not None:
                old = kind.present(old)
            patched = apply(kind, old, read_patch(call.request.body, media), media)
            raise unfit(kind, patched, refusal, misfit(kind, patched, media)) from refusal
        if emptied:
            new["metadata"]["managedFields"] = []
        return new

    said = document.get("metadata") if isinstance(document, dict) else None
    row = None if sets_managed_fields else await parts.modify(writer, call, change, named, said)
    if row is not None:
        if cached_patch is not None:
            writer.status_patch_cache.learn(call, cached_patch, row)
        return response_with(call, 200, row, {})
    names_version = isinstance(said, dict) and bool(said.get("resourceVersion"))
    return await writer.modify(call, change, retry=not names_version)


def misfit(kind: Kind, patched: Json, media: str) -> str | None:
    """The first thing that is wrong with the outcome of a patch, in the order in which it is read
    again."""
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
    """What is said of a patch that makes no object of the kind: with the whole of what it makes, as
    Kubernetes does."""
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
    """The types of what a JSON patch says of one operation."""
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
    """The patched tree; raises what the patch language says of a patch that does not fit."""
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
    """The fields at the top of an object that a patch may change; None for what cannot be told from
    its own top."""
    if not isinstance(document, dict) or any(name.startswith("$") for name in document):
        return None
    return frozenset(document) | {"kind", "apiVersion"}


def only_names(document: Json, old: Json) -> bool:
    """Whether a patch leaves metadata as it is: patches of a status name the uid of their object,
    and no more."""
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
        scale = bodies.SCALE(
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
