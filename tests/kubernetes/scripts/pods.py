"""Pods: defaults, rules, and what may change of them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import MERGE, STRATEGIC, TABLE, Tree
from tests.kubernetes.exchange import Step
from tests.kubernetes.scripts.places import NS, PODS, pod
from tests.podrules.table import ROWS


def pods() -> Iterator[Step]:
    """A pod's defaults and the rules of its spec."""
    probe = {"httpGet": {"port": 80}}
    full = {
        "name": "c",
        "image": "a:latest",
        "ports": [{"containerPort": 80}],
        "livenessProbe": probe,
        "readinessProbe": {"tcpSocket": {"port": 1}},
        "startupProbe": {"grpc": {"port": 1}},
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
        "resources": {"limits": {"cpu": "0.1"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    volumes = [
        {"name": "a", "configMap": {"name": "m"}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "downwardAPI": {"items": []}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "e", "emptyDir": {}},
        {"name": "f", "hostPath": {"path": "/"}},
        {"name": "g"},
        {
            "name": "h",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1"}},
                    }
                }
            },
        },
    ]
    yield Step("POST", PODS, pod("defaults"))
    yield Step(
        "POST",
        PODS,
        pod(
            "full",
            containers=[full],
            volumes=volumes,
            initContainers=[{"name": "i", "image": "b@sha256:" + "0" * 64}],
        ),
    )
    yield Step("GET", PODS, accept=TABLE)
    mistakes: list[Tree] = [
        {"containers": []},
        {"containers": [{"name": "c"}]},
        {"containers": [{"image": "i"}]},
        {"containers": [{"name": "C", "image": " "}]},
        {"containers": [full, full]},
        {"restartPolicy": "Maybe"},
        {"dnsPolicy": "x"},
        {"nodeSelector": {"a b": "c d"}},
        {
            "tolerations": [
                {"operator": "Equal", "effect": "x"},
                {"key": "k", "operator": "Exists", "value": "v"},
                {"tolerationSeconds": 1},
            ]
        },
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v"}, {"name": "v"}]},
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "volumeMounts": [
                        {"name": "none", "mountPath": "/"},
                        {"name": "n", "mountPath": ""},
                    ],
                }
            ]
        },
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                }
            ]
        },
        {
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1", "memory": "x"}}}
            ]
        },
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"requests": {"cpu": "-1", "example.com/x": "0.5", "weird": "1"}},
                }
            ]
        },
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "ports": [
                        {"containerPort": 0},
                        {"containerPort": 99999, "protocol": "X", "name": "UP"},
                    ],
                }
            ]
        },
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "env": [
                        {"name": ""},
                        {"name": "a b"},
                        {"name": "A", "value": "1", "valueFrom": {}},
                    ],
                }
            ]
        },
        {
            "containers": [
                {"name": "c", "image": "i", "imagePullPolicy": "x", "terminationMessagePolicy": "y"}
            ]
        },
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "livenessProbe": {},
                    "readinessProbe": {"tcpSocket": {"port": 0}, "periodSeconds": -1},
                }
            ]
        },
        {"terminationGracePeriodSeconds": -1, "activeDeadlineSeconds": 0},
        {"priority": 5},
        {"priorityClassName": "absent"},
        {
            "hostNetwork": True,
            "containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}
            ],
        },
        {"serviceAccountName": "absent"},
        {"hostname": "A_b", "subdomain": "x.y"},
        {"schedulerName": ""},
        {"nodeName": "A b"},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
                }
            }
        },
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]
                }
            }
        },
        {
            "topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x"}
            ]
        },
        {"schedulingGates": [{"name": "a"}, {"name": "a"}, {"name": "B_"}]},
        {"securityContext": {"runAsUser": -1, "fsGroup": -1, "sysctls": [{"name": "x"}]}},
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "securityContext": {"privileged": True, "allowPrivilegeEscalation": False},
                }
            ]
        },
        {"ephemeralContainers": [{"name": "e", "image": "i"}]},
        {"overhead": {"cpu": "1"}},
        {"runtimeClassName": "absent"},
        {"readinessGates": [{"conditionType": "a b"}]},
        {"hostAliases": [{"ip": "x", "hostnames": ["A_"]}]},
        {"os": {"name": "dos"}},
        {"imagePullSecrets": [{}]},
        {"resourceClaims": [{"name": "r"}]},
        {"preemptionPolicy": "x"},
        {"shareProcessNamespace": True, "hostPID": True},
        {"initContainers": [{"name": "c", "image": "i"}]},
        {"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]},
        {
            "initContainers": [
                {"name": "s", "image": "i", "restartPolicy": "x", "livenessProbe": probe}
            ]
        },
    ]
    odd: list[Tree] = [
        {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "imagePullSecrets": [{"name": "a"}, {"name": "a"}],
        },
        {
            "containers": [
                {
                    **full,
                    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
                    "ports": [],
                }
            ]
        },
        {
            "containers": [
                {"name": name, "image": "i", "ports": [{"containerPort": 80, "name": "a"}]}
                for name in ("c", "d")
            ]
        },
        {
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"memory": "1500m"}}}
            ],
            "hostAliases": [{"ip": "1.1.1.1"}] * 2,
        },
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]
                }
            }
        },
        {
            "volumes": [
                {"name": "g", "gitRepo": {"repository": "r"}},
                {"name": "r", "rbd": {"image": "i", "monitors": ["m"]}},
            ]
        },
        {"terminationGracePeriodSeconds": -5},
    ]
    mistakes += odd
    for number, mistake in enumerate(mistakes):
        yield Step("POST", PODS, pod(f"m{number}", **mistake), query={"dryRun": "All"})


