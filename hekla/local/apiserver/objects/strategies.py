"""How built-in kinds behave on create, update and delete: defaults and validation, and what happens
to the status.

Usually a kind with a status subresource starts with an empty status, its main endpoint leaves
status alone, and its status endpoint leaves everything else alone. The tables below hold what
differs (local-cluster 2.3, 5).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection

from hekla.api.names import JOB_CONTROLLER_UID
from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults import DEFAULTS
from hekla.local.apiserver.objects.defaults.pod import first_status
from hekla.local.apiserver.objects.kind import FieldError, KnownSpec, PartialUpdates, do_nothing
from hekla.local.apiserver.objects.new_objects import now
from hekla.local.apiserver.objects.texts import OF_POD
from hekla.local.apiserver.objects.validation import (
    core,
    definitions,
    devices,
    jobs,
    networking,
    others,
    pod,
    policies,
    registered,
    scaling,
    services,
    storage,
    workloads,
)
from hekla.local.apiserver.objects.validation.metadata import metadata
from hekla.local.apiserver.objects.zeros import ZEROS

Check = Callable[[Json], list[FieldError]]
CheckUpdate = Callable[[Json, Json], list[FieldError]]

CREATE: dict[tuple[str, str], Check] = {
    ("", "Pod"): pod.create,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.create,
    **workloads.CREATE,
    **jobs.CREATE,
    **core.CREATE,
    **storage.CREATE,
    **services.CREATE,
    **networking.CREATE,
    **scaling.CREATE,
    **devices.CREATE,
    **others.CREATE,
    **policies.CREATE,
    **registered.CREATE,
}
UPDATE: dict[tuple[str, str], CheckUpdate] = {
    ("", "Pod"): pod.update,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions.update,
    **workloads.UPDATE,
    **jobs.UPDATE,
    **core.UPDATE,
    **storage.UPDATE,
    **services.UPDATE,
    **networking.UPDATE,
    **devices.UPDATE,
    **others.UPDATE,
    **policies.UPDATE,
    **registered.UPDATE,
}
STATUS: dict[tuple[str, str], CheckUpdate] = {
    ("", "Namespace"): core.namespace_status,
    ("", "Pod"): pod.status,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): lambda new, old: metadata(
        new, bare_finalizers=True
    ),
    **workloads.STATUS,
    **jobs.STATUS,
    **core.STATUS,
    **storage.STATUS,
    **services.STATUS,
    **networking.STATUS,
    **scaling.STATUS,
    **devices.STATUS,
    **registered.STATUS,
}


def validate_create(key: tuple[str, str]) -> Check:
    """The validation of new objects; metadata alone if a kind has no rules of its own."""
    return CREATE.get(key, metadata)


def validate_update(key: tuple[str, str]) -> CheckUpdate:
    """The validation of updates; that of new objects if a kind has no rules of its own for updates."""
    if key in UPDATE:
        return UPDATE[key]
    check = CREATE.get(key, metadata)
    return lambda new, old: check(new)


def validate_status(key: tuple[str, str]) -> CheckUpdate:
    """The validation of status updates; metadata alone if a kind has no rules of its own."""
    return STATUS.get(key, lambda new, old: metadata(new))


# --- first statuses -------------------------------------------------------------------------------

_STATUS_ZEROS: dict[tuple[str, str], Json] = {
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
"""Fields that the status of a kind always shows, also if its writer leaves them out."""
_STATUS_FROM_CLIENT = {("", "Node"), ("apiregistration.k8s.io", "APIService")}


def prepare_create(key: tuple[str, str], has_status: bool) -> Callable[[Json], None]:
    """What a create does before validation: set the initial status, and the zero values that
    Kubernetes shows."""
    prepare, show = _prepare_create(key, has_status), ZEROS.get(key)
    if show is None:
        return prepare

    def both(tree: Json) -> None:
        prepare(tree)
        show(tree)

    return both


def _prepare_create(key: tuple[str, str], has_status: bool) -> Callable[[Json], None]:
    special = _PREPARE_CREATE.get(key)
    if special is not None:
        return special
    if not has_status or key in _STATUS_FROM_CLIENT:
        return do_nothing

    def begin(tree: Json) -> None:
        tree["status"] = initial_status(key)

    return begin


def initial_status(key: tuple[str, str]) -> Json:
    """The fields that the status of a new object shows."""
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in _STATUS_ZEROS.get(key, {}).items()
    }


def _pod(tree: Json) -> None:
    tree["status"] = first_status(tree.get("spec") or {})


def _namespace(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    finalizers = spec.setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    tree["status"] = {"phase": "Active"}


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_JOB_LABELS = (JOB_CONTROLLER_UID, "controller-uid")
_JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")


def _job(tree: Json) -> None:
    """Generate the selector of a job, and the labels that it selects for its pods."""
    spec = tree.setdefault("spec", {})
    meta = tree["metadata"]
    tree["status"] = {}
    if spec.get("manualSelector"):
        return
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for key in _JOB_LABELS:
        labels.setdefault(key, uid)  # a job that says otherwise is refused
    for key in _JOB_NAMES:
        labels.setdefault(key, name)
    spec.setdefault("selector", {}).setdefault("matchLabels", {}).setdefault(_JOB_LABELS[0], uid)
    if not meta.get("labels"):
        meta["labels"] = dict(labels)


def _daemon_set(tree: Json) -> None:
    tree["status"] = initial_status(("apps", "DaemonSet"))
    tree["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"


def _persistent_volume(tree: Json) -> None:
    tree["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now()}


def _definition(tree: Json) -> None:
    stored = [
        version.get("name", "")
        for version in (tree.get("spec") or {}).get("versions") or ()
        if version.get("storage")
    ]
    tree["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored[:1],
    }


def _certificate_request(tree: Json) -> None:
    tree["status"] = {}


_PREPARE_CREATE: dict[tuple[str, str], Callable[[Json], None]] = {
    ("", "Pod"): _pod,
    ("", "Namespace"): _namespace,
    ("batch", "Job"): _job,
    ("apps", "DaemonSet"): _daemon_set,
    ("", "PersistentVolume"): _persistent_volume,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("certificates.k8s.io", "CertificateSigningRequest"): _certificate_request,
}


# --- updates --------------------------------------------------------------------------------------


def keep_status(new: Json, old: Json) -> None:
    """The main endpoint does not change status."""
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def only_status(new: Json, old: Json) -> None:
    """The status endpoint changes status, labels and annotations alone."""
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


_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def _drop_type_dependent_fields(spec: Json, before: Json) -> None:
    """A service that changes its type loses the fields that only its old type needs, unless the
    client changes them."""
    kind, previous = spec.get("type"), before.get("type")
    given = []
    if kind == "ExternalName" and previous != kind:
        given += [*_ADDRESSES, "internalTrafficPolicy"]
    if previous in ("NodePort", "LoadBalancer") and kind not in ("NodePort", "LoadBalancer"):
        known = {
            (port.get("protocol"), port.get("port")): port.get("nodePort")
            for port in before.get("ports") or ()
        }
        for port in spec.get("ports") or ():
            if port.get("nodePort") and port["nodePort"] == known.get(
                (port.get("protocol"), port.get("port"))
            ):
                del port["nodePort"]
        given += (
            ["healthCheckNodePort"]
            if spec.get("externalIPs") and kind == "ClusterIP"
            else ["externalTrafficPolicy", "healthCheckNodePort"]
        )
    if previous == "LoadBalancer" and kind != previous:
        given += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    for name in given:
        if name in spec and spec[name] == before.get(name):
            del spec[name]


def _update_service(new: Json, old: Json) -> None:
    """An update that omits what the server allocated keeps it."""
    keep_status(new, old)
    spec, before = new.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("type") != "ExternalName" and before.get("type") != "ExternalName":
        for name in _ADDRESSES:
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get(
        "clusterIPs"
    ):
        # A single address given is the address of the Service.
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
    _drop_type_dependent_fields(spec, before)
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        known = {
            (port.get("protocol"), port.get("port")): port.get("nodePort")
            for port in before.get("ports") or ()
        }
        for port in spec.get("ports") or ():
            if not port.get("nodePort") and known.get((port.get("protocol"), port.get("port"))):
                port["nodePort"] = known[(port.get("protocol"), port.get("port"))]


def _update_job(new: Json, old: Json) -> None:
    keep_status(new, old)
    _labels_of_template(new)


DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def add_default_tolerations(spec: Json) -> None:
    """Tolerate not-ready and unreachable nodes for five minutes, unless the pod has such
    tolerations (the admission plugin DefaultTolerationSeconds)."""
    tolerations = spec.get("tolerations") or []
    missing = [
        key
        for key in DEFAULT_TOLERATIONS
        if not any(
            t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "")
            for t in tolerations
        )
    ]
    if missing:
        added = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in missing
        ]
        spec["tolerations"] = [*tolerations, *added]


def _update_pod(new: Json, old: Json) -> None:
    keep_status(new, old)
    spec, before = new.get("spec"), old.get("spec")
    if (
        spec is not None
        and before is not None
        and spec.get("tolerations") != before.get("tolerations")
    ):
        add_default_tolerations(spec)


def _labels_of_template(job: Json) -> None:
    """A job without labels gets those of its pod template."""
    labels = ((job.get("spec") or {}).get("template") or {}).get("metadata", {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def _update_deployment(new: Json, old: Json) -> None:
    keep_status(new, old)
    _count_metadata(new, old, "annotations")


def _update_driver(new: Json, old: Json) -> None:
    """The generation of a CSIDriver starts at 0 and counts updates."""
    if new.get("spec") != old.get("spec"):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _update_slice(new: Json, old: Json) -> None:
    _count_metadata(new, old, "labels")


def _count_metadata(new: Json, old: Json, name: str) -> None:
    """Kinds for which a change of labels or annotations increases the generation."""
    if (new["metadata"].get(name) or {}) != (old["metadata"].get(name) or {}):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _update_daemon_set(new: Json, old: Json) -> None:
    """A deprecated annotation counts the changes of the template."""
    keep_status(new, old)
    template, before = ((tree.get("spec") or {}).get("template") for tree in (new, old))
    previous = str((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or "1")
    count = (
        int(previous) if previous.isascii() and previous.isdigit() and len(previous) < 20 else 1
    ) + (template != before)
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(count)


_PREPARE_UPDATE: dict[tuple[str, str], Callable[[Json, Json], None]] = {
    ("", "Namespace"): _update_namespace,
    ("", "Service"): _update_service,
    ("", "Pod"): _update_pod,
    ("batch", "Job"): _update_job,
    ("apps", "Deployment"): _update_deployment,
    ("apps", "DaemonSet"): _update_daemon_set,
    ("discovery.k8s.io", "EndpointSlice"): _update_slice,
    ("storage.k8s.io", "CSIDriver"): _update_driver,
}


# --- updates of a status --------------------------------------------------------------------------

_STATUS_KEEPS_METADATA = frozenset({
    ("resource.k8s.io", "ResourceClaim"), ("storage.k8s.io", "VolumeAttachment"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"), ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"), ("networking.k8s.io", "ServiceCIDR"),
})  # fmt: skip
"""Kinds whose status endpoint does not change metadata."""


def prepare_status(key: tuple[str, str]) -> Callable[[Json, Json], None]:
    """What a status update does before validation: restore all that it may not change."""
    return _with_zeros(key, _prepare_status(key))


def _prepare_status(key: tuple[str, str]) -> Callable[[Json, Json], None]:
    special = _PREPARE_STATUS.get(key)
    if special is not None:
        return special
    counts, stays = _STATUS_ZEROS.get(key, {}), key in _STATUS_KEEPS_METADATA
    if not counts and not stays:
        return only_status

    def prepare(new: Json, old: Json) -> None:
        only_status(new, old)
        if stays:
            _keep_metadata(new, old, ("labels", "annotations", "finalizers"))
        status = new["status"]
        for name, value in counts.items():
            if name not in status:
                status[name] = dict(value) if isinstance(value, dict) else value

    return prepare


def _keep_metadata(new: Json, old: Json, names: tuple[str, ...]) -> None:
    for name in names:
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]
        else:
            new["metadata"].pop(name, None)


def _pod_status(new: Json, old: Json) -> None:
    only_status(new, old)
    if "qosClass" not in new["status"] and "qosClass" in (old.get("status") or {}):
        new["status"]["qosClass"] = old["status"]["qosClass"]


def _deployment_status(new: Json, old: Json) -> None:
    only_status(new, old)
    _keep_metadata(new, old, ("labels",))


def _job_status(new: Json, old: Json) -> None:
    only_status(new, old)
    _labels_of_template(new)


def _daemon_set_status(new: Json, old: Json) -> None:
    only_status(new, old)
    count = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    if count is not None:
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = count
    new["status"] = {**_STATUS_ZEROS["apps", "DaemonSet"], **new["status"]}


def _persistent_volume_status(new: Json, old: Json) -> None:
    only_status(new, old)
    status, before = new["status"], old.get("status") or {}
    since = "lastPhaseTransitionTime"
    if status.get("phase") == before.get("phase"):
        if since in before:
            status.setdefault(since, before[since])
    elif status.get(since) in (None, before.get(since)):
        status[since] = now()


_PREPARE_STATUS: dict[tuple[str, str], Callable[[Json, Json], None]] = {
    ("", "Pod"): _pod_status,
    ("", "PersistentVolume"): _persistent_volume_status,
    ("apps", "Deployment"): _deployment_status,
    ("apps", "DaemonSet"): _daemon_set_status,
    ("batch", "Job"): _job_status,
}


APPROVAL_CONDITIONS = ("Approved", "Denied")


def certificate_decision(new: Json, old: Json, subresource: str) -> None:
    """The approval endpoint changes only the approval conditions, the status endpoint only
    everything else in the status."""
    status, before = new.setdefault("status", {}), old.get("status") or {}
    if subresource == "approval":
        if "certificate" in before:
            status["certificate"] = before["certificate"]
        else:
            status.pop("certificate", None)
        return
    kept = [
        condition
        for condition in before.get("conditions") or ()
        if condition.get("type") in APPROVAL_CONDITIONS
    ]
    given = status.get("conditions") or []
    if [condition for condition in given if condition.get("type") in APPROVAL_CONDITIONS] == kept:
        return
    others = [condition for condition in given if condition.get("type") not in APPROVAL_CONDITIONS]
    if kept or others:
        status["conditions"] = kept + others
    else:
        status.pop("conditions", None)


def prepare_update(key: tuple[str, str], has_status: bool) -> Callable[[Json, Json], None]:
    """What an update does before validation: restore the status."""
    return _with_zeros(key, _PREPARE_UPDATE.get(key, keep_status if has_status else do_nothing))


def _with_zeros(
    key: tuple[str, str], prepare: Callable[[Json, Json], None]
) -> Callable[[Json, Json], None]:
    show = ZEROS.get(key)
    if show is None:
        return prepare

    def both(new: Json, old: Json) -> None:
        prepare(new, old)
        show(new)

    return both


# --- writes of a part -----------------------------------------------------------------------------


TERMINAL_PHASES = ("Succeeded", "Failed")
_ENDPOINTS_WITHOUT_SPEC: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("", "status"),
    **dict.fromkeys(
        (
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("apps", "DaemonSet"),
        ),
        ("status",),
    ),
}
"""Kind -> endpoints that can update an object without its spec: defaults change only the spec, and
no rule needs it."""


def partial_updates(key: tuple[str, str]) -> PartialUpdates | None:
    """How often written kinds are updated without their spec; None for other kinds."""
    endpoints = _ENDPOINTS_WITHOUT_SPEC.get(key)
    if endpoints is None:
        return None
    update, status = validate_update(key), validate_status(key)

    def may_stay(subresource: str, kept: Collection[str]) -> bool:
        return subresource in endpoints and all(
            name == "spec" or (name == "status" and not subresource) for name in kept
        )

    def fits(new: Json, old: Json, kept: Collection[str], subresource: str) -> bool:
        return not (status if subresource else update)(new, old)

    if key != ("", "Pod"):
        return PartialUpdates(may_stay, do_nothing, fits)
    return PartialUpdates(may_stay, do_nothing, fits, _usage_changes, lambda: OF_POD)


def _usage_changes(new: Json, old: Json) -> bool:
    """Whether the pod enters or leaves a terminal phase; a pod in one does not use any quota."""
    phases = [(tree.get("status") or {}).get("phase") in TERMINAL_PHASES for tree in (new, old)]
    return phases[0] != phases[1]


def known_spec(key: tuple[str, str]) -> KnownSpec | None:
    """For pods only: their defaults, initial status and nearly all rules read nothing but the spec."""
    return KnownSpec(lambda: True, pod.new_pod_metadata) if key == ("", "Pod") else None


def default(key: tuple[str, str]) -> Callable[[Json], None]:
    """The defaulting of a kind."""
    if key == ("", "Secret"):
        return _secret
    return DEFAULTS.get(key, do_nothing)


def _secret(tree: Json) -> None:
    """stringData is merged into data, and never returned."""
    plain = tree.pop("stringData", None)
    if plain:
        data = tree.setdefault("data", {})
        for key, text in plain.items():
            data[key] = b64encode(text.encode()).decode()
    DEFAULTS[("", "Secret")](tree)
