"""The core group in one place: everything that lives under /api/v1.  Its larger parts stand in the
modules beside it and are handed on whole."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.claims import *
from hekla.api.kubernetes.container import *
from hekla.api.kubernetes.container_status import *
from hekla.api.kubernetes.nodes import *
from hekla.api.kubernetes.placement import *
from hekla.api.kubernetes.pod import *
from hekla.api.kubernetes.references import *
from hekla.api.kubernetes.references import LocalObjectReference, ObjectReference
from hekla.api.kubernetes.services import *
from hekla.api.kubernetes.volumes import *
from hekla.api.meta import AtomicStruct, BriefCondition, Object, Struct, always
from hekla.api.schema import Int32, Int64, NullableTime, PodTemplate, ResourceList


class NamespaceSpec(Struct):
    finalizers: list[str] = []


class NamespaceStatus(Struct):
    phase: str = ""
    conditions: list[BriefCondition] = []


class Namespace(Object):
    api_version: str = always("v1")
    kind: str = always("Namespace")
    spec: NamespaceSpec = msgspec.field(default_factory=NamespaceSpec)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class ConfigMap(Object):
    api_version: str = always("v1")
    kind: str = always("ConfigMap")
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool | None = None


class Secret(Object):
    api_version: str = always("v1")
    kind: str = always("Secret")
    data: dict[str, str] = {}
    type: str = ""
    string_data: dict[str, str] = {}
    immutable: bool | None = None


class ServiceAccount(Object):
    api_version: str = always("v1")
    kind: str = always("ServiceAccount")
    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


class EventSource(Struct):
    component: str = ""
    host: str = ""


class EventSeries(Struct):
    count: Int32 = 0
    last_observed_time: NullableTime = None


class Event(Object):
    api_version: str = always("v1")
    kind: str = always("Event")
    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    source: EventSource = msgspec.field(default_factory=EventSource)
    first_timestamp: NullableTime = None
    last_timestamp: NullableTime = None
    count: Int32 = 0
    type: str = ""
    event_time: NullableTime = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class ScopedResourceSelectorRequirement(Struct):
    scope_name: str = ""
    operator: str = ""
    values: list[str] = []


class ScopeSelector(AtomicStruct):
    match_expressions: list[ScopedResourceSelectorRequirement] = []


class ResourceQuotaSpec(Struct):
    hard: ResourceList = {}
    scopes: list[str] = []
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Struct):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    api_version: str = always("v1")
    kind: str = always("ResourceQuota")
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


class LimitRangeItem(Struct):
    type: str = ""
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(Struct):
    limits: list[LimitRangeItem] = []


class LimitRange(Object):
    api_version: str = always("v1")
    kind: str = always("LimitRange")
    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class Binding(Object):
    api_version: str = always("v1")
    kind: str = always("Binding")
    target: ObjectReference = msgspec.field(default_factory=ObjectReference)


class ReplicationControllerSpec(Struct):
    replicas: Int32 | None = None
    selector: dict[str, str] = {}
    template: PodTemplate = {}
    min_ready_seconds: Int32 = 0


class ReplicationControllerStatus(Struct):
    replicas: Int32 = always(0)
    fully_labeled_replicas: Int32 = 0
    observed_generation: Int64 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    conditions: list[BriefCondition] = []


class ReplicationController(Object):
    api_version: str = always("v1")
    kind: str = always("ReplicationController")
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)


NAMESPACE = kind_of(Namespace, "namespaces", namespaced=False)
CONFIG_MAP = kind_of(ConfigMap, "configmaps")
SECRET = kind_of(Secret, "secrets")
SERVICE_ACCOUNT = kind_of(ServiceAccount, "serviceaccounts")
EVENT = kind_of(Event, "events")
RESOURCE_QUOTA = kind_of(ResourceQuota, "resourcequotas")
LIMIT_RANGE = kind_of(LimitRange, "limitranges")
REPLICATION_CONTROLLER = kind_of(ReplicationController, "replicationcontrollers")
