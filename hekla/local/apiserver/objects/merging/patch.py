"""JSON patch (RFC 6902, with the peculiarities of Kubernetes' library) and merge patch (RFC 7386).

The functions do not change the patch, and JSON patch returns a tree that shares nothing with it,
because a patch is applied again after a conflicting write. Reference: local-cluster 2.5.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.trees import NESTED, Json, without_nulls
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging.strategic import apply_strategic

__all__ = ["apply_json", "apply_merge", "apply_strategic"]

WHOLE_DOCUMENT_OPERATIONS = ("replace", "test")
"""Operations that may have an empty path."""
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""How many bytes all `copy` operations of a patch may add; without a limit, a short patch can
double a tree again and again."""


class _DoesNotApply(Exception):
    """An operation whose path does not exist; clients get the same message for all of them."""


def apply_json(tree: Json, operations: Any) -> Any:
    """The patched tree. Raises BadBody: 422 if an operation cannot be applied, 400 if the patch is
    invalid."""
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
        if copied > MAX_COPIED_BYTES:
            raise BadBody(
                f"Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}",
                code=413,
                reason="RequestEntityTooLarge",
            )
    return document[""]


def _operate(document: Json, operation: Json) -> int:
    """Apply one operation in place; returns how many bytes it copied."""
    name = operation.get("op")
    if name in WHOLE_DOCUMENT_OPERATIONS and operation.get("path") == "":
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
        # A missing field is copied as null.
        copied = _copy(
            parent.get(source[-1]) if isinstance(parent, dict) else _step(parent, source[-1])
        )
        _add(document, path, copied)
        return len(msgspec.json.encode(copied))
    else:
        raise _DoesNotApply
    return 0


def _tokens(path: Any) -> list[str]:
    """The tokens of a JSON pointer, below the object that holds the document. Text before the first
    slash is ignored."""
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
    """A position in a list; a negative one counts from the end, as in Kubernetes' library."""
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
    actual = parent.get(path[-1]) if isinstance(parent, dict) else _step(parent, path[-1])
    if not same(actual, value):
        raise _DoesNotApply


def same(first: Any, second: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def apply_merge(tree: Any, patch: Any) -> Any:
    """RFC 7386: members replace, nulls remove, lists are replaced as a whole. The result shares
    unchanged and replaced values with tree and patch."""
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
