"""The scheduler as a process beside an API server: what is created, bound, written and told.

Each test has a scheduler name, a pool of nodes and a queue of its own, so that all share one
server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.api import crds, scheduling, shard, topology
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.text.times import instant, stamp
from hekla.engine.model.state import State
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import AlreadyExists, NotFound
from hekla.scheduler.daemon import make_queues
from hekla.scheduler.informers import Informers, NodeSelector, sources
from tests.scheduler.conftest import of_scheduler

NUMBERS = itertools.count()
HOME = "volcano-system"
POLICY = """\
actions: "enqueue, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
  - name: nodeorder
  - name: network-topology-aware
"""


def core_scenario(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


class Site:
    """A place of its own on the server, and a scheduler for it."""

    def __init__(self, client: Client, kubeconfig: Path, directory: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.name = f"live{next(NUMBERS)}"
        self.policy = directory / "policy.yaml"
        self.policy.write_text(POLICY)
        self.log = directory / "scheduler.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "hekla",
            "scheduler",
            f"--kubeconfig={of_scheduler(self.kubeconfig)}",
            "--leader-elect=false",
            f"--scheduler-name={self.name}",
            f"--node-selector=pool:{self.name}",
            f"--scheduler-conf={self.policy}",
            "--schedule-period=200ms",
            *flags,
        ]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)

    async def node(self, name: str, cpu: str = "4", pool: str = "") -> str:
        size = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        name = f"{self.name}-{name}"
        await self.client.create(
            core.NODE.untyped,
            {
                "metadata": {
                    "name": name,
                    "labels": {"pool": pool or self.name, "kubernetes.io/hostname": name},
                },
                "status": {
                    "allocatable": size,
                    "capacity": size,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
                },
            },
        )
        return name

    async def job(
        self,
        name: str,
        pods: int,
        minimum: int | None = None,
        *,
        cpu: str = "1",
        priority: str = "",
        user: str = "",
        least: dict[str, str] | None = None,
        **pod: Any,
    ) -> None:
        meta = {
            "name": f"{self.name}-{name}",
            "annotations": {"hekla.io/user": user} if user else {},
        }
        spec = {
            "minMember": pods if minimum is None else minimum,
            "queue": "default",
            "priorityClassName": priority,
            **({"minResources": least} if least else {}),
        }
        await self.client.create(
            scheduling.POD_GROUP.untyped,
            {"metadata": meta, "spec": spec},
            "default",
        )
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        for number in range(pods):
            await self.client.create(
                core.POD.untyped,
                {
                    "metadata": {
                        "name": f"{self.name}-{name}-{number}",
                        "annotations": {"scheduling.k8s.io/group-name": f"{self.name}-{name}"},
                    },
                    "spec": {
                        "schedulerName": self.name,
                        "containers": [container],
                        "terminationGracePeriodSeconds": 0,
                        "priorityClassName": priority or None,
                        **pod,
                    },
                },
                "default",
            )

    async def pod(self, name: str) -> dict[str, Any]:
        return await self.client.get(core.POD.untyped, f"{self.name}-{name}", "default")

    async def bound(self) -> dict[str, str]:
        pods = (await self.client.list(core.POD.untyped, "default")).items
        return {
            one["metadata"]["name"].removeprefix(self.name + "-"): one["spec"][
                "nodeName"
            ].removeprefix(self.name + "-")
            for one in pods
            if one["spec"].get("nodeName") and one["spec"]["schedulerName"] == self.name
        }

    async def waits_for(self, name: str) -> str:
        """What the condition of a job's PodGroup says it waits for."""
        group = await self.client.get(
            scheduling.POD_GROUP.untyped, f"{self.name}-{name}", "default"
        )
        conditions = (group.get("status") or {}).get("conditions") or []
        said = [one["message"] for one in conditions if one["type"] == "Waiting"]
        return "".join(said)

    async def told(self, about: str) -> list[tuple[str, str]]:
        """Reason and message of the events about an object of this site."""
        events = [*(await self.client.list(core.EVENT.untyped, "default")).items]
        return [
            (one["reason"], one["message"])
            for one in events
            if one.get("involvedObject", {}).get("name") == f"{self.name}-{about}"
        ]

    async def until(
        self, true: Callable[[], Awaitable[bool]], what: str, seconds: float = 60
    ) -> None:
        deadline = time.monotonic() + seconds
        while not await true():
            assert time.monotonic() < deadline, (
                f"{what}; the scheduler says:\n{self.log.read_text()[-3000:]}"
            )
            await asyncio.sleep(0.1)

    async def until_bound(self, count: int) -> dict[str, str]:
        async def enough() -> bool:
            return len(await self.bound()) >= count

        await self.until(enough, f"{count} pods are bound")
        return await self.bound()


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    async with Client(config.load(str(kubeconfig))) as made:
        for definition in crds.all():
            try:
                await made.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
            except AlreadyExists:
                break
        for kind in (scheduling.QUEUE, scheduling.POD_GROUP, topology.HYPER_NODE, shard.NODE_SHARD):
            async with asyncio.timeout(60):
                while True:
                    try:
                        await made.list(kind.untyped, limit=1)
                        break
                    except NotFound:
                        await asyncio.sleep(0.1)
        yield made


