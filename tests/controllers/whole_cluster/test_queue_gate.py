"""The gate of a queue from the webhook that puts it up to the scheduler that takes it down, with
the feature on in both.

A cluster of its own: `SchedulingGatesQueueAdmission` is off where nothing else is said.  Reference:
api-and-admission 7.10.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hekla.engine.world import World, policy
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.scheduler.binder import Binder
from tests.admission.process import admission, install_kinds
from tests.apiserver_process import ApiServerProcess
from tests.cluster.api import Api, Tree, steadily
from tests.controllers.whole_cluster.cluster import PODS, QUEUES, WholeCluster
from tests.kubernetes.processes import Processes

GATE = "scheduling.volcano.sh/queue-allocation-gate"
FEATURE = "--feature-gates=SchedulingGatesQueueAdmission=true"
POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: capacity}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path_factory.mktemp("gate")) as started:
        install_kinds(started)
        yield started


@pytest.fixture(scope="module")
def cluster(server: ApiServerProcess) -> Iterator[WholeCluster]:
    directory = server.directory
    file = directory / "policy.yaml"
    file.write_text(POLICY)
    own, alone = f"--kubeconfig={server.internal_kubeconfig}", "--leader-elect=false"
    groups = directory / "volcano-admission.conf"
    groups.write_text("{}\n")
    daemons = Processes(directory)
    try:
        for name, *flags in (
            ("controllers", alone),
            ("scheduler", alone, f"--scheduler-conf={file}", "--schedule-period=200ms", FEATURE),
            ("kubelet", f"--root-dir={directory / 'kubelet'}", "--nodes=0", "--fake-nodes=1"),
        ):
            daemons.start(name, [sys.executable, "-m", "hekla", name, own, *flags])
        with admission(server, directory, f"--admission-conf={groups}", FEATURE):
            made = WholeCluster(Api(server.kubeconfig))
            made.until(lambda: made.items("/api/v1/nodes"), lambda: daemons.end_of_log("kubelet"))
            made.until(
                lambda: made.api.get(f"{QUEUES}/default").status == 200,
                lambda: daemons.end_of_log("controllers"),
            )
            made.until(lambda: made.open("default"), lambda: daemons.end_of_log("controllers"))
            yield made
    finally:
        daemons.stop()


def gates(pod: Tree) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def submit(
    cluster: WholeCluster, name: str, queue: str, *others: str, opts_in: str = "true"
) -> Tree:
    """Creates a pod of one cpu that is behind the other gates already; gives what the server
    answers."""
    notes = {GATE: opts_in, "scheduling.volcano.sh/queue-name": queue}
    spec = {
        "schedulerName": "volcano",
        "terminationGracePeriodSeconds": 0,
        "schedulingGates": [{"name": other} for other in others],
        "containers": [
            {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        ],
    }
    return cluster.api.create(
        PODS, {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    )


def pod(cluster: WholeCluster, name: str) -> Tree:
    return cluster.api.get(f"{PODS}/{name}").tree


def runs(cluster: WholeCluster, name: str) -> None:
    cluster.until(
        lambda: pod(cluster, name)["status"]["phase"] == "Running", lambda: pod(cluster, name)
    )
    assert gates(pod(cluster, name)) == []


@pytest.mark.scenario("api-and-admission", 177)
def test_a_gate_falls_when_the_queue_has_room(cluster: WholeCluster) -> None:
    cluster.queue("narrow", capability={"cpu": "1"})
    assert gates(submit(cluster, "first", "narrow")) == [GATE]
    runs(cluster, "first")

    assert gates(submit(cluster, "second", "narrow")) == [GATE]
    steadily(lambda: gates(pod(cluster, "second")) == [GATE], 1)
    (condition,) = pod(cluster, "second")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    cluster.api.delete(f"{PODS}/first")
    runs(cluster, "second")


@pytest.mark.scenario("api-and-admission", 177)
def test_who_does_not_opt_in_meets_no_gate(cluster: WholeCluster) -> None:
    assert gates(submit(cluster, "plain", "default", opts_in="yes")) == []
    runs(cluster, "plain")


@pytest.mark.scenario("api-and-admission", 178)
def test_another_gate_is_waited_for(cluster: WholeCluster) -> None:
    other = "example.com/quota"
    assert gates(submit(cluster, "held", "default", other)) == [other, GATE]
    steadily(
        lambda: (
            gates(pod(cluster, "held")) == [other, GATE]
            and pod(cluster, "held")["status"]["phase"] == "Pending"
        ),
        1,
    )

    rest = {"spec": {"schedulingGates": [{"name": GATE}]}}
    assert cluster.api.patch(f"{PODS}/held", rest).status == 200
    runs(cluster, "held")


class Silent:
    """Nobody is told of anything."""

    def event(self, *about: Any) -> None:
        """Not kept."""


@pytest.mark.scenario("api-and-admission", 179)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a.io/x", GATE, "a.io/b"], ["a.io/x", "a.io/b"]), ([GATE], []), (["a.io/x", "a.io/b"], ["a.io/x", "a.io/b"]), ([], []),
        (None, []),
    ],
    ids=["among others", "alone", "missing", "an empty list", "no list"],
)  # fmt: skip
async def test_only_the_queue_s_gate_is_taken(
    server: ApiServerProcess,
    request: pytest.FixtureRequest,
    before: list[str] | None,
    after: list[str],
) -> None:
    name = f"unit-{request.node.callspec.id.replace(' ', '-')}"
    spec: Tree = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox"}]}
    if before is not None:
        spec["schedulingGates"] = [{"name": gate} for gate in before]
    status, answer = server.request(
        "POST",
        PODS,
        json.dumps({"metadata": {"name": name}, "spec": spec}).encode(),
        {"Content-Type": "application/json"},
    )
    assert status == 201, answer
    async with Client(config.load(str(server.internal_kubeconfig))) as client:
        state = World(policy(plugins=["gang"], actions="allocate")).state
        binder = Binder(client, state, Silent(), "volcano", lambda: None)  # type: ignore[arg-type]
        await binder.lift_gate(f"default/{name}")
    _, answer = server.request("GET", f"{PODS}/{name}")
    assert gates(json.loads(answer)) == after
