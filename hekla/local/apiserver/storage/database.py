"""The SQLite file into which logs are merged, with a digest of its content.

Each row has a checksum. The digest holds the number of rows, the sums of their versions and
checksums, and the number of the last merged log; it changes in the same transaction as the rows. A
row that is an older state of itself makes the sum of the versions smaller, so lost pages are
noticed, whether they were lost in the file or in its write-ahead log.

A log is deleted when its rows are in the file itself, not only in the write-ahead log: see
`checkpoint`.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from hekla.local.apiserver.storage.logfile import (
    COUNTER,
    Damaged,
    LogReader,
    Missing,
    Record,
    number,
    path_of,
    synchronize_directory,
)

T = TypeVar("T")

DATABASE = "state.db"
WRITE_AHEAD = "state.db-wal"
MAGIC = b"SQLite format 3\0"
SCHEMA = """
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    collection TEXT,
    key TEXT,
    data BLOB
);
CREATE TABLE digest (
    log INTEGER NOT NULL,
    chain INTEGER NOT NULL,
    version INTEGER NOT NULL,
    objects INTEGER NOT NULL,
    versions INTEGER NOT NULL,
    checksums INTEGER NOT NULL
);
"""
INSERT = "INSERT OR REPLACE INTO objects (id, version, checksum, collection, key, data) VALUES (?, ?, ?, ?, ?, ?)"
COLUMNS = ("id", "version", "checksum", "collection", "key", "data")
MAX_ROWS_PER_QUERY = 500
"""The most rows for which one statement asks."""


class Digest(NamedTuple):
    """What the database must contain."""

    log: int
    """The number of the last merged log."""
    chain: int
    """The checksum at the end of its rows; the next log repeats it."""
    version: int
    """The highest resourceVersion."""
    objects: int = 0
    """Rows, including those of free numbers."""
    versions: int = 0
    """The sum of their versions."""
    checksums: int = 0
    """The sum of their checksums."""


def checksum(
    id: int, version: int, collection: str | None, key: str | None, data: bytes | None
) -> int:
    """The CRC-32 of a row."""
    row = zlib.crc32(f"{id} {version} {collection} {key} {data is None}".encode())
    return row if data is None else zlib.crc32(data, row)


def stored(
    rows: Iterable[Record],
) -> Iterator[tuple[int, int, int, str | None, str | None, bytes | None]]:
    """Records as rows of the table."""
    for id, collection, key, version, data in rows:
        yield id, version, checksum(id, version, collection, key, data), collection, key, data


def writable(path: Path) -> sqlite3.Connection:
    """Open an existing database for writing. Raises sqlite3.Error."""
    database = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("PRAGMA wal_autocheckpoint=0")  # `merge` does that
    return database


def readable(path: Path) -> sqlite3.Connection:
    """Open a database for reading, without changing any file. Raises sqlite3.Error."""
    ahead = path.with_name(WRITE_AHEAD)
    alone = not (ahead.exists() and ahead.stat().st_size)
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if alone else ""),
        uri=True,
        isolation_level=None,
    )


def checkpoint(database: sqlite3.Connection) -> None:
    """Move committed transactions into the file itself and wait for the disk. Raises sqlite3.Error
    if not everything could be moved."""
    busy, left, done = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy or left != done:
        raise sqlite3.OperationalError("another program reads the database")


def create(directory: Path, rows: Iterable[Record], digest: Digest) -> None:
    """Create the database with these rows, in place of an existing one; all or nothing. Raises
    sqlite3.Error, OSError."""
    fresh = directory / f"{DATABASE}.new"
    leftovers = [
        fresh,
        *(fresh.with_name(f"{fresh.name}{end}") for end in ("-wal", "-shm", "-journal")),
    ]
    try:
        for file in leftovers:
            file.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(writable(fresh)) as database:
            database.executescript(f"BEGIN; {SCHEMA}")
            database.executemany(INSERT, stored(rows))
            objects, versions, checksums = database.execute(
                "SELECT COUNT(*), COALESCE(SUM(version), 0), COALESCE(SUM(checksum), 0) FROM objects"
            ).fetchone()
            full = digest._replace(objects=objects, versions=versions, checksums=checksums)
            database.execute("INSERT INTO digest VALUES (?, ?, ?, ?, ?, ?)", full)
            database.execute("COMMIT")
            checkpoint(database)
        fresh.rename(directory / DATABASE)
        synchronize_directory(directory)
    except BaseException:
        for file in leftovers:
            file.unlink(missing_ok=True)
        raise


def merge(database: sqlite3.Connection, log: Path) -> None:
    """Merge a log into the database, and delete it. Raises sqlite3.Error, OSError, Damaged,
    Missing; then the log is still there."""
    digest = digest_of(database, log.with_name(DATABASE))
    if number(log) > digest.log:
        _merge(database, log, digest)
    checkpoint(
        database
    )  # also if it was merged before: that process may have been killed at this point
    log.unlink()


def _merge(database: sqlite3.Connection, log: Path, digest: Digest) -> None:
    """Write the newest row of each object in a log into the database, in one transaction with the
    digest."""
    if number(log) != digest.log + 1:
        raise Missing(path_of(log.parent, digest.log + 1), f"{log} is there, which came after it")
    reader = LogReader(log)
    reader.follows(log.with_name(DATABASE), digest.chain, digest.version)
    last = {row.id: at for at, rows in enumerate(reader) for row in rows}
    last.pop(COUNTER, None)
    if not reader.sealed:
        raise Damaged(log, "its end is missing")
    ids = list(last)
    database.execute("BEGIN IMMEDIATE")
    try:
        before = _sums(database, ids)
        for at, rows in enumerate(LogReader(log)):
            database.executemany(INSERT, stored(row for row in rows if last.get(row.id) == at))
        sums = (
            old - gone + come for old, gone, come in zip(digest[3:], before, _sums(database, ids))
        )
        database.execute(
            "UPDATE digest SET log = ?, chain = ?, version = ?, objects = ?, versions = ?, checksums = ?",
            (reader.heading.number, reader.chain, reader.version, *sums),
        )
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _sums(database: sqlite3.Connection, ids: Sequence[int]) -> tuple[int, int, int]:
    """The number of these rows, and the sums of their versions and checksums."""
    objects = versions = checksums = 0
    for start in range(0, len(ids), MAX_ROWS_PER_QUERY):
        some = ids[start : start + MAX_ROWS_PER_QUERY]
        query = f"SELECT COUNT(*), SUM(version), SUM(checksum) FROM objects WHERE id IN ({','.join('?' * len(some))})"
        count, version, check = database.execute(query, some).fetchone()
        objects += count
        versions += version or 0
        checksums += check or 0
    return objects, versions, checksums


def digest_of(database: sqlite3.Connection, path: Path) -> Digest:
    """The digest in a database. Raises Damaged, sqlite3.Error."""
    rows = database.execute(
        "SELECT log, chain, version, objects, versions, checksums FROM digest"
    ).fetchall()
    if len(rows) != 1 or any(type(value) is not int for value in rows[0]):
        raise Damaged(path, "it does not say what it contains")
    return Digest._make(rows[0])


def columns(database: sqlite3.Connection) -> tuple[str, ...]:
    """The columns of the table of objects; empty if there is no such table."""
    return tuple(row[1] for row in database.execute("PRAGMA table_info(objects)"))


def read(path: Path, keep: Callable[[Record], T]) -> tuple[Digest, dict[int, T]]:
    """What `keep` makes of each row; every row is checked. Raises Damaged, sqlite3.Error, OSError."""
    with ThreadPoolExecutor(1) as beside, closing(readable(path)) as database:
        checked = beside.submit(_check, path)
        try:
            digest, rows, versions, checksums = _rows(database, path, keep)
        finally:
            checked.result()  # what SQLite itself finds says more
    if (len(rows), versions, checksums) != digest[3:]:
        raise Damaged(
            path, f"it has {len(rows)} rows, not the {digest.objects} that were stored last"
        )
    return digest, rows


def _rows(
    database: sqlite3.Connection, path: Path, keep: Callable[[Record], T]
) -> tuple[Digest, dict[int, T], int, int]:
    """The digest; what `keep` makes of each row; the sums of versions and checksums."""
    digest = digest_of(database, path)
    rows: dict[int, T] = {}
    versions = checksums = 0
    for id, version, check, collection, key, data in database.execute(
        "SELECT id, version, checksum, collection, key, data FROM objects ORDER BY id"
    ):
        try:
            right = checksum(id, version, collection, key, data) == check
        except TypeError:  # a deleted row has no data
            right = False
        if not right:
            raise Damaged(path, f"the row {id} is not as it was stored")
        rows[id] = keep(Record(id, collection, key, version, data))
        versions += version
        checksums += check
    return digest, rows, versions, checksums


def _check(path: Path) -> None:
    with closing(readable(path)) as database:
        sound(database, path)


def sound(database: sqlite3.Connection, path: Path) -> None:
    """Raise Damaged if SQLite's own check finds an error."""
    verdict = [row[0] for row in database.execute("PRAGMA quick_check(3)")]
    if verdict != ["ok"]:
        raise Damaged(path, "; ".join(verdict))
