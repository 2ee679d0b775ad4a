"""API objects as rows of the tables.  Pure; raises ValueError and the like for what cannot be
understood."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from hekla.api import meta
from hekla.api.kubernetes.placement import NodeSelector, Toleration
from hekla.api.names import CONFIG_SOURCE, MIRROR_POD, TASK_SPEC
from hekla.api.selectors import EVERYTHING, NOTHING, LabelSelector, of_object
from hekla.api.text import quantity
from hekla.api.text.durations import seconds
from hekla.api.text.times import instant
from hekla.api.trees import Tree
from hekla.descheduler.tables import (
    CPU,
    SILENT,
    Amounts,
    AntiAffinity,
    Node,
    Owner,
    Placement,
    Pod,
    Spread,
    Taint,
    Wishes,
)
from hekla.engine.model.annotations import EVICTION_GRACE, MIN_RUNTIME, SEMI_PREEMPTIBLE
from hekla.podrules.profiles import DELETION_COST
from hekla.podrules.usage import pod_resources

EVICT = "descheduler.alpha.kubernetes.io/evict"
PREEMPTABLE, COOLDOWN = "volcano.sh/preemptable", "volcano.sh/cooldown-time"
GROUP = "scheduling.k8s.io/group-name"
LONGEST_GRACE = 600.0
_WISHES = frozenset({MIN_RUNTIME, EVICTION_GRACE, SEMI_PREEMPTIBLE})
_YES, _NO = (
    frozenset({"true", "True", "TRUE", "1", "t", "T"}),
    frozenset({"false", "False", "FALSE", "0", "f", "F"}),
)
_PACK = msgspec.msgpack.Encoder(order="deterministic")

__all__ = ["TASK_SPEC", "node_of", "pod_of"]


def amounts(quantities: Tree | None) -> Amounts:
    """A resource list: millicores of cpu, whole units of all else."""
    return {
        name: float(quantity.milli(value)) if name == CPU else quantity.milli(value) / 1000
        for name, value in (quantities or {}).items()
    }


def node_of(tree: Tree) -> Node:
    metadata, spec, status = (tree.get(part) or {} for part in ("metadata", "spec", "status"))
    ready = [
        one.get("status") for one in status.get("conditions") or () if one.get("type") == "Ready"
    ]
    return Node(
        metadata["name"],
        metadata.get("labels") or {},
        tuple(
            Taint(one.get("key") or "", one.get("value") or "", one.get("effect") or "")
            for one in spec.get("taints") or ()
        ),
        bool(spec.get("unschedulable")),
        not ready or ready[0] == "True",
        amounts(status.get("allocatable")),
        amounts(status.get("capacity")),
    )


def pod_of(tree: Tree) -> Pod:
    metadata, spec, status = (tree.get(part) or {} for part in ("metadata", "spec", "status"))
    marks = metadata.get("annotations") or {}
    containers = status.get("containerStatuses") or ()
    inits = status.get("initContainerStatuses") or ()
    namespace = intern(metadata.get("namespace") or "")
    return Pod(
        metadata["name"],
        namespace,
        metadata.get("uid") or "",
        intern(spec.get("nodeName") or ""),
        _shared_labels(_PACK.encode(metadata.get("labels") or {})),
        tuple(
            Owner(intern(one.get("kind") or ""), intern(one.get("name") or ""))
            for one in metadata.get("ownerReferences") or ()
        ),
        intern(status.get("phase") or "Pending"),
        bool(metadata.get("deletionTimestamp")),
        instant(metadata.get("deletionTimestamp")),
        spec.get("priority"),
        intern(status.get("qosClass") or "BestEffort"),
        _requests(_PACK.encode({part: _of_resources(spec.get(part)) for part in ("containers", "initContainers")}
                               | {part: spec.get(part) for part in ("overhead", "resources")})),
        _placement(_PACK.encode([spec.get("nodeSelector"), _node_affinity(spec), spec.get("tolerations")])),
        tuple(sorted(intern(one.get("image") or "") for one in spec.get("containers") or ())),
        instant(metadata.get("creationTimestamp")),
        instant(status.get("startTime")),
        sum(one.get("restartCount") or 0 for one in containers),
        sum(one.get("restartCount") or 0 for one in inits),
        tuple(filter(None, (status.get("reason"), *_reasons(containers, "waiting", "terminated")))),
        tuple(_reasons(inits, "waiting", "terminated")),
        tuple(_reasons(containers, "waiting")),
        any("hostPath" in one or "emptyDir" in one for one in spec.get("volumes") or ()),
        any("persistentVolumeClaim" in one for one in spec.get("volumes") or ()),
        MIRROR_POD in marks,
        marks.get(CONFIG_SOURCE, "api") != "api",
        EVICT in marks,
        _truth(marks.get(PREEMPTABLE) or (metadata.get("labels") or {}).get(PREEMPTABLE)),
        _length(marks.get(COOLDOWN)),
        marks.get(GROUP) or "",
        _anti_affinity(spec, namespace),
        _spreads(_PACK.encode(spec.get("topologySpreadConstraints") or [])),
        intern(spec.get("priorityClassName") or ""),
        wishes_of(marks),
        _whole(marks.get(DELETION_COST)),
    )  # fmt: skip


def _of_resources(containers: Iterable[Tree] | None) -> list[Tree]:
    return [
        {"resources": one.get("resources"), "restartPolicy": one.get("restartPolicy")}
        for one in containers or ()
    ]


@lru_cache(maxsize=65536)
def _shared_labels(packed: bytes) -> Tree:
    found: Tree = msgspec.msgpack.decode(packed)
    return found


@lru_cache(maxsize=65536)
def _requests(packed: bytes) -> Amounts:
    spec = msgspec.msgpack.decode(packed)
    return {
        intern(name): float(amount.milli()) if name == CPU else amount.nanos / 1e9
        for name, amount in pod_resources(spec, "requests").items()
    }


def _node_affinity(spec: Tree) -> Any:
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node.get("requiredDuringSchedulingIgnoredDuringExecution")


@lru_cache(maxsize=16384)
def _placement(packed: bytes) -> Placement:
    selector, affinity, tolerations = msgspec.msgpack.decode(packed)
    return Placement(
        tuple(sorted((selector or {}).items())),
        msgspec.convert(affinity, NodeSelector) if affinity else None,
        tuple(msgspec.convert(tolerations or [], list[Toleration])),
        packed,
    )


def _reasons(statuses: Iterable[Tree], *states: str) -> Iterable[str]:
    for one in statuses:
        for state in states:
            reason = ((one.get("state") or {}).get(state) or {}).get("reason")
            if reason:
                yield intern(reason)


def _truth(text: str | None) -> bool | None:
    return True if text in _YES else False if text in _NO else None


def wishes_of(marks: Tree | None) -> Wishes:
    """What the annotations of calm eviction say; a job's grace has a limit, as in the scheduler's plugin."""
    if not marks or _WISHES.isdisjoint(marks):
        return SILENT
    runtime, grace = (_wish(marks.get(name)) for name in (MIN_RUNTIME, EVICTION_GRACE))
    return Wishes(
        runtime,
        None if grace is None else math.ceil(min(grace, LONGEST_GRACE)),
        {"true": True, "false": False}.get(marks.get(SEMI_PREEMPTIBLE) or ""),
    )


def _wish(text: str | None) -> float | None:
    try:
        found = seconds(text) if text else -1.0
    except ValueError:
        return None
    return found if found >= 0 else None


def _whole(text: str | None) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        return None


def _length(text: str | None) -> float:
    try:
        return seconds(text) if text else 0.0
    except ValueError:
        return 0.0


def label_selector(tree: Tree | None) -> LabelSelector:
    """A selector as an object carries it; without one, nothing."""
    if tree is None:
        return NOTHING
    return of_object(msgspec.convert(tree, meta.LabelSelector)) if tree else EVERYTHING


def _anti_affinity(spec: Tree, namespace: str) -> tuple[AntiAffinity, ...]:
    terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or ()
    return tuple(
        AntiAffinity(
            label_selector(one.get("labelSelector")),
            frozenset(one.get("namespaces") or (namespace,)),
            one.get("topologyKey") or "",
        )
        for one in terms
    )


@lru_cache(maxsize=16384)
def _spreads(packed: bytes) -> tuple[Spread, ...]:
    return tuple(
        Spread(
            one.get("maxSkew") or 1,
            one.get("topologyKey") or "",
            label_selector(one.get("labelSelector")),
            one.get("whenUnsatisfiable") == "DoNotSchedule",
        )
        for one in msgspec.msgpack.decode(packed)
    )
