"""Volumes of a pod template: each has a name, a source, and what that source cannot go without.

Reference: api-and-admission 5.3.5; the texts are Kubernetes'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hekla.admission import environment
from hekla.admission.fielderrors import duplicate, forbidden, invalid, required, unsupported
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label
from hekla.api.quantity import ZERO, Quantity

# What a volume entry may hold besides its name; at most one of them, and of several the first of this order is taken for it.
SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs", "flocker",
    "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile",
    "azureDisk", "storageos", "projected", "portworxVolume", "scaleIO", "csi", "ephemeral", "image", "vsphereVolume",
    "photonPersistentDisk",
)  # fmt: skip
NEEDED: Mapping[str, tuple[str, ...]] = {
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
    "configMap": ("name",),
    "hostPath": ("path",),
    "csi": ("driver",),
    "gitRepo": ("repository",),
    "iscsi": ("targetPortal", "iqn"),
    "nfs": ("server", "path"),
    "ephemeral": ("volumeClaimTemplate",),
}
HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
DOWNWARD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
LARGEST_MODE = 0o777
SHORTEST_TOKEN, LONGEST_TOKEN = 10 * 60, 1 << 32
PARENT = "must not contain '..'"
MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def judged(volumes: list[Tree], path: str) -> tuple[dict[str, Tree], list[str]]:
    """The volumes that can be mounted, by name, and what is wrong with the others."""
    sound: dict[str, Tree] = {}
    against: list[str] = []
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        found = list(_volume(volume, name, where))
        if name in sound:
            found.append(duplicate(f"{where}.name", name))
        if not found:
            sound[name] = volume
        against += found
    return sound, against


def _volume(volume: Tree, name: str, where: str) -> Iterator[str]:
    sources = [key for key in SOURCES if volume.get(key) is not None]
    if sources:  # none is an empty directory
        yield from _source(sources[0], volume[sources[0]], f"{where}.{sources[0]}")
    for extra in sources[1:]:
        yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
    if not name:
        yield required(f"{where}.name")
    else:
        yield from (invalid(f"{where}.name", name, reason) for reason in dns_label(name))


def _source(kind: str, body: Tree, where: str) -> Iterator[str]:
    for field in NEEDED.get(kind, ()):
        if not body.get(field):
            yield required(f"{where}.{field}")
    if kind == "emptyDir":
        limit = body.get("sizeLimit")
        if limit is not None and Quantity.parse(limit) < ZERO:
            yield forbidden(f"{where}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    elif kind == "hostPath":
        if ".." in (body.get("path") or "").split("/"):
            yield invalid(f"{where}.path", body["path"], PARENT)
        form = body.get("type") or ""
        if form not in HOST_PATHS:
            yield unsupported(f"{where}.type", form, HOST_PATHS)
    elif kind == "nfs":
        if not (body.get("path") or "").startswith("/"):
            yield invalid(f"{where}.path", body.get("path") or "", "must be an absolute path")
    elif kind in ("configMap", "secret", "downwardAPI"):
        yield from _mode(body.get("defaultMode"), f"{where}.defaultMode")
        yield from _downward(body, where) if kind == "downwardAPI" else _items(body, where)
    elif kind == "projected":
        yield from _projected(body, where)
    elif kind == "ephemeral" and body.get("volumeClaimTemplate"):
        claim = body["volumeClaimTemplate"].get("spec") or {}
        if not claim.get("accessModes"):
            yield required(f"{where}.volumeClaimTemplate.spec.accessModes", "at least 1 access mode is required")


def _mode(mode: int | None, where: str) -> Iterator[str]:
    if mode is not None and not 0 <= mode <= LARGEST_MODE:
        yield invalid(where, mode, MODE)


def _items(body: Tree, where: str) -> Iterator[str]:
    for index, item in enumerate(body.get("items") or []):
        if not item.get("key"):
            yield required(f"{where}.items[{index}].key")
        yield from _inner_path(item.get("path") or "", f"{where}.items[{index}].path")
        yield from _mode(item.get("mode"), f"{where}.items[{index}].mode")


def _inner_path(path: str, where: str) -> Iterator[str]:
    """A path below the volume, which may not lead out of it and not begin with two dots, which the kubelet uses itself."""
    if not path:
        yield required(where)
        return
    if path.startswith("/"):
        yield invalid(where, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid(where, path, PARENT)
    elif path.startswith(".."):
        yield invalid(where, path, "must not start with '..'")


def _downward(body: Tree, where: str) -> Iterator[str]:
    for item in body.get("items") or []:
        yield from _inner_path(item.get("path") or "", f"{where}.path")
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            path = field.get("fieldPath") or ""
            if not path:
                yield required(f"{where}.fieldRef.fieldPath")
            elif path not in DOWNWARD_PATHS and not path.startswith(("metadata.annotations[", "metadata.labels[")):
                yield unsupported(f"{where}.fieldRef.fieldPath", path, DOWNWARD_PATHS)
            if resource is not None:
                yield invalid(where, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif resource is not None:
            if not resource.get("containerName"):
                yield required(f"{where}.resourceFieldRef.containerName")
            yield from environment.resource_field(resource, f"{where}.resourceFieldRef")
        else:
            yield required(where, "one of fieldRef and resourceFieldRef is required")
        yield from _mode(item.get("mode"), f"{where}.mode")


def _projected(body: Tree, where: str) -> Iterator[str]:
    yield from _mode(body.get("defaultMode"), f"{where}.defaultMode")
    taken: set[str] = set()
    for index, source in enumerate(body.get("sources") or []):
        at = f"{where}.sources[{index}]"
        for kind in ("secret", "configMap"):
            given = source.get(kind)
            if given is not None:
                if not given.get("name"):
                    yield required(f"{at}.{kind}.name")
                yield from _items(given, f"{at}.{kind}")
                yield from _taken(given, given.get("name") or "", taken, where)
        if source.get("downwardAPI") is not None:
            yield from _downward(source["downwardAPI"], f"{at}.downwardAPI")
            yield from _taken(source["downwardAPI"], "downwardAPI", taken, where)
        token = source.get("serviceAccountToken")
        if token is not None:
            yield from _token(token, f"{at}.serviceAccountToken")


def _taken(source: Tree, who: str, taken: set[str], where: str) -> Iterator[str]:
    for item in source.get("items") or []:
        path = item.get("path") or ""
        if path and path in taken:
            yield invalid(where, who, "conflicting duplicate paths")
        taken.add(path)


def _token(token: Tree, where: str) -> Iterator[str]:
    lasts: Any = token.get("expirationSeconds")
    if lasts is not None and lasts < SHORTEST_TOKEN:
        yield invalid(f"{where}.expirationSeconds", lasts, "may not specify a duration less than 10 minutes")
    if lasts is not None and lasts > LONGEST_TOKEN:
        yield invalid(f"{where}.expirationSeconds", lasts, "may not specify a duration larger than 2^32 seconds")
    yield from _inner_path(token.get("path") or "", f"{where}.path")
