"""Fake nodes in KWOK's manner: Node objects with nothing behind them, and pods that only pretend to
run.

Every node annotated `kwok.x-k8s.io/node: fake` is looked after, whoever made it; `--fake-nodes`
makes some.  Reference: local-cluster 9.2, 9.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any

from hekla.api.kubernetes import apps, core
from hekla.api.kubernetes.coordination import LEASE
from hekla.api.text.times import stamp
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.leader import micro_time
from hekla.local.kubelet.background_tasks import BackgroundTasks
from hekla.local.kubelet.nodes.fake_objects import (
    ANNOTATION,
    NODE,
    FakeNode,
    Size,
    node_body,
    node_ready,
)
from hekla.local.kubelet.nodes.fake_pods import RETRY, SENDERS, FakePods
from hekla.local.kubelet.nodes.node import LEASE_NAMESPACE, lease

log = logging.getLogger("kubelet.fake")

KWOK_NAMESPACE, KWOK = "kube-system", "kwok-controller"
LEASE_SECONDS = 40
RENEW_EVERY = 25.0
"""Seconds between renewals of one fake node's lease: 40 writes a second for a thousand nodes."""
TICK = 0.25
"""Seconds: leases that are due within as much are renewed together."""
MOST_RENEWALS = 64
"""Renewals under way at a time: those of a thousand nodes come in time where an answer takes up to
1.6 s.  A lease that runs out costs far more: its node and each of its pods are written twice."""


class FakeNodes:
    """All fake nodes and the pods on them."""

    def __init__(self, client: Client, size: Size) -> None:
        self._client = client
        self._size = size
        self.nodes: Cache[FakeNode] = Cache(client, NODE)
        self._managed: dict[str, str] = {}
        """Names of the nodes that are ours, with their uids."""
        self.pods = FakePods(client, self._managed)
        self._tasks = BackgroundTasks()
        self.others: Cache[dict[str, Any]] = Cache(
            client,
            apps.DEPLOYMENT.untyped,
            namespace=KWOK_NAMESPACE,
            fields=f"metadata.name={KWOK}",
        )
        """KWOK's own controller, where somebody has installed it."""

    async def start(self) -> None:
        """Makes the nodes that are asked for and begins to look after all fake ones."""
        await self.nodes.start()
        await self.nodes.synced()
        self.nodes.on_change(self._node_changed)
        await self._make_nodes()
        self.others.on_change(self._other_changed)
        await self.others.start()
        self._tasks.start(self._renew_for_ever(), "fake leases")
        await self._watch_pods()

    async def close(self) -> None:
        await self._stop_watching()
        await self._tasks.cancel()
        await self._stop_watching()  # one of the tasks may just have begun to
        await self.pods.close()

    async def _stop_watching(self) -> None:
        await self.nodes.stop()
        await self.pods.stop_watching()
        await self.others.stop()

    async def _watch_pods(self) -> None:
        """Begin to watch bound pods, once there is a fake node to have some."""
        if self._managed:
            await self.pods.watch()

    def _other_changed(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        """Leave all fake nodes to KWOK while it is there, and take them up again when it has gone."""
        back = new is not None
        if back == self.pods.paused:
            return
        self.pods.paused = back
        log.info(
            "%s has %s: fake nodes are %s",
            KWOK,
            "come" if back else "gone",
            "left to it" if back else "looked after again",
        )
        if not back:
            self.pods.schedule_all(self._managed)

    # --- nodes ------------------------------------------------------------------------------------

    async def _make_nodes(self) -> None:
        missing = deque(
            n for n in range(self._size.count) if f"{self._size.name}-{n}" not in self.nodes
        )
        now = stamp(time.time())

        async def make() -> None:
            while missing:
                body = node_body(self._size, missing.popleft(), now)
                try:
                    await self._client.create(core.NODE.untyped, body)
                except AlreadyExists:
                    continue

        await asyncio.gather(*(make() for _ in range(SENDERS)))

    def _node_changed(self, old: FakeNode | None, new: FakeNode | None) -> None:
        found = new or old
        assert found is not None
        name = found.metadata.name
        if new is None or (new.metadata.annotations or {}).get(ANNOTATION) != "fake":
            self._managed.pop(name, None)
            return
        fresh = name not in self._managed
        self._managed[name] = new.metadata.uid
        ready = any(c.type == "Ready" and c.status == "True" for c in new.status.conditions)
        if not ready and not self.pods.paused:
            self._tasks.start(self._make_ready(new), f"fake node {name}")
        if self.pods.cache is None:
            if self._tasks.tasks:
                self._tasks.start(self._watch_pods(), "fake pods")
        elif fresh:
            self.pods.schedule_all({name})

    async def _make_ready(self, node: FakeNode) -> None:
        """The stage node-initialize: a node that somebody else made, or whose heartbeat was missed."""
        name = node.metadata.name
        status = node_ready(name, stamp(time.time()))
        if not node.status.allocatable:
            status |= {
                part: {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
                for part in ("allocatable", "capacity")
            }
        try:
            await self._renew(name, node.metadata.uid)
            await self._client.patch(
                core.NODE.untyped, name, {"status": status}, type="strategic", subresource="status"
            )
        except (ApiError, TransportError) as error:
            log.info("fake node %s: %s", name, error)

    async def _renew_for_ever(self) -> None:
        """Renews every lease once in RENEW_EVERY seconds, evenly spread; on a slow server several at
        a time."""
        while True:
            began = time.monotonic()
            leases = list(self._managed.items()) if not self.pods.paused else []
            renewed = 0
            while renewed < len(leases):
                part = (time.monotonic() - began + TICK) / RENEW_EVERY
                due = min(int(part * len(leases)) + 1, len(leases), renewed + MOST_RENEWALS)
                answers = await asyncio.gather(
                    *(self._try_to_renew(name, uid) for name, uid in leases[renewed:due])
                )
                renewed = due
                if not all(answers):
                    await asyncio.sleep(RETRY)
                ahead = began + RENEW_EVERY * renewed / len(leases) - time.monotonic()
                if ahead > 0:
                    await asyncio.sleep(ahead)
            if not leases:
                await asyncio.sleep(1.0)

    async def _try_to_renew(self, name: str, uid: str) -> bool:
        try:
            await self._renew(name, uid)
        except (ApiError, TransportError) as error:
            log.info("fake node %s: lease not renewed: %s", name, error)
            return False
        return True

    async def _renew(self, name: str, uid: str) -> None:
        kind = LEASE.untyped
        try:
            await self._client.patch(
                kind,
                name,
                {"spec": {"holderIdentity": name, "renewTime": micro_time()}},
                LEASE_NAMESPACE,
            )
        except NotFound:
            try:
                await self._client.create(kind, lease(name, uid, LEASE_SECONDS))
            except (AlreadyExists, NotFound):
                return
