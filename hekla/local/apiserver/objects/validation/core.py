"""The rules of the core kinds beside pods (local-cluster 5.3 to 5.7, 5.9)."""

from __future__ import annotations

import ipaddress
from base64 import b64decode
from collections.abc import Collection
from typing import Any

from hekla.local.apiserver.objects import documents, names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.errors import BadBody, duplicate, forbidden, invalid, not_supported, required, too_long
from hekla.local.apiserver.objects.typecheck import type_name
from hekla.local.apiserver.objects.validation.metadata import Errors, immutable, label_key, labels, metadata, one_of, selector
from hekla.local.apiserver.objects.validation.placement import node_selector, taints
from hekla.local.apiserver.objects.validation.resources import amounts

Json = dict[str, Any]

LARGEST_DATA = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"


# --- ConfigMap, Secret ---------------------------------------------------------------------------------------------------


def config_map(tree: Json) -> Errors:
    found = metadata(tree)
    data, binary = tree.get("data") or {}, tree.get("binaryData") or {}
    size = 0
    for key, text in data.items():
        found += [invalid(f"data[{key}]", key, reason) for reason in names.config_key(key)]
        if key in binary:
            found.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(text.encode())
    for key, text in binary.items():
        found += [invalid(f"binaryData[{key}]", key, reason) for reason in names.config_key(key)]
        size += len(text) * 3 // 4
    if size > LARGEST_DATA:
        found.append(too_long("[]", LARGEST_DATA))
    return found


def config_map_update(new: Json, old: Json) -> Errors:
    found = config_map(new)
    if old.get("immutable"):
        if not new.get("immutable"):
            found.append(forbidden("immutable", _FROZEN))
        for name in ("data", "binaryData"):
            if (new.get(name) or {}) != (old.get(name) or {}):
                found.append(forbidden(name, _FROZEN))
    return found


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


