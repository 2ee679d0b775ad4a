"""The built-in kinds as one table: each with its names, verbs, subresources and flags
(local-cluster 1.7).

A row holds only what differs from the usual (namespaced, all verbs, updates with or without a
resourceVersion). Code of a kind (defaults, validation, columns) is looked up by (group, kind) in
the packages beside this file, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hekla.local.apiserver.objects import autoscalers, columns, events, names, strategies, warnings
from hekla.local.apiserver.objects import scale as scaling
from hekla.local.apiserver.objects.encoding import decode, fields
from hekla.local.apiserver.objects.kind import ALL_VERBS, Kind, Strategy, Subresource

_READ_WRITE = ("get", "patch", "update")
STATUS = Subresource(_READ_WRITE)
SCALE = Subresource(_READ_WRITE, "autoscaling", "v1", "Scale")
_CREATE = ("create",)
_STREAM = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the table. Flags are letters, so that a row fits a line: see `_FLAGS`."""

    kind: str
    plural: str
    short: str = ""
    flags: str = ""
    categories: str = ""
    subresources: dict[str, Subresource] = field(default_factory=dict)
    verbs: tuple[str, ...] = ALL_VERBS
    selectable: str = ""
    """Field selector names; `name=path` where the stored tree has the field elsewhere."""
    storage: tuple[str, str] = ("", "")
    name_rule: Callable[[str], names.Reasons] | None = None
    also: tuple[str, ...] = ()
    """Further apiVersions that a body may have."""


_FLAGS = {
    "C": "cluster-scoped",
    "g": "managed generation",
    "v": "an update must carry a resourceVersion",
    "u": "an update of a missing name creates",
    "d": "a delete answers with the object",
    "o": "dependents are orphaned by default",
}

_STATUS = {"status": STATUS}
_SCALED = {"scale": SCALE, "status": STATUS}
_POD = {
    "attach": Subresource(_STREAM, kind="PodAttachOptions"),
    "binding": Subresource(_CREATE, kind="Binding"),
    "ephemeralcontainers": Subresource(_READ_WRITE),
    "eviction": Subresource(_CREATE, "policy", "v1", "Eviction"),
    "exec": Subresource(_STREAM, kind="PodExecOptions"),
    "log": Subresource(("get",)),
    "portforward": Subresource(_STREAM, kind="PodPortForwardOptions"),
    "proxy": Subresource(_PROXY, kind="PodProxyOptions"),
    "resize": Subresource(_READ_WRITE),
    "status": STATUS,
}
_TOKEN = {"token": Subresource(_CREATE, "authentication.k8s.io", "v1", "TokenRequest")}
_NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_EVENT = "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion"
_EVENT += " involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source=source.component type"

_NEW_EVENT = " ".join(
    f"{name.replace('involvedObject', 'regarding').replace('reportingComponent', 'reportingController')}={name}"
    for name in _EVENT.split()
    if not name.startswith("source=")
)

