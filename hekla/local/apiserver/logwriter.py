"""Writes the log under the store, waits for the disk, and settles the log in the database: a process of its own beside the API server.

The server's loop may not wait for a disk, and a thread beside it would have to win the interpreter back from a loop that never rests,
several times a transaction.  So what is to be stored comes through a socket.  Run as a script; it needs msgspec and the standard library.

From the server comes a frame: its length, then the rows of one transaction in MessagePack; a frame of length 0 is the end.  The answer is
the length of an error's text, then the text; no text means that the rows are on the disk.  The next frame comes after that answer, so
none but the last of the last log can be torn.  In the log a frame has a checksum, too.

A log is settled when nothing has been written for a while, or when it is large: the newest row of each object goes into the database in one
transaction, then the file goes.  Logs are settled in their order, and one that is no newer than the database has been settled before.
A server that starts does that first, so whatever ends either process costs nothing that was answered.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from select import select
from typing import NamedTuple

import msgspec

DATABASE = "state.db"
LOG = "state.log."
"""Then the number of the log."""
LENGTH = struct.Struct(">I")
HEADER = struct.Struct(">II")
"""Of a frame in the log: the length of its rows, and their CRC-32."""
SETTLED_BYTES = 32 * 1024 * 1024
"""A log of this size is settled even if more is being written."""
IDLE_SECONDS = 2.0
AGAIN_SECONDS = 30.0
"""Until a log that could not be settled is tried again."""
COUNTER = 0
"""The number of the row that carries the newest resourceVersion."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY,
    collection TEXT,
    key TEXT,
    version INTEGER NOT NULL,
    data BLOB
)
"""

FULL = (errno.ENOSPC, errno.EDQUOT)

synchronize = getattr(os, "fdatasync", os.fsync)


class Record(NamedTuple):
    """A row as it lies on the disk; data None marks a free number."""

    id: int
    collection: str | None
    key: str | None
    version: int
    data: bytes | None


class Damaged(Exception):
    """A log has something else than frames before its end."""


_ROWS = msgspec.msgpack.Decoder(list[Record])


def opened(path: Path) -> sqlite3.Connection:
    """The database, made where it is missing.  Raises sqlite3.Error."""
    database = sqlite3.connect(path, isolation_level=None)
    os.chmod(path, 0o600)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("PRAGMA wal_autocheckpoint=4000")
    database.execute(SCHEMA)
    return database


def logs(directory: Path) -> list[Path]:
    """What has not been settled, the oldest first."""
    found = [path for path in directory.glob(f"{LOG}*") if path.name.removeprefix(LOG).isdigit()]
    return sorted(found, key=number)


def number(log: Path) -> int:
    return int(log.name.removeprefix(LOG))


def frames(log: Path) -> Iterator[list[Record]]:
    """The transactions of a log; one at its end that was not written whole was answered to nobody, and is left out.  Raises Damaged."""
    size = log.stat().st_size
    at = 0
    with log.open("rb") as file:
        while size - at >= HEADER.size:
            length, checksum = HEADER.unpack(file.read(HEADER.size))
            at += HEADER.size + length
            if at > size:
                return
            rows = file.read(length)
            if not rows or zlib.crc32(rows) != checksum:
                if at == size or not (any(rows) or any(file.read())):
                    return
                raise Damaged(f"{log} has no frame at {at - length - HEADER.size}")
            yield _ROWS.decode(rows)


def settle(database: sqlite3.Connection, log: Path) -> None:
    """Brings a log into the database and removes it.  Raises sqlite3.Error, OSError, Damaged; then it is still there."""
    newest, last = 0, {}
    for at, rows in enumerate(frames(log)):
        for row in rows:
            last[row.id] = at
            newest = max(newest, row.version)
    (settled,) = database.execute("SELECT COALESCE(MAX(version), 0) FROM objects WHERE id = ?", (COUNTER,)).fetchone()
    if newest > settled:
        insert = "INSERT OR REPLACE INTO objects (id, collection, key, version, data) VALUES (?, ?, ?, ?, ?)"
        database.execute("BEGIN IMMEDIATE")
        try:
            for at, rows in enumerate(frames(log)):
                database.executemany(insert, [row for row in rows if last[row.id] == at])
            database.execute(insert, Record(COUNTER, None, None, newest, b""))
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
    log.unlink()


class LogWriter:
    """The process: takes frames until the end, and settles in between."""

    def __init__(self, directory: Path, server: socket.socket) -> None:
        self.directory = directory
        self.server = server
        self.old: deque[Path] = deque()
        """Logs that are written no more, the oldest first."""
        self.number = 0
        self.log: int | None = None
        """The descriptor of the log that is written."""
        self.size = 0
        self.settling: threading.Thread | None = None
        self.not_before = 0.0
        """When settling is tried next."""

    def run(self) -> None:
        """Returns at the end, or when the server has gone."""
        while True:
            if not select([self.server], [], [], self.patience())[0]:
                self.begin_settling()
                continue
            length = self.receive(LENGTH.size)
            if length is None:
                return
            if not any(length):
                break
            rows = self.receive(*LENGTH.unpack(length))
            if rows is None:
                return
            error = self.write(rows).encode()
            self.server.sendall(LENGTH.pack(len(error)) + error)
            if self.size >= SETTLED_BYTES:
                self.begin_settling()
        if self.settling is not None:
            self.settling.join()
        self.put_aside()
        self.settle()

    def patience(self) -> float | None:
        """Seconds to wait for a frame before something is settled."""
        if not (self.size or self.old):
            return None
        return max(IDLE_SECONDS, self.not_before - time.monotonic())

    def receive(self, length: int) -> bytes | None:
        """So many bytes; None where the server has gone before they came."""
        found = self.server.recv(length, socket.MSG_WAITALL)
        while found and len(found) < length:  # a signal may cut it short
            more = self.server.recv(length - len(found), socket.MSG_WAITALL)
            found = found + more if more else b""
        return found or None

    def write(self, rows: bytes) -> str:
        """Appends a frame and waits for the disk; gives why it could not, and then nothing of it is there."""
        try:
            if self.log is None:
                self.begin_log()
            assert self.log is not None
            frame = memoryview(HEADER.pack(len(rows), zlib.crc32(rows)) + rows)
            written = 0
            while written < len(frame):
                written += os.write(self.log, frame[written:])
            synchronize(self.log)
        except OSError as error:
            if self.log is not None:
                os.ftruncate(self.log, self.size)  # where even that fails, this process ends, and the server with it
            return "the disk is full" if error.errno in FULL else error.strerror or str(error)
        self.size += len(frame)
        return ""

    def begin_log(self) -> None:
        path = self.directory / f"{LOG}{self.number + 1}"
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except BaseException:
            os.close(log)
            path.unlink()
            raise
        self.log, self.size = log, 0
        self.number += 1

    def put_aside(self) -> None:
        """The log that was written is to be settled; the next frame begins another."""
        if self.log is not None:
            os.close(self.log)
            self.log, self.size = None, 0
            self.old.append(self.directory / f"{LOG}{self.number}")

    def begin_settling(self) -> None:
        """Settles beside what is written, unless that is under way or has just failed."""
        if (self.settling is not None and self.settling.is_alive()) or time.monotonic() < self.not_before:
            return
        if self.size:
            self.put_aside()
        self.settling = threading.Thread(target=self.settle, daemon=True)
        self.settling.start()

    def settle(self) -> None:
        """Settles what was put aside."""
        try:
            with closing(opened(self.directory / DATABASE)) as database:
                while self.old:
                    settle(database, self.old[0])
                    self.old.popleft()
        except (sqlite3.Error, OSError, Damaged) as error:
            print(f"the log stays for the time being, it cannot be settled in the database: {error}", file=sys.stderr, flush=True)
            self.not_before = time.monotonic() + AGAIN_SECONDS


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # the server says when it is the end
    sys.setswitchinterval(0.0005)  # what is to be written goes before settling
    directory, server = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    try:
        LogWriter(directory, server).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has gone


if __name__ == "__main__":
    main()
