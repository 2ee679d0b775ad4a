"""Volume sources of single storage products, and the two projections of certificates.

Nothing in Hekla mounts them; they are here so that a pod template that names one is checked and
kept like any other.
"""

from __future__ import annotations

from typing import Annotated

from hekla.api.kubernetes.references import LocalObjectReference
from hekla.api.meta import LabelSelector, Struct, always
from hekla.api.schema import Atomic, Int32, Required, Rule


class GcePersistentDiskVolumeSource(Struct):
    pd_name: Required[str] = ""
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class AwsElasticBlockStoreVolumeSource(Struct):
    volume_id: Required[str] = ""
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class GitRepoVolumeSource(Struct):
    repository: Required[str] = ""
    revision: str = ""
    directory: str = ""


class IscsiVolumeSource(Struct):
    target_portal: Required[str] = ""
    iqn: Required[str] = ""
    lun: Required[Int32] = always(0)
    iscsi_interface: Annotated[str, Rule(default="default")] = ""
    fs_type: str = ""
    read_only: bool = False
    portals: Atomic[list[str]] = []
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: LocalObjectReference | None = None
    initiator_name: str = ""


class GlusterfsVolumeSource(Struct):
    endpoints: Required[str] = ""
    path: Required[str] = ""
    read_only: bool = False


class RbdVolumeSource(Struct):
    monitors: Required[Atomic[list[str]]] = []
    image: Required[str] = ""
    fs_type: str = ""
    pool: Annotated[str, Rule(default="rbd")] = ""
    user: Annotated[str, Rule(default="admin")] = ""
    keyring: Annotated[str, Rule(default="/etc/ceph/keyring")] = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlexVolumeVolumeSource(Struct):
    driver: Required[str] = ""
    fs_type: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False
    options: dict[str, str] = {}


class CinderVolumeSource(Struct):
    volume_id: Required[str] = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class CephfsVolumeSource(Struct):
    monitors: Required[Atomic[list[str]]] = []
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlockerVolumeSource(Struct):
    dataset_name: str = ""
    dataset_uuid: str = ""


class FcVolumeSource(Struct):
    target_wwns: Atomic[list[str]] = []
    lun: Int32 | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: Atomic[list[str]] = []


class AzureFileVolumeSource(Struct):
    secret_name: Required[str] = ""
    share_name: Required[str] = ""
    read_only: bool = False


class VsphereVolumeVolumeSource(Struct):
    volume_path: Required[str] = ""
    fs_type: str = ""
    storage_policy_name: str = ""
    storage_policy_id: str = ""


class QuobyteVolumeSource(Struct):
    registry: Required[str] = ""
    volume: Required[str] = ""
    read_only: bool = False
    user: str = ""
    group: str = ""
    tenant: str = ""


class AzureDiskVolumeSource(Struct):
    disk_name: Required[str] = ""
    disk_uri: Required[str] = ""
    caching_mode: str = ""
    fs_type: Annotated[str, Rule(default="ext4")] = ""
    read_only: Annotated[bool, Rule(default=False)] = False
    kind: str = ""


class PhotonPersistentDiskVolumeSource(Struct):
    pd_id: Required[str] = ""
    fs_type: str = ""


class PortworxVolumeVolumeSource(Struct):
    volume_id: Required[str] = ""
    fs_type: str = ""
    read_only: bool = False


class ScaleIOVolumeSource(Struct):
    gateway: Required[str] = ""
    system: Required[str] = ""
    secret_ref: Required[LocalObjectReference | None] = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: Annotated[str, Rule(default="ThinProvisioned")] = ""
    volume_name: str = ""
    fs_type: Annotated[str, Rule(default="xfs")] = ""
    read_only: bool = False


class StorageosVolumeSource(Struct):
    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class ClusterTrustBundleProjection(Struct):
    name: str = ""
    signer_name: str = ""
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: Required[str] = ""


class PodCertificateProjection(Struct):
    signer_name: Required[str] = ""
    key_type: Required[str] = ""
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: dict[str, str] = {}
