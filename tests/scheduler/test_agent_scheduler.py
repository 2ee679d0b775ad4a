"""The scheduler of pods by themselves.  Reference: scheduler-core 7, 10.14.

Upstream's workers each look at a snapshot and a binder finds their conflicts; one loop with one
view has none to find.  What the scenarios promise of the two together is tested here: never too
much on a node, nobody forgotten, shards obeyed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import crds, shard
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.engine.cycle import cycle
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Status
from hekla.engine.policies import read_policy
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound
from hekla.kube.flags import FlagError, parse
from hekla.scheduler.agent_scheduler import FLAGS, NAME, POLICY, state_for, with_backfill
from hekla.scheduler.policy_file import PolicyFile
from tests.apiserver_process import ApiServerProcess, apiserver

__all__ = ["apiserver"]


def scenario(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


class Place:
    """Nodes and pods in memory."""

    def __init__(self, mode: str = "none") -> None:
        self.state: State = state_for(NAME, mode)
        self.policy = read_policy(POLICY)
        self.trees: dict[str, dict[str, Any]] = {}

    def node(self, name: str, cpu: int = 4) -> None:
        size = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        self.state.upsert_node({"metadata": {"name": name}, "status": {"allocatable": size}})

    def shard(self, *nodes: str) -> None:
        self.state.upsert_other(
            "NodeShard",
            {"metadata": {"name": NAME, "uid": "s"}, "spec": {"nodesDesired": list(nodes)}},
        )

    def pod(self, name: str, cpu: str = "1", nominated: str = "") -> None:
        container = {"name": "main", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
        self.trees[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"schedulerName": NAME, "containers": [container]},
            "status": {"phase": "Pending", "nominatedNodeName": nominated},
        }
        self.state.upsert_pod(self.trees[name])

    def run(self) -> Decisions:
        return cycle(self.state, self.policy, 1e6)


@pytest.fixture
def place() -> Iterator[Place]:
    yield Place()


def test_a_pod_needs_neither_group_nor_queue(place: Place) -> None:
    place.node("n1")
    place.pod("plain")
    place.pod("asks-for-nothing", cpu="")
    decisions = place.run()
    assert set(decisions.bound()) == {"default/plain", "default/asks-for-nothing"}
    assert decisions.pod_groups == []


@scenario(162)
@pytest.mark.parametrize("count", [1, 5])
def test_the_best_node_is_taken_and_then_it_is_the_best_no_more(place: Place, count: int) -> None:
    """Upstream keeps several candidates because the best may be taken meanwhile; here what was
    taken is known."""
    for number in range(3):
        place.node(f"n{number}", cpu=4 + number)
    for number in range(count):
        place.pod(f"p{number}")
    taken = place.run().bound()
    assert taken["default/p0"] == "n2", "the one with the most room"
    assert len(set(taken.values())) == min(count, 3)


@scenario(162)
def test_a_nominated_node_is_tried_first(place: Place) -> None:
    place.node("large", cpu=8)
    place.node("small", cpu=2)
    place.pod("waited", nominated="small")
    assert place.run().bound() == {"default/waited": "small"}


@scenario(163)
def test_two_pods_that_want_the_same_place(place: Place) -> None:
    """A conflict would be a second bind to room that is gone: the second pod goes elsewhere, or
    waits and is told."""
    place.node("n1", cpu=1)
    place.pod("first")
    place.pod("second")
    decisions = place.run()
    assert len(decisions.binds) == 1
    (condition,) = [one for one in decisions.conditions if one.pod != decisions.binds[0].pod]
    assert (condition.reason, condition.message) == (
        "Unschedulable",
        "0/1 nodes are unavailable: 1 Insufficient cpu.",
    )
    place.node("n2", cpu=1)
    assert {one.node for one in place.run().binds} == {"n2"}


@scenario(163)
def test_a_refused_bind_is_tried_again(place: Place) -> None:
    place.node("n1", cpu=1)
    place.pod("first")
    (bind,) = place.run().binds
    place.state.bind_failed(bind.pod)
    assert place.run().binds == [bind]


@scenario(164)
def test_a_pod_that_has_gone_is_forgotten_without_a_word(place: Place) -> None:
    place.pod("gone")
    place.state.remove_pod("default/gone")
    place.node("n1")
    decisions = place.run()
    assert (decisions.binds, decisions.problems, place.state.jobs) == ([], [], {})


@scenario(164)
def test_a_pod_that_could_not_be_looked_at_comes_again(place: Place) -> None:
    place.pod("waits")
    assert place.run().binds == []
    assert place.state.tasks["default/waits"].status is Status.PENDING
    place.node("n1")
    assert len(place.run().binds) == 1


@scenario(165)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_shards(mode: str) -> None:
    place = Place(mode)
    place.node("outside", cpu=8)
    place.node("inside", cpu=2)
    place.shard("inside")
    place.pod("first")
    assert place.run().bound() == {"default/first": "inside"}
    place.pod("large", cpu="4")
    assert place.run().bound() == ({} if mode == "hard" else {"default/large": "outside"})


@scenario(166)
def test_no_node_ever_holds_too_much_and_nobody_is_forgotten(place: Place) -> None:
    for number in range(10):
        place.node(f"n{number}", cpu=4)
    waiting = [f"p{number}" for number in range(60)]
    for at, name in enumerate(waiting):
        place.pod(name)
        if at % 7 == 6:
            for bind in place.run().binds[::3]:
                place.state.bind_failed(bind.pod)
        assert (place.state.nodes.idle() >= 0).all()
    place.run()
    held = [
        name for name in waiting if place.state.tasks[f"default/{name}"].status is Status.BINDING
    ]
    assert len(held) == 40
    for name in held:
        place.state.remove_pod(f"default/{name}")
    place.run()
    assert all(task.status is Status.BINDING for task in place.state.tasks.values())


@scenario(167)
def test_what_is_in_use_is_said_when_a_cycle_has_ended_and_only_then() -> None:
    place = Place("hard")
    place.node("n1")
    place.node("n2")
    place.shard("n1")
    place.pod("first")
    first = place.run()
    assert first.bound() == {"default/first": "n1"}
    assert [one.in_use for one in first.shards] == [["n1"]]
    place.state.upsert_other(
        "NodeShard",
        {
            "metadata": {"name": NAME, "uid": "s"},
            "spec": {"nodesDesired": ["n1"]},
            "status": {"nodesInUse": ["n1"]},
        },
    )
    assert place.run().shards == []


def test_its_flags() -> None:
    options = parse(FLAGS, [], program="agent-scheduler")
    assert (
        options.scheduler_name,
        options.scheduler_sharding_name,
        options.scheduler_worker_count,
    ) == (NAME, NAME, 1)
    with pytest.raises(FlagError, match="scheduler-worker-count must be greater than 0"):
        parse(FLAGS, ["--scheduler-worker-count=0"], program="agent-scheduler")


CHART = """\
actions: "allocate"
configurations:
- name: allocate
  arguments:
    candidateNodeCount: 5
