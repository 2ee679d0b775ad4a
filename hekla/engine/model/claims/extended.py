"""Devices under the name of an extended resource: a pod asks for `example.com/gpu: 2`, and a class
says that its devices are that.

Such a pod has a claim that nobody wrote.  What it asks for depends on the node: where a device
plugin has put the resource on the node itself, the node gives it; anywhere else devices of the
class do.  Kubernetes: DRA, extended resources (KEP 5004).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hekla.api.trees import Tree
from hekla.engine.model.resources import IMPLICIT

if TYPE_CHECKING:
    from hekla.engine.model.podclass import ContainerAmounts, PodClass


MARK = " <extended-resources>"
"""The end of a claim's key that stands for what a pod asks for by extended resources; no object has
such a name."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


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


__all__ = ["ANNOTATION", "MARK", "Implied", "backed_by", "implied", "pod_of"]
