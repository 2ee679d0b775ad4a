"""Defaults of policy, networking, storage, access and extension kinds (local-cluster 4.1, 5.9,
6.2)."""

from __future__ import annotations

from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults.workloads import fill

RBAC = "rbac.authorization.k8s.io"


def _priority_class(tree: Json) -> None:
    if not tree.get("preemptionPolicy"):
        tree["preemptionPolicy"] = "PreemptLowerPriority"


def _storage_class(tree: Json) -> None:
    if not tree.get("reclaimPolicy"):
        tree["reclaimPolicy"] = "Delete"
    fill(tree, volumeBindingMode="Immediate")


def _csi_driver(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    fill(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        requiresRepublish=False,
    )
    fill(spec, fsGroupPolicy="ReadWriteOnceWithFSType", seLinuxMount=False)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _network_policy(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _endpoint_slice(tree: Json) -> None:
    for endpoint in tree.get("endpoints") or ():
        fill(endpoint, conditions={})
    for port in tree.get("ports") or ():
        fill(port, name="")
        if not port.get("protocol"):
            port["protocol"] = "TCP"


def _role_binding(tree: Json) -> None:
    reference = tree.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = RBAC
    for subject in tree.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = RBAC


def _webhooks(tree: Json) -> None:
    for hook in tree.get("webhooks") or ():
        fill(
            hook,
            failurePolicy="Fail",
            matchPolicy="Equivalent",
            namespaceSelector={},
            objectSelector={},
            timeoutSeconds=10,
        )
        service = hook.setdefault("clientConfig", {}).get("service")
        if service is not None:
            fill(service, port=443)
        for rule in hook.get("rules") or ():
            fill(rule, scope="*")


def _mutating_webhooks(tree: Json) -> None:
    _webhooks(tree)
    for hook in tree.get("webhooks") or ():
        fill(hook, reinvocationPolicy="Never")


def _match_resources(match: Json | None) -> None:
    if match is None:
        return
    fill(match, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for rule in [*(match.get("resourceRules") or ()), *(match.get("excludeResourceRules") or ())]:
        fill(rule, scope="*")


def _admission_policy(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    fill(spec, failurePolicy="Fail")
    _match_resources(spec.get("matchConstraints"))


def _policy_binding(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    _match_resources(spec.get("matchResources"))


def _device_requests(spec: Json) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for request_or_option in ([request["exactly"]] if "exactly" in request else []) + list(
            request.get("firstAvailable") or ()
        ):
            if not request_or_option.get("allocationMode"):
                request_or_option["allocationMode"] = "ExactCount"
            if request_or_option["allocationMode"] == "ExactCount" and not request_or_option.get(
                "count"
            ):
                request_or_option["count"] = 1
            for toleration in request_or_option.get("tolerations") or ():
                fill(toleration, operator="Equal")


def _resource_claim(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    _device_requests(spec)


def _resource_claim_template(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    fill(spec, metadata={})
    _device_requests(spec.setdefault("spec", {}))


def _resource_slice(tree: Json) -> None:
    pool = (tree.get("spec") or {}).get("pool")
    if pool is not None:
        fill(pool, generation=0)


def _volume_attachment(tree: Json) -> None:
    fill(tree.setdefault("status", {}), attached=False)


def _ingress(tree: Json) -> None:
    fill(tree.setdefault("status", {}), loadBalancer={})


def _custom_resource_definition(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind")
    if kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {})
    if not conversion.get("strategy"):
        conversion["strategy"] = "None"
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        fill(service, port=443)


def _horizontal_pod_autoscaler(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        usage = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}]
    fill(tree.setdefault("status", {}), desiredReplicas=0)
    behavior = spec.get("behavior")
    if behavior is not None:
        for way, rules in _SCALING_RULES.items():
            pace = behavior.setdefault(way, {})
            for name, value in rules.items():
                if pace.get(name) is None:
                    pace[name] = (
                        [dict(policy) for policy in value] if isinstance(value, list) else value
                    )


_SCALING_RULES: dict[str, dict[str, Any]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}
"""The scaling rules that an autoscaler gets if its spec gives only a part of `behavior`."""


def _certificate_signing_request(tree: Json) -> None:
    tree.setdefault("spec", {})
    tree.setdefault("status", {})


def _runtime_class(tree: Json) -> None:
    for toleration in (tree.get("scheduling") or {}).get("tolerations") or ():
        fill(toleration, operator="Equal")


def _ingress_class(tree: Json) -> None:
    parameters = (tree.get("spec") or {}).get("parameters")
    if parameters is not None:
        fill(parameters, scope="Cluster")


def _flow_schema(tree: Json) -> None:
    fill(tree.setdefault("spec", {}), matchingPrecedence=1000)


def _priority_level(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    if spec.get("type") == "Exempt":
        fill(spec.setdefault("exempt", {}), nominalConcurrencyShares=0, lendablePercent=0)
    limited = spec.get("limited")
    if limited is not None:
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = (limited.get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            fill(queuing, queues=64, queueLengthLimit=50, handSize=8)


def _api_service(tree: Json) -> None:
    service = (tree.get("spec") or {}).get("service")
    if service is not None:
        fill(service, port=443)


def _with_spec(tree: Json) -> None:
    tree.setdefault("spec", {})


DEFAULTS = {
    ("storage.k8s.io", "CSINode"): _with_spec,
    ("resource.k8s.io", "DeviceClass"): _with_spec,
    ("coordination.k8s.io", "Lease"): _with_spec,
    ("policy", "PodDisruptionBudget"): _with_spec,
    ("resource.k8s.io", "ResourceSlice"): _resource_slice,
    ("storage.k8s.io", "VolumeAttachment"): _volume_attachment,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("node.k8s.io", "RuntimeClass"): _runtime_class,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): _flow_schema,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): _priority_level,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    (RBAC, "RoleBinding"): _role_binding,
    (RBAC, "ClusterRoleBinding"): _role_binding,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _mutating_webhooks,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _admission_policy,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _admission_policy,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _policy_binding,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _policy_binding,
    ("resource.k8s.io", "ResourceClaim"): _resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _resource_claim_template,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource_definition,
    ("autoscaling", "HorizontalPodAutoscaler"): _horizontal_pod_autoscaler,
    ("certificates.k8s.io", "CertificateSigningRequest"): _certificate_signing_request,
}
