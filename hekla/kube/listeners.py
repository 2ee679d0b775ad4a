"""The listeners of a cache: who hears of which changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from hekla.api.meta import key

log = logging.getLogger(__name__)

T = TypeVar("T")
Change = Callable[[T | None, T | None], None]
"""Called with (old, new): old is None for a new object, new is None for a deleted one."""
Sorter = Callable[[T], Collection[str]]
"""The values by which listeners choose objects, mostly one or none."""


class Listeners(Generic[T]):
    """Those that hear of all changes, and those that hear of changes to some objects.

    Most of a dozen listeners have nothing to do with most objects; those that share a sorter share
    one call of it.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        """What the objects are called in the log."""
        self.of_all: list[Change[T]] = []
        self._concerned: dict[Sorter[T], dict[str, list[Change[T]]]] = {}
        """Sorter -> value -> callbacks."""

    def add(self, callback: Change[T], present: Iterable[T]) -> None:
        """Add a listener for all objects; it hears at once of those that are there, as added."""
        self.of_all.append(callback)
        for obj in present:
            self._call((callback,), None, obj)

    def add_concerned(
        self, sorter: Sorter[T], values: Iterable[str], callback: Change[T], present: Iterable[T]
    ) -> None:
        """As `add`, for the objects whose sorter returns one of these values."""
        wanted = frozenset(values)
        table = self._concerned.setdefault(sorter, {})
        for value in wanted:
            table.setdefault(value, []).append(callback)
        for obj in present:
            if not wanted.isdisjoint(sorter(obj)):
                self._call((callback,), None, obj)

    def tell(self, old: T | None, new: T | None) -> None:
        """Tell all whom a change concerns."""
        self._call(self.of_all, old, new)
        for sorter, table in self._concerned.items():
            values = sorter(new) if new is not None else ()
            before = sorter(old) if old is not None else ()
            found = [callback for value in values if value in table for callback in table[value]]
            if before != values:
                found += [
                    callback for value in before if value in table for callback in table[value]
                ]
            if found:
                self._call(dict.fromkeys(found), old, new)

    def _call(self, callbacks: Iterable[Change[T]], old: T | None, new: T | None) -> None:
        for callback in callbacks:
            try:
                callback(old, new)
            except Exception:  # the other listeners must hear of the change
                log.exception(
                    "%s: a listener failed on %s",
                    self._subject,
                    key(new if new is not None else old),
                )
