"""Printer columns of policy, networking, storage, access and extension kinds (local-cluster 1.10)."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from hekla.api.names import DEFAULT_STORAGE_CLASS
from hekla.api.trees import Json
from hekla.local.apiserver.objects.columns.cells import (
    AGE,
    CREATED,
    NAME,
    NONE,
    UNSET,
    Cell,
    at,
    cell,
    column,
    labels,
    listed,
    number,
    selector,
    wide,
)

RBAC = "rbac.authorization.k8s.io"


def _class_name(tree: Json, _now: float) -> str:
    name = str(at(tree, "metadata", "name"))
    annotations = at(tree, "metadata", "annotations") or {}
    return f"{name} (default)" if annotations.get(DEFAULT_STORAGE_CLASS) == "true" else name


def _truth(*path: str) -> Cell:
    return lambda tree, _now: bool(at(tree, *path))


def _subjects(kind: str) -> Cell:
    def value(tree: Json, _now: float) -> str:
        subjects = [
            subject for subject in tree.get("subjects") or () if subject.get("kind") == kind
        ]
        if kind == "ServiceAccount":
            return ", ".join(
                f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in subjects
            )
        return ", ".join(str(subject.get("name", "")) for subject in subjects)

    return value


def _role(tree: Json, _now: float) -> str:
    return f"{at(tree, 'roleRef', 'kind')}/{at(tree, 'roleRef', 'name')}"


def _length(*path: str) -> Cell:
    return lambda tree, _now: len(at(tree, *path) or ())


def _slice_ports(tree: Json, _now: float) -> str:
    ports = tree.get("ports")
    if not ports:
        return UNSET if ports is None else "<any>"
    return listed(str(port.get("port", "*")) for port in ports)


def _slice_endpoints(tree: Json, _now: float) -> str:
    addresses = [
        address
        for endpoint in tree.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return UNSET if not addresses else listed(addresses)


def _hosts(tree: Json, _now: float) -> str:
    return listed(rule.get("host") or "*" for rule in at(tree, "spec", "rules") or ()).replace(
        NONE, "*"
    )


def _addresses(tree: Json, _now: float) -> str:
    return ",".join(
        item.get("ip") or item.get("hostname") or ""
        for item in at(tree, "status", "loadBalancer", "ingress") or ()
    )


def _claim_state(tree: Json, _now: float) -> str:
    states = ["deleted"] if at(tree, "metadata", "deletionTimestamp") else []
    if not at(tree, "status", "allocation"):
        return ",".join([*states, "pending"])
    return ",".join(
        [*states, "allocated", *(["reserved"] if at(tree, "status", "reservedFor") else [])]
    )


def _service_of(tree: Json, _now: float) -> str:
    service = at(tree, "spec", "service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _available(tree: Json, _now: float) -> str:
    for condition in at(tree, "status", "conditions") or ():
        if condition.get("type") == "Available":
            good = condition.get("status") == "True"
            return "True" if good else f"{condition.get('status')} ({condition.get('reason')})"
    return "Unknown"


def _request_condition(tree: Json, _now: float) -> str:
    names = [condition.get("type", "") for condition in at(tree, "status", "conditions") or ()]
    text = ",".join(names) or "Pending"
    return f"{text},Issued" if at(tree, "status", "certificate") else text


def _reference(tree: Json, _now: float) -> str:
    target: Any = at(tree, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind')}/{target.get('name')}"


def _parameters(tree: Json, _now: float) -> str:
    reference = at(tree, "spec", "parameters")
    if not reference:
        return NONE
    group = reference.get("apiGroup")
    return (
        f"{reference.get('kind')}.{group}/{reference.get('name')}"
        if group
        else f"{reference.get('kind')}/{reference.get('name')}"
    )


def _parent(tree: Json, _now: float) -> str:
    reference = at(tree, "spec", "parentRef") or {}
    parts = [reference.get("namespace"), reference.get("name")]
    resource = (
        f"{reference.get('resource')}.{reference['group']}"
        if reference.get("group")
        else str(reference.get("resource"))
    )
    return "/".join([resource, *(part for part in parts if part)])


def _audiences(tree: Json, _now: float) -> str:
    return (
        ",".join(request.get("audience", "") for request in at(tree, "spec", "tokenRequests") or ())
        or UNSET
    )


def _dangling(tree: Json, _now: float) -> str:
    for condition in at(tree, "status", "conditions") or ():
        if condition.get("type") == "Dangling":
            return str(condition.get("status"))
    return "?"


def _shares(tree: Json, _now: float) -> Any:
    shares = at(tree, "spec", "limited", "nominalConcurrencyShares")
    return (
        shares
        if shares is not None
        else at(tree, "spec", "exempt", "nominalConcurrencyShares") or NONE
    )


def _healthy(tree: Json) -> Json:
    return next(
        (
            condition
            for condition in tree.get("conditions") or ()
            if condition.get("type") == "Healthy"
        ),
        {},
    )


_BINDING = (
    NAME,
    column("Role", _role),
    AGE,
    wide("Users", _subjects("User")),
    wide("Groups", _subjects("Group")),
    wide("ServiceAccounts", _subjects("ServiceAccount")),
)
_WEBHOOKS = (NAME, number("Webhooks", _length("webhooks"), "How many webhooks it holds."), AGE)


def _param_reference(tree: Json, _now: float) -> str:
    reference = at(tree, "spec", "paramRef")
    if not reference:
        return UNSET
    if reference.get("name"):
        return "/".join(part for part in (reference.get("namespace"), reference["name"]) if part)
    return selector(reference.get("selector"))


_POLICY_BINDING = (
    NAME,
    column("PolicyName", cell("spec", "policyName")),
    column("ParamRef", _param_reference),
    AGE,
)


_MAX_TARGETS = 2
_METRIC_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Metric type -> the field that describes it."""


