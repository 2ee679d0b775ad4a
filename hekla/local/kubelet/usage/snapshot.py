"""What a node and its pods have used at one moment, as data; the forms in which it is served are made
from this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hekla.local.kubelet.usage.measures import Memory, Network, Stall


@dataclass(frozen=True, slots=True)
class Use:
    """Processor time and memory."""

    at: float
    """When it was measured, in seconds since the epoch."""
    cpu: int
    """Nanoseconds of processor time so far."""
    rate: int | None
    """Nanoseconds of processor time a second, since the measurement before; None after only one."""
    memory: Memory
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes and inodes of a file system; `used` of it by whom this is about."""

    available: int
    capacity: int
    used: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    name: str
    image: str
    attempt: int
    started: float
    """Seconds since the epoch."""
    use: Use
    memory_limit: int
    """Bytes; 0 for none."""
    disk: int
    """Bytes that it has written outside of its volumes."""
    logs: int
    """Bytes of its log."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    namespace: str
    name: str
    uid: str
    started: float
    use: Use
    """Of all its containers, those that have ended too."""
    containers: Sequence[ContainerUsage]
    networks: Sequence[Network] = ()
    """Empty where the pod has no network of its own."""
    volumes: Mapping[str, int] = field(default_factory=dict)
    """Bytes by the name of a volume that lies on the node's disk."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    name: str
    started: float
    use: Use
    disk: Disk
    networks: Sequence[Network]
    swap: tuple[int, int]
    """(used, free) bytes."""
    cores: float
    memory_total: int
    memory_available: int
    pid_limit: int
    pressure: Mapping[str, Mapping[str, Stall]]
    """Resource -> some or full."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    node: NodeUsage
    pods: Sequence[PodUsage]
