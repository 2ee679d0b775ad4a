"""The rules of the core kinds other than pods (local-cluster 5.3 to 5.7, 5.9)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Hashable

from hekla.api.names import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN
from hekla.api.text import addresses
from hekla.api.text.fielderrors import forbidden, required
from hekla.api.text.fieldrules import Errors, label_key
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.encoding.typecheck import type_name
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.hashable import hashable
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata
from hekla.local.apiserver.objects.validation.resources import amounts
from hekla.local.apiserver.objects.validation.taints import taints

MAX_DATA_BYTES = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"


# --- ConfigMap, Secret ----------------------------------------------------------------------------


def config_map(tree: Json) -> Errors:
    errors = metadata(tree)
    data, binary = tree.get("data") or {}, tree.get("binaryData") or {}
    size = 0
    for key, text in data.items():
        errors.malformed(f"data[{key}]", key, names.configuration_key(key))
        if key in binary:
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(text.encode())
    for key, text in binary.items():
        errors.malformed(f"binaryData[{key}]", key, names.configuration_key(key))
        size += len(text) * 3 // 4
    if size > MAX_DATA_BYTES:
        errors.too_long("[]", MAX_DATA_BYTES)
    return errors


def config_map_update(new: Json, old: Json) -> Errors:
    errors = config_map(new)
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", _FROZEN)
        for name in ("data", "binaryData"):
            if (new.get(name) or {}) != (old.get(name) or {}):
                errors.forbidden(name, _FROZEN)
    return errors


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret(tree: Json) -> Errors:
    errors = metadata(tree)
    data = tree.get("data") or {}
    size = 0
    for key, text in data.items():
        errors.malformed(f"data[{key}]", key, names.configuration_key(key))
        size += len(text) * 3 // 4
    if size > MAX_DATA_BYTES:
        errors.too_long("data", MAX_DATA_BYTES)
    kind = tree.get("type") or ""
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            errors.required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not ("username" in data or "password" in data):
        errors += [required("data[username]"), required("data[password]")]
    for type, key in (
        ("kubernetes.io/dockerconfigjson", ".dockerconfigjson"),
        ("kubernetes.io/dockercfg", ".dockercfg"),
    ):
        if kind == type and key in data and (why := _no_json(data[key])):
            errors.invalid(f"data[{key}]", "<secret contents redacted>", why)
    if kind == SERVICE_ACCOUNT_TOKEN:
        annotations = (tree.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(SERVICE_ACCOUNT_NAME):
            errors.required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")
    return errors


def _no_json(text: str) -> str:
    """Why a text is not a JSON object; empty if it is one."""
    try:
        tree = documents.json_tree(b64decode(text))
    except BadBody as error:
        return str(error)
    if tree is None or isinstance(tree, dict):
        return ""
    return (
        f"json: cannot unmarshal {type_name(tree)} into Go value of type map[string]interface {{}}"
    )


def secret_update(new: Json, old: Json) -> Errors:
    errors = secret(new)
    immutable(new.get("type"), old.get("type"), "type", errors)
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", _FROZEN)
        if (new.get("data") or {}) != (old.get("data") or {}):
            errors.forbidden("data", _FROZEN)
    return errors


def namespace_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    phase = (new.get("status") or {}).get("phase") or ""
    going = "deletionTimestamp" in new["metadata"]
    if going and phase != "Terminating":
        errors.invalid(
            "status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"
        )
    elif not going and phase != "Active":
        errors.invalid(
            "status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"
        )
    return errors


# --- Node -----------------------------------------------------------------------------------------


def node(tree: Json) -> Errors:
    errors = metadata(tree)
    taints((tree.get("spec") or {}).get("taints"), "spec.taints", errors)
    status = tree.get("status") or {}
    for name in ("capacity", "allocatable"):
        amounts(status.get(name), f"status.{name}", errors, "{}.{}")
    ranges = (tree.get("spec") or {}).get("podCIDRs") or ()
    read = [
        addresses.network(text, f"spec.podCIDRs[{position}]", errors)
        for position, text in enumerate(ranges)
    ]
    if len(ranges) > 1 and (
        len(ranges) > 2 or len({given.version for given in read if given is not None}) < 2
    ):
        errors.invalid(
            "spec.podCIDRs", list(ranges), "may specify no more than one CIDR for each IP family"
        )
    return errors


def node_update(new: Json, old: Json) -> Errors:
    errors = node(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    seen: set[Hashable] = set()
    for position, address in enumerate((new.get("status") or {}).get("addresses") or ()):
        if hashable(address) in seen:
            errors.duplicate(f"status.addresses[{position}]", address)
        seen.add(hashable(address))
    ranges, previous = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    rule = 'node updates may not change podCIDR except from "" to valid'
    if previous and len(ranges) != len(previous):
        errors.forbidden("spec.podCIDRs", rule)
    elif previous:
        errors += [
            forbidden("spec.podCIDRs", rule)
            for ours, theirs in zip(ranges, previous, strict=True)
            if ours != theirs
        ]
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        errors.forbidden(
            "spec.providerID", 'node updates may not change providerID except from "" to valid'
        )
    return errors


# --- Events ---------------------------------------------------------------------------------------


_MAX_LENGTHS = {"reportingInstance": 128, "action": 128, "reason": 1024}


def _event_fields(tree: Json, about: str, controller: str, note: str, errors: Errors) -> None:
    """The fields that every event needs, and those that an event with an eventTime needs besides."""
    namespace = (tree.get("metadata") or {}).get("namespace") or ""
    place = (tree.get(about) or {}).get("namespace") or ""
    dated = bool(tree.get("eventTime"))
    free = ("", "default", "kube-system") if dated else ("", "default")
    if (place and place != namespace and not dated) or (not place and namespace not in free):
        errors.invalid("involvedObject.namespace", place, "does not match event.namespace")
    if not dated:
        return
    value = tree.get(controller) or ""
    if not value:
        errors.required(controller)
    errors.malformed(controller, value, names.qualified_name(value))
    for name, limit in _MAX_LENGTHS.items():
        text = tree.get(name) or ""
        if not text:
            errors.required(name)
        if len(text.encode()) > limit:
            errors.invalid(name, "", f"can have at most {limit} characters")
    if len((tree.get(note) or "").encode()) > 1024:
        errors.invalid("message", "", "can have at most 1024 characters")


def event(tree: Json) -> Errors:
    """Events of v1. An event with an eventTime needs more fields."""
    errors = metadata(tree)
    _event_fields(tree, "involvedObject", "reportingComponent", "message", errors)
    return errors


def _series(tree: Json, errors: Errors) -> None:
    series = tree.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        errors.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        errors.required("series.lastObservedTime")


_OLD_FIELDS = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
)


def new_event(tree: Json) -> Errors:
    """Events of events.k8s.io."""
    errors = metadata(tree)
    _event_fields(tree, "regarding", "reportingController", "note", errors)
    name = (tree.get("metadata") or {}).get("name") or ""
    if name:
        errors.malformed("metadata.name", name, names.dns_subdomain(name))
    _series(tree, errors)
    if not tree.get("eventTime"):
        errors.required("eventTime")
    if tree.get("type") not in ("Normal", "Warning"):
        errors.invalid("type", "", "has invalid value: " + str(tree.get("type") or ""))
    for name, shown in _OLD_FIELDS:
        if tree.get(name):
            errors.invalid(shown, "", "needs to be unset")
    return errors


def new_event_update(new: Json, old: Json) -> Errors:
    """After creation, only the series of an event may change."""
    errors = metadata(new)
    _event_fields(new, "regarding", "reportingController", "note", errors)
    if new.get("series") != old.get("series"):
        _series(new, errors)
    fixed = (
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    )
    for name, shown in fixed:
        value, before = new.get(name) or None, old.get(name) or None
        if value != before:
            immutable(
                "" if value is None and isinstance(before, str) else value, before, shown, errors
            )
    return errors


# --- quotas and limits ----------------------------------------------------------------------------

_WHOLE = frozenset(
    {
        "pods", "services", "services.nodeports", "services.loadbalancers", "replicationcontrollers", "resourcequotas", "secrets",
        "configmaps", "persistentvolumeclaims",
    }
)  # fmt: skip
_QUOTA_RESOURCES = _WHOLE | frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "requests.storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    }
)


_COMPUTE = frozenset(
    {
        "pods",
        *(f"{part}{name}" for part in ("", "limits.", "requests.") for name in ("cpu", "memory")),
    }
)
_SCOPED: dict[str, Collection[str]] = {
    **dict.fromkeys(
        (
            "Terminating",
            "NotTerminating",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
        ),
        _COMPUTE,
    ),
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The resources that a quota with this scope may limit."""


