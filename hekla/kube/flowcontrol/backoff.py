"""Exponential back-off with jitter, so that clients do not retry all at the same moment."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `first` to `longest` seconds, each stretched by up to `jitter` of
    itself."""

    def __init__(
        self, first: float, longest: float, jitter: float = 0.5, draw: random.Random | None = None
    ) -> None:
        self.first = first
        self.longest = longest
        self.jitter = jitter
        self._random = draw or random.Random()
        self._next = first

    def __call__(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._next
        self._next = min(self.longest, delay * 2)
        return delay * (1 + self.jitter * self._random.random())

    def reset(self) -> None:
        """Start at `first` again, after a success."""
        self._next = self.first
