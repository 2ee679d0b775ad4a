"""The scheduler's start on a kube-apiserver with etcd that has 5,000 nodes and 140,000 running plain
pods.

The nodes are fake ones that have fallen silent, and nothing of Kubernetes runs but the API server
and etcd, so that the start has both processors to itself.  The pods are copies of a few running
ones that the server has stored itself; they are written into etcd as it would write them, because
140,000 creates, binds and statuses would take a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import psutil

from benchmarks.daemon import pod
from benchmarks.figure import Aim, Figure
from benchmarks.kube_apiserver.jobs import each, say
from benchmarks.kube_apiserver.reference import settle
from benchmarks.large_cluster import most
from hekla.api import scheduling
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound
from hekla.kube.http.client import HttpClient, Target

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

FIGURES = ("live.start.reference", "live.start.reference.rss")
NODES, PODS = 5000, 140_000
AIMS = [
    Aim(
        name,
        aim,
        unit,
        7,
        f"{what}, {NODES} nodes and {PODS} running pods on a kube-apiserver with etcd",
    )
    for name, aim, unit, what in (
        ("live.start.reference", "<= 10", "s", "scheduler's start to its first bind"),
        ("live.start.reference.rss", "<= 700", "MB", "its memory then"),
    )
]
WRITES = 64
"""Copies that are written at a time."""
SECONDS = 300.0
"""For nodes, pods and the bind each."""


class Start(NamedTuple):
    """How a start went."""

    seconds: float
    """From the start of the scheduler to its first bind."""
    cpu: float
    """Seconds of its processors until then."""
    server_cpu: float
    """The same of the kube-apiserver."""
    memory: float
    """Of the scheduler then, in MB."""
    peak: float
    """The most until then."""


class Sample(NamedTuple):
    """A stored pod, and what of it is another's in each copy."""

    name: str
    uid: str
    node: str
    address: str
    stored: bytes


def measure(names: set[str]) -> Iterator[Figure]:
    """One start gives both."""
    for start in each(["the start"] if names else [], measured):
        where = f"{NODES} silent nodes, {PODS} running plain pods on a kube-apiserver with etcd"
        used = (
            f"until then {start.cpu:.1f} s of CPU, {start.server_cpu:.1f} s of the kube-apiserver's"
        )
        for figure in (
            Figure("live.start.reference", start.seconds, "s", f"{where}; {used}"),
            Figure(
                "live.start.reference.rss",
                start.memory,
                "MB",
                f"{where}; at most {start.peak:.0f} until then",
            ),
        ):
            if figure.name in names:
                yield figure


def measured(_: str) -> Start:
    """Fill a server, and start the scheduler on it."""
    from tests.kubernetes.reference import reference

    with reference(durable=True) as server:
        asyncio.run(settle(server.kubeconfig))
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        server.add_scheduler()
        asyncio.run(until_ready(server))
        server.processes.end("scheduler", "controllers")
        samples = asyncio.run(running_samples(server))
        server.processes.end("kubelet", "kube-controller-manager")
        asyncio.run(fill(server, samples))
        return asyncio.run(first_bind(server))


async def until_ready(server: Reference) -> None:
    """Wait for all nodes and the open queue.  Raises TimeoutError."""
    async with client_of(server) as client, asyncio.timeout(SECONDS):
        while await count_of(client, "/api/v1/nodes") < NODES:
            await asyncio.sleep(1.0)
        while True:
            try:
                queue = await client.get(scheduling.QUEUE, "default")
                if queue.status.state == "Open":
                    return
            except NotFound:
                pass
            await asyncio.sleep(0.25)


async def count_of(client: Client, path: str) -> int:
    """How many objects the server has of a kind."""
    answer = await client.request("GET", path, {"limit": "1"})
    listed = msgspec.json.decode(answer.body)
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))


async def running_samples(server: Reference) -> dict[int, Sample]:
    """A running pod for each length that a node's name has, because a copy may say nothing that is
    longer than what the sample says."""
    async with client_of(server) as client:
        nodes = {len(node): node for node in map(node_of, range(NODES))}
        for number, node in enumerate(nodes.values()):
            name = name_of(number)
            await client.create(core.POD.untyped, pod(name, "100m"), "default")
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await client.post(core.POD, name, "default", "binding", binding)
        samples = {}
        async with etcd_of(server) as etcd:
            for number, (length, node) in enumerate(nodes.items()):
                samples[length] = await running_sample(server, client, etcd, number, node)
        return samples


