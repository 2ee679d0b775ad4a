"""Objects that say much: of each kind one with the fields that few write, so that what is made up
from them meets their rules."""

from __future__ import annotations

from tests.kubernetes.samples import RULES, SELECTOR, SUBJECTS, TEMPLATE, Sample

POD = {
    "containers": [
        {
            "name": "c",
            "image": "busybox:1.36",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "ports": [{"name": "http", "containerPort": 80}],
            "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
    ],
    "volumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "m", "configMap": {"name": "m", "optional": True}},
    ],
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"disk": "ssd"},
}
NEVER = {**POD, "restartPolicy": "Never"}
REFERENCE = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}

FULLER = (
    Sample("v1", "Pod", "pods", True, {"spec": POD}, True),
    Sample(
        "v1",
        "Service",
        "services",
        True,
        {
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": "a"},
                "ports": [
                    {"name": "a", "port": 80, "targetPort": "http"},
                    {"name": "b", "port": 53, "protocol": "UDP"},
                ],
                "sessionAffinity": "ClientIP",
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "externalIPs": ["203.0.113.1"],
                "allocateLoadBalancerNodePorts": False,
                "trafficDistribution": "PreferClose",
            }
        },
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
                "accessModes": ["ReadWriteMany"],
                "nfs": {"server": "s", "path": "/p"},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "slow",
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                        ]
                    }
                },
            }
        },
        True,
    ),
    Sample(
        "v1",
        "LimitRange",
        "limitranges",
        True,
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "min": {"cpu": "1m"},
                        "max": {"cpu": "4"},
                        "default": {"cpu": "2"},
                    }
                ]
            }
        },
    ),
    Sample(
        "v1",
        "ResourceQuota",
        "resourcequotas",
        True,
        {
            "spec": {
                "hard": {"pods": "10"},
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
                    ]
                },
            }
        },
        True,
    ),
    Sample(
        "apps/v1",
        "Deployment",
        "deployments",
        True,
        {
            "spec": {
                "replicas": 2,
                "selector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]
                },
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1},
                },
                "minReadySeconds": 5,
                "revisionHistoryLimit": 3,
                "progressDeadlineSeconds": 60,
            }
        },
        True,
    ),
    Sample(
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        True,
        {
            "spec": {
                "serviceName": "s",
                "selector": SELECTOR,
                "template": TEMPLATE,
                "ordinals": {"start": 1},
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
                "persistentVolumeClaimRetentionPolicy": {
                    "whenDeleted": "Delete",
                    "whenScaled": "Retain",
                },
            }
        },
        True,
    ),
    Sample(
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        True,
        {
            "spec": {
                "selector": SELECTOR,
                "template": TEMPLATE,
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "10%"},
                },
                "minReadySeconds": 1,
            }
        },
        True,
    ),
    Sample(
        "batch/v1",
        "Job",
        "jobs",
        True,
        {
            "spec": {
                "completions": 3,
                "parallelism": 2,
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 2,
                "suspend": True,
                "template": {"spec": NEVER},
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {
                                "containerName": "c",
                                "operator": "In",
                                "values": [1, 42],
                            },
                        },
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                        },
                    ]
                },
                "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
            }
        },
        True,
    ),
    Sample(
        "batch/v1",
        "CronJob",
        "cronjobs",
        True,
        {
            "spec": {
                "schedule": "*/5 1-3 * * 1,2",
                "timeZone": "Europe/Berlin",
                "concurrencyPolicy": "Forbid",
                "startingDeadlineSeconds": 10,
                "successfulJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {"backoffLimit": 2, "template": {"spec": NEVER}}},
            }
        },
        True,
    ),
    Sample(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        True,
        {
            "spec": {
                "minReplicas": 2,
                "maxReplicas": 9,
                "scaleTargetRef": REFERENCE,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 60},
                        },
                    },
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": "m"},
                            "target": {"type": "AverageValue", "averageValue": "10"},
                        },
                    },
                ],
                "behavior": {
                    "scaleDown": {
                        "stabilizationWindowSeconds": 60,
                        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}],
                    }
                },
            }
        },
        True,
    ),
    Sample(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        True,
        {
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {
                        "from": [
                            {"podSelector": SELECTOR},
                            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                        ]
                    }
                ],
                "egress": [
                    {
                        "to": [{"namespaceSelector": {}}],
                        "ports": [{"port": 80, "endPort": 90}, {"port": "http", "protocol": "TCP"}],
                    }
                ],
            }
        },
    ),
    Sample(
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        True,
        {
            "spec": {
                "ingressClassName": "c",
                "tls": [{"hosts": ["a.example.com"], "secretName": "s"}],
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/a",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "s", "port": {"name": "http"}}},
                                },
                                {
                                    "path": "/b",
                                    "pathType": "Exact",
                                    "backend": {
                                        "resource": {
                                            "apiGroup": "example.com",
                                            "kind": "K",
                                            "name": "n",
                                        }
                                    },
                                },
                            ]
                        },
                    }
                ],
            }
        },
        True,
    ),
    Sample(
        "networking.k8s.io/v1",
        "IngressClass",
        "ingressclasses",
        False,
        {
            "spec": {
                "controller": "example.com/c",
                "parameters": {
                    "apiGroup": "example.com",
                    "kind": "K",
                    "name": "n",
                    "scope": "Cluster",
                },
            }
        },
    ),
    Sample(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "endpointslices",
        True,
        {
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.0.0.1", "10.0.0.2"],
                    "conditions": {"ready": True},
                    "hostname": "h",
                    "nodeName": "n",
                    "zone": "z",
                    "hints": {"forZones": [{"name": "z"}]},
                }
            ],
            "ports": [{"name": "a", "port": 80, "protocol": "TCP", "appProtocol": "http"}],
        },
    ),
    Sample(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        True,
        {
            "spec": {
                "maxUnavailable": "50%",
                "selector": SELECTOR,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            }
        },
        True,
    ),
    Sample(
        "storage.k8s.io/v1",
        "StorageClass",
        "storageclasses",
        False,
        {
            "provisioner": "example.com/p",
            "parameters": {"a": "b"},
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
        },
    ),
    Sample(
        "storage.k8s.io/v1",
        "CSIDriver",
        "csidrivers",
        False,
        {
            "spec": {
                "attachRequired": True,
                "podInfoOnMount": True,
                "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
                "tokenRequests": [{"audience": "a", "expirationSeconds": 3600}],
            }
        },
    ),
    Sample(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        True,
        {
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
                        {
                            "name": "f",
                            "firstAvailable": [{"name": "s", "deviceClassName": "c", "count": 2}],
                        },
                    ],
                    "constraints": [
                        {"requests": ["r", "f/s"], "matchAttribute": "d.example.com/a"}
                    ],
                    "config": [
                        {
                            "requests": ["r"],
                            "opaque": {"driver": "d.example.com", "parameters": {"a": 1}},
                        }
                    ],
                }
            }
        },
        True,
    ),
    Sample(
        "resource.k8s.io/v1",
        "ResourceSlice",
        "resourceslices",
        False,
        {
            "spec": {
                "driver": "d.example.com",
                "allNodes": True,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": "d0",
                        "attributes": {"a": {"string": "x"}, "v": {"version": "1.2.3"}},
                        "capacity": {"memory": {"value": "1Gi"}},
                    }
                ],
            }
        },
    ),
    Sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        False,
        {
            "webhooks": [
                {
                    "name": "a.example.com",
                    "clientConfig": {"url": "https://127.0.0.1:1/x"},
                    "rules": [
                        {
                            "apiGroups": ["example.com"],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["none"],
                        }
                    ],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "failurePolicy": "Ignore",
                    "timeoutSeconds": 5,
                    "namespaceSelector": SELECTOR,
                }
            ]
        },
    ),
    Sample(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "clusterroles",
        False,
        {
            "rules": [*RULES, {"nonResourceURLs": ["/x"], "verbs": ["get"]}],
            "aggregationRule": {"clusterRoleSelectors": [SELECTOR]},
        },
    ),
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
            "subjects": [
                *SUBJECTS,
                {"kind": "ServiceAccount", "name": "default", "namespace": "{{ns}}"},
            ],
        },
    ),
)
