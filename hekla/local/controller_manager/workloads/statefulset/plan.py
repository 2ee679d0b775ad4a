"""What to do about a StatefulSet now: a pure function of its spec and its pods.

Ordered sets take one step at a time, upwards when they grow, downwards when they shrink or change
their template, and wait for each pod to be available; parallel ones do not wait.  Reference:
local-cluster 10.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from hekla.api.sizes import room
from hekla.api.text.times import age_of
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import Pod, waiting
from hekla.local.controller_manager.workloads.revisions import HASH_LABEL
from hekla.local.controller_manager.workloads.rollout import share
from hekla.local.controller_manager.workloads.statefulset.identity import ordinal_of

BURST = 500
"""Pods of a parallel set that are made in one go, as of a ReplicaSet."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """Names of revisions: the one that all pods had, and the one that they are to get."""

    current: str
    update: str


@dataclass(slots=True)
class Plan:
    """Steps; carrying them out in this order is what the caller does."""

    recreate: list[Pod] = field(default_factory=list)
    """Pods that have ended, to be deleted so that they can be made again."""
    create: list[tuple[int, str]] = field(default_factory=list)
    """(ordinal, revision) of pods to make."""
    delete: list[Pod] = field(default_factory=list)
    """Pods too many, or of an old revision."""
    wait: float | None = None
    """Seconds until the plan may change without any event."""


def revision_of(pod: Pod) -> str:
    return pod.metadata.labels.get(HASH_LABEL, "")


def window(spec: Json) -> range:
    """The ordinals that the set should have."""
    start = (spec.get("ordinals") or {}).get("start", 0)
    return range(start, start + spec.get("replicas", 1))


def minimum_ready(spec: Json) -> float:
    return float(spec.get("minReadySeconds", 0))


def running_and_ready(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.ready


def wait_for(pods: list[Pod], minimum: float, now: float) -> float | None:
    """Seconds until the next ready pod will count as available."""
    left = [
        minimum - age_of(pod.ready_since, now)
        for pod in pods
        if running_and_ready(pod) and not pod.available(minimum, now)
    ]
    return min(left, default=None)


def split(stateful_set: Json, pods: list[Pod]) -> tuple[dict[int, Pod], list[Pod]]:
    """The pods by wanted ordinal, and those beyond, highest first."""
    name, wanted = stateful_set["metadata"]["name"], window(stateful_set["spec"])
    placed: dict[int, Pod] = {}
    beyond = []
    for pod in pods:
        ordinal = ordinal_of(name, pod.metadata.name)
        if ordinal in wanted:
            placed[ordinal] = pod
        elif ordinal >= 0:
            beyond.append((ordinal, pod))
    return placed, [pod for _, pod in sorted(beyond, key=lambda found: -found[0])]


def revision_for(stateful_set: Json, ordinal: int, revisions: Revisions) -> str:
    """The revision that a pod gets when it is created now: the old one below the partition, and
    while the rolling update has not reached it."""
    spec = stateful_set["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return revisions.update
    rolling, start = strategy.get("rollingUpdate"), window(spec).start
    if rolling is None:
        kept = stateful_set.get("status", {}).get("currentReplicas", 0)
    else:
        kept = rolling.get("partition") or 0
    return revisions.current if ordinal < start + kept else revisions.update


def plan(stateful_set: Json, pods: list[Pod], revisions: Revisions, now: float) -> Plan:
    """The next steps."""
    spec = stateful_set["spec"]
    minimum = minimum_ready(spec)
    ordered = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
    placed, beyond = split(stateful_set, pods)
    made = Plan(wait=wait_for([*placed.values(), *beyond], minimum, now))
    if ordered:
        if not grown_in_order(made, stateful_set, placed, revisions, minimum, now):
            return made
    else:
        free = (ordinal for ordinal in window(spec) if ordinal not in placed)
        more = min(BURST, room(len(window(spec)), waiting(placed.values())))
        made.create = [
            (ordinal, revision_for(stateful_set, ordinal, revisions))
            for ordinal in islice(free, more)
        ]
        made.recreate = [
            placed[ordinal]
            for ordinal in sorted(placed)
            if placed[ordinal].finished and not placed[ordinal].deleting
        ]
    for pod in beyond:
        if pod.deleting:
            if ordered:
                return made
            continue
        # The lowest unhealthy pod may be deleted: it might never become healthy.
        if (
            ordered
            and not well(pod, minimum, now)
            and first_ill(placed, beyond, minimum, now) is not pod
        ):
            return made
        made.delete.append(pod)
        if ordered:
            return made
    if made.create or made.recreate:
        return made
    made.delete += outdated(stateful_set, placed, revisions, minimum, now)
    return made


def grown_in_order(
    made: Plan,
    stateful_set: Json,
    placed: dict[int, Pod],
    revisions: Revisions,
    minimum: float,
    now: float,
) -> bool:
    """Whether all ordinals up to the highest have healthy pods; else the one step towards that is
    added to the plan."""
    for ordinal in window(stateful_set["spec"]):
        pod = placed.get(ordinal)
        if pod is None:
            made.create.append((ordinal, revision_for(stateful_set, ordinal, revisions)))
            return False
        if pod.finished:
            if not pod.deleting:
                made.recreate.append(pod)
            return False
        if pod.deleting or not running_and_ready(pod) or not pod.available(minimum, now):
            return False
    return True


def well(pod: Pod, minimum: float, now: float) -> bool:
    """Whether a pod is healthy: not being deleted, running, and ready for long enough."""
    return not pod.deleting and running_and_ready(pod) and pod.available(minimum, now)


def first_ill(placed: dict[int, Pod], beyond: list[Pod], minimum: float, now: float) -> Pod | None:
    """The unhealthy pod with the lowest ordinal."""
    lowest_first = (*(placed[ordinal] for ordinal in sorted(placed)), *reversed(beyond))
    return next((pod for pod in lowest_first if not well(pod, minimum, now)), None)


def outdated(
    stateful_set: Json, placed: dict[int, Pod], revisions: Revisions, minimum: float, now: float
) -> list[Pod]:
    """The pods that the rolling update deletes now, from the highest ordinal down: one after the
    other, or as many as may be unavailable.  Of several at a time, those that are unavailable
    anyway do not count."""
    spec = stateful_set["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    rolling, wanted = strategy.get("rollingUpdate") or {}, window(spec)
    most = max(1, share(rolling.get("maxUnavailable") or 1, len(wanted), up=True))
    lowest = wanted.start + (rolling.get("partition") or 0)
    candidates = [placed[ordinal] for ordinal in sorted(placed, reverse=True) if ordinal >= lowest]
    spare = most - sum(not well(pod, minimum, now) for pod in placed.values())
    taken: list[Pod] = []
    for pod in candidates:
        old = revision_of(pod) != revisions.update and not pod.deleting
        if most == 1:
            if old:
                return [pod]
            if not well(pod, minimum, now):
                return []
        elif old and not well(pod, minimum, now):
            taken.append(pod)
        elif old and spare > 0:
            taken.append(pod)
            spare -= 1
    return taken


def status_of(stateful_set: Json, pods: list[Pod], revisions: Revisions, now: float) -> Json:
    """The status that the pods give."""
    spec, before = stateful_set["spec"], stateful_set.get("status", {})
    minimum = minimum_ready(spec)
    known = [
        pod for pod in pods if ordinal_of(stateful_set["metadata"]["name"], pod.metadata.name) >= 0
    ]
    live = [pod for pod in known if not pod.deleting]
    counts = {
        "readyReplicas": sum(running_and_ready(pod) for pod in known),
        "currentReplicas": sum(revision_of(pod) == revisions.current for pod in live),
        "updatedReplicas": sum(revision_of(pod) == revisions.update for pod in live),
    }
    replicas = len(known)
    current, wanted = revisions.current, spec.get("replicas", 1)
    rolling = (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
    if rolling and counts["updatedReplicas"] == replicas == counts["readyReplicas"] == wanted:
        # The update is complete.
        current = revisions.update
        counts["currentReplicas"] = counts["updatedReplicas"]
    status: Json = {
        "observedGeneration": stateful_set["metadata"].get("generation", 0),
        "replicas": replicas,
        **{name: count for name, count in counts.items() if count},
        "availableReplicas": sum(
            running_and_ready(pod) and pod.available(minimum, now) for pod in known
        ),
        "currentRevision": current,
        "updateRevision": revisions.update,
        "collisionCount": before.get("collisionCount", 0),
    }
    if before.get("conditions"):
        status["conditions"] = before["conditions"]
    return status
