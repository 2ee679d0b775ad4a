"""JobFlows: jobs that wait for other jobs, created from JobTemplates."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.batch import JobSpec, TaskState
from hekla.api.kinds import Column, kind_of
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Count, Duration, Required, Rule, Time

API_VERSION = "flow.volcano.sh/v1alpha1"

TaskName = Annotated[str, Rule(max_length=253)]


class JobFlowPhase(StrEnum):
    SUCCEED = "Succeed"
    TERMINATING = "Terminating"
    FAILED = "Failed"
    RUNNING = "Running"
    PENDING = "Pending"


class JobRetainPolicy(StrEnum):
    RETAIN = "retain"
    DELETE = "delete"


class When(StrEnum):
    """The state that a step's targets must have reached.  Only Hekla has this field; without it, a
    flow behaves as upstream."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    ENDED = "Ended"


class HttpHeader(Struct):
    name: Required[str] = ""
    value: Required[str] = ""


class HttpGet(Struct):
    task_name: TaskName = ""
    path: str = ""
    port: Annotated[int, Rule(minimum=0, maximum=65535)] = 0
    http_header: HttpHeader | None = None


class TcpSocket(Struct):
    task_name: TaskName = ""
    port: Annotated[int, Rule(required=True, minimum=0, maximum=65535)] = 0


class TaskStatus(Struct):
    task_name: TaskName = ""
    phase: Annotated[str, Rule(max_length=63)] = ""


class Probe(Struct):
    """Probes that tell that a job is ready before it ends; upstream stores them and ignores them."""

    http_get_list: list[HttpGet] = []
    tcp_socket_list: list[TcpSocket] = []
    task_status_list: list[TaskStatus] = []


class FlowDependsOn(Struct):
    targets: list[str] = []
    probe: Probe | None = None


class Patch(Struct):
    job_spec: JobSpec | None = None


class Flow(Struct):
    """One step: a job that is created from the template of this name."""

    name: Annotated[str, Rule(required=True, min_length=1)] = ""
    depends_on: FlowDependsOn | None = None
    patch: Patch | None = None
    when: Annotated[str, Rule(enum=tuple(When))] = ""
    """Hekla's own; empty is Completed."""
    retries: Count = 0
    """Hekla's own: how often the job is made again after it has failed."""


class JobFlowSpec(Struct):
    flows: list[Flow] = []
    parameters: dict[str, str] = {}
    """Hekla's own: what `$(name)` stands for in the texts of the jobs."""
    job_retain_policy: Annotated[str, Rule(enum=tuple(JobRetainPolicy))] = ""


class RunningHistory(Struct):
    start_timestamp: Time = ""
    end_timestamp: Time = ""
    state: str = ""


class FlowJobStatus(Struct):
    name: str = ""
    state: str = ""
    start_timestamp: Time = ""
    end_timestamp: Time = ""
    restart_count: Count = 0
    attempt: Count = 0
    """Hekla's own: which job of this name it is, from 1; absent for a first one."""
    running_histories: list[RunningHistory] = []


class FlowCondition(Struct):
    phase: str = ""
    create_time: Time = ""
    running_duration: Duration = ""
    task_status_count: dict[str, TaskState] = {}


class FlowState(Struct):
    phase: Annotated[str, Rule(enum=tuple(JobFlowPhase))] = ""


class JobFlowStatus(Struct):
    pending_jobs: list[str] = []
    running_jobs: list[str] = []
    failed_jobs: list[str] = []
    completed_jobs: list[str] = []
    terminated_jobs: list[str] = []
    un_know_jobs: list[str] = []
    """The wire spells it unKnowJobs."""
    job_status_list: list[FlowJobStatus] = []
    conditions: dict[str, FlowCondition] = {}
    """Job name -> how it stood."""
    state: FlowState = msgspec.field(default_factory=FlowState)


class JobFlow(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("JobFlow")
    spec: JobFlowSpec = msgspec.field(default_factory=JobFlowSpec)
    status: JobFlowStatus = msgspec.field(default_factory=JobFlowStatus)


class JobTemplateStatus(Struct):
    job_depends_on_list: list[str] = []


class JobTemplate(Object):
    """A named job spec, from which flows create jobs."""

    api_version: str = always(API_VERSION)
    kind: str = always("JobTemplate")
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobTemplateStatus = msgspec.field(default_factory=JobTemplateStatus)


JOB_FLOW = kind_of(
    JobFlow,
    "jobflows",
    short_names=("jf",),
    columns=(
        Column("Status", "string", ".status.state.phase"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    status=True,
)
JOB_TEMPLATE = kind_of(JobTemplate, "jobtemplates", short_names=("jt",), status=True)
