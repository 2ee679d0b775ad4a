"""Containers of a pod template: names, images, ports, environment, mounts, probes.  Reference: api-and-admission 5.3.5."""

from __future__ import annotations

from collections.abc import Iterator

from hekla.admission import podresources
from hekla.admission.fielderrors import duplicate, forbidden, invalid, not_found, required, unsupported
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label, environment_name, port_name

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
PORT_RANGE = "must be between 1 and 65535, inclusive"
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def problems(spec: Tree, volumes: set[str | None], path: str) -> Iterator[str]:
    seen: set[str] = set()
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            where = f"{path}.{field}[{index}]"
            yield from _identity(container, seen, where)
            yield from _ports(container.get("ports") or [], bool(spec.get("hostNetwork")), f"{where}.ports")
            yield from _environment(container.get("env") or [], f"{where}.env")
            yield from _mounts(container.get("volumeMounts") or [], volumes, f"{where}.volumeMounts")
            yield from _probes(container, where)
            yield from podresources.container_problems(container.get("resources") or {}, f"{where}.resources")
    yield from _host_ports(spec.get("containers") or [], f"{path}.containers")


def _identity(container: Tree, seen: set[str], where: str) -> Iterator[str]:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required(f"{where}.name")
    else:
        yield from (invalid(f"{where}.name", name, reason) for reason in dns_label(name))
    if name and name in seen:
        yield duplicate(f"{where}.name", name)
    seen.add(name)
    if not image:
        yield required(f"{where}.image")
    elif image != image.strip():
        yield invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
    for field, choices in (("imagePullPolicy", PULL_POLICIES), ("terminationMessagePolicy", MESSAGE_POLICIES)):
        value = container.get(field)
        if value and value not in choices:
            yield unsupported(f"{where}.{field}", value, choices)


def _ports(ports: list[Tree], host_network: bool, path: str) -> Iterator[str]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name")
        number, on_host = port.get("containerPort") or 0, port.get("hostPort") or 0
        if name:
            errors = port_name(name)
            yield from (invalid(f"{where}.name", name, reason) for reason in errors)
            if not errors and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        if not number:
            yield required(f"{where}.containerPort")
        elif not 0 < number < 65536:
            yield invalid(f"{where}.containerPort", number, PORT_RANGE)
        if on_host and not 0 < on_host < 65536:
            yield invalid(f"{where}.hostPort", on_host, PORT_RANGE)
        if host_network and on_host and on_host != number:
            yield invalid(f"{where}.containerPort", number, "must match `hostPort` when `hostNetwork` is true")
        protocol = port.get("protocol") or "TCP"
        if protocol not in PROTOCOLS:
            yield unsupported(f"{where}.protocol", protocol, PROTOCOLS)


def _host_ports(containers: list[Tree], path: str) -> Iterator[str]:
    """No two containers of a pod share a port of the host."""
    seen: set[tuple[str, str, int]] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports") or []):
            number = port.get("hostPort") or 0
            key = (port.get("protocol") or "TCP", port.get("hostIP") or "", number)
            if number and key in seen:
                yield duplicate(f"{path}[{index}].ports[{place}].hostPort", f"{key[1]}/{key[0]}/{number}".lstrip("/"))
            seen.add(key)


def _environment(variables: list[Tree], path: str) -> Iterator[str]:
    for index, variable in enumerate(variables):
        where, name = f"{path}[{index}]", variable.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        else:
            yield from (invalid(f"{where}.name", name, reason) for reason in environment_name(name))
        source = variable.get("valueFrom")
        if source is None:
            continue
        given = [key for key in VALUE_SOURCES if source.get(key) is not None]
        if not given:
            yield invalid(
                f"{where}.valueFrom",
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
            )
        elif len(given) > 1:
            yield invalid(f"{where}.valueFrom", "", "may not have more than one field specified at a time")
        if variable.get("value"):
            yield invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty")


def _mounts(mounts: list[Tree], volumes: set[str | None], path: str) -> Iterator[str]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        elif name not in volumes:
            yield not_found(f"{where}.name", name)
        if not target:
            yield required(f"{where}.mountPath")
        elif target in paths:
            yield invalid(f"{where}.mountPath", target, "must be unique")
        paths.add(target)
        for field in ("subPath", "subPathExpr"):
            inside = mount.get(field) or ""
            if inside.startswith("/"):
                yield invalid(f"{where}.{field}", inside, "must be a relative path")
            if ".." in inside.split("/"):
                yield invalid(f"{where}.{field}", inside, "must not contain '..'")


def _probes(container: Tree, where: str) -> Iterator[str]:
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(field)
        if probe is None:
            continue
        given = [handler for handler in HANDLERS if probe.get(handler) is not None]
        if not given:
            yield required(f"{where}.{field}", "must specify a handler type")
        for extra in given[1:]:
            yield forbidden(f"{where}.{field}.{extra}", "may not specify more than 1 handler type")
        for number in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
            if (probe.get(number) or 0) < 0:
                yield invalid(f"{where}.{field}.{number}", probe[number], "must be greater than or equal to 0")
        if field != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
            yield invalid(f"{where}.{field}.successThreshold", probe["successThreshold"], "must be 1")
