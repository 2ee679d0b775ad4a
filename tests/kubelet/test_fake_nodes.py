"""Fake nodes on a real API server, and what their pods make of their commands."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.apps import DEPLOYMENT
from hekla.api.kubernetes.coordination import LEASE
from hekla.kube.cache import Cache
from hekla.kube.errors import NotFound
from hekla.local.kubelet.nodes import fake_nodes
from hekla.local.kubelet.nodes.fake_nodes import MOST_RENEWALS, FakeNodes
from hekla.local.kubelet.nodes.fake_objects import POD as FAKE_POD
from hekla.local.kubelet.nodes.fake_objects import FakePod
from hekla.local.kubelet.nodes.fake_pods import FEW, SENDERS, FakePods
from hekla.local.kubelet.nodes.simulated_life import Plan, meaning, plan
from tests.kubelet.live_cluster import PATIENCE, POD, Cluster, cluster, condition, container


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sleep", "5"], (5.0, 0)), (["/bin/sleep", "1.5m"], (90.0, 0)), (["true"], (0.0, 0)), (["false"], (0.0, 1)),
        (["sh", "-c", "exit 3"], (0.0, 3)), (["sh", "-c", "sleep 5s && exit 3"], (5.0, 3)),
        (["sh", "-c", "echo 'Hello; you!' && sleep 300"], (300.0, 0)), (["/bin/sh", "-c", "echo hi; sleep 2\nsleep 3"], (5.0, 0)),
        (["sh", "-c", "false && sleep 5"], (0.0, 1)), (["sh", "-c", "false; sleep 5"], (5.0, 0)),
        (["sh", "-c", "sleep 10s && xxx"], None), (["sh", "-c", "while true; do sleep 1; done"], None),
        (["sh", "-c", "sleep $N"], None), (["sh", "-c", "sleep 5 || exit 1"], None), (["sh", "-c", "sleep 5 &"], None),
        (["python", "train.py"], None), ([], None), (["sleep", "infinity"], None), (["sh", "-c", "echo $(date)"], None),
        (["sh", "-c", "echo 'unclosed"], None),
    ],
)  # fmt: skip
def test_a_command_is_believed_where_it_is_plain(
    command: list[str], said: tuple[float, int] | None
) -> None:
    assert meaning(command) == said


def test_annotations_come_before_the_command() -> None:
    annotations = {
        "pod-ready.stage.kwok.x-k8s.io/delay": "2s",
        "pod-complete.stage.kwok.x-k8s.io/delay": "10",
    }
    assert plan(annotations, {}, [["sleep", "99"]]) == Plan(2.0, 10.0, 0)
    failing = {"pod-container-running-failed.stage.kwok.x-k8s.io": "true"}
    exit_code = {"pod-container-running-failed.stage.kwok.x-k8s.io/exit-code": "7"}
    assert plan(exit_code, failing, []) == Plan(0.0, 0.0, 7)


def test_jitter_is_the_most_that_a_delay_may_be() -> None:
    annotations = {
        "pod-ready.stage.kwok.x-k8s.io/delay": "2s",
        "pod-ready.stage.kwok.x-k8s.io/jitter-delay": "6s",
    }
    assert [plan(annotations, {}, [], luck=luck).delay for luck in (0.0, 0.5, 1.0)] == [
        2.0,
        4.0,
        6.0,
    ]
    only = {"pod-complete.stage.kwok.x-k8s.io/jitter-delay": "4s"}
    assert plan(only, {}, [["nginx"]], luck=0.25).run_time == 1.0


def test_a_pod_lives_as_long_as_its_longest_container() -> None:
    assert plan({}, {}, [["sleep", "3"], ["sh", "-c", "exit 2"]]) == Plan(0.0, 3.0, 2)
    assert plan({}, {}, [["sleep", "3"], ["nginx"]]).run_time is None
    assert plan({}, {"batch.kubernetes.io/controller-uid": "u"}, [["nginx"]]).run_time == 0.0
    assert plan({}, {"batch.kubernetes.io/controller-uid": "u"}, [[]], rests=True).run_time is None
    assert meaning(["sh", "-c", "test $(id -u) -eq 65534"]) == (0.0, 0)
    assert meaning(["sh", "-c", "test -f x || nginx"]) is None


async def test_few_pods_are_reported_at_a_time_while_the_server_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = SimpleNamespace(debounce=SimpleNamespace(busy=True))
    fakes = FakePods(client, {"n1"})
    fakes.cache = Cache(client, FAKE_POD)
    fakes.cache.on_change(fakes._pod_changed)
    waiting: deque[asyncio.Future[None]] = deque()
    served: list[str] = []

    async def advance(pod: FakePod) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        served.append(pod.metadata.name)

    async def under_way(number: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(waiting) < number:
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(waiting) == number

    monkeypatch.setattr(fakes, "_advance", advance)
    names = [f"p{n}" for n in range(100)]
    for name in names:
        tree = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "n1"},
        }
        fakes.cache._put(f"default/{name}", msgspec.convert(tree, FakePod))
    await under_way(FEW)

    client.debounce.busy = False
    waiting.popleft().set_result(None)
    await under_way(SENDERS)

    client.debounce.busy = True
    while len(served) < len(names):
        while waiting:
            waiting.popleft().set_result(None)
        await asyncio.sleep(0)
        assert len(waiting) <= FEW
    assert sorted(served) == sorted(names)
    await fakes.close()
    assert fakes._senders == 0 and not fakes._tasks.tasks


async def test_what_the_server_removes_without_waiting_is_not_deleted_again() -> None:
    """As kube-apiserver does with a pod that has ended: it is changed first, and gone then."""
    deleted: list[str] = []

    async def delete(kind: Any, name: str, namespace: str, *, grace: int, uid: str) -> None:
        deleted.append(name)

    client: Any = SimpleNamespace(debounce=SimpleNamespace(busy=False), delete=delete)
    fakes = FakePods(client, {"n1"})
    fakes.cache = Cache(client, FAKE_POD)
    fakes.cache.on_change(fakes._pod_changed)
    for name, grace in (("forced", 0), ("asked", 30)):
        tree = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": grace,
            },
            "spec": {"nodeName": "n1"},
        }
        fakes.cache._put(f"default/{name}", msgspec.convert(tree, FakePod))
    async with asyncio.timeout(PATIENCE):
        while fakes._senders:
            await asyncio.sleep(0)
    assert deleted == ["asked"]
    await fakes.close()


async def test_leases_that_are_late_are_renewed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_nodes, "RENEW_EVERY", 1e-3)
    asked: list[str] = []

    async def patch(kind: object, name: str, *_: object) -> None:
        asked.append(name)
        await asyncio.Event().wait()  # a server that does not answer yet

    client: Any = SimpleNamespace(patch=patch)
    fakes = FakeNodes(client, fake_nodes.Size(0))
    fakes._managed |= {f"n{number}": "uid" for number in range(1000)}
    renewing = asyncio.create_task(fakes._renew_for_ever())
    async with asyncio.timeout(PATIENCE):
        while len(asked) < MOST_RENEWALS:
            await asyncio.sleep(0)
    assert len(set(asked)) == MOST_RENEWALS
    renewing.cancel()


async def fake(live: Cluster, name: str, *command: str, **more: Any) -> None:
    await live.create(name, *command, nodeName="fake-node-0", **more)


async def holder(live: Cluster, node: str) -> str:
    """Who holds the lease of a node; it comes a moment after the node."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return (await live.client.get(LEASE, node, "kube-node-lease")).spec.holder_identity
        except NotFound:
            assert time.monotonic() < deadline, f"{node} has no lease"
        await asyncio.sleep(0.03)


