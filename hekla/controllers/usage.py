"""What a pod counts for against a quota, by Kubernetes' rules; PodGroups state their minResources
in these terms.

Requests of main containers add up; init containers run one after another, so the largest counts;
those that go on running (restartPolicy Always) add to all that come after them.  The pod's overhead
is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.api.text.quantity import Quantity

Usage = dict[str, Quantity]

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


def pod_usage(spec: Mapping[str, Any]) -> Usage:
    """The quota usage of one pod: counts, requests under both of their names, limits."""
    usage: Usage = {"count/pods": Quantity.of_whole(1), "pods": Quantity.of_whole(1)}
    for name, amount in pod_resources(spec, "requests").items():
        if name in _NATIVE or name.startswith("hugepages-") or _extended(name):
            usage[name] = amount
            usage[f"requests.{name}"] = amount
    for name, amount in pod_resources(spec, "limits").items():
        if name in _NATIVE:
            usage[f"limits.{name}"] = amount
    return usage


def pod_resources(spec: Mapping[str, Any], side: str) -> Usage:
    """What a pod asks for (`side` is requests or limits), over all its containers."""
    total: Usage = {}
    for container in spec.get("containers") or ():
        add(total, _of(container, side))
    sidecars: Usage = {}
    peak: Usage = {}
    for container in spec.get("initContainers") or ():
        own = _of(container, side)
        if container.get("restartPolicy") == "Always":
            add(total, own)
            add(sidecars, own)
            own = dict(sidecars)
        else:
            own = dict(own)
            add(own, sidecars)
        _raise_to(peak, own)
    _raise_to(total, peak)
    for name, text in ((spec.get("resources") or {}).get(side) or {}).items():
        total[name] = Quantity.parse(text)  # resources of the whole pod take the place of the sum
    overhead = {name: Quantity.parse(text) for name, text in (spec.get("overhead") or {}).items()}
    add(
        total,
        {name: amount for name, amount in overhead.items() if side == "requests" or name in total},
    )
    return total


def add(total: Usage, more: Mapping[str, Quantity], times: int = 1) -> None:
    """Add to a sum in place."""
    for name, amount in more.items():
        part = amount * times
        total[name] = total[name] + part if name in total else part


def _of(container: Mapping[str, Any], side: str) -> Usage:
    resources = container.get("resources") or {}
    given = resources.get(side) or {}
    if side == "requests":
        # The API server fills absent requests from limits; templates have not been there yet.
        given = {**(resources.get("limits") or {}), **given}
    return {name: Quantity.parse(text) for name, text in given.items()}


def _raise_to(total: Usage, least: Mapping[str, Quantity]) -> None:
    for name, amount in least.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def _extended(name: str) -> bool:
    """Whether a resource is an extended one, which a vendor has named."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
