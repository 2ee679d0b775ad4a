"""ReplicaSets and ReplicationControllers: as many pods of a template as the spec says.  Reference: local-cluster 10.5."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from hekla.api import core
from hekla.api.kinds import Kind
from hekla.api.meta import OwnerReference
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller, Expectations
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.local.controllers.pods import Json, Pod, matches

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

BURST = 500
"""Pods made or removed in one go, as kube-controller-manager has it."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def age_of(timestamp: str, now: float) -> float:
    """Seconds since an RFC 3339 time; 0 for an empty one."""
    return now - datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def first_to_go(pod: Pod) -> tuple[Any, ...]:
    """Sort key of the order in which pods are removed: what is least useful goes first, among equals the newest."""
    cost = pod.metadata.annotations.get(DELETION_COST, "0")
    rank = {"Pending": 0, "Unknown": 1, "Running": 2}.get(pod.status.phase, 0)
    created = age_of(pod.metadata.creation_timestamp, 0.0)
    return (bool(pod.spec.node_name), rank, pod.ready, int(cost) if cost.lstrip("-").isdigit() else 0, created)


def available(pods: Iterable[Pod], minimum: float, now: float) -> tuple[int, float | None]:
    """How many pods have been ready for `minimum` seconds, and the seconds until the next one will have been."""
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


def status_of(owner: Json, pods: list[Pod], failure: Json | None, now: float) -> tuple[Json, float | None]:
    """The status that the pods give, and when it may change by time alone."""
    spec = owner["spec"]
    template_labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    ready_for, wait = available(pods, spec.get("minReadySeconds", 0), now)
    status: Json = {
        "replicas": len(pods),
        "fullyLabeledReplicas": sum(template_labels.items() <= pod.metadata.labels.items() for pod in pods),
        "readyReplicas": sum(pod.ready for pod in pods),
        "availableReplicas": ready_for,
        "observedGeneration": owner["metadata"].get("generation", 0),
    }
    conditions = [c for c in owner.get("status", {}).get("conditions", ()) if c["type"] != "ReplicaFailure"]
    if failure is not None:
        conditions.append(failure)
    if conditions:
        status["conditions"] = conditions
    return {name: value for name, value in status.items() if value or name in ("replicas", "observedGeneration")}, wait


