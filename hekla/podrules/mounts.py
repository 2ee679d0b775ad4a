"""Volume mounts and volume devices of a container."""

from __future__ import annotations

from hekla.api.text.fieldrules import Errors, Tree
from hekla.podrules.paths import descending
from hekla.podrules.volumes import Volumes

PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
READ_ONLY = ("Disabled", "Enabled", "IfPossible")
BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")


def check(container: Tree, volumes: Volumes, path: str, found: Errors) -> None:
    mounts, devices = container.get("volumeMounts"), container.get("volumeDevices")
    if mounts:
        _mounts(mounts, devices or [], container, volumes, f"{path}.volumeMounts", found)
    if devices:
        _devices(devices, mounts or [], volumes, f"{path}.volumeDevices", found)


def _by_name(entries: list[Tree], target: str) -> dict[str, str]:
    return {entry.get("name") or "": entry.get(target) or "" for entry in entries}


def _mounts(
    mounts: list[Tree],
    devices: list[Tree],
    container: Tree,
    volumes: Volumes,
    path: str,
    found: Errors,
) -> None:
    seen: set[str] = set()
    others = _by_name(devices, "devicePath") if devices else {}
    for position, mount in enumerate(mounts):
        where = f"{path}[{position}]"
        name = mount.get("name") or ""
        target = mount.get("mountPath") or ""
        if not name:
            found.required(f"{where}.name")
        if name not in volumes:
            found.not_found(f"{where}.name", name)
        if not target:
            found.required(f"{where}.mountPath")
        if target in seen:
            found.invalid(f"{where}.mountPath", target, "must be unique")
        seen.add(target)
        if others and name in others:
            found.invalid(f"{where}.name", name, "must not already exist in volumeDevices")
        if others and target in others.values():
            found.invalid(
                f"{where}.mountPath", target, "must not already exist as a path in volumeDevices"
            )
        _inside(mount, where, path, found)
        if mount.get("mountPropagation") is not None:
            _propagation(mount["mountPropagation"], container, f"{path}.mountPropagation", found)
        if mount.get("recursiveReadOnly") is not None:
            _recursive(mount, f"{path}.recursiveReadOnly", found)


def _inside(mount: Tree, where: str, path: str, found: Errors) -> None:
    """Check a path within the volume.  Kubernetes leaves the number of the mount out of some of its
    field paths."""
    plain, expression = mount.get("subPath"), mount.get("subPathExpr")
    if plain:
        descending(plain, f"{path}.subPath", found)
    if expression:
        if plain:
            found.invalid(
                f"{where}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive"
            )
        descending(expression, f"{path}.subPathExpr", found)


def _propagation(propagation: str, container: Tree, path: str, found: Errors) -> None:
    if propagation not in PROPAGATIONS:
        found.not_supported(path, propagation, PROPAGATIONS)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get(
        "privileged"
    ):
        found.forbidden(
            path, "Bidirectional mount propagation is available only to privileged containers"
        )


def _recursive(mount: Tree, path: str, found: Errors) -> None:
    recursive = mount["recursiveReadOnly"]
    if recursive not in READ_ONLY:
        found.not_supported(path, recursive, READ_ONLY)
    elif recursive != "Disabled":
        if not mount.get("readOnly"):
            found.forbidden(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation") not in (None, "None"):
            found.forbidden(
                path, "may only be specified when mountPropagation is None or not specified"
            )


def _devices(
    devices: list[Tree], mounts: list[Tree], volumes: Volumes, path: str, found: Errors
) -> None:
    names: set[str] = set()
    paths: set[str] = set()
    others = _by_name(mounts, "mountPath")
    for position, device in enumerate(devices):
        where = f"{path}[{position}]"
        name = device.get("name") or ""
        target = device.get("devicePath") or ""
        if not name:
            found.required(f"{where}.name")
        if name in names:
            found.invalid(f"{where}.name", name, "must be unique")
        if name not in volumes:
            found.not_found(f"{where}.name", name)
        elif all(volumes[name].get(source) is None for source in BLOCK_SOURCES):
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.invalid(f"{where}.name", name, why)
        if not target:
            found.required(f"{where}.devicePath")
        if target in paths:
            found.invalid(f"{where}.devicePath", target, "must be unique")
        if ".." in target.split("/"):
            found.invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')")
        else:
            paths.add(target)
        if name in others:
            found.invalid(f"{where}.name", name, "must not already exist in volumeMounts")
        if target in others.values():
            found.invalid(
                f"{where}.devicePath", target, "must not already exist as a path in volumeMounts"
            )
        if name:
            names.add(name)
