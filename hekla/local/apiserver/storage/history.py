"""Where the past lies: bytes of superseded objects, in files that have no name and vanish with the
process.

A watch that comes back after a minute needs every state of that minute, which under load is
hundreds of megabytes: too much for memory, nothing for a disk.  What stays in memory of a past
state is its row; the row's bytes go here and are read again by whoever asks for them, which is
rare.  Rows do not know the difference: a shelved row is a row whose `data` is a look-up.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SEGMENT = 32 * 1024 * 1024
LENGTH_BITS, OFFSET_BITS = 24, 40


class Segment:
    """One file."""

    __slots__ = ("descriptor", "newest", "number", "size")

    def __init__(self, directory: Path, number: int) -> None:
        self.descriptor, name = tempfile.mkstemp(prefix=".history-", dir=directory)
        os.unlink(name)
        self.number = number
        self.size = 0
        self.newest = 0.0
        """When the newest of it was put here."""


class PastVersions:
    """Appended to at one end, cleared at the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: deque[Segment] = deque()
        self._by_number: dict[int, Segment] = {}
        self._numbers = 0
        self.bytes = 0

    def put(self, pieces: Sequence[bytes]) -> list[int]:
        """Writes pieces; gives the place of each.  Raises OSError, and then nothing is there."""
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.size >= SEGMENT:
            segment = Segment(self.directory, self._numbers)
            self._numbers += 1
            self.segments.append(segment)
            self._by_number[segment.number] = segment
        everything = memoryview(b"".join(pieces))
        written = 0
        while written < len(everything):
            written += os.pwrite(segment.descriptor, everything[written:], segment.size + written)
        places = []
        at = segment.size
        for piece in pieces:
            places.append((segment.number << OFFSET_BITS | at) << LENGTH_BITS | len(piece))
            at += len(piece)
        self.bytes += at - segment.size
        segment.size = at
        segment.newest = time.monotonic()
        return places

    def take(self, place: int) -> bytes:
        """What was put at a place."""
        length = place & ((1 << LENGTH_BITS) - 1)
        place >>= LENGTH_BITS
        segment = self._by_number[place >> OFFSET_BITS]
        return os.pread(segment.descriptor, length, place & ((1 << OFFSET_BITS) - 1))

    def clear(self, before: float, most: int) -> float:
        """Drops what was put here before a time, or is too much; gives the time of the newest that
        is gone."""
        gone = 0.0
        while self.segments and (
            self.segments[0].newest < before or (self.bytes > most and len(self.segments) > 1)
        ):
            segment = self.segments.popleft()
            del self._by_number[segment.number]
            self.bytes -= segment.size
            gone = segment.newest
            os.close(segment.descriptor)
        return gone

    def close(self) -> None:
        self.clear(float("inf"), 0)


def shelved(row: type[Any], shelf: PastVersions) -> type[Any]:
    """The class of rows whose `data` is a place on the shelf; a row becomes one by changing its
    class."""
    slot = row.__dict__["data"]

    def data(self: Any) -> bytes:
        return shelf.take(slot.__get__(self))

    return type(
        f"Shelved{row.__name__}",
        (row,),
        {"__slots__": (), "data": property(data), "__module__": row.__module__},
    )
