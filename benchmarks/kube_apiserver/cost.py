"""What a pod costs a real kube-apiserver with Hekla: its processor time from the first create to the
last bind, and the requests by what they are, counted by the server itself.

The servers are those of `tests/kubernetes`, a fresh one for each shape; nodes, controllers, webhooks
and scheduler are Hekla's.  What the kubelets ask (pods they run, their statuses, leases and nodes)
is left out of the requests and is in the processor time, as the clients' creates are in both.

Where VOLCANO names a directory with Volcano's programs (vc-scheduler, vc-controller-manager and
vc-webhook-manager), the same is measured of them on a server of their own, with the same kinds,
nodes and policy and without limits of their clients, and printed beside each figure.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.end_to_end import Pods, create_all
from benchmarks.figure import Figure
from benchmarks.kube_apiserver.jobs import NODES, SECONDS, each, ready, say
from benchmarks.kube_apiserver.reference import settle
from hekla.kube.client import Client
from hekla.kube.connection import config

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

SHAPES = {"gang": (1, 1000), "gangs": (20, 50), "pods": (1000, 0), "jobs": (1000, 1)}
"""Name -> (jobs, pods of each); no pods: as many plain pods without a job."""
FIGURES = tuple(f"live.{what}.{shape}" for shape in SHAPES for what in ("cpu", "requests"))
HEKLA = "Hekla"
COUNTED = re.compile(
    r'^apiserver_request_total\{.*resource="(?P<resource>\w+)".*subresource="(?P<subresource>\w*)".*'
    r'verb="(?P<verb>\w+)".*\} (?P<count>\S+)$',
    re.MULTILINE,
)
OF_KUBELETS = {
    ("GET", "pods"),
    ("PATCH", "pods/status"),
    ("DELETE", "pods"),
    ("PATCH", "nodes/status"),
}
QUIET = ("LIST", "WATCH", "APPLY")
"""Verbs that do not grow with the pods, or stand a second time as another one."""


class Cost(NamedTuple):
    """What a shape took."""

    shape: str
    programs: str
    """Whose."""
    pods: int
    seconds: float
    server_cpu: float
    """Seconds of the kube-apiserver's processors until the last bind."""
    own_cpu: float
    """The same of the daemons."""
    later_cpu: float
    """Seconds of the kube-apiserver's processors from the last bind until nothing was asked for two
    seconds: statuses, events and what else was put off."""
    early: Counter[tuple[str, str]]
    """(verb, resource) -> count, until the last bind."""
    requests: Counter[tuple[str, str]]
    """The same until nothing was asked for two seconds."""


def measure(names: set[str]) -> Iterator[Figure]:
    shapes = [shape for shape in SHAPES if any(name.endswith(f".{shape}") for name in names)]
    for costs in each(shapes, measured):
        for figure in figures(*costs):
            if figure.name in names:
                yield figure


def figures(cost: Cost, others: Cost | None = None) -> list[Figure]:
    """Processor time and requests a pod, those of the other programs in the conditions."""
    cpu, requests = told(cost)
    if others is not None:
        cpu, requests = (
            own._replace(conditions=f"{own.conditions}; {theirs.conditions}")
            for own, theirs in zip((cpu, requests), told(others), strict=True)
        )
    return [cpu, requests]


def told(cost: Cost) -> tuple[Figure, Figure]:
    pods = max(cost.pods, 1)
    listed, early = (
        ", ".join(
            f"{verb} {resource} {count / pods:.2f}"
            for (verb, resource), count in counted.most_common()
            if count >= pods / 100
        )
        for counted in (cost.requests, cost.early)
    )
    cpu, requests = 1000 * cost.server_cpu / pods, sum(cost.requests.values()) / pods
    conditions = (
        f"{cost.pods / cost.seconds:,.0f} pods/s; afterwards {1000 * cost.later_cpu / pods:.1f} ms a pod; "
        f"{cost.programs}'s daemons {1000 * cost.own_cpu / pods:.1f} ms a pod; "
        f"a pod until the last bind: {early}"
    )
    if cost.programs != HEKLA:
        conditions = f"{cost.programs} {cpu:.1f} ms a pod, {conditions}"
        listed = f"{cost.programs} {requests:.1f} requests a pod: {listed}"
    return (
        Figure(f"live.cpu.{cost.shape}", cpu, "ms/pod", conditions),
        Figure(f"live.requests.{cost.shape}", requests, "requests/pod", listed),
    )


def measured(shape: str) -> list[Cost]:
    """One shape on a server of its own, and by Volcano's programs, where they are, on another."""
    given = os.environ.get("VOLCANO")
    return [by(shape, None), *([by(shape, Path(given))] if given else [])]


def by(shape: str, volcano: Path | None) -> Cost:
    """One shape by Hekla's programs, or by those in a directory."""
    from tests.kubernetes.reference import reference

    with reference(durable=True) as server:
        asyncio.run(settle(server.kubeconfig))
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        if volcano is None:
            server.add_scheduler()
            server.add_webhooks()
        else:
            server.add_volcano(volcano)
        asyncio.run(ready(server.kubeconfig))
        whose = HEKLA if volcano is None else "Volcano"
        asyncio.run(run(server, whose, "warm", *((1, 200) if shape != "pods" else (200, 0))))
        return asyncio.run(run(server, whose, shape, *SHAPES[shape]))


async def run(server: Reference, programs: str, shape: str, jobs: int, tasks: int) -> Cost:
    """Creates everything at once, and waits for the last bind or the end of the time."""
    total = jobs * max(tasks, 1)
    async with Client(config.load(str(server.kubeconfig)), pool=32) as client, Pods(client) as pods:
        before = pods.bound
        counted = await requests(client)
        cpu = server.processes.cpu_seconds()
        began = time.perf_counter()
        await create_all(client, shape, jobs, tasks)
        try:
            await pods.until("bound", before + total, SECONDS)
        except TimeoutError as error:
            say(str(error))
        seconds = time.perf_counter() - began
        spent = {name: now - cpu[name] for name, now in server.processes.cpu_seconds().items()}
        quick = spent.pop("kube-apiserver")
        spent.pop("etcd")
        early = await requests(client) - counted
        since = await settled(client) - counted
        later = server.processes.cpu_seconds()["kube-apiserver"] - cpu["kube-apiserver"] - quick
        return Cost(
            shape,
            programs,
            pods.bound - before,
            seconds,
            quick,
            sum(spent.values()),
            later,
            early,
            since,
        )


async def settled(client: Client) -> Counter[tuple[str, str]]:
    """What the server has answered once nothing more is asked of it."""
    before: Counter[tuple[str, str]] = Counter()
    for _ in range(30):
        now = await requests(client)
        if now == before:
            break
        before = now
        await asyncio.sleep(2.0)
    return before


async def requests(client: Client) -> Counter[tuple[str, str]]:
    """What the server has answered since it began, the kubelets' requests left out."""
    text = (await client.request("GET", "/metrics")).body.decode()
    found: Counter[tuple[str, str]] = Counter()
    for line in COUNTED.finditer(text):
        resource = "/".join(filter(None, (line["resource"], line["subresource"])))
        what = (line["verb"], resource)
        if (
            what not in OF_KUBELETS
            and line["verb"] not in QUIET
            and resource not in ("leases", "nodes")
        ):
            found[what] += int(float(line["count"]))
    return found
