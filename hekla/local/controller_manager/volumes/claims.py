"""Which volume suits a claim: the rules of binding as functions of the two objects.  Reference:
local-cluster 10.12."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api.names import DEFAULT_STORAGE_CLASS
from hekla.api.text.quantity import whole
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import matches

BOUND_BY_US = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONERS = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def key(obj: Json) -> str:
    """ "namespace/name" of a claim."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def notes(obj: Json) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("annotations") or {}
    return found


def phase(obj: Json) -> str:
    """The phase of a claim or a volume."""
    found: str = (obj.get("status") or {}).get("phase", "")
    return found


def reclaim_policy(volume: Json) -> str:
    """What happens to the volume without its claim: Retain, Delete or Recycle."""
    found: str = volume["spec"].get("persistentVolumeReclaimPolicy", "Retain")
    return found


def class_of(obj: Json) -> str:
    """The storage class of a claim or a volume; empty where it has none."""
    return notes(obj).get(OLD_CLASS) or obj["spec"].get("storageClassName") or ""


def without_class(claim: Json) -> bool:
    """Whether the claim does not set its class.  An empty name is set, and means no class."""
    return claim["spec"].get("storageClassName") is None and OLD_CLASS not in notes(claim)


def default_class(classes: Iterable[Json]) -> Json | None:
    """The default class: the youngest of those that are marked as default, by name where they are
    equally old."""
    marked = [one for one in classes if notes(one).get(DEFAULT_STORAGE_CLASS) == "true"]
    by_name = sorted(marked, key=lambda one: str(one["metadata"]["name"]))
    return max(
        by_name, key=lambda one: str(one["metadata"].get("creationTimestamp", "")), default=None
    )


def wanted(claim: Json) -> int:
    """Bytes that the claim asks for."""
    return whole((claim["spec"].get("resources") or {}).get("requests", {}).get("storage", "0"))


def size(volume: Json) -> int:
    return whole((volume["spec"].get("capacity") or {}).get("storage", "0"))


def reference_to(claim: Json) -> Json:
    """The claimRef of a volume that is for this claim."""
    meta = claim["metadata"]
    names = {name: meta[name] for name in ("namespace", "name", "uid", "resourceVersion")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **names}


def reference(volume: Json) -> Json:
    """The volume's claimRef, empty where there is none."""
    found: Json = volume["spec"].get("claimRef") or {}
    return found


def reserved_for(volume: Json) -> str:
    """Key of the claim that the volume names, empty where it names none."""
    ref = reference(volume)
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}" if ref else ""


def is_for(volume: Json, claim: Json) -> bool:
    """Whether the volume names this very claim, or one of its name without saying which."""
    return reserved_for(volume) == key(claim) and reference(volume).get("uid", "") in (
        "",
        claim["metadata"]["uid"],
    )


def mismatch(volume: Json, claim: Json) -> str:
    """Why a claim cannot have the volume that it names; empty where it can."""
    if wanted(claim) > size(volume):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if mode(volume) != mode(claim):
        return "incompatible volumeMode"
    if not set(claim["spec"].get("accessModes") or ()) <= set(
        volume["spec"].get("accessModes") or ()
    ):
        return "incompatible accessMode"
    return ""


def mode(obj: Json) -> str:
    return obj["spec"].get("volumeMode") or "Filesystem"


def suits(volume: Json, claim: Json) -> bool:
    """Whether an unclaimed volume may be given to the claim."""
    selector = claim["spec"].get("selector")
    return (
        not mismatch(volume, claim)
        and (volume.get("status") or {}).get("phase", "Available") in ("Available", "Pending")
        and volume["metadata"].get("deletionTimestamp") is None
        and (volume["spec"].get("volumeAttributesClassName") or "")
        == (claim["spec"].get("volumeAttributesClassName") or "")
        and (selector is None or matches(selector, volume["metadata"].get("labels") or {}))
    )


def best(volumes: Iterable[Json], claim: Json) -> Json | None:
    """The smallest unclaimed volume that suits."""
    fitting = [volume for volume in volumes if not reference(volume) and suits(volume, claim)]
    return min(fitting, key=lambda volume: (size(volume), volume["metadata"]["name"]), default=None)
