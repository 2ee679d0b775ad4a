"""Writes the log under the store, waits for the disk, and merges logs into the database: a separate
process beside the API server.

The server's event loop must not wait for a disk, and a thread would have to get the interpreter
lock back from a busy loop several times for each transaction. So the rows come through a socket.
This process needs msgspec and the standard library only.

The server sends a length and the highest resourceVersion, then the rows of one transaction in
MessagePack; length 0 ends the stream. The answer is the length of an error message and the message;
an empty message means that the rows are on disk. The next frame is sent after that answer, so only
the last frame of the newest log can be torn.

A log is merged when nothing has been written for a while, or when it is large. First another log is
begun, so there is always a newest log; then the newest row of each object is written to the
database in one transaction, and when that is in the database file itself the log is deleted. If
either process is killed, nothing that was acknowledged is lost: a starting server reads the logs
that are not merged.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
from collections import deque
from contextlib import closing
from pathlib import Path
from select import select

from hekla.local.apiserver.storage import fulldisk, logfile
from hekla.local.apiserver.storage.database import DATABASE, merge, writable
from hekla.local.apiserver.storage.logfile import (
    EMPTY_SIZE,
    LENGTH,
    Damaged,
    Heading,
    Mark,
    Missing,
    logs,
    number,
    path_of,
    synchronize,
)

PREFIX = struct.Struct(">IQ")
"""The head of a message from the server: length of the rows, and the highest resourceVersion after
them."""
MAX_LOG_BYTES = 32 * 1024 * 1024
"""A log of this size is merged even while more is written."""
IDLE_INTERVAL = 2.0
"""Seconds without a write after which the log is merged."""
RETRY_INTERVAL = 30.0
"""Seconds until merging is tried again after a failure."""


class LogWriter:
    """The process: receives frames until the end, and merges logs in between."""

    def __init__(
        self, directory: Path, server: socket.socket, log: int, size: int, chain: int, version: int
    ) -> None:
        self.directory = directory
        self.server = server
        self.number = log
        self.size = size
        self.chain = chain
        self.version = version
        """The end of the newest log: its size, checksum and resourceVersion."""
        self.log = os.open(path_of(directory, log), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.old = deque(path for path in logs(directory) if number(path) < log)
        """Complete logs, oldest first."""
        self.merging: threading.Thread | None = None
        self.not_before = 0.0
        """When merging is tried next."""
        self.mark = Mark(directory)
        self.mark.set(log, size)

    def run(self) -> None:
        """Returns when the server says so or has ended."""
        while True:
            if not select([self.server], [], [], self.receive_timeout())[0]:
                self.begin_merging()
                continue
            prefix = self.receive(PREFIX.size)
            if prefix is None:
                return
            length, version = PREFIX.unpack(prefix)
            if not length:
                break
            rows = self.receive(length)
            if rows is None:
                return
            error = self.write(rows, version).encode()
            self.server.sendall(LENGTH.pack(len(error)) + error)
            if self.size >= MAX_LOG_BYTES:
                self.begin_merging()
        if self.merging is not None:
            self.merging.join()
        self.not_before = 0.0
        self.switch_log()
        self.merge()

    def receive_timeout(self) -> float | None:
        """Seconds to wait for a frame before logs are merged; None if there are none to merge."""
        if self.size == EMPTY_SIZE and not self.old:
            return None
        return max(IDLE_INTERVAL, self.not_before - time.monotonic())

    def receive(self, length: int) -> bytes | None:
        """Receive this many bytes; None if the server ends before."""
        data = self.server.recv(length, socket.MSG_WAITALL)
        while data and len(data) < length:  # a signal may interrupt it
            more = self.server.recv(length - len(data), socket.MSG_WAITALL)
            data = data + more if more else b""
        return data or None

    def write(self, rows: bytes, version: int) -> str:
        """Append a frame and wait for the disk; returns why that failed, and then nothing of the
        frame is in the log."""
        frame, chain = logfile.frame(rows, self.chain)
        try:
            logfile.write_whole(self.log, frame)
            synchronize(self.log)
        except OSError as error:
            # If that fails too, this process ends, and the server with it.
            os.ftruncate(self.log, self.size)
            return fulldisk.reason(error, self.directory)
        self.size += len(frame)
        self.chain = chain
        self.version = version
        self.mark.set(self.number, self.size)
        return ""

    def switch_log(self) -> None:
        """Begin another log for the next frame, so that the current one can be merged."""
        if self.size == EMPTY_SIZE:
            return
        try:
            log, chain = logfile.begin(
                self.directory, Heading(self.number + 1, self.chain, self.version, False)
            )
            try:
                self.seal()
            except OSError:
                os.close(log)
                path_of(self.directory, self.number + 1).unlink()
                logfile.synchronize_directory(self.directory)
                raise
        except OSError as error:
            self.retry_merging_later(error)
            return
        os.close(self.log)
        self.old.append(path_of(self.directory, self.number))
        self.number, self.log, self.size, self.chain = self.number + 1, log, EMPTY_SIZE, chain
        self.mark.set(self.number, self.size)

    def seal(self) -> None:
        """Write that another log follows. Raises OSError, and then nothing of that is in the log."""
        try:
            logfile.write_whole(self.log, logfile.seal(self.chain))
            synchronize(self.log)
        except OSError:
            os.ftruncate(self.log, self.size)
            raise

    def begin_merging(self) -> None:
        """Merge in a thread, unless that is under way or has just failed."""
        if (
            self.merging is not None and self.merging.is_alive()
        ) or time.monotonic() < self.not_before:
            return
        self.switch_log()
        if not self.old:
            return
        self.merging = threading.Thread(target=self.merge, daemon=True)
        self.merging.start()

    def merge(self) -> None:
        """Merge the complete logs."""
        if not self.old:
            return
        try:
            with closing(writable(self.directory / DATABASE)) as database:
                while self.old:
                    merge(database, self.old[0])
                    self.old.popleft()
        except (sqlite3.Error, OSError, Damaged, Missing) as error:
            self.retry_merging_later(error)

    def retry_merging_later(self, error: Exception) -> None:
        """Log why merging failed, and retry later."""
        why = fulldisk.reason(error, self.directory)
        print(
            f"the log stays for the time being, it cannot be settled in the database: {why}",
            file=sys.stderr,
            flush=True,
        )
        self.not_before = time.monotonic() + RETRY_INTERVAL


def main() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the server says when to end
    sys.setswitchinterval(0.0005)  # writing takes precedence over merging
    directory, descriptor, *end = sys.argv[1:]
    server = socket.socket(fileno=int(descriptor))
    try:
        LogWriter(Path(directory), server, *map(int, end)).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has ended
    except OSError as error:
        sys.exit(f"the log in {directory} cannot be written: {error}")


if __name__ == "__main__":
    main()
