"""Requests and limits of containers and of whole pods.  Reference: api-and-admission 5.3.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hekla.admission.fielderrors import duplicate, forbidden, invalid, not_found, required, unsupported
from hekla.admission.resources import INTEGER_RESOURCES, is_extended, is_integer_resource, is_native, is_whole
from hekla.admission.review import Tree
from hekla.admission.syntax import qualified_name
from hekla.api.quantity import Quantity, QuantityError

ZERO = Quantity.parse(0)
STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGEPAGES = "hugepages-"
OTHER_STANDARD = frozenset(
    {
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
"""Names without a prefix that are resources, of quotas and claims though and not of containers."""

Amounts = Mapping[str, Quantity]


def amounts(resources: Tree, field: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in (resources.get(field) or {}).items()}


def container_problems(resources: Tree, claims: Sequence[str], path: str) -> Iterator[str]:
    """Against `resources` of a container in a pod that has these claims on devices."""
    if not resources:
        return
    limits, requests = amounts(resources, "limits"), amounts(resources, "requests")
    for name, limit in limits.items():
        yield from _name_problems(name, f"{path}.limits[{name}]")
        yield from _value_problems(name, limit, f"{path}.limits[{name}]")
    for name, request in requests.items():
        where = f"{path}.requests[{name}]"
        yield from _name_problems(name, where)
        yield from _value_problems(name, request, where)
        yield from _against_limit(name, request, limits.get(name), path)
    yield from _hugepages({**limits, **requests}, path)
    yield from _claims(resources.get("claims") or [], claims, f"{path}.claims")


def _hugepages(requests: Amounts, path: str) -> Iterator[str]:
    if any(name.startswith(HUGEPAGES) for name in requests) and not {"cpu", "memory"} & requests.keys():
        yield forbidden(path, "HugePages require cpu or memory")


def _claims(wanted: list[Tree], there: Sequence[str], path: str) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(wanted):
        name, request = claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(f"{path}[{index}]")
            continue
        if (name, request) in seen:
            yield duplicate(f"{path}[{index}]", name)
        elif name not in there:
            text = "must be one of the names in pod.spec.resourceClaims" + ("" if there else " which is empty")
            yield not_found(f"{path}[{index}]", name) + f": {text}"
        seen.add((name, request))


def _against_limit(name: str, request: Quantity, limit: Quantity | None, path: str) -> Iterator[str]:
    overcommit = is_native(name) and not name.startswith(HUGEPAGES)
    if limit is None:
        if not overcommit:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif not overcommit and request != limit:
        yield invalid(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
    elif overcommit and request > limit:
        yield invalid(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limit}")


def _name_problems(name: str, path: str) -> Iterator[str]:
    for reason in qualified_name(name):
        yield invalid(path, name, reason)
    if "/" not in name and name not in STANDARD and not name.startswith(HUGEPAGES):
        if name not in INTEGER_RESOURCES and name not in OTHER_STANDARD:
            yield invalid(path, name, "must be a standard resource type or fully qualified")
        yield invalid(path, name, "must be a standard resource for containers")
    elif "/" in name and not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _value_problems(name: str, value: Quantity, path: str) -> Iterator[str]:
    if value < ZERO:
        yield invalid(path, str(value), "must be greater than or equal to 0")
    if is_integer_resource(name) and not is_whole(value):
        yield invalid(path, str(value), "must be an integer")
    page = page_of(name)
    if page and value >= ZERO and value.nanos % page.nanos:
        yield invalid(path, str(value), f"{value} is not positive integer multiple of {name}")


def page_of(name: str) -> Quantity | None:
    """How large a huge page of this resource is; None for what is none."""
    try:
        return Quantity.parse(name.removeprefix(HUGEPAGES)) if name.startswith(HUGEPAGES) else None
    except QuantityError:
        return None


def pod_problems(spec: Tree, path: str) -> Iterator[str]:
    """`spec.resources` of a pod: it must cover what its containers ask for together, and each of their limits."""
    resources = spec.get("resources")
    if not resources:
        return
    if resources.get("claims"):
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
        there = [claim.get("name") or "" for claim in spec.get("resourceClaims") or []]
        yield from _claims(resources["claims"], there, f"{path}.claims")
    limits, requests = amounts(resources, "limits"), amounts(resources, "requests")
    for field, given in (("limits", limits), ("requests", requests)):
        for name, value in given.items():
            if name not in ("cpu", "memory") and not name.startswith(HUGEPAGES):
                yield unsupported(f"{path}.{field}[{name}]", name, ("cpu", "hugepages-", "memory"))
            yield from _value_problems(name, value, f"{path}.{field}[{name}]")
            if field == "requests":
                yield from _against_limit(name, value, limits.get(name), path)
    yield from _hugepages({**limits, **requests}, path)
    asked = aggregate(spec, lambda given: amounts(given, "requests"))
    for name, request in requests.items():
        if name in asked and request < asked[name]:
            text = f"must be greater than or equal to aggregate container requests of {asked[name]}"
            yield invalid(f"{path}.requests[{name}]", str(request), text)
    yield from _limits(spec, limits, path)


def _limits(spec: Tree, limits: Amounts, path: str) -> Iterator[str]:
    taken = aggregate(spec, lambda given: amounts(given, "limits"))
    for name, limit in limits.items():
        if name.startswith(HUGEPAGES) and name in taken and limit < taken[name]:
            text = f"must be greater than or equal to aggregate container limits of {taken[name]}"
            yield invalid(f"{path}.limits[{name}]", str(limit), text)
    for index, container in enumerate(spec.get("containers") or []):
        for name, own in amounts(container.get("resources") or {}, "limits").items():
            if name in limits and own > limits[name]:
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{path}.containers[{index}][{name}].limits", str(own), text)


def aggregate(spec: Tree, part: Callable[[Tree], Amounts]) -> dict[str, Quantity]:
    """A part of the containers' resources at once: of all that run side by side, or of one init container beside the
    restartable ones."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or []:
        _add(total, part(container.get("resources") or {}))
    beside: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or []:
        requests = dict(part(container.get("resources") or {}))
        if container.get("restartPolicy") == "Always":
            _add(total, requests)
            _add(beside, requests)
            requests = {}
        _raise_to(peak, {name: value + beside.get(name, ZERO) for name, value in requests.items()} or beside)
    _raise_to(total, peak)
    return total


def _add(total: dict[str, Quantity], more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _raise_to(total: dict[str, Quantity], least: Amounts) -> None:
    for name, value in least.items():
        if name not in total or total[name] < value:
            total[name] = value
