"""The log in front of the database: what is whole is kept, what is torn was answered to nobody,
what is damaged is not served."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.storage import database, logfile, recovery
from hekla.local.apiserver.storage.database import DATABASE, digest_of, merge, writable
from hekla.local.apiserver.storage.journal import Journal, StorageError
from hekla.local.apiserver.storage.logfile import (
    COUNTER,
    EMPTY_SIZE,
    LOG,
    Heading,
    LogReader,
    Record,
    beginning,
    frame,
    logs,
    path_of,
    seal,
)
from hekla.local.apiserver.storage.store import Store
from tests.apiserver.damage import Disk, History, as_it_is, start
from tests.apiserver.http import CONFIG_MAPS, Http, config_map
from tests.apiserver_process import ApiServerProcess


def row(number: int, version: int, text: str = "x") -> Record:
    return Record(number, "things", f"n{number}", version, text.encode())


def content(heading: Heading, *transactions: list[Record]) -> tuple[bytes, list[int], int]:
    """The bytes of a log, where its frames end, and its checksum."""
    written, chain = beginning(heading)
    ends = [len(written)]
    for rows in transactions:
        one, chain = frame(msgspec.msgpack.encode(rows), chain)
        written += one
        ends.append(len(written))
    return written, ends, chain


def write(
    directory: Path, heading: Heading, *transactions: list[Record], sealed: bool = False
) -> int:
    written, _, chain = content(heading, *transactions)
    path_of(directory, heading.number).write_bytes(written + (seal(chain) if sealed else b""))
    return chain


FIRST = recovery.FIRST


def test_logs_that_are_left_are_read_in_their_order(tmp_path: Path) -> None:
    """Also from the ninth to the tenth."""
    database.create(tmp_path, [], database.Digest(8, 77, 1))
    chain = write(
        tmp_path,
        Heading(9, 77, 1, False),
        [row(1, 2, "old"), row(2, 3)],
        [row(1, 4, "new")],
        sealed=True,
    )
    write(tmp_path, Heading(10, chain, 4, False), [Record(2, None, None, 5, None)], [row(3, 6)])
    found, version = start(tmp_path)
    assert version == 6
    assert found == {1: row(1, 4, "new"), 2: Record(2, None, None, 5, None), 3: row(3, 6)}
    assert len(logs(tmp_path)) == 2, "the log writer merges them"


def test_a_log_that_was_merged_before_changes_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, History(1))
    disk.write(3)
    old = path_of(tmp_path, 1)
    kept = old.read_bytes()
    disk.merge()
    disk.write(3)
    disk.close()
    old.write_bytes(kept)  # its removal did not last
    assert start(tmp_path) == (disk.history.rows, disk.history.version)
    with closing(writable(tmp_path / DATABASE)) as connection:
        merge(connection, old)
    assert logs(tmp_path) == [path_of(tmp_path, 2)]
    assert start(tmp_path) == (disk.history.rows, disk.history.version)


@given(st.integers(min_value=0), st.booleans())
def test_what_is_torn_at_the_end_of_the_newest_is_left_out(cut: int, zeros: bool) -> None:
    written, (_, first, end), _ = content(
        Heading(1, 0, 1, True), [row(1, 2)], [row(2, 3, "y" * 50)]
    )
    keep = first + cut % (end - first)
    left = written[:keep] + bytes(end - keep if zeros else 0)
    with tempfile.TemporaryDirectory() as directory:
        log = path_of(Path(directory), 1)
        log.write_bytes(left)
        read = LogReader(log, newest=True)
        assert list(read) == [[row(1, 2)]]
        assert (read.size, read.torn) == (first, len(left) - first)
        with pytest.raises(logfile.Damaged):
            list(LogReader(log, newest=True, committed=end))


@pytest.mark.parametrize("byte", range(EMPTY_SIZE, EMPTY_SIZE + 40, 3))
def test_a_changed_byte_of_the_only_write_is_damage(tmp_path: Path, byte: int) -> None:
    """Its length, too, which then may point past the end; also where nobody knows what was
    answered."""
    write(tmp_path, FIRST, [row(1, 2, "a" * 40)])
    log = path_of(tmp_path, 1)
    changed = bytearray(log.read_bytes())
    changed[byte] ^= 1
    log.write_bytes(changed)
    with pytest.raises(StorageError, match=f"{log} is damaged.*restore"):
        Journal(tmp_path, as_it_is)
    assert log.read_bytes() == changed


def test_a_resource_version_that_is_left_out_is_missed(tmp_path: Path) -> None:
    write(tmp_path, FIRST, [row(1, 2)], [row(2, 4)])
    with pytest.raises(StorageError, match="resourceVersion 4 follows 2"):
        Journal(tmp_path, as_it_is)
    write(tmp_path, FIRST, [row(1, 2)], [Record(COUNTER, None, None, 3, None), row(2, 4)])
    assert start(tmp_path) == ({1: row(1, 2), 2: row(2, 4)}, 4)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """With a database and two logs, the first of which is ended."""
    disk = Disk(tmp_path, History(3))
    disk.write(5)
    disk.merge()
    disk.write(5)
    disk.writer.switch_log()
    disk.write(5)
    yield disk
    disk.close()


@pytest.mark.parametrize("name", ["state.db", "state.log.2", "state.log.3"])
@pytest.mark.parametrize("left", [None, 0, 1, EMPTY_SIZE])
def test_a_file_that_is_missing_or_empty_is_missed(disk: Disk, name: str, left: int | None) -> None:
    path = disk.directory / name
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    with pytest.raises(StorageError, match=f"{path} .*restore"):
        Journal(disk.directory, as_it_is)


def test_a_database_that_has_gone_is_missed_when_all_was_merged(tmp_path: Path) -> None:
    disk = Disk(tmp_path, History(3))
    disk.write(5)
    disk.merge()
    disk.close()
    (tmp_path / DATABASE).unlink()
    with pytest.raises(StorageError, match=f"{tmp_path / DATABASE} is missing.*restore"):
        Journal(tmp_path, as_it_is)
    assert not (tmp_path / DATABASE).exists()


def test_a_log_goes_when_its_rows_are_in_the_file_itself(disk: Disk) -> None:
    disk.merge()
    ahead = disk.directory / "state.db-wal"
    assert not ahead.exists() or ahead.stat().st_size == 0
    assert len(logs(disk.directory)) == 1
    with closing(
        writable(disk.directory / DATABASE)
    ) as other:  # a reader keeps the write-ahead file
        other.execute("BEGIN")
        other.execute("SELECT COUNT(*) FROM objects").fetchone()
        disk.write(2)
        disk.writer.switch_log()
        with closing(writable(disk.directory / DATABASE)) as connection:
            connection.execute("PRAGMA busy_timeout=1")
            with pytest.raises(sqlite3.OperationalError, match="another program reads"):
                merge(connection, disk.writer.old[0])
        assert disk.writer.old[0].exists()
        other.execute("COMMIT")
        ahead.write_bytes(b"")  # what only lay there is still in the log
    assert start(disk.directory) == (disk.history.rows, disk.history.version)


def test_a_row_that_was_changed_or_lost_is_not_served(disk: Disk) -> None:
    disk.merge()
    path = disk.directory / DATABASE
    good = path.read_bytes()
    for statement in (
        "UPDATE objects SET data = data || '!' WHERE id = 2",
        "UPDATE objects SET key = 'default/other' WHERE id = 2",
        "DELETE FROM objects WHERE id = 2",
        "UPDATE digest SET version = version - 1",
        "DELETE FROM digest",
        "DROP TABLE objects",
    ):
        with closing(writable(path)) as connection:
            connection.execute(statement)
        with pytest.raises(StorageError, match=f"{path} is damaged and is not served.*restore"):
            Journal(disk.directory, as_it_is)
        path.write_bytes(good)
    assert start(disk.directory) == (disk.history.rows, disk.history.version)


def test_damage_with_an_undecodable_message_is_damage(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    Disk(tmp_path, History(1)).close()
    changed = bytearray(path.read_bytes())
    at = changed.index(b"CREATE TABLE objects")
    changed[at + 8 : at + 12] = b"\xa2\xff\xfe\xa2"
    path.write_bytes(changed)
    with pytest.raises(StorageError, match=f"{path} is damaged.*restore"):
        Journal(tmp_path, as_it_is)


def test_a_log_that_cannot_be_merged_is_kept(disk: Disk) -> None:
    with (
        closing(writable(disk.directory / DATABASE)) as connection,
        closing(writable(disk.directory / DATABASE)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        connection.execute("PRAGMA busy_timeout=1")
        log = disk.writer.old[0]
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            merge(connection, log)
        assert log.exists()
        other.execute("ROLLBACK")
        merge(connection, log)
        assert not log.exists()
        assert digest_of(connection, disk.directory / DATABASE).log == 2


# the previous format


def previous(directory: Path, *merged: Record) -> None:
    with closing(sqlite3.connect(directory / DATABASE, isolation_level=None)) as old:
        old.execute("PRAGMA journal_mode=WAL")
        old.execute(
            "CREATE TABLE objects (id INTEGER PRIMARY KEY, collection TEXT, key TEXT, version INTEGER NOT NULL, data BLOB)"
        )
        old.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", merged)


def previous_log(directory: Path, number: int, *transactions: list[Record]) -> Path:
    log = directory / f"{LOG}{number}"
    with log.open("wb") as file:
        for rows in transactions:
            encoded = msgspec.msgpack.encode(rows)
            file.write(struct.pack(">II", len(encoded), zlib.crc32(encoded)) + encoded)
    return log


def test_state_of_the_previous_format_is_stored_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    previous(
        tmp_path,
        Record(COUNTER, None, None, 7, b""),
        row(1, 3),
        row(2, 7),
        Record(3, None, None, 5, None),
    )
    previous_log(tmp_path, 4, [row(2, 7)])  # merged, and its removal did not last
    previous_log(tmp_path, 5, [row(1, 9, "new")], [row(4, 10)])
    with previous_log(tmp_path, 6, [row(5, 12)]).open("ab") as file:
        file.write(b"\0\0\0\x30torn")
    wanted = {
        1: row(1, 9, "new"),
        2: row(2, 7),
        3: Record(3, None, None, 5, None),
        4: row(4, 10),
        5: row(5, 12),
    }
    assert start(tmp_path) == (wanted, 12)
    assert f"{tmp_path / 'state.log.6'}: its last 8 bytes are dropped" in caplog.text
    assert start(tmp_path) == (wanted, 12)
    disk = Disk(tmp_path, History(1))
    disk.writer.merge()
    disk.close()
    assert [log.name for log in logs(tmp_path)] == ["state.log.7"]
    assert start(tmp_path) == (wanted, 12)


def test_a_kill_while_it_is_stored_anew_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous(tmp_path, Record(COUNTER, None, None, 7, b""), row(1, 3))
    previous_log(tmp_path, 1, [row(2, 8)])
    with monkeypatch.context() as patch:
        patch.setattr(database, "create", lambda *_: (_ for _ in ()).throw(InterruptedError()))
        with pytest.raises(StorageError):
            Journal(tmp_path, as_it_is)
    assert [log.name for log in logs(tmp_path)] == ["state.log.1", "state.log.2"]
    assert start(tmp_path) == ({1: row(1, 3), 2: row(2, 8)}, 8)


# a full disk


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_start_on_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(StorageError, match="the disk is full; free some space") as refused:
            Journal(tmp_path, as_it_is)
    assert "move" not in str(refused.value)
    assert "damaged" not in str(refused.value)
    assert start(tmp_path) == ({}, 1)


def test_merging_on_a_full_disk_says_so_and_is_tried_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    writer, version = disk.writer, disk.history.version
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        writer.switch_log()
        assert writer.write(b"\x90", version + 1) == "the disk is full"
    assert "cannot be settled in the database: the disk is full" in capfd.readouterr().err
    assert len(logs(disk.directory)) == 2
    disk.write(2)
    with monkeypatch.context() as patch:
        patch.setattr(logfile, "seal", full)
        writer.switch_log()
    assert len(logs(disk.directory)) == 2
    disk.write(2)
    assert start(disk.directory) == (disk.history.rows, disk.history.version)
    disk.merge()
    assert start(disk.directory) == (disk.history.rows, disk.history.version)


async def test_the_end_merges(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.start()
    await store.collection("things", {}).create({"metadata": {"name": "a", "uid": "a"}}).done
    assert len(logs(tmp_path)) == 1
    await store.close()
    assert [log.name for log in logs(tmp_path)] == [f"{LOG}2"]
    assert logs(tmp_path)[0].stat().st_size == EMPTY_SIZE
    assert [record.key for record in start(tmp_path)[0].values()] == ["a"]


async def test_a_quiet_log_is_merged_while_the_server_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.start()
    things = store.collection("things", {})
    await things.create({"metadata": {"name": "a", "uid": "a"}}).done
    while [log.name for log in logs(tmp_path)] != [f"{LOG}2"]:
        await store.reached(store.version + 1, 0.05)
    await things.create({"metadata": {"name": "b", "uid": "b"}}).done
    assert logs(tmp_path)[0].stat().st_size > EMPTY_SIZE
    await store.close()


def test_a_server_whose_log_writer_ends_says_so_and_ends(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        assert http.post(CONFIG_MAPS, config_map("a")).status == 201
        assert server.process is not None
        (writer,) = psutil.Process(server.process.pid).children()
        writer.send_signal(signal.SIGKILL)
        assert server.process.wait(30) == 1
        assert f"the process that writes to {server.data} has ended" in server.log.read_text()
        server.start()
        assert Http(server).get(CONFIG_MAPS).names == ["a"]


def test_a_log_writer_goes_with_its_server(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        assert Http(server).post(CONFIG_MAPS, config_map("a")).status == 201
        assert server.process is not None
        (writer,) = psutil.Process(server.process.pid).children()
        server.restart(kill=True)
        assert not writer.is_running() or writer.status() == psutil.STATUS_ZOMBIE
        assert Http(server).get(CONFIG_MAPS).names == ["a"]
