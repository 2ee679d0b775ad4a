"""Volumes of a pod: each has a unique name, exactly one source, and the required fields of that
source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hekla.api.text.fielderrors import forbidden, invalid, required
from hekla.api.text.fieldrules import Errors, Tree, named, one_of
from hekla.api.text.quantity import ZERO, Quantity
from hekla.api.text.syntax import dns_label, dns_subdomain
from hekla.podrules import projected
from hekla.podrules.claims import claim_template
from hekla.podrules.drivers import driver_name
from hekla.podrules.options import Options
from hekla.podrules.paths import descending

Volumes = Mapping[str, Tree]
"""Those that can be mounted, by name."""
HOST_PATHS = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
PULL = ("Always", "IfNotPresent", "Never")
CACHING = ("None", "ReadOnly", "ReadWrite")
DISKS = ("Dedicated", "Managed", "Shared")
MANAGED_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
LONGEST_TENANT, LONGEST_PORTAL = 64, 64
ADDRESSES = "must be a host:port pair or multiple pairs separated by commas"
TOO_MANY = "may not specify more than 1 volume type"
_IQN = ("iqn", "eui", "naa")
_is_iscsi = re.compile(
    r"iqn.*iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+|iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+"
    r"|eui.[A-Za-z0-9]{16}|naa.[A-Za-z0-9]{32}",
    re.ASCII,
).fullmatch
_is_address = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*").fullmatch


def sound(volumes: Iterable[Tree], path: str, options: Options, found: Errors) -> Volumes:
    """Check the volumes; returns those that can be mounted."""
    right: dict[str, Tree] = {}
    for position, volume in enumerate(volumes):
        where, name, before = f"{path}[{position}]", volume.get("name") or "", len(found)
        _source(volume, where, options, found)
        named(name, dns_label, f"{where}.name", found)
        if name in right:
            found.duplicate(f"{where}.name", name)
        if len(found) == before:
            right[name] = volume
    return right


def made_for(pod: str, volumes: Iterable[Tree], path: str, found: Errors) -> None:
    """Check the claims that are created for a pod: their names come from the pod's."""
    made = [
        f"{pod}-{volume.get('name') or ''}"
        for volume in volumes
        if volume.get("ephemeral") is not None
    ]
    for position, volume in enumerate(volumes if pod and made else ()):
        name = volume.get("name") or ""
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if volume.get("ephemeral") is not None and name:
            for reason in dns_subdomain(f"{pod}-{name}"):
                found.invalid(
                    f"{path}[{position}].name", name, f'PVC name "{pod}-{name}": {reason}'
                )
        if claim in made:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            found.invalid(f"{path}[{position}].persistentVolumeClaim.claimName", claim, why)


def _source(volume: Tree, path: str, options: Options, found: Errors) -> None:
    """The source of a volume: of several the first in the order below."""
    given = [kind for kind in volume if kind in _SOURCES and volume[kind] is not None]
    if len(given) > 1:
        given.sort(key=_ORDER.__getitem__)
    if given:  # none is an empty directory
        kind = given[0]
        _SOURCES[kind](volume[kind], f"{path}.{_NAMED.get(kind, kind)}", options, found)
    if volume.get("iscsi") is not None and volume["iscsi"].get("initiatorName") is not None:
        _portal(volume, f"{path}.name", found)
    found += [
        forbidden(f"{path}.{_EXTRA_NAMED.get(extra, extra)}", TOO_MANY) for extra in given[1:]
    ]


def _portal(volume: Tree, path: str, found: Errors) -> None:
    name, portal = volume.get("name") or "", volume["iscsi"].get("targetPortal") or ""
    if len(f"{name}:{portal}".encode()) > LONGEST_PORTAL:
        why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
        found.invalid(path, name, why)


def _needs(*fields: str) -> Callable[[Tree, str, Options, Errors], None]:
    """A check of a source that has required fields and no other rules."""

    def check(body: Tree, path: str, options: Options, found: Errors) -> None:
        found += [required(f"{path}.{field}") for field in fields if not body.get(field)]

    return check


