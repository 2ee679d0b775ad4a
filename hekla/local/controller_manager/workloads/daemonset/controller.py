"""Carries out the plan of a DaemonSet and writes what came of it.  Reference: local-cluster 10.6."""

from __future__ import annotations

import time

from hekla.api.kubernetes.apps import DAEMON_SET
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import deleting
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.daemonset.placement import (
    Fit,
    Node,
    Placement,
    pod_spec,
)
from hekla.local.controller_manager.workloads.daemonset.plan import Plan, plan, status_of, target_of
from hekla.local.controller_manager.workloads.pod_control import PodControl
from hekla.local.controller_manager.workloads.revisions import (
    HASH_LABEL,
    Collision,
    History,
    name_of,
    queue_keys,
    template_of,
)
from hekla.local.controller_manager.workloads.status import write_status

KIND = DAEMON_SET.untyped
BURST = 250
"""Pods made or removed in one go, as kube-controller-manager has it."""
RETRY = 1.0
GENERATION_LABEL, GENERATION = "pod-template-generation", "deprecated.daemonset.template.generation"
FIRST_REST, LONGEST_REST = 1.0, 900.0
"""Seconds for which a failed pod is left on its node: 0 for the first, then doubling."""


class Rests:
    """How long failed pods of a node are left alone, so that a pod that fails at once does not fail
    a thousand times a minute."""

    def __init__(self) -> None:
        self._rests: dict[tuple[str, str], tuple[float, float]] = {}

    def left(self, uid: str, node: str, now: float) -> float:
        length, since = self._rests.get((uid, node), (0.0, 0.0))
        return max(0.0, since + length - now)

    def extend(self, uid: str, node: str, now: float) -> None:
        length, since = self._rests.get((uid, node), (0.0, 0.0))
        fresh = not length or now - since > 2 * LONGEST_REST
        self._rests[uid, node] = (FIRST_REST if fresh else min(2 * length, LONGEST_REST), now)

    def of(self, uid: str, now: float) -> dict[str, float]:
        return {node: self.left(of, node, now) for of, node in self._rests if of == uid}

    def forget(self, uid: str) -> None:
        for key in [key for key in self._rests if key[0] == uid]:
            del self._rests[key]


class DaemonSetController(Controller):
    """Reconciles a DaemonSet with the nodes, its pods and revisions."""

    name = "daemonset"

    def __init__(
        self,
        client: Client,
        sets: Cache[Json],
        pods: Cache[Pod],
        revisions: Cache[Json],
        nodes: Cache[Node],
        recorder: Recorder,
    ) -> None:
        super().__init__(sets, pods, revisions)
        self.client = client
        self.sets = sets
        self.nodes = nodes
        self.recorder = recorder
        self.rests = Rests()
        self.pod_control = PodControl(KIND, client, sets, pods, recorder, self.queue.add)
        self.history = History(KIND, client, revisions)
        self.enqueue(sets)
        self.enqueue(revisions, lambda revision: queue_keys(KIND, sets, revision))
        sets.on_change(self.forget_gone)
        nodes.on_change(self.queue_all)

    def queue_all(self, old: Node | None, new: Node | None) -> None:
        """Queue all DaemonSets: a node was added, removed, or changed in a way that placement sees."""
        if old is None or new is None or not old.suits_as(new):
            for key in list(self.sets.keys()):
                self.queue.add(key)

    def forget_gone(self, old: Json | None, new: Json | None) -> None:
        if old is not None and new is None:
            self.rests.forget(old["metadata"]["uid"])

    async def reconcile(self, key: str) -> float | None:
        owner = self.sets.get(key)
        if owner is None:
            self.pod_control.expectations.forget(key)
            return None
        if not self.nodes.has_synced:  # clusters without DaemonSets do without this cache
            await self.nodes.start()
            await self.nodes.synced()
        pods = await self.pod_control.claim(owner)
        if not self.pod_control.expectations.satisfied(key):
            return self.pod_control.expectations.remaining(key)
        known = await self.history.of(owner)
        try:
            revision = await self.history.present(owner, known, {HASH_LABEL: "{hash}"})
        except Collision:
            await self.history.count_collision(owner)
            return RETRY
        template = owner["spec"]["template"]
        hashes = {
            self.hash_of(found) for found in (*known, revision) if template_of(found) == template
        }
        placement = Placement(template)
        fits = {node.name: placement.on(node) for node in self.nodes.all()}
        again = None
        if not deleting(owner):
            now = time.time()
            steps = plan(
                owner, fits, pods, hashes, self.rests.of(owner["metadata"]["uid"], now), now
            )
            again = await self.carry_out(key, owner, steps, self.hash_of(revision))
            live = {
                name_of(found) for found in (*known, revision) if self.is_used(found, pods, hashes)
            }
            await self.history.trim(known, live, owner["spec"].get("revisionHistoryLimit"))
        return await self.report(owner, fits, pods, hashes, again)

    async def report(
        self,
        owner: Json,
        fits: dict[str, Fit],
        pods: list[Pod],
        hashes: set[str],
        again: float | None,
    ) -> float | None:
        status = status_of(owner, fits, pods, hashes, time.time())
        if status != owner.get("status"):
            await write_status(self.client, KIND, owner, status)
        return again

    def hash_of(self, revision: Json) -> str:
        return str((revision["metadata"].get("labels") or {}).get(HASH_LABEL, ""))

    def is_used(self, revision: Json, pods: list[Pod], hashes: set[str]) -> bool:
        digest = self.hash_of(revision)
        return digest in hashes or any(
            pod.metadata.labels.get(HASH_LABEL) == digest for pod in pods
        )

    async def carry_out(self, key: str, owner: Json, steps: Plan, digest: str) -> float | None:
        """Carry out the plan.  Gives the seconds until the next reconcile."""
        uid, now = owner["metadata"]["uid"], time.time()
        for pod in steps.ended:
            where = f"daemon pod {pod.key} on node {target_of(pod)}"
            if pod.status.phase == "Failed":
                self.rests.extend(uid, target_of(pod), now)
                message = f"Found failed {where}, will try to kill it"
                self.recorder.event(owner, "Warning", "FailedDaemonPod", message)
            else:
                message = f"Found succeeded {where}, will try to delete it"
                self.recorder.event(owner, "Normal", "SucceededDaemonPod", message)
        await self.pod_control.delete(key, owner, steps.delete[:BURST])
        error = await self.pod_control.create(
            key, owner, [self.body(owner, node, digest) for node in steps.create[:BURST]]
        )
        return RETRY if error is not None else steps.wait

    def body(self, owner: Json, node: str, digest: str) -> Json:
        """The pod of a node."""
        template = owner["spec"]["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        generation = (owner["metadata"].get("annotations") or {}).get(GENERATION)
        if generation:
            labels[GENERATION_LABEL] = generation
        body = self.pod_control.body(owner, template, labels=labels)
        body["spec"] = pod_spec(body["spec"], node)
        return body
