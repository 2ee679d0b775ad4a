"""The volumes of one pod on this machine: each brought to a directory, and kept up to date.
Reference: local-cluster 8.8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.kube.errors import NotFound
from hekla.local.kubelet import environment
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.records import PodDirectory
from hekla.local.kubelet.runtime.launching import user_of
from hekla.local.kubelet.tokens import Tokens
from hekla.local.kubelet.volumes import volumes


class Mounting:
    """Where the volumes of one pod are."""

    def __init__(self, host: Host, pod: core.Pod, directory: PodDirectory) -> None:
        self.host = host
        self.pod = pod
        self.containers: list[core.Container] = []
        """Those that may read the files, ephemeral ones among them."""
        self.directory = directory
        self.tokens = Tokens(host.client, pod)
        self.paths: dict[str, Path] = {}
        """By the volume's name."""

    async def renew(
        self,
        pod: core.Pod,
        containers: list[core.Container],
        sources: Callable[[], environment.Sources],
    ) -> None:
        """Brings the volumes of the pod up to date.  Raises MountError, ApiError, TransportError."""
        self.pod, self.containers = pod, containers
        group = self.pod.spec.security_context.fs_group if self.pod.spec.security_context else None
        if not self.host.isolation.change_user:
            group = None
        await self.tokens.renew()
        known = sources()
        for volume in pod.spec.volumes:
            if volume.name not in self.paths or comes_from_objects(volume):
                self.paths[volume.name] = await self.mount(volume, known, group)

    @property
    def complete(self) -> bool:
        """Whether every volume has been there at least once: a pod that runs already keeps the
        files that it has."""
        return all(volume.name in self.paths for volume in self.pod.spec.volumes)

    async def mount(
        self, volume: core.Volume, sources: environment.Sources, group: int | None
    ) -> Path:
        path = self.directory.volumes / volume.name
        files = volumes.payload(self.pod, volume, sources, self.tokens.values)
        if files is not None:
            volumes.swap(path, files, self.reader(group))
            return path
        if volume.host_path is not None:
            return volumes.host_path(volume.name, volume.host_path)
        if volume.persistent_volume_claim is not None:
            return await self.claimed(volume.name, volume.persistent_volume_claim.claim_name, group)
        if volume.ephemeral is not None:
            return await self.claimed(volume.name, f"{self.pod.metadata.name}-{volume.name}", group)
        if volume.empty_dir is None and any(
            getattr(volume, kind) is not None
            for kind in ("csi", "nfs", "iscsi", "rbd", "cephfs", "image", "fc")
        ):
            if volume.csi is not None:
                raise volumes.failed(
                    volume.name,
                    f"driver name {volume.csi.driver} not found in the list of registered CSI drivers",
                )
            raise volumes.failed(volume.name, "this node has no driver for such volumes")
        if volume.empty_dir is not None and volume.empty_dir.medium == "Memory":
            found = volumes.memory_directory(
                self.host.root, self.pod.metadata.uid, volume.name, group
            )
            if found is not None:
                return found
        return volumes.empty_directory(path, group)

    def reader(self, group: int | None) -> tuple[int, int] | None:
        """Who must be able to read files that come from objects."""
        if not self.host.isolation.change_user:
            return None
        users = {user for one in self.containers if (user := user_of(self.pod, one)[0]) is not None}
        if len(users) == 1 and group is None:
            return users.pop(), -1
        return None if group is None else (-1, group)

    async def claimed(self, volume: str, claim: str, group: int | None) -> Path:
        """The directory of a bound claim whose volume is one of this machine.  Raises MountError."""
        client: Any = self.host.client
        try:
            found = await client.get(
                core.PERSISTENT_VOLUME_CLAIM.untyped, claim, self.pod.metadata.namespace
            )
            name = found.get("spec", {}).get("volumeName")
            if not name or found.get("status", {}).get("phase") != "Bound":
                raise volumes.failed(volume, f'persistentvolumeclaim "{claim}" is not bound')
            spec = (await client.get(core.PERSISTENT_VOLUME.untyped, name)).get("spec", {})
        except NotFound as error:
            raise volumes.failed(volume, str(error)) from error
        if "csi" in spec:
            driver = spec["csi"].get("driver", "")
            raise volumes.failed(
                volume, f"driver name {driver} not found in the list of registered CSI drivers"
            )
        path = (spec.get("hostPath") or spec.get("local") or {}).get("path")
        if not path:
            raise volumes.failed(volume, f'persistentvolume "{name}" is neither hostPath nor local')
        if "local" in spec and not Path(path).exists():
            why = f'MountVolume.NewMounter initialization failed for volume "{name}" : path "{path}" does not exist'
            raise volumes.MountError(why)
        kind = (spec.get("hostPath") or {}).get("type", "DirectoryOrCreate")
        found = volumes.host_path(
            volume, core.HostPathVolumeSource(path=path, type=kind or "DirectoryOrCreate")
        )
        if group is not None and "local" in spec:
            volumes.share(found, group)
        return found


def comes_from_objects(volume: core.Volume) -> bool:
    """Whether a volume's files may change while the pod runs; all others are set up once."""
    return any(
        kind is not None
        for kind in (volume.config_map, volume.secret, volume.downward_api, volume.projected)
    )
