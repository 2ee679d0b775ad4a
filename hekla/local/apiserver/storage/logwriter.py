"""Writes the log under the store, waits for the disk, and settles the log in the database: a
process of its own beside the API server.

The server's loop may not wait for a disk, and a thread beside it would have to win the interpreter
back from a loop that never rests, several times a transaction.  So what is to be stored comes
through a socket.  It needs msgspec and the standard library.

From the server comes the length of what follows and its highest resourceVersion, then the rows of
one transaction in MessagePack; the length 0 is the end.  The answer is the length of an error's
text, then the text; no text means that the rows are on the disk.  The next frame comes after that
answer, so none but the last of the newest log can be torn.

A log is settled when nothing has been written for a while, or when it is large.  Another one is
begun first, so a newest log is always there; then the newest row of each object goes into the
database in one transaction, and when that is in the file itself the log goes.  Whatever ends either
process costs nothing that was answered: a server that starts reads what is not settled.
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
from hekla.local.apiserver.storage.database import DATABASE, settle, writable
from hekla.local.apiserver.storage.logfile import (
    BEGINNING,
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
"""Of what comes from the server: the length of the rows, the highest resourceVersion after them."""
SETTLED_BYTES = 32 * 1024 * 1024
"""A log of this size is settled even if more is being written."""
IDLE_SECONDS = 2.0
AGAIN_SECONDS = 30.0
"""Until a log that could not be settled is tried again."""


class LogWriter:
    """The process: takes frames until the end, and settles in between."""

    def __init__(
        self, directory: Path, server: socket.socket, log: int, size: int, chain: int, version: int
    ) -> None:
        self.directory = directory
        self.server = server
        self.number = log
        self.size = size
        self.chain = chain
        self.version = version
        """How the newest log ends: after so many bytes, with this checksum and this
        resourceVersion."""
        self.log = os.open(path_of(directory, log), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.old = deque(path for path in logs(directory) if number(path) < log)
        """Logs that are written no more, the oldest first."""
        self.settling: threading.Thread | None = None
        self.not_before = 0.0
        """When settling is tried next."""
        self.mark = Mark(directory)
        self.mark.set(log, size)

    def run(self) -> None:
        """Returns at the end, or when the server has gone."""
        while True:
            if not select([self.server], [], [], self.patience())[0]:
                self.begin_settling()
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
            if self.size >= SETTLED_BYTES:
                self.begin_settling()
        if self.settling is not None:
            self.settling.join()
        self.not_before = 0.0
        self.put_aside()
        self.settle()

    def patience(self) -> float | None:
        """Seconds to wait for a frame before something is settled."""
        if self.size == BEGINNING and not self.old:
            return None
        return max(IDLE_SECONDS, self.not_before - time.monotonic())

    def receive(self, length: int) -> bytes | None:
        """So many bytes; None where the server has gone before they came."""
        found = self.server.recv(length, socket.MSG_WAITALL)
        while found and len(found) < length:  # a signal may cut it short
            more = self.server.recv(length - len(found), socket.MSG_WAITALL)
            found = found + more if more else b""
        return found or None

    def write(self, rows: bytes, version: int) -> str:
        """Appends a frame and waits for the disk; gives why it could not, and then nothing of it is
        there."""
        frame, chain = logfile.frame(rows, self.chain)
        try:
            logfile.write_whole(self.log, frame)
            synchronize(self.log)
        except OSError as error:
            # Where even that fails, this process ends, and the server with it.
            os.ftruncate(self.log, self.size)
            return fulldisk.reason(error, self.directory)
        self.size += len(frame)
        self.chain = chain
        self.version = version
        self.mark.set(self.number, self.size)
        return ""

    def put_aside(self) -> None:
        """The log that was written is to be settled, and the next frame goes to another, which is
        begun."""
        if self.size == BEGINNING:
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
            self.wait_with_settling(error)
            return
        os.close(self.log)
        self.old.append(path_of(self.directory, self.number))
        self.number, self.log, self.size, self.chain = self.number + 1, log, BEGINNING, chain
        self.mark.set(self.number, self.size)

    def seal(self) -> None:
        """Writes that another log follows.  Raises OSError, and then nothing of that is there."""
        try:
            logfile.write_whole(self.log, logfile.seal(self.chain))
            synchronize(self.log)
        except OSError:
            os.ftruncate(self.log, self.size)
            raise

    def begin_settling(self) -> None:
        """Settles beside what is written, unless that is under way or has just failed."""
        if (
            self.settling is not None and self.settling.is_alive()
        ) or time.monotonic() < self.not_before:
            return
        self.put_aside()
        if not self.old:
            return
        self.settling = threading.Thread(target=self.settle, daemon=True)
        self.settling.start()

    def settle(self) -> None:
        """Settles what was put aside."""
        if not self.old:
            return
        try:
            with closing(writable(self.directory / DATABASE)) as database:
                while self.old:
                    settle(database, self.old[0])
                    self.old.popleft()
        except (sqlite3.Error, OSError, Damaged, Missing) as error:
            self.wait_with_settling(error)

    def wait_with_settling(self, error: Exception) -> None:
        why = fulldisk.reason(error, self.directory)
        print(
            f"the log stays for the time being, it cannot be settled in the database: {why}",
            file=sys.stderr,
            flush=True,
        )
        self.not_before = time.monotonic() + AGAIN_SECONDS


def main() -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # the server says when it is the end
    sys.setswitchinterval(0.0005)  # what is to be written goes before settling
    directory, descriptor, *end = sys.argv[1:]
    server = socket.socket(fileno=int(descriptor))
    try:
        LogWriter(Path(directory), server, *map(int, end)).run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has gone
    except OSError as error:
        sys.exit(f"the log in {directory} cannot be written: {error}")


if __name__ == "__main__":
    main()
