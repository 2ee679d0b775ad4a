"""The agent between a configuration and its parts: who is told what, what is tried again, and what
is said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from hekla.agent import agent as module
from hekla.agent import reload
from hekla.agent.agent import Agent, PartError, Settings
from hekla.agent.cgroups import CPU_IDLE, CPU_SHARE, MEMORY_LOW
from hekla.agent.configuration import ColocationConfig, ConfigurationError, merge, read
from hekla.agent.features import Feature
from hekla.agent.machine import machine
from hekla.agent.metrics import Metrics
from hekla.agent.pods import Pod
from hekla.api.kubernetes import core
from hekla.api.meta import key
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.events import Recorder
from hekla.kube.metrics import shown
from tests.agent.trees import Trees, pod, pod_tree, status
from tests.apiserver_process import ApiServerProcess, shared_apiserver

__all__ = ["shared_apiserver"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATIENCE = 30.0
BOTH = '{"globalConfig": {"cpuQosConfig": {"enable": true}, "memoryQosV2Config": {"enable": true}}}'
ON, OFF = ({"volcano.sh/colocation": text} for text in ("true", "false"))


class Named:
    """A part that notes what it hears, and fails when it is told to."""

    def __init__(self, feature: Feature, fails: int = 0) -> None:
        self.name = self.feature = feature
        self.heard: list[object] = []
        self.fails = fails

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        self.heard.append(active)
        if self.fails:
            raise PartError(f"{self.feature} is broken")

    async def handle(self, pod: Pod) -> None:
        self.heard.append(pod.metadata.name)
        if self.fails:
            self.fails -= 1
            raise PartError("not yet")


def config(labels: dict[str, str]) -> ColocationConfig:
    return merge(read(BOTH)[0], labels)


class World:
    """An agent in this process, on node n1 of a real API server."""

    def __init__(self, client: Client, trees: Trees) -> None:
        self.client = client
        self.trees = trees
        self.recorder = Recorder(client, "volcano-agent")
        self.agent = Agent(
            client,
            self.recorder,
            Metrics(),
            machine(),
            trees.cgroups,
            Settings("n1", frozenset(Feature)),
        )

    async def create(self, each: Pod) -> None:
        name = each.metadata.name
        resources = [msgspec.to_builtins(one.resources) for one in each.spec.containers]
        tree = pod_tree(name, annotations=each.metadata.annotations, containers=resources)
        await self.client.create(core.POD.untyped, tree, "default")
        now = {"status": status(name)}
        await self.client.patch(core.POD.untyped, name, now, "default", subresource="status")

    async def until(self, good: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not good():
                await asyncio.sleep(0.01)

    async def messages(self, name: str, reason: str) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            while True:
                events = (await self.client.list(core.EVENT, "default")).items
                found = [
                    event.message
                    for event in events
                    if (event.involved_object.name, event.reason) == (name, reason)
                ]
                if found:
                    return found
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="module")
async def world(
    shared_apiserver: ApiServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.01)
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        await client.create(core.NODE.untyped, {"metadata": {"name": "n1"}})
        world = World(client, Trees(tmp_path / "cgroup"))
        await world.agent.start()
        task = asyncio.create_task(world.agent.run())
        yield world
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.recorder.close()
        for each in (await client.list(core.POD.untyped, "default")).items:
            await client.delete(core.POD, each["metadata"]["name"], "default", grace=0)
        await client.delete(core.NODE, "n1")


async def test_who_fails_does_not_keep_the_others_from_a_configuration(world: World) -> None:
    broken, whole = Named(Feature.NETWORK_QOS, fails=1), Named(Feature.EVICTION)
    world.agent.parts += [broken, whole]
    with pytest.raises(ConfigurationError, match="NetworkQoS is broken"):
        await world.agent.refresh(config(ON))
    assert broken.heard == [False]
    assert whole.heard == [True]
    assert world.agent.is_active(Feature.CPU_QOS)
    assert not world.agent.is_active(Feature.NETWORK_QOS)


async def test_a_pod_that_fails_is_tried_again_and_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    part = Named(Feature.EVICTION)
    world.agent.parts.append(part)
    await world.agent.refresh(config(ON))
    part.fails = 4
    with caplog.at_level(logging.WARNING):
        await world.create(pod("slow"))
        await world.until(lambda: part.heard.count("slow") > 4)
    assert await world.messages("slow", "ColocationFailed") == ["Eviction: not yet"]
    assert [record.message for record in caplog.records if "not yet" in record.message] == [
        "pod default/slow: Eviction: not yet"
    ], "the first time only"


async def test_a_pod_that_failed_a_thousand_times_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.0)
    part = Named(Feature.EVICTION)
    world.agent.parts.append(part)
    await world.agent.refresh(config(ON))
    part.fails = 1100
    await world.create(pod("hopeless"))
    await world.until(lambda: part.heard.count("hopeless") > 1100)


async def test_failures_go_with_their_pod(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of the same name begins anew, though the last failed when it was gone already."""
    part = Named(Feature.EVICTION)
    world.agent.parts.append(part)
    await world.agent.refresh(config(ON))
    gone = asyncio.Event()

    async def late(pod: Pod) -> None:
        part.heard.append(pod.metadata.name)
        await gone.wait()
        raise PartError("not yet")

    monkeypatch.setattr(part, "handle", late)
    await world.create(pod("brief"))
    await world.until(lambda: "brief" in part.heard)
    await world.client.delete(core.POD, "brief", "default", grace=0)
    await world.until(lambda: "default/brief" not in world.agent.pod_cache)
    gone.set()
    await world.until(lambda: world.agent.queue.idle and not world.agent.queue.delayed)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await world.create(pod("brief"))
        await world.until(lambda: "pod default/brief: Eviction: not yet" in caplog.text)


