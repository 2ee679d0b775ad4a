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
from hekla.podrules.resources import of_whole_pod

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

    def part(resources: Mapping[str, Any]) -> Usage:
        given = resources.get(side) or {}
        if side == "requests":
            # The API server fills absent requests from limits; templates have not been there yet.
            given = {**(resources.get("limits") or {}), **given}
        return {name: Quantity.parse(text) for name, text in given.items()}

    return of_whole_pod(dict(spec), side, part)


def add(total: Usage, more: Mapping[str, Quantity], times: int = 1) -> None:
    """Add to a sum in place."""
    for name, amount in more.items():
        part = amount * times
        total[name] = total[name] + part if name in total else part


def _extended(name: str) -> bool:
    """Whether a resource is an extended one, which a vendor has named."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
