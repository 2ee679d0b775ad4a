"""Training across clusters: one job that is split into several where no single cluster is large
enough."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.batch import JobSpec, JobState
from hekla.api.kinds import kind_of
from hekla.api.meta import Condition, Object, Struct, always
from hekla.api.schema import Int32, Int64, NamedList, Required, Rule

API_VERSION = "training.volcano.sh/v1alpha1"


class SplitMode(StrEnum):
    STATIC = "static"
    AUTO = "auto"


class SplitPolicy(Struct):
    mode: Annotated[str, Rule(enum=tuple(SplitMode))] = ""
    accelerators: int | None = None
    accelerator_type: str = ""


class ReplicatedJob(Struct):
    name: Required[str] = ""
    template_spec: Required[JobSpec] = msgspec.field(default_factory=JobSpec)
    replicas: Annotated[int, Rule(format="int32", default=1)] = 0
    cluster_names: list[str] = []
    split_policy: SplitPolicy | None = None


class HyperJobSpec(Struct):
    replicated_jobs: NamedList[ReplicatedJob] = []
    min_available: Int32 | None = None
    max_domains: Int32 | None = None
    plugins: dict[str, list[str]] = {}


class ReplicatedJobStatus(Struct):
    name: Required[str] = ""
    job_states: dict[str, JobState] = {}
    pending: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 = 0
    unknown: Int32 = 0


class HyperJobStatus(Struct):
    conditions: Annotated[list[Condition], Rule(list_type="map", list_keys=("type",))] = []
    replicated_jobs_status: NamedList[ReplicatedJobStatus] = []
    split_count: Int32 = 0
    observed_generation: Int64 = 0


class HyperJob(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("HyperJob")
    spec: HyperJobSpec = msgspec.field(default_factory=HyperJobSpec)
    status: HyperJobStatus = msgspec.field(default_factory=HyperJobStatus)


HYPER_JOB = kind_of(HyperJob, "hyperjobs", short_names=("hyperjob", "hj"), status=True)
