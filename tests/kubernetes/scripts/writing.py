"""Creating, changing, patching, applying, deleting."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, Tree
from tests.kubernetes.exchange import Step
from tests.kubernetes.samples import SELECTOR, TEMPLATE
from tests.kubernetes.scripts.places import MAPS, NS, PARTIALS, PODS, config, pod


def creating() -> Iterator[Step]:
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "me"})
    yield Step("POST", MAPS, config("x"))
    yield Step("POST", "/api/v1/namespaces/absent/configmaps", config("x"))
    yield Step(
        "POST",
        MAPS,
        {
            **config("y"),
            "metadata": {
                "name": "y",
                "deletionTimestamp": "2025-01-01T00:00:00Z",
                "creationTimestamp": None,
            },
        },
    )
    yield Step(
        "POST",
        MAPS,
        {
            **config("z"),
            "metadata": {
                "name": "z",
                "finalizers": ["example.com/f"],
                "labels": {},
                "annotations": None,
            },
        },
    )
    yield Step(
        "POST",
        f"{NS}/secrets",
        {"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": {}},
    )
    yield Step(
        "POST",
        f"{NS}/secrets",
        {
            "metadata": {"name": "s"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": "MQ=="},
        },
    )
    yield Step(
        "POST",
        f"{NS}/secrets",
        {"metadata": {"name": "s"}, "type": "kubernetes.io/basic-auth", "data": {}},
    )
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "data": {"a": "not base64"}})
    yield Step(
        "POST",
        f"{NS}/secrets",
        {"metadata": {"name": "s"}, "immutable": True, "data": {"a": "MQ=="}},
    )
    yield Step("PATCH", f"{NS}/secrets/s", {"data": {"a": "Mg=="}}, MERGE)
    yield Step("PATCH", f"{NS}/secrets/s", {"type": "other"}, MERGE)
    yield Step("PATCH", f"{NS}/secrets/s", {"immutable": False}, MERGE)


def updating() -> Iterator[Step]:
    one = f"{MAPS}/x"
    yield Step("PUT", one, config("x"))
    yield Step(
        "PUT",
        one,
        {**config("x"), "metadata": {"name": "x", "uid": "11111111-1111-1111-1111-111111111111"}},
    )
    yield Step("POST", MAPS, config("x"))
    yield Step("PUT", one, config("x"))
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "resourceVersion": "1"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "resourceVersion": "abc"}})
    yield Step(
        "PUT",
        one,
        {
            **config("x"),
            "metadata": {"name": "x", "resourceVersion": "{{rv:x}}"},
            "data": {"b": "2"},
        },
    )
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "uid": "other"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "y"}})
    yield Step("PUT", one, {**config("x"), "metadata": {}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "namespace": "elsewhere"}})
    yield Step(
        "PUT",
        one,
        {
            **config("x"),
            "metadata": {"name": "x", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 5},
        },
    )
    yield Step("PUT", one, config("x", immutable=True), query={"dryRun": "All"})
    yield Step("PUT", one, config("x", immutable=True))
    yield Step("PUT", one, config("x", immutable=False, data={"c": "1"}))
    yield Step("PUT", f"{MAPS}/absent", config("absent"))


def patching() -> Iterator[Step]:
    one = f"{MAPS}/x"
    yield Step("PATCH", one, {"data": {"b": "2"}}, MERGE)
    yield Step("POST", MAPS, config("x"))
    yield Step("PATCH", one, {"data": {"b": "2"}}, JSON)
    yield Step("PATCH", one, {"data": {"b": "2"}}, "application/nothing+json")
    yield Step("PATCH", one, {"data": {"b": "2", "a": None}}, MERGE)
    yield Step("PATCH", one, {"data": {"b": 2}}, MERGE)
    yield Step("PATCH", one, {"data": {"b": 2}}, STRATEGIC)
    yield Step("PATCH", one, {"data": "x"}, MERGE)
    yield Step("PATCH", one, {"metadata": {"name": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"namespace": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"uid": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"resourceVersion": "1"}}, MERGE)
    yield Step("PATCH", one, {"kind": "Secret"}, MERGE)
    yield Step("PATCH", one, {"apiVersion": "v2"}, MERGE)
    yield Step("PATCH", one, b"{", MERGE)
    yield Step("PATCH", one, b"[]", MERGE)
    yield Step("PATCH", one, b"", MERGE)
    yield Step("PATCH", one, b"null", MERGE)
    yield Step("PATCH", one, b"{", STRATEGIC)
    yield Step("PATCH", one, b"{}", JSON_PATCH)
    yield Step("PATCH", one, b"[{}]", JSON_PATCH)
    yield Step("PATCH", one, [{"op": "test", "path": "/data/b", "value": "3"}], JSON_PATCH)
    yield Step(
        "PATCH",
        one,
        [
            {"op": "test", "path": "/data/b", "value": "2"},
            {"op": "copy", "from": "/data/b", "path": "/data/c"},
        ],
        JSON_PATCH,
    )
    yield Step("PATCH", one, [{"op": "remove", "path": "/data/none"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "replace", "path": "/data/none", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "add", "path": "/none/none", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "move", "from": "/data/c", "path": "/data/d"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "dance", "path": "/data/d"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "add", "path": "data/d", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, {"data": {"e": "1"}}, MERGE, query={"dryRun": "All"})
    yield Step("PATCH", one, {"data": {"e": "1"}}, MERGE, query={"force": "true"})
    yield Step(
        "PATCH", one, {"data": {"e": "1"}, "wrong": 1}, MERGE, query={"fieldValidation": "Warn"}
    )
    yield Step(
        "PATCH",
        one,
        {"data": {"e": "1"}, "wrong": 1},
        STRATEGIC,
        query={"fieldValidation": "Strict"},
    )
    yield Step("PATCH", one, {}, MERGE)
    yield Step("GET", one)


def strategic() -> Iterator[Step]:
    one = f"{NS}/replicationcontrollers/x"
    containers = [
        {
            "name": "a",
            "image": "i",
            "env": [{"name": "A", "value": "1"}],
            "ports": [{"containerPort": 80}],
        },
        {"name": "b", "image": "i"},
    ]
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": containers, "tolerations": [{"key": "k", "operator": "Exists"}]},
    }
    yield Step(
        "POST",
        f"{NS}/replicationcontrollers",
        {"metadata": {"name": "x"}, "spec": {"template": template}},
    )

    def patch(**spec: object) -> Step:
        return Step("PATCH", one, {"spec": {"template": {"spec": spec}}}, STRATEGIC)

    yield patch(containers=[{"name": "b", "image": "j"}, {"name": "c", "image": "k"}])
    yield patch(
        containers=[
            {
                "name": "a",
                "env": [{"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "name": "http"}],
            }
        ]
    )
    yield patch(containers=[{"name": "c", "$patch": "delete"}])
    yield patch(
        **{
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "z"}],
        }
    )
    yield patch(
        **{
            "$setElementOrder/containers": [{"name": "b"}],
            "containers": [{"name": "a", "image": "y"}],
        }
    )
    yield patch(containers=[{"image": "nameless"}])
    yield patch(tolerations=[{"key": "l", "operator": "Exists"}])
    yield patch(volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}])
    yield patch(
        volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]
    )
    yield patch(volumes=[{"name": "new", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}])
    yield patch(volumes=[{"$patch": "replace"}, {"name": "only", "emptyDir": {}}])
    yield patch(**{"$deleteFromPrimitiveList/none": ["x"]})
    yield Step(
        "PATCH", one, {"spec": {"minReadySeconds": 2**40 + 5}}, STRATEGIC, query={"dryRun": "All"}
    )
    yield Step("PATCH", one, {"spec": "x"}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"replicas": "1"}}, STRATEGIC)
    yield Step(
        "PATCH", one, {"spec": {"template": {"spec": {"containers": {"a": "b"}}}}}, STRATEGIC
    )
    yield patch(nodeSelector={"a": "1"})
    yield patch(nodeSelector={"$patch": "replace", "b": "2"})
    yield patch(nodeSelector=None)
    yield patch(**{"$patch": "maybe"})
    yield Step("PATCH", one, {"metadata": {"finalizers": ["example.com/a"]}}, STRATEGIC)
    yield Step("PATCH", one, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    yield Step(
        "PATCH",
        one,
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
        STRATEGIC,
    )
    yield Step("PATCH", one, {"spec": {"replicas": None}}, STRATEGIC)
    yield Step("GET", one)


def applying() -> Iterator[Step]:
    """Server-side apply, with its owners and conflicts."""
    one = f"{MAPS}/x"

    def apply(manager: str, data: Tree, **query: str) -> Step:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}
        return Step("PATCH", one, body, APPLY, query={"fieldManager": manager, **query})

    yield apply("a", {"k": "1", "l": "1"})
    yield apply("a", {"k": "1", "l": "1"})
    yield apply("b", {"k": "2"})
    yield apply("b", {"k": "1"})
    yield apply("b", {"k": "2", "m": "1"}, force="true")
    yield apply("a", {"l": "1"})
    yield apply("a", {})
    yield Step("PATCH", one, {"data": {"n": "1"}}, MERGE, query={"fieldManager": "c"})
    yield apply("a", {"n": "2"})
    yield apply("a", {"n": "2"}, dryRun="All", force="1")
    yield Step("GET", one)
    yield Step("PATCH", one, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}, APPLY)
    yield Step("PATCH", one, {"kind": "ConfigMap"}, APPLY, query={"fieldManager": "a"})
    yield Step("PATCH", one, b"a: b: c", APPLY, query={"fieldManager": "a"})
    yield Step(
        "PATCH",
        one,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "managedFields": [{}]}},
        APPLY,
        query={"fieldManager": "a"},
    )
    yield Step("PATCH", one, {"metadata": {"managedFields": [{}]}}, MERGE)
    where = "/apis/apps/v1/namespaces/{{ns}}/deployments/d"
    base: Tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE},
    }
    yield Step("PATCH", where, base, APPLY, query={"fieldManager": "a"})
    other = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "d", "image": "i"}]},
    }
    yield Step(
        "PATCH", where, {**base, "spec": {"template": other}}, APPLY, query={"fieldManager": "b"}
    )
    yield Step(
        "PATCH", where, {**base, "spec": {"replicas": 3}}, APPLY, query={"fieldManager": "b"}
    )
    yield Step(
        "PATCH",
        where,
        {**base, "spec": {"selector": SELECTOR, "template": TEMPLATE}},
        APPLY,
        query={"fieldManager": "a"},
    )
    yield Step("PATCH", where, {**base, "wrong": 1}, APPLY, query={"fieldManager": "a"})
    yield Step("GET", where)


def deleting() -> Iterator[Step]:
    held = {"name": "held", "finalizers": ["example.com/f"]}
    yield Step("POST", MAPS, config("x"))
    yield Step("DELETE", f"{MAPS}/x", {"preconditions": {"uid": "wrong"}})
    yield Step("DELETE", f"{MAPS}/x", {"preconditions": {"resourceVersion": "1"}})
    yield Step("DELETE", f"{MAPS}/x", {"propagationPolicy": "Sometimes"})
    yield Step("DELETE", f"{MAPS}/x", {"propagationPolicy": "Orphan", "orphanDependents": True})
    yield Step("DELETE", f"{MAPS}/x", {"gracePeriodSeconds": "five"})
    yield Step("DELETE", f"{MAPS}/x", {"kind": "DeleteOptions", "apiVersion": "v9"})
    yield Step("DELETE", f"{MAPS}/x", {"kind": "Something", "apiVersion": "v1"})
    yield Step("DELETE", f"{MAPS}/x", {"dryRun": ["All"]})
    yield Step("DELETE", f"{MAPS}/x", {"dryRun": ["Some"]})
    yield Step(
        "DELETE",
        f"{MAPS}/x",
        {"preconditions": {"uid": "{{uid:x}}", "resourceVersion": "{{rv:x}}"}},
    )
    yield Step("DELETE", f"{MAPS}/x")
    yield Step("POST", MAPS, {**config("held"), "metadata": held})
    yield Step("DELETE", f"{MAPS}/held")
    yield Step("DELETE", f"{MAPS}/held")
    yield Step(
        "PATCH",
        f"{MAPS}/held",
        {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}},
        MERGE,
    )
    yield Step("PATCH", f"{MAPS}/held", {"metadata": {"deletionTimestamp": None}}, MERGE)
    yield Step("PATCH", f"{MAPS}/held", {"data": {"still": "writable"}}, MERGE)
    yield Step("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": []}}, MERGE)
    yield Step("GET", f"{MAPS}/held")
    for policy in ("Foreground", "Orphan", "Background"):
        name = policy.lower()
        yield Step("POST", MAPS, config(name))
        yield Step("DELETE", f"{MAPS}/{name}", query={"propagationPolicy": policy})
        yield Step("GET", f"{MAPS}/{name}")
    yield Step("POST", PODS, pod("p"))
    yield Step("DELETE", f"{PODS}/p", query={"gracePeriodSeconds": "-1"})
    yield Step("POST", PODS, pod("q", nodeName="absent"))
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "20"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "40"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "5"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "0"})


def collections() -> Iterator[Step]:
    for name in ("a", "b", "c"):
        yield Step(
            "POST", MAPS, {**config(name), "metadata": {"name": name, "labels": {"n": name}}}
        )
    yield Step("DELETE", MAPS, query={"labelSelector": "n=a"})
    yield Step("DELETE", MAPS, query={"fieldSelector": "metadata.name=b", "dryRun": "All"})
    yield Step("DELETE", MAPS, query={"labelSelector": "=="})
    yield Step("DELETE", MAPS, {"preconditions": {"uid": "x"}})
    yield Step("GET", MAPS, accept=PARTIALS)
    yield Step("DELETE", MAPS)
    yield Step("GET", MAPS)
    yield Step("DELETE", f"{NS}/services")