def pod_updates() -> Iterator[Step]:
    """What may change of a pod, and its subresources."""
    one = f"{PODS}/p"
    yield Step(
        "POST",
        PODS,
        {
            **pod("p", schedulingGates=[{"name": "g"}]),
            "metadata": {"name": "p", "labels": {"a": "1"}},
        },
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    yield Step("POST", f"{one}/binding", binding)
    yield Step("PATCH", one, {"spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeSelector": {"x": "y"}}}, MERGE)
    yield Step("PATCH", one, {"spec": {"schedulingGates": None}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeSelector": {"x": "z"}}}, MERGE)
    yield Step("PATCH", one, {"spec": {"containers": [{"name": "c", "image": "other"}]}}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"containers": [{"name": "c", "command": ["x"]}]}}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"activeDeadlineSeconds": 5}}, MERGE)
    yield Step("PATCH", one, {"spec": {"activeDeadlineSeconds": 6}}, MERGE)
    yield Step("PATCH", one, {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeName": "n"}}, MERGE)
    yield Step("PATCH", one, {"spec": {"terminationGracePeriodSeconds": 1}}, MERGE)
    yield Step("PATCH", one, {"status": {"phase": "Running"}}, MERGE)
    yield Step("POST", f"{one}/binding", {**binding, "target": {"kind": "Pod", "name": "n"}})
    yield Step("POST", f"{one}/binding", {**binding, "target": {}})
    yield Step("POST", f"{one}/binding", {**binding, "metadata": {"name": "q"}})
    yield Step(
        "POST",
        f"{one}/binding",
        {**binding, "metadata": {"name": "p", "annotations": {"x": "y"}, "uid": "wrong"}},
    )
    yield Step("POST", f"{one}/binding", binding)
    yield Step("POST", f"{one}/binding", binding)
    yield Step("POST", f"{PODS}/absent/binding", {**binding, "metadata": {"name": "absent"}})
    yield Step("GET", f"{one}/binding")
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "containerStatuses": [
            {
                "name": "c",
                "image": "i",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
            }
        ],
    }
    yield Step(
        "PATCH",
        f"{one}/status",
        {"status": status, "spec": {"nodeName": "other"}, "metadata": {"labels": {"b": "2"}}},
        STRATEGIC,
    )
    yield Step(
        "PATCH",
        f"{one}/status",
        {"status": {"conditions": [{"type": "Other", "status": "Unknown"}]}},
        STRATEGIC,
    )
    yield Step(
        "PATCH",
        f"{one}/status",
        {"status": {"podIP": "nonsense", "podIPs": [{"ip": "nonsense"}]}},
        MERGE,
    )
    yield Step("PATCH", f"{one}/status", {"status": {"phase": "Nonsense"}}, MERGE)
    yield Step(
        "PATCH",
        f"{one}/status",
        {"status": {"conditions": [{"type": "Ready", "status": "Nonsense"}]}},
        STRATEGIC,
    )
    yield Step("GET", PODS, accept=TABLE)
    yield Step(
        "POST",
        f"{one}/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}},
    )
    yield Step(
        "POST",
        f"{one}/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}},
        query={"dryRun": "All"},
    )
    debug = {"name": "debug", "image": "busybox"}
    yield Step(
        "PATCH", f"{one}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC
    )
    yield Step(
        "PATCH", f"{one}/ephemeralcontainers", {"spec": {"ephemeralContainers": None}}, MERGE
    )
    yield Step(
        "PATCH",
        f"{one}/resize",
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        STRATEGIC,
    )
    yield Step(
        "POST",
        f"{one}/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}},
    )
    yield Step("POST", f"{one}/eviction", {"metadata": {"name": "p"}})


def refused_templates() -> Iterator[Step]:
    """The templates of the table of pod rules that the server is said to refuse."""
    for row in ROWS:
        if row["served"]:
            body = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "t"},
                "template": row["template"],
            }
            yield Step("POST", f"{NS}/podtemplates", body, query={"dryRun": "All"})
