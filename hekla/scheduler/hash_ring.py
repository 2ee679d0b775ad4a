"""Several schedulers of one name that divide pods and nodes between them by a consistent hash.
Reference: scheduler-core 2.3.

Every one of them is told how many there are and which one it is; who owns what follows from the
names alone, by the same points on the same ring as upstream's, so that both kinds may run beside
each other.
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
    """Who owns a name."""

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
        """The ring that the environment tells of; None where there is none.  Raises ValueError."""
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
        """A pod or a group: by its first owner, so that the pods of one owner stay together."""
        metadata = tree["metadata"]
        owners = metadata.get("ownerReferences") or ()
        return self.owner(owners[0]["name"] if owners else metadata["name"]) == self.own

    def owns_node(self, name: str) -> bool:
        return self.owner(name) == self.own

    def has_business(self, pod: Tree) -> bool:
        """Whether a pod counts here: it waits and is ours, or it is on one of our nodes."""
        node = (pod.get("spec") or {}).get("nodeName")
        return self.owns_node(node) if node else self.owns(pod)