def resource_quota(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    _hard(spec.get("hard") or {}, "spec.hard", errors)
    for scope in spec.get("scopes") or ():
        if scope not in _SCOPED:
            errors.invalid("spec.scopes", spec["scopes"], "unsupported scope")
        for resource in spec.get("hard") or {}:
            if resource in _QUOTA_RESOURCES and resource not in _SCOPED.get(
                scope, _QUOTA_RESOURCES
            ):
                errors.invalid(
                    "spec.scopes", spec["scopes"], "unsupported scope applied to resource"
                )
    for pair in _OPPOSITES:
        if pair <= set(spec.get("scopes") or ()):
            errors.invalid("spec.scopes", spec["scopes"], "conflicting scopes")
    _scope_selector(spec, errors)
    return errors


def _hard(hard: Json, path: str, errors: Errors) -> None:
    """The quantities in `hard` or `used`, by resource name."""
    for resource, text in hard.items():
        where = f"{path}[{resource}]"
        reasons = label_key(resource)
        errors.malformed(where, resource, reasons)
        known = resource in _QUOTA_RESOURCES or resource.startswith(
            ("hugepages-", "requests.hugepages-")
        )
        if "/" not in resource and not known:
            if not reasons:
                errors.invalid(
                    where, resource, "must be a standard resource type or fully qualified"
                )
            errors.invalid(where, resource, "must be a standard resource for quota")
        value = amount(text).nanos
        if value < 0:
            errors.invalid(where, text, "must be greater than or equal to 0")
        if (resource in _WHOLE or resource.startswith("count/")) and value % 10**9:
            errors.invalid(where, text, "must be an integer")


_ALONE = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "CrossNamespacePodAffinity",
)


