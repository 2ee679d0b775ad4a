"""What to do about a DaemonSet now: a pure function of its spec, the nodes and its pods.
Reference: local-cluster 10.6."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.text.times import age_of
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.daemonset.placement import Fit
from hekla.local.controller_manager.workloads.revisions import HASH_LABEL
from hekla.local.controller_manager.workloads.rollout import share


@dataclass(slots=True)
class Plan:
    """Steps towards one pod a node."""

    create: list[str] = field(default_factory=list)
    """Nodes that are to get a pod."""
    delete: list[Pod] = field(default_factory=list)
    ended: list[Pod] = field(default_factory=list)
    """Of the deleted pods those that have ended by themselves, which an event reports."""
    resting: list[str] = field(default_factory=list)
    """Nodes whose pods failed recently and are left alone for a while."""
    wait: float | None = None
    """Seconds until the plan may change without any event."""


class Limits(NamedTuple):
    """Of a rolling update: nodes without an available pod, and nodes with one pod more."""

    unavailable: int
    surge: int


def target_of(pod: Pod) -> str:
    """The node that a pod is on or is meant for."""
    return pod.spec.node_name or pod.spec.target_node


def by_node(pods: list[Pod]) -> dict[str, list[Pod]]:
    """The pods of each node: bound ones first, then the oldest."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(
        pods, key=lambda p: (not p.spec.node_name, p.metadata.creation_timestamp, p.metadata.name)
    ):
        found.setdefault(target_of(pod), []).append(pod)
    return found


def limits(spec: Json, desired: int) -> Limits:
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    unavailable = share(rolling.get("maxUnavailable", 1), desired, up=True)
    surge = share(rolling.get("maxSurge", 0), desired, up=True)
    return Limits(unavailable if unavailable or surge else 1, surge)


def surges(spec: Json) -> bool:
    strategy = spec.get("updateStrategy") or {}
    return strategy.get("type", "RollingUpdate") == "RollingUpdate" and limits(spec, 100).surge > 0


def plan(
    daemon_set: Json,
    fits: Mapping[str, Fit],
    pods: list[Pod],
    hashes: Collection[str],
    resting: Mapping[str, float],
    now: float,
) -> Plan:
    """The next steps.  `fits` has every node; `hashes` are those of the present template; `resting`
    gives, for nodes whose pods failed recently, the seconds until a failed pod is deleted."""
    spec, made = daemon_set["spec"], Plan()
    minimum, places = float(spec.get("minReadySeconds", 0)), by_node(pods)
    for name, fit in fits.items():
        here = places.get(name, [])
        if not here:
            if fit.run:
                made.create.append(name)
            continue
        if not fit.stay:
            made.delete += [pod for pod in here if not pod.deleting]
            continue
        running = []
        for pod in here:
            if pod.deleting:
                continue
            if not pod.finished:
                running.append(pod)
            elif pod.status.phase == "Failed" and resting.get(name, 0.0) > 0:
                made.resting.append(name)
            else:
                made.ended.append(pod)
        made.delete += surplus(running, hashes, minimum, now, surge=surges(spec))
    for name, here in places.items():
        # The node is gone; of its pods the collector takes care once they cannot be running.
        if name and name not in fits:
            made.delete += [pod for pod in here if not pod.deleting and not pod.spec.node_name]
    made.delete += made.ended
    if (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
        update(made, spec, fits, places, hashes, now)
    made.wait = min(
        [resting[name] for name in made.resting] + waits(pods, minimum, now), default=None
    )
    return made


def waits(pods: list[Pod], minimum: float, now: float) -> list[float]:
    """Seconds until ready pods count as available."""
    return [
        minimum - age_of(pod.ready_since, now)
        for pod in pods
        if minimum and pod.ready and not pod.available(minimum, now)
    ]


def surplus(
    running: list[Pod], hashes: Collection[str], minimum: float, now: float, *, surge: bool
) -> list[Pod]:
    """The pods of a node to delete: all but the first, or, in a surge, all but the first old and
    the first new."""
    if not surge:
        return running[1:]
    new = [pod for pod in running if is_new(pod, hashes)]
    old = [pod for pod in running if not is_new(pod, hashes)]
    gone = new[1:] + old[1:]
    if new and old and (not old[0].ready or new[0].available(minimum, now)):
        gone.append(old[0])
    return gone


def is_new(pod: Pod, hashes: Collection[str]) -> bool:
    return pod.metadata.labels.get(HASH_LABEL, "") in hashes


def update(
    made: Plan,
    spec: Json,
    fits: Mapping[str, Fit],
    places: Mapping[str, list[Pod]],
    hashes: Collection[str],
    now: float,
) -> None:
    """Add the steps of the rolling update: delete old pods that are not available, and of the
    others as many as may be unavailable."""
    minimum = float(spec.get("minReadySeconds", 0))
    limit = limits(spec, sum(fit.run for fit in fits.values()))
    gone = {pod.metadata.uid for pod in made.delete}
    missing = over = 0
    replace: list[Pod] = []
    candidates: list[Pod] = []
    surge: list[str] = []
    for name, fit in fits.items():
        if not fit.run:
            continue
        live = [
            pod
            for pod in places.get(name, [])
            if not pod.deleting and not pod.finished and pod.metadata.uid not in gone
        ]
        new = next((pod for pod in live if is_new(pod, hashes)), None)
        old = next((pod for pod in live if not is_new(pod, hashes)), None)
        if limit.surge:
            if new is not None and not new.available(minimum, now):
                over += 1
            elif new is None and old is not None:
                (surge.insert(0, name) if not old.available(minimum, now) else surge.append(name))
            continue
        if old is None:
            missing += new is None or not new.available(minimum, now)
        elif not old.available(minimum, now):
            replace.append(old)
        else:
            candidates.append(old)
    if limit.surge:
        made.create += surge[: max(0, limit.surge - over)]
    else:
        made.delete += replace + candidates[: max(0, limit.unavailable - missing - len(replace))]


def status_of(
    daemon_set: Json, fits: Mapping[str, Fit], pods: list[Pod], hashes: Collection[str], now: float
) -> Json:
    """The status that nodes and pods give."""
    minimum, places = float(daemon_set["spec"].get("minReadySeconds", 0)), by_node(pods)
    desired = current = misplaced = ready = available = updated = 0
    for name, fit in fits.items():
        here = places.get(name, [])
        if not fit.run:
            misplaced += bool(here)
            continue
        desired += 1
        current += bool(here)
        ready += any(pod.ready and not pod.deleting for pod in here)
        available += any(pod.available(minimum, now) and not pod.deleting for pod in here)
        updated += any(is_new(pod, hashes) for pod in here)
    before = daemon_set.get("status", {})
    more = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
        "collisionCount": before.get("collisionCount", 0),
    }
    status: Json = {
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "observedGeneration": daemon_set["metadata"].get("generation", 0),
        **{name: count for name, count in more.items() if count},
    }
    if before.get("conditions"):
        status["conditions"] = before["conditions"]
    return status