async def test_fake_pods_live_as_they_say(tmp_path: Path) -> None:
    async with cluster(
        tmp_path, "--fake-nodes=3", "--fake-node-gpus=8", "--fake-node-labels=rack=r1", nodes=4
    ) as live:
        node = await live.client.get(core.NODE, "fake-node-2")
        assert node.status.allocatable == {
            "cpu": "32",
            "memory": "256Gi",
            "pods": "110",
            "nvidia.com/gpu": "8",
        }
        assert node.metadata.annotations["kwok.x-k8s.io/node"] == "fake"
        assert (
            node.metadata.labels.items()
            >= {"type": "kwok", "rack": "r1", "kubernetes.io/hostname": "fake-node-2"}.items()
        )
        assert {c.type: c.status for c in node.status.conditions}["Ready"] == "True"
        assert await holder(live, "fake-node-0") == "fake-node-0"

        await fake(live, "forever")
        await fake(live, "short", "sleep", "1")
        await fake(live, "bad", "sh", "-c", "exit 3")
        await fake(live, "crashing", "sh", "-c", "exit 3", restartPolicy="OnFailure")
        await fake(live, "timed", activeDeadlineSeconds=1)
        delay = {"pod-ready.stage.kwok.x-k8s.io/delay": "1500ms"}
        began = time.monotonic()
        await fake(live, "slow", metadata={"annotations": delay})

        pod = await live.phase("forever", "Running")
        assert condition(pod, "Ready")["status"] == "True"
        assert container(pod)["ready"] and "running" in container(pod)["state"]
        assert pod["status"]["podIP"].startswith("10.")
        assert (
            container(await live.phase("short", "Succeeded"))["state"]["terminated"]["exitCode"]
            == 0
        )
        assert (
            container(await live.phase("bad", "Failed"))["state"]["terminated"].items()
            >= {"exitCode": 3, "reason": "Error"}.items()
        )
        assert (await live.phase("timed", "Failed"))["status"]["reason"] == "DeadlineExceeded"
        await live.phase("slow", "Running")
        assert time.monotonic() - began > 1.2, "it was Pending as long as it says"
        pod = await live.until("crashing", lambda p: p and container(p).get("restartCount", 0) >= 1)
        await live.client.delete(POD, "forever", "default")
        await live.gone("forever")
        await fake(
            live,
            "lingering",
            metadata={"annotations": {"pod-delete.stage.kwok.x-k8s.io/delay": "1s"}},
        )
        await live.phase("lingering", "Running")
        began = time.monotonic()
        await live.client.delete(POD, "lingering", "default")
        await live.gone("lingering")
        assert time.monotonic() - began > 0.8


