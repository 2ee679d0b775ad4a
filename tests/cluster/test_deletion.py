"""Checklist 50 to 61: delete, finalizers, owners."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.api import Api, Tree, steadily
from tests.cluster.conftest import Namespace

REPLICA_SETS = "apps/v1/replicasets"
HOLD = "example.com/hold"


def owned_by(
    owner: Tree, kind: str = "ConfigMap", *, block: bool = False, version: str = "v1"
) -> dict[str, Any]:
    meta = owner["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [{**reference, "blockOwnerDeletion": True} if block else reference]}


def test_item_050_finalizers_hold(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("configmaps"), objects.config_map("held", finalizers=[HOLD]))
    path = ns.path("configmaps", "held")
    answer = api.delete(path)
    assert answer.status == 200 and answer.meta["deletionTimestamp"]
    assert "held" in api.get(ns.path("configmaps")).names
    with api.watch(
        ns.path("configmaps"), resourceVersion=answer.version, fieldSelector="metadata.name=held"
    ) as watch:
        released = api.patch(path, {"metadata": {"finalizers": None}})
        assert (released.status, released.meta["uid"]) == (200, made["metadata"]["uid"])
        assert watch.take(1) == [("DELETED", "held")]
    assert api.get(path).status == 404


def test_item_051_no_finalizer_is_added_while_deleting(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("late", finalizers=[HOLD]))
    path = ns.path("configmaps", "late")
    api.delete(path)
    answer = api.patch(path, {"metadata": {"finalizers": [HOLD, "example.com/more"]}})
    assert (answer.status, set(answer.cause_fields)) == (422, {"metadata.finalizers"})
    assert "no new finalizers can be added if the object is being deleted" in answer.message
    api.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(("field", "value"), [("uid", "another"), ("resourceVersion", "1")])
def test_item_052_preconditions(api: Api, ns: Namespace, field: str, value: str) -> None:
    name = f"guarded-{field.lower()}"
    api.create(ns.path("configmaps"), objects.config_map(name))
    answer = api.delete(ns.path("configmaps", name), {"preconditions": {field: value}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert api.get(ns.path("configmaps", name)).status == 200


def test_item_053_twice_is_once_too_often(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("brief"))
    assert [api.delete(ns.path("configmaps", "brief")).status for _ in range(2)] == [200, 404]


def test_item_054_a_bound_pod_has_its_grace(api: Api, ns: Namespace) -> None:
    path = ns.path("pods", "graceful")
    api.create(
        ns.path("pods"),
        objects.pod("graceful", nodeName="no-such-node", terminationGracePeriodSeconds=100),
    )
    api.patch(f"{path}/status", {"status": {"phase": "Running"}})
    now = datetime.datetime.now(datetime.UTC)
    meta = api.delete(path).meta
    ends = datetime.datetime.fromisoformat(meta["deletionTimestamp"])
    assert 95 < (ends - now).total_seconds() < 105 and meta["deletionGracePeriodSeconds"] == 100
    assert api.get(path).status == 200
    assert api.delete(path, {"gracePeriodSeconds": 0}).status == 200
    assert api.get(path).status == 404


def test_item_055_pods_that_do_not_run_go_at_once(api: Api, ns: Namespace) -> None:
    api.create(ns.path("pods"), objects.pod("unbound"))
    api.create(ns.path("pods"), objects.pod("done", nodeName="no-such-node"))
    api.patch(ns.path("pods", "done", "status"), {"status": {"phase": "Succeeded"}})
    for name in ("unbound", "done"):
        assert api.delete(ns.path("pods", name)).status == 200
        assert api.get(ns.path("pods", name)).status == 404


def test_item_056_a_collection_by_label(api: Api, ns: Namespace) -> None:
    for name, color in (("x1", "red"), ("x2", "red"), ("x3", "blue")):
        api.create(ns.path("configmaps"), objects.config_map(name, labels={"color": color}))
    answer = api.delete(ns.path("configmaps"), labelSelector="color=red")
    assert (answer.status, answer.tree["kind"], sorted(answer.names)) == (
        200,
        "ConfigMapList",
        ["x1", "x2"],
    )
    assert api.get(ns.path("configmaps"), labelSelector="color").names == ["x3"]


def test_item_057_background_takes_dependents_along(api: Api, ns: Namespace) -> None:
    owner = api.create(ns.path("configmaps"), objects.config_map("owner-b"))
    api.create(ns.path("secrets"), {"metadata": {"name": "child-b", **owned_by(owner)}})
    api.delete(ns.path("configmaps", "owner-b"), {"propagationPolicy": "Background"})
    assert api.get(ns.path("configmaps", "owner-b")).status == 404
    api.gone(ns.path("secrets", "child-b"))


def test_item_057_orphans_stay(api: Api, ns: Namespace) -> None:
    owner = api.create(ns.path("configmaps"), objects.config_map("owner-o"))
    api.create(ns.path("secrets"), {"metadata": {"name": "child-o", **owned_by(owner)}})
    api.delete(ns.path("configmaps", "owner-o"), {"propagationPolicy": "Orphan"})
    api.gone(ns.path("configmaps", "owner-o"))
    assert "ownerReferences" not in api.get(ns.path("secrets", "child-o")).meta
    steadily(lambda: api.get(ns.path("secrets", "child-o")).status == 200, 1)


def test_item_058_foreground_waits_for_dependents(api: Api, ns: Namespace) -> None:
    owner = api.create(ns.path("configmaps"), objects.config_map("owner-f"))
    api.create(
        ns.path("secrets"),
        {"metadata": {"name": "child-f", "finalizers": [HOLD], **owned_by(owner, block=True)}},
    )
    answer = api.delete(ns.path("configmaps", "owner-f"), {"propagationPolicy": "Foreground"})
    assert "foregroundDeletion" in answer.meta["finalizers"]
    api.wait(
        ns.path("secrets", "child-f"), lambda child: child["metadata"].get("deletionTimestamp")
    )
    steadily(lambda: api.get(ns.path("configmaps", "owner-f")).status == 200, 1)
    api.patch(ns.path("secrets", "child-f"), {"metadata": {"finalizers": None}})
    api.gone(ns.path("configmaps", "owner-f"))


def test_item_059_a_dangling_owner(api: Api, ns: Namespace) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "6f0c0000-0000-4000-8000-000000000000"}}
    api.create(ns.path("configmaps"), objects.config_map("dangling", **owned_by(ghost)))
    api.gone(ns.path("configmaps", "dangling"))


def test_item_060_a_namespace_empties_before_it_goes(
    api: Api, new_ns: Callable[[], Namespace], toys: str
) -> None:
    doomed = new_ns()
    toy_path = toys.replace("/default/", f"/{doomed.name}/")
    api.create(
        toy_path,
        {
            "apiVersion": "/".join(toys.split("/")[2:4]),
            "kind": "Toy",
            "metadata": {"name": "in-it"},
        },
    )
    api.create(doomed.path("configmaps"), objects.config_map("stubborn", finalizers=[HOLD]))
    path = f"/api/v1/namespaces/{doomed.name}"
    assert api.delete(path).tree["status"]["phase"] == "Terminating"
    refused = api.post(doomed.path("configmaps"), objects.config_map("too-late"))
    assert (refused.status, refused.cause_reasons) == (403, ["NamespaceTerminating"])
    api.gone(f"{toy_path}/in-it")
    assert api.get(path).tree["status"]["phase"] == "Terminating"
    api.patch(doomed.path("configmaps", "stubborn"), {"metadata": {"finalizers": None}})
    api.gone(path)


def test_item_061_the_default_namespace_stays(api: Api) -> None:
    answer = api.delete("/api/v1/namespaces/default")
    assert (answer.status, answer.reason) == (403, "Forbidden")
