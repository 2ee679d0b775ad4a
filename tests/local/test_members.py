"""Which processes are a cluster's is read off the process table; nothing else is ended, and nothing
is said to be that is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hekla.local.apiserver.storage.journal import WRITER
from hekla.local.cluster import members
from hekla.local.cluster.cluster import Cluster, Settings
from hekla.local.cluster.members import end_daemons, name_of
from hekla.local.machine.files import ClusterError
from hekla.local.machine.processes import Process, age_of, end, start_of
from tests.local.home import until

STANDS_IN = """
import signal, sys, time
if sys.argv[1] == "stubborn" or sys.argv[1] == "controllers":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path / "hekla" / "one")
    made.make_directories()
    return made


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    package = tmp_path / "python" / "hekla"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(STANDS_IN)
    (package / "logwriter.py").write_text(STANDS_IN)
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def run(
    started: list[subprocess.Popen[bytes]], place: Path, *words: str
) -> subprocess.Popen[bytes]:
    """A process with the command line of a daemon that only waits."""
    environment = dict(os.environ, PYTHONPATH=str(place / "python"))
    process = subprocess.Popen(
        [sys.executable, *words], env=environment, cwd=place / "python", stdout=subprocess.PIPE
    )
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"here\n"
    return process


def test_every_program_of_a_cluster_is_known_by_its_command(cluster: Cluster) -> None:
    for program in cluster.programs(Settings()):
        assert name_of(cluster, program.command) == program.name
        assert name_of(Cluster(cluster.directory.with_name("on")), program.command) == ""
    python = sys.executable
    assert (
        name_of(
            cluster, [python, "-m", "hekla.local.cluster.supervisor", str(cluster.directory), "3"]
        )
        == "supervisor"
    )
    assert (
        name_of(cluster, [python, "-P", "/x/logwriter.py", str(cluster.data), "5"]) == "log writer"
    )
    assert name_of(cluster, [python, "-P", "-m", WRITER, str(cluster.data), "5"]) == "log writer"


@pytest.mark.parametrize(
    "words",
    [
        ["vim", "{0}/scheduler.yaml"],
        ["tail", "-f", "{0}/logs/apiserver.log"],
        ["python", "-m", "hekla", "scheduler", "--kubeconfig={0}/kubeconfig"],
        ["python", "-m", "hekla.local.cluster.supervisor", "{0}-2"],
        ["python", "-m", "hekla"],
        [],
    ],
)
def test_what_only_names_its_files_is_left_alone(cluster: Cluster, words: list[str]) -> None:
    assert name_of(cluster, [word.format(cluster.directory) for word in words]) == ""


def test_a_cluster_is_found_through_a_link(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "hekla")
    there = Cluster(tmp_path / "link" / "one")
    assert [name_of(cluster, program.command) for program in there.programs(Settings())].count(
        ""
    ) == 0


def test_what_a_dead_supervisor_left_is_ended(
    cluster: Cluster,
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever takes no SIGTERM, and the log writer, which nobody ends but the end of its server; a
    neighbour's runs on."""
    monkeypatch.setattr(members, "PATIENCE", 0.2)
    server = run(started, tmp_path, "-m", "hekla", "apiserver", f"--data-dir={cluster.data}")
    stubborn = run(
        started,
        tmp_path,
        "-m",
        "hekla",
        "controllers",
        f"--kubeconfig={cluster.internal_kubeconfig}",
    )
    writer = run(
        started,
        tmp_path,
        "-P",
        str(tmp_path / "python" / "hekla" / "logwriter.py"),
        str(cluster.data),
        "3",
    )
    neighbour = run(
        started,
        tmp_path,
        "-m",
        "hekla",
        "scheduler",
        f"--kubeconfig={cluster.directory}-2/internal.kubeconfig",
    )
    assert end_daemons(cluster) == 3
    assert [process.poll() is not None for process in (server, stubborn, writer, neighbour)] == [
        True,
        True,
        True,
        False,
    ]
    assert end_daemons(cluster) == 0


def test_what_does_not_go_is_named(
    cluster: Cluster,
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = run(started, tmp_path, "-m", "hekla", "apiserver", f"--data-dir={cluster.data}")
    monkeypatch.setattr(members, "end", lambda processes, patience: processes)
    with pytest.raises(
        ClusterError,
        match=rf"these of its processes do not end(.*){server.pid} \(apiserver\); nothing was removed",
    ):
        end_daemons(cluster)


def test_a_clock_that_is_set_changes_nobody(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """The clock on the wall is set by a day in the middle: the process is the same one, as old as
    before, and is ended."""
    started.append(subprocess.Popen(["sleep", "600"]))
    process = Process.of(started[0].pid)
    assert process is not None and process.command == ("sleep", "600")
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 86400)
    monkeypatch.setattr(psutil, "boot_time", lambda: 86400.0)
    assert process.alive()
    assert 0 <= (age_of(process.pid) or -1.0) < 60
    assert end([process], 5.0) == []
    assert not process.alive()


def test_a_pid_that_changed_hands_is_somebody_else(started: list[subprocess.Popen[bytes]]) -> None:
    started.append(subprocess.Popen(["sleep", "600"]))
    pid = started[0].pid
    until("it has begun", lambda: start_of(pid))
    one_before = Process(pid, start_of(pid) + "0")
    assert not one_before.alive()
    assert not one_before.send(9)
    assert end([one_before], 0.0) == []
    assert started[0].poll() is None
