"""Past versions of objects on disk, in unnamed files that vanish with the process.

A watch that resumes after a minute needs every version of that minute. Under load these are
hundreds of megabytes: too much for memory, little for a disk. The row of a past version stays in
memory; its bytes move here and are read again when needed, which is rare. Callers see no
difference: a past row is a row whose `data` property reads the file.
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
        """When something was last appended."""


class PastVersions:
    """Segments of past versions: appended at one end, dropped at the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: deque[Segment] = deque()
        self._by_number: dict[int, Segment] = {}
        self._numbers = 0
        self.bytes = 0

    def append(self, pieces: Sequence[bytes]) -> list[int]:
        """Write pieces and return the place of each.  Raises OSError; then nothing was written."""
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

    def read(self, place: int) -> bytes:
        """The bytes at a place that `append` returned."""
        length = place & ((1 << LENGTH_BITS) - 1)
        place >>= LENGTH_BITS
        segment = self._by_number[place >> OFFSET_BITS]
        return os.pread(segment.descriptor, length, place & ((1 << OFFSET_BITS) - 1))

    def drop(self, before: float, most: int) -> float:
        """Drop segments older than a time, and the oldest while there are more than `most` bytes.
        Returns the time of the newest bytes dropped."""
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
        self.drop(float("inf"), 0)


def past_row_class(row: type[Any], past_versions: PastVersions) -> type[Any]:
    """The class of rows whose `data` is a place in the files.  A row becomes a past row when its
    class is changed to this one."""
    slot = row.__dict__["data"]

    def data(self: Any) -> bytes:
        return past_versions.read(slot.__get__(self))

    return type(
        f"Past{row.__name__}",
        (row,),
        {"__slots__": (), "data": property(data), "__module__": row.__module__},
    )
