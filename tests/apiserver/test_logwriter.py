"""The log in front of the database: what is whole is kept, what is torn was answered to nobody, what is damaged is not served."""

from __future__ import annotations

import os
import signal
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.journal import Journal, StorageError
from hekla.local.apiserver.logwriter import COUNTER, DATABASE, HEADER, LOG, Record, frames, logs, opened, settle
from hekla.local.apiserver.store import Store
from tests.apiserver.http import CONFIG_MAPS, Http, config_map
from tests.apiserver_process import ApiServerProcess


def frame(*rows: Record) -> bytes:
    encoded = msgspec.msgpack.encode(rows)
    return HEADER.pack(len(encoded), zlib.crc32(encoded)) + encoded


def row(number: int, version: int, text: str = "x") -> Record:
    return Record(number, "things", f"n{number}", version, text.encode())


def write(directory: Path, number: int, *parts: bytes) -> Path:
    log = directory / f"{LOG}{number}"
    log.write_bytes(b"".join(parts))
    return log


def stored(directory: Path) -> dict[int, Record]:
    journal = Journal(directory)
    try:
        return {record.id: record for record in journal.records()}
    finally:
        journal._database.close()
        os.close(journal._lock)


def test_logs_that_are_left_are_settled_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, 9, frame(row(1, 2, "old"), row(2, 3)), frame(row(1, 4, "new")))
    write(tmp_path, 10, frame(Record(2, None, None, 5, None)), frame(row(3, 6)))
    found = stored(tmp_path)
    assert found.pop(COUNTER).version == 6
    assert found == {1: row(1, 4, "new"), 2: Record(2, None, None, 5, None), 3: row(3, 6)}
    assert logs(tmp_path) == []


def test_a_log_that_was_settled_before_changes_nothing(tmp_path: Path) -> None:
    old = frame(row(1, 2, "old"))
    write(tmp_path, 1, old)
    write(tmp_path, 2, frame(row(1, 3, "new")))
    before = stored(tmp_path)
    write(tmp_path, 1, old)  # its removal did not last
    assert stored(tmp_path) == before
    assert logs(tmp_path) == []


@given(st.integers(min_value=1), st.binary(max_size=40))
def test_what_is_torn_at_the_end_is_left_out(cut: int, other: bytes) -> None:
    log = Path(f"/proc/self/fd/{os.memfd_create('log')}") if hasattr(os, "memfd_create") else Path(os.devnull)
    first, last = frame(row(1, 2)), frame(row(2, 3, "y" * 50))
    keep = len(last) - 1 - cut % len(last)
    try:
        log.write_bytes(first + last[:keep])
        assert list(frames(log)) == [[row(1, 2)]]
        spoiled = bytearray(last)
        spoiled[HEADER.size : HEADER.size + len(other)] = other[: len(last) - HEADER.size]
        log.write_bytes(first + bytes(spoiled))
        assert list(frames(log)) == [[row(1, 2)]] + ([[row(2, 3, "y" * 50)]] if bytes(spoiled) == last else [])
        log.write_bytes(first + bytes(len(last)))
        assert list(frames(log)) == [[row(1, 2)]]
    finally:
        os.close(int(log.name))


def test_damage_before_the_end_is_not_served(tmp_path: Path) -> None:
    spoiled = bytearray(frame(row(1, 2)))
    spoiled[-1] ^= 1
    log = write(tmp_path, 1, bytes(spoiled), frame(row(2, 3)))
    with pytest.raises(StorageError, match=f"{log} has no frame at 0"):
        Journal(tmp_path)
    assert log.exists()


def test_a_log_that_cannot_be_settled_is_kept(tmp_path: Path) -> None:
    log = write(tmp_path, 1, frame(row(1, 2)))
    with closing(opened(tmp_path / DATABASE)) as database, closing(opened(tmp_path / DATABASE)) as other:
        other.execute("BEGIN IMMEDIATE")
        database.execute("PRAGMA busy_timeout=1")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            settle(database, log)
        assert log.exists()
        other.execute("ROLLBACK")
        settle(database, log)
        assert not log.exists()
        assert database.execute("SELECT version FROM objects ORDER BY id").fetchall() == [(2,), (2,)]


async def test_the_end_settles(tmp_path: Path) -> None:
    store = Store(Journal(tmp_path))
    store.start()
    await store.collection("things", {}).create({"metadata": {"name": "a", "uid": "a"}}).done
    assert len(logs(tmp_path)) == 1
    await store.close()
    assert logs(tmp_path) == []
    assert [record.key for record in stored(tmp_path).values() if record.id != COUNTER] == ["a"]


async def test_a_quiet_log_is_settled_while_the_server_goes_on(tmp_path: Path) -> None:
    store = Store(Journal(tmp_path))
    store.start()
    things = store.collection("things", {})
    await things.create({"metadata": {"name": "a", "uid": "a"}}).done
    while logs(tmp_path):
        await store.reached(store.version + 1, 0.05)
    await things.create({"metadata": {"name": "b", "uid": "b"}}).done
    assert [log.name for log in logs(tmp_path)] == [f"{LOG}2"]
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
