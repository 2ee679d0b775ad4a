"""Reports the NUMA nodes of the machine and which processors are free, as the Numatopology of this
node, by which the scheduler's plugin numa-aware places pods (reference: agent 15).

Who has which processors is read from the checkpoint of the kubelet's CPU manager.  The kubelet's
pod-resources socket would say the same by names instead of uids, and needs gRPC.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hekla.api.meta import OwnerReference
from hekla.api.nodeinfo import (
    NUMATOPOLOGY,
    ContainerAllocation,
    CpuInfo,
    Numatopology,
    NumatopoSpec,
    PodAllocation,
    ResourceInfo,
)
from hekla.api.text import quantity
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

CPU = "cpu"
DEVICES = Path("/sys/devices/system")
TIMESTAMP = "timestamp"
"""Annotation: when the topology was written, in seconds since 1970."""
POLICIES = {
    "CPUManagerPolicy": "cpuManagerPolicy",
    "TopologyManagerPolicy": "topologyManagerPolicy",
}
"""Our key -> the kubelet's."""
LARGEST = 1 << 16
"""No machine has a processor of this number: a wrong set does not fill the memory."""


class TopologyError(Exception):
    """The topology cannot be read; the text says which file and why."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the kernel and the kubelet say it."""

    devices: Path
    kubelet_config: Path
    cpu_manager_state: Path


# sets of processors


def cpu_set(text: str) -> list[int]:
    """The numbers of a set as Linux writes it, `0-3,8`, in order.  Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        start, end = int(first), int(last if dash else first)
        if not 0 <= start <= end < LARGEST:
            raise ValueError(f"{part!r} is no range of processors")
        found.update(range(start, end + 1))
    return sorted(found)


def cpu_text(numbers: Iterable[int]) -> str:
    """The set as Linux writes it."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


# reading


def processors(devices: Path) -> dict[str, CpuInfo]:
    """All processors that are online, by number.  Raises TopologyError."""
    found = {}
    for node in _set(devices / "node" / "online"):
        for cpu in _set(devices / "node" / f"node{node}" / "cpulist"):
            topology = devices / "cpu" / f"cpu{cpu}" / "topology"
            if not topology.is_dir():
                continue  # the list has those that are offline, too
            found[cpu] = CpuInfo(
                numa=node,
                socket=_number(topology / "physical_package_id"),
                core=_number(topology / "core_id"),
            )
    return {str(cpu): found[cpu] for cpu in sorted(found)}


def policies(config: Mapping[str, Any]) -> dict[str, str]:
    """The kubelet's two policies; both are `none` where it does not say."""
    return {ours: str(config.get(theirs) or "none") for ours, theirs in POLICIES.items()}


def reserved(config: Mapping[str, Any], given: str) -> dict[str, str]:
    """What the kubelet keeps for itself and the system of cpu; `given` (`cpu=200m,memory=1Gi`) goes
    before.  Raises TopologyError."""
    stated = {}
    for part in filter(None, (part.strip() for part in given.split(","))):
        name, equals, amount = part.partition("=")
        if not equals:
            raise TopologyError(f"{part!r}: write a resource and its amount, as in cpu=200m")
        stated[name.strip()] = amount.strip()
    try:
        if CPU in stated:
            return {CPU: quantity.canonical(stated[CPU])}
        parts = [(config.get(part) or {}).get(CPU) for part in ("kubeReserved", "systemReserved")]
        total = sum(quantity.milli(part) for part in parts if part is not None)
    except (ValueError, AttributeError) as error:
        raise TopologyError(f"what is reserved of cpu cannot be read: {error}") from None
    return {CPU: quantity.canonical(f"{total}m")} if total else {}


def reserved_problem(given: str) -> str | None:
    """What is wrong with what is said to be reserved."""
    try:
        reserved({}, given)
    except TopologyError as error:
        return str(error)
    return None


def allocations(state: Mapping[str, Any]) -> list[PodAllocation]:
    """Which container has which processors, by the checkpoint of the CPU manager.  Raises
    TopologyError."""
    try:
        return [
            PodAllocation(
                uid=uid,
                container_allocations=[
                    ContainerAllocation(name=name, allocations={CPU: cpu_text(cpu_set(cpus))})
                    for name, cpus in sorted(containers.items())
                ],
            )
            for uid, containers in sorted((state.get("entries") or {}).items())
        ]
    except (AttributeError, TypeError, ValueError) as error:
        raise TopologyError(f"entries of the CPU manager cannot be read: {error}") from None