@pytest.fixture
async def site(client: Client, kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(client, kubeconfig, tmp_path)
    try:
        yield made
    finally:
        made.stop()
        for pod in (await client.list(core.POD.untyped, "default")).items:
            if pod["spec"]["schedulerName"] == made.name:
                await client.delete(core.POD, pod["metadata"]["name"], "default", grace=0)


async def test_a_gang_is_bound_and_says_so(site: Site) -> None:
    await site.node("n1")
    site.start()
    await site.job("gang", 3)
    assert set((await site.until_bound(3)).values()) == {"n1"}

    async def ready() -> bool:
        group = await site.client.get(scheduling.POD_GROUP.untyped, f"{site.name}-gang", "default")
        return bool((group.get("status") or {}).get("phase") == "Running")

    async def told() -> bool:
        return (
            "Scheduled",
            f"Successfully assigned default/{site.name}-gang-0 to {site.name}-n1",
        ) in await site.told("gang-0")

    await site.until(ready, "the group is Running")
    await site.until(told, "an event says where the pod went")


async def test_who_does_not_fit_is_told_the_same_everywhere(site: Site) -> None:
    await site.node("n1", cpu="2")
    site.start()
    await site.job("big", 3)

    async def said() -> bool:
        conditions = ((await site.pod("big-2"))["status"]).get("conditions") or []
        return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)

    await site.until(said, "the pod carries a condition")
    words = f"{site.name}-big needs 3 pods of cpu=1; 2 fit."

    async def on_the_group() -> bool:
        group = await site.client.get(scheduling.POD_GROUP.untyped, f"{site.name}-big", "default")
        conditions = (group.get("status") or {}).get("conditions") or []
        return any(
            one["type"] == "Waiting" and one["message"].startswith(words) for one in conditions
        )

    async def told() -> bool:
        return any(
            reason == "Waiting" and message.startswith(words)
            for reason, message in await site.told("big")
        )

    await site.until(on_the_group, "the group says why it waits")
    await site.until(told, "an event has the same words")
    assert await site.bound() == {}


async def test_a_lesser_pod_gives_way(site: Site) -> None:
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": f"{site.name}-{name}"}, "value": value}
        await site.client.create(core_priority(), body)
    await site.node("n1", cpu="1")
    site.start()
    await site.job("lesser", 1, 0, priority=f"{site.name}-low")
    await site.until_bound(1)
    await site.client.patch(
        core.POD,
        f"{site.name}-lesser-0",
        {"status": {"phase": "Running"}},
        "default",
        subresource="status",
    )
    await site.job("urgent", 1, priority=f"{site.name}-high")

    async def taken() -> bool:
        return "urgent-0" in await site.bound()

    async def told() -> bool:
        return "Evict" in {reason for reason, _ in await site.told("lesser-0")}

    await site.until(taken, "the urgent pod has the place")
    await site.until(told, "an event says who was evicted")
    with pytest.raises(NotFound):
        await site.pod("lesser-0")


