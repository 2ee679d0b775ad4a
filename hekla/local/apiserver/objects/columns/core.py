"""Printer columns of the core kinds other than pods (local-cluster 1.10)."""

from __future__ import annotations

from typing import Any

from hekla.api.text.ages import UNKNOWN, age
from hekla.api.trees import Json
from hekla.local.apiserver.objects.columns.cells import (
    AGE,
    CREATED,
    NAME,
    NONE,
    UNSET,
    at,
    cell,
    column,
    labels,
    listed,
    wide,
)

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_ROLE = "node-role.kubernetes.io/"


def _node_status(node: Json, _now: float) -> str:
    status = "Unknown"
    for condition in at(node, "status", "conditions") or ():
        if condition.get("type") == "Ready":
            status = "Ready" if condition.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if at(node, "spec", "unschedulable") else status


def _roles(node: Json, _now: float) -> str:
    roles = set()
    for key, value in (at(node, "metadata", "labels") or {}).items():
        if key.startswith(_ROLE) and len(key) > len(_ROLE):
            roles.add(key[len(_ROLE) :])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def _node_address(kind: str) -> Any:
    def value(node: Json, _now: float) -> str:
        for address in at(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address"))
        return NONE

    return value


def _external(service: Json, _now: float) -> str:
    kind, given = at(service, "spec", "type"), at(service, "spec", "externalIPs") or []
    if kind == "ExternalName":
        return at(service, "spec", "externalName") or ""
    if kind == "LoadBalancer":
        ingress = at(service, "status", "loadBalancer", "ingress") or ()
        addresses = [item.get("ip") or item.get("hostname") or "" for item in ingress]
        return ",".join([*addresses, *given]) or "<pending>"
    return ",".join(given) or NONE


def _ports(service: Json, _now: float) -> str:
    ports = []
    for port in at(service, "spec", "ports") or ():
        text = f"{port.get('port')}/{port.get('protocol')}"
        ports.append(
            f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
            if port.get("nodePort")
            else text
        )
    return ",".join(ports) or NONE


def _endpoints(tree: Json, _now: float) -> str:
    endpoints = []
    for subset in tree.get("subsets") or ():
        for address in subset.get("addresses") or ():
            for port in subset.get("ports") or ():
                endpoints.append(f"{address.get('ip')}:{port.get('port')}")
            if not subset.get("ports"):
                endpoints.append(str(address.get("ip")))
    return listed(endpoints)


def _modes(*path: str) -> Any:
    return lambda tree, _now: ",".join(_MODES.get(mode, mode) for mode in at(tree, *path) or ())


def _volume_status(tree: Json, _now: float) -> str:
    return (
        "Terminating"
        if at(tree, "metadata", "deletionTimestamp")
        else at(tree, "status", "phase") or ""
    )


def _claim(volume: Json, _now: float) -> str:
    claim = at(volume, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _used(tree: Json, limits: bool) -> str:
    hard = at(tree, "status", "hard") or at(tree, "spec", "hard") or {}
    used = at(tree, "status", "used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{amount}"
        for name, amount in sorted(hard.items())
        if name.startswith("limits.") == limits
    )


# --- events ---------------------------------------------------------------------------------------


def _first_seen(event: Json, now: float) -> str:
    return age(
        event.get("firstTimestamp")
        or event.get("deprecatedFirstTimestamp")
        or event.get("eventTime"),
        now,
    )


def _last_seen(event: Json, now: float) -> str:
    series = event.get("series")
    if series:
        return age(series.get("lastObservedTime"), now)
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    return age(last, now) if last else _first_seen(event, now)


def _about(event: Json) -> Json:
    return event.get("involvedObject") or event.get("regarding") or {}


def _object(event: Json, _now: float) -> str:
    about = _about(event)
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(event: Json, _now: float) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    parts = [
        source.get("component")
        or event.get("reportingComponent")
        or event.get("reportingController")
        or ""
    ]
    where = source.get("host") or event.get("reportingInstance")
    return ", ".join([*parts, where] if where else parts)


def _times(event: Json, _now: float) -> int:
    return (
        (event.get("series") or {}).get("count")
        or event.get("count")
        or event.get("deprecatedCount")
        or 1
    )


EVENT = (
    column("Last Seen", _last_seen, "When it happened last."),
    column("Type", cell("type")),
    column("Reason", cell("reason")),
    column("Object", _object, "What it is about."),
    wide("Subobject", lambda event, _now: _about(event).get("fieldPath") or ""),
    wide("Source", _source, "Who says so."),
    column(
        "Message", lambda event, _now: (event.get("message") or event.get("note") or "").strip()
    ),
    wide("First Seen", _first_seen),
    wide("Count", _times),
    wide("Name", cell("metadata", "name"))._replace(format="name"),
)

COLUMNS = {
    ("", "Node"): (
        NAME,
        column("Status", _node_status, "Whether the node can run pods."),
        column("Roles", _roles),
        AGE,
        column("Version", cell("status", "nodeInfo", "kubeletVersion")),
        wide("Internal-IP", _node_address("InternalIP")),
        wide("External-IP", _node_address("ExternalIP")),
        wide("OS-Image", cell("status", "nodeInfo", "osImage", absent=UNKNOWN)),
        wide("Kernel-Version", cell("status", "nodeInfo", "kernelVersion", absent=UNKNOWN)),
        wide(
            "Container-Runtime",
            cell("status", "nodeInfo", "containerRuntimeVersion", absent=UNKNOWN),
        ),
    ),
    ("", "Namespace"): (NAME, column("Status", cell("status", "phase")), AGE),
    ("", "ConfigMap"): (
        NAME,
        column(
            "Data",
            lambda tree, _now: len(tree.get("data") or ()) + len(tree.get("binaryData") or ()),
        ),
        AGE,
    ),
    ("", "Secret"): (
        NAME,
        column("Type", cell("type")),
        column("Data", lambda tree, _now: len(tree.get("data") or ())),
        AGE,
    ),
    ("", "ServiceAccount"): (NAME, AGE),
    ("coordination.k8s.io", "Lease"): (NAME, column("Holder", cell("spec", "holderIdentity")), AGE),
    ("", "Service"): (
        NAME,
        column("Type", cell("spec", "type")),
        column("Cluster-IP", cell("spec", "clusterIP", absent=NONE)),
        column("External-IP", _external),
        column("Port(s)", _ports),
        AGE,
        wide("Selector", lambda tree, _now: labels(at(tree, "spec", "selector"))),
    ),
    ("", "Endpoints"): (NAME, column("Endpoints", _endpoints), AGE),
    ("", "Event"): EVENT,
    ("events.k8s.io", "Event"): EVENT,
    ("", "PersistentVolumeClaim"): (
        NAME,
        column("Status", _volume_status),
        column("Volume", cell("spec", "volumeName")),
        column("Capacity", cell("status", "capacity", "storage")),
        column("Access Modes", _modes("status", "accessModes")),
        column("StorageClass", cell("spec", "storageClassName")),
        column("VolumeAttributesClass", cell("spec", "volumeAttributesClassName", absent=UNSET)),
        AGE,
        wide("VolumeMode", cell("spec", "volumeMode", absent=UNSET)),
    ),
    ("", "PersistentVolume"): (
        NAME,
        column("Capacity", cell("spec", "capacity", "storage")),
        column("Access Modes", _modes("spec", "accessModes")),
        column("Reclaim Policy", cell("spec", "persistentVolumeReclaimPolicy")),
        column("Status", _volume_status),
        column("Claim", _claim),
        column("StorageClass", cell("spec", "storageClassName")),
        column("VolumeAttributesClass", cell("spec", "volumeAttributesClassName", absent=UNSET)),
        column("Reason", cell("status", "reason")),
        AGE,
        wide("VolumeMode", cell("spec", "volumeMode", absent=UNSET)),
    ),
    ("", "ResourceQuota"): (
        NAME,
        column(
            "Request",
            lambda tree, _now: _used(tree, False),
            "Used and allowed, of what pods ask for.",
        ),
        column(
            "Limit",
            lambda tree, _now: _used(tree, True),
            "Used and allowed, of what pods may grow to.",
        ),
        AGE,
    ),
    ("", "LimitRange"): (NAME, CREATED),
}
