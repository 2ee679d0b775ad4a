"""The commands against a whole cluster that runs real pods.  Reference: cli 9.5."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.cli.vcctl.jobtable import phase, table
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import NotFound
from tests.cli.answers import command
from tests.kubernetes import programs
from tests.kubernetes.clusters import working_cluster

JOB, POD, NODE = batch.JOB.untyped, core.POD.untyped, core.NODE.untyped
GROUP = scheduling.POD_GROUP.untyped
NAMESPACE = "default"
SETTLED = 60.0


class Running:
    """A cluster of one node on this machine."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def vcctl(self, *words: str) -> str:
        result = command("vcctl", *words, environment={"KUBECONFIG": str(self.kubeconfig)})
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        return result.stdout

    def ask(self, question: Callable[[Client], Any]) -> Any:
        async def run() -> Any:
            async with Client(load(str(self.kubeconfig))) as client:
                return await question(client)

        return asyncio.run(run())

    def phase(self, name: str) -> str:
        try:
            return phase(self.ask(lambda client: client.get(JOB, name, NAMESPACE)))
        except NotFound:
            return "gone"

    def reaches(self, name: str, wanted: str) -> None:
        deadline = time.monotonic() + SETTLED
        while (found := self.phase(name)) != wanted:
            assert time.monotonic() < deadline, f"{name} is {found}, not {wanted}"
            time.sleep(0.1)

    def pods(self) -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in self.ask(lambda client: client.list(POD, NAMESPACE)).items
        }


@pytest.fixture(
    scope="module", params=["hekla", pytest.param("kubernetes", marks=programs.slow(60))]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Running]:
    if request.param == "kubernetes":
        programs.wanted(*programs.SERVER)
        with working_cluster() as kubeconfig:
            yield Running(kubeconfig)
        return
    state = Path(tempfile.mkdtemp(prefix="hkcli"))  # short: the path of a socket has little room

    def hekla(*words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "hekla", *words, "--name", "cli"],
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            check=True,
            capture_output=True,
            timeout=90,
        )

    try:
        hekla("up")
        yield Running(state / "hekla" / "cli" / "kubeconfig")
    finally:
        try:
            hekla("down", "--delete")
        finally:
            shutil.rmtree(state, ignore_errors=True)


def run(cluster: Running, name: str, cpu: str = "100m") -> None:
    """A job that sleeps until somebody ends it."""
    size = f"cpu={cpu},memory=10Mi"
    words = (
        "job",
        "run",
        "--name",
        name,
        "--namespace",
        NAMESPACE,
        "--requests",
        size,
        "--limits",
        size,
        "--command",
        "sleep 600",
    )
    assert cluster.vcctl(*words) == f"run job {name} successfully\n"


@pytest.mark.scenario("cli", 21)
@pytest.mark.scenario("controllers", 171)
def test_the_list_is_the_table_of_the_jobs(cluster: Running):
    run(cluster, "listed")
    cluster.reaches("listed", "Running")

    printed = cluster.vcctl("job", "list", "--namespace", NAMESPACE)

    jobs = cluster.ask(lambda client: client.list(JOB, NAMESPACE)).items
    assert printed == "\n".join(table(jobs, jobs, namespaces=False)) + "\n"
    cluster.vcctl("job", "delete", "--name", "listed", "--namespace", NAMESPACE)


@pytest.mark.scenario("cli", 22)
@pytest.mark.scenario("controllers", 172)
@pytest.mark.scenario("cli", 25)
def test_a_running_job_is_suspended_and_resumed(cluster: Running):
    run(cluster, "rests")
    cluster.reaches("rests", "Running")

    assert cluster.vcctl("job", "suspend", "--name", "rests", "--namespace", NAMESPACE) == ""
    cluster.reaches("rests", "Aborted")
    assert "rests-default0-0" not in cluster.pods()

    assert cluster.vcctl("job", "resume", "--name", "rests", "--namespace", NAMESPACE) == ""
    cluster.reaches("rests", "Running")
    assert "rests-default0-0" in cluster.pods()
    cluster.vcctl("job", "delete", "--name", "rests", "--namespace", NAMESPACE)


@pytest.mark.scenario("cli", 23)
@pytest.mark.scenario("controllers", 173)
def test_a_pending_job_is_suspended(cluster: Running):
    run(cluster, "too-large", cpu="100000")
    cluster.reaches("too-large", "Pending")

    cluster.vcctl("job", "suspend", "--name", "too-large", "--namespace", NAMESPACE)

    cluster.reaches("too-large", "Aborted")
    assert "too-large-default0-0" not in cluster.pods()


