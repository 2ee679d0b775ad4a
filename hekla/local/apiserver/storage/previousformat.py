"""The state format of versions in which rows had no checksums: the first start of a newer API
server reads it, and stores it in the new format.

The database had one table and no digest; its row 0 held the highest resourceVersion. A frame of a
log was the length of its rows, their CRC-32, and the rows. Logs did not refer to each other.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from hekla.local.apiserver.storage import database
from hekla.local.apiserver.storage.database import DATABASE, Digest
from hekla.local.apiserver.storage.logfile import (
    COUNTER,
    EMPTY_SIZE,
    MAGIC,
    Damaged,
    Heading,
    Record,
    begin,
    logs,
    number,
)

COLUMNS = ("id", "collection", "key", "version", "data")
HEADER = struct.Struct(">II")

_ROWS = msgspec.msgpack.Decoder(list[Record])


def is_previous(path: Path) -> bool:
    """Whether a database has the previous format.  Raises sqlite3.Error."""
    with closing(database.readable(path)) as previous:
        return database.columns(previous) == COLUMNS


def migrate(directory: Path) -> tuple[Path, int] | None:
    """Convert state of the previous format; if the newest log had a torn write at its end, returns
    that log and the size of the torn write.

    A kill at any point leaves one format or the other. Raises Damaged, sqlite3.Error, OSError.
    """
    path = directory / DATABASE
    with closing(database.writable(path)) as previous:
        database.sound(previous, path)
        found = previous.execute(
            "SELECT id, collection, key, version, data FROM objects ORDER BY id"
        )
        rows = {row[0]: Record(*row) for row in found}
        # Its write-ahead log must be empty before another file takes its name.
        database.checkpoint(previous)
    counter = rows.pop(COUNTER, None)
    merged = version = counter.version if counter is not None else 1
    newest, torn = 0, None
    left = logs(directory)
    for log in left:
        if _is_new(log):
            if log.stat().st_size > EMPTY_SIZE or log != left[-1]:
                raise Damaged(
                    path, f"{log} has what was written since, but the database is an older one"
                )
            break
        newest = number(log)
        reading = _Log(log, newest=log == left[-1] or _is_new(left[-1]))
        transactions = list(reading)
        if max((row.version for found in transactions for row in found), default=0) > merged:
            rows.update((row.id, row) for found in transactions for row in found)
        if reading.torn:
            torn = log, reading.torn
    version = max([version, *(row.version for row in rows.values())])
    descriptor, _ = begin(directory, Heading(newest + 1, 0, version, False))
    os.close(descriptor)
    database.create(directory, rows.values(), Digest(newest, 0, version))
    return torn


def _is_new(log: Path) -> bool:
    with log.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class _Log:
    """The transactions of a log. An incomplete one at the end of the newest log was never
    acknowledged, and is left out."""

    def __init__(self, path: Path, *, newest: bool) -> None:
        self.path = path
        self.newest = newest
        self.torn = 0

    def __iter__(self) -> Iterator[list[Record]]:
        content = self.path.read_bytes()
        at = 0
        while at < len(content):
            length, checksum = HEADER.unpack(
                content[at : at + HEADER.size].ljust(HEADER.size, b"\0")
            )
            end = at + HEADER.size + length
            rows = content[at + HEADER.size : end]
            if not rows or end > len(content) or zlib.crc32(rows) != checksum:
                if not self.newest or (end < len(content) and any(content[at:])):
                    raise Damaged(self.path, f"there is no whole frame at byte {at}")
                self.torn = len(content) - at
                return
            at = end
            yield _ROWS.decode(rows)
