"""Devices under the name of an extended resource: a pod asks for `example.com/gpu: 2`, and a class
says that its devices are that.

Such a pod has a claim that nobody wrote.  What it asks for depends on the node: where a device
plugin has put the resource on the node itself, the node gives it; anywhere else devices of the
class do.  Kubernetes: DRA, extended resources (KEP 5004).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Tree
from hekla.engine.model.claims.requests import CLAIM, CLASS
from hekla.engine.model.claims.search import meant
from hekla.engine.model.claims.slice_tracker import SliceTracker
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.resources import IMPLICIT
from hekla.engine.model.tasks import Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.podclass import ContainerAmounts, PodClass
    from hekla.engine.model.state import State


MARK = " <extended-resources>"
"""The end of a claim's key that stands for what a pod asks for by extended resources; no object has
such a name."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class ExtendedResources:
    """Which extended resources are had from device classes, and the claims that pods have by that."""

    def __init__(self, state: State, slices: SliceTracker) -> None:
        self._state = state
        self._slices = slices
        self._backed: dict[str, str] = {}
        """Extended resource -> class."""
        self._implied: BoundedCache[tuple[PodClass, frozenset[str]], Implied] = BoundedCache(512)
        self._lent_of: tuple[Hashable, ...] = ()
        """As of when nodes know what devices they have under the names of extended resources."""
        self.abandoned: dict[str, str] = {}
        """Claim that was made for extended resources -> the pod that was not bound with it."""

    def classes_changed(self) -> None:
        """Classes changed, and so perhaps which extended resources they back."""
        self._lent_of = ()
        backed = backed_by(self._state.others.get(CLASS, {}))
        if backed == self._backed:
            return
        self._backed = backed
        self._implied.clear()
        concerned = {
            id(pods)
            for pods in self._state.classes.by_key.values()
            if pods.extended and self._marked(pods)
        }
        for task in self._state.tasks.values() if concerned else ():
            if id(task.pods) in concerned and task.status is Status.PENDING:
                named = tuple(key for key in task.claims if not key.endswith(MARK))
                task.claims = (*named, task.key + MARK) if MARK in task.pods.claims else named
                if task.job is not None:
                    self._state.job_table.mark_changed(task.job)

    def _marked(self, pods: PodClass) -> bool:
        """Says in a class whether it has such a claim; gives whether that is another answer than
        before."""
        named = tuple(name for name in pods.claims if name != MARK)
        claims = (*named, MARK) if any(name in self._backed for name in pods.extended) else named
        changed = claims != pods.claims
        pods.claims = claims
        pods.settle()
        return changed

    def imply(self, task: Task, spec: Tree, status: Tree) -> None:
        """A pod that was read: whether its extended resources are a claim."""
        if not task.pods.extended:
            return
        self._marked(task.pods)
        if spec.get("nodeName"):
            return
        if MARK in task.pods.claims:
            task.claims = (*task.claims, task.key + MARK)
        left = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        if left:
            self.abandoned[f"{task.namespace}/{left}"] = task.key

    def claim(self, key: str) -> Tree | None:
        task = self._state.tasks.get(key.removesuffix(MARK))
        if task is None:
            return None
        owner = {"apiVersion": "v1", "kind": "Pod", "name": task.name, "uid": task.uid}
        metadata = {
            "name": MARK.strip(),
            "namespace": task.namespace,
            "uid": task.uid,
            "ownerReferences": [owner],
        }
        return {"metadata": metadata, "spec": self.on(task.pods, frozenset()).spec}

    def on(self, pods: PodClass, own: frozenset[str]) -> Implied:
        found = self._implied.get((pods, own))
        if found is None:
            found = self._implied[pods, own] = implied(pods, self._backed, own)
        return found

    def own(self, task: Task, row: int) -> frozenset[str]:
        """Extended resources of a pod that a node has by itself."""
        lent = self._state.nodes.lent
        return frozenset(
            name for name in task.pods.extended if name in lent and row in lent[name].own
        )

    def lend(self, nodes: NodeTable) -> None:
        """Nodes have as much of a backed resource as there are devices of its class that they see."""
        asked = [name for name in self._backed if name in nodes.space.index]
        if not asked and not nodes.lent:
            return
        offers = self._slices.devices_of_nodes(nodes)
        as_of = (self._slices.maps, *asked)
        if as_of == self._lent_of:
            return
        self._lent_of = as_of
        classes = self._state.others.get(CLASS, {})
        for name in sorted({*asked, *nodes.lent}):
            counts: dict[int, float] = {}
            made = classes.get(self._backed.get(name, "")) or {}
            for devices in offers if made else ():
                if id(devices) not in counts:
                    counts[id(devices)] = 1000.0 * sum(
                        meant(made, device) for device in devices.usable(self._slices.pools)
                    )
            amounts = {
                nodes.names[row]: counts[id(devices)]
                for row, devices in enumerate(offers)
                if counts.get(id(devices))
            }
            if name not in nodes.lent or nodes.lent[name].amounts != amounts:
                nodes.lend(name, amounts)

    def left_behind(self) -> list[tuple[str, str]]:
        """Claims for extended resources, and the uids of their pods, that were made for binds that
        never were."""
        found, tasks = [], self._state.tasks
        for key, pod in list(self.abandoned.items()):
            task = tasks.get(pod)
            claim = self._state.others.get(CLAIM, {}).get(key)
            annotations = ((claim or {}).get("metadata") or {}).get("annotations") or {}
            if (
                task is None
                or claim is None
                or task.status is not Status.PENDING
                or annotations.get(ANNOTATION) != "true"
            ):
                if task is None or task.status is not Status.PENDING:
                    del self.abandoned[key]
                continue
            del self.abandoned[key]
            found.append((key, task.uid))
        return found