async def running_sample(
    server: Reference, client: Client, etcd: Etcd, number: int, node: str
) -> Sample:
    """One of them, once its node has reported it, at an address as long as those of all copies."""
    name, address = name_of(number), address_of(number)
    async with asyncio.timeout(SECONDS):
        while True:
            found = await client.get(core.POD.untyped, name, "default")
            if found["status"].get("phase") == "Running":
                break
            await asyncio.sleep(0.1)
    status = {"podIP": address, "podIPs": [{"$patch": "replace"}, {"ip": address}]}
    found = await client.patch(
        core.POD.untyped,
        name,
        {"status": status},
        "default",
        type="strategic",
        subresource="status",
    )
    stored = await etcd.get(key_of(server, name))
    return Sample(name, found["metadata"]["uid"], node, address, stored)


def name_of(number: int) -> str:
    return f"copy-{number:06}"


def node_of(number: int) -> str:
    return f"fake-node-{number % NODES}"


def address_of(number: int) -> str:
    """One of a million addresses of the same length."""
    return f"10.{100 + number // 10_000}.{100 + number // 100 % 100}.{100 + number % 100}"


def key_of(server: Reference, name: str) -> str:
    return f"/{server.directory.name}/pods/default/{name}"


async def fill(server: Reference, samples: dict[int, Sample]) -> None:
    """Write the copies, and wait until the server has all of them."""
    numbers = iter(range(len(samples), PODS))

    async def write(etcd: Etcd) -> None:
        for number in numbers:
            sample = samples[len(node_of(number))]
            await etcd.put(key_of(server, name_of(number)), copied(sample, number))

    async with etcd_of(server) as etcd, client_of(server) as client:
        began = time.perf_counter()
        await asyncio.gather(*(write(etcd) for _ in range(WRITES)))
        async with asyncio.timeout(SECONDS):
            while await count_of(client, core.POD.path(None)) < PODS:
                await asyncio.sleep(1.0)
        say(f"{PODS} pods were written in {time.perf_counter() - began:.0f} s")


def copied(sample: Sample, number: int) -> bytes:
    """A sample's stored form with another's identity; all lengths in it stay true."""
    uid = str(UUID(int=number, version=4))
    stored = sample.stored
    for old, new in (
        (sample.name, name_of(number)),
        (sample.uid, uid),
        (sample.node, node_of(number)),
        (sample.address, address_of(number)),
    ):
        stored = stored.replace(old.encode(), new.encode())
    return stored


async def first_bind(server: Reference) -> Start:
    """Start the scheduler while one pod waits, until that is bound."""
    async with client_of(server) as client:
        await client.create(core.POD.untyped, pod("first", "100m"), "default")
        await asyncio.sleep(5.0)
        before = server.processes.cpu_seconds()["kube-apiserver"]
        began = time.perf_counter()
        server.start_scheduler()
        async with asyncio.timeout(SECONDS):
            while True:
                found = await client.get(core.POD.untyped, "first", "default")
                if found["spec"].get("nodeName"):
                    break
                await asyncio.sleep(0.05)
        seconds = time.perf_counter() - began
        used = server.processes.cpu_seconds()
        scheduler = psutil.Process(server.processes.pid("scheduler"))
        return Start(
            seconds,
            used["scheduler"],
            used["kube-apiserver"] - before,
            scheduler.memory_info().rss / 1e6,
            most(scheduler),
        )


class Value(msgspec.Struct):
    """What etcd has of a key; base64 on its way, as all bytes are."""

    value: bytes = b""


class Found(msgspec.Struct):
    kvs: list[Value] = []


class Etcd:
    """The keys and values of the server's etcd, over its JSON gateway."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None and address.port is not None
        self._http = HttpClient(Target(address.hostname, address.port), pool=WRITES)

    async def __aenter__(self) -> Etcd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def get(self, key: str) -> bytes:
        """The value of a key.  Raises LookupError."""
        answer = await self._ask("range", {"key": key.encode()})
        for found in msgspec.json.decode(answer, type=Found).kvs:
            return found.value
        raise LookupError(key)

    async def put(self, key: str, value: bytes) -> None:
        await self._ask("put", {"key": key.encode(), "value": value})

    async def _ask(self, what: str, fields: dict[str, bytes]) -> bytes:
        answer = await self._http.request(
            "POST",
            f"/v3/kv/{what}",
            b"Content-Type: application/json\r\n",
            msgspec.json.encode(fields),
        )
        if answer.status != 200:
            raise RuntimeError(f"etcd refuses a {what}: {answer.body.decode()}")
        return answer.body


def etcd_of(server: Reference) -> Etcd:
    return Etcd(server.etcd)


def client_of(server: Reference) -> Client:
    return Client(config.load(str(server.kubeconfig)), pool=8)
