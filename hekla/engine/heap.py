"""A heap by key: keys are taken when an item is pushed, the smallest goes first, equal keys in the order pushed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    __slots__ = ("_entries", "_key", "_pushed")

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._key = key
        self._entries: list[tuple[Any, int, T]] = [(key(item), number, item) for number, item in enumerate(items)]
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
