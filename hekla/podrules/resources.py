"""Requests and limits of containers and of whole pods, and claims on devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice

from hekla.api.text.fielderrors import duplicate
from hekla.api.text.fieldrules import Errors, Tree, label_key
from hekla.api.text.quantity import ZERO, Quantity, QuantityError, Wire
from hekla.api.text.syntax import Reasons, dns_label, dns_subdomain

PAGES = "hugepages-"
OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED = frozenset(
    {
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "services",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
"""Resources of namespaces that are whole numbers."""
KNOWN = frozenset(
    {
        *OF_CONTAINERS,
        *COUNTED,
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)
"""Names without a prefix that mean something, if not for containers."""
OF_PODS = ("cpu", "memory")
"""What a pod can say as a whole, besides pages."""
_CLAIM_FORMS = ("resourceClaimName", "resourceClaimTemplateName")

Amounts = Mapping[str, Quantity]
amount = Quantity.parse


def amounts(resources: Tree, field: str) -> dict[str, Quantity]:
    return {name: amount(text) for name, text in (resources.get(field) or {}).items()}


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """Whether a resource is unknown to Kubernetes, such as devices or licences: whole numbers only,
    and never overcommitted."""
    return (
        not is_native(name)
        and not name.startswith("requests.")
        and not label_key(f"requests.{name}")
    )


def is_integer(name: str) -> bool:
    return name in COUNTED or is_extended(name)


def is_whole(value: Quantity) -> bool:
    """Whether a quantity is a whole number, counted in thousandths as resources are."""
    return value.milli() % 1000 == 0


@lru_cache(maxsize=4096)
def _container_name(name: str) -> Reasons:
    reasons = _any_name(name)
    if "/" not in name and name not in OF_CONTAINERS and not name.startswith(PAGES):
        return (*reasons, "must be a standard resource for containers")
    if not is_native(name) and not is_extended(name):
        return (*reasons, "doesn't follow extended resource name standard")
    return reasons


def _any_name(name: str) -> Reasons:
    reasons = label_key(name)
    if (
        not reasons
        and "/" not in name
        and name not in KNOWN
        and not name.startswith((PAGES, f"requests.{PAGES}"))
    ):
        return ("must be a standard resource type or fully qualified",)
    return reasons


@lru_cache(maxsize=4096)
def _amount_reasons(name: str, value: Quantity) -> Reasons:
    reasons = []
    if value < ZERO:
        reasons.append("must be greater than or equal to 0")
    if is_integer(name) and not is_whole(value):
        reasons.append("must be an integer")
    if name.startswith(PAGES) and not _in_pages(name, value):
        reasons.append(f"{value} is not positive integer multiple of {name}")
    return tuple(reasons)


def _in_pages(name: str, value: Quantity) -> bool:
    try:
        page = amount(name.removeprefix(PAGES))
    except QuantityError:
        return False
    return page > ZERO and is_whole(page) and abs(value.whole()) % page.whole() == 0


def of_container(resources: Tree, claims: Collection[str], path: str, found: Errors) -> None:
    """Check the `resources` of a container in a pod with these device claims."""
    limits, requests = resources.get("limits"), resources.get("requests")
    if not resources.get("claims") and _right(
        tuple(limits.items()) if limits else (), tuple(requests.items()) if requests else ()
    ):
        return
    _requirements(resources, _container_names, claims, path, found)


@lru_cache(maxsize=4096)
def _right(limits: tuple[tuple[str, Wire], ...], requests: tuple[tuple[str, Wire], ...]) -> bool:
    """Whether a resource list is valid; cached, because most containers request what others do."""
    found = Errors()
    _requirements(
        {"limits": dict(limits), "requests": dict(requests)}, _container_names, (), "", found
    )
    return not found


def _container_names(name: str, path: str, found: Errors) -> None:
    found.malformed(path, name, _container_name(name))


def _pod_names(name: str, path: str, found: Errors) -> None:
    reasons = _any_name(name)
    found.malformed(path, name, reasons)
    if not reasons and name not in OF_PODS and not name.startswith(PAGES):
        found.not_supported(path, name, sorted((*OF_PODS, PAGES)))


def _requirements(
    resources: Tree,
    check_name: Callable[[str, str, Errors], None],
    claims: Collection[str],
    path: str,
    found: Errors,
) -> None:
    limits, requests = amounts(resources, "limits"), amounts(resources, "requests")
    for field, given in (("limits", limits), ("requests", requests)):
        for name, value in given.items():
            where = f"{path}.{field}[{name}]"
            check_name(name, where, found)
            found.malformed(where, str(value), _amount_reasons(name, value))
            if given is requests:
                _against_limit(name, value, limits.get(name), path, found)
    names = limits.keys() | requests.keys()
    if (
        "cpu" not in names
        and "memory" not in names
        and any(name.startswith(PAGES) for name in names)
    ):
        found.forbidden(path, "HugePages require cpu or memory")
    if resources.get("claims"):
        _claims(resources["claims"], claims, f"{path}.claims", found)


def _against_limit(
    name: str, request: Quantity, limit: Quantity | None, path: str, found: Errors
) -> None:
    overcommit = is_native(name) and not name.startswith(PAGES)
    if limit is None:
        if not overcommit:
            found.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif not overcommit and request != limit:
        found.invalid(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
    elif request > limit:
        why = f"must be less than or equal to {name} limit of {limit}"
        found.invalid(f"{path}.requests", str(request), why)


MOST_NAMED = 100
"""Claims of the pod that a message names."""


def _claims(wanted: Iterable[Tree], there: Collection[str], path: str, found: Errors) -> None:
    """Check the claims of the pod that a container uses: whole claims, or single requests of them."""
    seen: set[str] = set()
    parts: Counter[str] = Counter()
    """How many requests of a claim are named."""
    for position, claim in enumerate(wanted):
        where = f"{path}[{position}]"
        name = claim.get("name") or ""
        request = claim.get("request") or ""
        if not name:
            found.required(where)
            continue
        if name in seen:
            found.duplicate(where, name)
        else:
            key = f"{name}/{request}" if request else name
            if request:
                found.malformed(f"{where}.request", request, dns_label(request))
            if key in seen:
                found.duplicate(where, key)
            elif not request:
                found += [duplicate(where, name)] * parts[name]
            seen.add(key)
            parts[name] += bool(request)
        if name not in there:
            known = (
                f": {', '.join(sorted(islice(there, MOST_NAMED)))}" if there else " which is empty"
            )
            found.not_found(
                where, name, f"must be one of the names in pod.spec.resourceClaims{known}"
            )


def pod_claims(claims: Iterable[Tree], path: str, found: Errors) -> None:
    """Check `spec.resourceClaims` of a pod."""
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        where, name = f"{path}[{position}]", claim.get("name") or ""
        if not name:
            found.required(f"{where}.name")
        elif name in seen:
            found.duplicate(f"{where}.name", name)
        else:
            found.malformed(f"{where}.name", name, dns_label(name))
            seen.add(name)
        given = [form for form in _CLAIM_FORMS if claim.get(form) is not None]
        if len(given) == len(_CLAIM_FORMS):
            why = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            found.invalid(where, claim, why)
        elif not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.invalid(where, claim, why)
        for form in given:
            found.malformed(f"{where}.{form}", claim[form], dns_subdomain(claim[form]))


def of_pod(spec: Tree, path: str, found: Errors) -> None:
    """Check `spec.resources` of a pod: it must cover the sum of the containers' requests and each
    of their limits."""
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        found.forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims"):
        found.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    there = dict.fromkeys(
        claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")
    )
    _requirements(resources, _pod_names, there, path, found)
    limits, requests = amounts(resources, "limits"), amounts(resources, "requests")
    asked = aggregate(spec, lambda given: amounts(given, "requests"))
    for name, request in requests.items():
        if name in asked and request < asked[name]:
            why = f"must be greater than or equal to aggregate container requests of {asked[name]}"
            found.invalid(f"{path}.requests[{name}]", str(request), why)
    _cover_limits(spec, limits, path, found)


def _cover_limits(spec: Tree, limits: Amounts, path: str, found: Errors) -> None:
    taken = aggregate(spec, lambda given: amounts(given, "limits"))
    for name, limit in limits.items():
        if name.startswith(PAGES) and name in taken and limit < taken[name]:
            why = f"must be greater than or equal to aggregate container limits of {taken[name]}"
            found.invalid(f"{path}.limits[{name}]", str(limit), why)
    for position, container in enumerate(spec.get("containers") or ()):
        for name, own in amounts(container.get("resources") or {}, "limits").items():
            if name in limits and own > limits[name]:
                why = f"must be less than or equal to pod limits of {limits[name]}"
                found.invalid(f"{path}.containers[{position}][{name}].limits", str(own), why)


def aggregate(spec: Tree, part: Callable[[Tree], Amounts]) -> dict[str, Quantity]:
    """The largest resources that containers use at once: all that run side by side, or one init
    container beside the restartable ones."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, part(container.get("resources") or {}))
    beside: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        requests = dict(part(container.get("resources") or {}))
        if container.get("restartPolicy") == "Always":
            _add(total, requests)
            _add(beside, requests)
            requests = {}
        _raise_to(
            peak,
            {name: value + beside.get(name, ZERO) for name, value in requests.items()} or beside,
        )
    _raise_to(total, peak)
    return total


def of_whole_pod(
    spec: Tree, field: str, part: Callable[[Tree], Amounts] | None = None
) -> dict[str, Quantity]:
    """What a pod asks for (`field` is requests or limits): what its containers use at once, or what
    it states as a whole, and its overhead.  `part`: what counts of a container's resources, if not
    just that field."""
    total = aggregate(spec, part or (lambda resources: amounts(resources, field)))
    total.update(amounts(spec.get("resources") or {}, field))
    for name, value in amounts(spec, "overhead").items():
        if field == "requests" or name in total:
            total[name] = total.get(name, ZERO) + value
    return total


def _add(total: dict[str, Quantity], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _raise_to(total: dict[str, Quantity], least: Amounts) -> None:
    for name, value in least.items():
        if name not in total or total[name] < value:
            total[name] = value
