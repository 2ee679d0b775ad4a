"""One small valid object of each kind, from which the scripts make what they send."""

from __future__ import annotations

from typing import NamedTuple

from tests.cluster.api import Tree

TEMPLATE: Tree = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "busybox"}]},
}
SELECTOR: Tree = {"matchLabels": {"app": "a"}}
RULES: list[Tree] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
SUBJECTS: list[Tree] = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]


class Sample(NamedTuple):
    """A kind and the rest of an object of it, without a name."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    rest: Tree
    status: bool = False
    """Whether it has a status of its own door."""

    @property
    def collection(self) -> str:
        root = (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )
        return (
            f"{root}/namespaces/{{{{ns}}}}/{self.plural}"
            if self.namespaced
            else f"{root}/{self.plural}"
        )

    def named(self, name: str) -> Tree:
        metadata = {**self.rest.get("metadata", {}), "name": name}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            **self.rest,
            "metadata": metadata,
        }


SAMPLES = (
    Sample("v1", "ConfigMap", "configmaps", True, {"data": {"a": "1", "b": "2"}}),
    Sample("v1", "Secret", "secrets", True, {"data": {"a": "MQ=="}, "stringData": {"b": "2"}}),
    Sample(
        "v1", "ServiceAccount", "serviceaccounts", True, {"automountServiceAccountToken": False}
    ),
    Sample(
        "v1",
        "Pod",
        "pods",
        True,
        {"spec": {"containers": [{"name": "c", "image": "busybox"}]}},
        True,
    ),
    Sample("v1", "PodTemplate", "podtemplates", True, {"template": TEMPLATE}),
    Sample(
        "v1",
        "Service",
        "services",
        True,
        {"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}},
        True,
    ),
    Sample(
        "v1",
        "Endpoints",
        "endpoints",
        True,
        {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    ),
    Sample(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        True,
        {"spec": {"replicas": 2, "selector": {"app": "a"}, "template": TEMPLATE}},
        True,
    ),
    Sample(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        True,
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        True,
    ),
    Sample(
        "v1",
        "ResourceQuota",
        "resourcequotas",
        True,
        {"spec": {"hard": {"services": "100", "cpu": "1000m"}}},
        True,
    ),
    Sample(
        "v1",
        "LimitRange",
        "limitranges",
        True,
        {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}]}},
    ),
    Sample(
        "v1",
        "Event",
        "events",
        True,
        {
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{{ns}}"},
            "reason": "Seen",
            "message": "it was seen",
            "type": "Normal",
        },
    ),
    Sample("v1", "Namespace", "namespaces", False, {}, True),
    Sample(
        "v1",
        "Node",
        "nodes",
        False,
        {"status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
        True,
    ),
    Sample(
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        False,
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/data"},
            }
        },
        True,
    ),
    Sample(
        "apps/v1",
        "Deployment",
        "deployments",
        True,
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        True,
    ),
    Sample(
        "apps/v1",
        "ReplicaSet",
        "replicasets",
        True,
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        True,
    ),
    Sample(
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        True,
        {"spec": {"serviceName": "s", "selector": SELECTOR, "template": TEMPLATE}},
        True,
    ),
    Sample(
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        True,
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        True,
    ),
    Sample(
        "apps/v1",
        "ControllerRevision",
        "controllerrevisions",
        True,
        {"revision": 1, "data": {"a": 1}},
    ),
    Sample(
        "batch/v1",
        "Job",
        "jobs",
        True,
        {"spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}},
        True,
    ),
    Sample(
        "batch/v1",
        "CronJob",
        "cronjobs",
        True,
        {
            "spec": {
                "schedule": "* * * * *",
                "jobTemplate": {
                    "spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
                },
            }
        },
        True,
    ),
    Sample(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        True,
        {"spec": {"minAvailable": 1, "selector": SELECTOR}},
        True,
    ),
    Sample(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        True,
        {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            }
        },
        True,
    ),
    Sample(
        "coordination.k8s.io/v1",
        "Lease",
        "leases",
        True,
        {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ),
    Sample(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "endpointslices",
        True,
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}],
            "ports": [{"port": 80}],
        },
    ),
    Sample(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        True,
        {"spec": {"podSelector": SELECTOR}},
    ),
    Sample(
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        True,
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
        True,
    ),
    Sample(
        "networking.k8s.io/v1",
        "IngressClass",
        "ingressclasses",
        False,
        {"spec": {"controller": "example.com/c"}},
    ),
    Sample("rbac.authorization.k8s.io/v1", "Role", "roles", True, {"rules": RULES}),
    Sample(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "rolebindings",
        True,
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": SUBJECTS,
        },
    ),
    Sample("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False, {"rules": RULES}),
    Sample(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        False,
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": SUBJECTS,
        },
    ),
    Sample("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, {"value": 1000}),
    Sample(
        "storage.k8s.io/v1",
        "StorageClass",
        "storageclasses",
        False,
        {"provisioner": "example.com/p"},
    ),
    Sample(
        "storage.k8s.io/v1", "CSIDriver", "csidrivers", False, {"spec": {"attachRequired": False}}
    ),
    Sample(
        "storage.k8s.io/v1",
        "CSINode",
        "csinodes",
        False,
        {"spec": {"drivers": [{"name": "d", "nodeID": "n"}]}},
    ),
    Sample(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "volumeattachments",
        False,
        {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
        True,
    ),
    Sample(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        "csistoragecapacities",
        True,
        {"storageClassName": "s"},
    ),
    Sample("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", False, {"handler": "h"}),
    Sample(
        "resource.k8s.io/v1",
        "DeviceClass",
        "deviceclasses",
        False,
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    ),
    Sample(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        True,
        {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}},
        True,
    ),
    Sample(
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        True,
        {
            "spec": {
                "spec": {
                    "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}
                }
            }
        },
    ),
    Sample(
        "resource.k8s.io/v1",
        "ResourceSlice",
        "resourceslices",
        False,
        {
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n",
                "pool": {"name": "p", "resourceSliceCount": 1},
                "devices": [{"name": "d0"}],
            }
        },
    ),
    Sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        False,
        {"webhooks": []},
    ),
    Sample(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        False,
        {"webhooks": []},
    ),
    Sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        False,
        {
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["example.com"],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["none"],
                        }
                    ]
                },
                "validations": [{"expression": "object.metadata.name != 'x'"}],
            }
        },
        True,
    ),
    Sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        False,
        {"spec": {"policyName": "p", "validationActions": ["Deny"]}},
    ),
    Sample(
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema",
        "flowschemas",
        False,
        {"spec": {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 9000}},
        True,
    ),
    Sample(
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        False,
        {"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 2}}},
        True,
    ),
    Sample(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        False,
        {
            "spec": {
                "request": "bm90IGEgcmVxdWVzdA==",
                "signerName": "example.com/s",
                "usages": ["client auth"],
            }
        },
        True,
    ),
)
