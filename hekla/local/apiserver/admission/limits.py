"""LimitRange: default resources of containers, and bounds on what pods and claims may request
(local-cluster 5.4).

Ranges are read when a pod or claim is created.  A namespace without ranges costs one look into an
ordered list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hekla.api.bounded import BoundedCache
from hekla.api.text.quantity import ZERO, Quantity
from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes, TreeCache, remembered
from hekla.local.apiserver.admission.quotas import accepted_in
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.usage import resources_text
from hekla.local.apiserver.request.status import forbidden
from hekla.local.apiserver.storage.registry import Registry

ANNOTATION = "kubernetes.io/limit-ranger"
KNOWN_WITHIN = 512
Amounts = dict[str, Quantity]


class Limits:
    """The admission plugin of pods and volume claims."""

    def __init__(self, registry: Registry) -> None:
        self.collection = registry["limitranges"].collection
        self._trees = TreeCache()
        self._within: BoundedCache[tuple[tuple[int, ...], bytes], list[Json]] = BoundedCache(
            KNOWN_WITHIN
        )
        """Specs that were checked and are within the ranges."""
        self._ranges: BoundedCache[str, tuple[int, list[Json]]] = BoundedCache(KNOWN_WITHIN)
        """Namespace -> the collection's version, and the items of its ranges."""

    def ranges(self, namespace: str) -> list[Json]:
        """The items of all ranges of a namespace."""
        collection = self.collection
        if not collection.rows and not collection.overlay:
            return []
        known = self._ranges.get(namespace)
        if known is not None and known[0] == collection.version and not collection.overlay:
            return known[1]
        items = [
            item
            for row in accepted_in(collection, namespace)
            for item in (remembered(self._trees, row.key, row).get("spec") or {}).get("limits")
            or ()
        ]
        if not collection.overlay:
            self._ranges[namespace] = collection.version, items
        return items

    def fill(self, attributes: Attributes) -> None:
        """Fill the namespace's defaults into a new pod's containers."""
        pod = attributes.object
        spec = pod.get("spec") if pod is not None else None
        if pod is None or not isinstance(spec, dict):
            return
        items = [
            item for item in self.ranges(attributes.namespace) if item.get("type") == "Container"
        ]
        if not items:
            return
        requests, limits = merged(items, "defaultRequest"), merged(items, "default")
        said: list[str] = []
        for field, what in (("containers", "container"), ("initContainers", "init container")):
            for container in spec.get(field) or ():
                resources = container.setdefault("resources", {})
                for name, defaults in (("requests", requests), ("limits", limits)):
                    filled = fill(resources, name, defaults)
                    if filled:
                        said.append(
                            f"{', '.join(sorted(filled))} {name[:-1]} for {what} {container.get('name')}"
                        )
        if said:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(said)}"

    def check_pod(self, attributes: Attributes) -> None:
        """Refuse a pod outside of the bounds."""
        items = self.ranges(attributes.namespace)
        if not items:
            return
        assert attributes.object is not None
        spec = attributes.object.get("spec") or {}
        # The items are those of remembered trees: the same objects until a range changes.
        key = (tuple(map(id, items)), resources_text(spec))
        if key in self._within:
            return
        found: list[str] = []
        for item in items:
            if item.get("type") == "Container":
                for container in [
                    *(spec.get("containers") or ()),
                    *(spec.get("initContainers") or ()),
                ]:
                    resources = container.get("resources") or {}
                    bounds(
                        item,
                        amounts(resources.get("requests")),
                        amounts(resources.get("limits")),
                        found,
                    )
            elif item.get("type") == "Pod":
                bounds(item, together(spec, "requests"), together(spec, "limits"), found)
        self._refuse(attributes, found)
        self._within[key] = items  # which keeps their identities theirs

    def check_claim(self, attributes: Attributes) -> None:
        """Refuse a volume claim outside of the bounds."""
        items = [
            item
            for item in self.ranges(attributes.namespace)
            if item.get("type") == "PersistentVolumeClaim"
        ]
        if not items:
            return
        assert attributes.object is not None
        asked = amounts(
            ((attributes.object.get("spec") or {}).get("resources") or {}).get("requests")
        )
        found: list[str] = []
        for item in items:
            for resource, bound in sorted(amounts(item.get("min")).items()):
                least(item["type"], resource, bound, asked, {}, found)
            for resource, bound in sorted(amounts(item.get("max")).items()):
                most_asked(item["type"], resource, bound, asked, found)
        self._refuse(attributes, found)

    def _refuse(self, attributes: Attributes, found: list[str]) -> None:
        texts = list(dict.fromkeys(found))
        if texts:
            why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            raise forbidden(attributes.resource.kind, attributes.name, why)


