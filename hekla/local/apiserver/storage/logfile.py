"""The log files under the store: linked frames, so that a torn write can be told from missing or
changed data.

A log begins with its magic bytes and a frame that refers to the log before it. Each further frame
holds the rows of one transaction. A frame consists of the length of its payload, a checksum of that
length, and a checksum of both with the payload. Each checksum continues that of the frame before,
so no frame can be left out, changed or moved. The resourceVersions of the rows have no gaps. A
frame without rows ends a log: another log must follow.

Only the end of the newest log can hold an incomplete frame, and only after the part that is known
to have been acknowledged (`Mark`).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

LOG = "state.log."
"""The prefix of file names; the number of the log follows."""
COMMITTED = "state.committed"
MAGIC = b"hekla log 2\n"
HEADER = struct.Struct(">III")
"""Of a frame: length of the payload, checksum of that, checksum of everything."""
LENGTH = struct.Struct(">I")
HEADING = struct.Struct(">QIQ?")
EMPTY_SIZE = len(MAGIC) + HEADER.size + HEADING.size
"""The size of a log without rows, in bytes."""
MARK = struct.Struct(">QQ")
COUNTER = 0
"""The number of a record that only says which resourceVersions are skipped: those up to its own."""

synchronize = getattr(os, "fdatasync", os.fsync)


class Record(NamedTuple):
    """A row as it is on disk; without data it marks a free number."""

    id: int
    collection: str | None
    key: str | None
    version: int
    data: bytes | None


class Heading(NamedTuple):
    """The first frame of a log."""

    number: int
    chain: int
    """The checksum at the end of the log before."""
    version: int
    """The highest resourceVersion before this log."""
    first: bool
    """There is no state from before this log."""


class Damaged(Exception):
    """A file of the state has other content than was written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is damaged and is not served: {what}")


class Missing(Exception):
    """A file of the state does not exist."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is missing: {why}")


_ROWS = msgspec.msgpack.Decoder(list[Record])
_NO_ROWS = msgspec.msgpack.encode([])


def frame(payload: bytes, chain: int) -> tuple[bytes, int]:
    """A frame after one that ended with this checksum, and its own final checksum."""
    length = LENGTH.pack(len(payload))
    begun = zlib.crc32(length, chain)
    end = zlib.crc32(payload, begun)
    return HEADER.pack(len(payload), begun, end) + payload, end


def seal(chain: int) -> bytes:
    """The frame which says that another log follows."""
    return frame(_NO_ROWS, chain)[0]


def beginning(heading: Heading) -> tuple[bytes, int]:
    """The first bytes of a log, and their final checksum."""
    first, chain = frame(HEADING.pack(*heading), zlib.crc32(MAGIC))
    return MAGIC + first, chain


def logs(directory: Path) -> list[Path]:
    """The logs that were not merged yet, oldest first."""
    found = [path for path in directory.glob(f"{LOG}*") if path.name.removeprefix(LOG).isdigit()]
    return sorted(found, key=number)


def number(log: Path) -> int:
    """The number of a log."""
    return int(log.name.removeprefix(LOG))


def path_of(directory: Path, number: int) -> Path:
    """The path of the log with a number."""
    return directory / f"{LOG}{number}"


def synchronize_directory(directory: Path) -> None:
    """Wait until the entries of a directory are on disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all bytes, however many calls that takes. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def begin(directory: Path, heading: Heading) -> tuple[int, int]:
    """Create a log, all or nothing; returns its descriptor and its final checksum. Raises OSError."""
    content, chain = beginning(heading)
    path = path_of(directory, heading.number)
    fresh = path.with_name(f"{path.name}.new")
    log = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_whole(log, content)
        os.fsync(log)
        fresh.rename(path)
        synchronize_directory(directory)
    except BaseException:
        os.close(log)
        fresh.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    return log, chain


def cut(log: Path, size: int, more: bytes = b"") -> None:
    """Truncate a log to a size, and append other bytes there. Raises OSError."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        write_whole(descriptor, more)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Mark:
    """How much of the newest log is known to be on disk, in a separate file.

    Nobody waits until this file itself is on disk: killing the process does not lose it, and after
    a power failure it is older than the log, or missing. It tells a torn write that was never
    acknowledged from acknowledged data that is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.descriptor: int | None = None
        with suppress(OSError):  # the disk is full; the log works without it
            self.descriptor = os.open(
                directory / COMMITTED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
            )

    def set(self, log: int, size: int) -> None:
        """Record that a log is on disk up to this size."""
        if self.descriptor is not None:
            content = MARK.pack(log, size)
            with suppress(OSError):
                os.pwrite(self.descriptor, content + LENGTH.pack(zlib.crc32(content)), 0)


