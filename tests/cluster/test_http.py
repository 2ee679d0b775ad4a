"""Checklist 1 to 18: HTTP and discovery."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from tests.cluster import objects, wire
from tests.cluster.api import JSON, PROTOBUF, TABLE, YAML, Api, Tree, needs_https
from tests.cluster.conftest import Kubectl, Namespace

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def test_item_001_version(api: Api) -> None:
    version = api.get("/version")
    assert version.status == 200
    assert re.fullmatch(r"v\d+\.\d+\.\d+([-+].*)?", version.tree["gitVersion"])
    assert version.tree["major"].isdigit() and version.tree["minor"].isdigit()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_item_002_health_without_credentials(api: Api, path: str) -> None:
    answer = Api(api.kubeconfig, anonymous=True).get(path)
    assert (answer.status, answer.text) == (200, "ok")


def test_item_002_verbose_health(api: Api) -> None:
    lines = api.get("/livez?verbose").text.split("\n")
    assert "[+]ping ok" in lines
    assert [line for line in lines if line][-1] == "livez check passed"


def test_item_003_aggregated_discovery(api: Api) -> None:
    answer = api.get("/apis", accept=AGGREGATED)
    assert (answer.status, answer.headers["content-type"]) == (200, AGGREGATED)
    again = api.request(
        "GET", "/apis", headers={"Accept": AGGREGATED, "If-None-Match": answer.headers["etag"]}
    )
    assert (again.status, again.body) == (304, b"")


def test_item_004_legacy_discovery(api: Api) -> None:
    assert api.get("/api", accept=JSON).tree["kind"] == "APIVersions"
    assert api.get("/apis", accept=JSON).tree["kind"] == "APIGroupList"
    core, batch = (api.get(path, accept=JSON).tree for path in ("/api/v1", "/apis/batch/v1"))
    assert core["kind"] == batch["kind"] == "APIResourceList"
    eviction = next(
        resource for resource in core["resources"] if resource["name"] == "pods/eviction"
    )
    assert (eviction["group"], eviction["version"]) == ("policy", "v1")


def test_item_005_paths_that_are_not_there(api: Api) -> None:
    group = api.get("/apis/nope")
    assert group.status == 404 and group.headers["content-type"].startswith("text/plain")
    resource = api.get("/api/v1/nope")
    assert (resource.status, resource.tree["kind"], resource.reason) == (404, "Status", "NotFound")


def test_item_006_a_collection_is_not_patched(api: Api) -> None:
    answer = api.patch("/api/v1/namespaces/x/configmaps", {})
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")


def test_item_007_media_types_that_are_not_spoken(api: Api, ns: Namespace) -> None:
    assert api.get(ns.path("configmaps"), accept="text/html").status == 406
    assert api.post(ns.path("configmaps"), b"a,b", "text/csv").status == 415


def test_item_008_either_json_or_protobuf(api: Api, ns: Namespace) -> None:
    answer = api.get(ns.path("pods"), accept=f"{PROTOBUF},{JSON}")
    assert answer.status == 200
    if answer.headers["content-type"].startswith(PROTOBUF):
        assert answer.body.startswith(b"k8s\x00")
    else:
        assert answer.headers["content-type"].startswith(JSON)
        assert answer.tree["kind"] == "PodList"


def test_item_009_yaml(api: Api, ns: Namespace) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  a: 'b'\n"
    assert api.post(ns.path("configmaps"), body, YAML).status == 201
    assert api.get(ns.path("configmaps", "from-yaml")).tree["data"] == {"a": "b"}


def test_item_010_the_kind_comes_from_the_url(api: Api, ns: Namespace) -> None:
    answer = api.request("POST", ns.path("configmaps"), {"metadata": {"name": "bare"}})
    assert answer.status == 201, answer
    assert (answer.tree["apiVersion"], answer.tree["kind"]) == ("v1", "ConfigMap")


LABELS = {"from": "go"}
IMAGE = wire.message(
    (1, "c"),
    (2, "busybox"),
    (3, "sleep"),
    (3, "1"),
    (5, ""),
    (8, b""),
    (13, ""),
    (14, ""),
    (16, 0),
    (17, 0),
    (18, 0),
    (20, ""),
)
POD_SPEC = wire.message(
    (2, IMAGE),
    (3, "Never"),
    (4, 0),
    (6, ""),
    (8, ""),
    (9, ""),
    (10, ""),
    (11, 0),
    (12, 0),
    (13, 0),
    (16, ""),
    (17, ""),
    (19, "nobody"),
)
WRITTEN: list[tuple[str, str, str, list[tuple[int, Any]], Tree]] = [
    ("pods", "v1", "Pod", [(2, POD_SPEC), (3, b"")],
     {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "schedulerName": "nobody",
               "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1"]}]}}),
    ("coordination.k8s.io/v1/leases", "coordination.k8s.io/v1", "Lease",
     [(2, wire.message((1, "me"), (2, 15), (4, wire.message((1, 1767225600), (2, 123456000)))))],
     {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"}}),
    ("secrets", "v1", "Secret", [(2, wire.message((1, "k"), (2, b"\x00\xff"))), (3, "Opaque")],
     {"data": {"k": "AP8="}, "type": "Opaque"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "version", "kind", "fields", "tree"), WRITTEN, ids=[entry[2] for entry in WRITTEN]
)
def test_item_011_protobuf_makes_the_same_object_as_json(
    api: Api,
    ns: Namespace,
    resource: str,
    version: str,
    kind: str,
    fields: list[tuple[int, Any]],
    tree: Tree,
) -> None:
    body = wire.envelope(
        version, kind, wire.message((1, wire.metadata("by-proto", LABELS)), *fields)
    )
    by_proto = api.post(ns.path(resource), body, PROTOBUF)
    assert by_proto.status == 201, by_proto
    by_json = api.post(
        ns.path(resource),
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "by-json", "labels": LABELS},
            **tree,
        },
    )
    assert _same(by_proto.tree) == _same(by_json.tree)


def test_item_011_event_namespace_and_node(api: Api, ns: Namespace) -> None:
    about = wire.message((1, "Pod"), (2, ns.name), (3, "p"), (4, ""), (5, "v1"), (6, ""), (7, ""))
    event = wire.message(
        (1, wire.metadata("e")),
        (2, about),
        (3, "Why"),
        (4, "text"),
        (5, b""),
        (6, b""),
        (7, b""),
        (8, 1),
        (9, "Normal"),
    )
    made = api.post(ns.path("events"), wire.envelope("v1", "Event", event), PROTOBUF)
    assert made.status == 201, made
    assert (made.tree["involvedObject"]["name"], made.tree["reason"], made.tree["count"]) == (
        "p",
        "Why",
        1,
    )

    name = f"proto-{uuid.uuid4().hex[:6]}"
    namespace = wire.envelope(
        "v1", "Namespace", wire.message((1, wire.metadata(name)), (2, b""), (3, b""))
    )
    assert api.post("/api/v1/namespaces", namespace, PROTOBUF).tree["spec"] == {
        "finalizers": ["kubernetes"]
    }
    assert api.delete(f"/api/v1/namespaces/{name}").status == 200

    capacity = (1, wire.message((1, "cpu"), (2, wire.message((1, "2")))))
    body = wire.message(
        (1, wire.metadata(name)), (2, wire.message((4, 1))), (3, wire.message(capacity))
    )
    node = api.post("/api/v1/nodes", wire.envelope("v1", "Node", body), PROTOBUF)
    assert node.status == 201, node
    assert (node.tree["spec"]["unschedulable"], node.tree["status"]["capacity"]) == (
        True,
        {"cpu": "2"},
    )
    assert api.delete(f"/api/v1/nodes/{name}").status == 200


def test_item_012_protobuf_delete_options(api: Api, ns: Namespace) -> None:
    def options(*fields: tuple[int, Any]) -> bytes:
        return wire.envelope("v1", "DeleteOptions", wire.message(*fields))

    def delete(path: str, body: bytes) -> Any:
        return api.request("DELETE", path, body, {"Content-Type": PROTOBUF})

    api.create(ns.path("configmaps"), objects.config_map("doomed"))
    path = ns.path("configmaps", "doomed")
    wrong = delete(path, options((2, wire.message((1, "another-uid")))))
    assert (wrong.status, wrong.reason) == (409, "Conflict")
    assert delete(path, options()).status == 200
    assert api.get(path).status == 404

    api.create(ns.path("pods"), objects.pod("bound", nodeName="nowhere"))
    assert (
        delete(ns.path("pods", "bound"), options()).tree["metadata"]["deletionGracePeriodSeconds"]
        == 30
    )
    assert delete(ns.path("pods", "bound"), options((1, 0))).status == 200
    assert api.get(ns.path("pods", "bound")).status == 404


def test_item_013_typed_kubectl_commands(kubectl: Kubectl, ns: Namespace, api: Api) -> None:
    name = f"made-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    assert api.get(f"/api/v1/namespaces/{name}").status == 200
    kubectl("delete", "namespace", name, "--wait=false")
    kubectl("-n", ns.name, "create", "configmap", "lit", "--from-literal=a=b")
    kubectl("-n", ns.name, "create", "secret", "generic", "gen", "--from-literal=a=b")
    kubectl("-n", ns.name, "create", "job", "once", "--image=busybox", "--", "true")
    assert api.get(ns.path("configmaps", "lit")).tree["data"] == {"a": "b"}
    assert api.get(ns.path("secrets", "gen")).tree["data"] == {"a": "Yg=="}
    job = api.get(ns.path("batch/v1/jobs", "once")).tree
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["true"]
    kubectl("-n", ns.name, "delete", "job", "once", "--wait=false")


def test_item_014_apply_twice(kubectl: Kubectl, ns: Namespace, tmp_path: Any) -> None:
    group = f"x{uuid.uuid4().hex[:6]}.example.com"
    (tmp_path / "all.yaml").write_text(APPLIED.replace("GROUP", group))
    (tmp_path / "cr.yaml").write_text(
        f"apiVersion: {group}/v1\nkind: Toy\nmetadata: {{name: t}}\nspec: {{size: 1}}\n"
    )
    try:
        first = kubectl("-n", ns.name, "apply", "-f", str(tmp_path / "all.yaml"))
        assert len(re.findall(" created$", first, re.M)) == 3, first
        kubectl("wait", "--for=condition=established", f"crd/toys.{group}", "--timeout=60s")
        assert (
            kubectl("-n", ns.name, "apply", "-f", str(tmp_path / "cr.yaml"))
            == f"toy.{group}/t created\n"
        )
        for file, count in (("all.yaml", 3), ("cr.yaml", 1)):
            again = kubectl("-n", ns.name, "apply", "-f", str(tmp_path / file))
            assert len(re.findall(" unchanged$", again, re.M)) == count, again
    finally:
        kubectl.run("delete", "crd", f"toys.{group}", "--wait=false")


def test_item_015_explain(kubectl: Kubectl) -> None:
    done = kubectl.run("explain", "pod.spec")
    if done.returncode == 0:
        assert "containers" in done.stdout and "FIELDS" in done.stdout
    else:
        assert "error" in done.stderr.lower() and "panic" not in done.stderr


def test_item_016_tables(api: Api, ns: Namespace) -> None:
    api.create(ns.path("pods"), objects.pod("shown"))
    table = api.get(ns.path("pods"), accept=f"{TABLE},{JSON}").tree
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
        "IP",
        "Node",
        "Nominated Node",
        "Readiness Gates",
    ]
    row = next(row for row in table["rows"] if row["object"]["metadata"]["name"] == "shown")
    assert row["cells"][:4] == ["shown", "0/1", "Pending", 0] or row["cells"][:4] == [
        "shown",
        "0/1",
        "Pending",
        "0",
    ]
    with api.watch(ns.path("pods"), accept=TABLE, fieldSelector="metadata.name=shown") as watch:
        first = watch.next()["object"]
        assert (first["kind"], len(first["rows"])) == ("Table", 1)
        assert first["columnDefinitions"]
        api.patch(ns.path("pods", "shown"), {"metadata": {"labels": {"more": "1"}}})
        second = watch.next()["object"]
        assert (len(second["rows"]), second.get("columnDefinitions") or None) == (1, None)


def test_item_017_metadata_only(api: Api, ns: Namespace) -> None:
    api.create(ns.path("pods"), objects.pod("meta-only"))
    answer = api.get(
        ns.path("pods", "meta-only"),
        accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    ).tree
    assert (answer["kind"], answer["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "spec" not in answer and answer["metadata"]["name"] == "meta-only"


def test_item_018_a_body_of_four_mebibytes(api: Api, ns: Namespace) -> None:
    needs_https(api)
    body = objects.config_map("huge", {"a": "x" * (4 << 20)})
    answer = api.post(ns.path("configmaps"), body)
    assert answer.status == 413
    assert api.get(ns.path("configmaps", "huge")).status == 404


def _same(tree: Tree) -> Tree:
    """The object without what differs from one creation to the next."""
    tree = {
        **tree,
        "metadata": {
            key: value
            for key, value in tree["metadata"].items()
            if key in ("labels", "generation", "namespace")
        },
    }
    text = re.sub(r"kube-api-access-\w{5}", "kube-api-access", repr(tree))
    return eval(text)  # the repr of a JSON tree


APPLIED = """
apiVersion: v1
kind: Pod
metadata: {name: applied}
spec:
  schedulerName: nobody
  containers: [{name: c, image: busybox, command: [sleep, "1"], resources: {limits: {cpu: "1"}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: applied}
spec:
  replicas: 0
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: c, image: busybox, ports: [{containerPort: 80}]}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: toys, kind: Toy}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"""
