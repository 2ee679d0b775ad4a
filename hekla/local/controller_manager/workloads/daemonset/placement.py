"""Which nodes a DaemonSet's pods belong on, and how a pod is made that the scheduler can only put
on its node."""

from __future__ import annotations

from sys import intern
from typing import Any, NamedTuple

import msgspec

from hekla.api.kinds import read_as
from hekla.api.kubernetes.core import NODE
from hekla.api.kubernetes.placement import NodeSelector
from hekla.api.selectors import matches_node
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import shared

PREFIX = "node.kubernetes.io/"
TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints that DaemonSets' pods tolerate while other pods are evicted for them."""
TOLERATED_ON_THE_HOST = ("network-unavailable", "NoSchedule")


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        self.labels = {intern(name): intern(value) for name, value in self.labels.items()}


class Taint(msgspec.Struct, gc=False, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Spec(msgspec.Struct, gc=False):
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        self.taints = shared(self.taints)


class Node(msgspec.Struct, gc=False):
    """A node as placement sees it: labels and taints.  Cached only while there are DaemonSets."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)

    @property
    def name(self) -> str:
        return self.metadata.name

    def suits_as(self, other: Node) -> bool:
        """Whether two nodes are the same to every DaemonSet."""
        return (
            self.metadata.labels == other.metadata.labels and self.spec.taints == other.spec.taints
        )


NODES = read_as(NODE, Node)


class Fit(NamedTuple):
    """Whether a pod is to be on a node, and whether one that is there may stay."""

    run: bool
    stay: bool


def tolerations(spec: Json) -> list[Json]:
    """The template's tolerations and those that every daemon has."""
    found: list[Json] = list(spec.get("tolerations") or ())
    own = (*TOLERATED, *((TOLERATED_ON_THE_HOST,) if spec.get("hostNetwork") else ()))
    for name, effect in own:
        added = {"key": PREFIX + name, "operator": "Exists", "effect": effect}
        if added not in found:
            found.append(added)
    return found


def tolerates(toleration: Json, taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(
        operator == "Equal"
        and toleration.get("key")
        and (toleration.get("value") or "") == taint.value
    )


class Placement:
    """What a template asks of nodes, read once for many."""

    def __init__(self, template: Json) -> None:
        spec: Json = template.get("spec") or {}
        self.node_name: str = spec.get("nodeName") or ""
        self.labels: dict[str, str] = spec.get("nodeSelector") or {}
        self.tolerations = tolerations(spec)
        affinity: Any = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        self.required = msgspec.convert(affinity, NodeSelector) if affinity else None
        self._tolerated: dict[tuple[Taint, ...], Fit] = {}

    def on(self, node: Node) -> Fit:
        if self.node_name and self.node_name != node.name:
            return Fit(False, False)
        labels = node.metadata.labels
        if any(labels.get(name) != value for name, value in self.labels.items()):
            return Fit(False, False)
        if self.required is not None and not matches_node(self.required, node.name, labels):
            return Fit(False, False)
        taints = node.spec.taints
        if not taints:
            return Fit(True, True)
        fit = self._tolerated.get(taints)
        if fit is None:  # nodes share their taints, so few lists are looked at
            hostile = [
                t
                for t in taints
                if t.effect != "PreferNoSchedule"
                and not any(tolerates(own, t) for own in self.tolerations)
            ]
            fit = self._tolerated[taints] = Fit(
                not hostile, not any(taint.effect == "NoExecute" for taint in hostile)
            )
        return fit


def pod_spec(spec: Json, node: str) -> Json:
    """The template's pod spec, bound to one node by its name in a required affinity, so that the
    scheduler does the rest."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(spec.get("affinity") or {})
    by_node = dict(affinity.get("nodeAffinity") or {})
    by_node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": by_node},
        "tolerations": tolerations(spec),
    }
