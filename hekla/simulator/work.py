"""How the work of a job goes on, where it is more than pods that each take their time.

The work of a whole job is what it would do in its `duration` with all its workers and no time for
messages.  What it has at a moment (workers, and where they are) says how fast it goes; it ends when
all is done.  Speeds are fractions, so that moments stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Work:
    """A model of the work of a job.

    With nothing said, half of the workers do half as much.  It stands still while less than the
    job's `min_available` run, and where `role` is named also while a pod of another role is missing.
    """

    role: str = ""
    """Whose pods are the workers; empty: all pods."""
    together: bool = False
    """It moves only while all workers run."""
    speeds: Sequence[tuple[int, Fraction]] = ()
    """Workers -> speed, ascending, in any unit; in between the speed is interpolated, before the
    first from nothing, and after the last there is no more."""
    serial: Fraction | None = None
    """The part that only one worker can do: n workers are n / (1 + serial (n - 1)) as fast as one
    (Amdahl, https://doi.org/10.1145/1465482.1465560)."""
    checkpoint: int | None = None
    """Microseconds of work after which what was done is kept when the job stands still; 0: always,
    None: never, and it begins anew."""
    restart: int = 0
    """Microseconds that it takes to go on after it stood still."""
    traffic: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Two roles -> bytes that each pod of the one exchanges with each of the other in a second of
    work."""

    def speed(self, workers: int, of: int) -> Fraction:
        """How fast so many workers are, of so many; 1 with all."""
        if workers >= of:
            return Fraction(1)
        if self.together:
            return Fraction(0)
        return self._speed(workers) / self._speed(of)

    def _speed(self, workers: int) -> Fraction:
        if self.serial is not None:
            return workers / (1 + self.serial * (workers - 1)) if workers else Fraction(0)
        if not self.speeds:
            return Fraction(workers)
        below, slow = 0, Fraction(0)
        for count, fast in self.speeds:
            if workers <= count:
                return slow + (fast - slow) * Fraction(workers - below, count - below)
            below, slow = count, fast
        return slow
