"""The life of a cluster: up, status, again, killed, down, up with everything as it was, removed.
One cluster, in this order."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from hekla.api.kubernetes import core
from hekla.cli import up
from hekla.local.machine.files import ClusterError
from hekla.local.machine.processes import start_of
from tests.local.home import LIMIT, Home, ask, below, home, until

POD, CONFIG_MAP = core.POD.untyped, core.CONFIG_MAP.untyped
PROCESSES = {
    "apiserver",
    "scheduler",
    "controllers",
    "admission",
    "kubelet",
    "kube-controllers",
    "metrics-server",
}


@pytest.fixture(scope="module")
def own() -> Iterator[Home]:
    with home() as made:
        # Not one that others want while this one is down.
        printed = made.good("up", "--port", str(random.randint(20_000, 30_000)))
        assert f"export KUBECONFIG={made.directory() / 'kubeconfig'}" in printed
        assert "vcctl job run" in printed
        yield made


def server_of(own: Home, name: str = "default") -> str:
    line = next(
        line
        for line in (own.directory(name) / "kubeconfig").read_text().splitlines()
        if "server:" in line
    )
    return line.split()[1]


def sleeper(name: str, marks: Path) -> dict[str, Any]:
    """A pod that says so when it starts and does not end by itself."""
    script = f"echo $$ >> {marks}; trap '' TERM; while :; do sleep 1; done"
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 1,
    }
    return {"metadata": {"name": name}, "spec": spec}


def test_status_tells_programs_what_runs(own: Home) -> None:
    shown = own.status()
    assert shown["running"] is True
    assert shown["kubeconfig"] == str(own.directory() / "kubeconfig")
    assert {process["name"] for process in shown["processes"]} == PROCESSES
    for process in shown["processes"]:
        assert process["ready"] is True
        assert Path(process["log"]).is_file()
        assert process["name"] in psutil.Process(process["pid"]).cmdline()


def test_status_tells_people_too(own: Home) -> None:
    printed = own.good("status")
    assert all(name in printed for name in PROCESSES)
    assert str(own.directory() / "logs" / "scheduler.log") in printed


def test_a_second_up_says_that_it_runs(own: Home) -> None:
    before = own.pids()
    printed = own.good("up")
    assert 'The cluster "default" was running already; nothing was changed.' in printed
    assert f"export KUBECONFIG={own.directory() / 'kubeconfig'}" in printed
    own.good("up", "--nodes", "1")
    said = own.bad("up", "--nodes", "2")
    assert said == (
        'hekla up: the cluster "default" is already running with other settings (--nodes is 1); '
        '"hekla down" stops it, and the next "hekla up" takes what you ask for\n'
    )
    assert own.pids() == before


def test_everything_is_for_its_owner_alone(own: Home) -> None:
    cluster = own.directory()
    assert stat.S_IMODE(cluster.stat().st_mode) == 0o700
    for path, mode in below(own.state / "hekla"):
        if cluster / "pods" in path.parents or path == cluster / "pods" or stat.S_ISLNK(mode):
            # other users that a pod may choose must get through; the directory above lets nobody in
            continue
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


def test_no_secret_is_on_a_command_line(own: Home) -> None:
    ask(own, lambda client: client.create(POD, sleeper("seen", own.state / "seen"), "default"))
    until("the pod runs", (own.state / "seen").exists)
    secrets = [
        line
        for key in (own.directory() / "pki").glob("*.key")
        for line in key.read_text().splitlines()[1:-1]
    ]
    tokens = [
        path.read_text() for path in (own.directory() / "pods").rglob("token") if path.is_file()
    ]
    assert tokens, "the pod has a token of its service account"
    lines = own.left()
    assert len(lines) > len(PROCESSES)
    for line in lines:
        assert not any(secret in line for secret in [*secrets, *tokens])
        assert "eyJ" not in line, "this looks like a JSON web token"
    ask(own, lambda client: client.delete(POD, "seen", "default", grace=0))


def test_a_crashed_process_comes_back(own: Home) -> None:
    before = own.pids()
    os.kill(before["scheduler"], signal.SIGKILL)

    def back() -> bool:
        scheduler = next(
            process for process in own.status()["processes"] if process["name"] == "scheduler"
        )
        return bool(scheduler["ready"] and scheduler["pid"] != before["scheduler"])

    until("the scheduler is back", back)
    scheduler = next(
        process for process in own.status()["processes"] if process["name"] == "scheduler"
    )
    assert (scheduler["restarts"], scheduler["lastExit"]) == (1, "signal SIGKILL")
    assert {name: pid for name, pid in own.pids().items() if name != "scheduler"} == {
        name: pid for name, pid in before.items() if name != "scheduler"
    }


def test_a_port_is_the_clusters_while_its_server_is_started_again(own: Home) -> None:
    """Who looks for a port at that moment leaves it alone; else the server could not come back
    before the other cluster ends."""
    port = int(server_of(own).rpartition(":")[2])
    supervisor = int((own.directory() / "run" / "supervisor.lock").read_text())
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(own.pids()["apiserver"], signal.SIGKILL)
        until("the port is free", lambda: up.is_free(port))
        with pytest.raises(ClusterError, match="in use by another program"):
            up.choose_port(port, asked=True)
    finally:
        up.release_claims()
        os.kill(supervisor, signal.SIGCONT)
    until(
        "the server is back", lambda: all(process["ready"] for process in own.status()["processes"])
    )
    server = next(
        process for process in own.status()["processes"] if process["name"] == "apiserver"
    )
    assert (server["restarts"], server["lastExit"]) == (1, "signal SIGKILL")


def test_a_killed_supervisor_leaves_nothing_to_the_next(own: Home) -> None:
    """The daemons live on without it; the next `up` ends them and starts its own; containers run on
    as they were."""
    ask(
        own,
        lambda client: client.create(POD, sleeper("survivor", own.state / "survivor"), "default"),
    )
    until("the pod runs", (own.state / "survivor").exists)
    before = own.pids()
    supervisor = int((own.directory() / "run" / "supervisor.lock").read_text())
    os.kill(supervisor, signal.SIGKILL)
    until(
        "the supervisor has gone",
        lambda: not psutil.pid_exists(supervisor) or own.hekla("status").returncode == 1,
    )
    shown = own.status()
    assert (
        shown["running"],
        {process["name"]: process["pid"] for process in shown["processes"]},
    ) == (False, before)
    told = own.hekla("status")
    assert told.returncode == 1
    assert "Its supervisor is dead: these processes still serve" in told.stdout
    (
        own.directory() / "run" / "status.json"
    ).unlink()  # as if it had been killed before it could write them down
    own.good("up")
    # Whoever has inherited them may take its time to reap them: `start_of` knows no zombies.
    assert {name: start_of(pid) for name, pid in before.items()} == dict.fromkeys(before, "")
    assert (
        sum(line[1:3] == ["-m", "hekla"] for line in own.lines())
        == len(own.pids())
        == len(PROCESSES)
    )
    assert (own.state / "survivor").read_text().count("\n") == 1


def test_up_after_a_power_cut(own: Home) -> None:
    """Nothing runs any more, and what the files say of the processes is of before: the first `up`
    works."""
    made = ask(
        own,
        lambda client: client.create(CONFIG_MAP, {"metadata": {"name": "acknowledged"}}, "default"),
    )
    while left := own.processes():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, 10)
    assert '"ready":true' in (own.directory() / "run" / "status.json").read_text()
    assert own.status()["running"] is False
    own.good("up")
    found = ask(own, lambda client: client.get(CONFIG_MAP, "acknowledged", "default"))
    assert found["metadata"] == made["metadata"]
    until(
        "the container of before runs again",
        lambda: (own.state / "survivor").read_text().count("\n") == 2,
    )


def test_down_ends_containers_and_up_finds_everything_as_it_was(own: Home) -> None:
    made = ask(
        own,
        lambda client: client.create(
            CONFIG_MAP, {"metadata": {"name": "kept"}, "data": {"a": "1"}}, "default"
        ),
    )
    port = server_of(own)
    assert "is stopped" in own.good("down")
    assert own.left() == []
    assert own.status() | {"processes": []} == own.status()
    assert own.hekla("status").returncode == 1
    assert "was not running" in own.good("down")
    own.good("up")
    found = ask(own, lambda client: client.get(CONFIG_MAP, "kept", "default"))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert server_of(own) == port
    until(
        "the container that `down` ended runs again",
        lambda: (own.state / "survivor").read_text().count("\n") == 3,
    )


def test_two_clusters_side_by_side_do_not_disturb_each_other(own: Home) -> None:
    before = own.pids()
    own.good("up", "--name", "second")
    assert own.pids() == before
    ports = {server_of(own, name) for name in ("default", "second")}
    assert len(ports) == 2
    missing = ask(
        own,
        lambda client: client.list(CONFIG_MAP, "default", fields="metadata.name=kept"),
        "second",
    )
    assert not missing.items
    assert "is stopped and removed" in own.good("down", "--delete", "--name", "second")
    assert not own.directory("second").exists()
    assert own.pids() == before
    assert ask(own, lambda client: client.get(CONFIG_MAP, "kept", "default"))["data"] == {"a": "1"}


def test_removed_is_gone(own: Home) -> None:
    """Also where the supervisor is killed in the middle of it, with the API server and the log
    writer still there."""
    others = own.pids()
    server = others.pop("apiserver")
    supervisor = int((own.directory() / "run" / "supervisor.lock").read_text())
    os.kill(server, signal.SIGSTOP)
    command = own.command("down", "--delete")
    with subprocess.Popen(
        command, env=own.environment, cwd="/", stdout=subprocess.PIPE, text=True
    ) as down:
        until(
            "only the API server is left", lambda: not any(start_of(pid) for pid in others.values())
        )
        os.kill(supervisor, signal.SIGKILL)
        printed, _ = down.communicate(timeout=LIMIT)
    assert (down.returncode, printed) == (0, 'Cluster "default" is stopped and removed.\n')
    assert own.left() == []
    assert not own.directory().exists()
    assert own.good("down") == 'There is no cluster "default".\n'
    shutil.rmtree(own.state / "hekla")
