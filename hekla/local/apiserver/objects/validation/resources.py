"""The rules of resource requests and limits (local-cluster 5.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from hekla.api.quantity import QuantityError
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.errors import invalid, required
from hekla.local.apiserver.objects.validation.metadata import Errors, label_key

Json = dict[str, Any]

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


@lru_cache(maxsize=4096)
def extended(name: str) -> bool:
    """A resource that Kubernetes does not know: devices, licences.  Whole numbers, never overcommitted."""
    return "/" in name and not name.startswith(("kubernetes.io/", "requests.")) and ".kubernetes.io/" not in name


@lru_cache(maxsize=4096)
def _name_reasons(name: str) -> tuple[str, ...]:
    reasons = label_key(name)
    if reasons:
        return reasons
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        return ("must be a standard resource type or fully qualified", "must be a standard resource for containers")
    return ()


@lru_cache(maxsize=4096)
def _amount_reason(name: str, text: Any) -> str:
    """Why this much of that resource cannot be asked for; empty when it can."""
    try:
        value = amount(text)
    except QuantityError as error:
        return error.wire
    if value.nanos < 0:
        return "must be greater than or equal to 0"
    if extended(name) and value.nanos % 10**9:
        return "must be an integer"
    return ""


@lru_cache(maxsize=8192)
def _exceeds(request: Any, limit: Any) -> bool:
    return amount(request) > amount(limit)


def requirements(resources: Json, path: str, found: Errors) -> None:
    """A container's `resources`."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for field, values in (("limits", limits), ("requests", requests)):
        for name, text in sorted(values.items()) if len(values) > 1 else values.items():
            for reason in _name_reasons(name):
                found.append(invalid(f"{path}.{field}[{name}]", name, reason))
            why = _amount_reason(name, text)
            if why:
                found.append(invalid(f"{path}.{field}[{name}]", text, why))
    for name, text in requests.items():
        limit = limits.get(name)
        if limit is None:
            if extended(name):
                found.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif limit != text and not _amount_reason(name, text) and not _amount_reason(name, limit):
            if extended(name):
                if amount(text) != amount(limit):
                    found.append(invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}"))
            elif _exceeds(text, limit):
                found.append(invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}"))
    for name in limits:
        if name not in requests and extended(name):
            found.append(invalid(f"{path}.requests", "0", f"must be equal to {name} limit of {limits[name]}"))


def amounts(values: Json | None, path: str, found: Errors, form: str = "{}[{}]") -> None:
    """A map from resource name to amount that must not be negative."""
    for name, text in (values or {}).items():
        for reason in label_key(name):
            found.append(invalid(form.format(path, name), name, reason))
        why = _amount_reason("", text)
        if why:
            found.append(invalid(form.format(path, name), text, why))
