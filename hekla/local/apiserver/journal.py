"""The disk under the store: one SQLite file, one writing thread, group commit.

Rows are handed over by the event loop and gather while the thread waits for the disk; each turn of the thread writes all that
has gathered as ONE statement.  One statement, because every step of SQLite lets go of the interpreter lock and has to win it back
from a busy event loop: row by row, a batch of 64 waited for the lock far longer than for the disk.  That is also why a
deletion is not a DELETE but a row whose data is NULL (its number is given to the next new object), and why the version
counter is row 0 of the same table.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

COUNTER = 0
"""The number of the row that carries the newest resourceVersion."""
ROWS_A_STATEMENT = 2000
BUSY = 4
"""Rows in a transaction from which on the next one waits a moment for more."""
GATHER_SECONDS = 0.0015
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    id INTEGER PRIMARY KEY,
    collection TEXT,
    key TEXT,
    version INTEGER NOT NULL,
    data BLOB
)
"""


class Record(NamedTuple):
    """A row as it lies on the disk; data None marks a free number."""

    id: int
    collection: str | None
    key: str | None
    version: int
    data: bytes | None


class StorageError(Exception):
    """The data directory cannot be used, and why."""


@dataclass(slots=True)
class Statistics:
    """What the commit thread has done, for /metrics."""

    transactions: int = 0
    rows: int = 0
    seconds: float = 0.0
    failures: int = 0


class Journal:
    """The file, its lock and its writing thread.

    `done(batch, error)` is called in the thread after each transaction; with an error, the thread stands still until `resume`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "state.db"
        self.statistics = Statistics()
        self._lock = self._take_lock()
        try:
            self._database = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self._waiting: deque[tuple[Record, Any]] = deque()
        self._condition = threading.Condition()
        self._closing = False
        self._halted = False
        self._busy = False
        self._thread: threading.Thread | None = None
        self._done: Callable[[list[Any], Exception | None], None] | None = None

    def _take_lock(self) -> int:
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"the data directory {self.directory} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            os.close(lock)
            who = f"process {holder}" if holder else "another process"
            raise StorageError(f"the data directory {self.directory} is in use by {who}; one API server serves one directory") from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _open(self) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=512)
            os.chmod(self.path, 0o600)
            verdict = [row[0] for row in database.execute("PRAGMA quick_check(3)")]
            if verdict != ["ok"]:
                raise StorageError(
                    f"the database {self.path} is damaged and is not served ({'; '.join(verdict)}); "
                    "restore it from a copy, or move it away to start empty"
                )
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("PRAGMA wal_autocheckpoint=4000")
            database.execute(SCHEMA)
        except sqlite3.DatabaseError as error:
            advice = "restore it from a copy, or move it away to start empty"
            raise StorageError(f"the database {self.path} cannot be read and is not served ({error}); {advice}") from error
        return database

    def records(self) -> Iterator[Record]:
        """All rows, free numbers and the counter included."""
        try:
            for row in self._database.execute("SELECT id, collection, key, version, data FROM objects ORDER BY id"):
                yield Record(*row)
        except sqlite3.DatabaseError as error:
            raise StorageError(f"the database {self.path} cannot be read and is not served ({error})") from error

    def start(self, done: Callable[[list[Any], Exception | None], None]) -> None:
        self._done = done
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
        self._thread.start()

    def append(self, record: Record, ticket: Any) -> None:
        """Hands a row over; the ticket comes back through `done`."""
        waiting = self._waiting
        waiting.append((record, ticket))
        if len(waiting) == 1:
            # The thread looks for rows under the lock before it waits, so it is either told of this one or has seen it.
            with self._condition:
                self._condition.notify()

    def take_back(self) -> list[Any]:
        """What is still waiting, taken out of the queue (after a failure)."""
        return [ticket for _, ticket in self._taken()]

    def _taken(self) -> list[tuple[Record, Any]]:
        """What waits now; what comes meanwhile waits on."""
        waiting = self._waiting
        return [waiting.popleft() for _ in range(len(waiting))]

    def resume(self) -> None:
        with self._condition:
            self._halted = False
            self._condition.notify()

    def close(self) -> None:
        """Writes what is waiting, then closes the file."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        self._database.close()
        os.close(self._lock)

    def _run(self) -> None:
        assert self._done is not None
        while True:
            with self._condition:
                while not self._closing and (self._halted or not self._waiting):
                    self._condition.wait()
                if self._halted or not self._waiting:
                    return
                gather = self._busy
            if gather:
                # Under load a short wait makes one transaction of several: the disk is asked less often, and nobody waits longer.
                time.sleep(GATHER_SECONDS)
            batch = self._taken()
            self._busy = len(batch) >= BUSY
            started = time.perf_counter()
            error = self._commit([record for record, _ in batch])
            self.statistics.seconds += time.perf_counter() - started
            self.statistics.transactions += 1
            self.statistics.rows += len(batch)
            if error is not None:
                self.statistics.failures += 1
                with self._condition:
                    self._halted = True
            self._done([ticket for _, ticket in batch], error)

    def _commit(self, records: list[Record]) -> Exception | None:
        """Writes records and the counter in one transaction; the error when that failed, and then nothing is written."""
        # The last row of an object wins, as REPLACE would have it; written once.
        rows = {record.id: record for record in records}
        rows[COUNTER] = Record(COUNTER, None, None, max(record.version for record in records), b"")
        try:
            everything = list(rows.values())
            if len(everything) <= ROWS_A_STATEMENT:
                self._write(everything)
                return None
            self._database.execute("BEGIN")
            for start in range(0, len(everything), ROWS_A_STATEMENT):
                self._write(everything[start : start + ROWS_A_STATEMENT])
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            return error
        return None

    def _write(self, rows: list[Record]) -> None:
        values = ",".join(["(?,?,?,?,?)"] * len(rows))
        flat = [value for row in rows for value in row]
        self._database.execute(f"INSERT OR REPLACE INTO objects (id, collection, key, version, data) VALUES {values}", flat)