async def test_an_annotation_that_nobody_can_read_is_told_and_not_tried_again(world: World) -> None:
    await world.agent.refresh(config(ON))
    await world.create(
        pod("odd", annotations={"volcano.sh/colocation-config": '{"memoryQos":{"highRatio":300}}'})
    )
    assert await world.messages("odd", "ColocationConfigParseFailed") == [
        "volcano.sh/colocation-config: memoryQos.highRatio is 300, "
        "and must be a whole number from 0 to 100"
    ]
    assert b"hekla_agent_pod_failures{" not in shown(world.agent.metrics.registry)


async def test_what_is_off_is_taken_back_once(world: World) -> None:
    await world.create(pod("calm"))
    await world.until(lambda: "default/calm" in world.agent.pod_cache)
    (found,) = world.agent.pods()
    world.trees.add(found)
    directory = world.trees.cgroups.pod(found)
    world.trees.put(directory, CPU_IDLE, "1")
    await world.agent.refresh(config(OFF))
    assert world.trees.says(directory, CPU_IDLE) == "0"
    world.trees.put(directory, CPU_IDLE, "1")
    await world.agent.refresh(config(OFF))
    assert world.trees.says(directory, CPU_IDLE) == "1", "what others do meanwhile is theirs"


@contextlib.contextmanager
def unwritable(file: Path) -> Iterator[None]:
    """Nobody can write the file, until it is there again as it was."""
    aside = file.rename(file.with_suffix(".aside"))
    file.mkdir()
    yield
    file.rmdir()
    aside.rename(file)


async def test_a_protection_that_could_not_be_taken_back_is_later(world: World) -> None:
    ratio = {"volcano.sh/colocation-config": '{"memoryQos":{"lowRatio":50}}'}
    await world.create(pod("calm", containers=[{"requests": {"memory": "1M"}}], annotations=ratio))
    await world.until(lambda: "default/calm" in world.agent.pod_cache)
    world.trees.add(world.agent.pods()[0])
    file = world.trees.cgroups.path(world.trees.cgroups.qos_root("BestEffort"), MEMORY_LOW)
    file.write_text("7")
    await world.agent.refresh(config(ON))
    await world.until(lambda: file.read_text() == "500000")
    with unwritable(file):
        await world.agent.refresh(config(OFF))
        await world.until(lambda: world.agent.queue.idle)
    world.agent.sync_pods()
    await world.until(lambda: file.read_text() == "7")


async def test_a_share_that_could_not_be_taken_back_is_the_one_to_rank(world: World) -> None:
    await world.create(pod("quick", annotations={"volcano.sh/qos-level": "LS"}))
    await world.until(lambda: "default/quick" in world.agent.pod_cache)
    found = world.trees.add(world.agent.pods()[0])
    share = world.trees.cgroups.path(world.trees.cgroups.pod(found), CPU_SHARE)
    share.write_text("39")
    await world.agent.refresh(config(ON))
    await world.until(lambda: share.read_text() == "78")
    with unwritable(share):
        await world.agent.refresh(config(OFF))
    await world.agent.refresh(config(ON))
    await world.agent.refresh(config(OFF))
    assert share.read_text() == "39"


@pytest.mark.parametrize(("may", "idle"), [(True, "1"), (False, "0")])
async def test_a_class_is_idle_where_its_kubelet_lets_it(
    world: World, may: bool, idle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        world.agent, "settings", replace(world.agent.settings, idle_best_effort=may)
    )
    root = world.trees.cgroups.qos_root("BestEffort")
    await world.create(pod("job", level="BE"))
    await world.until(lambda: "default/job" in world.agent.pod_cache)
    await world.agent.refresh(config(ON))
    assert world.trees.says(root, CPU_IDLE) == idle
    world.trees.put(root, CPU_IDLE, "0")  # a kubelet has written the share
    world.agent.sync_pods()
    await world.until(lambda: world.agent.queue.idle)
    assert world.trees.says(root, CPU_IDLE) == idle


async def test_a_part_with_a_bug_does_not_end_the_reloading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Named(Feature.EVICTION)
    world.agent.parts.append(part)
    broken = iter([OSError("no disk")])

    async def refresh(config: ColocationConfig, active: bool) -> None:
        for error in broken:
            raise error
        part.heard.append(active)

    monkeypatch.setattr(part, "refresh", refresh)
    monkeypatch.setattr(reload, "FIRST_RETRY", 0.01)
    reloader = reload.Reloader(world.agent, "default")
    await reloader.prepare()
    task = asyncio.create_task(reloader.run())
    await world.until(lambda: part.heard)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await world.messages("n1", "ConfigApplyFailed") == [
        "Failed to apply config(OSError: no disk)"
    ]
    await world.client.delete(core.CONFIG_MAP, reload.NAME, "default")


async def test_a_pod_that_is_no_pod_does_not_end_the_agent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Named(Feature.EVICTION)
    world.agent.parts.append(part)
    await world.agent.refresh(config(ON))

    async def wrong(pod: Pod) -> None:
        if pod.metadata.name == "wrong":
            raise ValueError("a quantity")
        part.heard.append(key(pod))

    monkeypatch.setattr(part, "handle", wrong)
    await world.create(pod("wrong"))
    await world.create(pod("right"))
    await world.until(lambda: "default/right" in part.heard)
    assert await world.messages("wrong", "ColocationFailed") == ["ValueError: a quantity"]
