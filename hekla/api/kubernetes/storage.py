"""Classes and drivers of storage, and what a node can attach."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import AtomicStruct, LabelSelector, Object, Struct, always
from hekla.api.schema import Int32, Int64, Quantity, Time


class TopologySelectorLabelRequirement(Struct):
    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(AtomicStruct):
    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Object):
    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("StorageClass")
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str = ""
    mount_options: list[str] = []
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologySelectorTerm] = []


class TokenRequest(Struct):
    audience: str = ""
    expiration_seconds: Int64 | None = None


class CSIDriverSpec(Struct):
    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: list[str] = []
    storage_capacity: bool | None = None
    fs_group_policy: str = ""
    token_requests: list[TokenRequest] = []
    requires_republish: bool | None = None
    se_linux_mount: bool | None = None
    node_allocatable_update_period_seconds: Int32 | None = None
    service_account_token_in_secrets: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object):
    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSIDriver")
    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class VolumeNodeResources(Struct):
    count: Int32 | None = None


class CSINodeDriver(Struct):
    name: str = ""
    node_id: str = ""
    topology_keys: list[str] = []
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Struct):
    drivers: list[CSINodeDriver] = []


class CSINode(Object):
    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSINode")
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIStorageCapacity(Object):
    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSIStorageCapacity")
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity = ""
    maximum_volume_size: Quantity = ""


class VolumeAttachmentSource(Struct):
    persistent_volume_name: str = ""
    inline_volume_spec: dict[str, Any] | None = None


class VolumeAttachmentSpec(Struct):
    attacher: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)
    node_name: str = ""


class VolumeError(Struct):
    time: Time = ""
    message: str = ""
    error_code: Int32 | None = None


class VolumeAttachmentStatus(Struct):
    attached: bool = always(False)
    attachment_metadata: dict[str, str] = {}
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(Object):
    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("VolumeAttachment")
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
    status: VolumeAttachmentStatus = msgspec.field(default_factory=VolumeAttachmentStatus)


STORAGE_CLASS = kind_of(StorageClass, "storageclasses", namespaced=False)
CSI_DRIVER = kind_of(CSIDriver, "csidrivers", namespaced=False)
CSI_NODE = kind_of(CSINode, "csinodes", namespaced=False)
CSI_STORAGE_CAPACITY = kind_of(CSIStorageCapacity, "csistoragecapacities")
VOLUME_ATTACHMENT = kind_of(VolumeAttachment, "volumeattachments", namespaced=False)
