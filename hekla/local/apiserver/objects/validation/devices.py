"""The rules of devices: classes, claims and their templates, slices of what a driver has
(local-cluster 5.9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hekla.api.text.fieldrules import Errors, label_key
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from hekla.local.apiserver.objects.validation import policies
from hekla.local.apiserver.objects.validation.metadata import fixed_text, immutable, metadata
from hekla.podrules.drivers import driver_name
from hekla.podrules.placement import node_selector
from hekla.podrules.resources import is_extended

MOST_REQUESTS = MOST_CONSTRAINTS = MOST_CONFIGURATIONS = MOST_SELECTORS = 32
MOST_OPTIONS, MOST_USERS, MOST_DEVICES, MOST_SPECIAL_DEVICES = 8, 256, 128, 64
LONGEST_POOL, LONGEST_IDENTIFIER, LONGEST_VALUE = 253, 32, 64
MOST_ATTRIBUTES = 32
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch
_NUMBER, _PART = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_is_version = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
).fullmatch


def _label(text: str, path: str, found: Errors) -> None:
    found += [invalid(path, text, reason) for reason in names.dns_label(text)]


def _pool_name(name: str, path: str, found: Errors) -> None:
    if not name:
        found.append(required(path))
        return
    if len(name.encode()) > LONGEST_POOL:
        found.append(too_long(path, LONGEST_POOL))
    for part in name.split("/"):
        found += [invalid(path, part, reason) for reason in names.dns_subdomain(part)]


# --- claims ---------------------------------------------------------------------------------------


def resource_claim(tree: Json) -> Errors:
    found = metadata(tree)
    _claim((tree.get("spec") or {}).get("devices") or {}, "spec.devices", found)
    return found


def resource_claim_template(tree: Json) -> Errors:
    found = metadata(tree)
    _claim(
        ((tree.get("spec") or {}).get("spec") or {}).get("devices") or {},
        "spec.spec.devices",
        found,
    )
    return found


def resource_claim_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found


def resource_claim_template_update(new: Json, old: Json) -> Errors:
    found = resource_claim_template(new)
    immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found


def _each(
    items: Sequence[Any],
    most: int,
    path: str,
    found: Errors,
    check: Callable[[Any, str], None],
    key: Any = None,
) -> None:
    """Not too many, each right, none twice."""
    if len(items) > most:
        found.append(too_many(path, len(items), most))
        return
    for position, item in enumerate(items):
        check(item, f"{path}[{position}]")
    seen: set[Any] = set()
    for position, item in enumerate(items if key is not None else ()):
        name = key(item)
        if name in seen:
            found.append(duplicate(f"{path}[{position}]", name))
        seen.add(name)


def _claim(devices: Json, path: str, found: Errors) -> None:
    requests = devices.get("requests") or ()
    known = {
        request.get("name") or "": {
            option.get("name") or "" for option in request.get("firstAvailable") or ()
        }
        for request in requests
    }
    _each(
        requests,
        MOST_REQUESTS,
        f"{path}.requests",
        found,
        lambda item, where: _request(item, where, found),
        lambda item: item.get("name") or "",
    )

    def constraint(item: Json, where: str) -> None:
        _references(item, known, where, found)
        for name in ("matchAttribute", "distinctAttribute"):
            if item.get(name) is not None:
                _qualified(item[name], f"{where}.{name}", found, whole=True)
                return
        why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        found.append(required(where, why))

    def configuration(item: Json, where: str) -> None:
        _references(item, known, where, found)
        _configuration(item, where, found)

    _each(
        devices.get("constraints") or (), MOST_CONSTRAINTS, f"{path}.constraints", found, constraint
    )
    _each(devices.get("config") or (), MOST_CONFIGURATIONS, f"{path}.config", found, configuration)


def _references(item: Json, known: Mapping[str, set[str]], path: str, found: Errors) -> None:
    def check(name: str, where: str) -> None:
        _reference(name, known, where, found)

    _each(item.get("requests") or (), MOST_REQUESTS, f"{path}.requests", found, check, str)


def _reference(name: str, known: Mapping[str, set[str]], path: str, found: Errors) -> None:
    why = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    first, *rest = name.split("/")
    if len(rest) > 1:
        found.append(invalid(path, name, why))
        return
    for part in (first, *rest):
        _label(part, path, found)
    if first not in known or (rest and rest[0] not in known[first]):
        found.append(invalid(path, name, why))


def _request(request: Json, path: str, found: Errors) -> None:
    _label(request.get("name") or "", f"{path}.name", found)
    exactly, options = request.get("exactly"), request.get("firstAvailable")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not options:
        found.append(required(path, rule))
    elif exactly is not None and options:
        found.append(invalid(path, None, f"{rule}, but multiple fields are set"))
    elif options:

        def option(item: Json, where: str) -> None:
            _label(item.get("name") or "", f"{where}.name", found)
            _asked(item, where, found)

        _each(
            options,
            MOST_OPTIONS,
            f"{path}.firstAvailable",
            found,
            option,
            lambda item: item.get("name") or "",
        )
    else:
        _asked(exactly or {}, f"{path}.exactly", found)


def _asked(asked: Json, path: str, found: Errors) -> None:
    name = asked.get("deviceClassName") or ""
    if not name:
        found.append(required(f"{path}.deviceClassName"))
    else:
        found += [
            invalid(f"{path}.deviceClassName", name, reason) for reason in names.dns_subdomain(name)
        ]
    _selectors(asked, path, found)
    mode, count = asked.get("allocationMode"), asked.get("count") or 0
    if mode == "All":
        if count:
            found.append(
                invalid(
                    f"{path}.count", count, "must not be specified when allocationMode is 'All'"
                )
            )
    elif mode == "ExactCount":
        if count <= 0:
            found.append(invalid(f"{path}.count", count, "must be greater than zero"))
    else:
        found.append(not_supported(f"{path}.allocationMode", mode or "", ("All", "ExactCount")))
    for position, toleration in enumerate(asked.get("tolerations") or ()):
        _toleration(toleration, f"{path}.tolerations[{position}]", found)


def _toleration(toleration: Json, path: str, found: Errors) -> None:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        found += [invalid(f"{path}.key", key, reason) for reason in label_key(key)]
    if operator == "Exists":
        if value:
            found.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        if not key:
            found.append(required(f"{path}.key", "must specify key for operator `Equal`"))
    elif not operator:
        found.append(required(f"{path}.operator"))
    else:
        found.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in ("NoExecute", "NoSchedule", "None"):
        found.append(not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule", "None")))


def _selectors(holder: Json, path: str, found: Errors) -> None:
    selectors, path = holder.get("selectors") or (), f"{path}.selectors"
    if len(selectors) > MOST_SELECTORS:
        found.append(too_many(path, len(selectors), MOST_SELECTORS))
    else:
        policies.device_selectors(selectors, path, found)


def _configuration(config: Json, path: str, found: Errors) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        found.append(required(f"{path}.opaque"))
        return
    driver_name(opaque.get("driver") or "", f"{path}.opaque.driver", found)
    parameters = opaque.get("parameters")
    if parameters is None:
        found.append(required(f"{path}.opaque.parameters"))
    elif not isinstance(parameters, dict):
        why = "parameters must be a valid JSON object"
        found.append(invalid(f"{path}.opaque.parameters", "<value omitted>", why))


def _identifier(text: str, path: str, found: Errors) -> None:
    if len(text.encode()) > LONGEST_IDENTIFIER:
        found.append(too_long(path, LONGEST_IDENTIFIER))
    if _IDENTIFIER(text) is None:
        why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
        found.append(
            invalid(
                path,
                text,
                f"{why}(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
                "'[A-Za-z_][A-Za-z0-9_]*')",
            )
        )


def _qualified(name: str, path: str, found: Errors, *, whole: bool = False) -> None:
    """A name of an attribute; `whole`: with the domain that it belongs to."""
    domain, *rest = name.split("/")
    if not rest:
        _identifier(domain, path, found)
    elif len(rest) == 1:
        if not domain:
            found.append(invalid(path, "", "the domain must not be empty"))
        else:
            driver_name(domain, path, found)
        if not rest[0]:
            found.append(invalid(path, "", "the name must not be empty"))
        else:
            _identifier(rest[0], path, found)
    if whole and not rest:
        found.append(
            invalid(
                path,
                name,
                "a fully qualified name must be a domain and a name separated by a slash",
            )
        )


def resource_claim_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    status, before = new.get("status") or {}, old.get("status") or {}
    users = status.get("reservedFor") or ()

    def user(item: Json, where: str) -> None:
        for name in ("resource", "name", "uid"):
            if not item.get(name):
                found.append(required(f"{where}.{name}"))

    _each(users, MOST_USERS, "status.reservedFor", found, user, lambda item: item.get("uid"))
    allocation, earlier = status.get("allocation"), before.get("allocation")
    if users and allocation is None:
        found.append(
            forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
        )
    elif (
        users
        and "deletionTimestamp" in new["metadata"]
        and any(item not in (before.get("reservedFor") or ()) for item in users)
    ):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        found.append(forbidden("status.reservedFor", why))
    if allocation is not None and earlier is not None:
        immutable(allocation, earlier, "status.allocation", found)
    elif allocation is not None:
        _allocation(allocation, new, found)
    return found


def _allocation(allocation: Json, claim: Json, found: Errors) -> None:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    known = {
        request.get("name") or "": {
            option.get("name") or "" for option in request.get("firstAvailable") or ()
        }
        for request in requests
    }

    def result(item: Json, where: str) -> None:
        _reference(item.get("request") or "", known, f"{where}.request", found)
        driver_name(item.get("driver") or "", f"{where}.driver", found)
        _pool_name(item.get("pool") or "", f"{where}.pool", found)
        _label(item.get("device") or "", f"{where}.device", found)

    devices = allocation.get("devices") or {}
    _each(
        devices.get("results") or (),
        MOST_REQUESTS,
        "status.allocation.devices.results",
        found,
        result,
    )
    if allocation.get("nodeSelector") is not None:
        node_selector(allocation["nodeSelector"], "status.allocation.nodeSelector", found)


# --- classes --------------------------------------------------------------------------------------


def device_class(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _selectors(spec, "spec", found)

    def configuration(item: Json, where: str) -> None:
        _configuration(item, where, found)

    _each(spec.get("config") or (), MOST_CONFIGURATIONS, "spec.config", found, configuration)
    name = spec.get("extendedResourceName")
    if name is not None and (not is_extended(name) or label_key(name)):
        found.append(
            invalid("spec.extendedResourceName", name, "must be a valid extended resource name")
        )
    return found


# --- slices ---------------------------------------------------------------------------------------

PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def resource_slice(tree: Json) -> Errors:
    found = metadata(tree)
    _slice(tree.get("spec") or {}, None, found)
    return found


def resource_slice_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    _slice(new.get("spec") or {}, old.get("spec") or {}, found)
    return found


def _slice(spec: Json, before: Json | None, found: Errors) -> None:
    driver_name(spec.get("driver") or "", "spec.driver", found)
    pool = spec.get("pool") or {}
    _pool_name(pool.get("name") or "", "spec.pool.name", found)
    if (pool.get("resourceSliceCount") or 0) <= 0:
        found.append(
            invalid(
                "spec.pool.resourceSliceCount",
                pool.get("resourceSliceCount") or 0,
                "must be greater than zero",
            )
        )
    if (pool.get("generation") or 0) < 0:
        found.append(
            invalid(
                "spec.pool.generation", pool["generation"], "must be greater than or equal to zero"
            )
        )
    if before is not None:
        fixed_text(pool, before.get("pool") or {}, "name", "spec.pool.name", found)
        fixed_text(spec, before, "driver", "spec.driver", found)
        immutable(spec.get("nodeName"), before.get("nodeName"), "spec.nodeName", found)
    _slice_place(spec, found)
    devices = spec.get("devices") or ()
    if spec.get("sharedCounters") and devices:
        found.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)

    def device(item: Json, where: str) -> None:
        _device(item, where, bool(spec.get("perDeviceNodeSelection")), found)

    _each(
        devices,
        MOST_SPECIAL_DEVICES if special else MOST_DEVICES,
        "spec.devices",
        found,
        device,
        lambda item: item.get("name") or "",
    )


def _slice_place(spec: Json, found: Errors) -> None:
    """On which nodes the devices are: one way of saying it."""
    given = []
    for name in PLACES:
        value, path = spec.get(name), f"spec.{name}"
        if value is None:
            continue
        if name == "nodeName" and not value:
            found.append(invalid(path, value, "must be either unset or set to a non-empty string"))
            continue
        if value is False:
            found.append(invalid(path, value, "must be either unset or set to true"))
            continue
        given.append(f"`{name}`")
        if name == "nodeName":
            found += [invalid(path, value, reason) for reason in names.dns_subdomain(value)]
        elif name == "nodeSelector":
            node_selector(value, path, found)
            if len(value.get("nodeSelectorTerms") or ()) != 1:
                why = "must have exactly one node selector term"
                found.append(
                    invalid(f"{path}.nodeSelectorTerms", value.get("nodeSelectorTerms"), why)
                )
    rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not given:
        found.append(required("spec", rule))
    elif len(given) > 1:
        found.append(
            invalid("spec", f"{{{', '.join(given)}}}", f"{rule}, but multiple fields are set")
        )


def _device(device: Json, path: str, placed: bool, found: Errors) -> None:
    _label(device.get("name") or "", f"{path}.name", found)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MOST_ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}"
        found.append(invalid(path, len(attributes) + len(capacity), why))
    for name, value in attributes.items():
        _qualified(name, f"{path}.attributes", found)
        _attribute(value, f"{path}.attributes[{name}]", found)
    for name, value in capacity.items():
        _qualified(name, f"{path}.capacity", found)
        if value.get("requestPolicy") is not None and not device.get("allowMultipleAllocations"):
            found.append(
                forbidden(
                    f"{path}.capacity[{name}].requestPolicy",
                    "allowMultipleAllocations must be true",
                )
            )
    for position, taint in enumerate(device.get("taints") or ()):
        where, key, effect = (
            f"{path}.taints[{position}]",
            taint.get("key") or "",
            taint.get("effect") or "",
        )
        found += [invalid(f"{where}.key", key, reason) for reason in label_key(key)]
        if not effect:
            found.append(required(f"{where}.effect"))
        elif effect not in ("NoExecute", "NoSchedule", "None"):
            found.append(
                not_supported(f"{where}.effect", effect, ("NoExecute", "NoSchedule", "None"))
            )
    given = [
        name for name in ("nodeName", "nodeSelector", "allNodes") if device.get(name) is not None
    ]
    if not placed and given:
        why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
        found.append(invalid(path, None, f"{why}ResourceSlice spec"))
    elif placed and len(given) != 1:
        why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
        why += "in the ResourceSlice spec"
        shown = ", ".join(f"`{name}`" for name in given)
        found.append(invalid(path, f"{{{shown}}}", why) if given else required(path, why))


def _attribute(value: Json, path: str, found: Errors) -> None:
    if len(value) != 1:
        found.append(invalid(path, value or "", "exactly one value must be specified"))
    for name, each in value.items():
        texts = each if isinstance(each, list) else [each]
        for position, text in enumerate(texts if name.startswith(("string", "version")) else ()):
            where = f"{path}.{name}[{position}]" if isinstance(each, list) else f"{path}.{name}"
            if name.startswith("version") and _is_version(text) is None:
                found.append(
                    invalid(where, text, "must be a string compatible with semver.org spec 2.0.0")
                )
            if len(text.encode()) > LONGEST_VALUE:
                found.append(too_long(where, LONGEST_VALUE))


CREATE = {
    ("resource.k8s.io", "DeviceClass"): device_class,
    ("resource.k8s.io", "ResourceClaim"): resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claim_template,
    ("resource.k8s.io", "ResourceSlice"): resource_slice,
}
UPDATE = {
    ("resource.k8s.io", "ResourceClaim"): resource_claim_update,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claim_template_update,
    ("resource.k8s.io", "ResourceSlice"): resource_slice_update,
}
STATUS = {("resource.k8s.io", "ResourceClaim"): resource_claim_status}
