"""A node of this machine: its object, its status, its lease.  Reference: local-cluster 8.1."""

from __future__ import annotations

import asyncio
import logging
import time

from hekla.api import names
from hekla.api.kubernetes import core
from hekla.api.kubernetes.coordination import LEASE
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.http.client import TransportError
from hekla.kube.leader import micro_time
from hekla.local.kubelet.addresses import HOST_ADDRESS
from hekla.local.kubelet.nodes import machine

log = logging.getLogger("kubelet.node")

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_EVERY = 10.0
STATUS_EVERY = 300.0
"""Seconds between two writes of a status that has not changed."""
RETRY = 1.0

ATTACHES = "volumes.kubernetes.io/controller-managed-attach-detach"
GOES_WITHOUT = "hekla.io/goes-without"
"""Annotation of a node whose machine does not let the kubelet keep pods apart in every way: what its
pods go without."""

NO_PRESSURE = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
"""Conditions of a node that is well: type, status, reason and message."""

PRESSED = {
    "MemoryPressure": (
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ),
    "DiskPressure": ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    "PIDPressure": (
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ),
}
"""By condition: its reason and message while the node runs short, and the event."""
RELIEVED = {
    "MemoryPressure": "NodeHasSufficientMemory",
    "DiskPressure": "NodeHasNoDiskPressure",
    "PIDPressure": "NodeHasSufficientPID",
}


def labels(name: str) -> dict[str, str]:
    """The labels that every node has."""
    arch = machine.architecture()
    return {
        names.HOSTNAME: name,
        names.OS: "linux",
        names.ARCH: arch,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": arch,
    }


