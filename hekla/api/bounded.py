"""A cache of bounded size.

Its entries can be worked out again, so a full cache simply starts over.  Evicting the least
recently used entry instead would need bookkeeping on every hit, and hits are what these caches are
for.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict that drops all its entries before it would exceed `limit` of them.

    It is read like a plain dict, at the same speed.  Add entries with `cache[key] = value` or
    `setdefault`; `update` and `|=` do not check the limit.
    """

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            self.clear()
        super().__setitem__(key, value)

    def setdefault(self, key: K, default: V) -> V:
        if key not in self:
            self[key] = default
        return self[key]
