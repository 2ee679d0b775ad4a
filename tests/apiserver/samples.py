"""One small object of every built-in kind that can be created, and a status for those that have
one."""

from __future__ import annotations

import base64

from hekla.api.trees import Json

POD_SPEC: Json = {"containers": [{"name": "c", "image": "busybox:1", "command": ["sleep", "1"]}]}
LABELS = {"app": "matrix"}
TEMPLATE: Json = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
JOB: Json = {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
HOOKS: Json = {
    "webhooks": [{
        "name": "a.matrix.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [{"operations": ["CREATE"], "apiGroups": ["matrix.example.com"], "apiVersions": ["v1"], "resources": ["nothing"]}],
    }],
}  # fmt: skip
MATCH: Json = {
    "resourceRules": [
        {
            "operations": ["CREATE"],
            "apiGroups": ["matrix.example.com"],
            "apiVersions": ["v1"],
            "resources": ["nothing"],
        }
    ]
}
VALIDATING: Json = {"spec": {"matchConstraints": MATCH, "validations": [{"expression": "true"}]}}
ADD_LABEL = "[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]"
MUTATING: Json = {
    "spec": {
        "matchConstraints": MATCH,
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": ADD_LABEL}}],
    }
}
DEVICES: Json = {
    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}
}
VIEW: Json = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
ADDRESS = "192.0.2."
CONDITION: Json = {
    "type": "Matrix",
    "status": "True",
    "reason": "Tested",
    "message": "by a test",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
REQUEST = base64.b64encode(
    b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
).decode()


def body(group: str, kind: str, name: str) -> Json:
    """What is posted to make an object of the kind."""
    tree = {"metadata": {"name": name, "labels": dict(LABELS)}, **BODIES.get((group, kind), {})}
    if kind == "IPAddress":
        number = sum(map(ord, name)) % 200
        tree["metadata"]["name"] = f"{ADDRESS}{number}"
        tree["spec"] = {"parentRef": {"resource": "services", "namespace": "default", "name": name}}
    if kind == "CustomResourceDefinition":
        plural = name.replace("-", "") + "s"
        tree["metadata"]["name"] = f"{plural}.matrix.example.com"
        tree["spec"] = {
            "group": "matrix.example.com",
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": plural[:-1],
                "kind": plural[:-1].title(),
                "listKind": f"{plural.title()}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        }
    if kind == "APIService":
        tree["metadata"]["name"] = f"v1.{name}.example.com"
        tree["spec"] = {
            "group": f"{name}.example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"namespace": "default", "name": "s", "port": 443},
        }
    if group == "events.k8s.io":
        tree["regarding"] = {
            "kind": "Pod",
            "namespace": "default",
            "name": name,
            "apiVersion": "v1",
        }
    return tree


BODIES: dict[tuple[str, str], Json] = {
    ("", "ConfigMap"): {"data": {"a": "b"}},
    ("", "Endpoints"): {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]},
    ("", "Event"): {
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "message": "m", "type": "Normal",
    },
    ("", "LimitRange"): {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "100"}}]}},
    ("", "PersistentVolumeClaim"): {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ("", "PersistentVolume"): {"spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/matrix"},
    }},
    ("", "Pod"): {"spec": POD_SPEC},
    ("", "PodTemplate"): {"template": TEMPLATE},
    ("", "ReplicationController"): {"spec": {"replicas": 0, "selector": LABELS, "template": TEMPLATE}},
    ("", "ResourceQuota"): {"spec": {"hard": {"count/nothings.matrix.example.com": "5"}}},
    ("", "Secret"): {"stringData": {"a": "b"}},
    ("", "Service"): {"spec": {"selector": LABELS, "ports": [{"port": 80}]}},
    ("apps", "ControllerRevision"): {"data": {"a": 1}, "revision": 1},
    ("apps", "DaemonSet"): {"spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
    ("apps", "Deployment"): {"spec": {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
    ("apps", "ReplicaSet"): {"spec": {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
    ("apps", "StatefulSet"): {"spec": {"serviceName": "s", "replicas": 0, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
    ("batch", "CronJob"): {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB}}},
    ("batch", "Job"): {"spec": {**JOB, "suspend": True}},
    ("autoscaling", "HorizontalPodAutoscaler"): {"spec": {
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    }},
    ("policy", "PodDisruptionBudget"): {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "nobody"}}}},
    ("coordination.k8s.io", "Lease"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ("events.k8s.io", "Event"): {
        "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "action": "A", "type": "Normal", "note": "n",
        "reportingController": "matrix.example.com/c", "reportingInstance": "i",
    },
    ("discovery.k8s.io", "EndpointSlice"): {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]},
    ("networking.k8s.io", "IngressClass"): {"spec": {"controller": "example.com/matrix"}},
    ("networking.k8s.io", "Ingress"): {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ("networking.k8s.io", "NetworkPolicy"): {"spec": {"podSelector": {}}},
    ("networking.k8s.io", "ServiceCIDR"): {"spec": {"cidrs": ["10.99.0.0/24"]}},
    ("scheduling.k8s.io", "PriorityClass"): {"value": 5},
    ("storage.k8s.io", "CSIDriver"): {"spec": {}},
    ("storage.k8s.io", "CSINode"): {"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n"}]}},
    ("storage.k8s.io", "CSIStorageCapacity"): {"storageClassName": "s", "capacity": "1Gi", "nodeTopology": {}},
    ("storage.k8s.io", "StorageClass"): {"provisioner": "example.com/p"},
    ("storage.k8s.io", "VolumeAttachment"): {
        "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    },
    ("storage.k8s.io", "VolumeAttributesClass"): {"driverName": "d.example.com", "parameters": {"a": "b"}},
    ("resource.k8s.io", "DeviceClass"): {"spec": {}},
    ("resource.k8s.io", "ResourceClaim"): {"spec": DEVICES},
    ("resource.k8s.io", "ResourceClaimTemplate"): {"spec": {"spec": DEVICES}},
    ("resource.k8s.io", "ResourceSlice"): {"spec": {
        "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }},
    ("node.k8s.io", "RuntimeClass"): {"handler": "h"},
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {"roleRef": VIEW},
    ("rbac.authorization.k8s.io", "RoleBinding"): {"roleRef": VIEW},
    ("rbac.authorization.k8s.io", "ClusterRole"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ("rbac.authorization.k8s.io", "Role"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): MUTATING,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): {"spec": {"policyName": "p"}},
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): VALIDATING,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): HOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): HOOKS,
    ("certificates.k8s.io", "CertificateSigningRequest"): {"spec": {
        "request": REQUEST, "signerName": "example.com/matrix", "usages": ["client auth"],
    }},
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): {"spec": {
        "matchingPrecedence": 9000, "priorityLevelConfiguration": {"name": "exempt"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
                   "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}],
    }},
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): {"spec": {
        "type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}},
    }},
}  # fmt: skip
