"""The volumes of a pod as directories on this machine, and which of them a container sees where.

What comes from objects (configMap, secret, downwardAPI, projected) is swapped as a whole: data in a
directory of its own, a symlink `..data` to it that is replaced in one step, and a symlink for each
file, so that a reader never sees half an update and watchers of `..data` hear of it.  Reference:
local-cluster 8.8.
"""

from __future__ import annotations

import base64
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.api.kubernetes import core
from hekla.local.kubelet import environment
from hekla.local.kubelet.environment import Sources
from hekla.local.kubelet.records import MEMORY, name_of

DEFAULT_MODE = 0o644


class MountError(Exception):
    """A volume cannot be set up (yet); the text is the message of the event FailedMount."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume that comes from objects."""

    content: bytes
    mode: int


Payload = Mapping[str, File]


def failed(volume: str, why: str) -> MountError:
    return MountError(f'MountVolume.SetUp failed for volume "{volume}" : {why}')


# --- what the files are ---------------------------------------------------------------------------


def select(
    volume: str,
    what: str,
    data: Mapping[str, bytes],
    items: list[core.KeyToPath],
    mode: int,
    optional: bool | None,
) -> dict[str, File]:
    """The keys of an object as files: all of them, or those that `items` picks.  Raises MountError
    for a key that is not there."""
    if not items:
        for key in data:
            check_path(volume, key)
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    for item in items:
        check_path(volume, item.path)
        if item.key not in data:
            if optional:
                continue
            raise failed(volume, f"references non-existent {what} key: {item.key}")
        files[item.path] = File(data[item.key], mode if item.mode is None else item.mode)
    return files


def check_path(volume: str, path: str) -> None:
    """Raises MountError for a path that is not simply below the volume.  The API server refuses
    such; this is the second door."""
    if not path or path.startswith(("/", "..")) or ".." in path.split("/"):
        raise failed(volume, f'"{path}" is no path within the volume')


def config_map_files(
    volume: str,
    source: core.ConfigMapVolumeSource | core.ConfigMapProjection,
    mode: int,
    sources: Sources,
) -> dict[str, File]:
    found = sources.config_map(source.name)
    if found is None:
        if source.optional:
            return {}
        raise failed(volume, f'configmap "{source.name}" not found')
    data = {key: value.encode() for key, value in found.data.items()}
    data |= {key: base64.b64decode(value) for key, value in found.binary_data.items()}
    return select(volume, "config", data, source.items, mode, source.optional)


def secret_files(
    volume: str,
    name: str,
    items: list[core.KeyToPath],
    optional: bool | None,
    mode: int,
    sources: Sources,
) -> dict[str, File]:
    found = sources.secret(name)
    if found is None:
        if optional:
            return {}
        raise failed(volume, f'secret "{name}" not found')
    data = {key: base64.b64decode(value) for key, value in found.data.items()}
    return select(volume, "secret", data, items, mode, optional)


def downward_files(
    volume: str, pod: core.Pod, items: list[core.DownwardAPIVolumeFile], mode: int, sources: Sources
) -> dict[str, File]:
    files = {}
    for item in items:
        check_path(volume, item.path)
        try:
            if item.field_ref is not None:
                text = environment.field_value(pod, item.field_ref.field_path, sources)
            elif item.resource_field_ref is not None:
                text = environment.resource_value(
                    pod, pod.spec.containers[0], item.resource_field_ref, sources
                )
            else:
                text = ""
        except environment.ConfigError as error:
            raise failed(volume, str(error)) from error
        files[item.path] = File(text.encode(), mode if item.mode is None else item.mode)
    return files


def payload(
    pod: core.Pod, volume: core.Volume, sources: Sources, tokens: Mapping[str, str]
) -> Payload | None:
    """The files of a volume that comes from objects, None for any other.  `tokens` is by audience.
    Raises MountError."""
    name = volume.name
    if volume.config_map is not None:
        return config_map_files(
            name, volume.config_map, volume.config_map.default_mode or DEFAULT_MODE, sources
        )
    if volume.secret is not None:
        secret = volume.secret
        return secret_files(
            name,
            secret.secret_name,
            secret.items,
            secret.optional,
            secret.default_mode or DEFAULT_MODE,
            sources,
        )
    if volume.downward_api is not None:
        return downward_files(
            name,
            pod,
            volume.downward_api.items,
            volume.downward_api.default_mode or DEFAULT_MODE,
            sources,
        )
    if volume.projected is None:
        return None
    mode = volume.projected.default_mode or DEFAULT_MODE
    files: dict[str, File] = {}
    for source in volume.projected.sources:
        if source.config_map is not None:
            files |= config_map_files(name, source.config_map, mode, sources)
        if source.secret is not None:
            files |= secret_files(
                name, source.secret.name, source.secret.items, source.secret.optional, mode, sources
            )
        if source.downward_api is not None:
            files |= downward_files(name, pod, source.downward_api.items, mode, sources)
        if source.service_account_token is not None:
            token = tokens.get(source.service_account_token.audience)
            if token is not None:
                check_path(name, source.service_account_token.path)
                files[source.service_account_token.path] = File(
                    token.encode(), 0o600 if mode == DEFAULT_MODE else mode
                )
    return files


# --- the swap -------------------------------------------------------------------------------------


