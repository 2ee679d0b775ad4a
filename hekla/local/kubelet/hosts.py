"""The hosts file of a pod: how it finds its own name and its peers without a DNS server.

A pod's file holds itself and the other pods of its namespace that have a hostname and a subdomain,
by the names that DNS would give them: `<hostname>.<subdomain>` and the longer forms.  Files are
rewritten in place, because a container has the file itself mounted and would go on seeing a
replaced one's old content.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.api.kubernetes import core

HEADER = "# Kubernetes-managed hosts file."
DOMAIN = "svc.cluster.local"


@dataclass(frozen=True, slots=True)
class Peer:
    """A pod, as others look it up."""

    namespace: str
    address: str
    hostname: str
    subdomain: str

    def names(self) -> list[str]:
        if not self.subdomain:
            return [self.hostname]
        return [
            f"{self.hostname}.{self.subdomain}.{self.namespace}.{DOMAIN}",
            f"{self.hostname}.{self.subdomain}",
            f"{self.hostname}.{self.subdomain}.{self.namespace}",
            f"{self.hostname}.{self.subdomain}.{self.namespace}.svc",
        ]


def peer_of(pod: core.Pod, address: str) -> Peer:
    """A pod as others see it."""
    return Peer(pod.metadata.namespace, address, hostname_of(pod), pod.spec.subdomain)


def hostname_of(pod: core.Pod) -> str:
    """What gethostname() says in the pod."""
    return (pod.spec.hostname or pod.metadata.name)[:63].rstrip("-.")


def kernel_hostname(pod: core.Pod) -> str:
    """What gethostname() says in the pod: its host name, or the whole name where it asks for that.
    At most 64 bytes."""
    if pod.spec.hostname_override:
        return pod.spec.hostname_override[:64]
    if pod.spec.set_hostname_as_fqdn and pod.spec.subdomain:
        return f"{hostname_of(pod)}.{pod.spec.subdomain}.{pod.metadata.namespace}.{DOMAIN}"[:64]
    return hostname_of(pod)


def content(
    own: Peer,
    peers: Iterable[Peer],
    aliases: Iterable[core.HostAlias],
    services: Iterable[tuple[str, list[str]]] = (),
) -> bytes:
    """The whole file.  `services` are (address, names)."""
    lines = [HEADER, "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    names = own.names() if not own.subdomain else [*own.names()[:1], own.hostname, *own.names()[1:]]
    lines.append(f"{own.address}\t{' '.join(names)}")
    for peer in sorted(
        {p for p in peers if p.subdomain and p != own}, key=lambda p: (p.subdomain, p.hostname)
    ):
        lines.append(f"{peer.address}\t{' '.join(peer.names())}")
    lines += [f"{address}\t{' '.join(names)}" for address, names in services]
    aliases = list(aliases)
    if aliases:
        lines.append("# Entries added by HostAliases.")
        lines += [f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in aliases]
    return ("\n".join(lines) + "\n").encode()


def service_lines(
    services: Iterable[core.Service], pods: Iterable[tuple[Mapping[str, str], str]]
) -> list[tuple[str, list[str]]]:
    """(address, names) of services whose pods run here.  `pods` are (labels, address) of the
    services' namespace.

    A name leads to the pods themselves, for headless services and for those with an address alike:
    there is no proxy behind cluster addresses, and pods that listen on the service's own port are
    found this way.
    """
    found = []
    present = list(pods)
    for service in services:
        selector = service.spec.selector
        if not selector:
            continue
        name, namespace = service.metadata.name, service.metadata.namespace
        names = [
            f"{name}.{namespace}.{DOMAIN}",
            name,
            f"{name}.{namespace}",
            f"{name}.{namespace}.svc",
        ]
        for labels, address in present:
            if all(labels.get(key) == value for key, value in selector.items()):
                found.append((address, names))
    return found


def write(path: Path, text: bytes) -> None:
    """Bring the file to this content without replacing it; a reader sees the old or the new lines,
    never none."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size == len(text) and os.pread(descriptor, size, 0) == text:
            return
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
        os.fchmod(descriptor, 0o644)
    finally:
        os.close(descriptor)
