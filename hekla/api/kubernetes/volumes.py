"""Where a pod's files come from: volumes, their sources, and the claims that a pod makes for
itself."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kubernetes.drivers import (
    AwsElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CephfsVolumeSource,
    CinderVolumeSource,
    ClusterTrustBundleProjection,
    FcVolumeSource,
    FlexVolumeVolumeSource,
    FlockerVolumeSource,
    GcePersistentDiskVolumeSource,
    GitRepoVolumeSource,
    GlusterfsVolumeSource,
    IscsiVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PodCertificateProjection,
    PortworxVolumeVolumeSource,
    QuobyteVolumeSource,
    RbdVolumeSource,
    ScaleIOVolumeSource,
    StorageosVolumeSource,
    VsphereVolumeVolumeSource,
)
from hekla.api.kubernetes.references import (
    LocalObjectReference,
    ObjectFieldSelector,
    ResourceFieldSelector,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from hekla.api.meta import LabelSelector, Struct, TemplateMeta
from hekla.api.schema import Atomic, Int32, Int64, Quantity, Required, ResourceList, Rule


class VolumeResourceRequirements(Struct):
    limits: ResourceList = {}
    requests: ResourceList = {}


class PersistentVolumeClaimSpec(Struct):
    access_modes: Atomic[list[str]] = []
    resources: VolumeResourceRequirements = msgspec.field(
        default_factory=VolumeResourceRequirements
    )
    volume_name: str = ""
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str = ""
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str = ""


class HostPathVolumeSource(Struct):
    path: Required[str] = ""
    type: str = ""


class EmptyDirVolumeSource(Struct):
    medium: str = ""
    size_limit: Quantity = ""


class KeyToPath(Struct):
    key: Required[str] = ""
    path: Required[str] = ""
    mode: Int32 | None = None


class SecretVolumeSource(Struct):
    secret_name: str = ""
    items: Atomic[list[KeyToPath]] = []
    default_mode: Int32 | None = None
    optional: bool | None = None


class NFSVolumeSource(Struct):
    server: Required[str] = ""
    path: Required[str] = ""
    read_only: bool = False


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: Required[str] = ""
    read_only: bool = False


class DownwardAPIVolumeFile(Struct):
    path: Required[str] = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: Int32 | None = None


class DownwardAPIVolumeSource(Struct):
    items: Atomic[list[DownwardAPIVolumeFile]] = []
    default_mode: Int32 | None = None


class ConfigMapVolumeSource(Struct):
    name: Annotated[str, Rule(default="")] = ""
    items: Atomic[list[KeyToPath]] = []
    default_mode: Int32 | None = None
    optional: bool | None = None


class SecretProjection(Struct):
    name: Annotated[str, Rule(default="")] = ""
    items: Atomic[list[KeyToPath]] = []
    optional: bool | None = None


class DownwardAPIProjection(Struct):
    items: Atomic[list[DownwardAPIVolumeFile]] = []


class ConfigMapProjection(Struct):
    name: Annotated[str, Rule(default="")] = ""
    items: Atomic[list[KeyToPath]] = []
    optional: bool | None = None


class ServiceAccountTokenProjection(Struct):
    audience: str = ""
    expiration_seconds: Int64 | None = None
    path: Required[str] = ""


class VolumeProjection(Struct):
    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = None
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(Struct):
    sources: Atomic[list[VolumeProjection]] = []
    default_mode: Int32 | None = None


class CSIVolumeSource(Struct):
    driver: Required[str] = ""
    read_only: bool | None = None
    fs_type: str = ""
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


class PersistentVolumeClaimTemplate(Struct):
    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: Required[PersistentVolumeClaimSpec] = msgspec.field(
        default_factory=PersistentVolumeClaimSpec
    )


class EphemeralVolumeSource(Struct):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class ImageVolumeSource(Struct):
    reference: str = ""
    pull_policy: str = ""


class Volume(Struct):
    name: Required[str] = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: GcePersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AwsElasticBlockStoreVolumeSource | None = None
    git_repo: GitRepoVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: IscsiVolumeSource | None = None
    glusterfs: GlusterfsVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: RbdVolumeSource | None = None
    flex_volume: FlexVolumeVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    cephfs: CephfsVolumeSource | None = None
    flocker: FlockerVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = None
    fc: FcVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: VsphereVolumeVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeVolumeSource | None = None
    scale_io: ScaleIOVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    storageos: StorageosVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