def read(files: Files, given: str = "") -> NumatopoSpec:
    """The topology as it is now.  Raises TopologyError."""
    config = _mapping(files.kubelet_config, yaml.safe_load)
    state = _mapping(files.cpu_manager_state, json.loads)
    detail = processors(files.devices)
    stated = policies(config)
    if stated["CPUManagerPolicy"] == "none" and state.get("policyName"):
        stated["CPUManagerPolicy"] = str(state["policyName"])
    everything = [int(cpu) for cpu in detail]
    free = everything
    if stated["CPUManagerPolicy"] != "none":
        try:
            free = cpu_set(str(state.get("defaultCpuSet") or ""))
        except ValueError as error:
            raise TopologyError(f"{files.cpu_manager_state}: defaultCpuSet: {error}") from None
    return NumatopoSpec(
        policies=stated,
        res_reserved=reserved(config, given),
        numares={CPU: ResourceInfo(allocatable=cpu_text(free), capacity=len(everything))},
        cpu_detail=detail,
        pod_allocations=allocations(state),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _set(file: Path) -> list[int]:
    try:
        return cpu_set(_text(file))
    except ValueError as error:
        raise TopologyError(f"{file}: {error}") from None


def _number(file: Path) -> int:
    text = _text(file).strip()
    try:
        return max(int(text), 0)  # a machine without packages says -1
    except ValueError:
        raise TopologyError(f"{file}: {text[:40]!r} is no number") from None


def _mapping(file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    """What a file of the kubelet says; nothing where there is no such file."""
    if not file.exists():
        return {}
    try:
        found = parse(_text(file))
    except (ValueError, yaml.YAMLError) as error:
        raise TopologyError(f"{file}: {error}") from None
    if not isinstance(found, Mapping):
        raise TopologyError(f"{file}: this is no object with fields")
    return found


# reporting


class TopologyReporter:
    """Keeps the Numatopology of this node true."""

    def __init__(
        self,
        client: Client,
        node: str,
        files: Files,
        given: str = "",
        *,
        uid: Callable[[], str] = str,
    ) -> None:
        """`uid`: of the node, with which the object goes; "" while it is not known."""
        self._client = client
        self._node = node
        self._uid = uid
        self._files = files
        self._given = given
        self._problem = ""

    async def run(self, period: float) -> None:
        """Report for ever."""
        while True:
            await self.report()
            await asyncio.sleep(period)

    async def report(self) -> bool:
        """Whether the object was written.  What cannot be read leaves it as it is."""
        try:
            spec = await asyncio.to_thread(read, self._files, self._given)
            written = await self._write(spec)
        except (TopologyError, ApiError, TransportError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("the NUMA topology is not reported anew: %s", error)
            return False
        self._problem = ""
        return written

    async def _write(self, spec: NumatopoSpec) -> bool:
        stamp = {TIMESTAMP: str(int(time.time()))}
        try:
            there = await self._client.get(NUMATOPOLOGY, self._node)
        except NotFound:
            topology = Numatopology(spec=spec)
            topology.metadata.name = self._node
            topology.metadata.annotations = stamp
            topology.metadata.owner_references = self._owners()
            try:
                await self._client.create(NUMATOPOLOGY, topology)
            except AlreadyExists:
                return await self._write(spec)
            log.info("Numatopology %s is created", self._node)
            return True
        if there.spec == spec:
            return False
        there.spec = spec
        there.metadata.owner_references = there.metadata.owner_references or self._owners()
        there.metadata.annotations = {**there.metadata.annotations, **stamp}
        await self._client.update(NUMATOPOLOGY, there)
        log.info(
            "Numatopology %s is updated: free are %s", self._node, spec.numares[CPU].allocatable
        )
        return True

    def _owners(self) -> list[OwnerReference]:
        uid = self._uid()
        return (
            [OwnerReference(api_version="v1", kind="Node", name=self._node, uid=uid)] if uid else []
        )
