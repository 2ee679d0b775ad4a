"""Containers of a pod template: names, images, ports, mounts.  Reference: api-and-admission 5.3.5.

What their variables, probes and security settings must be has rooms of its own (`environment`, `probes`, `security`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hekla.admission import environment, podresources, probes, security
from hekla.admission.fielderrors import duplicate, forbidden, invalid, not_found, required, unsupported
from hekla.admission.probes import GRACE, PORT_RANGE
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label, port_name

PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
READ_ONLY = ("Disabled", "Enabled", "IfPossible")
BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
RESIZED = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")
INIT_ONLY = "may not be set for init containers without restartPolicy=Always"

Volumes = Mapping[str, Tree]


def problems(spec: Tree, volumes: Volumes, path: str) -> Iterator[str]:
    seen: set[str] = set()
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for index, container in enumerate(spec.get("containers") or []):
        where = f"{path}.containers[{index}]"
        yield from _container(container, seen, spec, volumes, where)
        yield from _handlers(container, spec, where)
        if container.get("restartPolicy") is not None:
            yield forbidden(f"{where}.restartPolicy", "may not be set for non-init containers")
    yield from _host_ports(spec.get("containers") or [], bool(spec.get("hostNetwork")), f"{path}.containers")
    for index, container in enumerate(spec.get("initContainers") or []):
        where = f"{path}.initContainers[{index}]"
        yield from _container(container, seen, spec, volumes, where)
        yield from _first(container, spec, where)


def _container(container: Tree, seen: set[str], spec: Tree, volumes: Volumes, where: str) -> Iterator[str]:
    """What holds for containers of either kind."""
    yield from _identity(container, seen, where)
    yield from _ports(container.get("ports") or [], f"{where}.ports")
    yield from environment.problems(container, where)
    yield from _mounts(container, volumes, where)
    yield from _devices(container, volumes, f"{where}.volumeDevices")
    policy = container.get("imagePullPolicy")
    if policy and policy not in PULL_POLICIES:
        yield unsupported(f"{where}.imagePullPolicy", policy, PULL_POLICIES)
    claims = [claim.get("name") or "" for claim in spec.get("resourceClaims") or []]
    yield from podresources.container_problems(container.get("resources") or {}, claims, f"{where}.resources")
    yield from _resizing(container, f"{where}.resizePolicy")
    yield from security.container_problems(container.get("securityContext") or {}, f"{where}.securityContext")


def _handlers(container: Tree, spec: Tree, where: str) -> Iterator[str]:
    given = spec.get("terminationGracePeriodSeconds")
    grace = GRACE if given is None else given
    yield from probes.hooks(container, grace, where)
    if (container.get("lifecycle") or {}).get("stopSignal") is not None and not (spec.get("os") or {}).get("name"):
        yield forbidden(f"{where}.lifecycle.stopSignal", "may not be set for containers with empty `spec.os.name`")
    yield from probes.probes(container, grace, where)


def _first(container: Tree, spec: Tree, where: str) -> Iterator[str]:
    """An init container ends before the others begin, unless it is restarted: then it is one of them."""
    restart = container.get("restartPolicy")
    if restart == "Always":
        yield from _handlers(container, spec, where)
        return
    if restart is not None:
        yield unsupported(f"{where}.restartPolicy", restart, ("Always",))
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            yield forbidden(f"{where}.{field}", INIT_ONLY)


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
    policy = container.get("terminationMessagePolicy")
    if policy and policy not in MESSAGE_POLICIES:
        yield unsupported(f"{where}.terminationMessagePolicy", policy, MESSAGE_POLICIES)


def _ports(ports: list[Tree], path: str) -> Iterator[str]:
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
        protocol = port.get("protocol") or "TCP"
        if protocol not in PROTOCOLS:
            yield unsupported(f"{where}.protocol", protocol, PROTOCOLS)


def _host_ports(containers: list[Tree], host_network: bool, path: str) -> Iterator[str]:
    """No two containers of a pod share a port of the host."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports") or []):
            number = port.get("hostPort") or (port.get("containerPort") or 0 if host_network else 0)
            key = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{number}"
            if number and key in seen:
                yield duplicate(f"{path}[{index}].ports[{place}].hostPort", key)
            seen.add(key)


