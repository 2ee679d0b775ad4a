"""A day on a kube-apiserver that others share: what Hekla's daemons ask of it at rest, and how long
the requests of somebody else take while jobs come and go.

The server is that of `tests/kubernetes`, with 5,000 running pods on 100 fake nodes.  The daemons
elect leaders, as they do unless told otherwise.  The bystander lists 500 pods and gets one, ten
times a second in all: by itself, then beside 20 jobs a second that take ten seconds each and are
removed half a minute later, and then beside as many pods that a client which costs nothing creates,
binds and deletes itself, which is what any scheduler has to ask for.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.end_to_end import Pod, Pods, create_all, job, plain_pod
from benchmarks.figure import Aim, Figure
from benchmarks.kube_apiserver.jobs import NODES, each, ready
from benchmarks.kube_apiserver.reference import settle
from hekla.api import batch
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

FIGURES = ("live.idle", "live.day.list", "live.day.get")
AIMS = [
    Aim(
        name,
        "<= 2",
        "x",
        7,
        f"p99 of somebody else's {what} while 20 jobs a second come and go for ten minutes, 5,000 pods "
        "running: of the same beside as many pods that a client creates, binds and deletes itself",
    )
    for name, what in (("live.day.list", "lists of 500 pods"), ("live.day.get", "gets of a pod"))
]
GANGS, TASKS = 5, 1000
REST, IDLE = 30.0, 60.0
"""Seconds until nothing more comes of the gangs' start, and for which requests are counted then."""
RATE, WORK, KEPT = 20, 10, 30
"""Jobs a second; seconds that each works, and for which it is kept then."""
DAY = 600.0
ALONE = 120.0
"""Seconds of the bystander without Hekla's daemons, with and without others' pods."""
EVERY = 0.2
"""Seconds between two looks of the bystander, each a list and a get."""


class Seconds(NamedTuple):
    """How long the bystander's requests took."""

    lists: list[float]
    gets: list[float]

    def __str__(self) -> str:
        return ", ".join(
            f"{what} {1000 * statistics.median(taken):.0f} and {1000 * p99(taken):.0f} ms"
            for what, taken in zip(("list", "get"), self, strict=True)
        )


def p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[-1]


def measure(names: set[str]) -> Iterator[Figure]:
    for figures in each(["live.day"] if names else [], lambda _: measured(names)):
        yield from (figure for figure in figures if figure.name in names)


def measured(names: set[str]) -> list[Figure]:
    """All on one server, one after another."""
    from tests.kubernetes.reference import reference

    figures = []
    with reference(durable=True, audit=True) as server:
        asyncio.run(settle(server.kubeconfig))
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        server.add_scheduler(elected=True)
        server.add_webhooks()
        asyncio.run(ready(server.kubeconfig))
        asyncio.run(fill(server))
        time.sleep(REST)
        if "live.idle" in names:
            figures.append(idle(server))
        if names - {"live.idle"}:
            figures += asyncio.run(day(server))
    return figures


async def fill(server: Reference) -> None:
    """The pods that run all the time."""
    async with client_of(server) as client, Pods(client) as pods:
        await create_all(client, "running", GANGS, TASKS)
        await pods.until_running(GANGS * TASKS, 600)


def client_of(server: Reference) -> Client:
    return Client(config.load(str(server.kubeconfig)), pool=32)


def idle(server: Reference) -> Figure:
    """What the daemons' accounts ask for, from the server's audit log."""
    before = len(server.audit_log.read_text().splitlines())
    time.sleep(IDLE)
    asked: Counter[str] = Counter()
    for line in server.audit_log.read_text().splitlines()[before:]:
        event = json.loads(line)
        who = event["user"]["username"].rpartition(":")[2].removeprefix("volcano-")
        asked[f"{who} {event['verb']} {event['objectRef']['resource']}"] += 1
    listed = ", ".join(f"{what} {count}" for what, count in asked.most_common())
    conditions = f"{GANGS * TASKS} running pods, leaders elected; {listed}"
    return Figure("live.idle", sum(asked.values()) * 60 / IDLE, "requests/min", conditions)


