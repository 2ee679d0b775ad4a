"""pods/binding: puts a pod on a node.

A scheduler binds thousands of pods a second, so of the pod only metadata and status are decoded; the
spec keeps its bytes and gets the node's name at its end.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.conditions import set_condition
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.status import (
    CREATED,
    Refusal,
    bad_request,
    conflict,
    not_found,
)
from hekla.local.apiserver.storage.collection import Collection, Write
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row, decode, encode, split
from hekla.local.apiserver.write.stages import Backend, committed

BODY = reader("", "v1", "Binding")


class Binding(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a binding, for a fast look.  What does not fit is read in full, which finds the
    words for what is wrong."""

    metadata: dict[str, object] = {}
    target: dict[str, object] = {}
    kind: str = "Binding"
    apiVersion: str = "v1"


async def bind(backend: Backend, call: Call, name: str) -> Response:
    """POST pods/<name>/binding, or bindings with the pod's name in the body."""
    tree = read_binding(call)
    metadata = tree.get("metadata") or {}
    name = name or metadata.get("name") or ""
    node = node_of(tree)
    if metadata.get("name") and metadata["name"] != name:
        raise bad_request("name in URL does not match name in Binding object")
    pods, admission, namespace = backend.registry["pods"], backend.admission, call.route.namespace
    attributes = Attributes(call, pods, "CREATE", namespace, name, tree, None, "binding")
    admission.restrict_node(attributes)
    await admission.call_webhooks(attributes)
    assert attributes.object is not None
    metadata = attributes.object.get("metadata") or {}
    row = bindable(pods, f"{namespace}/{name}", metadata.get("uid"))
    if not call.dry_run:
        await committed(put_on_node(pods.collection, row, node, metadata).done)
    return call.respond(201, CREATED)


def read_binding(call: Call) -> Json:
    """The body of the request."""
    if call.media_type == "application/json" and not call.request.query:
        try:
            found = msgspec.json.decode(call.request.body, type=Binding)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return {"metadata": found.metadata, "target": found.target}
    return decode_body(call, BODY)


def node_of(binding: Json) -> str:
    """The name of the node.  Raises Refusal where there is none."""
    target = binding.get("target")
    if not isinstance(target, dict):
        target = {}
    node, kind = target.get("name"), target.get("kind")
    if not isinstance(node, str) or not node:
        raise Refusal(500, "target.name: Required value", reason="", details=None)
    if kind not in (None, "", "Node"):
        text = f'target.kind: Unsupported value: {json.dumps(kind)}: supported values: "Node", "<empty>"'
        raise Refusal(500, text, reason="", details=None)
    return node


def bindable(pods: Resource, key: str, uid: Any) -> Row:
    """The pod, if it can be bound.  Raises Refusal."""
    collection, name = pods.collection, key.rpartition("/")[2]
    row = collection.newest(key)
    if row is None:
        raise not_found(pods.kind, name)
    if uid and uid != row.uid:
        raise conflict(
            pods.kind,
            name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {row.uid}",
        )
    node, why = row.fields[collection.positions["spec.nodeName"]], ""
    if node:
        why = f'pod {name} is already assigned to node "{node}"'
    elif b'"deletionTimestamp"' in row.data and "deletionTimestamp" in row.tree()["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif b'"schedulingGates"' in row.data and row.tree()["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict(pods.kind, name, why, "pods/binding")
    return row


def put_on_node(collection: Collection, row: Row, node: str, binding: Json) -> Write:
    """Put the pod on its node, with the labels and annotations of the binding's metadata."""
    pieces = split(row.data)
    metadata: Json = decode(pieces["metadata"])
    for field in ("annotations", "labels"):
        if binding.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **binding[field]}
    status: Json = decode(pieces["status"]) if "status" in pieces else {}
    set_condition(status, "PodScheduled", "True", probed=True)
    tree = {"metadata": metadata, "status": status}
    kept = {**pieces, "spec": msgspec.Raw(with_node(bytes(pieces["spec"]), node))}
    fields = list(row.fields)
    fields[collection.positions["spec.nodeName"]] = node  # the only selectable field that changes
    return collection.update(tree, row, kept=kept, fields=tuple(fields), counts=False)


def with_node(spec: bytes, node: str) -> bytes:
    """A spec with the name of its node."""
    if can_be_extended(spec):
        return b'%b,"nodeName":%b}' % (spec[:-1], encode(node))
    tree: Json = decode(spec)
    tree["nodeName"] = node
    return encode(tree)


def can_be_extended(spec: bytes) -> bool:
    """Whether a field `nodeName` can be written behind the others."""
    return spec != b"{}" and b'"nodeName"' not in spec