def _scope_selector(spec: Json, errors: Errors) -> None:
    wanted = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    path = "spec.scopeSelector.matchExpressions"
    for term in wanted:
        scope = term.get("scopeName") or ""
        operator = term.get("operator") or ""
        values = term.get("values") or ()
        if scope not in _SCOPED:
            errors.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for resource in sorted(spec.get("hard") or {}):
            if resource in _QUOTA_RESOURCES and resource not in _SCOPED.get(
                scope, _QUOTA_RESOURCES
            ):
                errors.invalid(path, spec["scopeSelector"], "unsupported scope applied to resource")
        if scope in _ALONE and operator != "Exists":
            why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            why += "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            errors.invalid(f"{path}.operator", operator, why)
        if operator in ("In", "NotIn"):
            if not values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.required(f"{path}.values", why)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.invalid(f"{path}.values", list(values), why)
        else:
            errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    named = {term.get("scopeName") for term in wanted}
    for pair in _OPPOSITES:
        if pair <= named:
            errors.invalid("spec.scopes", spec.get("scopes"), "conflicting scopes")


_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def resource_quota_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    for name in ("hard", "used"):
        _hard((new.get("status") or {}).get(name) or {}, f"status.{name}", errors)
    return errors


def resource_quota_update(new: Json, old: Json) -> Errors:
    errors = resource_quota(new)
    scopes = (new.get("spec") or {}).get("scopes") or []
    before = (old.get("spec") or {}).get("scopes") or []
    if set(scopes) != set(before):
        errors.invalid("spec.scopes", scopes or None, "field is immutable")
    return errors


