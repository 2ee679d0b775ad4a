"""Evicts pods from nodes with NoExecute taints, at once or after the time that they tolerate.
Reference: local-cluster 10.7."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from hekla.api.kubernetes.core import POD
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.nodes.nodes import Node, Taint
from hekla.local.controller_manager.pods import Pod, Toleration, patch_status


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; an empty key with Exists covers all."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return bool(toleration.key) and toleration.value == taint.value
    if toleration.operator in ("Lt", "Gt"):
        try:
            limit, there = int(toleration.value), int(taint.value)
        except ValueError:
            return False
        return there < limit if toleration.operator == "Lt" else there > limit
    return toleration.operator == "Exists"


def stays(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Seconds that a pod may stay under these taints: 0 for not at all, None for ever."""
    seconds: list[int] = []
    for taint in taints:
        covering = [one for one in tolerations if tolerates(one, taint)]
        if not covering:
            return 0.0
        seconds += [
            max(0, one.toleration_seconds) for one in covering if one.toleration_seconds is not None
        ]
    return float(min(seconds)) if seconds else None


class TaintEvictionController(Controller):
    """Deletes pods that do not tolerate the taints of their node, or no longer do."""

    name = "taint-eviction"
    workers = 8

    def __init__(
        self, client: Client, nodes: Cache[Node], pods: Cache[Pod], recorder: Recorder
    ) -> None:
        super().__init__(nodes, pods)
        self.client = client
        self.nodes = nodes
        self.pods = pods
        self.recorder = recorder
        self.tainted: dict[str, float] = {}
        """Node -> since when it has taints that evict."""
        nodes.on_change(self.node_changed)
        pods.on_change(self.pod_changed)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Queue the pods of a node when its NoExecute taints change."""
        node = new if new is not None else old
        assert node is not None
        before = evicting(old) if old is not None else ()
        now = evicting(new) if new is not None else ()
        if before == now:
            return
        if not now:
            self.tainted.pop(node.name, None)
        elif node.name not in self.tainted:
            # Seen as it happens the time is exact; after a restart it is what the taint says.
            self.tainted[node.name] = time.time() if old is not None else self.since(now)
        for pod in self.pods.by("node", node.name):
            self.queue.add(pod.key)

    def since(self, taints: Sequence[Taint]) -> float:
        added = [instant(taint.time_added) for taint in taints if taint.time_added]
        return min(max(added), time.time()) if added else time.time()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name in self.tainted:
            self.queue.add(new.key)

    async def reconcile(self, key: str) -> float | None:
        """Delete the pod if its time is over.  Gives the seconds that it has left."""
        pod = self.pods.get(key)
        if pod is None or pod.deleting or pod.spec.node_name not in self.tainted:
            return None
        node = self.nodes.get(pod.spec.node_name)
        if node is None:
            return None
        allowed = stays(evicting(node), pod.spec.tolerations)
        if allowed is None:
            return None
        if allowed:
            since = max(self.tainted[node.name], instant(pod.metadata.creation_timestamp))
            left = since + allowed - time.time()
            if left > 0:
                return left
        await evict(self.client, self.recorder, pod, "Taint manager", time.time())
        return None


async def evict(client: Client, recorder: Recorder, pod: Pod, manager: str, now: float) -> None:
    """Deletes a pod for a taint, and says on whose behalf: "Taint manager" or the like."""
    who = manager.title().replace(" ", "")
    why = f"Marking for deletion Pod {pod.key}"
    recorder.event(pod.reference(), "Normal", f"{who}Eviction", why)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": f"DeletionBy{who}",
        "message": f"{manager}: deleting due to NoExecute taint",
        "lastTransitionTime": stamp(now),
    }
    await disrupt(client, pod, {"conditions": [condition]})


async def disrupt(client: Client, pod: Pod, status: Json, grace: int | None = None) -> None:
    """Write why a pod is deleted into its status, then delete it, if it is still the same pod."""
    meta = pod.metadata
    with suppress(NotFound, Conflict):
        await patch_status(client, pod, status)
        await client.delete(POD, meta.name, meta.namespace, grace=grace, uid=meta.uid)


def evicting(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.effect == "NoExecute")
