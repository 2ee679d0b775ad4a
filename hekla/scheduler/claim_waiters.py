"""Binds that wait until a claim, of a volume or of devices, has changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hekla.api.meta import key as key_of

Tree = Mapping[str, Any]


class ClaimWaiters:
    """Wakes those that wait for a claim.  `claim_changed` is a listener of the cache of claims."""

    def __init__(self) -> None:
        self.waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    def claim_changed(self, old: Tree | None, new: Tree | None) -> None:
        """Wake the binds that wait for this claim."""
        claim = new if new is not None else old
        if self.waiting and claim is not None:
            for event in self.waiting.get(key_of(claim), ()):
                event.set()

    @contextmanager
    def changes(self, key: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the claim of this key changes."""
        changed = asyncio.Event()
        self.waiting[key].add(changed)
        try:
            yield changed
        finally:
            self.waiting[key].discard(changed)
            if not self.waiting[key]:
                del self.waiting[key]
