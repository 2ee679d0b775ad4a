"""How a mutation changes an object: apply configuration or JSON patch, with Kubernetes' messages."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging import merging, topology
from hekla.local.apiserver.objects.merging import patch as patches
from hekla.local.apiserver.objects.merging.topology import LEAF, Node, children_of


class Unfit(Exception):
    """A mutation that cannot be applied; the failure policy decides what happens."""


def plain(value: Any) -> Any:
    """A CEL value as JSON."""
    from hekla.cel.values import Duration, Optional, Timestamp

    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, (Timestamp, Duration)):
        return str(value)
    if isinstance(value, Optional):
        return plain(value.value) if value.present else None
    raise Unfit(
        "type mismatch: JSONPath valueExpression evaluated to a type that could not marshal to JSON"
    )


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


# --- apply configurations -------------------------------------------------------------------------


def applied(kind: Kind, tree: Json, configuration: Any) -> Json:
    """The object merged with an apply configuration. Raises Unfit."""
    wrong = misnamed(configuration, "Object")
    if wrong:
        raise Unfit(f"type mismatch: {wrong}")
    made = {**plain(configuration), "apiVersion": tree["apiVersion"], "kind": tree["kind"]}
    node = node_of(kind)
    try:
        mistakes = merging.check(node, made)
        if mistakes:
            raise Unfit(
                f"error applying patch: failed to convert patch object to typed object: {'; '.join(mistakes)}"
            )
        whole = sorted(atomics(node, made, ""))
        if whole:
            why = f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {', '.join(whole)}"
            raise Unfit(f"error applying patch: {why}")
        merged: Json = merging.merge(node, tree, made)
    except merging.Unmergeable as error:
        raise Unfit(f"error applying patch: failed to merge patch: {error}") from error
    return merged


def node_of(kind: Kind) -> Node:
    """The topology of a kind."""
    if kind.custom:
        return topology.of_schema(kind.schema or {}, root=True)
    return topology.of_kind(fields.section_of(kind.group, kind.version), kind.kind)


def misnamed(value: Any, path: str) -> str:
    """Why an object literal has a type that does not match its position; empty if it does."""
    if isinstance(value, dict):
        name = getattr(value, "kind", None)
        if name is not None and name != path:
            return f'unexpected type name "{name}", expected "{path}", which matches field name path from root Object type'
        for key, item in value.items():
            if (reason := misnamed(item, f"{path}.{key}")) != "":
                return reason
    elif isinstance(value, list):
        for item in value:
            if (reason := misnamed(item, path)) != "":
                return reason
    return ""


def atomics(node: Node, value: Any, path: str) -> list[str]:
    """The paths of lists and maps in a configuration that are owned as a whole: setting a part of
    one would lose the rest."""
    shape = children_of(node, value)
    if isinstance(value, dict):
        if shape.kind is LEAF:
            return [path]
        children = shape.open()
        paths: list[str] = []
        for name, item in value.items():
            child = children.get(name, shape.element)
            if child is not None:
                paths += atomics(child, item, f"{path}.{name}")
        return paths
    if isinstance(value, list):
        if shape.kind is LEAF:
            return [path]
        return [
            one
            for item in value
            if shape.element is not None
            for one in atomics(shape.element, item, path)
        ]
    return []


# --- JSON patches ---------------------------------------------------------------------------------


def patched(tree: Json, operations: Any) -> Json | None:
    """The patched tree, None if a `test` operation failed. Raises Unfit."""
    if not isinstance(operations, list):
        raise Unfit("type mismatch: JSONPatchType.expression should evaluate to array")
    for operation in operations:
        document = _operation(operation)
        why = _misplaced(tree, document)
        if why:
            raise Unfit(f"JSON Patch: {why}")
        try:
            tree = patches.apply_json(tree, [document])
        except BadBody as error:
            if document.get("op") == "test":
                return None
            raise Unfit(f"JSON Patch: {error}") from error
    return tree


def _operation(value: Any) -> Json:
    if not isinstance(value, dict):
        raise Unfit(
            f"type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {type(value).__name__}"
        )
    operation: Json = plain(value)
    if operation.get("op") in ("add", "replace", "test"):
        operation.setdefault("value", None)
    return operation


_MISSING = "missing value"


def _misplaced(tree: Json, operation: Json) -> str:
    """Why the path of an operation does not exist, in the message of Kubernetes' library."""
    op, path = str(operation.get("op")), str(operation.get("path") or "")
    parent, key = _parent(tree, path)
    if op == "add" and parent is None and path:
        return f'add operation does not apply: doc is missing path: "{path}": {_MISSING}'
    if op == "remove":
        if parent is None:
            return f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}'
        if isinstance(parent, dict) and key not in parent:
            return f"error in remove for path: '{path}': Unable to remove nonexistent key: {key}: {_MISSING}"
        if isinstance(parent, list) and not _inside(parent, key):
            return f"error in remove for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
    if op == "replace":
        if parent is None and path:
            return f"replace operation does not apply: doc is missing path: {path}: {_MISSING}"
        if (isinstance(parent, dict) and key not in parent) or (
            isinstance(parent, list) and not _inside(parent, key)
        ):
            return f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
    if op in ("move", "copy"):
        source = str(operation.get("from") or "")
        holder, name = _parent(tree, source)
        if holder is None or (isinstance(holder, dict) and name not in holder):
            return f"{op} operation does not apply: doc is missing from path: {source}: {_MISSING}"
    if op not in ("add", "remove", "replace", "move", "copy", "test"):
        return f"Unexpected kind: {op}"
    return ""


def _inside(items: list[Any], key: str) -> bool:
    return key.lstrip("-").isdigit() and -len(items) <= int(key) < len(items)


def _parent(tree: Any, path: str) -> tuple[Any, str]:
    """The parent of the value that a pointer refers to, None if it does not exist; and the last
    token."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    if not parts:
        return None, ""
    node = tree
    for part in parts[:-1]:
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and _inside(node, part):
            node = node[int(part)]
        else:
            return None, parts[-1]
    return (node if isinstance(node, (dict, list)) else None), parts[-1]