async def test_a_pod_is_told_before_it_gives_way_also_across_a_restart(site: Site) -> None:
    """A minimum runtime keeps it, a notice follows, the scheduler is killed, and the pod leaves at
    its time all the same."""
    arguments = "{minRuntime: 2s, notice: 6s}"
    site.policy.write_text(f"{POLICY}  - name: calm-eviction\n    arguments: {arguments}\n")
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": f"{site.name}-{name}"}, "value": value}
        await site.client.create(core_priority(), body)
    await site.node("n1", cpu="1")
    site.start()
    await site.job("lesser", 1, 0, priority=f"{site.name}-low")
    await site.until_bound(1)
    started = {"phase": "Running", "startTime": stamp(time.time())}
    await site.client.patch(
        core.POD, f"{site.name}-lesser-0", {"status": started}, "default", subresource="status"
    )
    await site.job("urgent", 1, priority=f"{site.name}-high")
    marks: dict[str, str] = {}

    async def told() -> bool:
        marks.update((await site.pod("lesser-0"))["metadata"].get("annotations") or {})
        events = {reason for reason, _ in await site.told("lesser-0")}
        return "hekla.io/evict-at" in marks and "EvictionNotice" in events

    await site.until(told, "the pod knows when it will be evicted")
    at = instant(marks["hekla.io/evict-at"])
    assert at >= instant(started["startTime"]) + 2 + 6
    assert marks["hekla.io/evict-for"] == f"default/{site.name}-urgent"
    site.stop(signal.SIGKILL)
    site.start()

    async def taken() -> bool:
        return "urgent-0" in await site.bound()

    await site.until(taken, "the urgent pod has the place")
    assert time.time() >= at
    assert "Evict" in {reason for reason, _ in await site.told("lesser-0")}


async def test_who_has_just_saved_its_work_gives_way_first(site: Site) -> None:
    """Two pods of one rank have run for an hour; the younger one has no checkpoint, so it would lose
    more, though otherwise it is the younger that goes."""
    site.policy.write_text(f"{POLICY}  - name: calm-eviction\n")
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": f"{site.name}-{name}"}, "value": value}
        await site.client.create(core_priority(), body)
    await site.node("n1", cpu="2")
    site.start()
    for name in ("saved", "unsaved"):
        await site.job(name, 1, 0, priority=f"{site.name}-low")
        await asyncio.sleep(1.1)  # times of objects are whole seconds
    await site.until_bound(2)
    for name, hours in (("saved", 2), ("unsaved", 1)):
        began = stamp(time.time() - 3600 * hours)
        marks = {"hekla.io/last-checkpoint": stamp(time.time())} if name == "saved" else {}
        pod = f"{site.name}-{name}-0"
        await site.client.patch(
            core.POD, pod, {"status": {"phase": "Running", "startTime": began}}, "default", subresource="status"
        )  # fmt: skip
        await site.client.patch(core.POD, pod, {"metadata": {"annotations": marks}}, "default")
    await site.job("urgent", 1, priority=f"{site.name}-high")

    async def taken() -> bool:
        return "urgent-0" in await site.bound()

    await site.until(taken, "the urgent pod has a place")
    assert set(await site.bound()) == {"unsaved-0", "urgent-0"}


async def test_a_restart_keeps_what_was_used(site: Site) -> None:
    """With the rights that the chart gives: written while it runs, read by the next process."""
    arguments = (
        "{fairshare.resourceKey: cpu, fairshare.identity: user, "
        "fairshare.persistState: true, fairshare.flushIntervalSeconds: 1}"
    )
    site.policy.write_text(f"{POLICY}  - name: fairshare\n    arguments: {arguments}\n")
    await make_home(site)
    await site.node("n1")
    site.start()
    await site.job("train", 1, user=site.name)
    await site.until_bound(1)

    async def used() -> float:
        tree = await remembered(site, "fairshare-usage-state")
        return float(tree.get("queues", {}).get("default", {}).get(site.name, 0.0))

    async def counted() -> bool:
        return await used() > 3000

    await site.until(counted, "three seconds of a cpu are written down")
    site.stop(signal.SIGKILL)
    before = await used()
    await site.client.delete(core.POD, f"{site.name}-train-0", "default", grace=0)
    site.start()
    await asyncio.sleep(3)
    site.stop()
    after = await used()
    assert 0.99 * before < after <= before + 1, "nothing runs any more, and nothing is forgotten"


