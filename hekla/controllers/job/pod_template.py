"""Bodies of many pods from one template, at the price of joining a few byte strings a pod.

The pods of a task differ by their index alone: in the name, in a label, in an environment variable.
A template is built once: the pod as JSON in which every place that depends on the index holds a marker.
`body(index)` fills the markers in.  Nothing is copied or encoded again for a pod, which is what
lets a gang of thousands be created at the speed of the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Slot:
    """What plugins write where the index belongs: text that becomes a number once a pod is made."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._fillers: list[Callable[[int], int]] = []
        self.index = self.computed(lambda index: index)

    def computed(self, filler: Callable[[int], int]) -> str:
        """A marker for a number that is computed from the index."""
        self._fillers.append(filler)
        return f"<{self._marker}:{len(self._fillers) - 1}>"

    def name(self, job: str, task: str) -> str:
        """The pod's name, with the marker where the index stands."""
        return f"{job}-{task}-{self.index}"

    def plus(self, offset: int) -> str:
        return self.computed(lambda index: index + offset)

    def split(self, encoded: bytes) -> list[bytes | Callable[[int], int]]:
        """The encoded pod as alternating fixed bytes and fillers."""
        first, *marked = encoded.split(f"<{self._marker}:".encode())
        pieces: list[bytes | Callable[[int], int]] = [first]
        for piece in marked:
            number, _, fixed = piece.partition(b">")
            pieces += (self._fillers[int(number)], fixed)
        return pieces


class BodyTemplate:
    """The JSON of a pod in which every place that depends on the index is left open."""

    __slots__ = ("_parts",)

    def __init__(self, pod: dict[str, Any], slot: Slot) -> None:
        self._parts = slot.split(msgspec.json.encode(pod))

    def body(self, index: int) -> bytes:
        """The JSON of the pod with this index."""
        return b"".join(
            part if isinstance(part, bytes) else b"%d" % part(index) for part in self._parts
        )

    def pod(self, index: int) -> dict[str, Any]:
        """The same as a tree, for tests and for people."""
        tree: dict[str, Any] = msgspec.json.decode(self.body(index))
        return tree
