"""One object of each kind that the scheduler reads, with as much in it as may be, for tests that
spoil them."""

from __future__ import annotations

from typing import Any

OBJECTS: dict[str, dict[str, Any]] = {
    "Pod": {
        "metadata": {
            "name": "odd",
            "namespace": "default",
            "uid": "odd",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "b", "volcano.sh/task-spec": "w"},
            "annotations": {
                "scheduling.k8s.io/group-name": "pg",
                "volcano.sh/task-priority": "3",
                "volcano.sh/preemptable": "true",
                "volcano.sh/gpu-index": "0",
                "volcano.sh/vgpu-ids-new": "a,b,1,1:;",
                "volcano.sh/numa-topology-policy": "best-effort",
                "huawei.com/x": "1",
            },
            "ownerReferences": [{"kind": "Job", "name": "x", "uid": "u", "controller": True}],
        },
        "spec": {
            "schedulerName": "volcano",
            "nodeName": "",
            "priority": 3,
            "priorityClassName": "low",
            "nodeSelector": {"a": "b"},
            "overhead": {"cpu": "1"},
            "schedulingGates": [{"name": "g"}],
            "preemptionPolicy": "Never",
            "containers": [
                {
                    "name": "m",
                    "image": "i",
                    "resources": {
                        "requests": {
                            "cpu": "1",
                            "memory": "1Gi",
                            "volcano.sh/vgpu-number": "1",
                            "example.com/gpu": "1",
                            "volcano.sh/gpu-memory": "5",
                        },
                        "limits": {
                            "cpu": "2",
                            "volcano.sh/vgpu-number": "1",
                            "volcano.sh/vgpu-memory": "100",
                        },
                    },
                    "ports": [{"hostPort": 80, "hostIP": "1.1.1.1", "protocol": "TCP"}],
                }
            ],
            "initContainers": [
                {"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
            ],
            "tolerations": [
                {"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "a", "operator": "Gt", "values": ["1"]}
                                ],
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ],
                            }
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 3,
                            "preference": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["1"]}
                                ]
                            },
                        }
                    ],
                },
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "zone",
                            "labelSelector": {
                                "matchLabels": {"a": "b"},
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["b"]}
                                ],
                            },
                            "namespaces": ["x"],
                            "namespaceSelector": {},
                        }
                    ]
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "podAffinityTerm": {
                                "topologyKey": "zone",
                                "labelSelector": {"matchLabels": {"a": "b"}},
                            },
                        }
                    ]
                },
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "minDomains": 2,
                    "matchLabelKeys": ["a"],
                }
            ],
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}},
                {
                    "name": "e",
                    "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s"}}},
                },
            ],
            "resourceClaims": [{"name": "c", "resourceClaimName": "claim"}],
        },
        "status": {
            "phase": "Pending",
            "startTime": "2026-01-01T00:00:00Z",
            "nominatedNodeName": "n1",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "r",
                    "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "containerStatuses": [
                {
                    "name": "m",
                    "resources": {"requests": {"cpu": "1"}},
                    "allocatedResources": {"cpu": "3"},
                }
            ],
            "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "claim"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "x"},
        },
    },
    "Node": {
        "metadata": {
            "name": "n1",
            "uid": "n1",
            "labels": {
                "a": "b",
                "zone": "z",
                "kubernetes.io/hostname": "n1",
                "volcano.sh/revocable-zone": "rz1",
                "volcano.sh/nodegroup-name": "g",
            },
            "annotations": {
                "volcano.sh/oversubscription-cpu": "1000",
                "volcano.sh/node-vgpu-register": "a,1,2,3,x,true:",
                "volcano.sh/node-gpu-register": "x",
                "hami.io/node-nvidia-register": "[]",
                "volcano.sh/evict": "x",
                "hami.io/node-register-Ascend910A": "[]",
                "volcano.sh/oversubscription": "true",
            },
        },
        "spec": {
            "unschedulable": False,
            "taints": [
                {
                    "key": "k",
                    "value": "v",
                    "effect": "NoSchedule",
                    "timeAdded": "2026-01-01T00:00:00Z",
                }
            ],
            "podCIDR": "x",
        },
        "status": {
            "allocatable": {
                "cpu": "8",
                "memory": "32Gi",
                "pods": "110",
                "volcano.sh/vgpu-number": "8",
                "volcano.sh/gpu-memory": "10",
                "volcano.sh/gpu-number": "2",
                "nvidia.com/gpu": "4",
            },
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "images": [{"names": ["i"], "sizeBytes": 5}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "volumesAttached": [{"name": "x"}],
        },
    },
    "PodGroup": {
        "metadata": {
            "name": "pg",
            "namespace": "default",
            "uid": "pg",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "volcano.sh/sla-waiting-time": "1h",
                "volcano.sh/task-topology-affinity": "a,b;c",
                "volcano.sh/io-traffic": "x",
                "volcano.sh/minResources": "x",
                "volcano.sh/cooldown-time": "1h",
            },
            "labels": {"volcano.sh/preemptable": "true"},
        },
        "spec": {
            "minMember": 1,
            "queue": "q",
            "priorityClassName": "low",
            "minResources": {"cpu": "1"},
            "minTaskMember": {"w": 1},
            "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
            "subGroupPolicy": [
                {
                    "name": "s",
                    "matchLabelKeys": ["a"],
                    "subGroupSize": 2,
                    "minSubGroups": 1,
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
                }
            ],
        },
        "status": {
            "phase": "Pending",
            "running": 1,
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "r",
                    "message": "m",
                    "lastTransitionTime": "t",
                    "transitionID": "x",
                }
            ],
        },
    },
    "Queue": {
        "metadata": {
            "name": "q",
            "uid": "q",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "volcano.sh/hierarchy": "root/q",
                "volcano.sh/hierarchy-weights": "1/2",
                "hekla.io/job-order": "fifo",
                "hekla.io/queue-policy": "fifo",
            },
        },
        "spec": {
            "weight": 1,
            "priority": 2,
            "parent": "root",
            "reclaimable": True,
            "capability": {"cpu": "10", "deviceclass/gpu": "3", "x.deviceclass/gpu": "3"},
            "deserved": {"cpu": "5"},
            "guarantee": {"resource": {"cpu": "1"}},
            "affinity": {
                "nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g"]},
                "nodeGroupAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["h"]},
            },
            "dequeueStrategy": "fifo",
        },
        "status": {"state": "Open", "allocated": {"cpu": "1"}},
    },
    "PriorityClass": {
        "metadata": {"name": "low", "uid": "low"},
        "value": 10,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    },
    "HyperNode": {
        "metadata": {"name": "h"},
        "spec": {
            "tier": 1,
            "tierName": "rack",
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "n."}}},
                {"type": "HyperNode", "selector": {"exactMatch": {"name": "h2"}}},
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}},
            ],
        },
    },
    "Numatopology": {
        "metadata": {"name": "n1"},
        "spec": {
            "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "best-effort"},
            "numares": {"cpu": {"allocatable": "0-3", "capacity": 4}},
            "cpuDetail": {"0": {"numa": 0, "socket": 0, "core": 0}, "1": {"numa": 1}},
            "resReserved": {"cpu": "1"},
        },
    },
    "ResourceClaim": {
        "metadata": {"name": "claim", "namespace": "default", "uid": "claim"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "count": 1,
                            "allocationMode": "ExactCount",
                            "selectors": [{"cel": {"expression": "true"}}],
                            "tolerations": [{"key": "x", "operator": "Exists"}],
                            "capacity": {"requests": {"m": "1"}},
                        },
                    },
                    {
                        "name": "f",
                        "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "count": 1}],
                    },
                ],
                "constraints": [{"requests": ["r"], "matchAttribute": "d/x"}],
                "config": [{"requests": ["r"], "opaque": {"driver": "d", "parameters": {}}}],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r",
                            "driver": "d",
                            "pool": "p",
                            "device": "g",
                            "consumedCapacity": {"m": "1"},
                        }
                    ]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                },
            },
            "reservedFor": [{"resource": "pods", "name": "odd", "uid": "odd"}],
        },
    },
    "ResourceSlice": {
        "metadata": {"name": "sl"},
        "spec": {
            "driver": "d",
            "nodeName": "n1",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}],
            "devices": [
                {
                    "name": "g",
                    "attributes": {"x": {"int": 1}},
                    "capacity": {
                        "m": {
                            "value": "1",
                            "requestPolicy": {
                                "default": "1",
                                "validRange": {"min": "1", "step": "1", "max": "2"},
                            },
                        }
                    },
                    "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
                    "taints": [{"key": "x", "effect": "NoSchedule"}],
                    "allowMultipleAllocations": True,
                },
                {"name": "g2"},
            ],
        },
    },
    "DeviceClass": {
        "metadata": {"name": "gpu", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": "device.driver == 'd'"}}],
            "config": [{"opaque": {"driver": "d"}}],
        },
    },
    "DeviceTaintRule": {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    },
    "NodeShard": {
        "metadata": {"name": "volcano", "uid": "s"},
        "spec": {"nodesDesired": ["n1"]},
        "status": {"nodesInUse": ["n1"], "nodesToAdd": [], "nodesToRemove": []},
    },
    "ResourceQuota": {
        "metadata": {"name": "rq", "namespace": "default"},
        "spec": {
            "hard": {"cpu": "10", "requests.cpu": "3", "count/pods": "3"},
            "scopes": ["BestEffort"],
        },
        "status": {"hard": {"cpu": "10"}, "used": {"cpu": "1"}},
    },
    "PodDisruptionBudget": {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": "50%"},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"x": "t"}},
    },
    "PersistentVolumeClaim": {
        "metadata": {
            "name": "pvc",
            "namespace": "default",
            "annotations": {"volume.kubernetes.io/selected-node": "n1"},
        },
        "spec": {
            "storageClassName": "s",
            "volumeName": "pv",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"a": "b"}},
        },
        "status": {"phase": "Bound"},
    },
    "PersistentVolume": {
        "metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": "z"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"name": "pvc", "namespace": "default"},
            "csi": {"driver": "d"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                }
            },
            "storageClassName": "s",
        },
        "status": {"phase": "Bound"},
    },
    "StorageClass": {
        "metadata": {"name": "s"},
        "provisioner": "p",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}],
    },
    "CSINode": {
        "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 1}}]},
    },
    "CSIStorageCapacity": {
        "metadata": {"name": "c", "namespace": "x"},
        "storageClassName": "s",
        "capacity": "1Gi",
        "nodeTopology": {"matchLabels": {"a": "b"}},
        "maximumVolumeSize": "1Gi",
    },
    "CSIDriver": {"metadata": {"name": "p"}, "spec": {"storageCapacity": True}},
    "ConfigMap": {
        "metadata": {"name": "volcano-vgpu-device-config", "namespace": "kube-system"},
        "data": {
            "device-config.yaml": "nvidia: {resourceCountName: x, knownMigGeometries: [{models: [A], allowedGeometries: "
            "[[{name: a, memory: 1, count: 2}]]}]}"
        },
    },
    "Namespace": {"metadata": {"name": "default", "labels": {"a": "b"}}},
}