async def test_a_budget_that_is_used_up_stays_so_over_a_restart(site: Site) -> None:
    """A user may have two jobs submitted and three and a half seconds of a cpu a year."""
    budget = '{resources: {cpu: 0.001h}, renew: "@yearly"}'
    arguments = f"{{submitted: 2, budget: {budget}, usage: {{seconds: 1}}}}"
    site.policy.write_text(f"{POLICY}  - name: party-limits\n    arguments: {arguments}\n")
    await make_home(site)
    await site.node("n1", cpu="16")
    site.start()
    await site.job("first", 1, cpu="12", user=site.name)
    await site.until_bound(1)

    async def used_up() -> bool:
        tree = await remembered(site, "party-limits-usage")
        return bool(tree.get("used", {}).get(site.name, {}).get("cpu", 0.0) > 3600)

    await site.until(used_up, "what was used is written down")
    await site.job("next", 1, user=site.name)
    words = f"user {site.name} has used "

    async def refused() -> bool:
        said = await site.waits_for("next")
        return words in said and " of 0.001 cpu hours; the budget is renewed at " in said

    await site.until(refused, "the group says which budget is used up, and until when")
    await site.job("third", 1, user=site.name, least={"cpu": "1"})

    async def not_let_in() -> bool:
        said = await site.waits_for("third")
        return f"user {site.name} has 2 of 2 jobs submitted" in said

    await site.until(not_let_in, "the group says whose limit keeps it out")
    site.stop(signal.SIGKILL)
    await site.client.delete(core.POD, f"{site.name}-first-0", "default", grace=0)
    site.start()
    await site.job("other", 1, user=f"{site.name}-other")

    async def served() -> bool:
        return "other-0" in await site.bound()

    await site.until(served, "somebody else's job starts")
    assert set(await site.bound()) == {"other-0"}
    assert words in await site.waits_for("next")


async def make_home(site: Site) -> None:
    """The namespace in which the chart has the scheduler, with its rights there."""
    try:
        await site.client.create(core.NAMESPACE.untyped, {"metadata": {"name": HOME}})
    except AlreadyExists:
        pass


async def remembered(site: Site, name: str) -> dict[str, Any]:
    """What the scheduler has written down in a ConfigMap."""
    try:
        found = await site.client.get(core.CONFIG_MAP.untyped, name, HOME)
    except NotFound:
        return {}
    return dict(json.loads(found["data"]["state.json"]))


def core_priority() -> Any:
    from hekla.api.kubernetes import priority

    return priority.PRIORITY_CLASS.untyped


@core_scenario(153)
def test_which_nodes_a_selector_admits() -> None:
    selector = NodeSelector.parse(["l1:v1", "malformed", " l2 : v2 ", "l3:"])

    def admits(**labels: str) -> bool:
        return selector.admits({"metadata": {"name": "n", "labels": labels}})

    assert (admits(l1="v1"), admits(l2="v2", l1="x"), admits(l1="v2"), admits(l3=""), admits()) == (
        True,
        True,
        False,
        False,
        False,
    )


@core_scenario(153)
async def test_nodes_of_other_pools_are_not_used(site: Site) -> None:
    await site.node("elsewhere", cpu="64", pool="somewhere")
    await site.node("n1", cpu="1")
    site.start()
    await site.job("pair", 2, 1)
    assert await site.until_bound(1) == {"pair-0": "n1"}
    await asyncio.sleep(0.5)
    assert len(await site.bound()) == 1


