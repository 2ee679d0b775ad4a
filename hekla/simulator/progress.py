"""How far the work of whole jobs has come, and when it will be done as things are."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from fractions import Fraction

from hekla.simulator.work import Work


@dataclass(slots=True)
class Progress:
    """Of one job.  Times in microseconds."""

    work: Work
    whole: int
    """The work of it all."""
    left: Fraction
    speed: Fraction = Fraction(0)
    since: int = 0
    """From when on it goes at this speed; before that it starts again."""
    stood: bool = False
    """Whether it has moved before, and stands still."""
    turn: int = 0
    """How often its end was foretold."""

    @classmethod
    def of(cls, work: Work, whole: int) -> Progress:
        return cls(work, whole, Fraction(whole))

    def pace(self, now: int, speed: Fraction) -> None:
        """From now on it goes at this speed."""
        if now > self.since:
            self.left -= self.speed * (now - self.since)
            self.since = now
        if speed and not self.speed and self.stood:
            self.since = now + self.work.restart
            self.stood = False
        elif self.speed and not speed:
            self.stood = True
            self.left = self.whole - self._kept()
        self.speed = speed

    def _kept(self) -> Fraction:
        """What is not lost when it stands still."""
        done, every = self.whole - self.left, self.work.checkpoint
        if every is None:
            return Fraction(0)
        return done if every == 0 else Fraction(done // every * every)

    @property
    def end(self) -> int | None:
        """When it is done at this speed."""
        return self.since + math.ceil(self.left / self.speed) if self.speed else None


class Ends:
    """When jobs will be done, as far as it is known."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, int]] = []
        self._turns: dict[str, int] = {}

    def foretell(self, key: str, progress: Progress) -> None:
        """The end of a job has become another."""
        self._turns[key] = progress.turn = progress.turn + 1
        if (end := progress.end) is not None:
            heapq.heappush(self._heap, (end, key, progress.turn))

    def next(self) -> int | None:
        """When the next job will be done."""
        while self._heap and self._turns.get(self._heap[0][1]) != self._heap[0][2]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[str]:
        """The jobs that are done now."""
        found = []
        while (moment := self.next()) is not None and moment <= now:
            _, key, _ = heapq.heappop(self._heap)
            del self._turns[key]
            found.append(key)
        return found
