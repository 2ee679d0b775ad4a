"""What was acknowledged is there again, whatever happened to the process (DESIGN: one writer, group
commit)."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from hekla.local.apiserver.storage.collection import Collection, WriteLost
from hekla.local.apiserver.storage.journal import Journal, StorageError
from hekla.local.apiserver.storage.logfile import logs
from hekla.local.apiserver.storage.rows import Event
from hekla.local.apiserver.storage.store import Store
from tests.apiserver.damage import as_it_is
from tests.apiserver.http import CONFIG_MAPS, Http, config_map, until
from tests.apiserver_process import ApiServerProcess


def more_than(count: int, lists: list[list[tuple[str, str]]]) -> bool:
    return sum(map(len, lists)) > count


@pytest.mark.scenario("local-cluster", 76)
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        acknowledged: dict[str, str] = {}
        newest = 0
        for round in range(3):
            stop = threading.Event()
            # Every writer keeps a list of its own, so that nothing but the server decides what is
            # known.
            written: list[list[tuple[str, str]]] = [[] for _ in range(4)]

            def write(
                writer: int,
                stop: threading.Event = stop,
                written: list[list[tuple[str, str]]] = written,
                round: int = round,
            ) -> None:
                http = Http(server)
                number = 0
                while not stop.is_set():
                    name = f"r{round}-w{writer}-{number}"
                    try:
                        answer = http.post(CONFIG_MAPS, config_map(name, data={"n": str(number)}))
                    except OSError:
                        return
                    except Exception as error:
                        if type(error).__module__ != "http.client":
                            raise
                        return
                    assert answer.status == 201
                    written[writer].append((name, answer.version))
                    number += 1

            writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
            for thread in writers:
                thread.start()
            time.sleep(0.4)
            until(partial(more_than, 40, written))
            server.kill()
            stop.set()
            for thread in writers:
                thread.join()
            for pairs in written:
                acknowledged.update(pairs)
            server.start()
            http = Http(server)
            listed = http.get(CONFIG_MAPS)
            found = {
                item["metadata"]["name"]: item["metadata"]["resourceVersion"]
                for item in listed.tree["items"]
            }
            assert {name: found.get(name) for name in acknowledged} == acknowledged
            assert int(listed.version) >= max(newest, *map(int, acknowledged.values()))
            newest = int(listed.version)
        assert len(acknowledged) > 100


def test_deletions_last_and_numbers_are_used_again(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        for number in range(20):
            http.post(CONFIG_MAPS, config_map(f"c{number}"))
        for number in range(10):
            http.delete(f"{CONFIG_MAPS}/c{number}")
        before = http.get(CONFIG_MAPS)
        server.restart(kill=True)
        http = Http(server)
        after = http.get(CONFIG_MAPS)
        assert after.tree["items"] == before.tree["items"]
        assert int(after.version) >= int(before.version)
        for number in range(10):
            http.post(CONFIG_MAPS, config_map(f"d{number}"))
        server.restart()
        assert len(Http(server).get(CONFIG_MAPS).names) == 20


def refused(*arguments: str) -> str:
    """What a server that cannot start says."""
    done = subprocess.run(
        [sys.executable, "-m", "hekla", "apiserver", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_one_directory_has_one_server(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        text = refused(f"--data-dir={server.data}", "--secure-port=0")
        assert server.process is not None
        assert f"the data directory {server.data} is in use by process {server.process.pid}" in text


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        text = refused(f"--data-dir={tmp_path / 'other'}", f"--secure-port={server.port}")
        assert f"127.0.0.1:{server.port} is in use by another program" in text


def test_a_socket_in_use_is_named(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        text = refused(
            f"--data-dir={tmp_path / 'other'}", "--secure-port=0", f"--unix-socket={server.socket}"
        )
        assert f"--unix-socket {server.socket} is in use by another program" in text
        assert Http(server).get(CONFIG_MAPS).status == 200


def test_a_directory_is_wanted() -> None:
    assert "--data-dir is wanted" in refused()


def test_a_damaged_database_is_not_served(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        for number in range(200):
            http.post(CONFIG_MAPS, config_map(f"c{number}", data={"x": "y" * 2000}))
        server.stop()
        path = server.data / "state.db"
        content = bytearray(path.read_bytes())
        for at in range(8192, len(content) - 4096, 16384):
            content[at : at + 2048] = os.urandom(2048)
        path.write_bytes(content)
        text = refused(f"--data-dir={server.data}", "--secure-port=0")
        assert str(path) in text
        assert "is not served" in text


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(
        b"not a database at all, but long enough to be looked at" * 100
    )
    with pytest.raises(StorageError, match="is not served"):
        Journal(tmp_path, as_it_is)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        with http.watch(f"{CONFIG_MAPS}?watch=1") as watched:
            assert server.process is not None
            server.process.send_signal(number)
            assert server.process.wait(10) == 0
            assert [event for event in watched.rest() if event["type"] != "ADDED"] == []
        assert "Traceback" not in server.log.read_text()
        assert not server.socket.exists()


# the store by itself


def limit_files(process: int, limit: int) -> None:
    """No file of the process may grow past that; it is told so by every write, as by a full disk."""
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def tree(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": name}, "data": data}


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return Store(tmp_path).collection("things", {})


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="needs prlimit(2), to limit a running process"
)
async def test_a_full_disk_refuses_and_undoes(collection: Collection) -> None:
    store = collection.store
    store.start()
    journal = store.journal
    writer = journal.writer
    kept = await collection.create(tree("kept", a="1")).done
    told: list[str] = []
    collection.listeners.add(lambda events: told.extend(event.row.name for event in events))
    limit_files(writer, sum(file.stat().st_size for file in logs(journal.directory)) + 20)
    lost = collection.create(tree("lost"))
    changed = collection.update(tree("kept", a="2"), kept)
    later = collection.update(tree("kept", a="3"), changed.row)
    results = await asyncio.gather(lost.done, changed.done, later.done, return_exceptions=True)
    assert [type(result) for result in results] == [WriteLost] * 3
    assert "File too large" in str(results[0])
    assert collection.newest("lost") is None
    assert collection.newest("kept") is kept
    assert told == []
    limit_files(writer, resource.RLIM_INFINITY)
    again = await collection.update(tree("kept", a="4"), kept).done
    assert again.version > kept.version
    assert told == ["kept"]
    await store.close()
    reopened = Store(journal.directory).collection("things", {})
    assert [row.tree()["data"] for row in reopened.rows.values()] == [{"a": "4"}]


async def test_watchers_get_all_events_in_order_under_load(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine, the bursts follow each other within the interval.
    monkeypatch.setattr("hekla.local.apiserver.storage.store.BATCH_INTERVAL", 3600.0)
    store = collection.store
    store.start()
    told: list[int] = []
    batches: list[list[int]] = []

    def hear(events: list[Event]) -> None:
        batches.append([event.version for event in events])
        told.extend(batches[-1])
        assert store.notified == told[-1]

    collection.watchers.add(hear)
    first = await collection.create(tree("first")).done
    assert told == [first.version], "a single write is told at once"
    for burst in range(5):
        await asyncio.gather(*(collection.create(tree(f"n{burst}-{n}")).done for n in range(40)))
    store.notify_watchers()
    assert (
        told
        == sorted(told)
        == [row.version for row in sorted(collection.rows.values(), key=lambda row: row.version)]
    )
    assert len(batches) < store.journal.statistics.transactions, (
        "bursts that follow each other are told together"
    )
    await store.close()


async def test_readers_see_what_is_committed_writers_what_is_accepted(
    collection: Collection,
) -> None:
    collection.store.start()
    write = collection.create(tree("a"))
    assert "a" not in collection.rows
    assert collection.newest("a") is write.row
    gone = collection.delete(tree("a"), write.row)
    assert collection.newest("a") is None
    again = collection.create(tree("a"))
    gone_again = collection.delete(tree("a"), again.row)
    await gone.done
    assert collection.newest("a") is None
    await gone_again.done
    assert collection.rows == {}
    assert collection.ordered() == []
    await collection.store.close()


async def test_keys_stay_in_order(collection: Collection) -> None:
    collection.store.start()
    rows = {}
    for name in ("c", "a", "b"):
        rows[name] = await collection.create(tree(name)).done
    before = collection.ordered()
    assert before == ["a", "b", "c"]
    await collection.delete(tree("b"), rows["b"]).done
    await collection.create(tree("b")).done
    await collection.create(tree("aa")).done
    assert collection.ordered() == ["a", "aa", "b", "c"]
    assert before == ["a", "b", "c"]
    await collection.store.close()


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="needs prlimit(2), to limit a running process"
)
def test_a_disk_that_takes_no_more_refuses_clearly_and_recovers(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        http = Http(server)
        http.post(CONFIG_MAPS, config_map("first"))
        assert server.process is not None
        (writer,) = psutil.Process(server.process.pid).children()
        limit_files(writer.pid, 300_000)
        stored, refused_with = [], ""
        for number in range(200):
            answer = http.post(CONFIG_MAPS, config_map(f"c{number}", data={"x": "y" * 20_000}))
            if answer.status == 201:
                stored.append(f"c{number}")
            else:
                assert answer.status == 500
                refused_with = answer.message
                break
        assert "the write could not be stored" in refused_with
        assert http.get(CONFIG_MAPS).names == sorted(["first", *stored])
        limit_files(writer.pid, resource.RLIM_INFINITY)
        assert http.post(CONFIG_MAPS, config_map("after")).status == 201
        server.restart(kill=True)
        assert Http(server).get(CONFIG_MAPS).names == sorted(["first", "after", *stored])
