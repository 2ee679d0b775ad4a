"""Requests and limits of containers and of whole pods.  Reference: api-and-admission 5.3.5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hekla.admission.fielderrors import forbidden, invalid, required, unsupported
from hekla.admission.resources import is_extended, is_integer_resource, is_native, is_whole
from hekla.admission.review import Tree
from hekla.admission.syntax import qualified_name
from hekla.api.quantity import Quantity

ZERO = Quantity.parse(0)
STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGEPAGES = "hugepages-"

Amounts = Mapping[str, Quantity]


def amounts(resources: Tree, field: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in (resources.get(field) or {}).items()}


def effective_requests(resources: Tree) -> dict[str, Quantity]:
    """Requests as the API server defaults them: a limit without a request asks for as much."""
    return {**amounts(resources, "limits"), **amounts(resources, "requests")}


def container_problems(resources: Tree, path: str) -> Iterator[str]:
    if not resources:
        return
    limits, requests = amounts(resources, "limits"), effective_requests(resources)
    for name, limit in limits.items():
        yield from _name_problems(name, f"{path}.limits[{name}]")
        yield from _value_problems(name, limit, f"{path}.limits[{name}]")
    for name, request in requests.items():
        where = f"{path}.requests[{name}]"
        if name not in limits:  # a name with a limit was judged above
            yield from _name_problems(name, where)
        if name in (resources.get("requests") or {}):
            yield from _value_problems(name, request, where)
        yield from _against_limit(name, request, limits.get(name), path)
    huge = any(name.startswith(HUGEPAGES) for name in requests)
    if huge and not {"cpu", "memory"} & requests.keys():
        yield forbidden(path, "HugePages require cpu or memory")


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
        yield invalid(path, name, "must be a standard resource for containers")
    elif "/" in name and not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _value_problems(name: str, value: Quantity, path: str) -> Iterator[str]:
    if value < ZERO:
        yield invalid(path, str(value), "must be greater than or equal to 0")
    if is_integer_resource(name) and not is_whole(value):
        yield invalid(path, str(value), "must be an integer")


def pod_problems(spec: Tree, path: str) -> Iterator[str]:
    """`spec.resources` of a pod: it must cover what its containers ask for together."""
    resources = spec.get("resources")
    if not resources:
        return
    limits, requests = amounts(resources, "limits"), amounts(resources, "requests")
    for field, given in (("limits", limits), ("requests", requests)):
        for name, value in given.items():
            if name not in ("cpu", "memory") and not name.startswith(HUGEPAGES):
                yield unsupported(f"{path}.{field}[{name}]", name, ("cpu", "hugepages-", "memory"))
            yield from _value_problems(name, value, f"{path}.{field}[{name}]")
    for name, request in requests.items():
        if name in limits and request > limits[name]:
            yield invalid(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limits[name]}")
    asked = aggregate_requests(spec)
    for name, request in requests.items():
        if name in asked and request < asked[name]:
            text = f"must be greater than or equal to aggregate container requests of {asked[name]}"
            yield invalid(f"{path}.requests[{name}]", str(request), text)


def aggregate_requests(spec: Tree) -> dict[str, Quantity]:
    """What the containers need at once: all that run side by side, or one init container beside the restartable ones."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or []:
        _add(total, effective_requests(container.get("resources") or {}))
    beside: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or []:
        requests = effective_requests(container.get("resources") or {})
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
