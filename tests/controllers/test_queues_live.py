"""Queues against a real API server: opened, closed, down the tree and up again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import names, scheduling
from hekla.kube.client import Client
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


async def state(cluster: Cluster, name: str, wanted: str) -> scheduling.Queue:
    def there() -> scheduling.Queue | None:
        queue = cluster.queues.get(name)
        return queue if queue is not None and queue.status.state == wanted else None

    return await cluster.until(
        there, lambda: f"queue {name} {wanted}; it is {cluster.queues.get(name)}"
    )


async def group(cluster: Cluster, name: str, queue: str) -> None:
    cluster.hold = True
    body = {
        "metadata": {"name": name},
        "spec": {"minMember": 1, "queue": queue},
        "status": {"phase": "Pending"},
    }
    await cluster.client.create(scheduling.POD_GROUP.untyped, body, "default")
    await cluster.until(lambda: cluster.groups.get(f"default/{name}"))


@pytest.mark.scenario("controllers", 83)
@pytest.mark.scenario("controllers", 89)
async def test_an_idle_queue_closes_and_opens(cluster: Cluster) -> None:
    queue = await cluster.queue("idle")
    opened = await state(cluster, "idle", "Open")
    await cluster.until(lambda: cluster.queues.get("idle").spec.parent == names.ROOT_QUEUE)  # type: ignore[union-attr]
    await cluster.command("CloseQueue", queue)
    await state(cluster, "idle", "Closed")
    await cluster.command("OpenQueue", opened)
    await state(cluster, "idle", "Open")
    root = cluster.queues.get(names.ROOT_QUEUE)
    assert root is not None and root.spec.parent == ""
    await cluster.command("CloseQueue", root)
    await cluster.command("CloseQueue", queue)
    await state(cluster, "idle", "Closed")
    assert cluster.queues.get(names.ROOT_QUEUE).status.state == "Open"  # type: ignore[union-attr]


@pytest.mark.scenario("controllers", 84)
async def test_children_follow_their_parent(cluster: Cluster) -> None:
    parent = await cluster.queue("queue1", parent="root")
    child = await cluster.queue("queue11", parent="queue1")
    await state(cluster, "queue11", "Open")
    await cluster.command("CloseQueue", parent)
    await state(cluster, "queue1", "Closed")
    closed = await state(cluster, "queue11", "Closed")
    assert closed.metadata.annotations[names.CLOSED_BY_PARENT] == "true"
    await cluster.command("OpenQueue", child)
    await cluster.command("OpenQueue", parent)
    await state(cluster, "queue1", "Open")
    await state(cluster, "queue11", "Open")
    await cluster.until(
        lambda: (
            cluster.queues.get("queue11").metadata.annotations[names.CLOSED_BY_PARENT] == "false"
        )  # type: ignore[union-attr]
    )


class Slow(Client):
    """A server that takes its time to note something on an object."""

    async def patch(self, kind: Any, name: str, patch: Any, *where: Any, **how: Any) -> Any:
        if "metadata" in patch:
            await asyncio.sleep(0.3)
        return await super().patch(kind, name, patch, *where, **how)


async def test_a_child_does_not_open_again_while_its_parent_closes(
    shared_apiserver: ApiServerProcess,
) -> None:
    """What a parent closes is closed after it: before, a child would find a parent that is open,
    and itself closed by it."""
    async with running(shared_apiserver, speak=Slow) as cluster:
        seen: dict[str, list[str]] = {}

        def note(old: scheduling.Queue | None, new: scheduling.Queue | None) -> None:
            if (
                new is not None
                and new.status.state
                and (old is None or old.status.state != new.status.state)
            ):
                seen.setdefault(new.metadata.name, []).append(new.status.state)

        family = ("above", "left", "middle", "right")
        for name in family:
            await cluster.queue(name, parent="root" if name == "above" else "above")
        for name in family:
            await state(cluster, name, "Open")
        cluster.queues.on_change(note)
        parent = cluster.queues.get("above")
        assert parent is not None
        for action, wanted in (("CloseQueue", "Closed"), ("OpenQueue", "Open")):
            await cluster.command(action, parent)
            for name in family:
                await state(cluster, name, wanted)
        assert {name: seen[name] for name in family} == {
            name: ["Open", "Closed", "Open"] for name in family
        }


@pytest.mark.scenario("controllers", 90)
async def test_a_child_that_was_closed_by_hand_stays_closed(cluster: Cluster) -> None:
    parent = await cluster.queue("p")
    child = await cluster.queue("c", parent="p")
    await state(cluster, "c", "Open")
    await cluster.command("CloseQueue", child)
    await state(cluster, "c", "Closed")
    await cluster.command("CloseQueue", parent)
    await state(cluster, "p", "Closed")
    await cluster.command("OpenQueue", parent)
    await state(cluster, "p", "Open")
    other = await cluster.queue("other", parent="p")
    await state(cluster, other.metadata.name, "Open")
    assert cluster.queues.get("c").status.state == "Closed"  # type: ignore[union-attr]


@pytest.mark.scenario("controllers", 91)
async def test_a_new_child_of_a_closed_queue_is_closed(cluster: Cluster) -> None:
    parent = await cluster.queue("shut")
    await state(cluster, "shut", "Open")
    await cluster.command("CloseQueue", parent)
    await state(cluster, "shut", "Closed")
    await cluster.queue("late", parent="shut")
    closed = await state(cluster, "late", "Closed")
    assert closed.metadata.annotations[names.CLOSED_BY_PARENT] == "true"
    await cluster.command("OpenQueue", parent)
    await state(cluster, "late", "Open")


@pytest.mark.scenario("controllers", 88)
async def test_a_queue_with_work_is_closing_until_the_work_is_gone(cluster: Cluster) -> None:
    queue = await cluster.queue("busy")
    await state(cluster, "busy", "Open")
    await group(cluster, "work", "busy")
    await cluster.command("CloseQueue", queue)
    await state(cluster, "busy", "Closing")
    await cluster.client.delete(scheduling.POD_GROUP, "work", "default")
    await state(cluster, "busy", "Closed")


async def test_a_queue_is_closing_while_pods_without_a_group_run_in_it(cluster: Cluster) -> None:
    parent = await cluster.queue("hall")
    await cluster.queue("cabin", parent="hall")
    await state(cluster, "cabin", "Open")

    async def allocated(name: str, pods: str) -> None:
        status = {"status": {"allocated": {"pods": pods}}}
        await cluster.client.patch(scheduling.QUEUE, name, status, subresource="status")

    for name in ("hall", "cabin"):
        await allocated(name, "1")
    await cluster.command("CloseQueue", parent)
    await state(cluster, "hall", "Closed")  # the pod is its child's
    await state(cluster, "cabin", "Closing")
    for name in ("hall", "cabin"):
        await allocated(name, "0")
    await state(cluster, "cabin", "Closed")


async def test_the_tree_of_the_user_page_closes_and_opens_as_one(cluster: Cluster) -> None:
    example = Path(__file__).parents[2] / "examples" / "queues" / "tree.yaml"
    for manifest in yaml.safe_load_all(example.read_text()):
        await cluster.client.create(scheduling.QUEUE.untyped, manifest)
    for name in ("research", "training", "notebooks", "production"):
        await state(cluster, name, "Open")
    research = cluster.queues.get("research")
    assert research is not None
    await cluster.command("CloseQueue", research)
    for name in ("research", "training", "notebooks"):
        await state(cluster, name, "Closed")
    await state(cluster, "production", "Open")
    await cluster.command("OpenQueue", research)
    for name in ("research", "training", "notebooks"):
        await state(cluster, name, "Open")
