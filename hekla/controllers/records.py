"""Reduced forms of objects that the controllers only read.

A pod is 5 kB and more as a full struct; ten thousand of them would be most of a controller's
memory.  These structs hold only what a controller asks for, and msgspec skips the rest of the JSON
without building it.
"""

from __future__ import annotations

import msgspec

from hekla.api import batch, names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import OwnerReference, Struct


class PodMarks(msgspec.Struct, omit_defaults=True, frozen=True):
    """The annotations of a pod that controllers read."""

    task: str = msgspec.field(name=names.TASK_SPEC, default="")
    job: str = msgspec.field(name=names.JOB_NAME, default="")
    version: str = msgspec.field(name=names.JOB_VERSION, default="")
    group: str = msgspec.field(name=names.GROUP_NAME, default="")
    preemptable: str | None = msgspec.field(name=names.PREEMPTABLE, default=None)
    cooldown: str | None = msgspec.field(name=names.COOLDOWN_TIME, default=None)
    revocable: str | None = msgspec.field(name=names.REVOCABLE_ZONE, default=None)
    least: str | None = msgspec.field(name=names.JDB_MIN_AVAILABLE, default=None)
    most_away: str | None = msgspec.field(name=names.JDB_MAX_UNAVAILABLE, default=None)
    topology: str | None = msgspec.field(name=names.NETWORK_TOPOLOGY_MODE, default=None)
    tier: str | None = msgspec.field(name=names.NETWORK_TOPOLOGY_HIGHEST_TIER, default=None)
    out_of_sync: str | None = msgspec.field(name=names.OUT_OF_SYNC, default=None)


class PodLabels(msgspec.Struct, omit_defaults=True, frozen=True):
    partition: str = msgspec.field(name=names.PARTITION_ID, default="")
    preemptable: str | None = msgspec.field(name=names.PREEMPTABLE, default=None)
    cooldown: str | None = msgspec.field(name=names.COOLDOWN_TIME, default=None)


class Identity(Struct):
    """The metadata that caches and writes need of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class NodeMeta(Identity):
    labels: dict[str, str] = {}


class PodMeta(Identity):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: PodLabels = PodLabels()
    annotations: PodMarks = PodMarks()
    owner_references: list[OwnerReference] = []

    def controller(self) -> OwnerReference | None:
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class PodSpec(Struct):
    scheduler_name: str = ""
    node_name: str = ""


class Terminated(Struct):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(Struct):
    terminated: Terminated | None = None


class ContainerStatus(Struct):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None

    @property
    def terminated(self) -> Terminated | None:
        return self.state.terminated if self.state else None

    @property
    def terminated_before(self) -> Terminated | None:
        """How the container ended before it was started again."""
        return self.last_state.terminated if self.last_state else None


class PodStatus(Struct):
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Struct):
    """A pod as controllers see it."""

    api_version: str = ""
    kind: str = ""
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def job_key(self) -> str:
        """`namespace/name` of the batch job that controls the pod, or nothing."""
        owner = self.metadata.controller()
        if (
            owner is None
            or owner.kind != batch.JOB.kind
            or owner.api_version != batch.JOB.api_version
        ):
            return ""
        return f"{self.metadata.namespace}/{owner.name}"

    @property
    def owner_uid(self) -> str:
        owner = self.metadata.controller()
        return owner.uid if owner else ""

    @property
    def job_version(self) -> int | None:
        """The version of the job that the pod was made for; None for a pod that the job controller
        did not make."""
        marks = self.metadata.annotations
        if not (marks.task and marks.job):
            return None
        try:
            return int(marks.version)
        except ValueError:
            return None

    @property
    def leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None


POD = read_as(core.POD, Pod)
"""Pods, decoded into what controllers need of them."""
