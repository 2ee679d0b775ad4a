"""Functions that walk two objects in parallel: their difference, their merge, and an object without
a set of fields.

`compare` is part of every update, so it descends only where the two objects differ; everything else
is for server-side apply. topology.py says how each field is merged, fieldsets.py what a set of
fields is. Reference: local-cluster 2.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding.go_text import printed, written
from hekla.local.apiserver.objects.merging import fieldsets
from hekla.local.apiserver.objects.merging.fieldsets import Path, Tree
from hekla.local.apiserver.objects.merging.topology import (
    ANY,
    GUESSED,
    KEYED,
    LEAF,
    MAP,
    SET,
    Node,
    children_of,
)

ABSENT: Any = object()
PLACEHOLDER_QUOTE = "\x01"
"""Encloses the number of a placeholder in field sets; see `KeyPlaceholders`."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Unmergeable(ValueError):
    """A tree that does not fit its kind; the text is the message for the client."""


class KeyPlaceholders:
    """Numbers that stand in field sets for list keys that differ in every object (addresses, uids
    of owners).

    With numbers instead of keys, thousands of objects have the same field set.
    """

    __slots__ = ("numbers", "values")

    def __init__(self, values: list[str]) -> None:
        self.values = values
        self.numbers: dict[str, int] = {}
        for number, value in enumerate(values):
            self.numbers.setdefault(value, number)

    def mark(self, value: Any) -> str:
        """The placeholder of a key, as JSON. A new key gets the next number."""
        if type(value) is not str:
            return _encode(value).decode()
        number = self.numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return f'"{PLACEHOLDER_QUOTE}{number}{PLACEHOLDER_QUOTE}"'


class Difference(NamedTuple):
    """The paths that were added, modified and removed. It is hashable, so that equal changes can
    share work."""

    added: tuple[Path, ...]
    modified: tuple[Path, ...]
    removed: tuple[Path, ...]


