"""Strategic merge patch: a merge that treats some lists as maps.

The merge keys come from `tables/merging.txt`, which topology.py reads; everything else about a kind
from the field tables. Reference: local-cluster 2.6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, NamedTuple

from hekla.api.text.fielderrors import shown
from hekla.api.trees import NESTED, Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.hashable import first_positions, hashable, hashables
from hekla.local.apiserver.objects.merging.topology import PLAIN, UNION, WHOLE, rules

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
SET_ELEMENT_ORDER = "$setElementOrder/"
DELETE_SCALARS = "$deleteFromPrimitiveList/"


class _Child(NamedTuple):
    key: str
    """The merge key of a list, UNION for a list of scalars that is merged, WHOLE for an object that
    is replaced; empty for a list that is replaced, or an object that is merged."""
    message: fields.Message | None
    """The message of the objects below; None for scalars, maps of scalars and free-form trees."""
    is_map: bool


@cache
def _children(section: str, name: str) -> dict[str, _Child]:
    described = fields.message(section, name)
    if described is None:
        return {}
    ruled = rules(described.section, described.name)
    return {
        field.name: _Child(
            patch
            if (patch := ruled.get(field.name, PLAIN).patch) == WHOLE or field.many == "list"
            else "",
            fields.message(owner.section, field.type),
            field.many == "map",
        )
        for field, owner in fields.flat(described)
    }


def apply_strategic(tree: Json, patch: Any, described: fields.Message) -> Json:
    """The patched tree, which shares nothing with the patch. `described` is `Kind.merge_keys`.
    Raises BadBody."""
    if not isinstance(patch, dict):
        raise BadBody("error decoding patch: a strategic merge patch is a JSON object")
    try:
        return _object(tree, patch, described)
    except RecursionError:
        raise BadBody("error decoding patch: nested too deeply") from None


def _object(tree: Json, patch: Json, described: fields.Message | None) -> Json:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {
            key: _value(None, value, None)
            for key, value in patch.items()
            if key != DIRECTIVE and value is not None
        }
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadBody(f"error decoding patch: unknown $patch directive {shown(directive)}")
    children = _children(described.section, described.name) if described is not None else {}
    result = dict(tree)
    _retain(result, patch)
    directives = [key for key in patch if key[:1] == "$"]
    for key in directives:
        if key.startswith(DELETE_SCALARS):
            _delete_scalars(result, key[len(DELETE_SCALARS) :], patch[key])
    for key, value in patch.items():
        if (
            directives
            and key[:1] == "$"
            and (
                key in (DIRECTIVE, RETAIN_KEYS)
                or key.startswith((SET_ELEMENT_ORDER, DELETE_SCALARS))
            )
        ):
            continue
        if value is None:
            result.pop(key, None)
        else:
            _set(result, key, value, children.get(key))
    for key in directives:
        if key.startswith(SET_ELEMENT_ORDER):
            _check_order(
                patch.get(key[len(SET_ELEMENT_ORDER) :]),
                patch[key],
                children.get(key[len(SET_ELEMENT_ORDER) :]),
            )
            _order(result, key[len(SET_ELEMENT_ORDER) :], patch[key], tree, children)
    return result


def _check_order(items: Any, order: Any, child: _Child | None) -> None:
    """The items of a list in a patch must come in the order of its `$setElementOrder`."""
    if not isinstance(items, list) or not isinstance(order, list):
        return
    key = child.key if child is not None and child.key not in ("", UNION) else ""

    def names(entries: list[Any]) -> list[Any]:
        return (
            [entry.get(key) if isinstance(entry, dict) else entry for entry in entries]
            if key
            else entries
        )

    wanted: dict[Hashable, list[int]] = {}
    for position, name in enumerate(names(order)):
        wanted.setdefault(hashable(name), []).append(position)
    place = 0
    for name in names([item for item in items if not _is_directive(item)]):
        positions = wanted.get(hashable(name), [])
        next_index = bisect_left(positions, place)
        if next_index == len(positions):
            raise BadBody(
                f"The order in patch list:\n{shown(items)}\n doesn't match $setElementOrder list:\n{shown(order)}\n"
            )
        place = positions[next_index]


def _set(result: Json, key: str, value: Any, child: _Child | None) -> None:
    """Put a value of the patch into the result: merged with an existing value of the same type,
    else as it is."""
    if type(value) not in NESTED:
        result[key] = value
    elif type(result.get(key)) is type(value):
        result[key] = (
            value if child is not None and child.key == WHOLE else _value(result[key], value, child)
        )
    elif _is_directive(value):
        result.pop(key, None)
    else:
        result[key] = _plain(value)


def _plain(value: Any) -> Any:
    """A value that only the patch has, without directives and without nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(item) if type(item) in NESTED else item
            for key, item in value.items()
            if item is not None
            and not (
                key[:1] == "$" and key.startswith((RETAIN_KEYS, SET_ELEMENT_ORDER, DELETE_SCALARS))
            )
            and not _is_directive(item)
        }
    if isinstance(value, list):
        return [
            _plain(item) if type(item) in NESTED else item
            for item in value
            if not _is_directive(item)
        ]
    return value