tiers:
- plugins:
  - name: predicates
  - name: nodeorder
"""


def test_a_policy_of_upstream_is_taken_and_serves_pods_that_ask_for_nothing_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent-scheduler.conf"
    path.write_text(CHART)
    read = PolicyFile(str(path), fall_back=False, adapt=with_backfill)
    state = state_for(NAME)
    size = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    state.upsert_node(
        {"metadata": {"name": "n1"}, "status": {"allocatable": size, "capacity": size}}
    )
    for name, asked in (("some", {"cpu": "1"}), ("nothing", {})):
        container = {"name": "main", "resources": {"requests": asked}}
        meta = {"name": name, "namespace": "default", "uid": name}
        state.upsert_pod(
            {
                "metadata": meta,
                "spec": {"schedulerName": NAME, "containers": [container]},
                "status": {"phase": "Pending"},
            }
        )
    assert cycle(state, read.policy, 0.0).bound() == {"default/some": "n1", "default/nothing": "n1"}


async def test_it_runs_beside_an_api_server(apiserver: ApiServerProcess, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hekla",
        NAME,
        f"--kubeconfig={apiserver.internal_kubeconfig}",
        "--leader-elect=false",
        "--scheduler-sharding-mode=hard",
    ]
    log = tmp_path / "log"
    async with Client(config.load(str(apiserver.internal_kubeconfig))) as client:
        await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, crds.definition(shard.NODE_SHARD))
        size = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {
            "allocatable": size,
            "capacity": size,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
        }
        for name in ("inside", "outside"):
            await client.create(core.NODE.untyped, {"metadata": {"name": name}, "status": status})
        async with asyncio.timeout(60):
            while True:
                try:
                    await client.create(
                        shard.NODE_SHARD.untyped,
                        {"metadata": {"name": NAME}, "spec": {"nodesDesired": ["inside"]}},
                    )
                    break
                except NotFound:  # the kind is not served yet
                    await asyncio.sleep(0.1)
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
            body = {
                "metadata": {"name": "quick"},
                "spec": {"schedulerName": NAME, "containers": [container]},
            }
            await client.create(core.POD.untyped, body, "default")
            deadline = time.monotonic() + 60
            while not (pod := await client.get(core.POD.untyped, "quick", "default"))["spec"].get(
                "nodeName"
            ):
                assert process.poll() is None and time.monotonic() < deadline, (
                    f"{pod}\n{log.read_text()}"
                )
                await asyncio.sleep(0.1)
            assert pod["spec"]["nodeName"] == "inside"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
