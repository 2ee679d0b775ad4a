"""The rules of a pod's volumes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import duplicate, forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import Errors

Json = dict[str, Any]
_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_NEEDED = (
    ("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName"), ("hostPath", "path"),
    ("nfs", "server"), ("nfs", "path"), ("csi", "driver"), ("image", "reference"),
)  # fmt: skip


def volume_names(volumes: Iterable[Json], path: str, found: Errors) -> frozenset[str]:
    """Checks the volumes; returns the names that mounts may use."""
    known: set[str] = set()
    for position, volume in enumerate(volumes):
        where = f"{path}[{position}]"
        name = volume.get("name") or ""
        if not name:
            found.append(required(f"{where}.name"))
        else:
            found += [invalid(f"{where}.name", name, reason) for reason in names.dns_label(name)]
            if name in known:
                found.append(duplicate(f"{where}.name", name))
            known.add(name)
        given = [source for source in volume if source != "name" and volume[source] is not None]
        if len(given) > 1 and "emptyDir" in given:
            given.sort(key="emptyDir".__ne__)
        if not given:
            found.append(required(where, "must specify a volume type"))
        for source in given[1:]:
            found.append(forbidden(f"{where}.{source}", "may not specify more than 1 volume type"))
        for source, field in _NEEDED:
            if source in volume and not volume[source].get(field):
                found.append(required(f"{where}.{source}.{field}"))
        _details(volume, where, found)
    return frozenset(known)


def host_path(host: Json, path: str, found: Errors) -> None:
    """A directory of the machine."""
    if not host.get("path"):
        found.append(required(f"{path}.path"))
        return
    if ".." in host["path"].split("/"):
        found.append(invalid(f"{path}.path", host["path"], "must not contain '..'"))
    if (host.get("type") or "") not in _HOST_PATH_TYPES:
        found.append(not_supported(f"{path}.type", host["type"], _HOST_PATH_TYPES))


def _details(volume: Json, path: str, found: Errors) -> None:
    host = volume.get("hostPath")
    if host is not None and host.get("path"):
        host_path(host, f"{path}.hostPath", found)
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            _modes(volume[source], f"{path}.{source}", found)
    for position, projection in enumerate((volume.get("projected") or {}).get("sources") or ()):
        where = f"{path}.projected.sources[{position}]"
        if len(projection) > 1:
            found.append(forbidden(where, "may not specify more than 1 volume type"))
        for source in ("secret", "configMap", "downwardAPI"):
            if projection.get(source):
                _modes(projection[source], f"{where}.{source}", found)
        token = projection.get("serviceAccountToken")
        if token is not None:
            if not token.get("path"):
                found.append(required(f"{where}.path"))
            else:
                local_path(token["path"], f"{path}.projected.path", found)
            if token.get("expirationSeconds", 3600) < 600:
                why = "may not specify a duration less than 10 minutes"
                found.append(invalid(f"{where}.expirationSeconds", token["expirationSeconds"], why))
    claim = volume.get("ephemeral")
    if claim is not None and claim.get("volumeClaimTemplate") is None:
        found.append(required(f"{path}.ephemeral.volumeClaimTemplate"))


def _modes(source: Json, path: str, found: Errors) -> None:
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        found.append(invalid(f"{path}.defaultMode", mode, why))
    for position, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{position}]"
        if not item.get("path"):
            found.append(required(f"{where}.path"))
        else:
            local_path(item["path"], f"{path}.path" if path.endswith("downwardAPI") else f"{where}.path", found)
        if "downwardAPI" not in path and not item.get("key"):
            found.append(required(f"{where}.key"))


def local_path(value: str, path: str, found: Errors) -> None:
    if value.startswith("/"):
        found.append(invalid(path, value, "must be a relative path"))
    if ".." in value.split("/"):
        found.append(invalid(path, value, "must not contain '..'"))
    elif value.startswith(".."):
        found.append(invalid(path, value, "must not start with '..'"))