def backed_by(classes: Mapping[str, Tree]) -> dict[str, str]:
    """Extended resource -> the class that it is had from: of several the one made last, and by name
    where that is the same."""
    result = {IMPLICIT + name: name for name in classes}
    newest: dict[str, str] = {}
    for name, tree in sorted(classes.items()):
        resource = (tree.get("spec") or {}).get("extendedResourceName")
        made = str((tree.get("metadata") or {}).get("creationTimestamp") or "")
        if resource and (resource not in newest or made > newest[resource]):
            newest[str(resource)], result[str(resource)] = made, name
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Implied:
    """The claim that a pod's extended resources amount to."""

    spec: Tree
    """As a ResourceClaim has it; without a request where nothing has to be had from classes."""
    mappings: tuple[tuple[int, str, str], ...]
    """Number of a container (those that run first included), resource, request."""

    @property
    def asks(self) -> bool:
        return bool(self.spec["devices"]["requests"])


def implied(
    pods: PodClass, backed: Mapping[str, str], own: frozenset[str] = frozenset()
) -> Implied:
    """What pods of a class ask for on nodes that have the resources of `own` by themselves.

    A container that is over before the others begin uses the devices of these, as far as they go.
    """
    requests: list[Tree] = []
    mappings: list[tuple[int, str, str]] = []
    later: dict[str, list[tuple[str, int]]] = {}
    containers = [*pods.init_containers, *pods.containers]
    first = range(len(pods.init_containers))

    def ask(number: int, place: int, resource: str, count: int) -> str:
        name = f"container-{number}-request-{place}"
        exactly = {
            "deviceClassName": backed[resource],
            "allocationMode": "ExactCount",
            "count": count,
        }
        requests.append({"name": name, "exactly": exactly})
        mappings.append((number, resource, name))
        return name

    for number, container in enumerate(containers):
        if number not in first or container.sidecar:
            for place, (resource, count) in enumerate(_wanted(container, backed, own)):
                name = ask(number, place, resource, count)
                if not container.sidecar:
                    later.setdefault(resource, []).append((name, count))
    for number in first:
        container = containers[number]
        for place, (resource, count) in enumerate(
            () if container.sidecar else _wanted(container, backed, own)
        ):
            left = count
            for name, size in later.get(resource, ()):
                if left > 0:
                    mappings.append((number, resource, name))
                    left -= size
            if left > 0:
                later.setdefault(resource, []).append((ask(number, place, resource, left), left))
    return Implied({"devices": {"requests": requests}}, tuple(sorted(mappings)))


def _wanted(
    container: ContainerAmounts, backed: Mapping[str, str], own: frozenset[str]
) -> list[tuple[str, int]]:
    asked = {**container.limits, **container.requests}
    return [
        (name, round(asked[name] / 1000))
        for name in sorted(asked)
        if asked[name] > 0 and name in backed and name not in own
    ]


def pod_of(claim: Tree) -> str:
    """The key of the pod that a written claim of this kind was made for; empty for any other claim."""
    meta = claim.get("metadata") or {}
    if (meta.get("annotations") or {}).get(ANNOTATION) != "true":
        return ""
    owner = next(
        (one.get("name") for one in meta.get("ownerReferences") or () if one.get("kind") == "Pod"),
        "",
    )
    return f"{meta.get('namespace', '')}/{owner}" if owner else ""
