"""The rules of device classes, resource claims and their templates, and resource slices
(local-cluster 5.9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hekla.api.text.fielderrors import invalid, required
from hekla.api.text.fieldrules import Errors, label_key, named
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.validation import policies
from hekla.local.apiserver.objects.validation.metadata import (
    fixed_text,
    immutable,
    metadata,
    with_fixed,
)
from hekla.podrules.drivers import driver_name
from hekla.podrules.placement import node_selector
from hekla.podrules.resources import is_extended

MAX_REQUESTS = MAX_CONSTRAINTS = MAX_CONFIGURATIONS = MAX_SELECTORS = 32
MAX_FIRST_AVAILABLE, MAX_RESERVED_FOR = 8, 256
MAX_DEVICES, MAX_DEVICES_WITH_TAINTS_OR_COUNTERS = 128, 64
MAX_POOL_NAME_LENGTH, MAX_IDENTIFIER_LENGTH, MAX_ATTRIBUTE_VALUE_LENGTH = 253, 32, 64
MAX_ATTRIBUTES_AND_CAPACITIES = 32
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch
_NUMBER, _PART = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_is_version = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
).fullmatch


def _label(text: str, path: str, errors: Errors) -> None:
    errors.malformed(path, text, names.dns_label(text))


def _pool_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.required(path)
        return
    if len(name.encode()) > MAX_POOL_NAME_LENGTH:
        errors.too_long(path, MAX_POOL_NAME_LENGTH)
    for part in name.split("/"):
        errors.malformed(path, part, names.dns_subdomain(part))


# --- claims ---------------------------------------------------------------------------------------


def resource_claim(tree: Json) -> Errors:
    errors = metadata(tree)
    _claim((tree.get("spec") or {}).get("devices") or {}, "spec.devices", errors)
    return errors


def resource_claim_template(tree: Json) -> Errors:
    errors = metadata(tree)
    _claim(
        ((tree.get("spec") or {}).get("spec") or {}).get("devices") or {},
        "spec.spec.devices",
        errors,
    )
    return errors


def _each(
    items: Sequence[Any],
    limit: int,
    path: str,
    errors: Errors,
    check: Callable[[Any, str], None],
    key: Any = None,
) -> None:
    """Check that a list is not longer than its limit, that every item is valid, and that no key is
    repeated."""
    if len(items) > limit:
        errors.too_many(path, len(items), limit)
        return
    for position, item in enumerate(items):
        check(item, f"{path}[{position}]")
    seen: set[Any] = set()
    for position, item in enumerate(items if key is not None else ()):
        name = key(item)
        if name in seen:
            errors.duplicate(f"{path}[{position}]", name)
        seen.add(name)


def _claim(devices: Json, path: str, errors: Errors) -> None:
    requests = devices.get("requests") or ()
    known = {
        request.get("name") or "": {
            option.get("name") or "" for option in request.get("firstAvailable") or ()
        }
        for request in requests
    }
    _each(
        requests,
        MAX_REQUESTS,
        f"{path}.requests",
        errors,
        lambda item, where: _request(item, where, errors),
        lambda item: item.get("name") or "",
    )

    def constraint(item: Json, where: str) -> None:
        _references(item, known, where, errors)
        for name in ("matchAttribute", "distinctAttribute"):
            if item.get(name) is not None:
                _qualified(item[name], f"{where}.{name}", errors, whole=True)
                return
        why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        errors.required(where, why)

    def configuration(item: Json, where: str) -> None:
        _references(item, known, where, errors)
        _configuration(item, where, errors)

    _each(
        devices.get("constraints") or (), MAX_CONSTRAINTS, f"{path}.constraints", errors, constraint
    )
    _each(devices.get("config") or (), MAX_CONFIGURATIONS, f"{path}.config", errors, configuration)


def _references(item: Json, known: Mapping[str, set[str]], path: str, errors: Errors) -> None:
    def check(name: str, where: str) -> None:
        _reference(name, known, where, errors)

    _each(item.get("requests") or (), MAX_REQUESTS, f"{path}.requests", errors, check, str)


def _reference(name: str, known: Mapping[str, set[str]], path: str, errors: Errors) -> None:
    why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    first, *rest = name.split("/")
    if len(rest) > 1:
        errors.invalid(path, name, why)
        return
    for part in (first, *rest):
        _label(part, path, errors)
    if first not in known or (rest and rest[0] not in known[first]):
        errors.invalid(path, name, why)


def _request(request: Json, path: str, errors: Errors) -> None:
    _label(request.get("name") or "", f"{path}.name", errors)
    exactly, options = request.get("exactly"), request.get("firstAvailable")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not options:
        errors.required(path, rule)
    elif exactly is not None and options:
        errors.invalid(path, None, f"{rule}, but multiple fields are set")
    elif options:

        def option(item: Json, where: str) -> None:
            _label(item.get("name") or "", f"{where}.name", errors)
            _device_request(item, where, errors)

        _each(
            options,
            MAX_FIRST_AVAILABLE,
            f"{path}.firstAvailable",
            errors,
            option,
            lambda item: item.get("name") or "",
        )
    else:
        _device_request(exactly or {}, f"{path}.exactly", errors)


def _device_request(request: Json, path: str, errors: Errors) -> None:
    name = request.get("deviceClassName") or ""
    named(name, names.dns_subdomain, f"{path}.deviceClassName", errors)
    _selectors(request, path, errors)
    mode, count = request.get("allocationMode"), request.get("count") or 0
    if mode == "All":
        if count:
            errors.invalid(
                f"{path}.count", count, "must not be specified when allocationMode is 'All'"
            )
    elif mode == "ExactCount":
        if count <= 0:
            errors.invalid(f"{path}.count", count, "must be greater than zero")
    else:
        errors.not_supported(f"{path}.allocationMode", mode or "", ("All", "ExactCount"))
    for position, toleration in enumerate(request.get("tolerations") or ()):
        _toleration(toleration, f"{path}.tolerations[{position}]", errors)


def _toleration(toleration: Json, path: str, errors: Errors) -> None:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        errors.malformed(f"{path}.key", key, label_key(key))
    if operator == "Exists":
        if value:
            errors.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        if not key:
            errors.required(f"{path}.key", "must specify key for operator `Equal`")
    elif not operator:
        errors.required(f"{path}.operator")
    else:
        errors.not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in ("NoExecute", "NoSchedule", "None"):
        errors.not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule", "None"))


def _selectors(holder: Json, path: str, errors: Errors) -> None:
    selectors, path = holder.get("selectors") or (), f"{path}.selectors"
    if len(selectors) > MAX_SELECTORS:
        errors.too_many(path, len(selectors), MAX_SELECTORS)
    else:
        policies.device_selectors(selectors, path, errors)


def _configuration(config: Json, path: str, errors: Errors) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errors.required(f"{path}.opaque")
        return
    driver_name(opaque.get("driver") or "", f"{path}.opaque.driver", errors)
    parameters = opaque.get("parameters")
    if parameters is None:
        errors.required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        why = "parameters must be a valid JSON object"
        errors.invalid(f"{path}.opaque.parameters", "<value omitted>", why)


def _identifier(text: str, path: str, errors: Errors) -> None:
    if len(text.encode()) > MAX_IDENTIFIER_LENGTH:
        errors.too_long(path, MAX_IDENTIFIER_LENGTH)
    if _IDENTIFIER(text) is None:
        why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
        errors.invalid(
            path,
            text,
            f"{why}(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
            "'[A-Za-z_][A-Za-z0-9_]*')",
        )


def _qualified(name: str, path: str, errors: Errors, *, whole: bool = False) -> None:
    """The name of an attribute or capacity; `whole`: it must include its domain."""
    domain, *rest = name.split("/")
    if not rest:
        _identifier(domain, path, errors)
    elif len(rest) == 1:
        if not domain:
            errors.invalid(path, "", "the domain must not be empty")
        else:
            driver_name(domain, path, errors)
        if not rest[0]:
            errors.invalid(path, "", "the name must not be empty")
        else:
            _identifier(rest[0], path, errors)
    if whole and not rest:
        errors.invalid(
            path, name, "a fully qualified name must be a domain and a name separated by a slash"
        )


def resource_claim_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    status, before = new.get("status") or {}, old.get("status") or {}
    users = status.get("reservedFor") or ()

    def user(item: Json, where: str) -> None:
        for name in ("resource", "name", "uid"):
            if not item.get(name):
                errors.required(f"{where}.{name}")

    _each(users, MAX_RESERVED_FOR, "status.reservedFor", errors, user, lambda item: item.get("uid"))
    allocation, earlier = status.get("allocation"), before.get("allocation")
    if users and allocation is None:
        errors.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif (
        users
        and "deletionTimestamp" in new["metadata"]
        and any(item not in (before.get("reservedFor") or ()) for item in users)
    ):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        errors.forbidden("status.reservedFor", why)
    if allocation is not None and earlier is not None:
        immutable(allocation, earlier, "status.allocation", errors)
    elif allocation is not None:
        _allocation(allocation, new, errors)
    return errors


def _allocation(allocation: Json, claim: Json, errors: Errors) -> None:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    known = {
        request.get("name") or "": {
            option.get("name") or "" for option in request.get("firstAvailable") or ()
        }
        for request in requests
    }

    def result(item: Json, where: str) -> None:
        _reference(item.get("request") or "", known, f"{where}.request", errors)
        driver_name(item.get("driver") or "", f"{where}.driver", errors)
        _pool_name(item.get("pool") or "", f"{where}.pool", errors)
        _label(item.get("device") or "", f"{where}.device", errors)

    devices = allocation.get("devices") or {}
    _each(
        devices.get("results") or (),
        MAX_REQUESTS,
        "status.allocation.devices.results",
        errors,
        result,
    )
    if allocation.get("nodeSelector") is not None:
        node_selector(allocation["nodeSelector"], "status.allocation.nodeSelector", errors)


# --- classes --------------------------------------------------------------------------------------


def device_class(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    _selectors(spec, "spec", errors)

    def configuration(item: Json, where: str) -> None:
        _configuration(item, where, errors)

    _each(spec.get("config") or (), MAX_CONFIGURATIONS, "spec.config", errors, configuration)
    name = spec.get("extendedResourceName")
    if name is not None and (not is_extended(name) or label_key(name)):
        errors.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")
    return errors


# --- slices ---------------------------------------------------------------------------------------

NODE_SELECTION_FIELDS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def resource_slice(tree: Json) -> Errors:
    errors = metadata(tree)
    _slice(tree.get("spec") or {}, None, errors)
    return errors


def resource_slice_update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    _slice(new.get("spec") or {}, old.get("spec") or {}, errors)
    return errors


def _slice(spec: Json, before: Json | None, errors: Errors) -> None:
    driver_name(spec.get("driver") or "", "spec.driver", errors)
    pool = spec.get("pool") or {}
    _pool_name(pool.get("name") or "", "spec.pool.name", errors)
    if (pool.get("resourceSliceCount") or 0) <= 0:
        why = "must be greater than zero"
        errors.invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, why)
    if (pool.get("generation") or 0) < 0:
        errors.invalid(
            "spec.pool.generation", pool["generation"], "must be greater than or equal to zero"
        )
    if before is not None:
        fixed_text(pool, before.get("pool") or {}, "name", "spec.pool.name", errors)
        fixed_text(spec, before, "driver", "spec.driver", errors)
        immutable(spec.get("nodeName"), before.get("nodeName"), "spec.nodeName", errors)
    _slice_nodes(spec, errors)
    devices = spec.get("devices") or ()
    if spec.get("sharedCounters") and devices:
        errors.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)

    def device(item: Json, where: str) -> None:
        _device(item, where, bool(spec.get("perDeviceNodeSelection")), errors)

    _each(
        devices,
        MAX_DEVICES_WITH_TAINTS_OR_COUNTERS if special else MAX_DEVICES,
        "spec.devices",
        errors,
        device,
        lambda item: item.get("name") or "",
    )


def _slice_nodes(spec: Json, errors: Errors) -> None:
    """Exactly one of the fields must say on which nodes the devices are."""
    given = []
    for name in NODE_SELECTION_FIELDS:
        value, path = spec.get(name), f"spec.{name}"
        if value is None:
            continue
        if name == "nodeName" and not value:
            errors.invalid(path, value, "must be either unset or set to a non-empty string")
            continue
        if value is False:
            errors.invalid(path, value, "must be either unset or set to true")
            continue
        given.append(f"`{name}`")
        if name == "nodeName":
            errors.malformed(path, value, names.dns_subdomain(value))
        elif name == "nodeSelector":
            node_selector(value, path, errors)
            if len(value.get("nodeSelectorTerms") or ()) != 1:
                why = "must have exactly one node selector term"
                errors.invalid(f"{path}.nodeSelectorTerms", value.get("nodeSelectorTerms"), why)
    rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not given:
        errors.required("spec", rule)
    elif len(given) > 1:
        errors.invalid("spec", f"{{{', '.join(given)}}}", f"{rule}, but multiple fields are set")


def _device(device: Json, path: str, placed: bool, errors: Errors) -> None:
    _label(device.get("name") or "", f"{path}.name", errors)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MAX_ATTRIBUTES_AND_CAPACITIES:
        why = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        errors.invalid(path, len(attributes) + len(capacity), why)
    for name, value in attributes.items():
        _qualified(name, f"{path}.attributes", errors)
        _attribute(value, f"{path}.attributes[{name}]", errors)
    for name, value in capacity.items():
        _qualified(name, f"{path}.capacity", errors)
        if value.get("requestPolicy") is not None and not device.get("allowMultipleAllocations"):
            errors.forbidden(
                f"{path}.capacity[{name}].requestPolicy", "allowMultipleAllocations must be true"
            )
    for position, taint in enumerate(device.get("taints") or ()):
        where = f"{path}.taints[{position}]"
        key = taint.get("key") or ""
        effect = taint.get("effect") or ""
        errors.malformed(f"{where}.key", key, label_key(key))
        if not effect:
            errors.required(f"{where}.effect")
        elif effect not in ("NoExecute", "NoSchedule", "None"):
            errors.not_supported(f"{where}.effect", effect, ("NoExecute", "NoSchedule", "None"))
    given = [
        name for name in ("nodeName", "nodeSelector", "allNodes") if device.get(name) is not None
    ]
    if not placed and given:
        why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
        errors.invalid(path, None, f"{why}ResourceSlice spec")
    elif placed and len(given) != 1:
        why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
        why += "in the ResourceSlice spec"
        shown = ", ".join(f"`{name}`" for name in given)
        errors.append(invalid(path, f"{{{shown}}}", why) if given else required(path, why))


def _attribute(value: Json, path: str, errors: Errors) -> None:
    if len(value) != 1:
        errors.invalid(path, value or "", "exactly one value must be specified")
    for name, each in value.items():
        texts = each if isinstance(each, list) else [each]
        for position, text in enumerate(texts if name.startswith(("string", "version")) else ()):
            where = f"{path}.{name}[{position}]" if isinstance(each, list) else f"{path}.{name}"
            if name.startswith("version") and _is_version(text) is None:
                errors.invalid(
                    where, text, "must be a string compatible with semver.org spec 2.0.0"
                )
            if len(text.encode()) > MAX_ATTRIBUTE_VALUE_LENGTH:
                errors.too_long(where, MAX_ATTRIBUTE_VALUE_LENGTH)


CREATE = {
    ("resource.k8s.io", "DeviceClass"): device_class,
    ("resource.k8s.io", "ResourceClaim"): resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claim_template,
    ("resource.k8s.io", "ResourceSlice"): resource_slice,
}
UPDATE = {
    ("resource.k8s.io", "ResourceClaim"): with_fixed(metadata, "spec"),
    ("resource.k8s.io", "ResourceClaimTemplate"): with_fixed(resource_claim_template, "spec"),
    ("resource.k8s.io", "ResourceSlice"): resource_slice_update,
}
STATUS = {("resource.k8s.io", "ResourceClaim"): resource_claim_status}
