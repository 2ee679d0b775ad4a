"""Checklist 43 to 49: server-side apply."""

from __future__ import annotations

from typing import Any

from tests.cluster import objects
from tests.cluster.api import APPLY, Api, Tree
from tests.cluster.conftest import Kubectl, Namespace


def apply(
    api: Api, ns: Namespace, name: str, manager: str, data: dict[str, str], **query: Any
) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return api.patch(ns.path("configmaps", name), body, APPLY, fieldManager=manager, **query)


def test_item_043_apply_creates(api: Api, ns: Namespace) -> None:
    answer = apply(api, ns, "new", "m1", {"a": "1"})
    assert answer.status == 201
    entry = answer.meta["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == (
        "m1",
        "Apply",
        {"f:data": {"f:a": {}}},
    )


def test_item_044_the_same_again(api: Api, ns: Namespace) -> None:
    first = apply(api, ns, "same", "m1", {"a": "1"})
    again = apply(api, ns, "same", "m1", {"a": "1"})
    assert (again.status, again.version) == (200, first.version)


def test_item_045_conflicts(api: Api, ns: Namespace) -> None:
    apply(api, ns, "fought", "m1", {"a": "1"})
    answer = apply(api, ns, "fought", "m2", {"a": "2"})
    assert (answer.status, answer.cause_reasons, answer.cause_fields) == (
        409,
        ["FieldManagerConflict"],
        [".data.a"],
    )
    forced = apply(api, ns, "fought", "m2", {"a": "2"}, force="true")
    assert (forced.status, forced.tree["data"]) == (200, {"a": "2"})


def test_item_046_what_is_no_longer_said(api: Api, ns: Namespace) -> None:
    apply(api, ns, "shrunk", "m1", {"a": "1", "b": "1", "c": "1"})
    apply(api, ns, "shrunk", "m2", {"b": "1"})
    assert apply(api, ns, "shrunk", "m1", {"c": "1"}).tree["data"] == {"b": "1", "c": "1"}


def test_item_047_lists_merge_by_name(api: Api, ns: Namespace) -> None:
    tree = objects.deployment("listed", 0)
    tree["spec"]["template"]["spec"]["containers"].append(objects.container("sleep", "1", name="d"))
    path = ns.path("apps/v1/deployments", "listed")
    assert api.patch(path, tree, APPLY, fieldManager="m1").status == 201
    more: Tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "listed"},
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "d", "env": [{"name": "E", "value": "1"}]}]}
            }
        },
    }
    answer = api.patch(path, more, APPLY, fieldManager="m2")
    assert answer.status == 200, answer
    containers = answer.tree["spec"]["template"]["spec"]["containers"]
    assert [(c["name"], c["image"], bool(c.get("env"))) for c in containers] == [
        ("c", "busybox", False),
        ("d", "busybox", True),
    ]
    applied = {
        entry["manager"] for entry in answer.meta["managedFields"] if entry["operation"] == "Apply"
    }
    assert applied == {"m1", "m2"}, (
        "besides, the deployment's controller may have written its status"
    )


def test_item_048_what_apply_needs(api: Api, ns: Namespace) -> None:
    body = objects.config_map("needy")
    assert api.patch(ns.path("configmaps", "needy"), body, APPLY).status == 422
    body["metadata"]["managedFields"] = [{"manager": "x", "operation": "Apply"}]
    assert api.patch(ns.path("configmaps", "needy"), body, APPLY, fieldManager="m").status == 400


def test_item_049_kubectl_both_ways(api: Api, ns: Namespace, kubectl: Kubectl) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: both}\ndata: {a: '1'}\n"
    kubectl("-n", ns.name, "apply", "--server-side", "-f", "-", stdin=text)
    kubectl("-n", ns.name, "apply", "-f", "-", stdin=text.replace("'1'", "'2'"))
    shown = kubectl(
        "-n", ns.name, "get", "configmap", "both", "-o", "yaml", "--show-managed-fields"
    )
    assert "manager: kubectl" in shown and "manager: kubectl-client-side-apply" in shown