class ReplicasController(Controller):
    """One instance serves ReplicaSets, another ReplicationControllers; only the selector's form differs."""

    def __init__(
        self, name: str, kind: Kind[Json], client: Client, owners: Cache[Json], pods: Cache[Pod], recorder: Recorder,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        super().__init__(owners, pods)
        self.kind = kind
        self.client = client
        self.owners = owners
        self.pods = pods
        self.recorder = recorder
        self.clock = clock
        self.expectations = Expectations(self.key_of_owner)
        pods.on_change(self.expectations.observe)
        pods.on_change(self.queue_owners)
        self.enqueue(owners)

    def selector(self, owner: Json) -> Json:
        """The selector as a LabelSelector: a ReplicationController's is a plain map, by default its template's labels."""
        selector = owner["spec"].get("selector")
        if self.kind.group:
            return selector or {}
        return {"matchLabels": selector or owner["spec"].get("template", {}).get("metadata", {}).get("labels", {})}

    async def reconcile(self, key: str) -> float | None:
        """Brings the number of pods to the one asked for and writes the status."""
        owner = self.owners.get(key)
        if owner is None:
            self.expectations.forget(key)
            return None
        pods = await self.claim(owner)
        active = [pod for pod in pods if pod.active]
        failure = None
        if owner["metadata"].get("deletionTimestamp") is None and self.expectations.satisfied(key):
            failure = await self.scale(key, owner, active)
        status, wait = status_of(owner, active, failure, self.clock())
        if status != owner.get("status"):
            await self.write_status(owner, status)
        if failure is not None:
            return 1.0
        return wait

    async def claim(self, owner: Json) -> list[Pod]:
        """The pods that the owner manages: adopts orphans that its selector takes, releases those that it takes no more."""
        meta, selector = owner["metadata"], self.selector(owner)
        mine = []
        for pod in list(self.pods.by("namespace", meta["namespace"])):
            controller = pod.controller()
            taken = matches(selector, pod.metadata.labels)
            if controller is not None and controller.uid == meta["uid"]:
                if taken:
                    mine.append(pod)
                elif not pod.deleting:
                    await self.release(pod, meta["uid"])
            elif controller is None and taken and pod.active and meta.get("deletionTimestamp") is None:
                await self.adopt(pod, owner)
                mine.append(pod)
        return mine

    async def adopt(self, pod: Pod, owner: Json) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid, "ownerReferences": [*map(as_json, meta.owner_references), self.reference(owner)]}}
        await self.client.patch(core.POD, meta.name, patch, meta.namespace)

    async def release(self, pod: Pod, uid: str) -> None:
        meta = pod.metadata
        kept = [as_json(owner) for owner in meta.owner_references if owner.uid != uid]
        try:
            await self.client.patch(core.POD, meta.name, {"metadata": {"uid": meta.uid, "ownerReferences": kept}}, meta.namespace)
        except NotFound:
            pass

    def reference(self, owner: Json) -> Json:
        return {
            "apiVersion": self.kind.api_version, "kind": self.kind.kind, "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
        }

    async def scale(self, key: str, owner: Json, active: list[Pod]) -> Json | None:
        """Makes or removes the pods that are too few or too many; gives the ReplicaFailure condition when that failed."""
        difference = owner["spec"].get("replicas", 1) - len(active)
        if difference > 0:
            return await self.make(key, owner, min(difference, BURST))
        if difference < 0:
            surplus = sorted(active, key=first_to_go)[: min(-difference, BURST)]
            await asyncio.gather(*(self.remove(key, owner, pod) for pod in surplus))
        return None

    async def make(self, key: str, owner: Json, count: int) -> Json | None:
        """Slow start: 1, 2, 4, ... at once, so that a template that is refused costs one call, not hundreds."""
        template = owner["spec"].get("template", {})
        meta = template.get("metadata", {})
        body = {
            "apiVersion": "v1", "kind": "Pod", "spec": template.get("spec", {}),
            "metadata": {
                **{name: meta[name] for name in ("labels", "annotations", "finalizers") if name in meta},
                "generateName": f"{owner['metadata']['name']}-", "ownerReferences": [self.reference(owner)],
            },
        }
        batch, left = 1, count
        while left:
            size = min(batch, left)
            results = await asyncio.gather(*(self.make_one(key, owner, body) for _ in range(size)))
            failed = next((error for error in results if error is not None), None)
            if failed is not None:
                return {
                    "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failed.message,
                    "lastTransitionTime": datetime.fromtimestamp(int(self.clock()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            left -= size
            batch *= 2
        return None

    async def make_one(self, key: str, owner: Json, body: Json) -> ApiError | None:
        """Creates one pod under a name drawn here, so that it is known before the answer; gives why that failed."""
        prefix, namespace = body["metadata"]["generateName"], owner["metadata"]["namespace"]
        while True:
            name = prefix[:58] + "".join(random.choices(NAME_LETTERS, k=5))
            named = {**body, "metadata": {**body["metadata"], "name": name}}
            try:
                with self.expectations.creating(key, f"{namespace}/{name}"):
                    await self.client.create(core.POD, named, namespace)
            except AlreadyExists:
                continue
            except ApiError as error:
                self.recorder.event(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
                return error
            self.recorder.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {name}")
            return None

    async def remove(self, key: str, owner: Json, pod: Pod) -> None:
        meta = pod.metadata
        try:
            with self.expectations.deleting(key, meta.uid):
                await self.client.delete(core.POD, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return
        self.recorder.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def write_status(self, owner: Json, status: Json) -> None:
        meta = owner["metadata"]
        body = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": meta, "spec": owner["spec"], "status": status}
        try:
            await self.client.update_status(self.kind, body)
        except (NotFound, Conflict):
            pass  # the watch brings what changed, and with it another look

    def key_of_owner(self, pod: Pod) -> str | None:
        """The owner that manages a pod, if it is of this controller's kind."""
        controller = pod.controller()
        return f"{pod.metadata.namespace}/{controller.name}" if controller and controller.kind == self.kind.kind else None

    def queue_owners(self, old: Pod | None, new: Pod | None) -> None:
        """A change of a pod concerns its owner, or, for an orphan, those whose selector takes it."""
        for pod in (old, new):
            if pod is None:
                continue
            if pod.controller() is None:
                for key in self.takers(pod):
                    self.queue.add(key)
            elif (owner := self.key_of_owner(pod)) is not None:
                self.queue.add(owner)

    def takers(self, pod: Pod) -> set[str]:
        """The owners whose selector takes an orphan."""
        return {
            f"{owner['metadata']['namespace']}/{owner['metadata']['name']}"
            for owner in self.owners.by("namespace", pod.metadata.namespace)
            if matches(self.selector(owner), pod.metadata.labels)
        }


def as_json(owner: OwnerReference) -> Json:
    """An owner reference as the wire has it."""
    tree: Json = msgspec.to_builtins(owner)
    return tree
