"""What the pods' network is told about a namespace: its services, their targets, and the names of
its pods.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.local.kubelet.hosts import Peer
from hekla.local.kubelet.records import PodDirectory

API_ADDRESS = "10.96.0.1"
API_PORT = 443
"""The service address of the API server of a local cluster."""


@dataclass(slots=True)
class Named:
    """A pod, as others look it up."""

    peer: Peer
    directory: PodDirectory
    labels: dict[str, str]
    aliases: list[core.HostAlias] = field(default_factory=list)
    ports: dict[tuple[str, str], int] = field(default_factory=dict)
    """By name and protocol, the ports that its containers name."""
    ready: bool = False
    fqdn: bool = False
    """Its host name is the fully qualified name."""


def ports_of(pod: core.Pod) -> dict[tuple[str, str], int]:
    return {
        (port.name, port.protocol or "TCP"): port.container_port
        for container in [*pod.spec.containers, *pod.spec.init_containers]
        for port in container.ports
        if port.name
    }


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def target_of(port: core.ServicePort, pod: Named) -> int | None:
    """The port of a pod that a service's port leads to; None for a name that the pod does not have."""
    wanted = port.target_port
    if wanted is None or wanted in ("", 0):
        return port.port
    if isinstance(wanted, int):
        return wanted
    if wanted.isdigit():
        return int(wanted)
    return pod.ports.get((wanted, port.protocol or "TCP"))


def described(
    service: core.Service, pods: Iterable[Named], manual: core.Endpoints | None = None
) -> Json:
    """A service as the network daemon takes it.  `manual` are the endpoints that somebody wrote
    for one without a selector."""
    spec = service.spec
    if spec.type == "ExternalName":
        return {"name": service.metadata.name, "external": spec.external_name}
    behind = []
    if spec.selector:
        behind = [
            pod
            for pod in pods
            if (pod.ready or spec.publish_not_ready_addresses)
            and matches(spec.selector, pod.labels)
        ]
    ports = []
    for port in spec.ports:
        targets = [[pod.peer.address, number] for pod in behind if (number := target_of(port, pod))]
        for subset in manual.subsets if manual is not None else ():
            number = next(
                (p.port for p in subset.ports if p.name == port.name or len(subset.ports) == 1),
                port.port,
            )
            targets += [[address.ip, number] for address in subset.addresses]
        ports.append(
            {
                "name": port.name,
                "port": port.port,
                "protocol": port.protocol or "TCP",
                "targets": targets,
                "nodePort": port.node_port,
            }
        )
    endpoints = [
        [pod.peer.address, pod.peer.hostname if pod.peer.subdomain == service.metadata.name else ""]
        for pod in behind
    ]
    for subset in manual.subsets if manual is not None else ():
        endpoints += [[address.ip, address.hostname] for address in subset.addresses]
    address = spec.cluster_ip if spec.cluster_ip not in ("", "None") else ""
    return {
        "name": service.metadata.name,
        "address": address,
        "ports": ports,
        "endpoints": endpoints,
        "sticky": spec.session_affinity == "ClientIP",
    }


def api_service(host: str, port: str) -> Json:
    """The service `kubernetes`, which leads out of the pods' network to the API server."""
    leads = {"name": "https", "port": API_PORT, "protocol": "TCP", "targets": [[host, int(port)]]}
    return {"name": "kubernetes", "address": API_ADDRESS, "ports": [leads], "endpoints": []}


def pod_names(pods: Iterable[Named]) -> list[list[str]]:
    """(hostname, subdomain, address) of those that others may call by a name of their own."""
    return [
        [pod.peer.hostname, pod.peer.subdomain, pod.peer.address]
        for pod in pods
        if pod.peer.subdomain
    ]


# --- the resolver's file --------------------------------------------------------------------------


def resolver(pod: core.Pod, server: str, machine: str) -> str:
    """The resolv.conf of a pod.  `server` is the cluster's DNS server, "" where there is none;
    `machine` the machine's own file."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "ClusterFirst" and pod.spec.host_network:
        policy = "Default"
    servers, searches, options = parsed(machine)
    if policy == "None":
        servers, searches, options = [], [], {}
    elif policy in ("ClusterFirst", "ClusterFirstWithHostNet") and server:
        namespace = pod.metadata.namespace
        servers, options = [server], {"ndots": "5"}
        searches = [
            f"{namespace}.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            *searches,
        ]
    elif server and not pod.spec.host_network and any(s.startswith("127.") for s in servers):
        # A pod cannot reach the machine's own server; the cluster's server asks it.
        servers = [server]
    if (config := pod.spec.dns_config) is not None:
        servers = list(dict.fromkeys([*servers, *config.nameservers]))
        searches = list(dict.fromkeys([*searches, *config.searches]))
        options |= {option.name: option.value for option in config.options}
    lines = [f"nameserver {one}" for one in servers[:3]]
    if searches:
        lines.insert(0, f"search {' '.join(searches)}")
    if options:
        lines.append(
            "options "
            + " ".join(f"{name}:{value}" if value else name for name, value in options.items())
        )
    return "\n".join(lines) + "\n"


def parsed(text: str) -> tuple[list[str], list[str], dict[str, str]]:
    """(servers, search domains, options) of a resolv.conf."""
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest:
            servers.append(rest[0])
        elif word in ("search", "domain"):
            searches = rest
        elif word == "options":
            options |= {name: value for name, _, value in (one.partition(":") for one in rest)}
    return servers, searches, options


def switched(text: str) -> str | None:
    """An nsswitch.conf that asks files, then DNS, for hosts; None where it does so already."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.split(":")[0].strip() == "hosts":
            if line.split(":", 1)[1].split() == ["files", "dns"]:
                return None
            lines[at] = "hosts: files dns"
            return "\n".join(lines) + "\n"
    return None  # the C library's own default is files, then DNS
