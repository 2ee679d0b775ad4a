"""What pods may take of their machine, and what becomes of those that take more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods import pressure
from hekla.local.kubelet.pods.pressure import Pressure, Threshold, Use, message, parse, size_of
from hekla.local.kubelet.records import name_of
from hekla.local.kubelet.runtime import cgroups
from tests.kubelet.live_cluster import NODE_NAME, POD, Cluster, cluster, condition, container


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["groups", "polling"])
async def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """With control groups where the machine has them, and without."""
    if request.param == "groups" and (why := cgroups.find()[1]):
        pytest.skip(why)
    flags = [] if request.param == "groups" else ["--isolation=none"]
    async with cluster(
        tmp_path_factory.mktemp("limits"), "--node-cpu=4", "--node-memory=4Gi", *flags
    ) as made:
        yield made


GREEDY = "import time\nheld=[]\nfor i in range(50):\n  held.append(b'x'*5_000_000); time.sleep(0.02)\nprint('has it all'); time.sleep(1000)"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.scenario("local-cluster", 127)
async def test_a_container_above_its_memory_is_killed(live: Cluster) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi", "cpu": "1"}, "requests": {"cpu": "100m"}}}
    await live.create("greedy", "python3", "-c", GREEDY, c=limits)
    await live.create("modest", "sh", "-c", "echo fine", c=limits)
    pod = await live.phase("greedy", "Failed")
    assert (
        container(pod)["state"]["terminated"].items()
        >= {"exitCode": 137, "reason": "OOMKilled"}.items()
    )
    await live.phase("modest", "Succeeded")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.scenario("local-cluster", 136)
async def test_scratch_space_has_a_size(live: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-scratch"}]}
    for name, medium in (("disk", ""), ("memory", "Memory")):
        volumes = [{"name": "d", "emptyDir": {"sizeLimit": "1Mi", "medium": medium}}]
        fill = "head -c 3000000 /dev/zero > /hekla-scratch/f; sleep 100"
        await live.create(name, "sh", "-c", fill, c=mount, volumes=volumes)
    for name in ("disk", "memory"):
        pod = await live.phase(name, "Failed")
        assert pod["status"]["reason"] == "Evicted"
        assert pod["status"]["message"] == 'Usage of EmptyDir volume "d" exceeds the limit "1Mi". '
        assert (
            condition(pod, "DisruptionTarget").items()
            >= {"status": "True", "reason": "TerminationByKubelet"}.items()
        )
        await live.event(name, "Evicted")
        await live.client.delete(POD, name, "default")
        await live.gone(name)
    base, _ = cgroups.find()
    root = live.kubelet.root
    trees = base.tree(root).values() if base is not None else ()
    for _ in range(1200):  # the directories go after the object
        left = [*Path("/dev/shm").glob(f"{name_of(root)}/*-*")]
        left += [path for tree in trees for path in tree.glob("kubepods/**/pod*")]
        if not left:
            break
        await asyncio.sleep(0.05)
    assert not left


@pytest.mark.asyncio
async def test_a_node_under_pressure_sets_its_condition_and_evicts(tmp_path: Path) -> None:
    """More memory than any machine has is asked to be left."""
    async with cluster(tmp_path, "--eviction-hard=memory.available<1000Ti") as live:
        await live.create("victim", "sleep", "1000")
        await live.create(
            "critical",
            "sleep",
            "1000",
            priority=2_000_001_000,
            priorityClassName="system-node-critical",
        )
        pod = await live.phase("victim", "Failed")
        assert pod["status"]["reason"] == "Evicted"
        assert pod["status"]["message"].startswith(
            "The node was low on resource: memory. Threshold quantity: 1000Ti, available: "
        )
        assert "Container c was using " in pod["status"]["message"]
        for _ in range(600):
            node = await live.client.get(core.NODE.untyped, NODE_NAME)
            if condition(node, "MemoryPressure").get("status") == "True":
                break
            await asyncio.sleep(0.1)
        assert condition(node, "MemoryPressure")["reason"] == "KubeletHasInsufficientMemory"
        assert condition(node, "Ready")["status"] == "True"
        await live.phase("critical", "Running")
        await live.event(NODE_NAME, "NodeHasInsufficientMemory")


def test_thresholds_are_amounts_or_parts() -> None:
    memory, disk = parse("memory.available<100Mi, nodefs.available<10%")
    assert (memory.of(1 << 40), disk.of(1000)) == (100 << 20, 100)
    assert parse("") == []
    for wrong in (
        "memory<1Gi",
        "memory.available",
        "memory.available<many",
        "swap.available<1Gi",
        "memory.available<x%",
    ):
        with pytest.raises(ValueError, match=r"write memory\.available|neither an amount"):
            parse(wrong)
    assert parse(pressure.DEFAULT)


def used(name: str, used_bytes: int, requested: int, priority: int = 0) -> Use:
    worker: Any = SimpleNamespace(
        pod=core.Pod(metadata=core.Pod().metadata, spec=core.PodSpec(priority=priority)), name=name
    )
    return Use(worker, used_bytes, requested, [("c", used_bytes, requested)])


def test_who_goes_first() -> None:
    """Above its request, then of low priority, then the furthest above."""
    uses = [
        used("within", 900, 1000, -5),
        used("above-important", 5000, 100, 10),
        used("above", 300, 100),
        used("far-above", 3000, 100),
    ]
    order = [one.worker.name for one in sorted(uses, key=lambda one: one.rank)]  # type: ignore[attr-defined]
    assert order == ["far-above", "above", "above-important", "within"]


def test_the_message_of_an_eviction() -> None:
    text = message(Threshold("memory", 1, False, "100Mi"), 51200, used("x", 2 << 20, 1 << 20))
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. "
        "Container c was using 2048Ki, request is 1024Ki, has larger consumption of memory. "
    )


@pytest.mark.asyncio
async def test_pressure_lasts_a_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[set[str]] = []
    watched = Pressure(
        tmp_path,
        parse("nodefs.available<10%"),
        list,
        lambda conditions: heard.append(set(conditions)),
    )
    left = {"nodefs": 5}
    monkeypatch.setattr(pressure, "measure", lambda signal, root: (left[signal], 100))
    await watched.check(1000.0)
    left["nodefs"] = 50
    await watched.check(1005.0)
    await watched.check(1020.0)
    assert heard == [{"DiskPressure"}, set()]


def test_sizes_are_measured_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 10_000)
    (tmp_path / "l").symlink_to("/usr")
    assert 10_000 <= size_of(tmp_path) < 100_000