def committed(directory: Path) -> tuple[int, int] | None:
    """Number and size of the log according to the mark; None if the mark cannot be trusted."""
    try:
        content = (directory / COMMITTED).read_bytes()
    except FileNotFoundError:
        return None
    if (
        len(content) != MARK.size + LENGTH.size
        or LENGTH.pack(zlib.crc32(content[: MARK.size])) != content[MARK.size :]
    ):
        return None
    log, size = MARK.unpack(content[: MARK.size])
    return log, size


class LogReader:
    """Reads a log from its beginning. After the last frame it knows how the log ends.

    `newest`: its end may be torn. `committed`: the size up to which it cannot be torn, None if that
    is not known.
    """

    def __init__(self, path: Path, *, newest: bool = False, committed: int | None = None) -> None:
        self.path = path
        self.newest = newest
        self.committed = committed
        self.size = 0
        """The size of all complete frames."""
        self.torn = 0
        """The number of bytes after them."""
        self.sealed = False
        with path.open("rb") as file:
            content = file.read(EMPTY_SIZE)
        if len(content) < EMPTY_SIZE:
            raise Damaged(
                path, f"it has {len(content)} bytes, and is cut off in its first {EMPTY_SIZE}"
            )
        self.heading = Heading._make(HEADING.unpack(content[-HEADING.size :]))
        expected, self.chain = beginning(self.heading)
        """The checksum at the end of the rows."""
        if content != expected or self.heading.number != number(path):
            raise Damaged(path, "it does not begin as a log does")
        self.size = EMPTY_SIZE
        self.version = self.heading.version

    def follows(self, before: Path, chain: int, version: int) -> None:
        """Raise Damaged unless the log continues a file whose rows end with this checksum and
        version."""
        if (self.heading.chain, self.heading.version) != (chain, version):
            ends = f"ends at resourceVersion {version}, and {self.path} goes on from {self.heading.version}"
            raise Damaged(before, f"it {ends}: the one or the other is not as it was written")

    def __iter__(self) -> Iterator[list[Record]]:
        """The rows of each transaction. Raises Damaged, OSError."""
        whole = self.path.stat().st_size
        with self.path.open("rb") as file:
            file.seek(self.size)
            while self.size < whole:
                header = file.read(HEADER.size)
                if len(header) < HEADER.size:
                    return self._tear(whole)
                length, head, end = HEADER.unpack(header)
                begun = zlib.crc32(header[: LENGTH.size], self.chain)
                if begun != head:
                    return self._tear(whole, of_a_write=not any(header) or not any(file.read()))
                if self.size + HEADER.size + length > whole:
                    return self._tear(whole)
                payload = file.read(length)
                if zlib.crc32(payload, begun) != end:
                    # What was asked of the disk may have its length, but not all of its content; a
                    # transaction does not end with zero.
                    last = self.size + HEADER.size + length == whole
                    return self._tear(
                        whole,
                        of_a_write=last and (self.committed is not None or payload[-1:] == b"\0"),
                    )
                rows = self._rows(payload)
                self.size += HEADER.size + length
                if not rows:
                    self.sealed = True
                    if self.size < whole:
                        raise Damaged(
                            self.path, f"more follows at byte {self.size}, behind its end"
                        )
                    return None
                self.chain = end
                yield rows
        if self.committed is not None and self.size < self.committed:
            self._tear(whole)
        return None

    def _rows(self, payload: bytes) -> list[Record]:
        try:
            rows = _ROWS.decode(payload)
        except msgspec.DecodeError as error:
            raise Damaged(
                self.path, f"the frame at byte {self.size} has no rows ({error})"
            ) from error
        for row in rows:
            if row.version != self.version + 1 and (
                row.id != COUNTER or row.version <= self.version
            ):
                raise Damaged(
                    self.path,
                    f"at byte {self.size} resourceVersion {row.version} follows {self.version}",
                )
            self.version = row.version
        return rows

    def _tear(self, whole: int, *, of_a_write: bool = True) -> None:
        """The bytes from here on are not a frame. Raise Damaged unless this can be a write that was
        never acknowledged."""
        if self.newest and self.committed is not None and whole < self.committed:
            raise Damaged(
                self.path,
                f"{self.committed - whole} bytes are missing at its end, which were answered",
            )
        if (
            not self.newest
            or not of_a_write
            or (self.committed is not None and self.size < self.committed)
        ):
            raise Damaged(self.path, f"there is no whole frame at byte {self.size}")
        self.torn = whole - self.size
