"""Dynamic resource allocation: devices that pods claim, and the slices of them that drivers offer."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.placement import NodeSelector
from hekla.api.meta import Condition, Object, Struct, TemplateMeta, always
from hekla.api.schema import Int32, Int64, Quantity, ResourceList, Time


class CELDeviceSelector(Struct):
    expression: str = ""


class DeviceSelector(Struct):
    cel: CELDeviceSelector | None = None


class DeviceToleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Struct):
    requests: ResourceList = {}


class ExactDeviceRequest(Struct):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int32 = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Struct):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: Int32 = 0
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Struct):
    requests: list[str] = []
    match_attribute: str = ""
    distinct_attribute: str = ""


class OpaqueDeviceConfiguration(Struct):
    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(Struct):
    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Struct):
    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Struct):
    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(Struct):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str = ""
    consumed_capacity: ResourceList = {}


class DeviceAllocationConfiguration(Struct):
    source: str = ""
    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Struct):
    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(Struct):
    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time = ""


class ResourceClaimConsumerReference(Struct):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Struct):
    interface_name: str = ""
    ips: list[str] = []
    hardware_address: str = ""


class AllocatedDeviceStatus(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] = []
    data: Any = None
    network_data: NetworkDeviceData | None = None
    share_id: str = ""


class ResourceClaimStatus(Struct):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(Object):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceClaim")
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(Struct):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(Object):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceClaimTemplate")
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


class ResourcePool(Struct):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int32 = 0


class DeviceAttribute(Struct):
    int_: Int32 | None = None
    bool_: bool | None = None
    string: str = ""
    version: str = ""
    ints: list[Int32] = []
    bools: list[bool] = []
    strings: list[str] = []
    versions: list[str] = []


class CapacityRequestPolicyRange(Struct):
    min: Quantity = ""
    max: Quantity = ""
    step: Quantity = ""


class CapacityRequestPolicy(Struct):
    default: Quantity = ""
    valid_values: list[Quantity] = []
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Struct):
    value: Quantity = ""
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct):
    value: Quantity = ""


class DeviceCounterConsumption(Struct):
    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time = ""


class NodeAllocatableResourceMapping(Struct):
    capacity_key: str = ""
    allocation_multiplier: Quantity = ""


class Device(Struct):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}


class CounterSet(Struct):
    name: str = ""
    counters: dict[str, Counter] = {}


class ResourceSliceSpec(Struct):
    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []


class ResourceSlice(Object):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceSlice")
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class DeviceTaintSelector(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""


class DeviceTaintRuleSpec(Struct):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(Struct):
    conditions: list[Condition] = []


class DeviceTaintRule(Object):
    api_version: str = always("resource.k8s.io/v1beta2")
    kind: str = always("DeviceTaintRule")
    spec: DeviceTaintRuleSpec = msgspec.field(default_factory=DeviceTaintRuleSpec)
    status: DeviceTaintRuleStatus | None = None


class DeviceClassConfiguration(Struct):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Struct):
    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str = ""


class DeviceClass(Object):
    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("DeviceClass")
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


RESOURCE_CLAIM = kind_of(ResourceClaim, "resourceclaims")
RESOURCE_CLAIM_TEMPLATE = kind_of(ResourceClaimTemplate, "resourceclaimtemplates")
RESOURCE_SLICE = kind_of(ResourceSlice, "resourceslices", namespaced=False)
DEVICE_CLASS = kind_of(DeviceClass, "deviceclasses", namespaced=False)
DEVICE_TAINT_RULE = kind_of(DeviceTaintRule, "devicetaintrules", namespaced=False)