def _targets(tree: Json, _now: float) -> str:
    """Current and target value of each metric."""
    metrics, states = at(tree, "spec", "metrics") or (), at(tree, "status", "currentMetrics") or ()
    if not metrics:
        return UNSET
    texts = [
        _target(metric or {}, state or {})
        for metric, state in zip_longest(metrics, states[: len(metrics)])
    ]
    more = f" + {len(texts) - _MAX_TARGETS} more..." if len(texts) > _MAX_TARGETS else ""
    return ", ".join(texts[:_MAX_TARGETS]) + more


def _target(metric: Json, state: Json) -> str:
    name = _METRIC_FIELDS.get(metric.get("type") or "", "")
    source, aim = metric.get(name) or {}, (metric.get(name) or {}).get("target") or {}
    now = (state.get(name) or {}).get("current") or {}
    if not name:
        return "<unknown type>"
    if name in ("resource", "containerResource"):
        prefix = f"{source.get('name', '')}: "
        if aim.get("averageValue") is not None:
            return f"{prefix}{now.get('averageValue', '<unknown>')}/{aim['averageValue']}"
        share, wanted = now.get("averageUtilization"), aim.get("averageUtilization")
        return f"{prefix}{'<unknown>' if share is None else f'{share}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if name == "pods":
        return f"{now.get('averageValue', '<unknown>')}/{aim.get('averageValue')}"
    if aim.get("averageValue") is not None:
        return f"{now.get('averageValue', '<unknown>')}/{aim['averageValue']} (avg)"
    return f"{now.get('value', '<unknown>')}/{aim.get('value')}"


_SCALER = (
    NAME,
    column("Reference", _reference),
    column("Targets", _targets),
    column("MinPods", lambda tree, _now: str(at(tree, "spec", "minReplicas") or UNSET)),
    column("MaxPods", cell("spec", "maxReplicas", absent=0)),
    column("Replicas", cell("status", "currentReplicas", absent=0)),
    AGE,
)

