"""The disk under the store: a SQLite file, and in front of it a log that a separate process writes
(`logwriter`), with group commit.

Rows are handed over in the event loop. All rows of one step of the loop, or of the time in which
the disk is busy, become one frame of the log, and are acknowledged when that is on disk. A deletion
is a row whose data is NULL; its number is reused for the next new object.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from hekla.local.apiserver.storage import fulldisk, recovery
from hekla.local.apiserver.storage.database import DATABASE
from hekla.local.apiserver.storage.logfile import COUNTER, LENGTH, Record
from hekla.local.apiserver.storage.logwriter import PREFIX
from hekla.local.apiserver.storage.recovery import StorageError

__all__ = ["Journal", "Record", "Statistics", "StorageError"]

T = TypeVar("T")

WRITER = "hekla.local.apiserver.storage.logwriter"

LOCK_TIMEOUT = 10.0
"""Seconds to wait for the log writer of a server that has ended; it holds the lock until it ends
too."""
CLOSE_TIMEOUT = 20.0
"""Seconds to wait for the log writer when the server ends. The next server merges what it has not
merged by then."""


@dataclass(slots=True)
class Statistics:
    """Counters for /metrics."""

    transactions: int = 0
    rows: int = 0
    seconds: float = 0.0
    """The time from sending rows to their acknowledgement."""
    failures: int = 0


class Journal(Generic[T]):
    """The files, their lock, and the process that writes them. `keep` makes of each stored row what
    `rows` gives.

    `done(batch, error)` is called in the event loop after each transaction. With an error, neither
    this transaction nor the waiting rows are stored, and the caller must take them back.
    """

    def __init__(self, directory: Path, keep: Callable[[Record], T]) -> None:
        self.directory = directory
        self.path = directory / DATABASE
        self.statistics = Statistics()
        self._lock = self._take_lock()
        try:
            self._state = recovery.recover(directory, keep)
        except BaseException:
            os.close(self._lock)
            raise
        self.version = self._state.version
        """The highest resourceVersion that is stored."""
        self._waiting: deque[tuple[Record, Any]] = deque()
        self._sent: list[Any] = []
        """Tickets of the rows that are being written."""
        self._sent_at = 0.0
        self._sent_version = 0
        """The highest resourceVersion of them."""
        self._answer = b""
        self._writer: subprocess.Popen[bytes] | None = None
        self._closing = False

    def _take_lock(self) -> int:
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if fulldisk.is_full(error, self.directory):
                raise StorageError(f"{self.directory}: {fulldisk.FULL_DISK_ADVICE}") from error
            raise StorageError(
                f"the data directory {self.directory} cannot be used: {error.strerror}"
            ) from error
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
                if not _has_ended(holder) or time.monotonic() > deadline:
                    os.close(lock)
                    who = f"process {holder}" if holder else "another process"
                    raise StorageError(
                        f"the data directory {self.directory} is in use by {who}; one API server serves one directory"
                    ) from error
            time.sleep(0.01)
        with suppress(OSError):  # the disk is full; the pid in the file is only for messages
            os.ftruncate(lock, os.pwrite(lock, str(os.getpid()).encode(), 0))
        return lock

    def rows(self) -> dict[int, T]:
        """What was kept of all rows by number, including free ones; can be read once, before
        `start`."""
        rows, self._state.rows = self._state.rows, {}
        return rows

    def start(self, done: Callable[[list[Any], Exception | None], None]) -> None:
        """Start to write. Call it in the event loop."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._channel, theirs = socket.socketpair()
        with theirs:
            state = self._state
            end = (state.log, state.size, state.chain, state.version)
            command = [
                sys.executable,
                "-P",
                "-m",
                WRITER,
                str(self.directory),
                str(theirs.fileno()),
                *map(str, end),
            ]
            # It has the import path of this process.
            found_in = os.pathsep.join(path for path in sys.path if path)
            self._writer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._lock),
                env={**os.environ, "PYTHONPATH": found_in},
            )
        self._channel.setblocking(False)
        self._loop.add_reader(self._channel, self._on_answer)

    @property
    def writer(self) -> int:
        """The pid of the log writer."""
        assert self._writer is not None
        return self._writer.pid

    def append(self, record: Record, ticket: Any) -> None:
        """Hand over a row; its ticket comes back through `done`."""
        waiting = self._waiting
        waiting.append((record, ticket))
        if len(waiting) == 1 and not self._sent:
            self._loop.call_soon(self._send)

    def take_back(self) -> list[Any]:
        """Remove the waiting rows from the queue after a failure; returns their tickets."""
        tickets = [ticket for _, ticket in self._waiting]
        self._waiting.clear()
        return tickets

    async def lost(self) -> None:
        """Raise StorageError if the writer ended by itself. Rows that were not acknowledged may or
        may not be on disk."""
        await self._lost

    async def close(self) -> None:
        """Have the waiting rows written and the log merged."""
        self._closing = True
        if self._writer is not None:
            while (self._sent or self._waiting) and not self._lost.done():
                await asyncio.sleep(0.005)
            self._channel.setblocking(True)
            ended = partial(self._writer.wait, CLOSE_TIMEOUT)
            try:
                self._channel.sendall(PREFIX.pack(0, 0))
                await self._loop.run_in_executor(None, ended)
            except (OSError, subprocess.TimeoutExpired):
                self._writer.kill()
                self._writer.wait()
            self._loop.remove_reader(self._channel)
            self._channel.close()
        os.close(self._lock)

    def _send(self) -> None:
        """Send the waiting rows as the next frame."""
        waiting = self._waiting
        if self._sent or not waiting:
            return
        self._sent = [ticket for _, ticket in waiting]
        records = [record for record, _ in waiting]
        before = records[0].version - 1
        if before != self.version:  # versions in between were refused; no others may be missing
            records.insert(0, Record(COUNTER, None, None, before, None))
        rows = msgspec.msgpack.encode(records)
        waiting.clear()
        self._sent_at = time.perf_counter()
        self._sent_version = records[-1].version
        self._push(memoryview(PREFIX.pack(len(rows), self._sent_version) + rows))

    def _push(self, rest: memoryview) -> None:
        try:
            rest = rest[self._channel.send(rest) :]
        except BlockingIOError:
            pass
        except OSError:
            return  # the writer has ended; `_on_answer` handles that
        if rest:
            self._loop.add_writer(self._channel, self._push_rest, rest)

    def _push_rest(self, rest: memoryview) -> None:
        self._loop.remove_writer(self._channel)
        self._push(rest)

    def _on_answer(self) -> None:
        """Handle an answer of the writer, or its end."""
        try:
            heard = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._loop.remove_reader(self._channel)
            self._loop.remove_writer(self._channel)
            if not self._closing:
                error = StorageError(
                    f"the process that writes to {self.directory} has ended, and may have stored what it was given last"
                )
                self._lost.set_exception(error)
                self._done(self._sent, error)
            return
        self._answer += heard
        if (
            len(self._answer) < LENGTH.size
            or len(self._answer) < LENGTH.size + LENGTH.unpack_from(self._answer)[0]
        ):
            return
        text, self._answer = self._answer[LENGTH.size :].decode(), b""
        batch, self._sent = self._sent, []
        self.statistics.seconds += time.perf_counter() - self._sent_at
        self.statistics.transactions += 1
        self.statistics.rows += len(batch)
        self.statistics.failures += bool(text)
        if not text:
            self.version = self._sent_version
        self._done(batch, OSError(text) if text else None)
        self._send()


def _has_ended(process: str) -> bool:
    """Whether the process that took the lock has ended. A pid equal to our own belongs to another
    container."""
    if not process.isdigit() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