def lease(name: str, uid: str, seconds: int = LEASE_SECONDS) -> Json:
    """The lease of a node, as it is created."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": seconds,
            "renewTime": micro_time(),
        },
    }


class RegisteredNode:
    """Keeps one node object true.  `node` is it as last seen; extended resources that others
    patched in stay."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        name: str,
        capacity: machine.Amounts,
        allocatable: machine.Amounts,
        endpoint_port: int,
        images: list[str],
        without: str = "",
        first_labels: dict[str, str] | None = None,
    ) -> None:
        """`first_labels`: those that the node has from its registration on, if it has them not
        already; whoever changes or removes them later is right."""
        self._client = client
        self._recorder = recorder
        self.name = name
        self.capacity = capacity
        self._allocatable = allocatable
        self._port = endpoint_port
        self._images = images
        self._first_labels = first_labels or {}
        self._annotations = {ATTACHES: "true", **({GOES_WITHOUT: without} if without else {})}
        self._info = machine.info()
        self._written = 0.0
        self.pressures: set[str] = set()
        """Conditions of what the machine runs short of."""
        self.stopping = False
        """The machine is going down: the node is no place for pods any more."""
        self.registered = asyncio.Event()
        self.cache: Cache[core.Node] = Cache(client, core.NODE, fields=f"metadata.name={name}")
        self.cache.on_change(self._changed)
        self._check = asyncio.Event()

    @property
    def node(self) -> core.Node | None:
        return self.cache.get(self.name)

    def allocatable(self) -> machine.Amounts:
        """What pods may take, extended resources of others included."""
        return (
            dict(self.node.status.allocatable) if self.node is not None else dict(self._allocatable)
        )

    def health(self) -> list[tuple[str, str, str, str]]:
        """(type, status, reason, message) of each condition as it is now."""
        found = []
        for kind, status, reason, message in (*NO_PRESSURE, READY):
            if kind in self.pressures:
                found.append((kind, "True", *PRESSED[kind][:2]))
            elif kind == "Ready" and self.stopping:
                found.append((kind, "False", "KubeletNotReady", "node is shutting down"))
            else:
                found.append((kind, status, reason, message))
        return found

    def press(self, conditions: set[str]) -> None:
        """The machine runs short of these and of nothing else."""
        for condition in sorted(conditions ^ self.pressures):
            reason = PRESSED[condition][2] if condition in conditions else RELIEVED[condition]
            self._event(reason, f"Node {self.name} status is now: {reason}")
        self.pressures = set(conditions)
        self._check.set()

    async def stop(self) -> None:
        """Says that the node goes down with its machine."""
        self.stopping = True
        self._event("NodeNotReady", f"Node {self.name} status is now: NodeNotReady")
        if self.node is not None:
            await self._write(self.node)

    def _changed(self, old: core.Node | None, new: core.Node | None) -> None:
        if new is None or (old is not None and self._differs(new)):
            self._check.set()

    async def run(self) -> None:
        """Registers the node and keeps it, until cancelled."""
        await self.cache.start()
        await self.cache.synced()
        beat = asyncio.create_task(self._renew_for_ever(), name=f"lease of {self.name}")
        try:
            while True:
                self._check.clear()
                try:
                    await self._keep()
                    wait = STATUS_EVERY - (time.time() - self._written)
                except (ApiError, TransportError) as error:
                    log.info("node %s: status not written yet: %s", self.name, error)
                    wait = RETRY
                try:
                    async with asyncio.timeout(max(0.1, wait)):
                        await self._check.wait()
                except TimeoutError:
                    continue
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            await self.cache.stop()

    async def _keep(self) -> None:
        node = self.node
        if node is None:
            await self._register()
        elif self._differs(node) or time.time() - self._written >= STATUS_EVERY:
            await self._write(node)
        if not self.registered.is_set():
            self.registered.set()
            self._event("Starting", "Starting kubelet.")
            for condition, reason in (
                ("NodeHasSufficientMemory", "NodeHasSufficientMemory"),
                ("NodeHasNoDiskPressure", "NodeHasNoDiskPressure"),
                ("NodeHasSufficientPID", "NodeHasSufficientPID"),
                ("NodeReady", "NodeReady"),
            ):
                self._event(reason, f"Node {self.name} status is now: {condition}")

    def _event(self, reason: str, message: str) -> None:
        node = self.node or core.Node()
        if not node.metadata.name:
            node.metadata.name = self.name
        self._recorder.event(node, "Normal", reason, message)

    async def _register(self) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {**labels(self.name), **self._first_labels},
                "annotations": self._annotations,
            },
            "spec": {"providerID": f"hekla://{self.name}"},
            "status": self._status({}, stamp(time.time())),
        }
        try:
            created = await self._client.create(core.NODE, body)
        except AlreadyExists:
            created = await self._client.get(core.NODE, self.name)
            await self._write(created)
        self._written = time.time()
        await self._renew(created.metadata.uid)

    def _differs(self, node: core.Node) -> bool:
        """Whether somebody else's write, or a kubelet before this one, left something that is not
        true."""
        have = {c.type: c.status for c in node.status.conditions}
        return (
            any(have.get(kind) != status for kind, status, _, _ in self.health())
            or any(node.status.capacity.get(key) != value for key, value in self.capacity.items())
            or any(
                node.status.allocatable.get(key) != value
                for key, value in self._allocatable.items()
            )
            or node.status.daemon_endpoints.kubelet_endpoint.port != self._port
            or node.status.node_info.boot_id != self._info.boot_id
            or bool(self._lacking(node))
        )

    def _lacking(self, node: core.Node) -> Json:
        """Labels and annotations that the object does not have as it should."""
        lacking: Json = {}
        for part, have, wanted in (
            ("labels", node.metadata.labels, labels(self.name)),
            ("annotations", node.metadata.annotations, {GOES_WITHOUT: "", **self._annotations}),
        ):
            wrong = {
                key: value or None for key, value in wanted.items() if have.get(key, "") != value
            }
            if wrong:
                lacking[part] = wrong
        if not self.registered.is_set():
            first = {k: v for k, v in self._first_labels.items() if k not in node.metadata.labels}
            if first:
                lacking["labels"] = first | lacking.get("labels", {})
        return lacking

    async def _write(self, node: core.Node) -> None:
        lacking = self._lacking(node)
        if lacking:
            await self._client.patch(core.NODE, self.name, {"metadata": lacking})
        since = {
            c.type: c.last_transition_time
            for c in node.status.conditions
            if (c.type, c.status) in {(kind, status) for kind, status, _, _ in self.health()}
        }
        now = stamp(time.time())
        before = node.status.node_info.boot_id
        if before and before != self._info.boot_id:
            message = f"Node {self.name} has been rebooted, boot id: {self._info.boot_id}"
            self._recorder.event(node, "Warning", "Rebooted", message)
        patch = {"status": self._status(since, now)}
        await self._client.patch(
            core.NODE, self.name, patch, type="strategic", subresource="status"
        )
        self._written = time.time()

    def _status(self, since: dict[str, str], now: str) -> Json:
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since.get(kind) or now,
            }
            for kind, status, reason, message in self.health()
        ]
        info = self._info
        return {
            "capacity": self.capacity,
            "allocatable": self._allocatable,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": HOST_ADDRESS},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": info.machine_id,
                "systemUUID": info.system_uuid,
                "bootID": info.boot_id,
                "kernelVersion": info.kernel_version,
                "osImage": info.os_image,
                "containerRuntimeVersion": info.container_runtime_version,
                "kubeletVersion": info.kubelet_version,
                "kubeProxyVersion": "",
                "operatingSystem": info.operating_system,
                "architecture": info.architecture,
            },
            "images": [{"names": [image], "sizeBytes": 0} for image in self._images],
        }

    # --- the lease --------------------------------------------------------------------------------

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            node = self.node
            if node is None:
                continue
            try:
                await self._renew(node.metadata.uid)
            except (ApiError, TransportError) as error:
                log.info("node %s: lease not renewed: %s", self.name, error)

    async def _renew(self, uid: str) -> None:
        """Renews the lease, making it where it is missing."""
        kind = LEASE.untyped
        patch = {
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": micro_time(),
            }
        }
        try:
            await self._client.patch(kind, self.name, patch, LEASE_NAMESPACE)
        except NotFound:
            try:
                await self._client.create(kind, lease(self.name, uid))
            except (AlreadyExists, NotFound):
                return  # another moment: the namespace may not be there yet