def _secret_named(body: Tree, path: str, found: Errors) -> None:
    if body.get("secretRef") is not None and not body["secretRef"].get("name"):
        found.required(f"{path}.secretRef.name")


def _empty(body: Tree, path: str, options: Options, found: Errors) -> None:
    limit = body.get("sizeLimit")
    if limit is not None and Quantity.parse(limit) < ZERO:
        found.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def host_path(body: Tree, path: str, found: Errors) -> None:
    """Check a directory of the node."""
    if not body.get("path"):
        found.required(f"{path}.path")
        return
    descending(body["path"], f"{path}.path", found, relative=False)
    form = body.get("type") or ""
    if form not in HOST_PATHS:
        found.not_supported(f"{path}.type", form, HOST_PATHS)


def _host_path(body: Tree, path: str, options: Options, found: Errors) -> None:
    host_path(body, path, found)


def _repository(body: Tree, path: str, options: Options, found: Errors) -> None:
    if not body.get("repository"):
        found.required(f"{path}.repository")
    descending(body.get("directory") or "", f"{path}.directory", found)


def _disk(field: str) -> Callable[[Tree, str, Options, Errors], None]:
    """Check a cloud disk, and its partition."""

    def check(body: Tree, path: str, options: Options, found: Errors) -> None:
        if not body.get(field):
            found.required(f"{path}.{field}")
        partition = body.get("partition") or 0
        if not 0 <= partition <= 255:
            found.invalid(f"{path}.partition", partition, "must be between 1 and 255, inclusive")

    return check


def _nfs(body: Tree, path: str, options: Options, found: Errors) -> None:
    found += [required(f"{path}.{field}") for field in ("server", "path") if not body.get(field)]
    if not (body.get("path") or "").startswith("/"):
        found.invalid(f"{path}.path", body.get("path") or "", "must be an absolute path")


def _iscsi(body: Tree, path: str, options: Options, found: Errors) -> None:
    name, lun, initiator = body.get("iqn") or "", body.get("lun") or 0, body.get("initiatorName")
    if not body.get("targetPortal"):
        found.required(f"{path}.targetPortal")
    if not name:
        found.required(f"{path}.iqn")
    else:
        _initiator(name, f"{path}.iqn", found)
    if not 0 <= lun <= 255:
        found.invalid(f"{path}.lun", lun, "must be between 0 and 255, inclusive")
    if (body.get("chapAuthDiscovery") or body.get("chapAuthSession")) and body.get(
        "secretRef"
    ) is None:
        found.required(f"{path}.secretRef")
    if initiator is not None:
        _initiator(initiator, f"{path}.initiatorname", found)


def _initiator(text: str, path: str, found: Errors) -> None:
    if not text.startswith(_IQN):
        found.invalid(path, text, "must be valid format starting with iqn, eui, or naa")
    elif not _is_iscsi(text):
        found.invalid(path, text, "must be valid format")


def _flocker(body: Tree, path: str, options: Options, found: Errors) -> None:
    name, uid = body.get("datasetName") or "", body.get("datasetUUID")
    if not name and not uid:
        found.required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        found.invalid(
            path, "resource", "datasetName and datasetUUID can not be specified simultaneously"
        )
    if "/" in name:
        found.invalid(f"{path}.datasetName", name, "must not contain '/'")


def _cinder(body: Tree, path: str, options: Options, found: Errors) -> None:
    if not body.get("volumeID"):
        found.required(f"{path}.volumeID")
    _secret_named(body, path, found)


def _quobyte(body: Tree, path: str, options: Options, found: Errors) -> None:
    registry = body.get("registry") or ""
    if not registry:
        found.required(f"{path}.registry", ADDRESSES)
    elif len(body.get("tenant") or "") > LONGEST_TENANT:
        why = f"must be a UUID and may not exceed a length of {LONGEST_TENANT} characters"
        found.required(f"{path}.tenant", why)
    else:
        found += [
            invalid(f"{path}.registry", registry, ADDRESSES)
            for pair in registry.split(",")
            if not _is_address(pair)
        ]
    if not body.get("volume"):
        found.required(f"{path}.volume")


