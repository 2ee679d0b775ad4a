"""What only requests that nobody would write have shown: each step here was found by made-up ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE
from tests.kubernetes.exchange import Step
from tests.kubernetes.samples import SELECTOR, TEMPLATE
from tests.kubernetes.scripts.places import NS, PODS, pod

STORAGE = "/apis/storage.k8s.io/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
BUDGETS = "/apis/policy/v1/namespaces/{{ns}}/poddisruptionbudgets"


def oddities() -> Iterator[Step]:
    yield from types()
    yield from patches()
    yield from emptiness()
    yield from names()


def types() -> Iterator[Step]:
    """Values of the wrong type, and more than one of them."""
    node = {"metadata": {"name": "{{ns}}-n"}, "spec": {"drivers": [{"name": "d", "nodeID": "n"}]}}
    yield Step("POST", f"{STORAGE}/csinodes", {**node, "status": {}, "wrong": 1})
    yield Step(
        "POST", f"{STORAGE}/csinodes", {**node, "metadata": {"name": "{{ns}}-m"}, "status": ["x"]}
    )
    claims = f"{NS}/persistentvolumeclaims"
    claim = {"accessModes": "x", "resources": {"requests": {"storage": " "}}}
    yield Step("POST", claims, {"metadata": {"name": "c"}, "spec": claim})
    for value in ({}, [], True, 10**18, 1.5):
        yield Step(
            "POST",
            BUDGETS,
            {"metadata": {"name": "b"}, "spec": {"minAvailable": value, "selector": SELECTOR}},
        )
    for data in ([], [1, 2], [None], ["x"], [300], {}, 1, "?", True):
        yield Step(
            "POST",
            f"{NS}/secrets",
            {"metadata": {"name": "s"}, "data": {"a": data}},
            query={"dryRun": "All"},
        )


def patches() -> Iterator[Step]:
    yield Step("POST", PODS, pod("p"))
    yield Step(
        "PATCH",
        f"{PODS}/p",
        {"spec": {"containers": [{"name": {}, "image": "busybox"}]}},
        STRATEGIC,
    )
    yield Step("PATCH", f"{PODS}/p", {"spec": {"containers": []}}, MERGE)
    yield Step("PATCH", f"{PODS}/p", [{"op": "remove", "path": "/spec"}], JSON_PATCH)
    yield Step("POST", WEBHOOKS, {"metadata": {"name": "{{ns}}-w"}})
    yield Step("PATCH", f"{WEBHOOKS}/{{{{ns}}}}-w", {"webhooks": ["x"]}, STRATEGIC)
    yield Step(
        "PATCH", f"{WEBHOOKS}/{{{{ns}}}}-w", {"webhooks": [{"name": "x"}, {"name": "x"}]}, STRATEGIC
    )
    yield Step(
        "POST",
        BUDGETS,
        {"metadata": {"name": "UPPER"}, "spec": {"minAvailable": 1, "selector": SELECTOR}},
    )
    yield Step(
        "PATCH", f"{BUDGETS}/UPPER", {"spec": {"selector": {"matchLabels": {"b": "c"}}}}, STRATEGIC
    )
    limits = {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}
    yield Step(
        "POST", f"{NS}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limits]}}
    )
    yield Step(
        "PATCH", f"{NS}/limitranges/l", {"spec": {"limits": [{**limits, "labels": None}]}}, MERGE
    )
    revisions = "/apis/apps/v1/namespaces/{{ns}}/controllerrevisions"
    yield Step("POST", revisions, {"metadata": {"name": "r"}, "data": {"a": 1}})
    yield Step("PATCH", f"{revisions}/r", {"data": {"a": True}}, STRATEGIC)
    yield Step("PUT", f"{revisions}/r", {"metadata": {"name": "r"}, "data": {"a": "ä"}})
    claims = "/apis/resource.k8s.io/v1/namespaces/{{ns}}/resourceclaims"
    yield Step("GET", f"{claims}/none/status", accept=TABLE)
    yield Step(
        "POST",
        f"{NS}/endpoints",
        {"metadata": {"name": "e"}, "subsets": [{"addresses": [{}], "ports": [{"port": 80}]}]},
    )
    yield Step(
        "POST",
        f"{NS}/endpoints",
        {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]},
    )
    number = {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 10**18}]}]}
    yield Step("PATCH", f"{NS}/endpoints/e", number, STRATEGIC)


def emptiness() -> Iterator[Step]:
    """What is there and empty is told from what is not there, by some."""
    workload = {"selector": SELECTOR, "template": {**TEMPLATE, "metadata": {"labels": {}}}}
    yield Step(
        "POST",
        "/apis/apps/v1/namespaces/{{ns}}/deployments",
        {"metadata": {"name": "d"}, "spec": workload},
    )
    for kind in ("deployments", "replicasets", "daemonsets", "statefulsets"):
        path = f"/apis/apps/v1/namespaces/{{{{ns}}}}/{kind}"
        yield Step(
            "POST",
            path,
            {"metadata": {"name": "d"}, "spec": {"selector": {}, "template": TEMPLATE}},
        )
        yield Step(
            "POST",
            path,
            {
                "metadata": {"name": "d"},
                "spec": {"selector": {"matchLabels": {"app": "ä"}}, "template": TEMPLATE},
            },
        )
        yield Step("POST", path, {"metadata": {"name": "d"}, "spec": {"template": TEMPLATE}})
    yield Step(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ns}}/roles",
        {"metadata": {"name": "r"}, "rules": []},
    )
    policies = "/apis/networking.k8s.io/v1/namespaces/{{ns}}/networkpolicies"
    yield Step("POST", policies, {"metadata": {"name": "a"}, "spec": {"podSelector": SELECTOR}})
    yield Step("POST", policies, {"metadata": {"name": "b"}, "spec": {"podSelector": {}}})
    daemons = "/apis/apps/v1/namespaces/{{ns}}/daemonsets"
    yield Step(
        "POST",
        daemons,
        {
            "metadata": {"name": "o", "labels": {"a": "b"}},
            "spec": {"selector": SELECTOR, "template": TEMPLATE},
        },
    )
    yield Step("PATCH", f"{daemons}/o", {"metadata": {"labels": {"a": "c"}}}, MERGE)
    yield Step(
        "PUT",
        f"{daemons}/o",
        {"metadata": {"name": "o"}, "spec": {"selector": SELECTOR, "template": TEMPLATE}},
    )
    yield Step("PATCH", f"{daemons}/o", {"metadata": {"labels": {"a": "d"}}}, MERGE)
    sets = "/apis/apps/v1/namespaces/{{ns}}/statefulsets"
    yield Step(
        "POST",
        sets,
        {"metadata": {"name": "s"}, "spec": {"selector": SELECTOR, "template": TEMPLATE}},
    )
    yield Step("PATCH", f"{sets}/s/status", {"status": {"replicas": 1, "readyReplicas": 2}}, MERGE)
    yield Step("PATCH", f"{sets}/s/status", {"status": {"replicas": 2, "readyReplicas": 2}}, MERGE)


def names() -> Iterator[Step]:
    leases = "/apis/coordination.k8s.io/v1/namespaces/{{ns}}/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {"holderIdentity": "me"},
    }
    for name in ("x", None, "", "other"):
        yield Step(
            "PATCH",
            f"{leases}/x",
            {**lease, "metadata": {"name": name}},
            APPLY,
            query={"fieldManager": "a"},
        )
    yield Step("PATCH", f"{leases}/x", lease, APPLY, query={"fieldManager": "a"})
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "status"}}
    yield Step("PATCH", f"{NS}/services/none/status", service, APPLY, query={"fieldManager": "a"})
    about = {"kind": "Pod", "name": "p"}
    yield Step(
        "POST",
        f"{NS}/events",
        {"metadata": {"name": "1Gi"}, "involvedObject": {**about, "namespace": "{{ns}}"}},
    )
    yield Step("PATCH", f"{NS}/events/1Gi", {"involvedObject": {"namespace": "other"}}, MERGE)
    subjects = [
        {"kind": "User", "name": "jane", "apiGroup": "example.com"},
        {"kind": "ServiceAccount", "name": "A"},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a/b"}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ns}}/rolebindings"
    yield Step("POST", path, {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
