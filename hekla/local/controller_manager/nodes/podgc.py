"""Deletes pods that nobody else does: pods on nodes that are gone, pods deleted before they had a
node, and finished pods beyond a number.  Reference: local-cluster 10.11."""

from __future__ import annotations

import time
from contextlib import suppress

from hekla.api.kubernetes.core import NODE, POD
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound
from hekla.local.controller_manager.nodes.evictions import disrupt
from hekla.local.controller_manager.nodes.nodes import Node
from hekla.local.controller_manager.pods import Pod

QUARANTINE = 40.0
"""Seconds that a node must have been gone."""
MOST_FINISHED = 12_500
SETTLE = 20.0
"""Seconds for which finished pods beyond the number are gathered."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodCollector(Controller):
    """Keys are "node/<name>" (its pods may be orphans), "pod/<namespace>/<name>" (unscheduled and
    deleting), and "finished"."""

    name = "podgc"

    def __init__(self, client: Client, nodes: Cache[Node], pods: Cache[Pod]) -> None:
        super().__init__(nodes, pods)
        self.client = client
        self.nodes = nodes
        self.pods = pods
        self.finished = 0
        self.missed: set[str] = set()
        """Nodes that pods name and that are not there; each waits for its quarantine to end."""
        pods.on_change(self.pod_changed)
        nodes.on_change(self.node_changed)

    async def start(self) -> None:
        for name in self.pods.values("node"):
            self.suspect(name)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self.suspect(old.name)
        elif any(taint.key == OUT_OF_SERVICE for taint in new.spec.taints):
            self.queue.add(f"node/{new.name}")

    def suspect(self, name: str) -> None:
        if name not in self.nodes and name not in self.missed:
            self.missed.add(name)
            self.queue.add_after(f"node/{name}", QUARANTINE)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Counts the finished; notes a pod that names a node that is not there, and one that waits
        to go without ever having had one."""
        self.finished += (new is not None and new.finished) - (old is not None and old.finished)
        if self.finished > MOST_FINISHED:
            self.queue.add_after("finished", SETTLE)
        if new is None:
            return
        if not new.spec.node_name:
            if new.deleting:
                self.queue.add(f"pod/{new.key}")
        elif self.nodes.has_synced and new.spec.node_name not in self.nodes:
            self.suspect(new.spec.node_name)

    async def reconcile(self, key: str) -> float | None:
        """Removes what one key stands for."""
        what, _, name = key.partition("/")
        if what == "node":
            await self.check_node(name)
        elif what == "finished":
            await self.remove_oldest()
        else:
            pod = self.pods.get(name)
            if (
                pod is not None
                and pod.deleting
                and not pod.spec.node_name
                and not pod.metadata.finalizers
            ):
                await self.remove(pod)
        return None

    async def check_node(self, name: str) -> None:
        self.missed.discard(name)
        node = self.nodes.get(name)
        if node is not None:
            if node.ready != "True" and any(
                taint.key == OUT_OF_SERVICE for taint in node.spec.taints
            ):
                for pod in self.pods.by("node", name):
                    if pod.deleting:
                        await self.remove(pod)
            return
        with suppress(NotFound):
            await self.client.get(NODE.untyped, name)
            return  # it exists; the cache is late
        for pod in self.pods.by("node", name):
            await self.remove(pod, "PodGC: node no longer exists")

    async def remove_oldest(self) -> None:
        done = sorted(
            (pod for pod in self.pods if pod.finished and not pod.deleting),
            key=lambda pod: pod.metadata.creation_timestamp,
        )
        for pod in done[: max(0, len(done) - MOST_FINISHED)]:
            await self.remove(pod)

    async def remove(self, pod: Pod, why: str = "") -> None:
        """Delete a pod for good.  One that has not ended is set to Failed first, so that its owner
        counts it."""
        if pod.finished:
            meta = pod.metadata
            try:
                await self.client.delete(POD, meta.name, meta.namespace, grace=0, uid=meta.uid)
            except (NotFound, Conflict):
                return
            return
        status: Json = {"phase": "Failed"}
        if why:
            status["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": why,
                    "lastTransitionTime": stamp(time.time()),
                }
            ]
        await disrupt(self.client, pod, status, grace=0)