async def day(server: Reference) -> list[Figure]:
    """The bystander by itself, beside Hekla, and beside the client that costs nothing."""
    async with client_of(server) as client, client_of(server) as others:
        quiet = await beside(others, ALONE)
        async with Waits(client) as waits:
            cpu = server.processes.cpu_seconds()["kube-apiserver"]
            shared = await beside(others, DAY, by_the_second(client, DAY, create_job))
            cpu = server.processes.cpu_seconds()["kube-apiserver"] - cpu
        server.processes.end("scheduler", "controllers", "admission")
        await withdraw_webhooks(client)
        necessary = await beside(others, ALONE, by_the_second(client, ALONE, run_pod))
    conditions = (
        f"median and p99: alone {quiet}; beside {RATE} jobs/s for {DAY:.0f} s {shared}; "
        f"beside as many pods without Hekla {necessary}; "
        f"{cpu / DAY:.2f} processors of the kube-apiserver; {waits}"
    )
    return [
        Figure(name, p99(ours) / p99(theirs), "x", conditions)
        for name, ours, theirs in zip(FIGURES[1:], shared, necessary, strict=True)
    ]


class Waits:
    """How long pods wait, from their job's create to their bind, as a watch shows it."""

    def __init__(self, client: Client) -> None:
        self.pods = Pods(client)
        self.pods.cache.on_change(self.note)
        self.seconds: list[float] = []

    def note(self, old: Pod | None, new: Pod | None) -> None:
        bound_now = new is not None and new.spec.node_name and not (old and old.spec.node_name)
        if new is not None and bound_now and (began := _created.pop(job_of(new), None)):
            self.seconds.append(time.perf_counter() - began)

    async def __aenter__(self) -> Waits:
        await self.pods.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pods.cache.stop()

    def __str__(self) -> str:
        return (
            f"{len(self.seconds)} pods bound {1000 * statistics.median(self.seconds):.0f} ms after their "
            f"job's create, p99 {1000 * p99(self.seconds):.0f} ms"
        )


_created: dict[str, float] = {}
"""Job -> when its create was sent."""


def job_of(pod: Pod) -> str:
    """`day-7-work-0` -> `day-7`."""
    return pod.metadata.name.removesuffix("-work-0")


async def beside(
    client: Client, seconds: float, load: Coroutine[Any, Any, object] | None = None
) -> Seconds:
    """What the bystander sees for so many seconds beside a load, which may take longer to end."""
    going_on = asyncio.ensure_future(load) if load is not None else None
    until = time.perf_counter() + seconds
    taken = Seconds([], [])
    one = await client.request("GET", core.POD.path("default"), {"limit": "1"})
    name = json.loads(one.body)["items"][0]["metadata"]["name"]
    while time.perf_counter() < until:
        next_look = time.perf_counter() + EVERY
        for waits, request in (
            (taken.lists, client.request("GET", core.POD.path("default"), {"limit": "500"})),
            (taken.gets, client.request("GET", core.POD.path("default", name))),
        ):
            began = time.perf_counter()
            await request
            waits.append(time.perf_counter() - began)
        await asyncio.sleep(max(next_look - time.perf_counter(), 0.0))
    if going_on is not None:
        await going_on
    return taken


async def by_the_second(
    client: Client, seconds: float, start: Callable[[Client, str], Coroutine[Any, Any, None]]
) -> None:
    """Starts `RATE` of something a second."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as started:
        for number in range(int(RATE * seconds)):
            await asyncio.sleep(max(began + number / RATE - time.perf_counter(), 0.0))
            started.create_task(start(client, f"day-{number}"))


async def create_job(client: Client, name: str) -> None:
    tree = job(name, 1, 1)
    tree["spec"]["ttlSecondsAfterFinished"] = KEPT
    working(tree["spec"]["tasks"][0]["template"]["spec"])
    _created[name] = time.perf_counter()
    await client.create(batch.JOB, tree, "default")


def working(spec: dict[str, Any]) -> None:
    """Lets a pod end after its time."""
    spec["containers"][0]["command"] = ["sleep", str(WORK)]


async def run_pod(client: Client, name: str) -> None:
    """A pod's whole life, as any scheduler and whoever removes it would have it."""
    tree = plain_pod(name)
    tree["spec"]["schedulerName"] = "nobody"
    working(tree["spec"])
    await client.create(core.POD.untyped, tree, "default")
    node = f"fake-node-{int(name.rpartition('-')[2]) % NODES:04d}"
    binding = {
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.post(core.POD, name, "default", "binding", binding)
    await asyncio.sleep(WORK + KEPT)
    with suppress(NotFound):
        await client.delete(core.POD, name, "default")


async def withdraw_webhooks(client: Client) -> None:
    """Nobody answers them any more."""
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        await client.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/{plural}")
