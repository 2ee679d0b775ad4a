"""How many times in a row a node was found too hot, so that a short peak moves nobody."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class Streak:
    """Of one node under one set of thresholds."""

    measured: float = -1.0
    hot: int = 0
    cool: int = 0


class Heat:
    """The streaks of all nodes."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, Streak] = {}

    def see(self, name: Hashable, hot: bool, measured: float, ends_after: int = 1) -> int:
        """How often in a row the node was hot, with this measurement; one that was seen before does not
        count again.  `ends_after`: cool measurements in a row that end a streak."""
        streak = self._streaks.get(name)
        if streak is None:
            if not hot:
                return 0
            streak = self._streaks[name] = Streak()
        if measured > streak.measured:
            streak.measured = measured
            streak.hot, streak.cool = (streak.hot + 1, 0) if hot else (streak.hot, streak.cool + 1)
        if streak.cool >= ends_after:
            del self._streaks[name]
            return 0
        return streak.hot
