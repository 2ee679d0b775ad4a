"""The rules of volumes, volume claims and CSI objects (local-cluster 5.9)."""

from __future__ import annotations

from typing import Any

from hekla.api.text.fieldrules import Errors, label_key, not_negative, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata, with_fixed
from hekla.podrules.claims import access_modes, claim_spec
from hekla.podrules.drivers import driver_name
from hekla.podrules.placement import node_selector
from hekla.podrules.volumes import host_path

VOLUME_SOURCES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi",
    "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO",
    "local", "storageos", "csi",
)  # fmt: skip
MAX_PARAMETERS, MAX_PARAMETERS_BYTES = 512, 256 * 1024
MAX_NODE_ID_LENGTH = 256


# --- volumes and claims ---------------------------------------------------------------------------


def persistent_volume(tree: Json) -> Errors:
    errors = metadata(tree)
    _volume_spec(tree.get("spec") or {}, "spec", errors)
    return errors


def _volume_spec(spec: Json, path: str, errors: Errors, *, inline: bool = False) -> None:
    """`inline`: the volume is part of an attachment, where only CSI volumes are allowed."""
    if inline:
        for name in ("claimRef", "capacity"):
            if spec.get(name):
                errors.forbidden(
                    f"{path}.{name}", "may not be specified in the context of inline volumes"
                )
        if spec.get("csi") is None:
            errors.required(f"{path}.csi", "has to be specified in the context of inline volumes")
    if not spec.get("accessModes"):
        errors.required(f"{path}.accessModes")
    access_modes(spec.get("accessModes"), f"{path}.accessModes", errors)
    if not inline:
        _capacity(spec.get("capacity"), f"{path}.capacity", errors)
    policy = spec.get("persistentVolumeReclaimPolicy")
    if inline and policy and policy != "Retain":
        why = "may only be Retain in the context of inline volumes"
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", why)
    elif not inline:
        one_of(
            policy, ("Delete", "Recycle", "Retain"), f"{path}.persistentVolumeReclaimPolicy", errors
        )
    placed = spec.get("nodeAffinity")
    if placed is not None:
        if inline:
            errors.forbidden(
                f"{path}.nodeAffinity", "may not be specified in the context of inline volumes"
            )
        elif placed.get("required") is None:
            errors.required(
                f"{path}.nodeAffinity.required", "must specify required node constraints"
            )
        else:
            node_selector(placed["required"], f"{path}.nodeAffinity.required", errors)
    _sources(spec, path, errors)
    group = spec.get("storageClassName")
    if group:
        errors.malformed(f"{path}.storageClassName", group, names.dns_subdomain(group))
    if not inline:
        one_of(spec.get("volumeMode"), ("Block", "Filesystem"), f"{path}.volumeMode", errors)


