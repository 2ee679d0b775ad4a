"""Sets of fields in the form of managedFields: a tree of path elements (`f:name`, `k:{...}`,
`v:...`).

A tree is a plain dictionary. An element without children is a member of the set; one with children
is a member if they include `.`. No function changes its arguments, except `insert`; results may
share parts with them. Reference: local-cluster 2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hekla.local.apiserver.objects.merging.topology import ANY, KEYED, MAP, SET, Node, children_of

Tree = dict[str, Any]
Path = tuple[str, ...]
SELF = "."

decode = msgspec.json.decode
_encode = msgspec.json.Encoder(order="sorted").encode


def text(tree: Tree) -> bytes:
    """The set as canonical JSON: equal sets give equal bytes."""
    return _encode(tree)


def from_paths(paths: Iterable[Path]) -> Tree:
    """The set of these paths."""
    tree: Tree = {}
    for path in paths:
        insert(tree, path)
    return tree


def insert(tree: Tree, path: Path) -> None:
    """Make a path a member, in place."""
    if not path:
        return
    for element in path[:-1]:
        inner = tree.get(element)
        if inner is None:
            inner = tree[element] = {}
        elif not inner:
            inner[SELF] = {}  # an element that was a member stays one
        tree = inner
    known = tree.setdefault(path[-1], {})
    if known:
        known[SELF] = {}


def is_member(node: Tree) -> bool:
    """Whether the element that has these children is itself a member."""
    return not node or SELF in node


def below(node: Tree) -> Tree:
    """The children of an element, without the mark that it is a member."""
    return {key: child for key, child in node.items() if key != SELF} if SELF in node else node


def _made(member: bool, children: Tree) -> Tree | None:
    if children:
        return {SELF: {}, **children} if member else children
    return {} if member else None


def union(first: Tree, second: Tree) -> Tree:
    """The members of either set."""
    result = dict(first)
    for key, node in second.items():
        known = result.get(key)
        result[key] = (
            node
            if known is None
            else _made(is_member(known) or is_member(node), union(below(known), below(node))) or {}
        )
    return result


def difference(first: Tree, second: Tree) -> Tree:
    """The members of the first set that are not members of the second."""
    result: Tree = {}
    for key, node in first.items():
        taken = second.get(key)
        left = (
            node
            if taken is None
            else _made(
                is_member(node) and not is_member(taken), difference(below(node), below(taken))
            )
        )
        if left is not None:
            result[key] = left
    return result


def recursive_difference(first: Tree, second: Tree) -> Tree:
    """The first set without the members of the second and all fields below them."""
    result: Tree = {}
    for key, node in first.items():
        taken = second.get(key)
        if taken is None:
            result[key] = node
        elif not is_member(taken):
            left = _made(is_member(node), recursive_difference(below(node), taken))
            if left is not None:
                result[key] = left
    return result


def intersection(first: Tree, second: Tree) -> Tree:
    """The members of both sets."""
    result: Tree = {}
    for key, node in first.items():
        shared = second.get(key)
        if shared is None:
            continue
        both = _made(
            is_member(node) and is_member(shared), intersection(below(node), below(shared))
        )
        if both is not None:
            result[key] = both
    return result


def has(tree: Tree, path: Path) -> bool:
    """Whether a path is a member."""
    for element in path:
        child = tree.get(element)
        if child is None:
            return False
        tree = child
    return is_member(tree)


def paths(tree: Tree, prefix: Path = ()) -> Iterator[Path]:
    """All members; those of a level come before those below it, which is the order of conflicts in
    messages."""
    elements = sorted((key for key in tree if key != SELF), key=_rank)
    for key in elements:
        if is_member(tree[key]):
            yield (*prefix, key)
    for key in elements:
        if tree[key]:
            yield from paths(tree[key], (*prefix, key))


def _rank(element: str) -> tuple[int, str]:
    return "fkvi".find(element[0]), element


def with_named(tree: Tree, node: Node | None) -> Tree:
    """The set, with every declared field on the path to a member made a member too."""
    result: Tree = {}
    for key, child in tree.items():
        if key == SELF:
            result[key] = child
            continue
        step = _step(node, key)
        inner = with_named(child, step)
        if (
            child
            and key[0] == "f"
            and node is not None
            and node.kind is MAP
            and key[2:] in node.open()
        ):
            inner[SELF] = {}
        result[key] = inner
    return result


def _step(node: Node | None, element: str) -> Node | None:
    if node is None:
        return None
    if element[0] == "f":
        return children_of(node, {}).child(element[2:]) if node.kind in (MAP, ANY) else None
    return node.element if node.kind in (KEYED, SET) else None


def shown(path: Path) -> str:
    """A path as messages show it: `.spec.containers[name="c"].image`."""
    pieces = []
    for element in path:
        kind, rest = element[0], element[2:]
        if kind == "f":
            pieces.append(f".{rest}")
        elif kind == "k":
            keys = decode(rest)
            pieces.append(
                "[" + ",".join(f"{name}={_scalar(keys[name])}" for name in sorted(keys)) + "]"
            )
        elif kind == "v":
            pieces.append(f"[={rest}]")
        else:
            pieces.append(f"[{rest}]")
    return "".join(pieces)


def _scalar(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class BadFields(ValueError):
    """An invalid fieldsV1."""


def parse(tree: Any) -> Tree:
    """The set that a client sent, in canonical form. Raises BadFields."""
    if not isinstance(tree, dict):
        raise BadFields("fieldsV1 is not an object")
    result: Tree = {}
    for key, child in tree.items():
        if key == SELF:
            result[SELF] = {}
            continue
        kind, colon, rest = key[:1], key[1:2], key[2:]
        if colon != ":" or kind not in ("f", "k", "v", "i"):
            raise BadFields(f"unknown path element {key!r}")
        try:
            if kind == "k":
                key = f"k:{_encode(dict(decode(rest))).decode()}"
            elif kind == "v":
                key = f"v:{_encode(decode(rest)).decode()}"
            elif kind == "i":
                int(rest)
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            raise BadFields(f"the path element {key!r} cannot be read") from error
        inner = parse(child)
        result[key] = {} if inner.keys() == {SELF} else inner
    return result
