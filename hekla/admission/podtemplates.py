"""A task's pod template, judged as the API server will judge the pods made from it.

Reference: api-and-admission 5.3.5.  A template that would give refused pods is refused with the Job, where its author still
sees it.  The walk is Kubernetes' own: names and labels, then volumes, containers, and what the pod says about placement.
Defaults of the API server are taken as given, never written back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hekla.admission import containers, placement, podresources
from hekla.admission.fielderrors import duplicate, forbidden, invalid, required, unsupported
from hekla.admission.resources import is_whole
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label, dns_subdomain, qualified_name
from hekla.api.quantity import Quantity

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
LARGEST_DEADLINE = 2**31 - 1
ANNOTATIONS_LIMIT = 256 * 1024

# What a volume entry may hold besides its name; exactly one of them.
VOLUME_SOURCES = frozenset({
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI", "emptyDir",
    "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "image", "iscsi",
    "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd", "scaleIO",
    "secret", "storageos", "vsphereVolume",
})  # fmt: skip

# Names that the pod spec may carry, and the grammar that each must follow.
NAME_FIELDS: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
    ("serviceAccountName", dns_subdomain),
    ("nodeName", dns_subdomain),
    ("hostname", dns_label),
    ("subdomain", dns_label),
    ("schedulerName", qualified_name),
    ("priorityClassName", dns_subdomain),
    ("runtimeClassName", dns_subdomain),
)


def problems(template: Tree, name: str, pod_level_resources: bool) -> list[str]:
    """Everything against a template, as field errors; paths begin with `template`, the object is named after its task."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    return [
        *_object_name(name),
        *placement.labels(metadata.get("labels") or {}, "template.labels"),
        *_annotations(metadata.get("annotations") or {}, "template.annotations"),
        *_spec(spec, "template.spec", pod_level_resources),
    ]


def is_whole_cpu(amount: Any) -> bool:
    """Whether an amount of cpu is a whole number other than zero."""
    value = Quantity.parse(amount)
    return is_whole(value) and value > podresources.ZERO


def _object_name(name: str) -> Iterator[str]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from (invalid("metadata.name", name, reason) for reason in dns_subdomain(name))


def _annotations(annotations: Tree, path: str) -> Iterator[str]:
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        for reason in qualified_name(key.lower()):
            yield invalid(path, key, reason)
    if size > ANNOTATIONS_LIMIT:
        yield f"{path}: Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"


def _spec(spec: Tree, path: str, pod_level_resources: bool) -> Iterator[str]:
    volumes = spec.get("volumes") or []
    yield from _volumes(volumes, f"{path}.volumes")
    names = {volume.get("name") for volume in volumes}
    yield from containers.problems(spec, names, path)
    if pod_level_resources:
        yield from podresources.pod_problems(spec, f"{path}.resources")
    yield from _choices(spec, path)
    for field, grammar in NAME_FIELDS:
        value = spec.get(field)
        if value:
            yield from (invalid(f"{path}.{field}", value, reason) for reason in grammar(value))
    yield from _secrets(spec.get("imagePullSecrets") or [], f"{path}.imagePullSecrets")
    yield from _gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    yield from placement.problems(spec, path)


def _choices(spec: Tree, path: str) -> Iterator[str]:
    for field, choices in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        value = spec.get(field)
        if value and value not in choices:
            yield unsupported(f"{path}.{field}", value, choices)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        yield required(f"{path}.dnsConfig.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
    grace, deadline = spec.get("terminationGracePeriodSeconds"), spec.get("activeDeadlineSeconds")
    if grace is not None and grace < 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    if deadline is not None and not 1 <= deadline <= LARGEST_DEADLINE:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {LARGEST_DEADLINE}, inclusive")


def _volumes(volumes: list[Tree], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        sources = [key for key in volume if key in VOLUME_SOURCES and volume[key] is not None]
        if not sources:
            yield required(where, "must specify a volume type")
        for extra in sources[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        if not name:
            yield required(f"{where}.name")
        else:
            yield from (invalid(f"{where}.name", name, reason) for reason in dns_label(name))
        if name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        yield from _source(volume, where)


def _source(volume: Tree, where: str) -> Iterator[str]:
    """The one field that each common source cannot go without."""
    for source, field in (
        ("persistentVolumeClaim", "claimName"),
        ("secret", "secretName"),
        ("configMap", "name"),
        ("hostPath", "path"),
    ):
        body = volume.get(source)
        if body is not None and not body.get(field):
            yield required(f"{where}.{source}.{field}")
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None and Quantity.parse(limit) < podresources.ZERO:
        yield forbidden(f"{where}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _secrets(secrets: list[Tree], path: str) -> Iterator[str]:
    for index, secret in enumerate(secrets):
        name = secret.get("name") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        else:
            yield from (invalid(f"{path}[{index}].name", name, reason) for reason in dns_subdomain(name))


def _gates(gates: list[Tree], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        if not name:
            yield required(f"{path}[{index}]", "must not be empty")
        else:
            yield from (invalid(f"{path}[{index}]", name, reason) for reason in qualified_name(name))
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
