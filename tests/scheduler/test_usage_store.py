"""What plugins count of use over time is written down rarely, and read when the scheduler starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hekla.engine.plugins.fairness.fairshare import SAVED
from hekla.engine.world import World, policy
from hekla.kube.errors import ApiError, NotFound
from hekla.scheduler.memory.kept_usage import KEPT
from hekla.scheduler.memory.usage_store import KEY, UsageStore

HOME = "kube-system"
"""The namespace of the scheduler's lease."""


class Server:
    """Keeps ConfigMaps, and counts writes."""

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.broken = False

    async def get(self, kind: Any, name: str, namespace: str) -> dict[str, Any]:
        self._answer(namespace, name)
        return self.maps[f"{namespace}/{name}"]

    async def patch(self, kind: Any, name: str, patch: dict[str, Any], namespace: str) -> None:
        self._answer(namespace, name)
        self.writes += 1
        self.maps[f"{namespace}/{name}"]["data"] |= patch["data"]

    async def create(self, kind: Any, body: dict[str, Any], namespace: str) -> None:
        self.writes += 1
        self.maps[f"{namespace}/{body['metadata']['name']}"] = body

    def _answer(self, namespace: str, name: str) -> None:
        if self.broken:
            raise ApiError(503, "ServiceUnavailable", "not now")
        if f"{namespace}/{name}" not in self.maps:
            raise NotFound(404, "NotFound", f"configmaps {name} not found")


def scene(server: Server, **arguments: Any) -> tuple[World, UsageStore]:
    given = {f"fairshare.{name}": value for name, value in arguments.items()}
    given["fairshare.resourceKey"] = "cpu"
    plugins: list[Any] = ["gang", {"name": "fairshare", "arguments": given}, "predicates"]
    world = World(policy(plugins=plugins, actions="enqueue, allocate"))
    world.nodes("n1", cpu=4)
    return world, UsageStore(KEPT[0], server, world.state, lambda: world.policy, HOME)  # type: ignore[arg-type]


def budgets(server: Server, **usage: Any) -> tuple[World, UsageStore]:
    arguments = {"budget": {"resources": {"cpu": "9h"}, "renew": "@monthly"}, "usage": usage}
    plugins: list[Any] = ["gang", {"name": "party-limits", "arguments": arguments}, "predicates"]
    world = World(policy(plugins=plugins, actions="enqueue, allocate"))
    world.nodes("n1", cpu=4)
    return world, UsageStore(KEPT[1], server, world.state, lambda: world.policy, HOME)  # type: ignore[arg-type]


def works(world: World, seconds: float) -> None:
    world.job("train", cpu=1)
    world.run()
    world.settle()
    world.now += seconds
    world.run()


async def written_once(server: Server, world: World, store: UsageStore) -> None:
    """Nothing before there is something to write, then what has been used, and that once."""
    await store.load()
    world.run()
    await store.save()
    assert not server.writes, "there is nothing to write yet"
    works(world, 3600)
    await store.save()
    await store.save()
    assert server.writes == 1, "only what has changed"


async def test_a_config_map_in_volcanos_format() -> None:
    server = Server()
    world, store = scene(server, persistState="true")
    await written_once(server, world, store)
    made = server.maps["kube-system/fairshare-usage-state"]
    assert made["metadata"]["labels"] == {"app": "volcano-scheduler", "component": "fairshare"}
    tree = json.loads(made["data"][KEY])
    assert set(tree) == {"lastCycle", "queues"}
    assert 3_000_000 < tree["queues"]["default"]["default"] < 3_600_000, "half of it after 4 hours"
    world.now += 60
    world.run()
    await store.save()
    assert server.writes == 2

    later, again = scene(server, persistState=True)
    later.now = world.now
    await again.load()
    later.run()
    usage = later.state.job_table.usage
    assert usage is not None
    assert usage.used["default"]["default"] > 3_000_000


async def test_a_policy_that_keeps_nothing() -> None:
    assert scene(Server())[1].wanted() is None


async def test_a_file_is_read_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    server = Server()
    world, store = scene(server, stateFile=str(path))
    await store.load()
    works(world, 60)
    await store.save()
    assert [one.name for one in tmp_path.iterdir()] == ["usage.json"]
    assert not server.writes
    later, again = scene(server, stateFile=str(path))
    await again.load()
    assert "usage" in later.state.others[SAVED]


async def test_what_cannot_be_read_or_written_harms_nobody(tmp_path: Path) -> None:
    server = Server()
    server.broken = True
    world, store = scene(server, persistState=True)
    await store.load()
    works(world, 60)
    await store.save()
    server.broken = False
    await store.save()
    assert server.writes == 1, "it is tried again"
    path = tmp_path / "usage.json"
    for text in ("no json", "[1]", ""):
        path.write_text(text)
        later, again = scene(server, stateFile=str(path))
        await again.load()
        works(later, 1)
    later, again = scene(server, stateFile=str(tmp_path / "nowhere" / "usage.json"))
    works(later, 1)
    await again.save()


async def test_budgets_are_kept_without_being_asked_to() -> None:
    server = Server()
    world, store = budgets(server)
    await written_once(server, world, store)
    made = server.maps["kube-system/party-limits-usage"]
    assert made["metadata"]["labels"] == {"app": "volcano-scheduler", "component": "party-limits"}
    assert json.loads(made["data"][KEY]) == {
        "lastCycle": "1970-01-12T14:46:40Z",
        "by": "user",
        "used": {"default": {"cpu": 3_600_000.0}},
        "budgets": {
            "default": {"resources": {"cpu": 32_400_000.0}, "renewed": "1970-02-01T00:00:00Z"}
        },
    }
    later, again = budgets(server)
    later.now = world.now + 60
    await again.load()
    later.run()
    spending = later.state.job_table.spending
    assert spending is not None
    assert spending.used == {"default": {"cpu": 3_600_000.0}}
    later.now += 30 * 24 * 3600
    later.run()
    await again.save()
    assert json.loads(made["data"][KEY])["used"] == {}, "the next month has begun"


async def test_budgets_in_a_file(tmp_path: Path) -> None:
    world, store = budgets(Server(), file=str(tmp_path / "usage.json"), seconds=5)
    place = store.wanted()
    assert place is not None and place.seconds == 5
    works(world, 60)
    await store.save()
    assert json.loads((tmp_path / "usage.json").read_text())["used"]["default"]["cpu"] == 60_000


async def test_limits_without_budgets_keep_nothing() -> None:
    plugins: list[Any] = [{"name": "party-limits", "arguments": {"running": 3}}]
    rules = policy(plugins=plugins)
    assert KEPT[1].place(rules) is None


async def test_a_policy_may_name_another_namespace() -> None:
    server = Server()
    world, store = budgets(server, namespace="batch")
    works(world, 60)
    await store.save()
    assert list(server.maps) == ["batch/party-limits-usage"]