COLUMNS = {
    ("storage.k8s.io", "StorageClass"): (
        NAME._replace(cell=_class_name),
        column("Provisioner", cell("provisioner")),
        column("ReclaimPolicy", cell("reclaimPolicy")),
        column("VolumeBindingMode", cell("volumeBindingMode")),
        column("AllowVolumeExpansion", _truth("allowVolumeExpansion")),
        AGE,
    ),
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME,
        number("Value", cell("value", absent=0)),
        column("Global-Default", _truth("globalDefault"), type="boolean"),
        AGE,
        column("PreemptionPolicy", cell("preemptionPolicy")),
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (NAME, CREATED),
    ("networking.k8s.io", "NetworkPolicy"): (
        NAME,
        column("Pod-Selector", lambda tree, _now: selector(at(tree, "spec", "podSelector"))),
        AGE,
    ),
    ("networking.k8s.io", "Ingress"): (
        NAME,
        column("Class", cell("spec", "ingressClassName", absent=NONE)),
        column("Hosts", _hosts),
        column("Address", _addresses),
        column("Ports", lambda tree, _now: "80, 443" if at(tree, "spec", "tls") else "80"),
        AGE,
    ),
    ("networking.k8s.io", "IngressClass"): (
        NAME,
        column("Controller", cell("spec", "controller")),
        column("Parameters", _parameters, "A reference to what else the class is made of."),
        AGE,
    ),
    ("networking.k8s.io", "ServiceCIDR"): (
        NAME,
        column("CIDRs", lambda tree, _now: ",".join(at(tree, "spec", "cidrs") or ())),
        AGE,
    ),
    ("networking.k8s.io", "IPAddress"): (NAME, column("ParentRef", _parent)),
    ("discovery.k8s.io", "EndpointSlice"): (
        NAME,
        column("AddressType", cell("addressType")),
        column("Ports", _slice_ports),
        column("Endpoints", _slice_endpoints),
        AGE,
    ),
    (RBAC, "Role"): (NAME, CREATED),
    (RBAC, "ClusterRole"): (NAME, CREATED),
    (RBAC, "RoleBinding"): _BINDING,
    (RBAC, "ClusterRoleBinding"): _BINDING,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): (
        NAME,
        number("Validations", _length("spec", "validations")),
        column("ParamKind", lambda tree, _now: _param_kind(at(tree, "spec", "paramKind"))),
        AGE,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("storage.k8s.io", "CSINode"): (NAME, number("Drivers", _length("spec", "drivers")), AGE),
    ("storage.k8s.io", "VolumeAttachment"): (
        NAME,
        column("Attacher", cell("spec", "attacher"), format="name"),
        column("PV", cell("spec", "source", "persistentVolumeName")),
        column("Node", cell("spec", "nodeName")),
        column("Attached", _truth("status", "attached"), type="boolean"),
        AGE,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): (
        NAME,
        column("DriverName", cell("driverName")),
        AGE,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): (NAME, CREATED),
    ("storage.k8s.io", "CSIDriver"): (
        NAME,
        column("AttachRequired", _truth("spec", "attachRequired"), type="boolean"),
        column("PodInfoOnMount", _truth("spec", "podInfoOnMount"), type="boolean"),
        column("StorageCapacity", _truth("spec", "storageCapacity"), type="boolean"),
        column("TokenRequests", _audiences),
        column("RequiresRepublish", _truth("spec", "requiresRepublish"), type="boolean"),
        column(
            "Modes",
            lambda tree, _now: ",".join(at(tree, "spec", "volumeLifecycleModes") or ()) or NONE,
        ),
        AGE,
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        NAME,
        column("PriorityLevel", cell("spec", "priorityLevelConfiguration", "name", absent=NONE)),
        column("MatchingPrecedence", cell("spec", "matchingPrecedence", absent=0)),
        column("DistinguisherMethod", cell("spec", "distinguisherMethod", "type", absent=NONE)),
        AGE,
        column("MissingPL", _dangling, "Whether the priority level that it names is missing."),
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (
        NAME,
        column("Type", cell("spec", "type")),
        column("NominalConcurrencyShares", _shares),
        *(
            column(name, cell("spec", "limited", "limitResponse", "queuing", field, absent=NONE))
            for name, field in (
                ("Queues", "queues"),
                ("HandSize", "handSize"),
                ("QueueLengthLimit", "queueLengthLimit"),
            )
        ),
        AGE,
    ),
    ("", "ComponentStatus"): (
        NAME,
        column(
            "Status",
            lambda tree, _now: "Healthy" if _healthy(tree).get("status") == "True" else "Unhealthy",
        ),
        column("Message", lambda tree, _now: _healthy(tree).get("message", "")),
        column("Error", lambda tree, _now: _healthy(tree).get("error", "")),
    ),
    ("resource.k8s.io", "ResourceClaim"): (NAME, column("State", _claim_state), AGE),
    ("resource.k8s.io", "ResourceSlice"): (
        NAME,
        column("Node", cell("spec", "nodeName", absent=UNSET)),
        column("Driver", cell("spec", "driver")),
        column("Pool", cell("spec", "pool", "name")),
        AGE,
    ),
    ("node.k8s.io", "RuntimeClass"): (NAME, column("Handler", cell("handler")), AGE),
    ("apiregistration.k8s.io", "APIService"): (
        NAME,
        column("Service", _service_of),
        column("Available", _available),
        AGE,
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        NAME,
        AGE,
        column("SignerName", cell("spec", "signerName")),
        column("Requestor", cell("spec", "username")),
        column("RequestedDuration", cell("spec", "expirationSeconds", absent=NONE)),
        column("Condition", _request_condition),
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): _SCALER,
    ("", "PodTemplate"): (
        NAME,
        column("Containers", lambda tree, _now: _names(tree, "name")),
        column("Images", lambda tree, _now: _names(tree, "image")),
        column("Pod Labels", lambda tree, _now: labels(at(tree, "template", "metadata", "labels"))),
    ),
}


def _names(tree: Json, field: str) -> str:
    return ",".join(
        str(container.get(field, ""))
        for container in at(tree, "template", "spec", "containers") or ()
    )


def _param_kind(kind: Json | None) -> str:
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET
