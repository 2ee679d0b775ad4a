"""Durable storage: volumes of the cluster, and the claims that pods hold on them."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.placement import NodeSelector
from hekla.api.kubernetes.references import ObjectReference, SecretReference
from hekla.api.kubernetes.volumes import (
    HostPathVolumeSource,
    NFSVolumeSource,
    PersistentVolumeClaimSpec,
)
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import NullableTime, ResourceList, Time


class PersistentVolumeClaimCondition(Struct):
    type: str = ""
    status: str = ""
    last_probe_time: NullableTime = None
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class ModifyVolumeStatus(Struct):
    target_volume_attributes_class_name: str = ""
    status: str = ""


class PersistentVolumeClaimStatus(Struct):
    phase: str = ""
    access_modes: list[str] = []
    capacity: ResourceList = {}
    conditions: list[PersistentVolumeClaimCondition] = []
    allocated_resources: ResourceList = {}
    allocated_resource_statuses: dict[str, str] = {}
    current_volume_attributes_class_name: str = ""
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object):
    api_version: str = always("v1")
    kind: str = always("PersistentVolumeClaim")
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class LocalVolumeSource(Struct):
    path: str = ""
    fs_type: str = ""


class CSIPersistentVolumeSource(Struct):
    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: dict[str, str] = {}
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct):
    capacity: ResourceList = {}
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    host_path: HostPathVolumeSource | None = None
    glusterfs: dict[str, Any] | None = None
    nfs: NFSVolumeSource | None = None
    rbd: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    cephfs: dict[str, Any] | None = None
    fc: dict[str, Any] | None = None
    flocker: dict[str, Any] | None = None
    flex_volume: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    quobyte: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    photon_persistent_disk: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    scale_io: dict[str, Any] | None = None
    local: LocalVolumeSource | None = None
    storageos: dict[str, Any] | None = None
    csi: CSIPersistentVolumeSource | None = None
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: list[str] = []
    volume_mode: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str = ""


class PersistentVolumeStatus(Struct):
    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: Time = ""


class PersistentVolume(Object):
    api_version: str = always("v1")
    kind: str = always("PersistentVolume")
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


PERSISTENT_VOLUME_CLAIM = kind_of(PersistentVolumeClaim, "persistentvolumeclaims")
PERSISTENT_VOLUME = kind_of(PersistentVolume, "persistentvolumes", namespaced=False)
