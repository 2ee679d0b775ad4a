"""How built-in kinds behave on create, update and delete: defaults and validation joined with what becomes of status.

The plain case: a kind with a status subresource starts with an empty status, its main endpoint leaves status alone and its
status endpoint leaves everything else alone.  What differs stands in the tables below (local-cluster 2.3, 5).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection
from typing import Any

from hekla.local.apiserver.kind import FieldError, Parts, nothing
from hekla.local.apiserver.objects.defaults import DEFAULTS
from hekla.local.apiserver.objects.defaults.pod import first_status
from hekla.local.apiserver.objects.validation import core, definitions, others, pod, policies, registered, workloads
from hekla.local.apiserver.objects.validation.metadata import metadata

Json = dict[str, Any]
Check = Callable[[Json], list[FieldError]]
CheckUpdate = Callable[[Json, Json], list[FieldError]]

CREATE: dict[tuple[str, str], Check] = {
    ("", "Pod"): pod.create,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.create,
    **workloads.CREATE,
    **core.CREATE,
    **others.CREATE,
    **policies.CREATE,
    **registered.CREATE,
}
UPDATE: dict[tuple[str, str], CheckUpdate] = {
    ("", "Pod"): pod.update,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.update,
    **workloads.UPDATE,
    **core.UPDATE,
    **others.UPDATE,
    **policies.UPDATE,
    **registered.UPDATE,
}
STATUS: dict[tuple[str, str], CheckUpdate] = {
    ("", "Pod"): pod.status,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): lambda new, old: metadata(new, bare_finalizers=True),
    ("resource.k8s.io", "ResourceClaim"): others.resource_claim_status,
    **registered.STATUS,
}


def validate_create(key: tuple[str, str]) -> Check:
    return CREATE.get(key, metadata)


def validate_update(key: tuple[str, str]) -> CheckUpdate:
    if key in UPDATE:
        return UPDATE[key]
    check = CREATE.get(key, metadata)
    return lambda new, old: check(new)


def validate_status(key: tuple[str, str]) -> CheckUpdate:
    return STATUS.get(key, lambda new, old: metadata(new))


# --- first statuses ------------------------------------------------------------------------------------------------------

_COUNTS: dict[tuple[str, str], Json] = {
    ("apps", "ReplicaSet"): {"replicas": 0},
    ("", "ReplicationController"): {"replicas": 0},
    ("apps", "StatefulSet"): {"replicas": 0, "availableReplicas": 0},
    ("apps", "DaemonSet"): {
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    },
    ("policy", "PodDisruptionBudget"): {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
    },
    ("storage.k8s.io", "VolumeAttachment"): {"attached": False},
    ("networking.k8s.io", "Ingress"): {"loadBalancer": {}},
    ("autoscaling", "HorizontalPodAutoscaler"): {"desiredReplicas": 0},
    ("", "PersistentVolume"): {"phase": "Pending"},
    ("", "PersistentVolumeClaim"): {"phase": "Pending"},
    ("", "Service"): {"loadBalancer": {}},
}  # fmt: skip
_KEEP_STATUS = {("", "Node"), ("apiregistration.k8s.io", "APIService")}


def prepare_create(key: tuple[str, str], has_status: bool) -> Callable[[Json], None]:
    special = _PREPARE_CREATE.get(key)
    if special is not None:
        return special
    if not has_status or key in _KEEP_STATUS:
        return nothing
    first = _COUNTS.get(key, {})

    def begin(tree: Json) -> None:
        tree["status"] = {name: dict(value) if isinstance(value, dict) else value for name, value in first.items()}

    return begin


def _pod(tree: Json) -> None:
    tree["status"] = first_status(tree.get("spec") or {})


def _namespace(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    finalizers = spec.setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    tree["status"] = {"phase": "Active"}


_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")


def _job(tree: Json) -> None:
    """Gives a job a selector of its own and its pods the labels that it selects."""
    spec = tree.setdefault("spec", {})
    meta = tree["metadata"]
    tree["status"] = {}
    if spec.get("manualSelector"):
        return
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for key in _JOB_LABELS:
        labels[key] = uid
    for key in _JOB_NAMES:
        labels[key] = name
    spec["selector"] = {"matchLabels": {_JOB_LABELS[0]: uid}}
    own = meta.setdefault("labels", {})
    for key in (*_JOB_LABELS, *_JOB_NAMES):
        own.setdefault(key, labels[key])


def _definition(tree: Json) -> None:
    stored = [version.get("name", "") for version in (tree.get("spec") or {}).get("versions") or () if version.get("storage")]
    tree["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def _certificate_request(tree: Json) -> None:
    tree["status"] = {}


_PREPARE_CREATE: dict[tuple[str, str], Callable[[Json], None]] = {
    ("", "Pod"): _pod,
    ("", "Namespace"): _namespace,
    ("batch", "Job"): _job,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("certificates.k8s.io", "CertificateSigningRequest"): _certificate_request,
}


# --- updates -------------------------------------------------------------------------------------------------------------


def keep_status(new: Json, old: Json) -> None:
    """The main endpoint does not touch status."""
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def only_status(new: Json, old: Json) -> None:
    """The status endpoint touches status, labels and annotations."""
    for key in [key for key in new if key not in ("metadata", "status")]:
        del new[key]
    for key, value in old.items():
        if key not in ("metadata", "status"):
            new[key] = value
    new.setdefault("status", {})
    meta, before = new.get("metadata"), old.get("metadata") or {}
    if meta is not None:
        if "ownerReferences" in before:
            meta["ownerReferences"] = before["ownerReferences"]
        else:
            meta.pop("ownerReferences", None)


def _update_namespace(new: Json, old: Json) -> None:
    keep_status(new, old)
    finalizers = (old.get("spec") or {}).get("finalizers")
    if finalizers is not None:
        new.setdefault("spec", {})["finalizers"] = finalizers


def _update_service(new: Json, old: Json) -> None:
    """An update that leaves out what the server allocated keeps it."""
    keep_status(new, old)
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        known = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort") and known.get((port.get("protocol"), port.get("port"))):
                port["nodePort"] = known[(port.get("protocol"), port.get("port"))]


def _update_job(new: Json, old: Json) -> None:
    """A client that applies its manifest again does not know the generated selector and labels."""
    keep_status(new, old)
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("manualSelector") or "selector" not in before:
        return
    spec.setdefault("selector", before["selector"])
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    known = ((before.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for key in (*_JOB_LABELS, *_JOB_NAMES):
        if key in known:
            labels.setdefault(key, known[key])


_PREPARE_UPDATE: dict[tuple[str, str], Callable[[Json, Json], None]] = {
    ("", "Namespace"): _update_namespace,
    ("", "Service"): _update_service,
    ("batch", "Job"): _update_job,
}


DECISIONS = ("Approved", "Denied")


def certificate_decision(new: Json, old: Json, subresource: str) -> None:
    """Conditions are the approver's, the certificate is the signer's; neither touches what is the other's."""
    status, before = new.setdefault("status", {}), old.get("status") or {}
    if subresource == "approval":
        if "certificate" in before:
            status["certificate"] = before["certificate"]
        else:
            status.pop("certificate", None)
        return
    kept = [condition for condition in before.get("conditions") or () if condition.get("type") in DECISIONS]
    given = status.get("conditions") or []
    if [condition for condition in given if condition.get("type") in DECISIONS] == kept:
        return
    others = [condition for condition in given if condition.get("type") not in DECISIONS]
    if kept or others:
        status["conditions"] = kept + others
    else:
        status.pop("conditions", None)