def limit_range(tree: Json) -> Errors:
    errors = metadata(tree)
    seen: set[str] = set()
    for position, item in enumerate((tree.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{position}]"
        kind = item.get("type") or ""
        reasons = label_key(kind)
        errors.malformed(f"{path}.type", kind, reasons)
        if (
            not reasons
            and "/" not in kind
            and kind not in ("Container", "PersistentVolumeClaim", "Pod")
        ):
            errors.invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        if kind in seen:
            errors.duplicate(f"{path}.type", kind)
        seen.add(kind)
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            if kind == "Pod" and name in ("default", "defaultRequest"):
                if item.get(name):
                    errors.forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
                continue
            bounded = any("storage" in (item.get(side) or {}) for side in ("min", "max"))
            if name == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim" and not bounded:
                why = (
                    "either minimum or maximum storage value is required, but neither was provided"
                )
                errors.required(f"{path}.limits", why)
            for resource in item.get(name) or {}:
                _limited(resource, kind, f"{path}.{name}[{resource}]", errors)
        _ordered(item, path, errors)
        _ratios(item, path, errors)
    return errors


def _limited(resource: str, kind: str, path: str, errors: Errors) -> None:
    reasons = label_key(resource)
    errors.malformed(path, resource, reasons)
    if "/" in resource or resource.startswith("hugepages-"):
        return
    if not reasons and resource not in _LIMITED:
        errors.invalid(path, resource, "must be a standard resource type or fully qualified")
    if kind in ("Container", "Pod") and resource not in ("cpu", "memory", "ephemeral-storage"):
        errors.invalid(path, resource, "must be a standard resource for containers")


def _ratios(item: Json, path: str, errors: Errors) -> None:
    """The maxLimitRequestRatio of a limit range item."""
    for resource, text in (item.get("maxLimitRequestRatio") or {}).items():
        where, ratio = f"{path}.maxLimitRequestRatio[{resource}]", amount(text).nanos
        if ratio < 10**9:
            errors.invalid(where, text, f"ratio {text} is less than 1")
        low, high = ((item.get(side) or {}).get(resource) for side in ("min", "max"))
        if low is not None and high is not None and amount(low).nanos:
            widest = amount(high).nanos / amount(low).nanos
            if ratio / 10**9 > widest:
                errors.invalid(where, text, f"ratio {text} is greater than max/min = {widest:f}")


_LIMITED = frozenset((
    "cpu", "memory", "ephemeral-storage", "storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu",
    "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "requests.storage", "services.nodeports", "services.loadbalancers",
))  # fmt: skip


_LIMIT_ORDER = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value {} is greater than max value {}"),
    (
        "defaultRequest", "default", "defaultRequest", "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip


def _ordered(item: Json, path: str, errors: Errors) -> None:
    """min <= defaultRequest <= default <= max, checked in Kubernetes' order and reported with its
    values."""
    for low, high, place, shown, words in _LIMIT_ORDER:
        for resource, text in (item.get(low) or {}).items():
            limit = (item.get(high) or {}).get(resource)
            if limit is not None and amount(text) > amount(limit):
                value = (item.get(shown) or {}).get(resource)
                why = words.format(text, limit)
                errors.invalid(f"{path}.{place}[{resource}]", value, why)


def lease(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        errors.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    return errors


CREATE = {
    ("", "ConfigMap"): config_map,
    ("", "Secret"): secret,
    ("", "Node"): node,
    ("", "Event"): event,
    ("events.k8s.io", "Event"): new_event,
    ("", "ResourceQuota"): resource_quota,
    ("", "LimitRange"): limit_range,
    ("coordination.k8s.io", "Lease"): lease,
}
STATUS = {("", "ResourceQuota"): resource_quota_status}
UPDATE: dict[tuple[str, str], Callable[[Json, Json], Errors]] = {
    ("", "ConfigMap"): config_map_update,
    ("", "Secret"): secret_update,
    ("", "Node"): node_update,
    ("", "ResourceQuota"): resource_quota_update,
    ("events.k8s.io", "Event"): new_event_update,
}
