"""CustomResourceDefinitions: from a definition to served kinds and back (local-cluster 4)."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.trees import Json
from tests.apiserver.http import STRATEGIC, Http, until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(plural: str, kind: str, schema: Json | None = None, **more: Any) -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": schema
            or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
        **more,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ex.com"},
        "spec": {
            "group": "ex.com",
            "scope": "Namespaced",
            "versions": [version],
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                "shortNames": [f"{plural}x"],
            },
        },
    }


SPEC_FIELDS: Json = {
    "a": {"type": "integer", "minimum": 1},
    "b": {"type": "string", "default": "bee"},
    "replicas": {"type": "integer"},
}
STATUS_FIELDS: Json = {
    "phase": {"type": "string"},
    "replicas": {"type": "integer"},
    "selector": {"type": "string"},
}
SPEC: Json = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "required": ["a"], "properties": SPEC_FIELDS},
        "status": {"type": "object", "properties": STATUS_FIELDS},
    },
}


@pytest.mark.scenario("local-cluster", 78)
def test_a_definition_is_served_at_once(http: Http) -> None:
    created = http.post(CRDS, definition("widgets", "Widget", SPEC))
    assert created.status == 201, created
    answer = http.post(
        "/apis/ex.com/v1/namespaces/default/widgets",
        {"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}},
    )
    assert answer.status == 201, answer
    until(
        lambda: any(
            c["type"] == "Established"
            for c in http.get(f"{CRDS}/widgets.ex.com").tree["status"].get("conditions", [])
        )
    )
    status = http.get(f"{CRDS}/widgets.ex.com").tree["status"]
    assert {(c["type"], c["status"], c["reason"]) for c in status["conditions"]} == {
        ("NamesAccepted", "True", "NoConflicts"),
        ("Established", "True", "InitialNamesAccepted"),
    }
    assert status["storedVersions"] == ["v1"]
    assert status["acceptedNames"]["kind"] == "Widget"
    assert "ex.com" in [group["name"] for group in http.get("/apis").tree["groups"]]
    assert http.get("/apis/ex.com/v1").tree["resources"][0]["name"] == "widgets"
    assert http.get("/apis/ex.com/v1/widgets").tree["items"][0]["kind"] == "Widget"


WIDGETS = "/apis/ex.com/v1/namespaces/default/gadgets"


@pytest.fixture(scope="module")
def gadgets(shared_apiserver: Any) -> Http:
    http = Http(shared_apiserver)
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    more: Json = {"subresources": {"status": {}, "scale": scale}}
    more["additionalPrinterColumns"] = [{"name": "A", "type": "integer", "jsonPath": ".spec.a"}]
    assert http.post(CRDS, definition("gadgets", "Gadget", SPEC, **more)).status == 201
    return http


def gadget(name: str, **spec: Any) -> Json:
    return {"apiVersion": "ex.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


@pytest.mark.scenario("local-cluster", 79)
@pytest.mark.scenario("local-cluster", 80)
def test_pruned_and_defaulted(gadgets: Http) -> None:
    answer = gadgets.post(WIDGETS, {**gadget("pruned", a=1, unknown=2), "more": 1})
    assert answer.tree["spec"] == {"a": 1, "b": "bee"}
    assert "more" not in answer.tree
    assert 'unknown field \\"spec.unknown\\"' in answer.headers["warning"]
    strict = gadgets.post(f"{WIDGETS}?fieldValidation=Strict", gadget("strict", a=1, unknown=2))
    assert strict.status == 400
    assert 'unknown field "spec.unknown"' in strict.message


@pytest.mark.scenario("local-cluster", 81)
def test_schema_violations(gadgets: Http) -> None:
    answer = gadgets.post(WIDGETS, gadget("bad", a=0))
    assert answer.status == 422
    assert (
        "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"
        in answer.message
    )
    assert "spec.a: Required value" in gadgets.post(WIDGETS, gadget("bad")).message


@pytest.mark.scenario("local-cluster", 83)
def test_status_is_apart(gadgets: Http) -> None:
    created = gadgets.post(WIDGETS, {**gadget("apart", a=1), "status": {"phase": "X"}}).tree
    assert "status" not in created
    created["status"] = {"phase": "Y"}
    created["spec"]["a"] = 2
    answer = gadgets.put(f"{WIDGETS}/apart/status", created)
    assert (
        answer.tree["spec"]["a"],
        answer.tree["status"],
        answer.tree["metadata"]["generation"],
    ) == (1, {"phase": "Y"}, 1)
    answer = gadgets.patch(f"{WIDGETS}/apart", {"spec": {"a": 3}, "status": {"phase": "Z"}})
    assert (
        answer.tree["spec"]["a"],
        answer.tree["status"],
        answer.tree["metadata"]["generation"],
    ) == (3, {"phase": "Y"}, 2)
    created.pop("status")
    created["metadata"].pop("resourceVersion")
    refused = gadgets.put(f"{WIDGETS}/apart", created)
    assert refused.status == 422
    assert refused.message.startswith(
        'gadgets.ex.com "apart" is invalid: metadata.resourceVersion: Invalid value: 0'
    )


@pytest.mark.scenario("local-cluster", 84)
def test_scale_of_a_custom_kind(gadgets: Http) -> None:
    gadgets.post(WIDGETS, gadget("scaled", a=1, replicas=2))
    gadgets.patch(f"{WIDGETS}/scaled/status", {"status": {"replicas": 2, "selector": "app=x"}})
    scale = gadgets.get(f"{WIDGETS}/scaled/scale").tree
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 2},
        {"replicas": 2, "selector": "app=x"},
    )
    gadgets.patch(f"{WIDGETS}/scaled/scale", {"spec": {"replicas": 7}})
    assert gadgets.get(f"{WIDGETS}/scaled").tree["spec"]["replicas"] == 7
    gadgets.post(WIDGETS, gadget("unscaled", a=1))
    answer = gadgets.get(f"{WIDGETS}/unscaled/scale")
    assert answer.status == 500
    assert 'the spec replicas field ".spec.replicas" does not exist' in answer.message


@pytest.mark.scenario("local-cluster", 86)
def test_printer_columns(gadgets: Http) -> None:
    gadgets.post(WIDGETS, gadget("printed", a=4))
    table = gadgets.get(
        f"{WIDGETS}/printed", Accept="application/json;as=Table;v=v1;g=meta.k8s.io"
    ).tree
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "A"]
    assert table["rows"][0]["cells"] == ["printed", 4]


@pytest.mark.scenario("local-cluster", 34)
def test_no_strategic_patch(gadgets: Http) -> None:
    gadgets.post(WIDGETS, gadget("strategic", a=1))
    answer = gadgets.patch(f"{WIDGETS}/strategic", {"spec": {"a": 2}}, STRATEGIC)
    assert answer.status == 415
    assert "application/json-patch+json, application/merge-patch+json" in answer.message


@pytest.mark.scenario("local-cluster", 88)
def test_a_deleted_definition_takes_its_objects_along(http: Http) -> None:
    http.post(CRDS, definition("doomed", "Doom"))
    path = "/apis/ex.com/v1/namespaces/default/doomed"
    for name in ("a", "b"):
        body = {
            "apiVersion": "ex.com/v1",
            "kind": "Doom",
            "metadata": {"name": name, "finalizers": ["ex.com/x"] if name == "b" else []},
        }
        assert http.post(path, body).status == 201
    assert "finalizers" not in http.get(f"{CRDS}/doomed.ex.com").tree["metadata"]
    with http.watch(f"{path}?watch=1&resourceVersion={http.get(path).version}") as watched:
        going = http.delete(f"{CRDS}/doomed.ex.com").tree
        assert going["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        until(lambda: http.get(path).names == ["b"])
        conditions = http.get(f"{CRDS}/doomed.ex.com").tree["status"]["conditions"]
        assert [c["status"] for c in conditions if c["type"] == "Terminating"] == ["True"]
        http.patch(f"{path}/b", {"metadata": {"finalizers": None}})
        until(lambda: http.get(f"{CRDS}/doomed.ex.com").status == 404)
        assert [event["type"] for event in watched.rest()][-1] == "DELETED"
    assert http.get(path).status == 404


def test_names_are_taken_once(http: Http) -> None:
    http.post(CRDS, definition("firsts", "Same"))
    http.post(CRDS, definition("seconds", "Same"))
    until(lambda: http.get(f"{CRDS}/seconds.ex.com").tree["status"].get("conditions"))
    conditions = {
        c["type"]: c for c in http.get(f"{CRDS}/seconds.ex.com").tree["status"]["conditions"]
    }
    assert (conditions["NamesAccepted"]["status"], conditions["NamesAccepted"]["reason"]) == (
        "False",
        "KindConflict",
    )
    assert http.get("/apis/ex.com/v1/seconds").status == 404
    http.delete(f"{CRDS}/firsts.ex.com")
    until(lambda: http.get("/apis/ex.com/v1/seconds").status == 200)
    until(
        lambda: (
            http.get(f"{CRDS}/seconds.ex.com").tree["status"]["conditions"][0]["status"] == "True"
        )
    )


def test_definitions_are_served_again_after_a_restart(apiserver: Any) -> None:
    http = Http(apiserver)
    http.post(CRDS, definition("lasting", "Last", SPEC))
    http.post(
        "/apis/ex.com/v1/namespaces/default/lasting",
        {"apiVersion": "ex.com/v1", "kind": "Last", "metadata": {"name": "w"}, "spec": {"a": 1}},
    )
    apiserver.restart(kill=True)
    assert Http(apiserver).get("/apis/ex.com/v1/lasting").names == ["w"]
