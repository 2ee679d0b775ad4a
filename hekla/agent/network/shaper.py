"""What limits the traffic of offline pods, behind one door: the agent's loop knows no more of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class Sent(NamedTuple):
    """What has been sent since the interface exists."""

    bytes: int = 0
    packets: int = 0


class Counters(NamedTuple):
    """Traffic out of pods."""

    interfaces: Mapping[str, Sent]
    """By those that were asked for and are there."""
    shaped: Sent
    """What the shaped pods have sent and the limit has let through."""


class Shaper(Protocol):
    """All methods run in the namespace of the pods' links, and raise NetworkError."""

    def unavailable(self) -> str:
        """Why this node cannot do it; empty if it can.  Leaves nothing behind."""

    def shape(self, interfaces: Collection[str], rate: int) -> dict[str, str]:
        """Let the pods behind exactly these interfaces send this much together (bytes/s), whatever
        was in force before, also by an earlier agent.  Gives those that must not be touched, with
        the reason."""

    def limit(self, rate: int) -> None:
        """Change the rate of those that are shaped (bytes/s)."""

    def counters(self, interfaces: Collection[str]) -> Counters:
        """What has been sent until now, by the pods behind these and by the shaped ones."""

    def remove(self) -> None:
        """Nothing is shaped, and nothing of this is left in the kernel."""
