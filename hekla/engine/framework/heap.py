"""Who comes next by key: keys are taken when an item is put in, the smallest goes first, equal keys
in the order put in."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Comparable(Protocol):
    """What can be sorted among its like."""

    def __lt__(self, other: Any, /) -> bool: ...


OrderKey = tuple[Comparable, ...]
"""What decides an order, part by part; the smaller goes first."""


class Heap(Generic[T]):
    """For few items that come and go."""

    __slots__ = ("_entries", "_key", "_pushed")

    def __init__(self, key: Callable[[T], Comparable], items: Iterable[T] = ()) -> None:
        self._key = key
        self._entries: list[tuple[Comparable, int, T]] = [
            (key(item), number, item) for number, item in enumerate(items)
        ]
        self._pushed = len(self._entries)
        heapq.heapify(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        """In the order of their keys."""
        return (item for _, _, item in sorted(self._entries, key=lambda entry: entry[:2]))

    def push(self, item: T) -> None:
        heapq.heappush(self._entries, (self._key(item), self._pushed, item))
        self._pushed += 1

    def pop(self) -> T:
        return heapq.heappop(self._entries)[2]

    def push_pop(self, item: T) -> T:
        """As `push` and then `pop`, at the cost of little more than one of them."""
        entry = (self._key(item), self._pushed, item)
        self._pushed += 1
        return heapq.heappushpop(self._entries, entry)[2]


class LiveHeap(Generic[T]):
    """For items whose order changes while they wait: two are compared as they stand when they meet.

    Who goes next is settled when the one before goes, and nobody is moved because an order has
    changed.  Reference: scheduler-core 5.4.
    """

    __slots__ = ("_first", "_items")

    def __init__(self, first: Callable[[T, T], bool], items: Iterable[T] = ()) -> None:
        """`first`: whether the one goes before the other, as things stand."""
        self._first = first
        self._items: list[T] = []
        for item in items:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        items = self._items
        at = len(items)
        items.append(item)
        while at and self._first(item, items[(at - 1) // 2]):
            items[at] = items[(at - 1) // 2]
            at = (at - 1) // 2
        items[at] = item

    def push_pop(self, item: T) -> T:
        """`push` and then `pop`."""
        self.push(item)
        return self.pop()

    def pop(self) -> T:
        items = self._items
        gone, item = items[0], items.pop()
        if items:
            at = 0
            while (child := 2 * at + 1) < len(items):
                if child + 1 < len(items) and self._first(items[child + 1], items[child]):
                    child += 1
                if not self._first(items[child], item):
                    break
                items[at] = items[child]
                at = child
            items[at] = item
        return gone


class AsThingsStand(Generic[T]):
    """Whether one goes before the other, by keys that are taken again once something happened."""

    __slots__ = ("_changes", "_key", "_known", "_seen")

    def __init__(self, key: Callable[[T], Comparable], changes: Callable[[], int]) -> None:
        """`changes`: a number that is another one whenever a key may have become another one."""
        self._key = key
        self._changes = changes
        self._known: dict[int, Comparable] = {}
        self._seen = changes()

    def __call__(self, one: T, other: T) -> bool:
        changes = self._changes()
        if changes != self._seen:
            self._known.clear()
            self._seen = changes
        return bool(self._of(one) < self._of(other))

    def _of(self, item: T) -> Comparable:
        known = self._known.get(id(item))
        if known is None:
            known = self._known[id(item)] = self._key(item)
        return known


class Line(Generic[T]):
    """For many items of which few come again: sorted once, so the next stands at the end; who comes
    again waits in a heap beside.

    The order of two keys must not change while they are here.
    """

    __slots__ = ("_again", "_key", "_pushed", "_sorted")

    def __init__(self, key: Callable[[T], Comparable], items: Iterable[T]) -> None:
        self._key = key
        known = list(items)
        keys = [key(item) for item in known]
        # By the keys alone, of which Python compares two much faster than two tuples that contain
        # them.
        order = sorted(range(len(known)), key=keys.__getitem__)
        order.reverse()
        self._sorted: list[tuple[Comparable, int, T]] = [
            (keys[number], number, known[number]) for number in order
        ]
        self._pushed = len(known)
        self._again: list[tuple[Comparable, int, T]] = []

    def __len__(self) -> int:
        return len(self._sorted) + len(self._again)

    def __iter__(self) -> Iterator[T]:
        """In the order in which they were put in."""
        return (
            item for _, _, item in sorted([*self._sorted, *self._again], key=lambda entry: entry[1])
        )

    def push(self, item: T) -> None:
        heapq.heappush(self._again, (self._key(item), self._pushed, item))
        self._pushed += 1

    def pop(self) -> T:
        if self._again and (not self._sorted or self._again[0] < self._sorted[-1]):
            return heapq.heappop(self._again)[2]
        return self._sorted.pop()[2]