def merged(items: list[Json], field: str) -> dict[str, Any]:
    """The defaults of several ranges.  For each resource the first range that names it wins."""
    found: dict[str, Any] = {}
    for item in items:
        for name, text in (item.get(field) or {}).items():
            found.setdefault(name, text)
    return found


def fill(resources: Json, field: str, defaults: dict[str, Any]) -> list[str]:
    present = resources.get(field) or {}
    missing = {name: text for name, text in defaults.items() if name not in present}
    if missing:
        resources[field] = {**present, **missing}
    return list(missing)


def amounts(values: Json | None) -> Amounts:
    return {name: amount(text) for name, text in (values or {}).items()}


def together(spec: Json, field: str) -> Amounts:
    """What a pod requests: the sum of its containers, or the largest init container if that is
    more."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        for name, value in amounts((container.get("resources") or {}).get(field)).items():
            total[name] = total.get(name, ZERO) + value
    for container in spec.get("initContainers") or ():
        for name, value in amounts((container.get("resources") or {}).get(field)).items():
            if container.get("restartPolicy") == "Always":
                total[name] = total.get(name, ZERO) + value
            elif name not in total or total[name] < value:
                total[name] = value
    total.update(amounts((spec.get("resources") or {}).get(field)))
    return total


def bounds(item: Json, requests: Amounts, limits: Amounts, found: list[str]) -> None:
    kind = item["type"]
    checks: tuple[
        tuple[str, Callable[[str, str, Quantity, Amounts, Amounts, list[str]], None]], ...
    ] = (("min", least), ("max", most), ("maxLimitRequestRatio", ratio))
    for field, check in checks:
        for resource, bound in sorted(amounts(item.get(field)).items()):
            check(kind, resource, bound, requests, limits, found)


def least(
    kind: str, resource: str, bound: Quantity, requests: Amounts, limits: Amounts, found: list[str]
) -> None:
    request, limit = requests.get(resource), limits.get(resource)
    if request is None:
        found.append(f"minimum {resource} usage per {kind} is {bound}.  No request is specified")
    elif request < bound:
        found.append(f"minimum {resource} usage per {kind} is {bound}, but request is {request}")
    elif limit is not None and limit < bound:
        found.append(f"minimum {resource} usage per {kind} is {bound}, but limit is {limit}")


def most(
    kind: str, resource: str, bound: Quantity, requests: Amounts, limits: Amounts, found: list[str]
) -> None:
    request, limit = requests.get(resource), limits.get(resource)
    if limit is None:
        found.append(f"maximum {resource} usage per {kind} is {bound}.  No limit is specified")
    elif limit > bound:
        found.append(f"maximum {resource} usage per {kind} is {bound}, but limit is {limit}")
    elif request is not None and request > bound:
        found.append(f"maximum {resource} usage per {kind} is {bound}, but request is {request}")


def most_asked(
    kind: str, resource: str, bound: Quantity, requests: Amounts, found: list[str]
) -> None:
    request = requests.get(resource)
    if request is None:
        found.append(f"maximum {resource} usage per {kind} is {bound}.  No request is specified")
    elif request > bound:
        found.append(f"maximum {resource} usage per {kind} is {bound}, but request is {request}")


def ratio(
    kind: str, resource: str, bound: Quantity, requests: Amounts, limits: Amounts, found: list[str]
) -> None:
    request, limit = requests.get(resource), limits.get(resource)
    what = f"{resource} max limit to request ratio per {kind} is {bound}, but"
    if not request:
        found.append(f"{what} no request is specified or request is 0")
    elif not limit:
        found.append(f"{what} no limit is specified or limit is 0")
    elif limit.nanos * 10**9 > bound.nanos * request.nanos:
        found.append(f"{what} provided ratio is {limit.nanos / request.nanos:.6f}")