TABLE: dict[tuple[str, str], tuple[_Row, ...]] = {
    ("", "v1"): (
        _Row("Binding", "bindings", verbs=_CREATE),
        _Row("ComponentStatus", "componentstatuses", "cs", "C", verbs=("get", "list")),
        _Row("ConfigMap", "configmaps", "cm"),
        _Row("Endpoints", "endpoints", "ep", "u"),
        _Row("Event", "events", "ev", "u", selectable=_EVENT, name_rule=names.path_segment),
        _Row("LimitRange", "limitranges", "limits", "u"),
        _Row(
            "Namespace", "namespaces", "ns", "Cd", verbs=_NO_COLLECTION, selectable="status.phase",
            subresources={"finalize": Subresource(("update",)), "status": STATUS}, name_rule=names.dns_label,
        ),
        _Row(
            "Node", "nodes", "no", "C", selectable="spec.unschedulable",
            subresources={"proxy": Subresource(_PROXY, kind="NodeProxyOptions"), "status": STATUS},
        ),
        _Row("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "d", subresources=_STATUS),
        _Row("PersistentVolume", "persistentvolumes", "pv", "Cd", subresources=_STATUS),
        _Row(
            "Pod", "pods", "po", "gd", "all", subresources=_POD,
            selectable="spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
            "status.phase status.podIP status.podIPs status.nominatedNodeName",
        ),
        _Row("PodTemplate", "podtemplates", flags="gd"),
        _Row("ReplicationController", "replicationcontrollers", "rc", "go", "all", _SCALED, selectable="status.replicas"),
        _Row("ResourceQuota", "resourcequotas", "quota", "d", subresources=_STATUS),
        _Row("Secret", "secrets", selectable="type"),
        _Row("ServiceAccount", "serviceaccounts", "sa", "d", subresources=_TOKEN),
        _Row(
            "Service", "services", "svc", "ud", "all", selectable="spec.clusterIP spec.type",
            subresources={"proxy": Subresource(_PROXY, kind="ServiceProxyOptions"), "status": STATUS}, name_rule=names.dns_label,
        ),
    ),
    ("apps", "v1"): (
        _Row("ControllerRevision", "controllerrevisions"),
        _Row("DaemonSet", "daemonsets", "ds", "g", "all", _STATUS),
        _Row("Deployment", "deployments", "deploy", "g", "all", _SCALED),
        _Row("ReplicaSet", "replicasets", "rs", "g", "all", _SCALED, selectable="status.replicas"),
        _Row("StatefulSet", "statefulsets", "sts", "g", "all", _SCALED, name_rule=names.dns_label),
    ),
    ("batch", "v1"): (
        _Row("CronJob", "cronjobs", "cj", "g", "all", _STATUS),
        _Row("Job", "jobs", "", "go", "all", _STATUS, selectable="status.successful"),
    ),
    ("autoscaling", "v2"): (
        _Row("HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "", "all", _STATUS),
    ),
    ("autoscaling", "v1"): (
        _Row(
            "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "", "all", _STATUS,
            storage=("autoscaling", "horizontalpodautoscalers"),
        ),
    ),
    ("policy", "v1"): (
        _Row("PodDisruptionBudget", "poddisruptionbudgets", "pdb", "gv", subresources=_STATUS, name_rule=names.path_segment),
    ),
    ("coordination.k8s.io", "v1"): (_Row("Lease", "leases", "", "uv"),),
    ("events.k8s.io", "v1"): (
        _Row("Event", "events", "ev", "u", storage=("", "events"), selectable=_NEW_EVENT),
    ),
    ("discovery.k8s.io", "v1"): (_Row("EndpointSlice", "endpointslices", "", "g"),),
    ("networking.k8s.io", "v1"): (
        _Row("IngressClass", "ingressclasses", "", "Cg"),
        _Row("Ingress", "ingresses", "ing", "g", subresources=_STATUS),
        _Row("IPAddress", "ipaddresses", "ip", "C", name_rule=names.path_segment),
        _Row("NetworkPolicy", "networkpolicies", "netpol", "g"),
        _Row("ServiceCIDR", "servicecidrs", "", "C", subresources=_STATUS),
    ),
    ("scheduling.k8s.io", "v1"): (_Row("PriorityClass", "priorityclasses", "pc", "Cg"),),
    ("storage.k8s.io", "v1"): (
        _Row("CSIDriver", "csidrivers", "", "Cdv"),
        _Row("CSINode", "csinodes", "", "Cdv"),
        _Row("CSIStorageCapacity", "csistoragecapacities", "", "v"),
        _Row("StorageClass", "storageclasses", "sc", "Cd"),
        _Row("VolumeAttachment", "volumeattachments", "", "Cdv", subresources=_STATUS),
        _Row("VolumeAttributesClass", "volumeattributesclasses", "vac", "Cd"),
    ),
    ("resource.k8s.io", "v1"): (
        _Row("DeviceClass", "deviceclasses", "", "Cgd"),
        _Row("ResourceClaim", "resourceclaims", "", "d", subresources=_STATUS),
        _Row("ResourceClaimTemplate", "resourceclaimtemplates", "", "d"),
        _Row("ResourceSlice", "resourceslices", "", "Cgd", selectable="spec.nodeName spec.driver"),
    ),
    ("node.k8s.io", "v1"): (_Row("RuntimeClass", "runtimeclasses", "", "Cuv"),),
    ("rbac.authorization.k8s.io", "v1"): (
        _Row("ClusterRoleBinding", "clusterrolebindings", "", "Cu", name_rule=names.path_segment),
        _Row("ClusterRole", "clusterroles", "", "Cu", name_rule=names.path_segment),
        _Row("RoleBinding", "rolebindings", "", "u", name_rule=names.path_segment),
        _Row("Role", "roles", "", "u", name_rule=names.path_segment),
    ),
    ("authentication.k8s.io", "v1"): (
        _Row("SelfSubjectReview", "selfsubjectreviews", "", "C", verbs=_CREATE),
        _Row("TokenReview", "tokenreviews", "", "C", verbs=_CREATE),
    ),
    ("authorization.k8s.io", "v1"): (
        _Row("LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=_CREATE),
        _Row("SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "C", verbs=_CREATE),
        _Row("SelfSubjectRulesReview", "selfsubjectrulesreviews", "", "C", verbs=_CREATE),
        _Row("SubjectAccessReview", "subjectaccessreviews", "", "C", verbs=_CREATE),
    ),
    ("admissionregistration.k8s.io", "v1"): (
        _Row("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "", "Cgv", "api-extensions"),
        _Row("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "", "Cgv", "api-extensions"),
        _Row("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", "Cgv", "api-extensions"),
        _Row("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", "Cgv", "api-extensions", _STATUS),
        _Row("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", "Cgv", "api-extensions"),
        _Row("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", "Cgv", "api-extensions"),
    ),
    ("admissionregistration.k8s.io", "v1beta1"): (
        _Row(
            "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "", "Cgv", "api-extensions",
            storage=("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ),
        _Row(
            "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "", "Cgv", "api-extensions",
            storage=("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ),
    ),
    ("apiextensions.k8s.io", "v1"): (
        _Row("CustomResourceDefinition", "customresourcedefinitions", "crd crds", "Cg", "api-extensions", _STATUS),
    ),
    ("apiregistration.k8s.io", "v1"): (
        _Row("APIService", "apiservices", "", "C", "api-extensions", _STATUS, name_rule=names.path_segment),
    ),
    ("certificates.k8s.io", "v1"): (
        _Row(
            "CertificateSigningRequest", "certificatesigningrequests", "csr", "C", selectable="spec.signerName",
            subresources={"approval": STATUS, "status": STATUS}, name_rule=names.path_segment,
        ),
    ),
    ("flowcontrol.apiserver.k8s.io", "v1"): (
        _Row("FlowSchema", "flowschemas", "", "Cg", subresources=_STATUS),
        _Row("PriorityLevelConfiguration", "prioritylevelconfigurations", "", "Cg", subresources=_STATUS),
    ),
}  # fmt: skip


def kinds() -> list[Kind]:
    """All built-in kinds, in the order in which discovery lists their groups."""
    return [_kind(group, version, row) for (group, version), rows in TABLE.items() for row in rows]


_CONVERSIONS = {
    ("events.k8s.io", "v1", "Event"): (events.present, events.keep),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): (autoscalers.present, autoscalers.keep),
}


_WARNINGS = {
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
    (
        "",
        "v1",
        "Endpoints",
    ): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


def _kind(group: str, version: str, row: _Row) -> Kind:
    present, keep = _CONVERSIONS.get((group, version, row.kind), (None, None))
    read, read_again = decode.readers(group, version, row.kind, row.also)
    return Kind(
        group=group,
        version=version,
        kind=row.kind,
        plural=row.plural,
        namespaced="C" not in row.flags,
        singular=row.kind.lower(),
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        verbs=row.verbs,
        subresources=row.subresources,
        columns=columns.of(group, row.kind),
        selectable=dict(_selectable(name) for name in row.selectable.split()),
        strategy=_strategy(group, row),
        decode=read,
        read_again=read_again,
        merge_keys=fields.root(group, version, row.kind),
        storage=row.storage,
        present=present,
        keep=keep,
        warning=_WARNINGS.get((group, version, row.kind), ""),
        scale=scaling.WORKLOAD if "scale" in row.subresources else None,
    )


def _strategy(group: str, row: _Row) -> Strategy:
    key, has_status = (group, row.kind), "status" in row.subresources
    return Strategy(
        default=strategies.default(key),
        prepare_create=strategies.prepare_create(key, has_status),
        validate_create=strategies.validate_create(key),
        prepare_update=strategies.prepare_update(key, has_status),
        validate_update=strategies.validate_update(key),
        prepare_status=strategies.prepare_status(key),
        validate_status=strategies.validate_status(key),
        prepare_decision=strategies.certificate_decision
        if row.kind == "CertificateSigningRequest"
        else None,
        generation="g" in row.flags,
        unconditional_update="v" not in row.flags,
        warnings=warnings.WARNINGS.get(key),
        partial_updates=strategies.partial_updates(key),
        known_spec=strategies.known_spec(key),
        create_on_update="u" in row.flags,
        returns_object_on_delete="d" in row.flags,
        default_propagation="Orphan" if "o" in row.flags else "Background",
        name_rule=_name_rule(row.name_rule) if row.name_rule else None,
    )


def _selectable(written: str) -> tuple[str, tuple[str, ...]]:
    name, _, path = written.partition("=")
    return name, tuple((path or name).split("."))


def _name_rule(rule: Callable[[str], names.Reasons]) -> Callable[[str], str | None]:
    return lambda name: (rule(name) or (None,))[0]
