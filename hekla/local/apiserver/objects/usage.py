"""What an object counts for in a quota (local-cluster 5.4): pods by what they ask for, services by
type, claims by size and class.

Every namespaced object counts for `count/<resource>.<group>`; what it counts for beside that is a
table by stored collection. Pure functions: what has been used already, and by whom, is the business
of `apiserver.quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.quantity import ZERO, Quantity
from hekla.api.trees import Json
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.defaults.pod import qos_class

Usage = dict[str, Quantity]

ONE = Quantity.of_whole(1)
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
MUST_BE_GIVEN = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""A quota on one of these refuses a pod with a container that leaves it open."""
SHORT_COUNTS = frozenset({"configmaps", "secrets", "replicationcontrollers", "resourcequotas"})
"""Collections that are also counted under their bare name."""
ALL_DEVICES = Quantity.of_whole(32)
"""A request for all devices of a class counts for as many as one claim can be given."""


def usage(collection: str, tree: Json) -> Usage:
    """What a stored object counts for."""
    found: Usage = {f"count/{collection}": ONE}
    more = _OF.get(collection)
    if more is not None:
        more(tree, found)
    elif collection in SHORT_COUNTS:
        found[collection] = ONE
    return found


# --- pods -----------------------------------------------------------------------------------------


def _pod(tree: Json, found: Usage) -> None:
    if (tree.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return  # what has ended asks for nothing more, but the object is still there
    found["pods"] = ONE
    spec = tree.get("spec") or {}
    asked = resources_text(spec)
    known = _asked.get(asked)
    if known is None:
        known = {}
        for field, prefix in (("requests", "requests."), ("limits", "limits.")):
            for name, value in pod_resources(spec, field).items():
                _charge(known, name, value, prefix)
        _asked[asked] = known
    found.update(known)


KNOWN_POD_RESOURCES = 1024
_encode = msgspec.json.Encoder().encode
_asked: BoundedCache[bytes, Usage] = BoundedCache(KNOWN_POD_RESOURCES)
"""What pods count for beside being pods, by all that says how much they ask for."""


def resources_text(spec: Json) -> bytes:
    """All of a pod's spec that says how much it asks for, the same for the pods of a template."""
    containers = [container.get("resources") for container in spec.get("containers") or ()]
    first = [
        (container.get("resources"), container.get("restartPolicy"))
        for container in spec.get("initContainers") or ()
    ]
    return _encode((containers, first, spec.get("resources"), spec.get("overhead")))


def _charge(found: Usage, name: str, value: Quantity, prefix: str) -> None:
    huge = name.startswith("hugepages-")
    if name in _PLAIN or huge:
        found[f"{prefix}{name}"] = value
        if prefix == "requests.":
            found[name] = value
    elif prefix == "requests." and "/" in name:
        found[f"requests.{name}"] = value


def pod_resources(spec: Json, field: str) -> Usage:
    """The requests or limits of a whole pod: its containers together, or what one init container
    needs while it runs, and overhead."""
    together: Usage = {}
    for container in spec.get("containers") or ():
        _add(together, _resources(container, field))
    beside: Usage = {}
    """Sidecars started so far run beside all that follows."""
    largest: Usage = {}
    for container in spec.get("initContainers") or ():
        own = _resources(container, field)
        if container.get("restartPolicy") == "Always":
            _add(beside, own)
            _add(together, own)
            _raise(largest, beside)
        else:
            _raise(largest, {name: value + beside.get(name, ZERO) for name, value in own.items()})
    _raise(together, largest)
    whole = (spec.get("resources") or {}).get(field)
    for name, text in (whole or {}).items():
        together[name] = amount(text)
    for name, text in (spec.get("overhead") or {}).items():
        if field == "requests" or name in together:
            together[name] = together.get(name, ZERO) + amount(text)
    return together


def _resources(container: Json, field: str) -> Usage:
    return {
        name: amount(text)
        for name, text in ((container.get("resources") or {}).get(field) or {}).items()
    }


def _add(into: Usage, more: Usage) -> None:
    for name, value in more.items():
        into[name] = into[name] + value if name in into else value


def _raise(into: Usage, other: Usage) -> None:
    for name, value in other.items():
        if name not in into or into[name] < value:
            into[name] = value


def left_open(tree: Json, limited: Iterable[str]) -> dict[str, list[str]]:
    """Resources that are limited and that some container does not name, with those containers."""
    wanted = [name for name in limited if name in MUST_BE_GIVEN]
    if not wanted:
        return {}
    found: dict[str, list[str]] = {}
    spec = tree.get("spec") or {}
    whole = spec.get("resources") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        for name in wanted:
            field, _, resource = name.partition(".") if "." in name else ("requests", "", name)
            if resource not in (resources.get(field) or {}) and resource not in (
                whole.get(field) or {}
            ):
                found.setdefault(name, []).append(container.get("name") or "")
    return found


# --- services, claims -----------------------------------------------------------------------------


def _service(tree: Json, found: Usage) -> None:
    found["services"] = ONE
    spec = tree.get("spec") or {}
    ports = spec.get("ports") or ()
    if spec.get("type") == "NodePort":
        found["services.nodeports"] = Quantity.of_whole(len(ports))
    elif spec.get("type") == "LoadBalancer":
        found["services.loadbalancers"] = ONE
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        found["services.nodeports"] = Quantity.of_whole(len(ports))


def _volume_claim(tree: Json, found: Usage) -> None:
    found["persistentvolumeclaims"] = ONE
    spec = tree.get("spec") or {}
    text = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    size = amount(text) if text is not None else None
    given = ((tree.get("status") or {}).get("allocatedResources") or {}).get("storage")
    if size is not None and given is not None:
        size = max(size, amount(given))
    if size is not None:
        found["requests.storage"] = size
    kind = spec.get("storageClassName")
    if kind:
        found[f"{kind}.storageclass.storage.k8s.io/persistentvolumeclaims"] = ONE
        if size is not None:
            found[f"{kind}.storageclass.storage.k8s.io/requests.storage"] = size


def _device_claim(tree: Json, found: Usage) -> None:
    devices = (tree.get("spec") or {}).get("devices") or {}
    for request in devices.get("requests") or ():
        worst: Usage = {}
        for asked in (
            [request["exactly"]] if request.get("exactly") else request.get("firstAvailable") or ()
        ):
            every = asked.get("allocationMode") == "All"
            count = ALL_DEVICES if every else Quantity.of_whole(asked.get("count") or 1)
            _raise(
                worst,
                {f"{asked.get('deviceClassName')}.deviceclass.resource.k8s.io/devices": count},
            )
        _add(found, worst)


_OF: dict[str, Callable[[Json, Usage], None]] = {
    "pods": _pod,
    "services": _service,
    "persistentvolumeclaims": _volume_claim,
    "resourceclaims.resource.k8s.io": _device_claim,
}


@lru_cache(maxsize=4096)
def counted(collection: str, resource: str) -> bool:
    """Whether objects of a collection can count for this name in a quota."""
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
    return collection in SHORT_COUNTS and resource == collection


# --- scopes ---------------------------------------------------------------------------------------


def in_scope(collection: str, tree: Json, scopes: list[Json]) -> bool:
    """Whether an object is one of those that a quota is about; `scopes` are scope selector terms."""
    if collection != "pods":
        return not scopes  # every scope there is speaks of pods
    return all(_fits(tree, term) for term in scopes)


def _fits(pod: Json, term: Json) -> bool:
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
            return _class_fits(spec.get("priorityClassName") or "", term)
        case "CrossNamespacePodAffinity":
            return _looks_across(spec.get("affinity") or {})
    return False


def _class_fits(name: str, term: Json) -> bool:
    values = term.get("values") or ()
    match term.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
    return bool(name)


def _looks_across(affinity: Json) -> bool:
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


def terms_of(spec: Json) -> list[Json]:
    """The scopes of a quota in their one general form."""
    plain: list[Json] = [
        {"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()
    ]
    return plain + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())
