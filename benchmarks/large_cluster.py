"""A large cluster that is started again: 5,000 fake nodes with 140,000 running plain pods, and the
same with a PodGroup for each pod, which are 290,000 objects.

The cluster's own programs make the nodes, and one pod and one PodGroup of the kind.  Copies of
these, under names, uids, nodes and addresses of their own, are written into the stopped cluster's
state through the API server's store, because 140,000 creates by HTTP would take minutes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from benchmarks.clusters import resident
from benchmarks.daemon import pod
from benchmarks.figure import Figure
from benchmarks.processes import pid_of
from hekla.api import names, scheduling
from hekla.api.kubernetes import core
from hekla.cli.down import stop
from hekla.cli.up import bring_up
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.rows import Row, decode
from hekla.local.apiserver.storage.store import Store
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status

FIGURES = ("live.start", "live.start.rss", "store.ready", "store.ready.rss", "rss.large")
NODES, PODS = 5000, 140_000
FLAGS = {"nodes": 0, "fake_nodes": NODES}
BATCH = 5000
"""Objects in one write to the store."""
SETTLED = 20.0
"""Seconds of rest, for what a start sets off, before memory is read."""
PODS_PATH = "/api/v1/namespaces/default/pods"


def measure(names: set[str]) -> Iterator[Figure]:
    """The plain pods first; then the PodGroups are added to the same state."""
    with large() as made:
        if names & {"live.start", "live.start.rss", "rss.large"}:
            yield from started_again(made, names)
        if names & {"store.ready", "store.ready.rss"}:
            yield from ready_again(made, names)


@contextmanager
def large() -> Iterator[Cluster]:
    """A stopped cluster with all nodes and pods."""
    directory = Path(tempfile.mkdtemp(prefix="hekla-bench-"))
    made = Cluster(directory / "bench")
    try:
        bring_up(made, dict(FLAGS), 300, lambda *_: None)
        asyncio.run(samples(made))
        stop(made)
        asyncio.run(fill(made, "pods", PODS, copied_pod))
        yield made
    finally:
        stop(made)
        shutil.rmtree(directory, ignore_errors=True)


async def samples(made: Cluster) -> None:
    """Wait for all nodes, one running pod, and one PodGroup."""
    async with client_of(made) as client:
        while len((await client.list(core.NODE)).items) < NODES:
            await asyncio.sleep(1.0)
        await client.create(core.POD.untyped, small("plain"), "default")
        grouped = small("grouped")
        grouped["metadata"]["annotations"] = {names.PREEMPTABLE: "false"}
        await client.create(core.POD.untyped, grouped, "default")
        for _ in range(600):
            running = [
                (await client.get(core.POD.untyped, name, "default"))["status"].get("phase")
                for name in ("plain", "grouped")
            ]
            groups = (await client.list(scheduling.POD_GROUP.untyped, "default")).items
            phases = [(group.get("status") or {}).get("phase") for group in groups]
            if running == ["Running"] * 2 and phases == ["Running"]:
                await asyncio.sleep(2.0)
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"after a minute the pods are {running}, the PodGroup is {phases}")


def small(name: str) -> dict[str, Any]:
    return pod(name, "100m")


async def fill(
    made: Cluster,
    collection: str,
    count: int,
    copied: Callable[[bytes, int], dict[str, Any]],
) -> None:
    """Write copies of the first object of a collection into the state of a stopped cluster."""
    store = Store(made.data)
    store.start()
    try:
        stored = store.collection(collection, {})
        sample = sample_of(stored)
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            writes = [
                stored.create(copied(sample.data, number), held=sample.held) for number in numbers
            ]
            await writes[-1].done
    finally:
        await store.close()


def sample_of(stored: Collection) -> Row:
    """The plain pod, or the only PodGroup."""
    return stored.rows.get("default/plain") or next(iter(stored.rows.values()))


def copied_pod(sample: bytes, number: int) -> dict[str, Any]:
    """A running pod like the sample; those of one node follow each other by `NODES`."""
    tree: dict[str, Any] = decode(sample)
    identify(tree, number)
    tree["spec"]["nodeName"] = f"fake-node-{number % NODES}"
    address = ".".join(
        str(byte) for byte in (10 << 24 | 128 << 16 | number + 10).to_bytes(4, "big")
    )
    status = tree["status"]
    status["podIP"], status["podIPs"] = address, [{"ip": address}]
    for container in status["containerStatuses"]:
        container["containerID"] = f"fake://{tree['metadata']['uid']}"
    return tree


def copied_group(sample: bytes, number: int) -> dict[str, Any]:
    """The PodGroup of a copied pod."""
    tree: dict[str, Any] = decode(sample)
    owner = str(UUID(int=number, version=4))
    identify(tree, PODS + number)
    tree["metadata"]["name"] = f"podgroup-{owner}"
    tree["metadata"]["ownerReferences"][0].update(name=f"copy-{number}", uid=owner)
    return tree


def identify(tree: dict[str, Any], number: int) -> None:
    tree["metadata"].update(name=f"copy-{number}", uid=str(UUID(int=number, version=4)))


def started_again(made: Cluster, names: set[str]) -> Iterator[Figure]:
    """The scheduler killed while a pod waits; its supervisor starts it again."""
    bring_up(made, {}, 600, lambda *_: None)
    time.sleep(SETTLED)
    where = f"{NODES} fake nodes, {PODS} running plain pods, local cluster"
    if "rss.large" in names:
        by_name = resident(made)
        yield Figure("rss.large", sum(by_name.values()), "MB", f"{where}: {told(by_name)}")
    if names & {"live.start", "live.start.rss"}:
        seconds, used, memory, peak = asyncio.run(first_bind(made))
        conditions = f"{where}; it used {used:.1f} s of CPU until then"
        if "live.start" in names:
            yield Figure("live.start", seconds, "s", conditions)
        if "live.start.rss" in names:
            yield Figure("live.start.rss", memory, "MB", f"{where}; at most {peak:.0f} until then")
    stop(made)


def told(by_name: dict[str, float]) -> str:
    sizes = sorted(by_name.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {size:.0f}" for name, size in sizes)


async def first_bind(made: Cluster) -> tuple[float, float, float, float]:
    """Seconds from the start of the scheduler's new process to its first bind, the CPU seconds that
    it used until then, its memory then, and the most that it had, in MB."""
    async with client_of(made) as client:
        killed = kill(made, "scheduler")
        first = await client.create(core.POD.untyped, small("first"), "default")
        scheduler = await asyncio.to_thread(new_process, made, "scheduler", killed)
        async with asyncio.timeout(600):
            while True:
                name = first["metadata"]["name"]
                found = await client.get(core.POD.untyped, name, "default")
                if found["spec"].get("nodeName"):
                    break
                await asyncio.sleep(0.05)
        seconds = time.time() - scheduler.create_time()
        times = scheduler.cpu_times()
        memory, peak = scheduler.memory_info().rss / 1e6, most(scheduler)
        return seconds, times.user + times.system, memory, peak


def ready_again(made: Cluster, names: set[str]) -> Iterator[Figure]:
    """The API server killed; its supervisor starts it again."""
    asyncio.run(fill(made, "podgroups.scheduling.volcano.sh", PODS, copied_group))
    bring_up(made, {}, 600, lambda *_: None)
    time.sleep(SETTLED)
    size = sum(file.stat().st_size for file in made.data.glob("state.*")) / 1e6
    seconds, used, memory, peak, objects = asyncio.run(answers(made))
    where = f"{objects} objects, {size:.0f} MB of files; all programs of the cluster connect again"
    if "store.ready" in names:
        yield Figure("store.ready", seconds, "s", f"{where}; {used:.1f} s of CPU until then")
    if "store.ready.rss" in names:
        conditions = f"{where}; at most {peak:.0f} until then"
        yield Figure("store.ready.rss", memory, "MB", conditions)
    stop(made)


async def answers(made: Cluster) -> tuple[float, float, float, float, int]:
    """Seconds from the kill of the API server to its first answer to a read, its CPU seconds until
    then, its memory then, the most that it had, and how many objects it has."""
    async with client_of(made) as client:
        began = time.perf_counter()
        killed = kill(made, "apiserver")
        async with asyncio.timeout(600):
            while True:
                try:
                    await client.request("GET", "/readyz")
                    await client.get(core.POD.untyped, f"copy-{PODS - 1}", "default")
                    break
                except (ApiError, TransportError, OSError):
                    await asyncio.sleep(0.05)
        seconds = time.perf_counter() - began
        server = new_process(made, "apiserver", killed)
        times = server.cpu_times()
        memory, peak = server.memory_info().rss / 1e6, most(server)
        text = (await client.request("GET", "/metrics")).body.decode()
        counts = [
            int(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("apiserver_storage_objects{")
        ]
        return seconds, times.user + times.system, memory, peak, sum(counts)


def kill(made: Cluster, program: str) -> int:
    """Kill a program of the cluster; its pid."""
    pid = pid_of(made, program)
    psutil.Process(pid).kill()
    return pid


def new_process(made: Cluster, program: str, killed: int) -> psutil.Process:
    """The process of a program once it is another than the one that was killed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = read_status(made)
        for process in status.processes if status is not None else ():
            if process.name == program and process.pid not in (0, killed):
                return psutil.Process(process.pid)
        time.sleep(0.02)
    raise TimeoutError(f"{program} was not started again")


def most(process: psutil.Process) -> float:
    """The most memory that a process has had, in MB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) / 1e3
    )


def client_of(made: Cluster) -> Client:
    return Client(config.load(str(made.internal_kubeconfig)), pool=8)
