"""The rules of pods and of the pod templates inside workloads (local-cluster 5.2)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import msgspec

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import duplicate, forbidden, invalid, not_found, required
from hekla.local.apiserver.objects.validation import rarities
from hekla.local.apiserver.objects.validation.metadata import (
    Errors,
    check_annotations,
    label_key,
    labels,
    metadata,
    not_negative,
    one_of,
)
from hekla.local.apiserver.objects.validation.placement import affinity, tolerations, topology_spread
from hekla.local.apiserver.objects.validation.probes import lifecycle, probe
from hekla.local.apiserver.objects.validation.resources import requirements
from hekla.local.apiserver.objects.validation.volumes import volume_names

Json = dict[str, Any]

RESTART = ("Always", "OnFailure", "Never")
DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PULL = ("Always", "IfNotPresent", "Never")
TERMINATION = ("File", "FallbackToLogsOnError")
PROTOCOLS = ("SCTP", "TCP", "UDP")
TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELD_PATHS = frozenset(
    {
        "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
        "status.hostIPs", "status.podIP", "status.podIPs",
    }
)  # fmt: skip


KNOWN_SPECS = 2048
_encode = msgspec.json.Encoder().encode
_known: set[bytes] = set()
"""Specs that were found to be right, apart from what differs between the pods of one template."""


def create(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    template = template_of(spec)
    if template in _known:
        hostname = spec.get("hostname")
        if hostname:
            found += [invalid("spec.hostname", hostname, reason) for reason in names.dns_label(hostname)]
    else:
        before = len(found)
        pod_spec(spec, "spec", found)
        _images(spec, found)
        if len(found) == before:
            if len(_known) >= KNOWN_SPECS:
                _known.clear()
            _known.add(template)
    if spec.get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def template_of(spec: Json) -> bytes:
    """All of a spec that its rules look at, the same for all pods of a template: without the hostname, and with one name for the
    volume of the account's token, which is made up for each pod."""
    shown = {name: value for name, value in spec.items() if name != "hostname"}
    text = _encode(shown)
    for volume in spec.get("volumes") or ():
        name = volume.get("name") or ""
        if type(name) is str and TOKEN_VOLUME.fullmatch(name):
            return text.replace(name.encode(), b"\0")  # which stands in no JSON
    return text


def template(value: Json, path: str, found: Errors) -> None:
    """A PodTemplateSpec."""
    meta = value.get("metadata") or {}
    labels(meta.get("labels"), f"{path}.labels", found)
    check_annotations(meta.get("annotations"), f"{path}.annotations", found)
    pod_spec(value.get("spec") or {}, f"{path}.spec", found)


