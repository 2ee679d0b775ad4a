"""What an object uses of a quota (local-cluster 5.4): pods by their resources, services by type,
claims by size and class.

Every namespaced object uses 1 of `count/<resource>.<group>`; the other resources are in a table by
stored collection. These are pure functions: `apiserver.quotas` keeps the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.quantity import Quantity
from hekla.api.trees import Json
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.defaults.pod import qos_class
from hekla.podrules.resources import of_whole_pod

Usage = dict[str, Quantity]

ONE = Quantity.of_whole(1)
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
COMPUTE_RESOURCES_TO_SPECIFY = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""A quota that limits one of these rejects a pod with a container that does not specify it."""
OBJECT_COUNT_ALIASES = frozenset(
    {"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}
)
"""Collections that are also counted under their bare name."""
DEVICES_OF_ALLOCATION_MODE_ALL = Quantity.of_whole(32)
"""A request for all devices counts as the largest number that one claim can get."""


def usage(collection: str, tree: Json) -> Usage:
    """What a stored object uses."""
    used: Usage = {f"count/{collection}": ONE}
    more = _USAGE_OF.get(collection)
    if more is not None:
        more(tree, used)
    elif collection in OBJECT_COUNT_ALIASES:
        used[collection] = ONE
    return used


# --- pods -----------------------------------------------------------------------------------------


def _pod(tree: Json, used: Usage) -> None:
    if (tree.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return  # a finished pod uses no resources, but still counts as an object
    used["pods"] = ONE
    spec = tree.get("spec") or {}
    asked = resources_text(spec)
    known = _usage_by_resources.get(asked)
    if known is None:
        known = {}
        for field, prefix in (("requests", "requests."), ("limits", "limits.")):
            for name, value in of_whole_pod(spec, field).items():
                _add_compute_resource(known, name, value, prefix)
        _usage_by_resources[asked] = known
    used.update(known)


MAX_CACHED_PODS = 1024
_encode = msgspec.json.Encoder().encode
_usage_by_resources: BoundedCache[bytes, Usage] = BoundedCache(MAX_CACHED_PODS)
"""What pods use besides `pods`, by the bytes of `resources_text`."""


def resources_text(spec: Json) -> bytes:
    """All fields of a pod's spec that determine its resources; the same bytes for all pods of a
    template."""
    containers = [container.get("resources") for container in spec.get("containers") or ()]
    first = [
        (container.get("resources"), container.get("restartPolicy"))
        for container in spec.get("initContainers") or ()
    ]
    return _encode((containers, first, spec.get("resources"), spec.get("overhead")))


def _add_compute_resource(used: Usage, name: str, value: Quantity, prefix: str) -> None:
    huge = name.startswith("hugepages-")
    if name in _PLAIN or huge:
        used[f"{prefix}{name}"] = value
        if prefix == "requests.":
            used[name] = value
    elif prefix == "requests." and "/" in name:
        used[f"requests.{name}"] = value


def _add(into: Usage, more: Usage) -> None:
    for name, value in more.items():
        into[name] = into[name] + value if name in into else value


def _raise_to(into: Usage, other: Usage) -> None:
    """The maximum of both, for each resource."""
    for name, value in other.items():
        if name not in into or into[name] < value:
            into[name] = value


def unspecified_resources(tree: Json, limited: Iterable[str]) -> dict[str, list[str]]:
    """Limited compute resources that some containers of a pod do not specify -> names of these
    containers."""
    to_specify = [name for name in limited if name in COMPUTE_RESOURCES_TO_SPECIFY]
    if not to_specify:
        return {}
    missing: dict[str, list[str]] = {}
    spec = tree.get("spec") or {}
    whole = spec.get("resources") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        for name in to_specify:
            field, _, resource = name.partition(".") if "." in name else ("requests", "", name)
            if resource not in (resources.get(field) or {}) and resource not in (
                whole.get(field) or {}
            ):
                missing.setdefault(name, []).append(container.get("name") or "")
    return missing


# --- services, claims -----------------------------------------------------------------------------


def _service(tree: Json, used: Usage) -> None:
    used["services"] = ONE
    spec = tree.get("spec") or {}
    ports = spec.get("ports") or ()
    if spec.get("type") == "NodePort":
        used["services.nodeports"] = Quantity.of_whole(len(ports))
    elif spec.get("type") == "LoadBalancer":
        used["services.loadbalancers"] = ONE
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        used["services.nodeports"] = Quantity.of_whole(len(ports))


def _volume_claim(tree: Json, used: Usage) -> None:
    used["persistentvolumeclaims"] = ONE
    spec = tree.get("spec") or {}
    text = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    size = amount(text) if text is not None else None
    given = ((tree.get("status") or {}).get("allocatedResources") or {}).get("storage")
    if size is not None and given is not None:
        size = max(size, amount(given))
    if size is not None:
        used["requests.storage"] = size
    kind = spec.get("storageClassName")
    if kind:
        used[f"{kind}.storageclass.storage.k8s.io/persistentvolumeclaims"] = ONE
        if size is not None:
            used[f"{kind}.storageclass.storage.k8s.io/requests.storage"] = size


def _device_claim(tree: Json, used: Usage) -> None:
    devices = (tree.get("spec") or {}).get("devices") or {}
    for request in devices.get("requests") or ():
        worst: Usage = {}
        for asked in (
            [request["exactly"]] if request.get("exactly") else request.get("firstAvailable") or ()
        ):
            every = asked.get("allocationMode") == "All"
            count = (
                DEVICES_OF_ALLOCATION_MODE_ALL
                if every
                else Quantity.of_whole(asked.get("count") or 1)
            )
            _raise_to(
                worst,
                {f"{asked.get('deviceClassName')}.deviceclass.resource.k8s.io/devices": count},
            )
        _add(used, worst)


_USAGE_OF: dict[str, Callable[[Json, Usage], None]] = {
    "pods": _pod,
    "services": _service,
    "persistentvolumeclaims": _volume_claim,
    "resourceclaims.resource.k8s.io": _device_claim,
}


@lru_cache(maxsize=4096)
def can_use(collection: str, resource: str) -> bool:
    """Whether objects of a collection can use this resource of a quota."""
    if resource == f"count/{collection}":
        return True
    if collection == "pods":
        return (
            resource == "pods"
            or resource in _PLAIN
            or resource.startswith(("limits.", "hugepages-"))
            or (resource.startswith("requests.") and resource != "requests.storage")
        )
    if collection == "services":
        return resource.partition(".")[0] == "services"
    if collection == "persistentvolumeclaims":
        return (
            resource in ("persistentvolumeclaims", "requests.storage")
            or ".storageclass.storage.k8s.io/" in resource
        )
    if collection == "resourceclaims.resource.k8s.io":
        return resource.endswith(".deviceclass.resource.k8s.io/devices")
    return collection in OBJECT_COUNT_ALIASES and resource == collection


# --- scopes ---------------------------------------------------------------------------------------


def in_scope(collection: str, tree: Json, scopes: list[Json]) -> bool:
    """Whether a quota applies to an object. `scopes` are scope selector terms."""
    if not scopes or collection != "pods":
        return not scopes  # all scopes are about pods
    return all(_matches_scope(tree, term) for term in scopes)


def _matches_scope(pod: Json, term: Json) -> bool:
    spec = pod.get("spec") or {}
    match term.get("scopeName"):
        case "Terminating":
            return (spec.get("activeDeadlineSeconds") or -1) >= 0
        case "NotTerminating":
            return (spec.get("activeDeadlineSeconds") or -1) < 0
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            return _matches_priority_class(spec.get("priorityClassName") or "", term)
        case "CrossNamespacePodAffinity":
            return _uses_cross_namespace_affinity(spec.get("affinity") or {})
    return False


def _matches_priority_class(name: str, term: Json) -> bool:
    values = term.get("values") or ()
    match term.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
    return bool(name)


def _uses_cross_namespace_affinity(affinity: Json) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = [
            t.get("podAffinityTerm") or {}
            for t in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ]
        if any(
            term.get("namespaces") or term.get("namespaceSelector") is not None
            for term in [*required, *preferred]
        ):
            return True
    return False


def scope_terms(spec: Json) -> list[Json]:
    """Both forms of a quota's scopes (`scopes`, `scopeSelector`) as scope selector terms."""
    plain: list[Json] = [
        {"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()
    ]
    return plain + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())
