"""Workloads of Kubernetes' own that keep pods running: deployments, replica sets, stateful sets,
daemon sets."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.claims import PersistentVolumeClaim
from hekla.api.meta import BriefCondition, LabelSelector, Object, Struct, always
from hekla.api.schema import Int32, Int64, IntOrString, PodTemplate, Time


class RollingUpdateDeployment(Struct):
    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Struct):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = {}
    strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None
    paused: bool = False
    progress_deadline_seconds: Int32 | None = None


class DeploymentCondition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: Time = ""
    last_transition_time: Time = ""


class DeploymentStatus(Struct):
    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    available_replicas: Int32 = 0
    unavailable_replicas: Int32 = 0
    conditions: list[DeploymentCondition] = []
    ready_replicas: Int32 = 0
    collision_count: Int32 | None = None
    terminating_replicas: Int32 | None = None


class Deployment(Object):
    api_version: str = always("apps/v1")
    kind: str = always("Deployment")
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class ReplicaSetSpec(Struct):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = {}
    min_ready_seconds: Int32 = 0


class ReplicaSetStatus(Struct):
    replicas: Int32 = always(0)
    fully_labeled_replicas: Int32 = 0
    observed_generation: Int64 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    conditions: list[BriefCondition] = []
    terminating_replicas: Int32 | None = None


class ReplicaSet(Object):
    api_version: str = always("apps/v1")
    kind: str = always("ReplicaSet")
    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class RollingUpdateStatefulSetStrategy(Struct):
    partition: Int32 | None = None
    max_unavailable: IntOrString | None = None


class StatefulSetUpdateStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateStatefulSetStrategy | None = None


class StatefulSetPersistentVolumeClaimRetentionPolicy(Struct):
    when_deleted: str = ""
    when_scaled: str = ""


class StatefulSetOrdinals(Struct):
    start: Int32 = 0


class StatefulSetSpec(Struct):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = {}
    volume_claim_templates: list[PersistentVolumeClaim] = []
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = msgspec.field(
        default_factory=StatefulSetUpdateStrategy
    )
    revision_history_limit: Int32 | None = None
    min_ready_seconds: Int32 = 0
    persistent_volume_claim_retention_policy: (
        StatefulSetPersistentVolumeClaimRetentionPolicy | None
    ) = None
    ordinals: StatefulSetOrdinals | None = None


class StatefulSetStatus(Struct):
    observed_generation: Int64 = 0
    replicas: Int32 = always(0)
    ready_replicas: Int32 = 0
    current_replicas: Int32 = 0
    updated_replicas: Int32 = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: Int32 | None = None
    conditions: list[BriefCondition] = []
    available_replicas: Int32 = always(0)


class StatefulSet(Object):
    api_version: str = always("apps/v1")
    kind: str = always("StatefulSet")
    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = msgspec.field(default_factory=StatefulSetStatus)


class RollingUpdateDaemonSet(Struct):
    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DaemonSetUpdateStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Struct):
    selector: LabelSelector | None = None
    template: PodTemplate = {}
    update_strategy: DaemonSetUpdateStrategy = msgspec.field(
        default_factory=DaemonSetUpdateStrategy
    )
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None


class DaemonSetStatus(Struct):
    current_number_scheduled: Int32 = always(0)
    number_misscheduled: Int32 = always(0)
    desired_number_scheduled: Int32 = always(0)
    number_ready: Int32 = always(0)
    observed_generation: Int64 = 0
    updated_number_scheduled: Int32 = 0
    number_available: Int32 = 0
    number_unavailable: Int32 = 0
    collision_count: Int32 | None = None
    conditions: list[BriefCondition] = []


class DaemonSet(Object):
    api_version: str = always("apps/v1")
    kind: str = always("DaemonSet")
    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class ControllerRevision(Object):
    api_version: str = always("apps/v1")
    kind: str = always("ControllerRevision")
    data: Any = None
    revision: Int64 = 0


DEPLOYMENT = kind_of(Deployment, "deployments")
REPLICA_SET = kind_of(ReplicaSet, "replicasets")
STATEFUL_SET = kind_of(StatefulSet, "statefulsets")
DAEMON_SET = kind_of(DaemonSet, "daemonsets")
CONTROLLER_REVISION = kind_of(ControllerRevision, "controllerrevisions")
