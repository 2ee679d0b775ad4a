"""The fields of a node that the built-in controllers need: one cache of all nodes serves them all.
Values that thousands of nodes have in common are stored once."""

from __future__ import annotations

from sys import intern
from typing import Any

import msgspec

from hekla.api.kinds import read_as
from hekla.api.kubernetes.coordination import LEASE
from hekla.api.kubernetes.core import NODE
from hekla.api.names import HOSTNAME, ZONE
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import shared

KEPT_LABELS = (ZONE, HOSTNAME)
TTL = "node.alpha.kubernetes.io/ttl"


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """Of the labels only those that a controller reads, of the annotations only whether the ttl is
    there."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    has_ttl: bool = False

    def __post_init__(self) -> None:
        self.has_ttl = TTL in (self.annotations or {})
        self.annotations = None
        self.labels = (
            {name: self.labels[name] for name in KEPT_LABELS if name in self.labels} or None
            if self.labels
            else None
        )


class Taint(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    """A taint as it is written back."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class Spec(msgspec.Struct, rename="camel", gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        self.taints = shared(self.taints)


class Condition(msgspec.Struct, rename="camel", gc=False, frozen=True):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class Status(msgspec.Struct, rename="camel", gc=False):
    """`conditions` without their times: equal for all healthy nodes."""

    conditions: tuple[Condition, ...] = ()
    heartbeat: str = ""
    """When Ready was last written."""

    def __post_init__(self) -> None:
        self.heartbeat = next(
            (c.last_heartbeat_time or "" for c in self.conditions if c.type == "Ready"), ""
        )
        self.conditions = shared(
            tuple(Condition(intern(c.type), intern(c.status)) for c in self.conditions)
        )


class Node(msgspec.Struct, gc=False):
    """A node as the built-in controllers see it."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def ready(self) -> str | None:
        """The status of the Ready condition; None where nobody has posted one."""
        return self.condition("Ready")

    def condition(self, kind: str) -> str | None:
        return next((c.status for c in self.status.conditions if c.type == kind), None)

    @property
    def zone(self) -> str:
        return (self.metadata.labels or {}).get(ZONE, "")

    def reference(self) -> Json:
        """The node as events refer to it: by its name in place of its uid, as nodes' own events do."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "uid": self.metadata.uid},
        }


NODES = read_as(NODE, Node)


class LeaseMetadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    renew_time: str | None = None


class Lease(msgspec.Struct, gc=False):
    """A lease: when its node last sent a heartbeat."""

    metadata: LeaseMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


LEASES = read_as(LEASE, Lease)


def as_json(taints: tuple[Taint, ...]) -> list[dict[str, Any]]:
    """Taints as the wire has them."""
    tree: list[dict[str, Any]] = msgspec.to_builtins(taints)
    return tree
