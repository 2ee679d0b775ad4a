"""Checklist 90 to 106 and 113: built-in kinds, identities, authorization."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hekla.api.text.times import stamp
from tests.cluster import objects
from tests.cluster.api import JSON_PATCH, Api, Tree, eventually, needs_https
from tests.cluster.conftest import Kubectl, Namespace

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
RBAC = "rbac.authorization.k8s.io/v1"


def test_item_090_defaults_of_a_pod(api: Api, ns: Namespace) -> None:
    made = api.create(
        ns.path("pods"),
        {
            "metadata": {"name": "minimal"},
            "spec": {
                "schedulerName": "nobody",
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "ports": [{"containerPort": 1}],
                        "readinessProbe": {"httpGet": {"port": 80}},
                    }
                ],
                "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}}],
            },
        },
    )
    spec = made["spec"]
    expected = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert {key: spec[key] for key in expected} == expected
    container = spec["containers"][0]
    expected = {
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
    }
    assert {key: container[key] for key in expected} == expected
    assert container["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    probe = container["readinessProbe"]
    numbers = [
        probe[key]
        for key in ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    ]
    assert numbers == [1, 10, 1, 3] and probe["httpGet"] == {
        "path": "/",
        "port": 80,
        "scheme": "HTTP",
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["v"]["emptyDir"] == {} and volumes["s"]["secret"]["defaultMode"] == 420
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")


@pytest.mark.parametrize(("name", "resources", "requests", "qos"), [
    ("limits-only", {"limits": {"cpu": "1000m", "memory": "1024Mi"}}, {"cpu": "1", "memory": "1Gi"}, "Guaranteed"),
    ("burstable", {"requests": {"cpu": 2.5}}, {"cpu": "2500m"}, "Burstable"),
    ("nothing", {}, None, "BestEffort"),
])  # fmt: skip
def test_item_090_requests_and_quality(
    api: Api, ns: Namespace, name: str, resources: Tree, requests: Tree | None, qos: str
) -> None:
    made = api.create(
        ns.path("pods"),
        objects.pod(name, containers=[objects.container("true", resources=resources)]),
    )
    assert made["spec"]["containers"][0]["resources"].get("requests") == requests
    assert made["status"]["qosClass"] == qos


def test_item_091_what_admission_adds(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("pods"), objects.pod("admitted"))
    spec = made["spec"]
    tolerations = {
        (t["key"], t["operator"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]
    }
    assert tolerations == {
        (NOT_READY, "Exists", "NoExecute", 300),
        (UNREACHABLE, "Exists", "NoExecute", 300),
    }
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    volume = next(
        volume for volume in spec["volumes"] if volume["name"].startswith("kube-api-access-")
    )
    assert volume["projected"]["sources"][0]["serviceAccountToken"] == {
        "path": "token",
        "expirationSeconds": 3607,
    }
    mount = next(
        mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]
    )
    assert (mount["mountPath"], mount["readOnly"]) == (
        "/var/run/secrets/kubernetes.io/serviceaccount",
        True,
    )


def test_item_092_priority_classes(api: Api, ns: Namespace) -> None:
    made = api.create(
        ns.path("pods"), objects.pod("vital", priorityClassName="system-node-critical")
    )
    assert made["spec"]["priority"] == 2000001000
    answer = api.post(ns.path("pods"), objects.pod("unknown", priorityClassName="no-such-class"))
    assert (
        answer.status == 403
        and "no PriorityClass with name no-such-class was found" in answer.message
    )


def test_item_093_what_a_pod_may_change(api: Api, ns: Namespace) -> None:
    api.create(ns.path("pods"), objects.pod("changing"))
    path = ns.path("pods", "changing")
    answer = api.patch(path, {"spec": {"hostname": "other"}})
    assert answer.status == 422 and "pod updates may not change fields other than" in answer.message
    answer = api.patch(
        path,
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:1"}],
        JSON_PATCH,
    )
    assert (answer.status, answer.meta["generation"]) == (200, 2)


def bind(api: Api, ns: Namespace, name: str, node: str = "no-such-node") -> Any:
    target = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    return api.post(ns.path("pods", name, "binding"), target)


def test_item_094_scheduling_gates(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("pods"), objects.pod("gated", schedulingGates=[{"name": "a.b/c"}]))
    scheduled = objects.condition(made, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "SchedulingGated")
    refused = bind(api, ns, "gated")
    assert refused.status == 409 and "non-empty .spec.schedulingGates" in refused.message
    path = ns.path("pods", "gated")
    more = api.patch(
        path,
        [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "d.e/f"}}],
        JSON_PATCH,
    )
    assert more.status == 422 and "only deletion is allowed" in more.message
    opened = api.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
    assert opened.status == 200 and "schedulingGates" not in opened.tree["spec"]


def test_item_095_binding(api: Api, ns: Namespace) -> None:
    api.create(ns.path("pods"), objects.pod("bindable"))
    first = bind(api, ns, "bindable")
    assert (first.status, first.tree["status"]) == (201, "Success")
    bound = api.get(ns.path("pods", "bindable")).tree
    assert bound["spec"]["nodeName"] == "no-such-node"
    assert objects.condition(bound, "PodScheduled")["status"] == "True"
    second = bind(api, ns, "bindable")
    assert second.status == 409 and "is already assigned to node" in second.message


def test_item_096_evictions(api: Api, ns: Namespace) -> None:
    def evict(name: str) -> Any:
        return api.post(
            ns.path("pods", name, "eviction"),
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}},
        )

    api.create(ns.path("pods"), objects.pod("evicted", nodeName="no-such-node"))
    api.patch(ns.path("pods", "evicted", "status"), {"status": {"phase": "Running"}})
    assert evict("evicted").status == 201
    going = api.get(ns.path("pods", "evicted")).tree
    assert going["metadata"]["deletionTimestamp"]
    assert objects.condition(going, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    api.delete(ns.path("pods", "evicted"), {"gracePeriodSeconds": 0})

    api.create(
        ns.path("pods"), objects.pod("kept", nodeName="no-such-node", labels={"budget": "full"})
    )
    ready = [{"type": "Ready", "status": "True"}]
    api.patch(
        ns.path("pods", "kept", "status"), {"status": {"phase": "Running", "conditions": ready}}
    )
    budgets = ns.path("policy/v1/poddisruptionbudgets")
    made = api.create(
        budgets,
        {
            "metadata": {"name": "full"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"budget": "full"}}},
        },
    )
    counts = {
        "expectedPods": 1,
        "desiredHealthy": 1,
        "currentHealthy": 1,
        "disruptionsAllowed": 0,
        "observedGeneration": made["metadata"]["generation"],
    }
    # The controller of budgets writes the same; where it runs, one of the two is merely first.
    eventually(lambda: api.patch(f"{budgets}/full/status", {"status": counts}).status == 200)
    answer = evict("kept")
    assert (answer.status, answer.reason, answer.cause_reasons) == (
        429,
        "TooManyRequests",
        ["DisruptionBudget"],
    )
    api.delete(f"{budgets}/full")


def test_item_096_the_status_of_a_budget(api: Api, ns: Namespace) -> None:
    api.create(
        ns.path("pods"),
        objects.pod("healthy", nodeName="no-such-node", labels={"budget": "counted"}),
    )
    ready = [{"type": "Ready", "status": "True"}]
    api.patch(
        ns.path("pods", "healthy", "status"), {"status": {"phase": "Running", "conditions": ready}}
    )
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"budget": "counted"}}}
    api.create(
        ns.path("policy/v1/poddisruptionbudgets"), {"metadata": {"name": "counted"}, "spec": spec}
    )
    api.wait(
        ns.path("policy/v1/poddisruptionbudgets", "counted"),
        lambda budget: budget.get("status", {}).get("disruptionsAllowed") == 1,
    )


def test_item_097_secrets(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("secrets"), {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert (made["data"], "stringData" in made, made["type"]) == ({"a": "Yg=="}, False, "Opaque")
    assert api.patch(ns.path("secrets", "s"), {"type": "other.io/type"}).status == 422
    assert api.patch(ns.path("secrets", "s"), {"immutable": True}).status == 200
    answer = api.patch(ns.path("secrets", "s"), {"data": {"a": "Yw=="}})
    assert answer.status == 422 and "field is immutable when `immutable` is set" in answer.message


def test_item_098_services(api: Api, ns: Namespace) -> None:
    def service(name: str, **spec: Any) -> Tree:
        return api.create(
            ns.path("services"),
            {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}},
        )["spec"]

    first, second = service("one"), service("two")
    assert first["clusterIP"] != second["clusterIP"] and first["clusterIPs"] == [first["clusterIP"]]
    assert service("headless", clusterIP="None")["clusterIP"] == "None"
    answer = api.patch(
        ns.path("services", "one"), {"spec": {"clusterIP": second["clusterIP"], "clusterIPs": None}}
    )
    assert answer.status == 422, answer
    port = service("door", type="NodePort")["ports"][0]
    assert 30000 <= port["nodePort"] <= 32767 and port["targetPort"] == 80


def test_item_099_quota(api: Api, new_ns: Any) -> None:
    ns = new_ns()
    api.create(
        ns.path("resourcequotas"), {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}
    )
    api.wait(
        ns.path("resourcequotas", "two"),
        lambda tree: "pods" in tree.get("status", {}).get("hard", {}),
    )
    with ThreadPoolExecutor(5) as pool:
        answers = list(
            pool.map(lambda n: api.post(ns.path("pods"), objects.pod(f"p{n}")), range(5))
        )
    assert sorted(answer.status for answer in answers) == [201, 201, 403, 403, 403]
    assert all("exceeded quota" in answer.message for answer in answers if answer.status == 403)


def test_item_100_limit_ranges(api: Api, new_ns: Any) -> None:
    ns = new_ns()
    limit = {
        "type": "Container",
        "default": {"cpu": "500m"},
        "defaultRequest": {"cpu": "100m"},
        "max": {"cpu": "1"},
    }
    api.create(ns.path("limitranges"), {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    made = eventually(lambda: _limited(api, ns))
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m"},
        "requests": {"cpu": "100m"},
    }
    greedy = objects.pod(
        "greedy", containers=[objects.container("true", resources={"limits": {"cpu": "2"}})]
    )
    answer = api.post(ns.path("pods"), greedy)
    assert (
        answer.status == 403
        and "maximum cpu usage per Container is 1, but limit is 2" in answer.message
    )


def _limited(api: Api, ns: Namespace) -> Tree | None:
    made = api.create(ns.path("pods"), {**objects.pod("x"), "metadata": {"generateName": "x-"}})
    return made if "kubernetes.io/limit-ranger" in made["metadata"].get("annotations", {}) else None


def test_item_101_claims_and_volumes(api: Api, ns: Namespace) -> None:
    name = f"pv-{uuid.uuid4().hex[:6]}"
    classes, volumes = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.create(
        classes,
        {
            "metadata": {"name": name, "annotations": marked},
            "provisioner": "kubernetes.io/no-provisioner",
        },
    )
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/tmp/x"},
        "storageClassName": name,
    }
    try:
        api.create(volumes, {"metadata": {"name": name}, "spec": spec})
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        made = api.create(
            ns.path("persistentvolumeclaims"), {"metadata": {"name": "c"}, "spec": claim}
        )
        assert made["spec"]["storageClassName"] == name
        api.wait(
            ns.path("persistentvolumeclaims", "c"), lambda tree: tree["status"]["phase"] == "Bound"
        )
        api.wait(f"{volumes}/{name}", lambda tree: tree["status"]["phase"] == "Bound")
    finally:
        api.delete(ns.path("persistentvolumeclaims", "c"))
        api.delete(f"{volumes}/{name}")
        api.delete(f"{classes}/{name}")


def test_item_102_one_store_of_events(api: Api, ns: Namespace, kubectl: Kubectl) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": ns.name}
    api.create(
        ns.path("events"),
        {
            "metadata": {"name": "old"},
            "involvedObject": about,
            "reason": "Old",
            "message": "told",
            "type": "Normal",
            "source": {"component": "me"},
            "count": 2,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        },
    )
    seen = api.get(ns.path("events.k8s.io/v1/events", "old")).tree
    assert (seen["note"], seen["regarding"]["name"], seen["deprecatedCount"]) == ("told", "p", 2)
    assert seen["deprecatedSource"] == {"component": "me"}
    new = {
        "metadata": {"name": "new"},
        "regarding": about,
        "reason": "New",
        "note": "said",
        "type": "Warning",
        "action": "Act",
        "reportingController": "me.io/x",
        "reportingInstance": "x-1",
        "eventTime": "2026-01-01T00:00:00.000001Z",
    }
    api.create(ns.path("events.k8s.io/v1/events"), new)
    seen = api.get(ns.path("events", "new")).tree
    assert (seen["message"], seen["involvedObject"]["name"], seen["reportingComponent"]) == (
        "said",
        "p",
        "me.io/x",
    )
    assert "told" in kubectl("-n", ns.name, "events")


def test_item_102_describe_shows_events(api: Api, ns: Namespace, kubectl: Kubectl) -> None:
    made = api.create(ns.path("pods"), objects.pod("eventful"))
    about = {
        "kind": "Pod",
        "name": "eventful",
        "namespace": ns.name,
        "uid": made["metadata"]["uid"],
        "apiVersion": "v1",
    }
    now = stamp(time.time())
    api.create(
        ns.path("events"),
        {
            "metadata": {"name": "eventful.1"},
            "involvedObject": about,
            "reason": "Seen",
            "type": "Normal",
            "message": "it was seen",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "tests"},
        },
    )
    assert "it was seen" in kubectl("-n", ns.name, "describe", "pod", "eventful")


def test_item_103_tokens_of_accounts(api: Api, ns: Namespace) -> None:
    needs_https(api)
    api.create(ns.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    answer = api.post(ns.path("serviceaccounts", "robot", "token"), {"spec": {}})
    assert answer.status == 201
    robot = Api(api.kubeconfig, token=answer.tree["status"]["token"])
    review = robot.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}
    )
    assert review.tree["status"]["userInfo"]["username"] == f"system:serviceaccount:{ns.name}:robot"
    api.delete(ns.path("serviceaccounts", "robot"))
    eventually(
        lambda: (
            robot.post(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}
            ).status
            == 401
        )
    )


def allow(api: Api, ns: Namespace, name: str, subject: Tree, *rules: Tree) -> None:
    """A Role and its binding."""
    api.create(ns.path(f"{RBAC}/roles"), {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    api.create(
        ns.path(f"{RBAC}/rolebindings"),
        {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]},
    )


def test_item_104_roles(api: Api, ns: Namespace, kubectl: Kubectl) -> None:
    allow(
        api,
        ns,
        "reader",
        {"kind": "User", "name": "alice"},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    )
    alice = api.as_user("alice")
    eventually(lambda: alice.get(ns.path("pods")).status == 200)
    answer = alice.get("/api/v1/namespaces/default/pods")
    assert (answer.status, answer.message) == (
        403,
        'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"',
    )
    assert alice.get("/api/v1/nodes").message == (
        'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert "pods" in kubectl("-n", ns.name, "auth", "can-i", "--list", "--as", "alice")


def test_item_105_aggregated_roles(api: Api) -> None:
    label = f"hekla.test/{uuid.uuid4().hex[:6]}"
    roles = f"/apis/{RBAC}/clusterroles"
    whole, part = f"whole-{label[-6:]}", f"part-{label[-6:]}"
    rule = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    api.create(roles, {"metadata": {"name": whole}, "aggregationRule": rule, "rules": []})
    rules = [{"apiGroups": ["x.io"], "resources": ["things"], "verbs": ["get"]}]
    api.create(roles, {"metadata": {"name": part, "labels": {label: "true"}}, "rules": rules})
    api.wait(f"{roles}/{whole}", lambda tree: tree.get("rules") == rules)
    for name in (whole, part):
        api.delete(f"{roles}/{name}")


def test_item_106_a_review_without_groups(api: Api, ns: Namespace) -> None:
    account = {"kind": "ServiceAccount", "name": "worker", "namespace": ns.name}
    allow(
        api, ns, "worker", account, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    )
    asked = {"namespace": ns.name, "verb": "get", "resource": "secrets"}
    spec = {"user": f"system:serviceaccount:{ns.name}:worker", "resourceAttributes": asked}

    def allowed() -> bool:
        answer = api.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"kind": "SubjectAccessReview", "spec": spec},
        )
        return answer.status == 201 and answer.tree["status"]["allowed"]

    eventually(allowed)


def test_item_113_resource_claims(api: Api, ns: Namespace) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpus"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    made = api.create(ns.path("resource.k8s.io/v1/resourceclaims"), claim)
    exactly = made["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    bad = {
        "metadata": {"name": f"bad-{uuid.uuid4().hex[:6]}"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver =="}}]},
    }
    answer = api.post("/apis/resource.k8s.io/v1/deviceclasses", bad)
    if answer.status == 201:
        api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{bad['metadata']['name']}")
    assert answer.status == 422
