"""Pods that were told when they will be evicted, and have not been yet.

To the engine such a pod is on its way out from the notice on, as one that uses its grace period: its
room is promised to whoever claimed it, and nobody else is asked to leave for the same claim.  The
pod itself carries the notice as an annotation, so a scheduler that starts anew knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

EVICT_AT = "hekla.io/evict-at"
"""Annotation of a pod: when it will be evicted, as RFC 3339 in UTC."""
EVICT_FOR = "hekla.io/evict-for"
"""Annotation of a pod: namespace and name of the PodGroup that gets its room."""
RESERVED_FOR = "reservation:"
"""Before the name of a Reservation, in the place of a PodGroup."""
_NONE: Mapping[str, str] = {}


class Notice(NamedTuple):
    """One pod that knows when it has to leave."""

    uid: str
    at: int
    """Seconds since 1970."""
    reason: str
    """The action that decided it."""
    purpose: str
    claimant: str
    """The job that gets the room; empty where nobody in particular does."""
    pods: tuple[str, ...]
    """Its pods that wait for the room; empty where they are not known."""


class EvictionNotices:
    """By the pod's key."""

    def __init__(self) -> None:
        self.given: dict[str, Notice] = {}
        self.read: dict[str, tuple[str, str, str]] = {}
        """Pods whose annotation says so: uid, when, and for whom."""
        self.taken_back: dict[str, tuple[str, str]] = {}
        """Pods that may stay, but whose annotation may not be gone yet: uid, and when."""

    def __bool__(self) -> bool:
        return bool(self.given or self.read)

    def pod_read(self, key: str, uid: str, annotations: Mapping[str, str]) -> None:
        """What a pod says of it now."""
        when = annotations.get(EVICT_AT)
        if when is None:
            self.read.pop(key, None)
            self.taken_back.pop(key, None)
        elif self.taken_back.get(key) != (uid, when):
            self.read[key] = uid, when, annotations.get(EVICT_FOR, "")

    def pod_gone(self, key: str) -> None:
        self.given.pop(key, None)
        self.read.pop(key, None)
        self.taken_back.pop(key, None)

    def take_back(self, key: str, when: str) -> None:
        """The pod may stay."""
        notice = self.given.pop(key, None)
        read = self.read.pop(key, None)
        if notice is not None:
            self.taken_back[key] = notice.uid, when
        elif read is not None:
            self.taken_back[key] = read[0], read[1]
