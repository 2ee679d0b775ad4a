"""Checks all files of the state at a start, and loads the state or refuses it.

The files refer to each other: the database says which log was merged last, and how its rows ended;
each log continues the one before; a log that is not the newest ends with a frame that says that
another follows. There is always a newest log. So if any file is missing, truncated, changed or
outdated, another file shows it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from hekla.local.apiserver.storage import database, fulldisk, previousformat
from hekla.local.apiserver.storage.database import DATABASE, MAGIC, WRITE_AHEAD, Digest
from hekla.local.apiserver.storage.logfile import (
    COUNTER,
    EMPTY_SIZE,
    Damaged,
    Heading,
    LogReader,
    Missing,
    Record,
    begin,
    committed,
    cut,
    logs,
    number,
    path_of,
    seal,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST = Heading(number=1, chain=0, version=1, first=True)


class StorageError(Exception):
    """The data directory cannot be used; the text says why."""


@dataclass(slots=True)
class State(Generic[T]):
    """The stored state, and where the next write goes."""

    rows: dict[int, T]
    """What is kept of the rows, by number."""
    version: int
    """The highest resourceVersion."""
    log: int
    """The number of the newest log."""
    size: int
    chain: int
    """The end of the newest log: its size and checksum."""


def recover(directory: Path, keep: Callable[[Record], T]) -> State[T]:
    """The state of a directory, which is created if there is none. Raises StorageError, and then
    nothing was changed.

    Each row is handed to `keep` as soon as it has been read, so that the rows are never all in
    memory as they are on the disk.
    """
    try:
        return _recover(directory, keep)
    except (Damaged, Missing) as error:
        raise StorageError(f"{error}; {advice(directory)}") from error
    except sqlite3.Error as error:
        path = directory / DATABASE
        if fulldisk.is_full(error, directory):
            raise StorageError(f"{directory}: {fulldisk.FULL_DISK_ADVICE}") from error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        ):
            raise StorageError(
                f"the database {path} is in use by another program ({error}); end that, and start again"
            ) from error
        raise StorageError(
            f"{path} is damaged and is not served: {error}; {advice(directory)}"
        ) from error
    except UnicodeDecodeError as error:  # SQLite's message may quote damaged text from the file
        raise StorageError(
            f"{directory / DATABASE} is damaged and is not served: {error}; {advice(directory)}"
        ) from error
    except OSError as error:
        if fulldisk.is_full(error, directory):
            raise StorageError(f"{directory}: {fulldisk.FULL_DISK_ADVICE}") from error
        named = error.filename or directory
        raise StorageError(
            f"the data directory {directory} cannot be used: {named}: {error.strerror or error}"
        ) from error


def advice(directory: Path) -> str:
    """What a user can do about damaged state."""
    return (
        f"restore {directory} from a copy, all of its state.* together; where there is none, keep these files as they are, "
        "and begin another cluster beside it"
    )


def _recover(directory: Path, keep: Callable[[Record], T]) -> State[T]:
    path = directory / DATABASE
    if not path.exists():
        _begin(directory)
    _refuse_empty(path)
    if previousformat.is_previous(path):
        log.info("%s has the format of an earlier version and is stored anew", path)
        torn = previousformat.migrate(directory)
        if torn is not None:
            _say_dropped(*torn)
    digest, rows = database.read(path, keep)
    return _read_logs(directory, digest, rows, keep)


def _begin(directory: Path) -> None:
    """Create the database, if all state is still in logs or there is none."""
    path = directory / DATABASE
    left = logs(directory)
    ahead = directory / WRITE_AHEAD
    if ahead.exists() and ahead.stat().st_size:
        raise Missing(path, f"{ahead} is there, which belongs to it")
    if left and not LogReader(left[0]).heading.first:
        raise Missing(path, f"{left[0]} is there, which goes on from it")
    if not left:
        mark = committed(directory)
        if mark is not None:
            raise Missing(path, f"there was one, with the log {path_of(directory, mark[0])}")
        descriptor, _ = begin(directory, FIRST)
        os.close(descriptor)
    ahead.unlink(missing_ok=True)
    database.create(directory, (), Digest(log=0, chain=FIRST.chain, version=FIRST.version))


def _refuse_empty(path: Path) -> None:
    """Raise an error for an empty file, which SQLite would take for a new database."""
    with path.open("rb") as file:
        content = file.read(100)
    if len(content) < 100:
        raise Damaged(path, f"it has only {len(content)} bytes")
    if not content.startswith(MAGIC):
        raise Damaged(path, "it is not a database")


def _read_logs(
    directory: Path, digest: Digest, rows: dict[int, T], keep: Callable[[Record], T]
) -> State[T]:
    """Read the logs that are not merged. If the newest one has a torn end and everything else is
    valid, the end is cut off."""
    left = [path for path in logs(directory) if number(path) > digest.log]
    _all_there(directory, digest, left)
    mark = committed(directory)
    chain, version = digest.chain, digest.version
    readers: list[LogReader] = []
    for path in left:
        # A log is begun a moment before the previous one is ended.
        newest = path == left[-1] or (path == left[-2] and left[-1].stat().st_size == EMPTY_SIZE)
        reader = LogReader(
            path,
            newest=newest,
            committed=mark[1] if mark is not None and mark[0] == number(path) else None,
        )
        reader.follows(readers[-1].path if readers else directory / DATABASE, chain, version)
        for transaction in reader:
            rows.update((row.id, keep(row)) for row in transaction if row.id != COUNTER)
        if not (reader.sealed or newest):
            raise Damaged(
                path,
                f"it has no end, and {left[len(readers) + 1]}, which follows, is not one that was just begun",
            )
        chain, version = reader.chain, reader.version
        readers.append(reader)
    last = readers[-1]
    if last.sealed:
        raise Missing(
            path_of(directory, last.heading.number + 1), f"{last.path} says that it follows"
        )
    _cut_off(readers)
    return State(rows, version, last.heading.number, last.size, last.chain)


def _all_there(directory: Path, digest: Digest, left: list[Path]) -> None:
    wanted = path_of(directory, digest.log + 1)
    for path in left:
        if path != wanted:
            raise Missing(
                wanted,
                f"{path} came after it, and {directory / DATABASE} has only what came before",
            )
        wanted = path_of(directory, number(path) + 1)
    if not left:
        raise Missing(wanted, f"{directory / DATABASE} says that it follows what it has")
    mark = committed(directory)
    if mark is not None and mark[0] > number(left[-1]):
        raise Missing(path_of(directory, mark[0]), "it was written to")


def _cut_off(readers: Iterable[LogReader]) -> None:
    """Cut off a torn end, and end the last log but one."""
    *ended, last = readers
    for reader in ended:
        if not reader.sealed:
            cut(reader.path, reader.size, seal(reader.chain))
    if last.torn:
        cut(last.path, last.size)
    for reader in (*ended, last):
        if reader.torn:
            _say_dropped(reader.path, reader.torn)


def _say_dropped(path: Path, torn: int) -> None:
    log.warning(
        "%s: its last %d bytes are dropped: a write that was not finished, and not answered",
        path,
        torn,
    )