def _capacity(capacity: Json | None, path: str, errors: Errors) -> None:
    if not capacity:
        errors.required(path)
    if "storage" not in (capacity or {}) or len(capacity or {}) > 1:
        errors.not_supported(path, capacity, ("storage",))
    for name, text in (capacity or {}).items():
        value = amount(text).nanos
        if value < 0:
            errors.invalid(
                f"{path}[{name}]", -(-value // 10**9), "must be a valid resource quantity"
            )
        if value <= 0:
            errors.invalid(f"{path}[{name}]", text, "must be greater than zero")


def _sources(spec: Json, path: str, errors: Errors) -> None:
    given = [name for name in VOLUME_SOURCES if spec.get(name) is not None]
    for name in given[1:]:
        errors.forbidden(f"{path}.{name}", "may not specify more than 1 volume type")
    if not given:
        errors.required(path, "must specify a volume type")
        return
    source, where = spec[given[0]], f"{path}.{given[0]}"
    if given[0] == "hostPath":
        host_path(source, where, errors)
        if source.get("path") == "/" and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            why = "may not be 'recycle' for a hostPath mount of '/'"
            errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", why)
    elif given[0] == "nfs":
        for name in ("server", "path"):
            if not source.get(name):
                errors.required(f"{where}.{name}")
        if source.get("path") and not source["path"].startswith("/"):
            errors.invalid(f"{where}.path", source["path"], "must be an absolute path")
    elif given[0] == "local":
        if not source.get("path"):
            errors.required(f"{where}.path")
        elif ".." in source["path"].split("/"):
            errors.invalid(f"{where}.path", source["path"], "must not contain '..'")
        if spec.get("nodeAffinity") is None:
            errors.required("metadata.annotations", "Local volume requires node affinity")
    elif given[0] == "csi":
        driver_name(source.get("driver") or "", f"{where}.driver", errors)
        if not source.get("volumeHandle"):
            errors.required(f"{where}.volumeHandle")


def persistent_volume_update(new: Json, old: Json) -> Errors:
    errors = persistent_volume(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    sources, previous = (
        {name: tree[name] for name in VOLUME_SOURCES if name in tree} for tree in (spec, before)
    )
    if sources != previous:
        errors.forbidden(
            "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"
        )
    immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode", errors)
    return errors


def persistent_volume_claim(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    claim_spec(spec, "spec", errors)
    return errors


CLAIM_RULE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def persistent_volume_claim_update(new: Json, old: Json) -> Errors:
    errors = persistent_volume_claim(new)
    spec, before = dict(new.get("spec") or {}), dict(old.get("spec") or {})
    bound = (new.get("status") or {}).get("phase") == "Bound"
    sizes = [
        ((tree.get("resources") or {}).get("requests") or {}).get("storage", "0")
        for tree in (spec, before)
    ]
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName")
    if before.get("storageClassName") is None:
        before["storageClassName"] = spec.get("storageClassName")
    if bound:
        resources = spec.get("resources") or {}
        if resources.get("requests"):
            spec["resources"] = {
                **resources,
                "requests": {**resources["requests"], "storage": sizes[1]},
            }
        before["volumeAttributesClassName"] = spec.get("volumeAttributesClassName")
    if _given(spec) != _given(before):
        errors.forbidden("spec", CLAIM_RULE)
    if amount(sizes[0]) < amount(sizes[1]):
        capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
        if amount(sizes[0]) <= amount(capacity):
            errors.forbidden(
                "spec.resources.requests.storage", "field can not be less than status.capacity"
            )
    immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode", errors)
    return errors


def _given(tree: Json) -> Json:
    return {name: value for name, value in tree.items() if value is not None}


def persistent_volume_claim_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    for name, text in ((new.get("status") or {}).get("capacity") or {}).items():
        if amount(text).nanos < 0:
            why = "must be a valid resource quantity"
            errors.invalid(f"status.capacity[{name}]", amount(text).nanos // 10**9, why)
    return errors


# --- classes --------------------------------------------------------------------------------------


def storage_class(tree: Json) -> Errors:
    errors = metadata(tree)
    _provisioner(tree.get("provisioner") or "", "provisioner", errors)
    _parameters(tree.get("parameters") or {}, errors)
    one_of(tree.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", errors)
    one_of(
        tree.get("volumeBindingMode"),
        ("Immediate", "WaitForFirstConsumer"),
        "volumeBindingMode",
        errors,
        needed=True,
    )
    terms: list[Json] = []
    for position, term in enumerate(tree.get("allowedTopologies") or ()):
        path = f"allowedTopologies[{position}]"
        _topology(term, path, errors)
        if term in terms:
            errors.duplicate(f"{path}.matchLabelExpressions", "")
        terms.append(term)
    return errors


def _provisioner(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.required(path)
    else:
        errors.malformed(path, name.lower(), label_key(name.lower()))


def _parameters(parameters: Json, errors: Errors, *, needed: bool = False) -> None:
    if len(parameters) > MAX_PARAMETERS:
        errors.too_long("parameters", MAX_PARAMETERS)
        return
    if "" in parameters:
        errors.invalid("parameters", "", "field can not be empty.")
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
        > MAX_PARAMETERS_BYTES
    ):
        errors.too_long("parameters", MAX_PARAMETERS_BYTES)
    if needed and not parameters:
        errors.required("parameters", "must contain at least one key/value pair")


def _topology(term: Json, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for position, wanted in enumerate(term.get("matchLabelExpressions") or ()):
        where, key = f"{path}.matchLabelExpressions[{position}]", wanted.get("key") or ""
        values: set[str] = set()
        if not wanted.get("values"):
            errors.required(f"{where}.values")
        for index, value in enumerate(wanted.get("values") or ()):
            if value in values:
                errors.duplicate(f"{where}.values[{index}]", value)
            values.add(value)
        errors.malformed(f"{where}.key", key, label_key(key))
        if key in seen:
            errors.duplicate(f"{where}.key", key)
        seen.add(key)


def attributes_class(tree: Json) -> Errors:
    errors = metadata(tree)
    _provisioner(tree.get("driverName") or "", "driverName", errors)
    _parameters(tree.get("parameters") or {}, errors, needed=True)
    return errors


def attributes_class_update(new: Json, old: Json) -> Errors:
    errors = attributes_class(new)
    for name in ("driverName", "parameters"):
        if new.get(name) != old.get(name):
            errors.forbidden(name, "updates to " + name + " are forbidden.")
    return errors


# --- drivers --------------------------------------------------------------------------------------


def csi_node(tree: Json) -> Errors:
    errors = metadata(tree)
    seen: set[str] = set()
    for position, driver in enumerate((tree.get("spec") or {}).get("drivers") or ()):
        path = f"spec.drivers[{position}]"
        name, node = driver.get("name") or "", driver.get("nodeID") or ""
        driver_name(name, f"{path}.name", errors)
        if not node:
            errors.required(f"{path}.nodeID")
        elif len(node.encode()) > MAX_NODE_ID_LENGTH:
            errors.invalid(
                f"{path}.nodeID", node, f"must be {MAX_NODE_ID_LENGTH} characters or less"
            )
        not_negative(
            (driver.get("allocatable") or {}).get("count"), f"{path}.allocatable.count", errors
        )
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                errors.required(path)
            if key in keys:
                errors.duplicate(path, key)
            keys.add(key)
            errors.malformed(path, key, label_key(key))
    return errors


def csi_node_update(new: Json, old: Json) -> Errors:
    errors = csi_node(new)
    by_name: dict[Any, list[Json]] = {}
    for driver in (new.get("spec") or {}).get("drivers") or ():
        by_name.setdefault(driver.get("name"), []).append(driver)
    for before in (old.get("spec") or {}).get("drivers") or ():
        for driver in by_name.get(before.get("name"), ()):
            fixed = [
                {key: entry.get(key) for key in ("name", "nodeID", "topologyKeys")}
                for entry in (driver, before)
            ]
            immutable(fixed[0], fixed[1], "spec.drivers", errors)
    return errors


_MIN_TOKEN_SECONDS, _MAX_TOKEN_SECONDS = 600, 1 << 32


def csi_driver(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    # The first one is spelled so in Kubernetes' message.
    for name, shown in (
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", ""),
        ("storageCapacity", ""),
    ):
        if spec.get(name) is None:
            errors.required(f"spec.{shown or name}")
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    one_of(
        spec.get("fsGroupPolicy"),
        policies,
        "spec.fsGroupPolicy",
        errors,
        known=spec.get("fsGroupPolicy") == "",
    )
    audiences: set[str] = set()
    for position, asked in enumerate(spec.get("tokenRequests") or ()):
        path = f"spec.tokenRequests[{position}]"
        audience = asked.get("audience") or ""
        seconds = asked.get("expirationSeconds")
        if audience in audiences:
            errors.duplicate(f"{path}.audience", audience)
            continue
        audiences.add(audience)
        if seconds is not None and seconds < _MIN_TOKEN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
            errors.invalid(f"{path}.expirationSeconds", seconds, why)
        if seconds is not None and seconds > _MAX_TOKEN_SECONDS:
            why = "may not specify a duration larger than 2^32 seconds"
            errors.invalid(f"{path}.expirationSeconds", seconds, why)
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in ("Persistent", "Ephemeral"):
            errors.not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
    if spec.get("seLinuxMount") is None:
        errors.required("spec.seLinuxMount")
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        why = "must be greater than or equal to 10 seconds"
        errors.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, why)
    if spec.get("serviceAccountTokenInSecrets") is not None and not spec.get("tokenRequests"):
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.invalid(
            "spec.serviceAccountTokenInSecrets", spec["serviceAccountTokenInSecrets"], why
        )
    return errors


def csi_driver_update(new: Json, old: Json) -> Errors:
    errors = csi_driver(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for name, shown in (
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ):
        immutable(spec.get(name), before.get(name), f"spec.{shown}", errors)
    return errors


def csi_storage_capacity(tree: Json) -> Errors:
    errors = metadata(tree)
    selector(tree.get("nodeTopology"), "nodeTopology", errors)
    name = tree.get("storageClassName") or ""
    errors.malformed("storageClassName", name, names.dns_subdomain(name))
    if tree.get("capacity") is not None and amount(tree["capacity"]).nanos < 0:
        errors.invalid("capacity", tree["capacity"], "must be greater than or equal to 0")
    return errors


def volume_attachment(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    driver_name(spec.get("attacher") or "", "spec.attacher", errors)
    source = spec.get("source") or {}
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    rule = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        errors.required("spec.source", rule)
    elif name is not None and inline is not None:
        errors.forbidden("spec.source", rule)
    elif name == "":
        errors.required(
            "spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"
        )
    elif inline is not None:
        _volume_spec(inline, "spec.source.inlineVolumeSpec", errors, inline=True)
    node = spec.get("nodeName") or ""
    errors.malformed("spec.nodeName", node, names.dns_subdomain(node))
    if name is not None:
        errors.malformed("spec.source.persistentVolumeName", name, names.dns_subdomain(name))
    return errors


CREATE = {
    ("", "PersistentVolume"): persistent_volume,
    ("", "PersistentVolumeClaim"): persistent_volume_claim,
    ("storage.k8s.io", "StorageClass"): storage_class,
    ("storage.k8s.io", "VolumeAttributesClass"): attributes_class,
    ("storage.k8s.io", "CSINode"): csi_node,
    ("storage.k8s.io", "CSIDriver"): csi_driver,
    ("storage.k8s.io", "CSIStorageCapacity"): csi_storage_capacity,
    ("storage.k8s.io", "VolumeAttachment"): volume_attachment,
}
UPDATE = {
    ("", "PersistentVolume"): persistent_volume_update,
    ("", "PersistentVolumeClaim"): persistent_volume_claim_update,
    ("storage.k8s.io", "StorageClass"): with_fixed(
        storage_class,
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
        texts=("provisioner",),
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): attributes_class_update,
    ("storage.k8s.io", "CSINode"): csi_node_update,
    ("storage.k8s.io", "CSIDriver"): csi_driver_update,
    ("storage.k8s.io", "CSIStorageCapacity"): with_fixed(
        csi_storage_capacity, "nodeTopology", "storageClassName", texts=("storageClassName",)
    ),
    ("storage.k8s.io", "VolumeAttachment"): with_fixed(volume_attachment, "spec"),
}
STATUS = {("", "PersistentVolumeClaim"): persistent_volume_claim_status}