def host_network_problems(spec: Tree, path: str) -> Iterator[str]:
    """On the network of its node a container has the ports that it listens at, and no others."""
    for index, container in enumerate(spec.get("containers") or [] if spec.get("hostNetwork") else []):
        for place, port in enumerate(container.get("ports") or []):
            number, on_host = port.get("containerPort") or 0, port.get("hostPort") or 0
            if on_host and on_host != number:
                where = f"{path}.containers[{index}].ports[{place}].hostPort"
                yield invalid(where, on_host, "must match `containerPort` when `hostNetwork` is true")


def _mounts(container: Tree, volumes: Volumes, path: str) -> Iterator[str]:
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    paths: set[str] = set()
    shared = f"{path}.volumeMounts"
    devices = {device.get("devicePath") for device in container.get("volumeDevices") or []}
    for index, mount in enumerate(container.get("volumeMounts") or []):
        where, name, target = f"{shared}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield not_found(f"{where}.name", name)
        if not target:
            yield required(f"{where}.mountPath")
        if target in paths:
            yield invalid(f"{where}.mountPath", target, "must be unique")
        if target in devices:
            yield invalid(f"{where}.mountPath", target, "must not already exist as a path in volumeDevices")
        paths.add(target)
        yield from _inside(mount, where, shared)
        yield from _propagation(mount, privileged, shared)


def _inside(mount: Tree, where: str, shared: str) -> Iterator[str]:
    """A path within the volume.  Kubernetes leaves the mount's number out of some of the paths that it names."""
    plain, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    for field, inside in (("subPath", plain), ("subPathExpr", expression)):
        if field == "subPathExpr" and plain and expression:
            yield invalid(f"{where}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
        if inside.startswith("/"):
            yield invalid(f"{shared}.{field}", inside, "must be a relative path")
        if ".." in inside.split("/"):
            yield invalid(f"{shared}.{field}", inside, "must not contain '..'")


def _propagation(mount: Tree, privileged: bool, shared: str) -> Iterator[str]:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None and propagation not in PROPAGATIONS:
        yield unsupported(f"{shared}.mountPropagation", propagation, PROPAGATIONS)
    if propagation == "Bidirectional" and not privileged:
        yield forbidden(f"{shared}.mountPropagation", "Bidirectional mount propagation is available only to privileged containers")
    if recursive is None or recursive == "Disabled":
        return
    if recursive not in READ_ONLY:
        yield unsupported(f"{shared}.recursiveReadOnly", recursive, READ_ONLY)
        return
    if not mount.get("readOnly"):
        yield forbidden(f"{shared}.recursiveReadOnly", "may only be specified when readOnly is true")
    if propagation not in (None, "None"):
        yield forbidden(f"{shared}.recursiveReadOnly", "may only be specified when mountPropagation is None or not specified")


def _devices(container: Tree, volumes: Volumes, path: str) -> Iterator[str]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or []):
        where, name, target = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(f"{where}.name")
        if name in names:
            yield invalid(f"{where}.name", name, "must be unique")
        names.add(name)
        if name not in volumes:
            yield not_found(f"{where}.name", name)
        elif all(volumes[name].get(source) is None for source in BLOCK_SOURCES):
            yield invalid(f"{where}.name", name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
        if not target:
            yield required(f"{where}.devicePath")
        if target in paths:
            yield invalid(f"{where}.devicePath", target, "must be unique")
        if ".." in target.split("/"):
            yield invalid(f"{where}.devicePath", target, "must not contain '..'")
        paths.add(target)


def _resizing(container: Tree, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for policy in container.get("resizePolicy") or []:
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            yield duplicate(path, resource)
        seen.add(resource)
        if resource not in RESIZED:
            yield unsupported(path, resource, RESIZED) if resource else required(path)
        if restart not in RESIZE_POLICIES:
            yield unsupported(path, restart, RESIZE_POLICIES) if restart else required(path)
