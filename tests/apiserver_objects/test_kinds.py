"""Built-in kinds as their users meet them: what is filled in, what is refused and in which words
(local-cluster 5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.local.apiserver.objects import builtin, columns, events
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging.patch import apply_merge

KINDS: dict[tuple[str, str], Kind] = {(kind.group, kind.kind): kind for kind in builtin.kinds()}
POD, DEPLOYMENT = KINDS["", "Pod"], KINDS["apps", "Deployment"]
NOW = 1_700_000_000.0


def made(kind: Kind, body: Any) -> tuple[dict[str, Any], list[str]]:
    """A created object and what is wrong with it, as `field: text`."""
    assert kind.decode is not None
    tree = kind.decode(json.dumps(body).encode(), "", "Strict").tree
    tree["metadata"] = {
        "name": "a",
        "namespace": "default",
        "uid": "u1",
        **tree.get("metadata", {}),
    }
    kind.strategy.default(tree)
    kind.strategy.prepare_create(tree)
    return tree, [f"{error.field}: {error.text}" for error in kind.strategy.validate_create(tree)]


def changed(kind: Kind, old: dict[str, Any], change: dict[str, Any]) -> list[str]:
    new = apply_merge(old, change)
    kind.strategy.default(new)
    kind.strategy.prepare_update(new, old)
    return [f"{error.field}: {error.text}" for error in kind.strategy.validate_update(new, old)]


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "nginx", **container}]}}


# --- the table ------------------------------------------------------------------------------------


def test_the_table_has_the_names_of_each_kind() -> None:
    assert len(KINDS) == len(
        {kind.plural for kind in builtin.kinds()} | {"events of events.k8s.io"}
    )
    assert POD.short_names == ("po",) and POD.categories == ("all",) and POD.namespaced
    assert POD.subresources["eviction"].group == "policy" and "scale" in DEPLOYMENT.subresources
    assert not KINDS["", "Node"].namespaced
    assert KINDS["batch", "Job"].strategy.default_propagation == "Orphan"
    assert KINDS["coordination.k8s.io", "Lease"].strategy.create_on_update
    assert not KINDS["coordination.k8s.io", "Lease"].strategy.unconditional_update
    assert "deletecollection" not in KINDS["", "Namespace"].verbs
    assert all(kind.decode and kind.merge_keys for kind in builtin.kinds())


# --- pods -----------------------------------------------------------------------------------------


def test_a_minimal_pod_gets_all_defaults() -> None:
    tree, wrong = made(POD, pod())
    assert wrong == []
    spec, container = tree["spec"], tree["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (
        spec["terminationGracePeriodSeconds"],
        spec["enableServiceLinks"],
        spec["securityContext"],
    ) == (30, True, {})
    assert container["imagePullPolicy"] == "Always" and container["resources"] == {}
    assert (container["terminationMessagePath"], container["terminationMessagePolicy"]) == (
        "/dev/termination-log",
        "File",
    )
    assert tree["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("h:5000/nginx", "Always"),
        ("a@sha256:0", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert made(POD, pod(image=image))[0]["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(("spec", "wrong"), [
    ({"hostAliases": [{"ip": "x"}]}, "spec.hostAliases[0].ip: Invalid value"),
    ({"hostAliases": [{"ip": "::1", "hostnames": ["A_"]}]}, "spec.hostAliases[0].hostnames[0]: Invalid value"),
    ({"readinessGates": [{"conditionType": "a b"}]}, "spec.readinessGates[0].conditionType: Invalid value"),
    ({"os": {"name": "dos"}}, "spec.os: Unsupported value"),
    ({"resourceClaims": [{"name": "r"}]}, "spec.resourceClaims[0]: Invalid value"),
    ({"resourceClaims": [{"name": "r", "resourceClaimName": "a"}, {"name": "r", "resourceClaimName": "a"}]},
     "spec.resourceClaims[1].name: Duplicate value"),
    ({"shareProcessNamespace": True, "hostPID": True}, "spec.securityContext.shareProcessNamespace: Invalid value"),
    ({"securityContext": {"sysctls": [{"name": "kernel.shmmax"}, {"name": "bar.."}]}},
     "spec.securityContext.sysctls[1].name: Invalid value"),
])  # fmt: skip
def test_what_few_pods_say_is_checked_too(spec: Any, wrong: str) -> None:
    body = pod()
    body["spec"].update(spec)
    (found,) = made(POD, body)[1]
    assert found.startswith(wrong)


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"a.b/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(resources: Any, qos: str) -> None:
    tree, wrong = made(POD, pod(resources=resources))
    assert (tree["status"]["qosClass"], wrong) == (qos, [])


def test_requests_come_from_limits_and_volumes_get_modes() -> None:
    body = pod(resources={"limits": {"cpu": "2"}}, livenessProbe={"httpGet": {"port": 80}})
    body["spec"]["volumes"] = [
        {"name": "e"},
        {"name": "c", "configMap": {"name": "x"}},
        {"name": "h", "hostPath": {"path": "/x"}},
    ]
    tree, wrong = made(POD, body)
    container = tree["spec"]["containers"][0]
    assert wrong == []
    assert container["resources"]["requests"] == {"cpu": "2"}
    assert container["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert (
        tree["spec"]["volumes"][0]["emptyDir"] == {}
        and tree["spec"]["volumes"][1]["configMap"]["defaultMode"] == 420
    )
    assert tree["spec"]["volumes"][2]["hostPath"]["type"] == ""


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"image": ""}, "spec.containers[0].image: Required value"),
        ({"name": "a.b"}, 'spec.containers[0].name: Invalid value: "a.b": must not contain dots'),
        ({"name": "x" * 64}, f'spec.containers[0].name: Invalid value: "{"x" * 64}": must be no more than 63 characters'),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
         'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'),
        ({"resources": {"requests": {"cpu": "-1"}}},
         'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
        ({"resources": {"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "2"}}},
         'spec.containers[0].resources.requests: Invalid value: "1": must be equal to a.b/gpu limit of 2'),
        ({"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}, 'spec.containers[0].volumeMounts[0].name: Not found: "nope"'),
        ({"ports": [{"containerPort": 70000}]},
         "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"),
        ({"imagePullPolicy": "Sometimes"},
         'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'),
        ({"livenessProbe": {}}, "spec.containers[0].livenessProbe: Required value: must specify a handler type"),
    ],
)  # fmt: skip
def test_containers_that_cannot_be(container: Any, words: str) -> None:
    assert made(POD, pod(**container))[1] == [words]


def test_pods_that_cannot_be() -> None:
    assert made(POD, {"spec": {}})[1] == ["spec.containers: Required value"]
    body = pod()
    body["spec"] |= {
        "nodeName": "n1",
        "schedulingGates": [{"name": "a.b/c"}],
        "restartPolicy": "Foo",
    }
    body["spec"]["containers"] *= 2
    assert made(POD, body)[1] == [
        'spec.containers[1].name: Duplicate value: "c"',
        'spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"',
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ]


def test_a_pod_with_scheduling_gates_has_the_condition() -> None:
    body = pod()
    body["spec"]["schedulingGates"] = [{"name": "a.b/c"}]
    condition = made(POD, body)[0]["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


def test_what_of_a_pod_may_change() -> None:
    old = made(POD, pod())[0]
    assert (
        changed(
            POD,
            old,
            {"spec": {"containers": [{**old["spec"]["containers"][0], "image": "nginx:2"}]}},
        )
        == []
    )
    assert changed(POD, old, {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}) == []
    refused = changed(POD, old, {"spec": {"hostname": "x"}})
    assert refused[0].startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
    )
    assert changed(POD, old, {"spec": {"schedulingGates": [{"name": "a.b/c"}]}}) == [
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a.b/c'"
    ]


# --- metadata -------------------------------------------------------------------------------------


def test_metadata_is_checked_in_one_place() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "uid": "1", "controller": True}
    meta = {
        "labels": {"a b": "x", "ok": "no!"},
        "finalizers": ["bare"],
        "ownerReferences": [{**owner, "name": "a"}, {**owner, "name": "b"}],
    }
    wrong = made(KINDS["", "ConfigMap"], {"metadata": meta})[1]
    assert wrong[0].startswith(
        'metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters'
    )
    assert wrong[1].startswith(
        'metadata.labels: Invalid value: "no!": a valid label must be an empty string or consist of'
    )
    assert (
        'Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b'
        in wrong[2]
    )
    assert (
        wrong[3]
        == 'metadata.finalizers[0]: Invalid value: "bare": name is neither a standard finalizer name nor is it fully qualified'
    )
    assert POD.strategy.name_rule is None


# --- others ---------------------------------------------------------------------------------------


def deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "x"}}, **pod()}
    return {"spec": {"selector": {"matchLabels": {"a": "x"}}, "template": template, **spec}}


def test_a_deployment() -> None:
    tree, wrong = made(DEPLOYMENT, deployment())
    assert wrong == []
    assert tree["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert "enableServiceLinks" not in tree["spec"]["template"]["spec"]
    assert made(DEPLOYMENT, deployment(replicas=-1))[1] == [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    ]
    assert made(DEPLOYMENT, deployment(selector={"matchLabels": {"a": "y"}}))[1] == [
        'spec.template.metadata.labels: Invalid value: {"a":"x"}: `selector` does not match template `labels`'
    ]
    assert changed(DEPLOYMENT, tree, {"spec": {"selector": {"matchLabels": {"b": "x"}}}})[
        -1
    ].endswith("field is immutable")


def test_a_job_selects_its_own_pods() -> None:
    template = pod()
    template["spec"]["restartPolicy"] = "Never"
    tree, wrong = made(KINDS["batch", "Job"], {"spec": {"template": template}})
    assert wrong == []
    assert tree["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}}
    assert tree["spec"]["template"]["metadata"]["labels"]["job-name"] == "a"
    assert (
        tree["spec"]["completions"],
        tree["spec"]["parallelism"],
        tree["spec"]["backoffLimit"],
    ) == (1, 1, 6)
    assert made(KINDS["batch", "Job"], {"spec": {"template": pod()}})[1] == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


def test_a_job_may_not_give_its_pods_labels_that_the_server_generates() -> None:
    template = pod()
    template["spec"]["restartPolicy"] = "Never"
    template["metadata"] = {"labels": {"job-name": "other", "app": "x"}}
    _, wrong = made(KINDS["batch", "Job"], {"spec": {"template": template}})
    assert wrong == [
        'spec.template.metadata.labels[job-name]: Invalid value: {"app":"x","batch.kubernetes.io/controller-uid":"u1",'
        '"batch.kubernetes.io/job-name":"a","controller-uid":"u1","job-name":"other"}: must be \'a\''
    ]
    template["metadata"] = {"labels": {"app": "x"}}
    selector = {"matchLabels": {"app": "x"}}
    _, wrong = made(KINDS["batch", "Job"], {"spec": {"template": template, "selector": selector}})
    assert [text.split(": ")[0] for text in wrong] == ["spec.selector"]
    assert wrong[0].endswith("`selector` not auto-generated")


def test_secrets_and_config_maps() -> None:
    secret, config = KINDS["", "Secret"], KINDS["", "ConfigMap"]
    tree, wrong = made(secret, {"stringData": {"a": "hi"}})
    assert (tree["data"], tree["type"], wrong) == (
        {"a": "aGk="},
        "Opaque",
        [],
    ) and "stringData" not in tree
    assert changed(secret, tree, {"type": "x/y"}) == [
        'type: Invalid value: "x/y": field is immutable'
    ]
    assert made(secret, {"type": "kubernetes.io/tls"})[1] == [
        "data[tls.crt]: Required value",
        "data[tls.key]: Required value",
    ]
    frozen = made(config, {"data": {"a": "1"}, "immutable": True})[0]
    assert changed(config, frozen, {"data": {"a": "2"}}) == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]
    assert made(config, {"data": {"a": "x" * 1048577}})[1] == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]


def test_other_rules() -> None:
    priority = KINDS["scheduling.k8s.io", "PriorityClass"]
    assert made(priority, {"value": 1000000001})[1] == [
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    ]
    assert changed(priority, made(priority, {"value": 1})[0], {"value": 2}) == [
        "value: Forbidden: may not be changed in an update."
    ]
    service, wrong = made(KINDS["", "Service"], {"spec": {"ports": [{"port": 80}]}})
    assert (
        service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
        and wrong == []
    )
    claim = {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}
    }
    tree, wrong = made(KINDS["resource.k8s.io", "ResourceClaim"], claim)
    assert tree["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "d",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    namespace = made(KINDS["", "Namespace"], {})[0]
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert (namespace["spec"], namespace["status"]) == (
        {"finalizers": ["kubernetes"]},
        {"phase": "Active"},
    )
    node = made(KINDS["", "Node"], {"status": {"capacity": {"cpu": "4"}}})[0]
    assert node["status"]["allocatable"] == {"cpu": "4"}


def test_status_belongs_to_its_endpoint() -> None:
    old = made(DEPLOYMENT, deployment())[0]
    new = json.loads(json.dumps(old))
    new["status"], new["spec"]["replicas"] = {"replicas": 7}, 9
    main, status = json.loads(json.dumps(new)), json.loads(json.dumps(new))
    DEPLOYMENT.strategy.prepare_update(main, old)
    DEPLOYMENT.strategy.prepare_status(status, old)
    assert (main["status"], main["spec"]["replicas"]) == ({}, 9)
    assert (status["status"], status["spec"]["replicas"]) == ({"replicas": 7}, 1)


def test_events_have_two_versions() -> None:
    stored = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod"},
        "message": "m",
        "count": 2,
        "type": "Normal",
    }
    shown = events.present(stored)
    assert (shown["regarding"], shown["note"], shown["deprecatedCount"]) == (
        {"kind": "Pod"},
        "m",
        2,
    )
    assert events.keep(shown) == stored
    new = KINDS["events.k8s.io", "Event"]
    assert made(
        new,
        {
            "type": "Normal",
            "reason": "R",
            "action": "A",
            "reportingController": "c",
            "reportingInstance": "i",
        },
    )[1] == ["eventTime: Required value"]


def test_autoscalers_have_two_versions() -> None:
    old = next(
        kind
        for kind in builtin.kinds()
        if kind.kind == "HorizontalPodAutoscaler" and kind.version == "v1"
    )
    assert old.keep is not None and old.present is not None
    shown = {
        "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80},
        "status": {"desiredReplicas": 1},
    }
    stored = old.keep(shown)
    assert stored["spec"]["metrics"][0]["resource"]["target"] == {
        "type": "Utilization",
        "averageUtilization": 80,
    }
    assert old.present(stored) == shown


# --- columns --------------------------------------------------------------------------------------


def cells(kind: Kind, tree: dict[str, Any], wide: bool = False) -> dict[str, Any]:
    return {
        column.name: column.cell(tree, NOW)
        for column in kind.columns
        if wide or not column.priority
    }


def ended(**how: Any) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": 0, **how}}}


RUNNING = {"name": "c", "ready": True, "state": {"running": {}}}
WAITING = {
    "name": "c",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "restartCount": 2,
    "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2023-11-14T22:13:15Z"}},
}


@pytest.mark.parametrize(
    ("status", "word", "ready", "restarts"),
    [
        ({"phase": "Pending"}, "Pending", "0/1", "0"),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, "Running", "1/1", "0"),
        ({"phase": "Running", "containerStatuses": [WAITING]}, "CrashLoopBackOff", "0/1", "2 (5s ago)"),
        ({"phase": "Succeeded", "containerStatuses": [ended(reason="Completed")]}, "Completed", "0/1", "0"),
        ({"phase": "Failed", "containerStatuses": [ended(exitCode=3)]}, "ExitCode:3", "0/1", "0"),
        ({"phase": "Failed", "containerStatuses": [ended(exitCode=137, signal=9)]}, "Signal:9", "0/1", "0"),
        ({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}, "Init:0/0", "0/1", "0"),
        ({"phase": "Failed", "initContainerStatuses": [ended(exitCode=1, reason="Error")]}, "Init:Error", "0/1", "0"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "0/1", "0"),
    ],
)  # fmt: skip
def test_the_status_column_of_a_pod(status: Any, word: str, ready: str, restarts: str) -> None:
    tree = {
        **pod(),
        "metadata": {"name": "a", "creationTimestamp": "2023-11-14T22:13:00Z"},
        "status": status,
    }
    assert cells(POD, tree) == {
        "Name": "a",
        "Ready": ready,
        "Status": word,
        "Restarts": restarts,
        "Age": "20s",
    }


def test_wide_columns_and_nodes() -> None:
    names = [column.name for column in columns.of("", "Pod") if column.priority]
    assert names == ["IP", "Node", "Nominated Node", "Readiness Gates"]
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
    shown = cells(KINDS["", "Node"], node, wide=True)
    assert (shown["Status"], shown["Roles"], shown["Internal-IP"]) == (
        "Ready,SchedulingDisabled",
        "control-plane",
        "10.0.0.1",
    )
