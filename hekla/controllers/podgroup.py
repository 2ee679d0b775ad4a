"""PodGroups for pods that no batch job made (reference: controllers 5).

A pod that asks for the batch scheduler and names no group gets one: its own, or that of the
ReplicaSet, StatefulSet or other controller that owns it, so that all pods of one owner are
scheduled as one group.

A pod that stands alone (`hekla.podrules.plain_pods`) is a group of one to the scheduler without the
object; it gets it when it waits for longer than a moment, so that its user finds there why.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from hekla.api import names, scheduling
from hekla.api.kinds import Kind, read_as
from hekla.api.kubernetes import apps, core
from hekla.api.kubernetes import batch as batch_k8s
from hekla.api.meta import ObjectMeta, Struct, split_key
from hekla.controllers.caches import Caches
from hekla.controllers.job.podgroup import difference
from hekla.controllers.records import POD, Pod
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.objects import controller_reference
from hekla.podrules.plain_pods import stands_alone
from hekla.podrules.usage import Usage, add, pod_usage

Tree = dict[str, Any]

_OWNERS: dict[tuple[str, str], Kind[Any]] = {
    (kind.api_version, kind.kind): kind
    for kind in (apps.REPLICA_SET, apps.DAEMON_SET, apps.STATEFUL_SET, batch_k8s.JOB)
}
_FROM_POD_ANNOTATIONS = (names.PREEMPTABLE, names.COOLDOWN_TIME, names.REVOCABLE_ZONE)
_FROM_POD_LABELS = (names.PREEMPTABLE, names.COOLDOWN_TIME)
_MODES = frozenset({"hard", "soft"})


class WorkloadSpec(Struct):
    replicas: int | None = None


class Workload(Struct):
    """A ReplicaSet or StatefulSet, with the fields that are needed here."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


def group_of_pod(pod: Mapping[str, Any], owner_annotations: Mapping[str, str]) -> Tree:
    """The PodGroup of a plain pod; `owner_annotations` are those that its owners pass on, {} when
    they pass on none."""
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    members = _min_member(owner_annotations)
    usage: Usage = {}
    if members:
        add(usage, pod_usage(spec), members)
    wanted: Tree = {
        "minMember": members,
        "queue": annotations.get(names.GROUP_QUEUE_NAME, ""),
        "priorityClassName": spec.get("priorityClassName") or "",
        "minResources": {name: str(amount) for name, amount in sorted(usage.items())},
        "networkTopology": _network_topology(annotations),
    }
    inherited = {
        key: value for key, value in owner_annotations.items() if key.startswith(names.OWN_PREFIX)
    }
    inherited.update((key, annotations[key]) for key in _FROM_POD_ANNOTATIONS if key in annotations)
    for key in (names.JDB_MIN_AVAILABLE, names.JDB_MAX_UNAVAILABLE):
        if key in annotations:
            inherited[key] = annotations[key]
            break
    return {
        "apiVersion": scheduling.POD_GROUP.api_version,
        "kind": scheduling.POD_GROUP.kind,
        "metadata": {
            "name": names.bare_pod_group_name(_controller_uid(metadata) or metadata["uid"]),
            "namespace": metadata["namespace"],
            "annotations": inherited,
            "labels": {key: labels[key] for key in _FROM_POD_LABELS if key in labels},
            "ownerReferences": _owners(pod),
        },
        "spec": {name: value for name, value in wanted.items() if value not in ("", None, {})},
        "status": {"phase": str(scheduling.PodGroupPhase.PENDING)},
    }


def _min_member(owner_annotations: Mapping[str, str]) -> int:
    text = owner_annotations.get(names.GROUP_MIN_MEMBER, "")
    try:
        members = int(text)
    except ValueError:
        return 1
    return members if members >= 0 else 1


def _network_topology(annotations: Mapping[str, str]) -> Tree | None:
    mode = annotations.get(names.NETWORK_TOPOLOGY_MODE)
    tier = annotations.get(names.NETWORK_TOPOLOGY_HIGHEST_TIER)
    if mode is None and tier is None:
        return None
    lowered = (mode or "").lower()
    wanted: Tree = {"mode": lowered if lowered in _MODES else "hard"}
    try:
        wanted["highestTierAllowed"] = int(tier or "")
    except ValueError:
        pass
    return wanted


def _controller_uid(metadata: Mapping[str, Any]) -> str:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""


def _owners(pod: Mapping[str, Any]) -> list[Tree]:
    metadata = pod["metadata"]
    if _controller_uid(metadata):
        return list(metadata["ownerReferences"])
    return [controller_reference(POD, metadata["name"], metadata["uid"])]


def renewal(group: scheduling.PodGroup, wanted: Tree) -> Tree:
    """What to merge into a group after the template of its pods has changed; empty when it is
    right.

    Its queue stays: the queue that the namespace gave it is not known here (the original resets it,
    its bug 37).
    """
    spec, metadata = wanted["spec"], wanted["metadata"]
    live = {name: spec.get(name) for name in ("minMember", "priorityClassName", "networkTopology")}
    changes: Tree = {}
    if of_spec := difference(group, {**live, "minResources": spec.get("minResources") or {}}):
        changes["spec"] = of_spec
    for name, current in (
        ("labels", group.metadata.labels),
        ("annotations", group.metadata.annotations),
    ):
        new = {key: value for key, value in metadata[name].items() if current.get(key) != value}
        if new:
            changes.setdefault("metadata", {})[name] = new
    return changes


