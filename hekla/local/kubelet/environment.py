"""The environment of a container, in the order in which later wins: services, the API server's
address, envFrom, env.

Reference: local-cluster 8.7.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from hekla.api.kubernetes import core
from hekla.api.text import quantity

VARIABLE = re.compile(r"\$(\$|\(([^)]*)\))")
LEGAL_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigError(Exception):
    """Something that the container's configuration refers to does not exist (yet); the text is for
    its status."""


@dataclass(slots=True)
class Sources:
    """What references can refer to: objects of the pod's namespace, and what the node knows about
    the pod."""

    config_map: Callable[[str], core.ConfigMap | None]
    secret: Callable[[str], core.Secret | None]
    services: Callable[[], Iterable[core.Service]] = tuple
    allocatable: Mapping[str, str | int | float] = field(default_factory=dict)
    host_ip: str = ""
    pod_ip: str = ""
    api_host: str = ""
    api_port: str = ""


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replaces $(NAME); an unknown name stays as it is and $$ stands for $."""

    def one(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return known.get(match[2], match[0])

    return VARIABLE.sub(one, text)


def field_value(pod: core.Pod, path: str, sources: Sources) -> str:
    """What a fieldRef names.  Raises ConfigError for a path that does not exist."""
    meta = pod.metadata
    if match := KEYED_FIELD.fullmatch(path):
        return (meta.labels if match[1] == "labels" else meta.annotations).get(match[2], "")
    match path:
        case "metadata.name":
            return meta.name
        case "metadata.namespace":
            return meta.namespace
        case "metadata.uid":
            return meta.uid
        case "metadata.labels":
            return lines(meta.labels)
        case "metadata.annotations":
            return lines(meta.annotations)
        case "spec.nodeName":
            return pod.spec.node_name
        case "spec.serviceAccountName":
            return pod.spec.service_account_name
        case "status.hostIP" | "status.hostIPs":
            return sources.host_ip
        case "status.podIP" | "status.podIPs":
            return sources.pod_ip
    raise ConfigError(f"unsupported fieldPath: {path}")


def lines(values: Mapping[str, str]) -> str:
    """Labels or annotations as a downward volume shows them: `key="escaped"`, sorted."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "\n".join(
        f'{key}="{"".join(escapes.get(c, c) for c in value)}"'
        for key, value in sorted(values.items())
    )


def resource_value(
    pod: core.Pod, container: core.Container, ref: core.ResourceFieldSelector, sources: Sources
) -> str:
    """What a resourceFieldRef names, in units of its divisor, rounded up.  Raises ConfigError."""
    if ref.container_name and ref.container_name != container.name:
        named = [
            c
            for c in [*pod.spec.containers, *pod.spec.init_containers]
            if c.name == ref.container_name
        ]
        if not named:
            raise ConfigError(f"container {ref.container_name} not found")
        container = named[0]
    side, _, resource = ref.resource.partition(".")
    if side not in ("limits", "requests") or not resource:
        raise ConfigError(f"unsupported container resource: {ref.resource}")
    amount = getattr(container.resources, side).get(resource)
    if amount is None:
        amount = sources.allocatable.get(resource, "0") if side == "limits" else "0"
    divisor = quantity.milli(ref.divisor) if ref.divisor not in ("", "0", 0) else 1000
    return str(-(-quantity.milli(amount) // divisor))


def decoded(value: str) -> str:
    """A value of a Secret as text."""
    try:
        return base64.b64decode(value).decode(errors="replace")
    except binascii.Error:
        return ""


def service_variables(services: Iterable[core.Service]) -> dict[str, str]:
    """The variables by which pods find services, in Kubernetes' form and docker's.

    A process starts with at most 2 MiB of variables and arguments.  Where the services of a
    namespace need more than their part of it, those with the most ports get variables for the first
    port only, and then none.
    """
    found: dict[str, str] = {}
    left = MOST_SERVICE_BYTES
    for service in sorted(services, key=lambda one: len(one.spec.ports or ())):
        made = variables_of(service)
        size = size_of(made)
        if size > left and service.spec.ports:
            made = variables_of(
                msgspec.structs.replace(
                    service,
                    spec=msgspec.structs.replace(service.spec, ports=service.spec.ports[:1]),
                )
            )
            size = size_of(made)
        if size <= left:
            left -= size
            found.update(made)
    return found


MOST_SERVICE_BYTES = 512 * 1024


def size_of(variables: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) + 10 for name, value in variables.items())


def variables_of(service: core.Service) -> dict[str, str]:
    """Those of one service."""
    address = service.spec.cluster_ip
    if (
        not address
        or address == "None"
        or not service.spec.ports
        or service.metadata.name == "kubernetes"
    ):
        return {}
    name = service.metadata.name.upper().replace("-", "_")
    first = service.spec.ports[0]
    found = {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(first.port)}
    for port in service.spec.ports:
        if port.name:
            found[f"{name}_SERVICE_PORT_{port.name.upper().replace('-', '_')}"] = str(port.port)
    found[f"{name}_PORT"] = f"{(first.protocol or 'TCP').lower()}://{address}:{first.port}"
    for port in service.spec.ports:
        protocol = port.protocol or "TCP"
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        found[prefix] = f"{protocol.lower()}://{address}:{port.port}"
        found[f"{prefix}_PROTO"] = protocol.lower()
        found[f"{prefix}_PORT"] = str(port.port)
        found[f"{prefix}_ADDR"] = address
    return found


def api_variables(host: str, port: str) -> dict[str, str]:
    """Where the API server is, for in-cluster configurations."""
    if not host:
        return {}
    url = f"tcp://{host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": url,
        f"KUBERNETES_PORT_{port}_TCP": url,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


@dataclass(slots=True)
class Environment:
    """A container's variables, and the names that were left out because they are not legal."""

    variables: dict[str, str]
    skipped: list[str]


def build(
    pod: core.Pod, container: core.Container, sources: Sources, image: Mapping[str, str]
) -> Environment:
    """All variables of a container on top of those of its image.  Raises ConfigError."""
    values = dict(image)
    values["HOSTNAME"] = pod.spec.hostname or pod.metadata.name
    if pod.spec.enable_service_links is not False:
        values.update(
            service_variables(
                s for s in sources.services() if s.metadata.namespace == pod.metadata.namespace
            )
        )
    values.update(api_variables(sources.api_host, sources.api_port))
    skipped: list[str] = []
    for source in container.env_from:
        for name, value in from_object(source, sources).items():
            if LEGAL_NAME.fullmatch(name):
                values[name] = value
            else:
                skipped.append(name)
    for variable in container.env:
        if variable.value_from is None:
            values[variable.name] = expand(variable.value, values)
        else:
            found = from_reference(pod, container, variable.value_from, sources)
            if found is not None:
                values[variable.name] = found
    return Environment(values, skipped)


def from_object(source: core.EnvFromSource, sources: Sources) -> dict[str, str]:
    """Every key of a ConfigMap or Secret.  Raises ConfigError when it is missing and not optional."""
    if source.config_map_ref is not None:
        config_map = sources.config_map(source.config_map_ref.name)
        if config_map is None and not source.config_map_ref.optional:
            raise ConfigError(f'configmap "{source.config_map_ref.name}" not found')
        data = dict(config_map.data) if config_map else {}
    elif source.secret_ref is not None:
        secret = sources.secret(source.secret_ref.name)
        if secret is None and not source.secret_ref.optional:
            raise ConfigError(f'secret "{source.secret_ref.name}" not found')
        data = {key: decoded(value) for key, value in secret.data.items()} if secret else {}
    else:
        data = {}
    return {source.prefix + key: value for key, value in data.items()}


def from_reference(
    pod: core.Pod, container: core.Container, ref: core.EnvVarSource, sources: Sources
) -> str | None:
    """The value that a valueFrom names; None for an optional one that is not there.  Raises
    ConfigError."""
    namespace = pod.metadata.namespace
    if ref.field_ref is not None:
        return field_value(pod, ref.field_ref.field_path, sources)
    if ref.resource_field_ref is not None:
        return resource_value(pod, container, ref.resource_field_ref, sources)
    if ref.config_map_key_ref is not None:
        wanted = ref.config_map_key_ref
        config_map = sources.config_map(wanted.name)
        if config_map is not None and wanted.key in config_map.data:
            return config_map.data[wanted.key]
        if wanted.optional:
            return None
        if config_map is None:
            raise ConfigError(f'configmap "{wanted.name}" not found')
        raise ConfigError(f"couldn't find key {wanted.key} in ConfigMap {namespace}/{wanted.name}")
    if ref.secret_key_ref is not None:
        key = ref.secret_key_ref
        secret = sources.secret(key.name)
        if secret is not None and key.key in secret.data:
            return decoded(secret.data[key.key])
        if key.optional:
            return None
        if secret is None:
            raise ConfigError(f'secret "{key.name}" not found')
        raise ConfigError(f"couldn't find key {key.key} in Secret {namespace}/{key.name}")
    raise ConfigError("valueFrom names nothing that this kubelet knows")


def references(pod: core.Pod) -> tuple[set[str], set[str]]:
    """Names of the ConfigMaps and Secrets that the pod's containers and volumes name."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        for source in container.env_from:
            if source.config_map_ref:
                maps.add(source.config_map_ref.name)
            if source.secret_ref:
                secrets.add(source.secret_ref.name)
        for variable in container.env:
            if variable.value_from and variable.value_from.config_map_key_ref:
                maps.add(variable.value_from.config_map_key_ref.name)
            if variable.value_from and variable.value_from.secret_key_ref:
                secrets.add(variable.value_from.secret_key_ref.name)
    for volume in pod.spec.volumes:
        if volume.config_map:
            maps.add(volume.config_map.name)
        if volume.secret:
            secrets.add(volume.secret.secret_name)
        for projection in volume.projected.sources if volume.projected else ():
            if projection.config_map:
                maps.add(projection.config_map.name)
            if projection.secret:
                secrets.add(projection.secret.name)
    return maps, secrets
