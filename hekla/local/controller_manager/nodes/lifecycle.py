"""The health of nodes: whether they send heartbeats, and the taints that show their conditions.
Reference: local-cluster 10.7.

A heartbeat is a change of a node's lease or of the heartbeat time of its Ready condition.  It is
timed by this process's own clock, because those of nodes may differ.  Leases change all the time
and are read as one list a period, which costs a fraction of watching them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from hekla.api.kubernetes.core import NODE
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.http.client import TransportError
from hekla.local.controller_manager.nodes.nodes import LEASES, TTL, Node, Taint, as_json
from hekla.local.controller_manager.pods import Pod, patch_status

GRACE = 50.0
"""Seconds of silence after which a node is unknown."""
STARTUP_GRACE = 60.0
"""The same for a node that has not said yet that it is ready."""
ROUNDS = 10
"""How often the leases are read within one grace period."""
LEASE_NAMESPACE = "kube-node-lease"

PREFIX = "node.kubernetes.io/"
BY_CONDITION = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
NO_SCHEDULE = {*(PREFIX + name for name in BY_CONDITION.values()), PREFIX + "unschedulable"}
NO_EXECUTE = {PREFIX + "not-ready", PREFIX + "unreachable"}
JUDGED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
MANY = 0.55
"""The share of nodes lost at once from which on the fault is taken to be elsewhere, and no pod is
evicted."""


def is_ours(taint: Taint) -> bool:
    return taint.key in (
        NO_SCHEDULE
        if taint.effect == "NoSchedule"
        else NO_EXECUTE
        if taint.effect == "NoExecute"
        else ()
    )


def wanted_taints(node: Node, *, evict: bool) -> list[tuple[str, str]]:
    """(key, effect) of the taints that follow from a node's conditions.  A new node that has not
    reported yet keeps not-ready."""
    keys = [
        PREFIX + BY_CONDITION[c.type, c.status]
        for c in node.status.conditions
        if (c.type, c.status) in BY_CONDITION
    ]
    if node.ready is None and any(taint.key == PREFIX + "not-ready" for taint in node.spec.taints):
        keys.append(PREFIX + "not-ready")
    found = [(key, "NoSchedule") for key in keys]
    if node.spec.unschedulable:
        found.append((PREFIX + "unschedulable", "NoSchedule"))
    if evict:
        found += [
            (key, "NoExecute") for key in keys if key in NO_EXECUTE and node.ready is not None
        ]
    return found


def with_taints(node: Node, *, evict: bool, now: float) -> list[Json] | None:
    """All taints that the node should have; None where it has them."""
    wanted = wanted_taints(node, evict=evict)
    there = {(taint.key, taint.effect) for taint in node.spec.taints if is_ours(taint)}
    if there == set(wanted):
        return None
    kept = tuple(
        taint
        for taint in node.spec.taints
        if not is_ours(taint) or (taint.key, taint.effect) in wanted
    )
    # As the reference does, only taints that evict say since when; time is what tolerations count
    # from.
    added = tuple(
        Taint(
            key,
            "",
            effect,
            stamp(now) if effect == "NoExecute" or key == PREFIX + "unschedulable" else "",
        )
        for key, effect in wanted
        if (key, effect) not in there
    )
    return as_json(kept + added)


class NodeLifecycleController(Controller):
    """Marks nodes without heartbeats as unknown, and keeps the taints of all nodes."""

    name = "node-lifecycle"

    def __init__(
        self,
        client: Client,
        nodes: Cache[Node],
        pods: Cache[Pod],
        recorder: Recorder,
        grace: float = GRACE,
    ) -> None:
        super().__init__(nodes, pods)
        self.client = client
        self.nodes = nodes
        self.pods = pods
        self.recorder = recorder
        self.grace = grace
        self.heard: dict[str, float] = {}
        self.renewed: dict[str, str] = {}
        self.judged_at = 0.0
        """Until when missing heartbeats are known to be the nodes' fault: the last time that the
        leases could be read."""
        self.lost: set[str] = set()
        """Nodes that report that they are not ready, or that are unknown."""
        self.holding = False
        """Too many nodes are lost: no pod is evicted."""
        self.task: asyncio.Task[None] | None = None
        nodes.on_change(self.node_changed)

    async def start(self) -> None:
        self.task = asyncio.create_task(self.listen(), name="leases of nodes")

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Note the heartbeat of a node, and queue the node where something about it has changed."""
        if new is None:
            assert old is not None
            self.heard.pop(old.name, None)
            self.renewed.pop(old.name, None)
            self.lost.discard(old.name)
            self.queue.add(old.name)
            return
        if new.ready in ("False", "Unknown"):
            self.lost.add(new.name)
        else:
            self.lost.discard(new.name)
        if old is None or (old.status.heartbeat != new.status.heartbeat and new.ready != "Unknown"):
            self.heard[new.name] = time.monotonic()
        if (
            old is None
            or old.status.conditions != new.status.conditions
            or old.spec.taints != new.spec.taints
            or old.spec.unschedulable != new.spec.unschedulable
        ):
            self.queue.add(new.name)

    # --- heartbeats -------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read the leases once a period, and queue the nodes without heartbeats for too long."""
        period = self.grace / ROUNDS
        while True:
            try:
                listing = await self.client.list(LEASES, LEASE_NAMESPACE)
            except (ApiError, TransportError):
                # Nodes cannot renew what this process cannot read: the time does not count against
                # them.
                lost = time.monotonic() - self.judged_at if self.judged_at else 0.0
                self.judged_at = time.monotonic()
                self.heard = {name: at + lost for name, at in self.heard.items()}
            else:
                self.judged_at = now = time.monotonic()
                for lease in listing.items:
                    name, renewed = lease.metadata.name, lease.spec.renew_time or ""
                    if self.renewed.get(name) != renewed and name in self.nodes:
                        self.renewed[name] = renewed
                        self.heard[name] = now
                self.queue_silent()
            await asyncio.sleep(period)

    def queue_silent(self) -> None:
        """Queue the nodes whose grace period is over."""
        for name, at in self.heard.items():
            silent = time.monotonic() - at
            node = self.nodes.get(name)
            if node is not None and silent >= self.patience(node) and node.ready != "Unknown":
                self.queue.add(name)

    def patience(self, node: Node) -> float:
        return self.grace if node.ready is not None else self.grace * STARTUP_GRACE / GRACE

    async def reconcile(self, key: str) -> float | None:
        """Reconcile the conditions and taints of a node."""
        node = self.nodes.get(key)
        self.weigh()
        if node is None:
            return None
        silent = time.monotonic() - self.heard.setdefault(key, time.monotonic())
        if silent >= self.patience(node) and node.ready != "Unknown":
            await self.lose(node)
            return None  # the event of that brings the taints
        if node.ready in ("False", "Unknown"):
            await self.mark_pods(node)
        taints = with_taints(node, evict=not self.holding, now=time.time())
        patch: Json = {"metadata": {"resourceVersion": node.metadata.resource_version}}
        if taints is not None:
            patch["spec"] = {"taints": taints or None}
        if not node.metadata.has_ttl:
            patch["metadata"]["annotations"] = {TTL: "0"}
        if len(patch) > 1 or len(patch["metadata"]) > 1:
            with suppress(NotFound):
                await self.client.patch(NODE.untyped, key, patch)
        return None

    def weigh(self) -> None:
        """Find out whether so many nodes are lost that the fault must be elsewhere; when that
        changes, queue all lost ones."""
        lost = len(self.lost)
        holding = bool(lost) and (
            lost == len(self.nodes) or (lost > 2 and lost >= MANY * len(self.nodes))
        )
        if holding != self.holding:
            self.holding = holding
            for name in self.lost:
                self.queue.add(name)

    # --- losing -----------------------------------------------------------------------------------

    async def lose(self, node: Node) -> None:
        """Set the conditions of a node without heartbeats to Unknown."""
        now = stamp(time.time())
        conditions = []
        for kind in JUDGED:
            status = node.condition(kind)
            if status == "Unknown":
                continue
            posted = status is not None
            condition: Json = {
                "type": kind,
                "status": "Unknown",
                "lastTransitionTime": now,
                "reason": "NodeStatusUnknown" if posted else "NodeStatusNeverUpdated",
                "message": "Kubelet stopped posting node status."
                if posted
                else "Kubelet never posted node status.",
            }
            if not posted:
                condition["lastHeartbeatTime"] = node.metadata.creation_timestamp or now
            conditions.append(condition)
        patch = {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}}
        try:
            await self.client.patch(
                NODE.untyped, node.name, patch, type="strategic", subresource="status"
            )
        except NotFound:
            return
        message = f"Node {node.name} status is now: NodeNotReady"
        self.recorder.event(node.reference(), "Normal", "NodeNotReady", message)

    async def mark_pods(self, node: Node) -> None:
        """Set the pods of a node that is not ready to not ready."""
        pods = [pod for pod in self.pods.by("node", node.name) if pod.ready]
        await asyncio.gather(*(self.mark(pod) for pod in pods))

    async def mark(self, pod: Pod) -> None:
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": stamp(time.time())}
        try:
            await patch_status(self.client, pod, {"conditions": [condition]})
        except NotFound:
            return
        self.recorder.event(pod.reference(), "Warning", "NodeNotReady", "Node is not ready")