def prepare_update(key: tuple[str, str], has_status: bool) -> Callable[[Json, Json], None]:
    return _PREPARE_UPDATE.get(key, keep_status if has_status else nothing)


# --- writes of a part ----------------------------------------------------------------------------------------------------


ENDED = ("Succeeded", "Failed")
_WITHOUT_SPEC: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("", "status"),
    **dict.fromkeys(
        (("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job")), ("status",)
    ),
}
"""Kind -> endpoints whose writes may leave the spec alone: defaults fill in nothing outside of it, and rules there need it not."""


def parts(key: tuple[str, str]) -> Parts | None:
    """Of kinds that are written often."""
    endpoints = _WITHOUT_SPEC.get(key)
    if endpoints is None:
        return None
    update, status = validate_update(key), validate_status(key)

    def may_stay(subresource: str, kept: Collection[str]) -> bool:
        return subresource in endpoints and all(name == "spec" or (name == "status" and not subresource) for name in kept)

    def fits(new: Json, old: Json, kept: Collection[str], subresource: str) -> bool:
        return not (status if subresource else update)(new, old)

    return Parts(may_stay, nothing, fits, _ends if key == ("", "Pod") else lambda new, old: False)


def _ends(new: Json, old: Json) -> bool:
    """Whether a pod ends (or begins) with this; one that has ended asks for nothing more."""
    phases = [(tree.get("status") or {}).get("phase") in ENDED for tree in (new, old)]
    return phases[0] != phases[1]


def default(key: tuple[str, str]) -> Callable[[Json], None]:
    if key == ("", "Secret"):
        return _secret
    return DEFAULTS.get(key, nothing)


def _secret(tree: Json) -> None:
    """stringData is a way to write data, and is never read back."""
    plain = tree.pop("stringData", None)
    if plain:
        data = tree.setdefault("data", {})
        for key, text in plain.items():
            data[key] = b64encode(text.encode()).decode()
    DEFAULTS[("", "Secret")](tree)
