"""Create, update, patch: what is stored, what is refused and in which words (local-cluster 2.1 to
2.9)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.apiserver.http import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Http,
    config_map,
    pod,
)


def test_a_created_object_is_read_back(http: Http) -> None:
    created = http.post(CONFIG_MAPS, config_map("made", data={"a": "1"}))
    assert created.status == 201, created
    metadata = created.tree["metadata"]
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"]
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == "default"
    assert http.get(f"{CONFIG_MAPS}/made").tree == created.tree


@pytest.mark.scenario("local-cluster", 9)
def test_yaml_is_taken(http: Http) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: b\n"
    assert http.post(CONFIG_MAPS, body, "application/yaml").tree["data"] == {"a": "b"}


@pytest.mark.scenario("local-cluster", 10)
def test_the_kind_is_inferred_from_the_url(http: Http) -> None:
    answer = http.request("POST", CONFIG_MAPS, {"metadata": {"name": "inferred"}})
    assert answer.status == 201
    assert answer.tree["kind"] == "ConfigMap"


@pytest.mark.scenario("local-cluster", 19)
def test_generated_names_differ(http: Http) -> None:
    names = {
        http.post(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}).tree["metadata"]["name"]
        for _ in range(5)
    }
    assert len(names) == 5
    assert all(re.fullmatch("a-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


@pytest.mark.scenario("local-cluster", 20)
def test_a_name_is_required(http: Http) -> None:
    answer = http.post(CONFIG_MAPS, {"metadata": {}})
    assert answer.status == 422
    assert "metadata.name: Required value: name or generateName is required" in answer.message
    assert answer.tree["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.scenario("local-cluster", 21)
def test_a_name_is_taken_once(http: Http) -> None:
    assert http.post(CONFIG_MAPS, config_map("twice")).status == 201
    answer = http.post(CONFIG_MAPS, config_map("twice"))
    assert answer.status == 409
    assert answer.tree["reason"] == "AlreadyExists"
    assert answer.message == 'configmaps "twice" already exists'
    assert answer.tree["details"]["kind"] == "configmaps"


@pytest.mark.scenario("local-cluster", 22)
def test_a_namespace_must_be_there(http: Http) -> None:
    answer = http.post("/api/v1/namespaces/nons/configmaps", config_map("x"))
    assert (answer.status, answer.message) == (404, 'namespaces "nons" not found')
    assert answer.tree["details"]["kind"] == "namespaces"


@pytest.mark.scenario("local-cluster", 23)
def test_the_server_owns_its_metadata(http: Http) -> None:
    mine = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}
    metadata = http.post(CONFIG_MAPS, config_map("owned", metadata=mine)).tree["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert "selfLink" not in metadata


@pytest.mark.scenario("local-cluster", 24)
def test_an_old_version_conflicts(http: Http) -> None:
    first = http.post(CONFIG_MAPS, config_map("old")).tree
    assert http.put(f"{CONFIG_MAPS}/old", {**first, "data": {"a": "1"}}).status == 200
    answer = http.put(f"{CONFIG_MAPS}/old", {**first, "data": {"a": "2"}})
    assert answer.status == 409
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "old": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert answer.tree["details"] == {"name": "old", "kind": "configmaps"}


@pytest.mark.scenario("local-cluster", 25)
def test_who_may_put_without_a_version(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("unversioned"))
    assert (
        http.put(f"{CONFIG_MAPS}/unversioned", config_map("unversioned", data={"a": "1"})).status
        == 200
    )
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert http.post(leases, lease).status == 201
    answer = http.put(f"{leases}/l", lease)
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value: 0" in answer.message


@pytest.mark.scenario("local-cluster", 26)
def test_what_changes_nothing_stores_nothing(http: Http) -> None:
    created = http.post(CONFIG_MAPS, config_map("still", data={"a": "1"})).tree
    answer = http.put(f"{CONFIG_MAPS}/still", created)
    assert answer.status == 200
    assert answer.tree["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    patched = http.patch(f"{CONFIG_MAPS}/still", {"data": {"a": "1"}})
    assert patched.tree["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@pytest.mark.scenario("local-cluster", 27)
def test_putting_what_is_missing(http: Http) -> None:
    assert http.put(f"{CONFIG_MAPS}/missing", config_map("missing")).status == 404
    lease = {
        "metadata": {"name": "put"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.123456Z"},
    }
    answer = http.put("/apis/coordination.k8s.io/v1/namespaces/default/leases/put", lease)
    assert answer.status == 201
    assert answer.tree["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"


@pytest.mark.scenario("local-cluster", 28)
def test_another_uid_or_name(http: Http) -> None:
    created = http.post(CONFIG_MAPS, config_map("named")).tree
    created["metadata"]["uid"] = "other"
    answer = http.put(f"{CONFIG_MAPS}/named", created)
    assert answer.status == 409
    assert "Precondition failed: UID in precondition: other, UID in object meta: " in answer.message
    answer = http.put(f"{CONFIG_MAPS}/named", config_map("zz"))
    assert answer.status == 400
    assert (
        answer.message == "the name of the object (zz) does not match the name on the URL (named)"
    )
    answer = http.post(CONFIG_MAPS, config_map("elsewhere", metadata={"namespace": "other"}))
    assert answer.status == 400
    assert (
        answer.message
        == "the namespace of the provided object does not match the namespace sent on the request"
    )


@pytest.mark.scenario("local-cluster", 31)
def test_a_merge_patch(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("merged", data={"a": "1", "b": "2"}))
    assert http.patch(f"{CONFIG_MAPS}/merged", {"data": {"a": None, "c": "3"}}, MERGE).tree[
        "data"
    ] == {"b": "2", "c": "3"}


@pytest.mark.scenario("local-cluster", 32)
def test_a_strategic_patch_merges_containers_by_name(http: Http) -> None:
    containers = [{"name": "one", "image": "a"}, {"name": "two", "image": "b"}]
    http.post(PODS, pod("strategic", containers=containers))
    body = {"spec": {"containers": [{"name": "two", "image": "c"}]}}
    answer = http.patch(f"{PODS}/strategic", body, STRATEGIC)
    assert [(c["name"], c["image"]) for c in answer.tree["spec"]["containers"]] == [
        ("one", "a"),
        ("two", "c"),
    ]


@pytest.mark.scenario("local-cluster", 35)
def test_json_patches(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("ops", data={"a": "1"}))
    answer = http.patch(
        f"{CONFIG_MAPS}/ops", [{"op": "test", "path": "/data/a", "value": "2"}], JSON_PATCH
    )
    assert answer.status == 422
    assert answer.message == "the server rejected our request due to an error in our request"
    answer = http.patch(
        f"{CONFIG_MAPS}/ops", [{"op": "replace", "path": "/data/b", "value": "2"}], JSON_PATCH
    )
    assert answer.tree["data"] == {"a": "1", "b": "2"}
    assert http.patch(f"{CONFIG_MAPS}/ops", {"op": "add"}, JSON_PATCH).status == 400


@pytest.mark.scenario("local-cluster", 36)
def test_patching_what_is_missing(http: Http) -> None:
    answer = http.patch(f"{CONFIG_MAPS}/nothing", {"data": {}})
    assert (answer.status, answer.message) == (404, 'configmaps "nothing" not found')


@pytest.mark.scenario("local-cluster", 37)
def test_a_patch_may_name_the_version_that_it_means(http: Http) -> None:
    created = http.post(CONFIG_MAPS, config_map("guarded")).tree
    http.patch(f"{CONFIG_MAPS}/guarded", {"data": {"a": "1"}})
    stale = {
        "metadata": {"resourceVersion": created["metadata"]["resourceVersion"]},
        "data": {"a": "2"},
    }
    assert http.patch(f"{CONFIG_MAPS}/guarded", stale).status == 409


def test_an_unknown_patch_type_is_refused(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("typed"))
    answer = http.patch(f"{CONFIG_MAPS}/typed", {}, "text/plain")
    assert (answer.status, answer.message) == (415, "415: Unsupported Media Type")


@pytest.mark.scenario("local-cluster", 39)
def test_parallel_patches_all_arrive(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("parallel"))

    def one(number: int) -> int:
        return (
            Http(http.server).patch(f"{CONFIG_MAPS}/parallel", {"data": {f"k{number}": "v"}}).status
        )

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(one, range(64))) == {200}
    assert len(http.get(f"{CONFIG_MAPS}/parallel").tree["data"]) == 64


@pytest.mark.scenario("local-cluster", 40)
def test_a_dry_run_stores_nothing(http: Http) -> None:
    answer = http.post(f"{CONFIG_MAPS}?dryRun=All", config_map("dry"))
    assert answer.status == 201
    assert answer.tree["metadata"]["uid"]
    assert "resourceVersion" not in answer.tree["metadata"]
    assert http.get(f"{CONFIG_MAPS}/dry").status == 404
    assert http.post(f"{CONFIG_MAPS}?dryRun=X", config_map("dry")).status == 422


@pytest.mark.scenario("local-cluster", 41)
def test_unknown_fields(http: Http) -> None:
    body = {**config_map("unknown"), "foo": 1}
    answer = http.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    assert answer.status == 400
    assert 'strict decoding error: unknown field "foo"' in answer.message
    answer = http.post(CONFIG_MAPS, body)
    assert answer.status == 201
    assert answer.headers["warning"] == '299 - "unknown field \\"foo\\""'
    assert "foo" not in answer.tree
    assert (
        http.post(
            f"{CONFIG_MAPS}?fieldValidation=Ignore", {**body, "metadata": {"name": "unknown2"}}
        ).headers.get("warning")
        is None
    )
    assert http.post(f"{CONFIG_MAPS}?fieldValidation=Perhaps", body).status == 422


@pytest.mark.scenario("local-cluster", 42)
def test_wrong_types_are_refused_in_every_mode(http: Http) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    for mode in ("Strict", "Warn", "Ignore"):
        body = {"metadata": {"name": "d"}, "spec": {"replicas": "3"}}
        assert http.post(f"{deployments}?fieldValidation={mode}", body).status == 400


def test_a_version_may_not_be_set_on_create(http: Http) -> None:
    answer = http.post(CONFIG_MAPS, config_map("versioned", metadata={"resourceVersion": "1"}))
    assert answer.status == 500
    assert answer.message == "resourceVersion should not be set on objects to be created"


@pytest.mark.scenario("local-cluster", 18)
def test_a_body_over_the_limit_is_refused(http: Http) -> None:
    answer = http.post(CONFIG_MAPS, config_map("large", data={"a": "x" * (4 << 20)}))
    assert answer.status == 413
    assert answer.tree["reason"] == "RequestEntityTooLarge"
    assert answer.message == "Request entity too large: limit is 3145728"


def test_binding(http: Http) -> None:
    http.post(PODS, pod("bound"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    answer = http.post(f"{PODS}/bound/binding", binding)
    assert answer.status == 201
    assert answer.tree["status"] == "Success"
    tree = http.get(f"{PODS}/bound").tree
    assert tree["spec"]["nodeName"] == "n1"
    assert tree["metadata"]["annotations"] == {"a": "b"}
    assert [(c["type"], c["status"]) for c in tree["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]
    answer = http.post(f"{PODS}/bound/binding", binding)
    assert answer.status == 409
    assert (
        answer.message
        == 'Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "n1"'
    )
    assert (
        http.post(f"{PODS}/unbound/binding", {**binding, "metadata": {"name": "unbound"}}).status
        == 404
    )
    http.post(PODS, pod("empty"))
    answer = http.post(f"{PODS}/empty/binding", {"metadata": {"name": "empty"}, "target": {}})
    assert (answer.status, answer.message) == (500, "target.name: Required value")


def test_scale(http: Http) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }
    body = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    assert http.post(deployments, body).status == 201
    scale = http.get(f"{deployments}/web/scale").tree
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale",
        {"replicas": 2},
        "app=web",
    )
    assert http.patch(f"{deployments}/web/scale", {"spec": {"replicas": 5}}).tree["spec"] == {
        "replicas": 5
    }
    tree = http.get(f"{deployments}/web").tree
    assert tree["spec"]["replicas"] == 5
    assert tree["metadata"]["generation"] == 2
    assert http.patch(f"{deployments}/web/scale", {"spec": {"replicas": -1}}).status == 422
