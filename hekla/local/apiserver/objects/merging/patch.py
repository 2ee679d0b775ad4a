"""JSON patch (RFC 6902, with the habits of Kubernetes' library) and merge patch (RFC 7386).

All functions leave the patch as it is and return a tree that shares nothing with it, because a
patch is applied again when another write came between.  Reference: local-cluster 2.5.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.trees import NESTED, Json, without_nulls
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging.strategic import apply_strategic

__all__ = ["apply_json", "apply_merge", "apply_strategic"]

WHOLE = ("replace", "test")
"""Operations that can be about the whole tree."""
LARGEST_COPY = 3 * 1024 * 1024
"""Bytes that all `copy` operations of one patch may add; without a bound a short patch doubles a
tree without end."""


class _DoesNotApply(Exception):
    """An operation that finds no place; the client hears one sentence for all of them."""


def apply_json(tree: Json, operations: Any) -> Any:
    """The patched tree.  Raises BadBody: 422 when an operation does not apply, 400 when it is none."""
    if not isinstance(operations, list):
        raise BadBody(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    document = {"": tree}
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise BadBody(
                "error decoding patch: json: cannot unmarshal array into Go value of type jsonpatch.Operation"
            )
        try:
            copied += _operate(document, operation)
        except (_DoesNotApply, RecursionError):
            raise BadBody(
                "the server rejected our request due to an error in our request",
                code=422,
                reason="Invalid",
            ) from None
        if copied > LARGEST_COPY:
            raise BadBody(
                f"Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {LARGEST_COPY}",
                code=413,
                reason="RequestEntityTooLarge",
            )
    return document[""]


def _operate(document: Json, operation: Json) -> int:
    """Applies one operation in place; returns how many bytes it copied."""
    name = operation.get("op")
    if name in WHOLE and operation.get("path") == "":
        path = [""]
    else:
        path = _tokens(operation.get("path"))
    value = operation.get("value")
    if name == "add":
        _add(document, path, _copy(value))
    elif name == "replace":
        _replace(document, path, _copy(value))
    elif name == "remove":
        _remove(document, path)
    elif name == "test":
        _test(document, path, value)
    elif name == "move":
        source = _tokens(operation.get("from"))
        if path[: len(source)] == source and path != source:
            raise _DoesNotApply
        moved = _find(document, source)
        _remove(document, source)
        _add(document, path, moved)
    elif name == "copy":
        source = _tokens(operation.get("from"))
        parent = _find(document, source[:-1])
        # What an object does not have is copied as null.
        found = _copy(
            parent.get(source[-1]) if isinstance(parent, dict) else _step(parent, source[-1])
        )
        _add(document, path, found)
        return len(msgspec.json.encode(found))
    else:
        raise _DoesNotApply
    return 0


def _tokens(path: Any) -> list[str]:
    """A JSON pointer's parts under the document's holder; what stands before the first slash says
    nothing."""
    if not isinstance(path, str) or "/" not in path:
        raise _DoesNotApply
    return ["", *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])]


def _step(parent: Any, token: str) -> Any:
    if isinstance(parent, dict):
        if token in parent:
            return parent[token]
    elif isinstance(parent, list):
        return parent[_index(token, len(parent))]
    raise _DoesNotApply


def _index(token: str, length: int) -> int:
    """A position in a list; negative ones count from the end, as Kubernetes' library has it."""
    digits = token.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise _DoesNotApply
    position = int(token)
    if position < 0:
        position += length
    if not 0 <= position < length:
        raise _DoesNotApply
    return position


def _find(document: Json, path: list[str]) -> Any:
    node: Any = document
    for token in path:
        node = _step(node, token)
    return node


def _add(document: Json, path: list[str], value: Any) -> None:
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise _DoesNotApply


def _replace(document: Json, path: list[str], value: Any) -> None:
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent[_index(last, len(parent))] = value
    else:
        raise _DoesNotApply


def _remove(document: Json, path: list[str]) -> None:
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent))]
    else:
        raise _DoesNotApply


def _test(document: Json, path: list[str], value: Any) -> None:
    parent = _find(document, path[:-1])
    found = parent.get(path[-1]) if isinstance(parent, dict) else _step(parent, path[-1])
    if not same(found, value):
        raise _DoesNotApply


def same(one: Any, other: Any) -> bool:
    """Equality of JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def apply_merge(tree: Any, patch: Any) -> Any:
    """RFC 7386: members replace, nulls remove, lists replace whole.  The result shares with both
    what it takes over whole."""
    try:
        return _merge(tree, patch)
    except RecursionError:
        raise BadBody("error decoding patch: nested too deeply") from None


def _merge(tree: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch if isinstance(tree, dict) else without_nulls(patch)
    result = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            key: _copy(value) if type(value) in NESTED else value for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_copy(item) if type(item) in NESTED else item for item in tree]
    return tree