async def test_nodes_that_others_make_are_looked_after_too(tmp_path: Path) -> None:
    """As `kubectl apply` of KWOK's own manifests."""
    async with cluster(
        tmp_path, "--nodes=0", "--fake-nodes=1", "--fake-node-name=n1-is-fake", namespace="default"
    ) as live:
        body = {
            "metadata": {"name": "kwok-node-0", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
        }
        await live.client.create(core.NODE.untyped, body)
        deadline = time.monotonic() + PATIENCE
        while True:
            node = await live.client.get(core.NODE, "kwok-node-0")
            if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions):
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert node.status.capacity["cpu"] == "8"
        await live.create("on-it", "sleep", "1000", nodeName="kwok-node-0")
        await live.phase("on-it", "Running")


async def test_a_killed_agent_goes_on_pretending(tmp_path: Path) -> None:
    async with cluster(tmp_path, "--fake-nodes=1", nodes=2) as live:
        await fake(live, "through", "sleep", "2")
        before = await live.until("through", lambda pod: pod and pod["status"].get("podIP"))
        live.kubelet.kill()
        await asyncio.sleep(0.3)
        live.kubelet.start()
        after = await live.phase("through", "Succeeded")
        assert after["status"]["startTime"] == before["status"]["startTime"]
        assert after["status"]["podIP"] == before["status"]["podIP"]


async def test_one_container_may_fail_and_kwok_itself_takes_over(tmp_path: Path) -> None:
    async with cluster(tmp_path, "--nodes=0", "--fake-nodes=1") as live:
        stage = "pod-container-running-failed.stage.kwok.x-k8s.io"
        metadata = {
            "labels": {stage: "true"},
            "annotations": {f"{stage}/container-name": "d", f"{stage}/exit-code": "9"},
        }
        both = [{"name": name, "image": "nginx"} for name in ("c", "d")]
        await live.create("partly", nodeName="fake-node-0", metadata=metadata, containers=both)
        pod = await live.phase("partly", "Failed")
        assert [container(pod, name)["state"]["terminated"]["exitCode"] for name in ("c", "d")] == [
            143,
            9,
        ]

        labels = {"matchLabels": {"app": "kwok"}}
        template = {
            "metadata": {"labels": {"app": "kwok"}},
            "spec": {"containers": [{"name": "k", "image": "kwok"}]},
        }
        kwok = {
            "metadata": {"name": "kwok-controller"},
            "spec": {"replicas": 1, "selector": labels, "template": template},
        }
        await live.client.create(DEPLOYMENT.untyped, kwok, "kube-system")
        deadline = time.monotonic() + PATIENCE
        while "left to it" not in live.kubelet.log.read_text():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        await fake(live, "waiting", "true")
        await asyncio.sleep(0.3)
        assert (await live.pod("waiting"))["status"]["phase"] == "Pending"
        await live.client.delete(DEPLOYMENT, "kwok-controller", "kube-system")
        await live.phase("waiting", "Succeeded")