def swap(directory: Path, files: Payload, owner: tuple[int, int] | None = None) -> bool:
    """Makes a directory show exactly these files, in one step; False when it did already.

    `owner` is the (uid, gid) that must be able to read them, where it is not this process's own.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    data = directory / "..data"
    if data.is_symlink() and shown(data) == {
        path: (file.content, file.mode) for path, file in files.items()
    }:
        return False
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    os.chmod(fresh, 0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        os.chmod(target, file.mode)
        if owner is not None:
            os.chown(target, *owner)
    old = directory / os.readlink(data) if data.is_symlink() else None
    following = directory / "..data_tmp"
    following.unlink(missing_ok=True)
    following.symlink_to(fresh.name)
    following.replace(data)
    wanted = {path.split("/")[0] for path in files}
    for name in wanted:
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink(missing_ok=True)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def shown(data: Path) -> dict[str, tuple[bytes, int]]:
    """What is behind `..data` now."""
    found = {}
    base = data.resolve()
    for directory, _, names in os.walk(base):
        for name in names:
            path = Path(directory, name)
            found[str(path.relative_to(base))] = (
                path.read_bytes(),
                stat.S_IMODE(path.stat().st_mode),
            )
    return found


# --- what is there already ------------------------------------------------------------------------


def host_path(volume: str, source: core.HostPathVolumeSource) -> Path:
    """The path of a hostPath volume, made or checked as its type says.  Raises MountError."""
    path = Path(source.path)
    checks = {
        "Directory": path.is_dir,
        "File": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    words = {
        "Directory": "a directory",
        "File": "a file",
        "Socket": "a socket",
        "CharDevice": "a character device",
        "BlockDevice": "a block device",
    }
    try:
        if source.type in ("DirectoryOrCreate", ""):
            if source.type or not path.exists():
                path.mkdir(parents=True, exist_ok=True)
        elif source.type == "FileOrCreate":
            path.touch(exist_ok=True)
        elif not checks[source.type]():
            raise failed(volume, f"hostPath type check failed: {path} is not {words[source.type]}")
    except OSError as error:
        raise failed(volume, f"{path}: {error.strerror}") from error
    return path


def memory_directory(root: Path, uid: str, volume: str, group: int | None) -> Path | None:
    """An emptyDir in memory; None where the machine has no place for it."""
    base = MEMORY / name_of(root)
    try:
        base.mkdir(mode=0o711, exist_ok=True)
        found = base.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None  # another process has made it meanwhile
        (base / uid).mkdir(mode=0o711, exist_ok=True)
        return empty_directory(base / uid / volume, group)
    except OSError:
        return None


def share(path: Path, group: int) -> None:
    """Makes a volume's files the group's, unless they are: what fsGroup means for volumes that were
    there before."""
    found = path.stat()
    if found.st_gid == group and found.st_mode & stat.S_ISGID:
        return
    for where, directories, files in os.walk(path):
        for name in [".", *files]:
            os.chown(os.path.join(where, name), -1, group, follow_symlinks=False)
        os.chmod(where, stat.S_IMODE(os.stat(where).st_mode) | 0o2070)
        directories[:] = [
            name for name in directories if not os.path.islink(os.path.join(where, name))
        ]


def empty_directory(path: Path, group: int | None) -> Path:
    """An emptyDir: open to every user that the pod may run as."""
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o777 | (stat.S_ISGID if group is not None else 0))
    if group is not None:
        os.chown(path, -1, group)
    return path


# --- limits ---------------------------------------------------------------------------------------


def scratch_limits(pod: core.Pod) -> bool:
    """Whether a pod has limits that must be looked after by measuring files."""
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    return any(
        volume.empty_dir is not None and volume.empty_dir.size_limit for volume in pod.spec.volumes
    ) or any("ephemeral-storage" in container.resources.limits for container in containers)


# --- which container sees what where --------------------------------------------------------------


def mounts(
    container: core.Container, sources: Mapping[str, Path], variables: Mapping[str, str]
) -> tuple[list[tuple[str, str, bool]], dict[str, str]]:
    """(source, mount path, read only) for each volumeMount, and by source the volume that it must
    stay in.

    Sub paths are made where they are missing.  Raises MountError.
    """
    found, beneath = [], {}
    for mount in container.volume_mounts:
        source = sources.get(mount.name)
        if source is None:
            raise failed(mount.name, "the pod has no such volume")
        sub = (
            environment.expand(mount.sub_path_expr, variables)
            if mount.sub_path_expr
            else mount.sub_path
        )
        if sub:
            volume, source = source, inside(mount.name, source, sub)
            beneath[str(source)] = str(volume.resolve())
        found.append((str(source), os.path.normpath(mount.mount_path), mount.read_only))
    return found, beneath


def inside(volume: str, root: Path, sub: str) -> Path:
    """A sub path of a volume, made where it is missing.  Raises MountError when it leads out, by
    its words or through a link."""
    if sub.startswith("/") or ".." in sub.split("/"):
        raise failed(volume, f"the subPath {sub} leads out of the volume")
    base = root.resolve()
    found = (base / sub).resolve()
    if not found.is_relative_to(base):
        raise failed(volume, f"the subPath {sub} leads out of the volume through a link")
    if not found.exists():
        make_beneath(volume, base, found.relative_to(base).parts)
    return found


def make_beneath(volume: str, base: Path, parts: tuple[str, ...]) -> None:
    """Makes directories below a volume's, following no link that a container may lay there at the
    same moment."""
    mode = stat.S_IMODE(base.stat().st_mode)
    held = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            try:
                os.mkdir(part, dir_fd=held)
                os.chmod(part, mode, dir_fd=held)
            except FileExistsError:
                pass
            following = os.open(
                part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held
            )
            os.close(held)
            held = following
    except OSError as error:
        raise failed(
            volume, f"cannot make the subPath {'/'.join(parts)}: {error.strerror}"
        ) from error
    finally:
        os.close(held)
