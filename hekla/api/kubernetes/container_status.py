"""A container as it is: what runs, what ended and how, as the kubelet reports it."""

from __future__ import annotations

import msgspec

from hekla.api.kubernetes.container import ResourceRequirements
from hekla.api.meta import Struct, always
from hekla.api.schema import Int32, Int64, NullableTime, ResourceList


class ContainerStateWaiting(Struct):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Struct):
    started_at: NullableTime = None


class ContainerStateTerminated(Struct):
    exit_code: Int32 = always(0)
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: NullableTime = None
    finished_at: NullableTime = None
    container_id: str = ""


class ContainerState(Struct):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ImageVolumeStatus(Struct):
    image_ref: str = ""


class VolumeStatus(Struct):
    image: ImageVolumeStatus | None = None


class VolumeMountStatus(Struct):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    recursive_read_only: str = ""
    volume_status: VolumeStatus | None = None


class LinuxContainerUser(Struct):
    uid: Int64 = always(0)
    gid: Int64 = always(0)
    supplemental_groups: list[Int64] = []


class ContainerUser(Struct):
    linux: LinuxContainerUser | None = None


class ResourceHealth(Struct):
    resource_id: str = ""
    health: str = ""
    message: str = ""


class ResourceStatus(Struct):
    name: str = ""
    resources: list[ResourceHealth] = []


class ContainerStatus(Struct):
    name: str = ""
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    ready: bool = always(False)
    restart_count: Int32 = always(0)
    image: str = always("")
    image_id: str = always("")
    container_id: str = ""
    started: bool | None = None
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    volume_mounts: list[VolumeMountStatus] = []
    user: ContainerUser | None = None
    allocated_resources_status: list[ResourceStatus] = []
    stop_signal: str = ""
