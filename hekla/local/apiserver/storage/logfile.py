"""The log files under the store: frames that name each other, so that what is missing or was
changed is told from what was cut off.

A log begins with what it is and a frame that names the log before it.  Each frame after that has
the rows of one transaction.  A frame is the length of its payload, a checksum of that length, and a
checksum of both with the payload; each checksum goes on from the frame before, so none can be left
out, changed or moved.  The rows' resourceVersions follow each other without a gap.  A frame without
rows is the last of its log: another log follows, and has to be there.

Only the end of the newest log can hold a frame that was not written whole, and only behind what is
known to have been answered (`Mark`).
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
"""Then the number of the log."""
COMMITTED = "state.committed"
MAGIC = b"hekla log 2\n"
HEADER = struct.Struct(">III")
"""Of a frame: the length of its payload, the checksum of that, the checksum of all."""
LENGTH = struct.Struct(">I")
HEADING = struct.Struct(">QIQ?")
BEGINNING = len(MAGIC) + HEADER.size + HEADING.size
"""Bytes of a log that has no rows yet."""
MARK = struct.Struct(">QQ")
COUNTER = 0
"""The number of a row that only says which resourceVersions are left out: up to its own."""

synchronize = getattr(os, "fdatasync", os.fsync)


class Record(NamedTuple):
    """A row as it lies on the disk; data None marks a free number."""

    id: int
    collection: str | None
    key: str | None
    version: int
    data: bytes | None


class Heading(NamedTuple):
    """The first frame of a log."""

    number: int
    chain: int
    """The checksum that the rows of the log before end with."""
    version: int
    """The highest resourceVersion before this log."""
    first: bool
    """Nothing of the cluster was stored before."""


class Damaged(Exception):
    """A file of the state is not what was written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is damaged and is not served: {what}")


class Missing(Exception):
    """A file of the state is not there."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is missing: {why}")


_ROWS = msgspec.msgpack.Decoder(list[Record])
_NO_ROWS = msgspec.msgpack.encode([])


def frame(payload: bytes, chain: int) -> tuple[bytes, int]:
    """A frame behind one that ended with this checksum, and the checksum that it ends with itself."""
    length = LENGTH.pack(len(payload))
    begun = zlib.crc32(length, chain)
    end = zlib.crc32(payload, begun)
    return HEADER.pack(len(payload), begun, end) + payload, end


def seal(chain: int) -> bytes:
    """The frame that says that another log follows."""
    return frame(_NO_ROWS, chain)[0]


def beginning(heading: Heading) -> tuple[bytes, int]:
    """The bytes that a log begins with, and the checksum that they end with."""
    first, chain = frame(HEADING.pack(*heading), zlib.crc32(MAGIC))
    return MAGIC + first, chain


def logs(directory: Path) -> list[Path]:
    """What has not been settled, the oldest first."""
    found = [path for path in directory.glob(f"{LOG}*") if path.name.removeprefix(LOG).isdigit()]
    return sorted(found, key=number)


def number(log: Path) -> int:
    return int(log.name.removeprefix(LOG))


def path_of(directory: Path, number: int) -> Path:
    return directory / f"{LOG}{number}"


def synchronize_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def begin(directory: Path, heading: Heading) -> tuple[int, int]:
    """Makes a log, whole or not at all; gives its descriptor and the checksum that it ends with.
    Raises OSError."""
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
    """Cuts off what stands behind that size, and writes something else there.  Raises OSError."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        write_whole(descriptor, more)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Mark:
    """How much of the newest log is known to be on the disk, in a file beside it.

    Nobody waits until this itself is on the disk: a kill takes nothing from it, and what a power
    cut leaves of it is older than the log, or nothing.  It tells what a power cut has left of a
    write that was never answered from what was answered and is damaged now.
    """

    def __init__(self, directory: Path) -> None:
        self.descriptor: int | None = None
        with suppress(OSError):  # where the disk is full; the log is as good without it
            self.descriptor = os.open(
                directory / COMMITTED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
            )

    def set(self, log: int, size: int) -> None:
        if self.descriptor is not None:
            content = MARK.pack(log, size)
            with suppress(OSError):
                os.pwrite(self.descriptor, content + LENGTH.pack(zlib.crc32(content)), 0)


def committed(directory: Path) -> tuple[int, int] | None:
    """Number and size of the log that the mark says; None where it says nothing that can be relied
    on."""
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
    """Reads a log from its beginning; when all of it has been read, it knows how the log ends.

    `newest` says that its end may be torn; `committed` is the size up to which that cannot be, None
    where nobody knows.
    """

    def __init__(self, path: Path, *, newest: bool = False, committed: int | None = None) -> None:
        self.path = path
        self.newest = newest
        self.committed = committed
        self.size = 0
        """Bytes of whole frames."""
        self.torn = 0
        """Bytes behind them."""
        self.sealed = False
        with path.open("rb") as file:
            content = file.read(BEGINNING)
        if len(content) < BEGINNING:
            raise Damaged(
                path, f"it has {len(content)} bytes, and is cut off in its first {BEGINNING}"
            )
        self.heading = Heading._make(HEADING.unpack(content[-HEADING.size :]))
        expected, self.chain = beginning(self.heading)
        """The checksum that the rows end with."""
        if content != expected or self.heading.number != number(path):
            raise Damaged(path, "it does not begin as a log does")
        self.size = BEGINNING
        self.version = self.heading.version

    def follows(self, before: Path, chain: int, version: int) -> None:
        """Raises Damaged unless the log is the next one after a file whose rows end so."""
        if (self.heading.chain, self.heading.version) != (chain, version):
            ends = f"ends at resourceVersion {version}, and {self.path} goes on from {self.heading.version}"
            raise Damaged(before, f"it {ends}: the one or the other is not as it was written")

    def __iter__(self) -> Iterator[list[Record]]:
        """The rows of each transaction.  Raises Damaged, OSError."""
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
        """What follows is no frame; raises Damaged where that cannot be a write that was never
        answered."""
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