def element_of(node: Node, item: Any, marks: KeyPlaceholders | None = None) -> str:
    """The path element of a list item. Raises Unmergeable."""
    if node.kind is SET:
        if isinstance(item, dict):
            raise Unmergeable("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise Unmergeable("not supported: associative list with lists as elements")
        if item is None:
            raise Unmergeable(
                "associative list without keys has an element that's an explicit null"
            )
        return f"v:{_encode(item).decode()}"
    if item is None:
        raise Unmergeable("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise Unmergeable("associative list with keys may not have non-map elements")
    if marks is not None and node.mark and node.keys[0] in item:
        return f'k:{{"{node.keys[0]}":{marks.mark(item[node.keys[0]])}}}'
    values: Json = {}
    for key in node.keys:
        value = item.get(key, ABSENT)
        if value is ABSENT:
            whole = node.element.inside or node.element if node.element is not None else None
            inner = whole.child(key) if whole is not None and whole.kind is MAP else None
            if inner is None or inner.default is None:
                continue
            value = inner.default
        values[key] = value
    if not values:
        keys = " ".join(f'"{key}"' for key in node.keys)
        raise Unmergeable(
            f"associative list with keys has an element that omits all key fields [{keys}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{_encode(values).decode()}"


# --- what differs ---------------------------------------------------------------------------------


class _Comparison:
    __slots__ = ("added", "marks", "modified", "removed")

    def __init__(self, marks: KeyPlaceholders | None) -> None:
        self.added: list[Path] = []
        self.modified: list[Path] = []
        self.removed: list[Path] = []
        self.marks = marks

    def maps(self, node: Node, old: Json, new: Json, path: Path) -> None:
        """Compare two objects."""
        fields = node.open()
        if node.always:
            old, new = with_always(node, old), with_always(node, new)
        for name, value in new.items():
            before = old.get(name, ABSENT)
            if before is value or (before == value and type(before) is type(value)):
                continue
            child = fields.get(name, node.element)
            if child is not None:
                self.values(child, before, value, (*path, f"f:{name}"))
        for name, before in old.items():
            if name not in new:
                child = fields.get(name, node.element)
                if child is not None:
                    self.values(child, before, ABSENT, (*path, f"f:{name}"))

    def values(self, node: Node, old: Any, new: Any, path: Path) -> None:
        """Compare two values, either of which may be ABSENT."""
        if old is ABSENT:
            self.whole(node, new, path, self.added)
        elif new is ABSENT:
            self.whole(node, old, path, self.removed)
        elif node.kind is LEAF or (not old and not new):
            if old != new:
                self.modified.append(path)
        elif (
            node.kind is ANY and type(old) is not type(new) and old is not None and new is not None
        ):
            self.whole(node, old, path, self.removed)
            self.whole(node, new, path, self.added)
        else:
            shape = children_of(node, new if new is not None else old)
            if shape.kind is LEAF:
                if old != new:
                    self.modified.append(path)
            elif shape.kind is MAP:
                self.maps(shape, _dict(old), _dict(new), path)
            else:
                self.lists(shape, _list(old), _list(new), path)

    def lists(self, node: Node, old: list[Any], new: list[Any], path: Path) -> None:
        """Compare two lists by the keys of their items."""
        before, after = self._index(node, old), self._index(node, new)
        element = node.element or GUESSED
        for key in before | after:
            was, now = before.get(key, []), after.get(key, [])
            element_path = (*path, key)
            if len(was) < 2 and len(now) < 2:
                if was != now:
                    self.values(
                        element, was[0] if was else ABSENT, now[0] if now else ABSENT, element_path
                    )
            elif len(was) > 1 and len(now) > 1:
                if was != now:
                    self.modified.append(element_path)
            elif len(was) > 1:
                # A repeated element is owned as one; now it occurs once.
                if now:
                    self.whole(element, now[0], element_path, self.added)
                self.removed.append(element_path)
            else:
                if was:
                    self.whole(element, was[0], element_path, self.removed)
                self.added.append(element_path)

    def _index(self, node: Node, items: list[Any]) -> dict[str, list[Any]]:
        by_element: dict[str, list[Any]] = {}
        for item in items:
            try:
                by_element.setdefault(element_of(node, item, self.marks), []).append(item)
            except Unmergeable:
                continue
        return by_element

    def whole(self, node: Node, value: Any, path: Path, result: list[Path]) -> None:
        """Add a value that only one side has, and all fields in it, to the result."""
        shape = children_of(node, value)
        if shape.kind is MAP and isinstance(value, dict):
            fields = shape.open()
            if shape.always:
                value = with_always(shape, value)
            for name, item in value.items():
                child = fields.get(name, shape.element)
                if child is not None:
                    if child.kind is LEAF:
                        result.append((*path, f"f:{name}"))
                    else:
                        self.whole(child, item, (*path, f"f:{name}"), result)
        elif shape.kind in (KEYED, SET) and isinstance(value, list):
            element = shape.element or GUESSED
            for key, items in self._index(shape, value).items():
                if len(items) == 1:
                    self.whole(element, items[0], (*path, key), result)
                else:
                    result.append((*path, key))
        result.append(path)


def with_always(node: Node, value: Json) -> Json:
    """The object with the fields that Kubernetes always writes."""
    missing = [pair for pair in node.always if pair[0] not in value]
    return {**value, **dict(missing)} if missing else value


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def compare(
    node: Node,
    old: Json,
    new: Json,
    marks: KeyPlaceholders | None = None,
    without: frozenset[str] = frozenset(),
) -> Difference:
    """The difference between two states of an object; `without` names top-level fields to ignore."""
    if without:
        old = {name: value for name, value in old.items() if name not in without}
        new = {name: value for name, value in new.items() if name not in without}
    comparison = _Comparison(marks)
    comparison.maps(node, old, new, ())
    return Difference(
        *(
            counting(paths, without)
            for paths in (comparison.added, comparison.modified, comparison.removed)
        )
    )


def counting(paths: list[Path], without: frozenset[str]) -> tuple[Path, ...]:
    """The paths without the empty path and without ignored top-level fields."""
    return tuple([path for path in paths if path and path[0][2:] not in without])


# --- what an applied object says ------------------------------------------------------------------


def field_set(node: Node, value: Json) -> Tree:
    """The fields of an applied configuration: its leaves, list elements and map keys."""
    tree: Tree = {}
    _fields(node, value, (), tree)
    return tree


def _fields(node: Node, value: Any, path: Path, tree: Tree) -> None:
    shape = children_of(node, value)
    if shape.kind is LEAF:
        fieldsets.insert(tree, path)
    elif shape.kind is MAP:
        declared = shape.open()
        for name, item in _dict(value).items():
            child = declared.get(name, shape.element)
            if child is None:
                continue
            child_path = (*path, f"f:{name}")
            _fields(child, item, child_path, tree)
            if item is None or item == {} or name not in declared:
                fieldsets.insert(tree, child_path)
    else:
        seen: dict[str, list[Any]] = {}
        for item in _list(value):
            seen.setdefault(element_of(shape, item), []).append(item)
        for key, items in seen.items():
            if len(items) == 1:
                _fields(shape.element or GUESSED, items[0], (*path, key), tree)
            fieldsets.insert(tree, (*path, key))


def check(node: Node, value: Any) -> list[str]:
    """Why a configuration cannot be applied, each as `<path>: <message>`."""
    errors: list[str] = []
    _check(node, value, "", errors)
    return errors


def _check(node: Node, value: Any, where: str, errors: list[str]) -> None:
    def say(text: str) -> None:
        errors.append(f"{where}: {text}" if where else text)

    shape = children_of(node, value)
    if value is None or (shape.kind is LEAF and shape.scalar in ("", "any")):
        if isinstance(value, dict | list) and shape.scalar == "any":
            say(f"expected any scalar, got &{{{printed(value)}}}")
        return
    if shape.kind is MAP or shape.scalar == "map":
        if not isinstance(value, dict):
            say(f"expected map, got &{{{printed(value)}}}")
        elif shape.inside is not None:
            _check(shape.inside, value, where, errors)
        elif shape.kind is MAP:
            for name, item in value.items():
                child = shape.child(name)
                if child is None:
                    errors.append(f"{where}.{name}: field not declared in schema")
                    return
                _check(child, item, f"{where}.{name}", errors)
    elif shape.scalar == "list":
        if not isinstance(value, list):
            say(f"expected list, got &{{{printed(value)}}}")
        elif shape.kind is not LEAF:
            _check_items(shape, value, where, errors)
        elif shape.inside is not None:
            for position, item in enumerate(value):
                _check(shape.inside, item, f"{where}[{position}]", errors)
    else:
        say_wrong_scalar(shape.scalar, value, say)


def say_wrong_scalar(scalar: str, value: Any, say: Callable[[str], None]) -> None:
    """Kubernetes has a different message for each type of scalar."""
    if scalar == "string" and not isinstance(value, str):
        say(f"expected string, got &value.valueUnstructured{{Value:{written(value)}}}")
    elif scalar == "bool" and not isinstance(value, bool):
        say(f"expected boolean, got &{{{printed(value)}}}")
    elif scalar == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        names = {
            str: "string",
            bool: "bool",
            dict: "map[string]interface {}",
            list: "[]interface {}",
        }
        say(f"expected numeric (int or float), got {names.get(type(value), 'nil')}")


def _check_items(node: Node, items: list[Any], where: str, errors: list[str]) -> None:
    seen: set[str] = set()
    for position, item in enumerate(items):
        try:
            key = element_of(node, item)
        except Unmergeable as error:
            errors.append(
                f"{where}: element {position}: {error}" if where else f"element {position}: {error}"
            )
            return
        if key in seen:
            errors.append(f"{where}: duplicate entries for key {fieldsets.shown((key,))}")
        seen.add(key)
        _check(node.element or GUESSED, item, where + fieldsets.shown((key,)), errors)


# --- both together --------------------------------------------------------------------------------


def merge(node: Node, old: Any, new: Any) -> Any:
    """The old value with the fields of the new one. List elements keep the order of both lists as
    far as possible."""
    if new is ABSENT:
        return old
    if old is ABSENT:
        old = None
    shape = children_of(node, new if new is not None else old)
    if shape.kind is LEAF or (not old and not new):
        return new
    if shape.kind is MAP:
        left, right = _dict(old), _dict(new)
        fields = shape.open()
        result = {}
        for name in left | right:
            child = fields.get(name, shape.element) or GUESSED
            result[name] = merge(child, left.get(name, ABSENT), right.get(name, ABSENT))
        return result
    return _merge_lists(shape, _list(old), _list(new))


def _merge_lists(node: Node, old: list[Any], new: list[Any]) -> list[Any]:
    element = node.element or GUESSED
    theirs: dict[str, list[Any]] = {}
    order: list[str] = []
    for item in old:
        key = element_of(node, item)
        theirs.setdefault(key, []).append(item)
        order.append(key)
    ours = {element_of(node, item): item for item in new}

    def merged_element(key: str) -> Any:
        was = theirs.get(key, [])
        # Repeated elements cannot be merged with one.
        return merge(element, was[0] if len(was) == 1 else ABSENT, ours[key])

    result: list[Any] = []
    wanted = list(ours)
    shared = deque([key for key in wanted if key in theirs])
    left = right = 0
    merged: set[str] = set()
    taken: dict[str, int] = {}
    while left < len(order) or right < len(wanted):
        if left < len(order) and right < len(wanted):
            key = order[left]
            if key == wanted[right]:
                merged.add(key)
                result.append(merged_element(key))
                left, right = left + 1, right + 1
                if shared:
                    shared.popleft()
                continue
            if key in ours and shared and shared[0] != key:
                left += 1
                continue
        if left < len(order):
            key = order[left]
            if key not in ours:
                position = taken[key] = taken.get(key, -1) + 1
                result.append(theirs[key][position])
                left += 1
                continue
            if key in merged:
                left += 1
        if right < len(wanted):
            key = wanted[right]
            merged.add(key)
            result.append(merged_element(key))
            right += 1
            if shared and shared[0] == key:
                shared.popleft()
    return result


def remove(node: Node, value: Any, gone: Tree) -> Any:
    """The value without the members of a set."""
    shape = children_of(node, value)
    if shape.kind is LEAF or not value:
        return value
    if shape.kind is MAP:
        fields = shape.open()
        kept = {}
        for name, item in _dict(value).items():
            inside = gone.get(f"f:{name}")
            if inside is None:
                kept[name] = item
            elif not fieldsets.is_member(inside):
                kept[name] = remove(fields.get(name, shape.element) or GUESSED, item, inside)
        return kept
    items = []
    for item in _list(value):
        inside = gone.get(element_of(shape, item))
        if inside is None:
            items.append(item)
        elif not fieldsets.is_member(inside):
            items.append(remove(shape.element or GUESSED, item, inside))
    return items