def _value(old: Any, new: Any, child: _Child | None) -> Any:
    if isinstance(new, dict):
        below = child.message if child is not None and not child.is_map else None
        if (
            child is not None
            and child.is_map
            and child.message is not None
            and isinstance(old, dict)
        ):
            return _map_of_objects(old, new, child.message)
        return _object(old if isinstance(old, dict) else {}, new, below)
    if isinstance(new, list):
        if child is not None and child.key == UNION:
            return _union(old if isinstance(old, list) else [], new)
        if child is not None and child.key:
            return _list(old if isinstance(old, list) else [], new, child)
        return [_value(None, item, None) for item in new if not _is_directive(item)]
    return new


def _map_of_objects(old: Json, new: Json, below: fields.Message) -> Json:
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        else:
            before = result.get(key)
            result[key] = (
                _object(before, value, below)
                if isinstance(value, dict) and isinstance(before, dict)
                else _plain(value)
            )
    return result


def _is_directive(item: Any) -> bool:
    return isinstance(item, dict) and DIRECTIVE in item


def _union(old: list[Any], new: list[Any]) -> list[Any]:
    result = list(old)
    there = hashables(old)
    for item in new:
        if hashable(item) not in there:
            there.add(hashable(item))
            result.append(item)
    return _in_patch_order(result, new, old, lambda item: item)


def _in_patch_order(
    merged: list[Any], order: list[Any], server: list[Any], key_of: Callable[[Any], Any]
) -> list[Any]:
    """Elements that the patch names, in its order; the others keep their position relative to
    elements that the stored list has too, else they come last."""
    places = first_positions(map(key_of, order))
    named = [(hashable(key_of(item)), item) for item in merged]
    ours = sorted((pair for pair in named if pair[0] in places), key=lambda pair: places[pair[0]])
    theirs = [pair for pair in named if pair[0] not in places]
    return _interleave(ours, theirs, first_positions(map(key_of, server)))


def _list(old: list[Any], patch: list[Any], child: _Child) -> list[Any]:
    """Merge a list whose elements are identified by a key."""
    key = child.key
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in patch):
        kept = [item for item in patch if not _is_directive(item) or len(item) > 1]
        return [
            _element({}, {k: v for k, v in item.items() if k != DIRECTIVE}, child)
            for item in kept
            if isinstance(item, dict)
        ]
    result: list[Any] = [item for item in old if isinstance(item, dict)]
    places: dict[Hashable, list[int]] = {}
    for position, item in enumerate(result):
        places.setdefault(hashable(item.get(key)), []).append(position)
    for item in patch:
        if not isinstance(item, dict):
            raise BadBody(
                f"error decoding patch: cannot merge {shown(item)}: elements of this list are objects with {key}"
            )
        if key not in item:
            raise BadBody(
                f"map: {shown(item)} does not contain declared merge key: {key}",
                code=422,
                reason="Invalid",
            )
        name = hashable(item[key])
        if item.get(DIRECTIVE) == "delete":
            for position in places.pop(name, ()):
                result[position] = None
        elif name in places:
            position = places[name][0]
            result[position] = _element(result[position], item, child)
        else:
            places[name] = [len(result)]
            result.append(_element({}, item, child))
    return _in_patch_order(
        [item for item in result if item is not None], patch, old, lambda item: item.get(key)
    )


def _element(old: Json, patch: Json, child: _Child) -> Json:
    return _object(old, patch, child.message)


def _retain(result: Json, patch: Json) -> None:
    kept = patch.get(RETAIN_KEYS)
    if kept is None:
        return
    if not isinstance(kept, list):
        raise BadBody("error decoding patch: $retainKeys is a list of keys")
    names = {key for key in kept if isinstance(key, str)}
    for key in patch:
        if not key.startswith("$") and key not in names and patch[key] is not None:
            raise BadBody(
                f"error decoding patch: {shown(key)} is set but is not in the $retainKeys list {shown(kept)}"
            )
    for key in [key for key in result if key not in names]:
        del result[key]


def _delete_scalars(result: Json, name: str, values: Any) -> None:
    if not isinstance(values, list):
        raise BadBody(f"error decoding patch: {DELETE_SCALARS}{name} is a list")
    if isinstance(result.get(name), list):
        gone = hashables(values)
        result[name] = [item for item in result[name] if hashable(item) not in gone]


def _order(result: Json, name: str, wanted: Any, before: Json, children: dict[str, _Child]) -> None:
    """Put a merged list into the order of the patch; elements that the patch does not name keep
    their relative position."""
    merged = result.get(name)
    if not isinstance(wanted, list):
        raise BadBody(f"error decoding patch: {SET_ELEMENT_ORDER}{name} is a list")
    if not isinstance(merged, list):
        return
    child = children.get(name)
    key = child.key if child is not None and child.key != UNION else ""

    def key_of(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    result[name] = _in_patch_order(merged, wanted, before.get(name) or [], key_of)


def _interleave(
    ours: list[tuple[Hashable, Any]],
    theirs: list[tuple[Hashable, Any]],
    server: dict[Hashable, int],
) -> list[Any]:
    """Both lists in their own order; an element of each that the stored list has are ordered as
    they are there."""
    result: list[Any] = []
    left, right = 0, 0
    while left < len(ours) and right < len(theirs):
        our_position, their_position = server.get(ours[left][0]), server.get(theirs[right][0])
        if (
            our_position is not None
            and their_position is not None
            and their_position < our_position
        ):
            result.append(theirs[right][1])
            right += 1
        else:
            result.append(ours[left][1])
            left += 1
    return result + [item for _, item in ours[left:]] + [item for _, item in theirs[right:]]