def pod_spec(spec: Json, path: str, found: Errors) -> None:
    volumes = volume_names(spec.get("volumes") or (), f"{path}.volumes", found)
    _containers(spec, path, volumes, found)
    one_of(spec.get("restartPolicy"), RESTART, f"{path}.restartPolicy", found, needed=True)
    one_of(spec.get("dnsPolicy"), DNS, f"{path}.dnsPolicy", found, needed=True)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        found.append(required(f"{path}.dnsConfig.nameservers", why))
    if spec.get("nodeSelector"):
        labels(spec["nodeSelector"], f"{path}.nodeSelector", found)
    if spec.get("affinity"):
        affinity(spec["affinity"], f"{path}.affinity", found)
    if spec.get("tolerations"):
        tolerations(spec["tolerations"], f"{path}.tolerations", found)
    if spec.get("topologySpreadConstraints"):
        topology_spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints", found)
    for name, rule in _NAMES:
        value = spec.get(name)
        if value:
            found += [invalid(f"{path}.{name}", value, reason) for reason in rule(value)]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        found.append(invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"))
    not_negative(spec.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds", found)
    _gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates", found)
    one_of(spec.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), f"{path}.preemptionPolicy", found)
    security = spec.get("securityContext")
    if security:
        _ids(security, f"{path}.securityContext", found)
        if security.get("sysctls"):
            rarities.sysctls(security["sysctls"], f"{path}.securityContext.sysctls", found)
    if not rarities.FIELDS.isdisjoint(spec):
        rarities.check(spec, path, found)


_NAMES = (
    ("hostname", names.dns_label),
    ("subdomain", names.dns_label),
    ("serviceAccountName", names.dns_subdomain),
    ("nodeName", names.dns_subdomain),
    ("priorityClassName", names.dns_subdomain),
    ("runtimeClassName", names.dns_subdomain),
)


def _containers(spec: Json, path: str, volumes: frozenset[str], found: Errors) -> None:
    containers = spec.get("containers") or ()
    if not containers:
        found.append(required(f"{path}.containers"))
    seen: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    for position, container in enumerate(containers):
        where = f"{path}.containers[{position}]"
        _container(container, where, spec, volumes, seen, host_ports, found)
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(name) is not None:
                probe(container[name], f"{where}.{name}", name, found)
        if container.get("lifecycle"):
            lifecycle(container["lifecycle"], f"{where}.lifecycle", found)
    for position, container in enumerate(spec.get("initContainers") or ()):
        where = f"{path}.initContainers[{position}]"
        _container(container, where, spec, volumes, seen, set(), found)
        sidecar = container.get("restartPolicy") == "Always"
        one_of(container.get("restartPolicy"), ("Always", "Never", "OnFailure"), f"{where}.restartPolicy", found)
        for name in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            if container.get(name) is None:
                continue
            if not sidecar:
                found.append(forbidden(f"{where}.{name}", "may not be set for init containers without restartPolicy=Always"))
            elif name != "lifecycle":
                probe(container[name], f"{where}.{name}", name, found)


def _container(
    container: Json, path: str, spec: Json, volumes: frozenset[str], seen: set[str], host_ports: set[Any], found: Errors
) -> None:
    name = container.get("name") or ""
    if not name:
        found.append(required(f"{path}.name"))
    else:
        found += [invalid(f"{path}.name", name, reason) for reason in names.dns_label(name)]
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
    image = container.get("image") or ""
    if not image:
        found.append(required(f"{path}.image"))
    one_of(container.get("terminationMessagePolicy"), TERMINATION, f"{path}.terminationMessagePolicy", found, needed=True)
    if container.get("ports"):
        _ports(container["ports"], f"{path}.ports", bool(spec.get("hostNetwork")), host_ports, found)
    if container.get("env"):
        _environment(container["env"], f"{path}.env", found)
    for position, source in enumerate(container.get("envFrom") or ()):
        _env_from(source, f"{path}.envFrom[{position}]", found)
    if container.get("volumeMounts"):
        _mounts(container["volumeMounts"], f"{path}.volumeMounts", volumes, found)
    one_of(container.get("imagePullPolicy"), PULL, f"{path}.imagePullPolicy", found, needed=True)
    if container.get("resources"):
        requirements(container["resources"], f"{path}.resources", found)
    security = container.get("securityContext")
    if security:
        _ids(security, f"{path}.securityContext", found)
        if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            found.append(invalid(f"{path}.securityContext", security, why))


def _ports(ports: list[Json], path: str, host_network: bool, host_ports: set[Any], found: Errors) -> None:
    seen: set[str] = set()
    for position, port in enumerate(ports):
        where = f"{path}[{position}]"
        name = port.get("name")
        if name:
            reasons = names.port_name(name)
            found += [invalid(f"{where}.name", name, reason) for reason in reasons]
            if not reasons and name in seen:
                found.append(duplicate(f"{where}.name", name))
            seen.add(name)
        number = port.get("containerPort") or 0
        if not number:
            found.append(required(f"{where}.containerPort"))
        else:
            found += [invalid(f"{where}.containerPort", number, reason) for reason in names.port_number(number)]
        host = port.get("hostPort") or 0
        if host:
            found += [invalid(f"{where}.hostPort", host, reason) for reason in names.port_number(host)]
            if host_network and host != number:
                found.append(invalid(f"{where}.hostPort", host, "must match `containerPort` when `hostNetwork` is true"))
            taken = (port.get("protocol"), port.get("hostIP") or "", host)
            if taken in host_ports:
                found.append(duplicate(f"{where}.hostPort", f"{taken[0]}/{taken[1]}/{host}"))
            host_ports.add(taken)
        one_of(port.get("protocol"), PROTOCOLS, f"{where}.protocol", found, needed=True)


def _environment(variables: list[Json], path: str, found: Errors) -> None:
    for position, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            found.append(required(f"{path}[{position}].name"))
        elif not name.isidentifier():
            found += [invalid(f"{path}[{position}].name", name, reason) for reason in names.env_name(name)]
        source = variable.get("valueFrom")
        if source is not None:
            _value_from(source, f"{path}[{position}].valueFrom", bool(variable.get("value")), found)


def _value_from(source: Json, path: str, has_value: bool, found: Errors) -> None:
    given = [name for name in _SOURCES if source.get(name) is not None]
    if not given:
        found.append(invalid(path, "", f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES[:-1])} or `fileKeyRef`"))
    elif has_value:
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    for name in ("configMapKeyRef", "secretKeyRef"):
        if source.get(name) is not None and not source[name].get("key"):
            found.append(required(f"{path}.{name}.key"))
    reference = source.get("fieldRef")
    if reference is not None:
        _field_path(reference.get("fieldPath") or "", f"{path}.fieldRef.fieldPath", found)
    resource = source.get("resourceFieldRef")
    if resource is not None and not resource.get("resource"):
        found.append(required(f"{path}.resourceFieldRef.resource"))


def _field_path(value: str, path: str, found: Errors) -> None:
    if not value:
        found.append(required(path))
    elif value not in _FIELD_PATHS and not value.startswith(("metadata.labels['", "metadata.annotations['")):
        found.append(invalid(path, value, f"error converting fieldPath: field label not supported: {value}"))


def _env_from(source: Json, path: str, found: Errors) -> None:
    given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
    if not given:
        found.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(given) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    for name in given:
        if not source[name].get("name"):
            found.append(required(f"{path}.{name}.name"))


def _mounts(mounts: list[Json], path: str, volumes: frozenset[str], found: Errors) -> None:
    seen: set[str] = set()
    for position, mount in enumerate(mounts):
        where = f"{path}[{position}]"
        name = mount.get("name") or ""
        if not name:
            found.append(required(f"{where}.name"))
        elif name not in volumes:
            found.append(not_found(f"{where}.name", name))
        target = mount.get("mountPath") or ""
        if not target:
            found.append(required(f"{where}.mountPath"))
        elif target in seen:
            found.append(invalid(f"{where}.mountPath", target, "must be unique"))
        seen.add(target)
        for field in ("subPath", "subPathExpr"):
            inside = mount.get(field)
            if inside:
                if inside.startswith("/"):
                    found.append(invalid(f"{path}.{field}", inside, "must be a relative path"))
                if ".." in inside.split("/"):
                    found.append(invalid(f"{path}.{field}", inside, "must not contain '..'"))
        if mount.get("subPath") and mount.get("subPathExpr"):
            found.append(invalid(f"{where}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive"))


def _gates(gates: Any, path: str, found: Errors) -> None:
    seen: set[str] = set()
    for position, gate in enumerate(gates):
        name = gate.get("name") or ""
        where = f"{path}[{position}]"
        found += [invalid(where, name, reason) for reason in label_key(name)]
        if name in seen:
            found.append(duplicate(f"{path}[{position}]", name))
        seen.add(name)


def _ids(security: Json, path: str, found: Errors) -> None:
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        value = security.get(name)
        if value is not None and not 0 <= value <= 2**31 - 1:
            found.append(invalid(f"{path}.{name}", value, "must be between 0 and 2147483647, inclusive"))


# --- update --------------------------------------------------------------------------------------------------------------

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update(new: Json, old: Json) -> Errors:
    if new.get("spec") == old.get("spec"):
        return metadata(new)
    found = create_rules_of_update(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    more = [name for name in ("containers", "initContainers") if len(spec.get(name) or ()) != len(before.get(name) or ())]
    if more:
        found += [forbidden(f"spec.{name}", "pod updates may not add or remove containers") for name in more]
        return found
    _deadline_change(spec, before, found)
    _gate_change(spec, before, found)
    replaced = not _kept(before.get("tolerations") or [], spec.get("tolerations") or [])
    if replaced:
        found.append(forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"))
    gated = bool(before.get("schedulingGates"))
    changed = sorted(
        name
        for name in spec.keys() | before.keys()
        if _without_changeable(name, spec.get(name)) != _without_changeable(name, before.get(name))
        and not (gated and name in ("nodeSelector", "affinity"))
    )
    if changed:
        found.append(forbidden("spec", f"{_CHANGEABLE}\nchanged: {', '.join(changed)}\n"))
    if gated:
        for key, value in (before.get("nodeSelector") or {}).items():
            if (spec.get("nodeSelector") or {}).get(key) != value:
                found.append(invalid("spec.nodeSelector", spec.get("nodeSelector"), "only additions are allowed"))
                break
    return found


def create_rules_of_update(new: Json) -> Errors:
    found = metadata(new)
    pod_spec(new.get("spec") or {}, "spec", found)
    _images(new.get("spec") or {}, found)
    return found


def _images(spec: Json, found: Errors) -> None:
    """Of pods alone: a template may have any image."""
    for name in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            image = container.get("image") or ""
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                found.append(invalid(f"spec.{name}[{position}].image", image, why))


def _without_changeable(name: str, value: Any) -> Any:
    if name in ("containers", "initContainers"):
        return [{key: item for key, item in container.items() if key != "image"} for container in value or ()]
    if name in ("activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"):
        return None
    return value


def _deadline_change(spec: Json, before: Json, found: Errors) -> None:
    value, previous = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if previous is None or value == previous:
        return
    if value is None:
        found.append(invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value"))
    elif value > previous:
        found.append(invalid("spec.activeDeadlineSeconds", value, "must be less than or equal to previous value"))


def _gate_change(spec: Json, before: Json, found: Errors) -> None:
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            found.append(forbidden(f"spec.schedulingGates[{position}].name", why))


def _kept(before: list[Json], after: list[Json]) -> bool:
    """Whether every old toleration still stands, its tolerationSeconds apart."""

    def essence(toleration: Json) -> Json:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    present = [essence(toleration) for toleration in after]
    return all(essence(toleration) in present for toleration in before)


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    addresses = (new.get("status") or {}).get("podIPs")
    if addresses:
        for position, entry in enumerate(addresses):
            if not _is_address(entry.get("ip") or ""):
                why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                found.append(invalid(f"status.podIPs[{position}]", entry.get("ip") or "", why))
    node, before = (new.get("spec") or {}).get("nodeName"), (old.get("spec") or {}).get("nodeName")
    if node != before:
        found.append(forbidden("status.nominatedNodeName", "spec.nodeName may not be changed through status"))
    return found