MOMENT = 3.0
"""Seconds without a bind of any such pod after which one that stands alone gets its group: then either
it does not fit, or the scheduler needs the object."""
LONGEST_MOMENT = 30.0
"""Seconds after which it gets its group however many others are bound meanwhile."""


class PodGroupController(Controller):
    """Creates the group of each pod that has none; with `always` at once, also of those that stand
    alone."""

    name = "pg-controller"

    def __init__(
        self,
        client: Client,
        caches: Caches,
        schedulers: Collection[str],
        *,
        inherit: bool = True,
        always: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(caches.pods, caches.groups)
        self._client = client
        self._pods = caches.pods
        self._groups = caches.groups
        self._schedulers = frozenset(schedulers)
        self._inherit = inherit
        self._always = always
        self._waiting: dict[str, float] = {}
        """Pods that stand alone and are not bound -> since when that is seen here."""
        self._last_bind = -math.inf
        self._recorder = recorder
        caches.pods.on_change(self._pod_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if new is None or not self._lacks_group(new):
            if self._waiting.pop(key, None) is not None and pod.spec.node_name:
                self._last_bind = time.monotonic()
            return
        if self._does_without(new):
            self._waiting.setdefault(key, time.monotonic())
        self.queue.add(key)

    def _lacks_group(self, pod: Pod) -> bool:
        return (
            not pod.metadata.annotations.group
            and pod.spec.scheduler_name in self._schedulers
            and not pod.leaving
            and not (pod.spec.node_name and self._does_without(pod))
        )

    def _does_without(self, pod: Pod) -> bool:
        return not self._always and stands_alone(msgspec.to_builtins(pod.metadata))

    def _moment_left(self, key: str) -> float:
        """Seconds until a pod that stands alone gets its group."""
        since = self._waiting.get(key, -math.inf)
        due = min(max(since, self._last_bind) + MOMENT, since + LONGEST_MOMENT)
        return due - time.monotonic()

    async def reconcile(self, key: str) -> float | None:
        seen = self._pods.get(key)
        if seen is None or not self._lacks_group(seen):
            return None
        if self._does_without(seen) and (left := self._moment_left(key)) > 0:
            return left
        namespace, name = split_key(key)
        try:
            pod = await self._client.get(core.POD.untyped, name, namespace)
            if (pod["metadata"].get("annotations") or {}).get(names.GROUP_NAME):
                return None
            wanted = group_of_pod(pod, await self._handed_down(pod))
            await self._ensure(pod, wanted)
            group = wanted["metadata"]["name"]
            await self._client.patch(
                POD, name, {"metadata": {"annotations": {names.GROUP_NAME: group}}}, namespace
            )
        except NotFound:
            return None  # the pod went meanwhile
        return None

    async def _ensure(self, pod: Tree, wanted: Tree) -> None:
        """Create the group, or update an existing one to what a changed template asks for, except
        for its queue.  Where the group is refused because its queue does not exist, no scheduler
        looks at the pod, so an event on the pod says so."""
        metadata = wanted["metadata"]
        group = self._groups.get(f"{metadata['namespace']}/{metadata['name']}")
        if group is None:
            try:
                await self._client.create(
                    scheduling.POD_GROUP.untyped, wanted, metadata["namespace"]
                )
            except AlreadyExists:
                pass
            except ApiError as error:
                if self._recorder is not None and 400 <= error.code < 500:
                    message = (
                        f"no PodGroup could be made for the pod, so it is not scheduled: {error}"
                    )
                    self._recorder.event(
                        {"apiVersion": "v1", "kind": "Pod", **pod},
                        "Warning",
                        "FailedCreatePodGroup",
                        message,
                    )
                raise
            return
        changes = renewal(group, wanted)
        if changes:
            await self._client.patch(
                scheduling.POD_GROUP.untyped, metadata["name"], changes, metadata["namespace"]
            )

    async def _handed_down(self, pod: Tree) -> dict[str, str]:
        """The annotations of the pod's owners, the first owner's before the next one's."""
        found: dict[str, str] = {}
        if not self._inherit:
            return found
        metadata = pod["metadata"]
        for reference in metadata.get("ownerReferences") or ():
            kind = _OWNERS.get((reference.get("apiVersion"), reference.get("kind")))
            if kind is None:
                continue
            try:
                owner = await self._client.get(
                    kind.untyped, reference["name"], metadata["namespace"]
                )
            except ApiError:
                continue
            found = {**(owner["metadata"].get("annotations") or {}), **found}
        return found


class IdleWorkloads(Controller):
    """Deletes the PodGroup of a ReplicaSet or StatefulSet while it has no pods to schedule."""

    name = "pg-controller-workloads"

    def __init__(self, client: Client, caches: Caches, kind: Kind[Any]) -> None:
        self._kind = read_as(kind, Workload)
        self._workloads: Cache[Workload] = Cache(client, self._kind)
        super().__init__(self._workloads, caches.groups)
        self._client = client
        self._groups = caches.groups
        self.enqueue(self._workloads)

    async def reconcile(self, key: str) -> float | None:
        workload = self._workloads.get(key)
        if workload is None or workload.spec.replicas != 0:
            return None
        name = names.bare_pod_group_name(workload.metadata.uid)
        if self._groups.get(f"{workload.metadata.namespace}/{name}") is not None:
            try:
                await self._client.delete(scheduling.POD_GROUP, name, workload.metadata.namespace)
            except NotFound:
                pass
        return None
