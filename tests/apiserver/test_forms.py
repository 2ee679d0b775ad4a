"""The forms in which objects are asked for, and what finalize changes (local-cluster 1.10, 2.2)."""

from __future__ import annotations

from tests.apiserver.http import CONFIG_MAPS, MERGE, Http, config_map

PARTIAL, PARTIALS, TABLE = (
    f"application/json;as={kind};v=v1;g=meta.k8s.io"
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList", "Table")
)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def test_an_object_is_no_list_and_a_list_no_object(http: Http) -> None:
    http.post(CONFIG_MAPS, config_map("formed"))
    one = http.get(f"{CONFIG_MAPS}/formed", Accept=PARTIALS)
    assert (one.status, one.message) == (
        406,
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
    )
    many = http.get(DEPLOYMENTS, Accept=PARTIAL)
    assert (many.status, many.message) == (
        406,
        "you requested PartialObjectMetadata, but the requested object is a list (*apps.DeploymentList)",
    )
    empty = http.get(f"{CONFIG_MAPS}?labelSelector=none", Accept=PARTIALS).tree
    assert (empty["kind"], empty["items"]) == ("PartialObjectMetadataList", None)


def test_an_answer_to_a_write_has_a_form_too(http: Http) -> None:
    path = f"{CONFIG_MAPS}/formed"
    http.post(CONFIG_MAPS, config_map("formed"))

    def patched(label: str, accept: str) -> tuple[int, str]:
        answer = http.request(
            "PATCH", path, {"metadata": {"labels": {"l": label}}}, Content_Type=MERGE, Accept=accept
        )
        return answer.status, str(answer.tree["kind"])

    assert patched("1", PARTIAL) == (200, "PartialObjectMetadata")
    assert patched("2", TABLE) == (200, "Table")
    assert patched("3", "text/html") == (406, "Status")
    assert http.get(path).tree["metadata"]["labels"] == {"l": "2"}, (
        "nothing is written for who takes no answer"
    )


def test_a_scale_as_a_table(http: Http) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    http.post(DEPLOYMENTS, {"metadata": {"name": "scaled"}, "spec": spec})
    table = http.get(f"{DEPLOYMENTS}/scaled/scale", Accept=TABLE).tree
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == ["scaled", 2, 0]
    wrong = http.patch(f"{DEPLOYMENTS}/scaled/scale", {"spec": {"replicas": "x"}})
    assert (
        wrong.status == 422
        and "cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
        in wrong.message
    )


def test_finalize_is_an_update(http: Http) -> None:
    path = "/api/v1/namespaces/finalized"
    http.post("/api/v1/namespaces", {"metadata": {"name": "finalized", "labels": {"a": "1"}}})
    finalizers = ["kubernetes", "ex.com/f"]
    changed = http.put(
        f"{path}/finalize",
        {
            "metadata": {"name": "finalized", "labels": {"b": "2"}},
            "spec": {"finalizers": finalizers},
        },
    )
    assert (
        changed.tree["metadata"]["labels"]["b"] == "2"
        and "a" not in changed.tree["metadata"]["labels"]
    )
    assert changed.tree["spec"]["finalizers"] == finalizers
    owned = {
        entry.get("subresource", ""): entry["fieldsV1"]
        for entry in changed.tree["metadata"]["managedFields"]
    }
    assert owned["finalize"]["f:spec"] == {"f:finalizers": {}}
    wrong = http.put(
        f"{path}/finalize", {"metadata": {"name": "finalized"}, "spec": {"finalizers": ["bare"]}}
    )
    assert (wrong.status, wrong.tree["details"]["causes"][0]["field"]) == (
        422,
        "spec.finalizers[0]",
    )
    assert (
        http.put(path, {"metadata": {"name": "finalized"}, "spec": {"finalizers": []}}).tree[
            "spec"
        ]["finalizers"]
        == finalizers
    )


def test_old_readers_of_schemas_are_answered(http: Http) -> None:
    asked = http.get(
        "/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    )
    assert asked.status == 200 and len(asked.body) > 100_000
    assert (
        asked.headers["content-type"]
        == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    )
    assert (
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        in http.get("/openapi/v2").tree["paths"]
    )
    assert http.get("/openapi/v2", Accept="text/html").status == 406
