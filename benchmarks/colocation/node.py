"""The node of a local cluster on which online and offline pods run for real: its pods, made and waited
for, and the processor time of each class by its control group.

Other programs of the machine disturb what is measured here.  So what is compared is measured in turns
of a few seconds, offline work being stopped and continued meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import yaml

from benchmarks.processes import family
from benchmarks.waiting import until
from hekla.api.batch import JOB
from hekla.api.kinds import Kind
from hekla.api.kubernetes import core
from hekla.api.names import BATCH_CPU
from hekla.api.text import quantity
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.local.cluster.cluster import Cluster
from hekla.local.kubelet.runtime import cgroups

EXAMPLES = Path(__file__).parents[2] / "examples" / "colocation"
KINDS: dict[str, Kind[Any]] = {
    "ConfigMap": core.CONFIG_MAP,
    "Service": core.SERVICE,
    "Pod": core.POD,
    "Job": JOB,
}
CORES = os.cpu_count() or 1
TASK = 250
"""Millicores of an offline task."""


def example(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / file).read_text()))


def online() -> list[dict[str, Any]]:
    """The example's service, and its client, which asks for an hour and writes each answer down."""
    made = example("online.yaml")
    made[-1]["spec"]["containers"][0]["command"][-1:] = ["3600", "1", "each"]
    return made


class Node:
    """The one real node of a cluster."""

    def __init__(self, made: Cluster) -> None:
        self._client = Client(config.load(str(made.internal_kubeconfig)))
        base, why = cgroups.find()
        if base is None:
            raise RuntimeError(f"no control groups here: {why}")
        self._tree = base.tree(made.pods)
        self._pods = made.pods

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)

    # objects

    async def apply(self, *bodies: dict[str, Any]) -> None:
        for body in bodies:
            await self._client.create(KINDS[body["kind"]].untyped, body, "default")

    async def delete(self, kind: str, name: str) -> None:
        await self._client.delete(KINDS[kind], name, "default", grace=0)

    async def annotate(self, **values: str | None) -> None:
        """Annotations of the node, `volcano.sh/` in front and `_` for `-`."""
        (node,) = (await self._client.list(core.NODE)).items
        marks = {f"volcano.sh/{name.replace('_', '-')}": value for name, value in values.items()}
        await self._client.patch(
            core.NODE, node.metadata.name, {"metadata": {"annotations": marks}}
        )

    async def pods(self, prefix: str = "") -> list[core.Pod]:
        pods = (await self._client.list(core.POD, "default")).items
        return [pod for pod in pods if pod.metadata.name.startswith(prefix)]

    async def running(self, prefix: str, count: int) -> None:
        async def are_ready() -> bool:
            ready = [
                pod
                for pod in await self.pods(prefix)
                if any(
                    one.type == "Ready" and one.status == "True" for one in pod.status.conditions
                )
            ]
            return len(ready) >= count

        await until(f"{count} pods {prefix}* run", are_ready)

    async def lent(self) -> int:
        """Millicores that offline work is offered."""
        (node,) = (await self._client.list(core.NODE)).items
        return quantity.whole(node.status.allocatable.get(BATCH_CPU, 0))

    async def all_is_lent(self) -> None:
        """Until there is room for offline tasks on all of the node but one of them."""

        async def enough() -> bool:
            return await self.lent() >= CORES * 1000 - TASK

        await until("all is lent", enough)

    async def log(self, pod: str) -> str:
        answer = await self._client.request("GET", f"/api/v1/namespaces/default/pods/{pod}/log")
        return answer.body.decode()

    async def answers(self) -> list[tuple[float, float]]:
        """What the service's client wrote down: of each request when it was due, in seconds since
        1970, and the milliseconds until its answer."""
        lines = (await self.log("client")).splitlines()
        return [(float(due), float(took)) for due, took in map(str.split, lines)]

    # processes and their time

    def processes(self, uid: str) -> list[int]:
        """Of the containers of a pod, whatever group they are in: by what the kubelet has on disk."""
        heads = [
            int(claim.read_text().split()[0])
            for claim in self._pods.glob(f"pods/{uid}/containers/*/*/claim")
        ]
        return [pid for head in heads for pid in family(head)]

    def spent(self, qos: str) -> float:
        """Seconds of processor time of a QoS class so far."""
        place = self._tree.get("cpuacct", self._tree["cpu"]) / "kubepods" / qos
        file = place / "cpuacct.usage"
        if file.exists():
            return int(file.read_text()) / 1e9
        return int((place / "cpu.stat").read_text().split()[1]) / 1e6


def p99(took: Iterable[float]) -> float:
    ascending = sorted(took)
    return ascending[int(len(ascending) * 0.99)]


def idle_seconds() -> float:
    """In which processors had nothing to do, since the machine was started."""
    with open("/proc/stat") as file:
        columns = file.readline().split()
    return (int(columns[4]) + int(columns[5])) / os.sysconf("SC_CLK_TCK")
