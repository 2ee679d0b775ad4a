"""Divides pods and nodes between several schedulers of one name, by a consistent hash.

Each scheduler knows how many there are and its own number; names alone decide who owns what.  The
ring has upstream's points, so that schedulers of both kinds can share a cluster.  Reference:
scheduler-core 2.3.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

REPLICAS = 20
"""Points of each member on the ring."""

Tree = Mapping[str, Any]


class Ring:
    """The consistent hash: which scheduler owns a name."""

    def __init__(self, members: Iterable[str], own: str) -> None:
        self.own = own
        points = {
            zlib.crc32(f"{number}{member}".encode()): member
            for member in members
            for number in range(REPLICAS)
        }
        self.points = sorted(points)
        self.owners = [points[point] for point in self.points]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Ring | None:
        """The ring that environment variables describe; None if there is one scheduler alone.
        Raises ValueError."""
        if environment.get("MULTI_SCHEDULER_ENABLE") != "true":
            return None
        own = environment.get("SCHEDULER_POD_NAME", "")
        base, dash, ordinal = own.rpartition("-")
        if not dash or not ordinal.isdigit():
            raise ValueError(
                f"SCHEDULER_POD_NAME = {own!r}: a name that ends in the number of the replica, such as scheduler-0"
            )
        count = environment.get("SCHEDULER_NUM", "")
        return cls(
            [f"{base}-{number}" for number in range(int(count) if count.isdigit() else 1)], own
        )

    def owner(self, name: str) -> str:
        at = bisect.bisect_right(self.points, zlib.crc32(name.encode()))
        return self.owners[at % len(self.owners)] if self.owners else self.own

    def owns(self, tree: Tree) -> bool:
        """Whether a pod or a group belongs to this scheduler: by its first owner, so that the pods
        of one owner stay together."""
        metadata = tree["metadata"]
        owners = metadata.get("ownerReferences") or ()
        return self.owner(owners[0]["name"] if owners else metadata["name"]) == self.own

    def owns_node(self, name: str) -> bool:
        return self.owner(name) == self.own

    def has_business(self, pod: Tree) -> bool:
        """Whether a pod matters to this scheduler: it waits and is ours, or it runs on one of our
        nodes."""
        node = (pod.get("spec") or {}).get("nodeName")
        return self.owns_node(node) if node else self.owns(pod)