@core_scenario(154)
@pytest.mark.parametrize("there", [[], ["root"], ["default"], ["root", "default"]])
async def test_queues_are_made_where_they_are_missing(client: Client, there: list[str]) -> None:
    own = f"made{next(NUMBERS)}"
    names = {"root": "root", "default": own}
    for name in there:
        try:
            await client.create(
                scheduling.QUEUE.untyped, {"metadata": {"name": names[name]}, "spec": {"weight": 7}}
            )
        except AlreadyExists:
            continue
    await make_queues(client, own)
    root = await client.get(scheduling.QUEUE.untyped, "root")
    default = await client.get(scheduling.QUEUE.untyped, own)
    assert default["spec"]["weight"] == (7 if "default" in there else 1)
    assert "default" in there or default["spec"]["reclaimable"] is True
    assert root["spec"]["weight"] in (1, 7)  # one server for all cases: whoever made it first


@core_scenario(155)
async def test_the_first_cycle_waits_for_what_it_needs_and_no_longer(client: Client) -> None:
    state = State()
    feed = Informers(client, state, sources(state))
    await asyncio.wait_for(feed.start(), 60)
    assert all(cache.has_synced for cache in feed.needed)
    for cache in feed.caches:
        await cache.stop()


@core_scenario(155)
async def test_a_stop_ends_the_waiting() -> None:
    """Nobody answers there; whoever waits for the first lists can still be stopped at once."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with Client(
            config.load(master=f"http://127.0.0.1:{silent.getsockname()[1]}", environment={})
        ) as client:
            feed = Informers(client, State(), sources(State()))
            waiting = asyncio.create_task(feed.start())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(waiting, 60)
            for cache in feed.caches:
                await cache.stop()


@core_scenario(158)
async def test_a_shard_is_obeyed_and_answered(site: Site) -> None:
    inside = await site.node("inside", cpu="1")
    await site.node("outside", cpu="8")
    await site.client.create(
        shard.NODE_SHARD.untyped,
        {"metadata": {"name": site.name}, "spec": {"nodesDesired": [inside]}},
    )
    site.start("--scheduler-sharding-mode=hard", f"--scheduler-sharding-name={site.name}")
    await site.job("pair", 2, 1)
    assert set((await site.until_bound(1)).values()) == {"inside"}

    async def answered() -> bool:
        status = (await site.client.get(shard.NODE_SHARD.untyped, site.name)).get("status") or {}
        return bool(status.get("nodesInUse") == [inside])

    await site.until(answered, "the shard says which nodes are in use")
    assert len(await site.bound()) == 1


async def test_a_policy_that_is_wrong_leaves_the_last_one_in_force(site: Site) -> None:
    await site.node("n1")
    site.start()
    await site.job("first", 1)
    await site.until_bound(1)
    site.policy.write_text(POLICY.replace("name: gang", "name: gnag"))

    async def refused() -> bool:
        text = site.log.read_text()
        return (
            'plugin "gnag" does not exist; did you mean "gang"?' in text
            and "The policy in force is still" in text
        )

    await site.until(refused, "the mistake is named")
    await site.job("second", 1)
    assert len(await site.until_bound(2)) == 2


async def test_a_circle_of_domains_is_told_on_a_domain(site: Site) -> None:
    for name, tier, below in (("a", 1, "b"), ("b", 2, "a")):
        member = {"type": "HyperNode", "selector": {"exactMatch": {"name": f"{site.name}-{below}"}}}
        body = {
            "metadata": {"name": f"{site.name}-{name}"},
            "spec": {"tier": tier, "members": [member]},
        }
        await site.client.create(topology.HYPER_NODE.untyped, body)
    await site.node("n1")
    site.start()
    try:
        await site.job("plain", 1)
        await site.until_bound(1)

        async def told() -> bool:
            return "Rejected" in {reason for name in "ab" for reason, _ in await site.told(name)}

        await site.until(told, "one of the two is told")
    finally:
        for name in "ab":
            await site.client.delete(topology.HYPER_NODE, f"{site.name}-{name}")