def _fibre(body: Tree, path: str, options: Options, found: Errors) -> None:
    names, ids, lun = body.get("targetWWNs") or [], body.get("wwids") or [], body.get("lun")
    if not names and not ids:
        found.required(
            f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"
        )
    if names and ids:
        found.invalid(
            f"{path}.targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously"
        )
    if names and lun is None:
        found.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif names and lun is not None and not 0 <= lun <= 255:
        found.invalid(f"{path}.lun", lun, "must be between 0 and 255, inclusive")


def _flexible(body: Tree, path: str, options: Options, found: Errors) -> None:
    if not body.get("driver"):
        found.required(f"{path}.driver")
    for key in body.get("options") or ():
        prefix = "." + key.partition("/")[0].lower()
        if prefix.endswith((".kubernetes.io", ".k8s.io")):
            found.invalid(
                f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved"
            )


def _azure_disk(body: Tree, path: str, options: Options, found: Errors) -> None:
    address = body.get("diskURI") or ""
    kind = "Shared" if body.get("kind") is None else body["kind"]
    found += [
        required(f"{path}.{field}") for field in ("diskName", "diskURI") if not body.get(field)
    ]
    if body.get("cachingMode") is not None:
        one_of(body["cachingMode"], CACHING, f"{path}.cachingMode", found, known=True)
    one_of(kind, DISKS, f"{path}.kind", found, known=True)
    if kind == "Managed" and not address.startswith("/subscriptions/"):
        found.not_supported(f"{path}.diskURI", address, (MANAGED_DISK,), plain=True)
    elif kind != "Managed" and not address.startswith("https://"):
        found.not_supported(f"{path}.diskURI", address, (BLOB_DISK,), plain=True)


def _storage_os(body: Tree, path: str, options: Options, found: Errors) -> None:
    namespace = body.get("volumeNamespace") or ""
    named(body.get("volumeName"), dns_label, f"{path}.volumeName", found)
    if namespace:
        found.malformed(f"{path}.volumeNamespace", namespace, dns_label(namespace))
    _secret_named(body, path, found)


def _driver(body: Tree, path: str, options: Options, found: Errors) -> None:
    driver_name(body.get("driver") or "", f"{path}.driver", found)
    secret = body.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        found.required(f"{path}.nodePublishSecretRef.name")
    elif secret is not None:
        found.malformed(f"{path}.name", secret["name"], dns_subdomain(secret["name"]))


def _ephemeral(body: Tree, path: str, options: Options, found: Errors) -> None:
    claim = body.get("volumeClaimTemplate")
    if claim is None:
        found.required(f"{path}.volumeClaimTemplate")
    else:
        claim_template(claim, f"{path}.volumeClaimTemplate", found)


def _image(body: Tree, path: str, options: Options, found: Errors) -> None:
    if options.pod and not body.get("reference"):
        found.required(f"{path}.reference")
    one_of(body.get("pullPolicy"), PULL, f"{path}.pullPolicy", found)


_SOURCES: dict[str, Callable[[Any, str, Options, Errors], None]] = {
    "emptyDir": _empty,
    "hostPath": _host_path,
    "gitRepo": _repository,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "secret": projected.secret,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": projected.downward,
    "fc": _fibre,
    "flexVolume": _flexible,
    "configMap": projected.config_map,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "projected": projected.sources,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _driver,
    "ephemeral": _ephemeral,
    "image": _image,
}
_ORDER = {kind: position for position, kind in enumerate(_SOURCES)}
_NAMED = {"gcePersistentDisk": "persistentDisk"}
_EXTRA_NAMED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Names that Kubernetes has in messages for what the field is called otherwise."""