def secret(tree: Json) -> Errors:
    found = metadata(tree)
    data = tree.get("data") or {}
    size = 0
    for key, text in data.items():
        found += [invalid(f"data[{key}]", key, reason) for reason in names.config_key(key)]
        size += len(text) * 3 // 4
    if size > LARGEST_DATA:
        found.append(too_long("data", LARGEST_DATA))
    kind = tree.get("type") or ""
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            found.append(required(f"data[{key}]"))
    if kind == "kubernetes.io/basic-auth" and not ("username" in data or "password" in data):
        found += [required("data[username]"), required("data[password]")]
    for type, key in (("kubernetes.io/dockerconfigjson", ".dockerconfigjson"), ("kubernetes.io/dockercfg", ".dockercfg")):
        if kind == type and key in data and (why := _no_json(data[key])):
            found.append(invalid(f"data[{key}]", "<secret contents redacted>", why))
    if kind == "kubernetes.io/service-account-token":
        annotations = (tree.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(_ACCOUNT_ANNOTATION):
            found.append(required(f"metadata.annotations[{_ACCOUNT_ANNOTATION}]"))
    return found


def _no_json(text: str) -> str:
    """Why a text is no JSON object; empty where it is one."""
    try:
        tree = documents.json_tree(b64decode(text))
    except BadBody as error:
        return str(error)
    if tree is None or isinstance(tree, dict):
        return ""
    return f"json: cannot unmarshal {type_name(tree)} into Go value of type map[string]interface {{}}"


def secret_update(new: Json, old: Json) -> Errors:
    found = secret(new)
    immutable(new.get("type"), old.get("type"), "type", found)
    if old.get("immutable"):
        if not new.get("immutable"):
            found.append(forbidden("immutable", _FROZEN))
        if (new.get("data") or {}) != (old.get("data") or {}):
            found.append(forbidden("data", _FROZEN))
    return found


def namespace_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    phase, going = (new.get("status") or {}).get("phase") or "", "deletionTimestamp" in new["metadata"]
    if going and phase != "Terminating":
        found.append(invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
    elif not going and phase != "Active":
        found.append(invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"))
    return found


# --- Node ----------------------------------------------------------------------------------------------------------------


def node(tree: Json) -> Errors:
    found = metadata(tree)
    taints((tree.get("spec") or {}).get("taints"), "spec.taints", found)
    status = tree.get("status") or {}
    for name in ("capacity", "allocatable"):
        amounts(status.get(name), f"status.{name}", found, "{}.{}")
    return found


def node_update(new: Json, old: Json) -> Errors:
    found = node(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("podCIDR") and spec.get("podCIDR") != before["podCIDR"]:
        found.append(forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        found.append(forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid'))
    return found


# --- Service -------------------------------------------------------------------------------------------------------------


def service(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    kind = spec.get("type")
    types = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    one_of(kind, types, "spec.type", found, needed=True)
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind == "ExternalName":
        name = spec.get("externalName") or ""
        if not name:
            found.append(required("spec.externalName"))
        else:
            found += [invalid("spec.externalName", name, reason) for reason in names.dns_subdomain(name.rstrip(".").lower())]
    if headless and kind in ("NodePort", "LoadBalancer"):
        found.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    _service_ports(spec, found)
    labels(spec.get("selector"), "spec.selector", found)
    one_of(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity", found, needed=True)
    _traffic_policy(spec, found)
    for position, address in enumerate(spec.get("clusterIPs") or ()):
        if address != "None" and not _is_address(address):
            found.append(invalid(f"spec.clusterIPs[{position}]", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
    for position, address in enumerate(spec.get("externalIPs") or ()):
        if not _is_address(address):
            where = f"spec.externalIPs[{position}]"
            found.append(invalid(where, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
    return found


def _traffic_policy(spec: Json, found: Errors) -> None:
    policy, path = spec.get("externalTrafficPolicy") or "", "spec.externalTrafficPolicy"
    if spec.get("type") in ("NodePort", "LoadBalancer") or (spec.get("type") == "ClusterIP" and spec.get("externalIPs")):
        one_of(policy, ("Cluster", "Local"), path, found, needed=True)
    elif policy:
        found.append(invalid(path, policy, "may only be set for externally-accessible services"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _service_ports(spec: Json, found: Errors) -> None:
    ports = spec.get("ports") or ()
    seen_names: set[str] = set()
    seen_ports: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        where = f"spec.ports[{position}]"
        name = port.get("name") or ""
        if not name:
            if len(ports) > 1:
                found.append(required(f"{where}.name"))
        else:
            found += [invalid(f"{where}.name", name, reason) for reason in names.dns_label(name)]
            if name in seen_names:
                found.append(duplicate(f"{where}.name", name))
            seen_names.add(name)
        number = port.get("port") or 0
        found += [invalid(f"{where}.port", number, reason) for reason in names.port_number(number)]
        one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{where}.protocol", found, needed=True)
        target = port.get("targetPort")
        reasons = names.port_name(target) if isinstance(target, str) else names.port_number(target or 0)
        found += [invalid(f"{where}.targetPort", target, reason) for reason in reasons]
        key = (port.get("protocol"), number)
        if key in seen_ports:
            found.append(duplicate(where, {"port": number, "protocol": port.get("protocol")}))
        seen_ports.add(key)
        if port.get("nodePort") and spec.get("type") == "ClusterIP":
            found.append(forbidden(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'"))


def service_update(new: Json, old: Json) -> Errors:
    found = service(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    address, previous = spec.get("clusterIP") or "", before.get("clusterIP") or ""
    if previous and address != previous and spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
        found.append(invalid("spec.clusterIPs[0]", [address] if address else None, "may not change once set"))
    return found


# --- Events --------------------------------------------------------------------------------------------------------------


def event(tree: Json) -> Errors:
    """Events of v1; new-style ones (with an eventTime) must say more."""
    found = metadata(tree)
    namespace = (tree.get("metadata") or {}).get("namespace") or ""
    about = (tree.get("involvedObject") or {}).get("namespace") or ""
    if about != namespace and (about or namespace not in ("default", "kube-system", "")):
        found.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    if tree.get("eventTime"):
        _new_style(tree, "reportingComponent", found)
    return found


def _new_style(tree: Json, controller: str, found: Errors) -> None:
    value = tree.get(controller) or ""
    if not value:
        found.append(required("reportingController"))
    else:
        found += [invalid("reportingController", value, reason) for reason in names.qualified_name(value)]
    for name in ("reportingInstance", "action", "reason"):
        text = tree.get(name) or ""
        limit = 1024 if name == "reason" else 128
        if not text:
            found.append(required(name))
        elif len(text) > limit:
            found.append(invalid(name, "", f"can have at most {limit} characters"))
    if tree.get("type") not in ("Normal", "Warning"):
        found.append(invalid("type", "", "has invalid value: " + str(tree.get("type") or "")))


def new_event(tree: Json) -> Errors:
    """Events of events.k8s.io."""
    found = metadata(tree)
    namespace = (tree.get("metadata") or {}).get("namespace") or ""
    about = (tree.get("regarding") or {}).get("namespace") or ""
    if about != namespace and (about or namespace not in ("default", "kube-system", "")):
        found.append(invalid("regarding.namespace", about, "does not match event.namespace"))
    if not tree.get("eventTime"):
        found.append(required("eventTime"))
    _new_style(tree, "reportingController", found)
    return found


# --- Storage, quota ------------------------------------------------------------------------------------------------------

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _access_modes(values: Any, path: str, found: Errors, detail: str = "") -> None:
    if not values:
        found.append(required(path, detail))
    for mode in values or ():
        if mode not in _MODES:
            found.append(not_supported(path, mode, _MODES))


def persistent_volume(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _access_modes(spec.get("accessModes"), "spec.accessModes", found)
    if not spec.get("capacity"):
        found += [required("spec.capacity"), not_supported("spec.capacity", None, ("storage",))]
    elif "storage" not in spec["capacity"] or len(spec["capacity"]) > 1:
        found.append(not_supported("spec.capacity", list(spec["capacity"]), ("storage",)))
    else:
        amounts(spec["capacity"], "spec.capacity", found)
    policies = ("Delete", "Recycle", "Retain")
    one_of(spec.get("persistentVolumeReclaimPolicy"), policies, "spec.persistentVolumeReclaimPolicy", found)
    sources = [name for name in _VOLUME_SOURCES if spec.get(name) is not None]
    if not sources:
        found.append(required("spec", "must specify a volume type"))
    if spec.get("hostPath") is not None and not spec["hostPath"].get("path"):
        found.append(required("spec.hostPath.path"))
    for name in sources[1:]:
        found.append(forbidden(f"spec.{name}", "may not specify more than 1 volume type"))
    if spec.get("nodeAffinity"):
        required_terms = spec["nodeAffinity"].get("required")
        if required_terms is None:
            found.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        else:
            node_selector(required_terms, "spec.nodeAffinity.required", found)
    return found


_VOLUME_SOURCES = (
    "gcePersistentDisk", "awsElasticBlockStore", "hostPath", "glusterfs", "nfs", "rbd", "iscsi", "cinder", "cephfs", "fc",
    "flocker", "flexVolume", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume",
    "scaleIO", "local", "storageos", "csi",
)  # fmt: skip


def persistent_volume_update(new: Json, old: Json) -> Errors:
    found = persistent_volume(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if {k: v for k, v in spec.items() if k in _VOLUME_SOURCES} != {k: v for k, v in before.items() if k in _VOLUME_SOURCES}:
        found.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    immutable(spec.get("volumeMode"), before.get("volumeMode"), "spec.volumeMode", found)
    return found


def persistent_volume_claim(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    _access_modes(spec.get("accessModes"), "spec.accessModes", found, "at least 1 access mode is required")
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        found.append(required("spec.resources[storage]"))
    else:
        value = amount(requests["storage"])
        if value.nanos <= 0:
            found.append(invalid("spec.resources[storage]", requests["storage"], "must be greater than zero"))
    selector(spec.get("selector"), "spec.selector", found)
    one_of(spec.get("volumeMode"), ("Block", "Filesystem"), "spec.volumeMode", found)
    return found


_CLAIM_RULE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def persistent_volume_claim_update(new: Json, old: Json) -> Errors:
    found = persistent_volume_claim(new)
    spec, before = dict(new.get("spec") or {}), dict(old.get("spec") or {})
    bound = (old.get("status") or {}).get("phase") == "Bound"
    size = ((spec.pop("resources", None) or {}).get("requests") or {}).get("storage", "0")
    previous = ((before.pop("resources", None) or {}).get("requests") or {}).get("storage", "0")
    for either in (spec, before):
        either.pop("volumeAttributesClassName", None)
    if not before.get("volumeName"):
        spec.pop("volumeName", None)
        before.pop("volumeName", None)
    if not before.get("storageClassName"):
        spec.pop("storageClassName", None)
        before.pop("storageClassName", None)
    if spec != before:
        found.append(forbidden("spec", _CLAIM_RULE))
    if size != previous:
        if amount(size) < amount(previous):
            found.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
        elif not bound:
            found.append(forbidden("spec", _CLAIM_RULE))
    return found


_WHOLE = frozenset(
    {
        "pods", "services", "services.nodeports", "services.loadbalancers", "replicationcontrollers", "resourcequotas", "secrets",
        "configmaps", "persistentvolumeclaims",
    }
)  # fmt: skip
_QUOTA_RESOURCES = _WHOLE | frozenset(
    {
        "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage",
        "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    }
)  # fmt: skip


_COMPUTE = frozenset({"pods", *(f"{part}{name}" for part in ("", "limits.", "requests.") for name in ("cpu", "memory"))})
_SCOPED: dict[str, Collection[str]] = {
    **dict.fromkeys(("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"), _COMPUTE),
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""Which resources a quota can be about within a scope."""


def resource_quota(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    amounts(spec.get("hard"), "spec.hard", found)
    for resource, text in (spec.get("hard") or {}).items():
        path = f"spec.hard[{resource}]"
        if "/" not in resource and not (resource in _QUOTA_RESOURCES or resource.startswith(("hugepages-", "requests.hugepages-"))):
            found.append(invalid(path, resource, "must be a standard resource type or fully qualified"))
            found.append(invalid(path, resource, "must be a standard resource for quota"))
        elif (resource in _WHOLE or resource.startswith("count/")) and amount(text).nanos % 10**9:
            found.append(invalid(path, text, "must be an integer"))
    for scope in spec.get("scopes") or ():
        if scope not in _SCOPED:
            found.append(invalid("spec.scopes", spec["scopes"], "unsupported scope"))
        for resource in spec.get("hard") or {}:
            if resource in _QUOTA_RESOURCES and resource not in _SCOPED.get(scope, _QUOTA_RESOURCES):
                found.append(invalid("spec.scopes", spec["scopes"], "unsupported scope applied to resource"))
    for pair in ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}):
        if pair <= set(spec.get("scopes") or ()):
            found.append(invalid("spec.scopes", spec["scopes"], "conflicting scopes"))
    return found


def resource_quota_update(new: Json, old: Json) -> Errors:
    found = resource_quota(new)
    scopes, before = (new.get("spec") or {}).get("scopes") or [], (old.get("spec") or {}).get("scopes") or []
    immutable(sorted(scopes), sorted(before), "spec.scopes", found)
    return found


def limit_range(tree: Json) -> Errors:
    found = metadata(tree)
    seen: set[str] = set()
    for position, item in enumerate((tree.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{position}]"
        kind = item.get("type") or ""
        reasons = label_key(kind)
        found += [invalid(f"{path}.type", kind, reason) for reason in reasons]
        if not reasons and "/" not in kind and kind not in ("Container", "PersistentVolumeClaim", "Pod"):
            found.append(invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified"))
        if kind in seen:
            found.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        if kind == "Pod":
            for name in ("default", "defaultRequest"):
                if item.get(name):
                    found.append(forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'"))
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            for resource in item.get(name) or {}:
                where = f"{path}.{name}[{resource}]"
                if "/" in resource or resource.startswith("hugepages-"):
                    continue
                if resource not in _LIMITED:
                    found.append(invalid(where, resource, "must be a standard resource type or fully qualified"))
                if kind in ("Container", "Pod") and resource not in ("cpu", "memory", "ephemeral-storage"):
                    found.append(invalid(where, resource, "must be a standard resource for containers"))
        _ordered(item, path, found)
    return found


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


def _ordered(item: Json, path: str, found: Errors) -> None:
    """min <= defaultRequest <= default <= max, in the order and with the values that Kubernetes names."""
    for low, high, place, shown, words in _LIMIT_ORDER:
        for resource, text in (item.get(low) or {}).items():
            limit = (item.get(high) or {}).get(resource)
            if limit is not None and amount(text) > amount(limit):
                value = (item.get(shown) or {}).get(resource)
                why = words.format(text, limit)
                found.append(invalid(f"{path}.{place}[{resource}]", value, why))


def endpoints(tree: Json) -> Errors:
    found = metadata(tree)
    for position, subset in enumerate(tree.get("subsets") or ()):
        path = f"subsets[{position}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(name) or ()):
                if not _is_address(address.get("ip") or ""):
                    where = f"{path}.{name}[{index}].ip"
                    found.append(invalid(where, address.get("ip", ""), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
        for index, port in enumerate(subset.get("ports") or ()):
            number = port.get("port") or 0
            found += [invalid(f"{path}.ports[{index}].port", number, reason) for reason in names.port_number(number)]
    return found


def lease(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


CREATE = {
    ("", "ConfigMap"): config_map,
    ("", "Secret"): secret,
    ("", "Node"): node,
    ("", "Service"): service,
    ("", "Event"): event,
    ("events.k8s.io", "Event"): new_event,
    ("", "PersistentVolume"): persistent_volume,
    ("", "PersistentVolumeClaim"): persistent_volume_claim,
    ("", "ResourceQuota"): resource_quota,
    ("", "LimitRange"): limit_range,
    ("", "Endpoints"): endpoints,
    ("coordination.k8s.io", "Lease"): lease,
}
UPDATE = {
    ("", "ConfigMap"): config_map_update,
    ("", "Secret"): secret_update,
    ("", "Node"): node_update,
    ("", "Service"): service_update,
    ("", "PersistentVolume"): persistent_volume_update,
    ("", "PersistentVolumeClaim"): persistent_volume_claim_update,
    ("", "ResourceQuota"): resource_quota_update,
    ("events.k8s.io", "Event"): lambda new, old: metadata(new),
    ("", "Event"): lambda new, old: metadata(new),
}
