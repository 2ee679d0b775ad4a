"""Jobs and cron jobs of Kubernetes' own group, batch; those of this batch system are in `batch`."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.references import ObjectReference
from hekla.api.meta import LabelSelector, Object, Struct, TemplateMeta, always
from hekla.api.schema import Int32, Int64, NullableTime, PodTemplate, Time


class PodFailurePolicyOnExitCodesRequirement(Struct):
    container_name: str = ""
    operator: str = ""
    values: list[Int32] = []


class PodFailurePolicyOnPodConditionsPattern(Struct):
    type: str = ""
    status: str = ""


class PodFailurePolicyRule(Struct):
    action: str = ""
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    on_pod_conditions: list[PodFailurePolicyOnPodConditionsPattern] = []


class PodFailurePolicy(Struct):
    rules: list[PodFailurePolicyRule] = []


class SuccessPolicyRule(Struct):
    succeeded_indexes: str = ""
    succeeded_count: Int32 | None = None


class SuccessPolicy(Struct):
    rules: list[SuccessPolicyRule] = []


class JobSpec(Struct):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: PodTemplate = {}
    backoff_limit: Int32 | None = None
    ttl_seconds_after_finished: Int32 | None = None
    completion_mode: str = ""
    suspend: bool | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    pod_replacement_policy: str = ""
    managed_by: str = ""
    success_policy: SuccessPolicy | None = None


class JobCondition(Struct):
    type: str = ""
    status: str = ""
    last_probe_time: NullableTime = None
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class UncountedTerminatedPods(Struct):
    succeeded: list[str] = []
    failed: list[str] = []


class JobStatus(Struct):
    conditions: list[JobCondition] = []
    start_time: Time = ""
    completion_time: Time = ""
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    completed_indexes: str = ""
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    ready: Int32 | None = None
    failed_indexes: str = ""
    terminating: Int32 | None = None


class Job(Object):
    api_version: str = always("batch/v1")
    kind: str = always("Job")
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobTemplateSpec(Struct):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class CronJobSpec(Struct):
    schedule: str = ""
    starting_deadline_seconds: Int32 | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None
    time_zone: str = ""


class CronJobStatus(Struct):
    active: list[ObjectReference] = []
    last_schedule_time: Time = ""
    last_successful_time: Time = ""


class CronJob(Object):
    api_version: str = always("batch/v1")
    kind: str = always("CronJob")
    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
    status: CronJobStatus = msgspec.field(default_factory=CronJobStatus)


JOB = kind_of(Job, "jobs")
CRON_JOB = kind_of(CronJob, "cronjobs")