@pytest.mark.scenario("cli", 24)
@pytest.mark.scenario("controllers", 174)
def test_a_job_waits_for_the_nodes_and_goes_when_told(cluster: Running):
    (node,) = cluster.ask(lambda client: client.list(NODE)).items
    name = node["metadata"]["name"]

    def taint(*taints: dict[str, str]) -> None:
        cluster.ask(
            lambda client: client.patch(NODE, name, {"spec": {"taints": list(taints) or None}})
        )

    def explained() -> str:
        """What is said of it; on a server that is busy a reason may come some seconds late."""
        deadline = time.monotonic() + SETTLED
        while "taint" not in (said := cluster.vcctl("explain", "waits", "--namespace", NAMESPACE)):
            assert time.monotonic() < deadline, f"no reason:\n{said}"
            time.sleep(0.1)
        return said

    taint({"key": "kept", "effect": "NoSchedule"})
    try:
        run(cluster, "waits")
        assert (said := explained()).count("1 has the taint kept") == 1, (
            f"the reason, and once:\n{said}"
        )
        assert cluster.phase("waits") == "Pending"
        told = json.loads(cluster.vcctl("explain", "waits", "--namespace", NAMESPACE, "-o", "json"))
        assert (told["constraint"], told["needs"], told["fit"], told["nodes"]) == ("nodes", 1, 0, 1)
        assert [(one["nodes"], one["text"]) for one in told["reasons"]] == [
            (1, "has the taint kept")
        ]
    finally:
        taint()
    cluster.reaches("waits", "Running")
    assert (
        cluster.vcctl("job", "delete", "--name", "waits", "--namespace", NAMESPACE)
        == "delete job waits successfully\n"
    )
    cluster.reaches("waits", "gone")


@pytest.mark.scenario("api-and-admission", 176)
def test_plain_pods_run_and_may_come_before_their_group(cluster: Running):
    def create(name: str, scheduler: str, group: str = "") -> None:
        marks = {"scheduling.k8s.io/group-name": group} if group else {}
        container = {
            "name": "c",
            "image": "busybox",
            "command": ["sleep", "1"],
            "resources": {"requests": {"cpu": "10m"}},
        }
        spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]}
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": marks},
            "spec": spec,
        }
        cluster.ask(lambda client: client.create(POD, tree, NAMESPACE))

    def phase_of(name: str) -> str:
        return str(
            cluster.ask(lambda client: client.get(POD, name, NAMESPACE))["status"].get("phase")
        )

    def ends(name: str) -> None:
        deadline = time.monotonic() + SETTLED
        while phase_of(name) != "Succeeded":
            assert time.monotonic() < deadline, f"{name} is {phase_of(name)}"
            time.sleep(0.1)

    def group(name: str, cpu: str) -> None:
        spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": cpu}}
        tree = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
        cluster.ask(lambda client: client.create(GROUP, tree, NAMESPACE))

    group("fits", "10m")
    group("too-big", "100000")
    create("usual", "default-scheduler")
    create("alone", "volcano")
    create("grouped", "volcano", "fits")
    create("waiting", "volcano", "too-big")
    for name in ("usual", "alone", "grouped"):
        ends(name)
    assert phase_of("waiting") == "Pending"


@pytest.mark.scenario("cli", 9)
def test_a_queue_opens_closes_and_refuses(cluster: Running):
    def state() -> str:
        return cluster.vcctl("queue", "get", "--name", "team").splitlines()[1].split()[2]

    def becomes(wanted: str) -> None:
        deadline = time.monotonic() + SETTLED
        while state() != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    cluster.vcctl("queue", "create", "--name", "team", "--weight", "2")
    becomes("Open")
    cluster.vcctl("queue", "operate", "--name", "team", "--action", "close")
    becomes("Closed")
    cluster.vcctl("queue", "operate", "--name", "team", "--action", "open")
    becomes("Open")
    cluster.vcctl("queue", "operate", "--name", "team", "--action", "update", "--weight", "5")
    assert cluster.vcctl("queue", "get", "--name", "team").splitlines()[1].split()[1] == "5"
    cluster.vcctl("queue", "delete", "--name", "team")


def test_logs_come_from_all_pods(cluster: Running):
    cluster.vcctl(
        "job",
        "run",
        "--name",
        "talks",
        "--replicas",
        "2",
        "--min",
        "2",
        "--requests",
        "cpu=50m",
        "--limits",
        "cpu=50m",
        "--command",
        "echo hello",
    )
    cluster.reaches("talks", "Completed")

    lines = sorted(cluster.vcctl("job", "logs", "talks").splitlines())

    assert lines == ["[talks-default0-0] hello", "[talks-default0-1] hello"]
