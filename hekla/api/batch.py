"""The batch Job, whose tasks' pods start together, and the CronJob, which creates Jobs on a
schedule.

A task's pod template stays the tree that the user wrote, so that a pod has every member of it,
whatever this program knows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from hekla.api.bus import Event
from hekla.api.kinds import Column, kind_of
from hekla.api.kubernetes.references import ObjectReference
from hekla.api.meta import Object, Struct, TemplateMeta, always
from hekla.api.scheduling import NetworkTopology
from hekla.api.schema import (
    Atomic,
    Count,
    Duration,
    Int32,
    LabelName,
    PodTemplate,
    Required,
    Rule,
    Subdomain,
    Time,
)

API_VERSION = "batch.volcano.sh/v1alpha1"


class JobPhase(StrEnum):
    PENDING = "Pending"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


FINISHED = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED})
"""Phases that a job does not leave; an aborted job can be resumed and is not among them."""


class NumaPolicy(StrEnum):
    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class ConcurrencyPolicy(StrEnum):
    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class LifecyclePolicy(Struct):
    """An action on events or an exit code.  It is triggered by `event` and `events` together, or by
    `exit_code`."""

    action: str = ""
    event: Annotated[str, Rule(enum=tuple(Event))] = ""
    events: Annotated[list[str], Rule(items=Rule(enum=tuple(Event)))] = []
    exit_code: Int32 | None = None
    timeout: Duration = ""

    def triggers(self) -> tuple[str, ...]:
        """`events` and `event` without repetition, in the order written."""
        return tuple(dict.fromkeys((*self.events, self.event) if self.event else self.events))


class VolumeSpec(Struct):
    """A claim mounted into every container of every task: one that exists, or one that is made for
    the job."""

    mount_path: Annotated[str, Rule(required=True, min_length=1, pattern="^[^:]+$")] = ""
    volume_claim_name: Annotated[str, Rule(max_length=253)] = ""
    volume_claim: Annotated[dict[str, Any] | None, Rule(shape="PersistentVolumeClaimSpec")] = None


class DependsOn(Struct):
    name: list[str] = []
    iteration: str = ""


class PartitionPolicy(Struct):
    """A task in partitions: `total_partitions` groups of `partition_size` pods, each placed as a
    whole."""

    total_partitions: Annotated[int, Rule(required=True, format="int32", minimum=1)] = 0
    partition_size: Annotated[int, Rule(required=True, format="int32", minimum=1)] = 0
    min_partitions: Annotated[int, Rule(format="int32", default=0, minimum=0)] = 0
    network_topology: NetworkTopology | None = None


class TaskSpec(Struct):
    name: LabelName = ""
    replicas: Count = 0
    min_available: Count | None = None
    template: PodTemplate = {}
    policies: list[LifecyclePolicy] = []
    topology_policy: Annotated[str, Rule(enum=tuple(NumaPolicy))] = ""
    max_retry: Count = 0
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None


class JobSpec(Struct):
    """The spec of a Job, also inside CronJobs, JobTemplates and flows."""

    scheduler_name: Annotated[str, Rule(max_length=63)] = ""
    min_available: Count = 0
    volumes: list[VolumeSpec] = []
    tasks: Annotated[list[TaskSpec], Rule(min_items=1)] = []
    policies: list[LifecyclePolicy] = []
    plugins: dict[str, list[str]] = {}
    running_estimate: Duration = ""
    queue: Annotated[Subdomain, Rule(default="default")] = ""
    max_retry: Annotated[Count, Rule(default=3)] = 0
    ttl_seconds_after_finished: Count | None = None
    priority_class_name: Subdomain = ""
    min_success: Annotated[int | None, Rule(format="int32", minimum=1)] = None
    network_topology: NetworkTopology | None = None


class JobState(Struct):
    phase: Annotated[str, Rule(enum=tuple(JobPhase))] = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time = ""


class TaskState(Struct):
    phase: dict[str, Int32] = {}
    """Pod phase -> pods of the task in it."""


class JobCondition(Struct):
    status: Required[str] = ""
    """A phase that the job went through."""
    last_transition_time: Time = ""


class JobStatus(Struct):
    state: JobState = msgspec.field(default_factory=JobState)
    min_available: Count = 0
    task_status_count: dict[str, TaskState] = {}
    pending: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    terminating: Count = 0
    unknown: Count = 0
    version: Count = 0
    retry_count: Count = 0
    running_duration: Duration = ""
    controlled_resources: dict[str, str] = {}
    conditions: list[JobCondition] = []


class Job(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("Job")
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobTemplateSpec(Struct):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class CronJobSpec(Struct):
    schedule: Required[str] = ""
    time_zone: str | None = None
    starting_deadline_seconds: Annotated[int | None, Rule(format="int64", minimum=0)] = None
    concurrency_policy: Annotated[str, Rule(default="Allow", enum=tuple(ConcurrencyPolicy))] = ""
    suspend: Annotated[bool | None, Rule(default=False)] = None
    job_template: Required[JobTemplateSpec] = msgspec.field(default_factory=JobTemplateSpec)
    successful_jobs_history_limit: Annotated[Count | None, Rule(default=3)] = None
    failed_jobs_history_limit: Annotated[Count | None, Rule(default=1)] = None


class CronJobStatus(Struct):
    active: Atomic[list[ObjectReference]] = []
    last_schedule_time: Time = ""
    last_successful_time: Time = ""


class CronJob(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("CronJob")
    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
    status: CronJobStatus = msgspec.field(default_factory=CronJobStatus)


JOB = kind_of(
    Job,
    "jobs",
    short_names=("vcjob", "vj"),
    columns=(
        Column("STATUS", "string", ".status.state.phase"),
        Column("minAvailable", "integer", ".status.minAvailable"),
        Column("RUNNINGS", "integer", ".status.running"),
        Column("AGE", "date", ".metadata.creationTimestamp"),
        Column("QUEUE", "string", ".spec.queue", priority=1),
    ),
    status=True,
)
CRON_JOB = kind_of(CronJob, "cronjobs", short_names=("cronvcjob", "cronvj"), status=True)
