"""ReplicaSets and ReplicationControllers: as many pods of a template as the spec says.  Reference:
local-cluster 10.5."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.sizes import room
from hekla.api.text.times import age_of, instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.pods import Pod, waiting
from hekla.local.controller_manager.workloads.pod_control import PodControl

BURST = 500
"""Pods made or removed in one go, as kube-controller-manager has it."""

RETRY = 1.0
"""Seconds after which creations that were refused (a quota, a webhook) are tried again."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def cost_of(pod: Pod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    return int(text) if text.lstrip("-").isdigit() else 0


def order_of_removal(pods: list[Pod], now: float) -> list[Pod]:
    """Sort key: the least useful pods first, that is unassigned, pending, not ready, cheap to
    delete, with many on their node, ready or restarted recently, new.

    Ages count in powers of two, so that of pods of about the same age the choice is spread over
    nodes.
    """
    crowd = Counter(pod.spec.node_name for pod in pods)

    def key(pod: Pod) -> tuple[Any, ...]:
        rank = {"Pending": 0, "Unknown": 1, "Running": 2}.get(pod.status.phase, 0)
        ready_for = int(max(0.0, age_of(pod.ready_since, now))).bit_length()
        return (
            bool(pod.spec.node_name),
            rank,
            pod.ready,
            cost_of(pod),
            -crowd[pod.spec.node_name],
            ready_for,
            -pod.restarts,
            -instant(pod.metadata.creation_timestamp),
            pod.metadata.uid,
        )

    return sorted(pods, key=key)


def available(pods: Iterable[Pod], minimum: float, now: float) -> tuple[int, float | None]:
    """How many pods have been ready for `minimum` seconds, and the seconds until the next one will
    have been."""
    count, wait = 0, None
    for pod in pods:
        since = pod.ready_since
        if since is None:
            continue
        left = minimum - age_of(since, now) if minimum else 0.0
        if left <= 0:
            count += 1
        else:
            wait = left if wait is None else min(wait, left)
    return count, wait


def status_of(
    owner: Json, pods: list[Pod], failure: Json | None, now: float
) -> tuple[Json, float | None]:
    """The status by the pods, and the seconds until it may change without any event."""
    spec, active = owner["spec"], [pod for pod in pods if pod.active]
    template_labels = (spec.get("template", {}).get("metadata") or {}).get("labels") or {}
    ready_for, wait = available(active, spec.get("minReadySeconds", 0), now)
    status: Json = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(
            template_labels.items() <= pod.metadata.labels.items() for pod in active
        ),
        "readyReplicas": sum(pod.ready for pod in active),
        "availableReplicas": ready_for,
        "observedGeneration": owner["metadata"].get("generation", 0),
    }
    kept = {
        name: value
        for name, value in status.items()
        if value or name in ("replicas", "observedGeneration")
    }
    if owner.get("kind") != "ReplicationController":
        kept["terminatingReplicas"] = sum(pod.deleting and not pod.finished for pod in pods)
    conditions = [
        c for c in owner.get("status", {}).get("conditions") or () if c["type"] != "ReplicaFailure"
    ]
    if failure is not None:
        conditions.append(failure)
    if conditions:
        kept["conditions"] = conditions
    return kept, wait


def failure_of(owner: Json, error: ApiError, reason: str, now: float) -> Json:
    """The ReplicaFailure condition; its time stays while it is the same failure."""
    known = next(
        (
            c
            for c in owner.get("status", {}).get("conditions") or ()
            if c["type"] == "ReplicaFailure"
        ),
        None,
    )
    since = (
        known["lastTransitionTime"]
        if known is not None and known["reason"] == reason
        else stamp(now)
    )
    return {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": reason,
        "message": error.message,
        "lastTransitionTime": since,
    }


def made_now(replicas: int, active: list[Pod]) -> int:
    """How many of the missing pods are created in this reconcile: a burst at most, and as many as
    may be pending."""
    return min(replicas - len(active), BURST, room(replicas, waiting(active)))


class ReplicasController(Controller):
    """Keeps as many pods of a template as the spec says.  One instance serves ReplicaSets, another
    ReplicationControllers; only the selector's form differs."""

    workers = 5

    def __init__(
        self,
        name: str,
        kind: Kind[Json],
        client: Client,
        owners: Cache[Json],
        pods: Cache[Pod],
        recorder: Recorder,
    ) -> None:
        self.name = name
        super().__init__(owners, pods)
        self.kind = kind
        self.client = client
        self.owners = owners
        self.pod_control = PodControl(
            kind, client, owners, pods, recorder, self.queue.add, selector=self.selector
        )
        self.enqueue(owners)

    def selector(self, owner: Json) -> Json:
        """The selector as a LabelSelector: a ReplicationController's is a plain map, by default its
        template's labels."""
        selector = owner["spec"].get("selector")
        if self.kind.group:
            return selector or {}
        return {
            "matchLabels": selector
            or owner["spec"].get("template", {}).get("metadata", {}).get("labels", {})
        }

    async def reconcile(self, key: str) -> float | None:
        """Brings the number of pods to the one asked for and writes the status."""
        owner = self.owners.get(key)
        if owner is None:
            self.pod_control.expectations.forget(key)
            return None
        pods = await self.pod_control.claim(owner)
        error = None
        if owner["metadata"].get(
            "deletionTimestamp"
        ) is None and self.pod_control.expectations.satisfied(key):
            error = await self.scale(key, owner, [pod for pod in pods if pod.active])
        now = time.time()
        failure = failure_of(owner, error, "FailedCreate", now) if error is not None else None
        status, wait = status_of(owner, pods, failure, now)
        if status != owner.get("status"):
            await self.write_status(owner, status)
        return RETRY if error is not None else wait

    async def scale(self, key: str, owner: Json, active: list[Pod]) -> ApiError | None:
        """Create missing pods or delete surplus ones.  Gives the error, if any."""
        replicas = owner["spec"].get("replicas", 1)
        difference = replicas - len(active)
        if difference > 0:
            body = self.pod_control.body(owner, owner["spec"].get("template") or {})
            return await self.pod_control.create(key, owner, [body] * made_now(replicas, active))
        if difference < 0:
            await self.pod_control.delete(
                key, owner, order_of_removal(active, time.time())[: min(-difference, BURST)]
            )
        return None

    async def write_status(self, owner: Json, status: Json) -> None:
        meta = owner["metadata"]
        body = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": meta,
            "spec": owner["spec"],
            "status": status,
        }
        # the watch shows what changed, which queues another reconcile
        with suppress(NotFound, Conflict):
            await self.client.update_status(self.kind, body)
