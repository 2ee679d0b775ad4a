"""Checklist 19 to 42: create, update, patch."""

from __future__ import annotations

import re
import threading
import uuid

import pytest

from tests.cluster import objects
from tests.cluster.api import JSON_PATCH, MERGE, STRATEGIC, Api
from tests.cluster.conftest import Kubectl, Namespace

LEASES, DEPLOYMENTS = "coordination.k8s.io/v1/leases", "apps/v1/deployments"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GENERATED = re.compile(r"a-[bcdfghjklmnpqrstvwxz2456789]{5}")


def test_item_019_generated_names(api: Api, ns: Namespace) -> None:
    names = [
        api.create(ns.path("configmaps"), {"metadata": {"generateName": "a-"}})["metadata"]["name"]
        for _ in range(2)
    ]
    assert all(GENERATED.fullmatch(name) for name in names)
    assert names[0] != names[1]


def test_item_020_a_name_is_required(api: Api, ns: Namespace) -> None:
    answer = api.post(ns.path("configmaps"), {"data": {"a": "b"}})
    assert (answer.status, answer.reason, answer.cause_fields) == (
        422,
        "Invalid",
        ["metadata.name"],
    )


def test_item_021_a_name_is_taken_once(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("once"))
    answer = api.post(ns.path("configmaps"), objects.config_map("once"))
    assert (answer.status, answer.reason, answer.tree["details"]["kind"]) == (
        409,
        "AlreadyExists",
        "configmaps",
    )


def test_item_022_the_namespace_must_be_there(api: Api) -> None:
    answer = api.post("/api/v1/namespaces/no-such-place/configmaps", objects.config_map("a"))
    assert (answer.status, answer.message) == (404, 'namespaces "no-such-place" not found')


def test_item_023_the_server_owns_its_metadata(api: Api, ns: Namespace) -> None:
    mine = {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "selfLink": "/mine",
        "generation": 7,
    }
    made = api.create(ns.path("configmaps"), objects.config_map("owned", **mine))["metadata"]
    assert (
        made["uid"] != "mine"
        and not made["creationTimestamp"].startswith("2001")
        and "selfLink" not in made
    )
    deployment = objects.deployment("owned", 0)
    deployment["metadata"].update(mine)
    assert api.create(ns.path(DEPLOYMENTS), deployment)["metadata"]["generation"] == 1


def test_item_024_an_old_version_conflicts(api: Api, ns: Namespace) -> None:
    old = api.create(ns.path("configmaps"), objects.config_map("raced"))
    assert api.put(ns.path("configmaps", "raced"), {**old, "data": {"a": "2"}}).status == 200
    answer = api.put(ns.path("configmaps", "raced"), {**old, "data": {"a": "3"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message.endswith("please apply your changes to the latest version and try again")


def test_item_025_who_may_put_without_a_version(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("loose"))
    assert (
        api.put(ns.path("configmaps", "loose"), objects.config_map("loose", {"a": "2"})).status
        == 200
    )
    api.create(ns.path(LEASES), objects.lease("strict"))
    answer = api.put(ns.path(LEASES, "strict"), objects.lease("strict", "two"))
    assert answer.status == 422 and "must be specified for an update" in answer.message


def test_item_026_what_changes_nothing_stores_nothing(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("configmaps"), objects.config_map("still"))
    version = made["metadata"]["resourceVersion"]
    with api.watch(
        ns.path("configmaps"), resourceVersion=version, fieldSelector="metadata.name=still"
    ) as watch:
        answer = api.put(ns.path("configmaps", "still"), made)
        assert (answer.status, answer.version) == (200, version)
        api.patch(ns.path("configmaps", "still"), {"data": {"a": "2"}})
        assert watch.next()["object"]["data"] == {"a": "2"}


def test_item_027_putting_what_is_missing(api: Api, ns: Namespace) -> None:
    assert api.put(ns.path("configmaps", "missing"), objects.config_map("missing")).status == 404
    assert api.put(ns.path(LEASES, "missing"), objects.lease("missing")).status == 201


def test_item_028_another_uid_or_name(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("same"))
    answer = api.put(
        ns.path("configmaps", "same"), objects.config_map("same", uid=str(uuid.uuid4()))
    )
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert api.put(ns.path("configmaps", "same"), objects.config_map("other")).status == 400


def test_item_029_generations(api: Api, ns: Namespace) -> None:
    # Not a Deployment: its controller writes annotations, and of Deployments these count too.
    sets = "apps/v1/replicasets"
    path = ns.path(sets, "counted")
    made = api.create(
        ns.path(sets),
        {**objects.deployment("counted", 0, schedulerName="nobody"), "kind": "ReplicaSet"},
    )
    assert made["metadata"]["generation"] == 1
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).meta["generation"] == 1
    labelled = api.get(path).tree
    labelled["metadata"]["labels"]["c"] = "d"
    del labelled["metadata"]["resourceVersion"]
    assert api.put(path, labelled).meta["generation"] == 1
    labelled["spec"]["replicas"] = 1
    assert api.put(path, labelled).meta["generation"] == 2
    status = api.get(path).tree
    status["spec"]["replicas"] = 9
    status["status"]["replicas"] = 7
    del status["metadata"]["resourceVersion"]
    answer = api.put(f"{path}/status", status)
    assert (answer.status, answer.meta["generation"], answer.tree["spec"]["replicas"]) == (
        200,
        2,
        1,
    )
    api.delete(path)


def test_item_030_status_of_new_objects(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("pods"), {**objects.pod("eager"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    name = f"with-status-{uuid.uuid4().hex[:6]}"
    node = api.create(
        "/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": {"cpu": "3"}}}
    )
    assert node["status"]["capacity"] == {"cpu": "3"}
    api.delete(f"/api/v1/nodes/{name}")


def test_item_031_merge_patches(api: Api, ns: Namespace) -> None:
    api.create(
        ns.path("configmaps"),
        objects.config_map("merged", {"a": "1", "b": "2"}, finalizers=["x.io/a", "x.io/b"]),
    )
    assert api.patch(ns.path("configmaps", "merged"), {"data": {"a": None}}).tree["data"] == {
        "b": "2"
    }
    assert api.patch(
        ns.path("configmaps", "merged"), {"metadata": {"finalizers": ["x.io/c"]}}
    ).meta["finalizers"] == ["x.io/c"]
    api.patch(ns.path("configmaps", "merged"), {"metadata": {"finalizers": None}})


def two_containers(name: str, **more: object) -> dict[str, object]:
    containers = [
        objects.container("sleep", "1", name="a"),
        objects.container("sleep", "1", name="b"),
    ]
    tree = objects.deployment(name, 0)
    tree["spec"]["template"]["spec"].update(containers=containers, **more)
    return tree


def test_item_032_strategic_patches_of_named_lists(api: Api, ns: Namespace) -> None:
    api.create(ns.path(DEPLOYMENTS), two_containers("strategic"))
    path = ns.path(DEPLOYMENTS, "strategic")

    def patch(*containers: dict[str, str]) -> list[tuple[str, str]]:
        answer = api.patch(
            path, {"spec": {"template": {"spec": {"containers": list(containers)}}}}, STRATEGIC
        )
        assert answer.status == 200, answer
        return [
            (c["name"], c["image"]) for c in answer.tree["spec"]["template"]["spec"]["containers"]
        ]

    assert patch({"name": "b", "image": "new"}) == [("a", "busybox"), ("b", "new")]
    assert patch({"name": "a", "$patch": "delete"}) == [("b", "new")]


def test_item_033_what_strategic_patches_merge_and_replace(api: Api, ns: Namespace) -> None:
    tree = two_containers("lists", tolerations=[{"key": "old", "operator": "Exists"}])
    tree["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]  # type: ignore[index]
    api.create(ns.path(DEPLOYMENTS), tree)
    more = {
        "containers": [{"name": "a", "env": [{"name": "B", "value": "2"}]}],
        "tolerations": [{"key": "new", "operator": "Exists"}],
    }
    answer = api.patch(
        ns.path(DEPLOYMENTS, "lists"), {"spec": {"template": {"spec": more}}}, STRATEGIC
    )
    spec = answer.tree["spec"]["template"]["spec"]
    assert sorted(entry["name"] for entry in spec["containers"][0]["env"]) == ["A", "B"]
    assert [entry["key"] for entry in spec["tolerations"]] == ["new"]

    name = f"tainted-{uuid.uuid4().hex[:6]}"
    api.create(
        "/api/v1/nodes",
        {"metadata": {"name": name}, "spec": {"taints": [{"key": "old", "effect": "NoSchedule"}]}},
    )
    answer = api.patch(
        f"/api/v1/nodes/{name}",
        {"spec": {"taints": [{"key": "new", "effect": "NoSchedule"}]}},
        STRATEGIC,
    )
    assert [taint["key"] for taint in answer.tree["spec"]["taints"]] == ["new"]
    api.delete(f"/api/v1/nodes/{name}")


def test_item_034_no_strategic_patch_of_a_custom_kind(api: Api, toys: str) -> None:
    api.create(
        toys, {"apiVersion": toy_version(toys), "kind": "Toy", "metadata": {"name": "plain"}}
    )
    answer = api.patch(f"{toys}/plain", {"spec": {}}, STRATEGIC)
    assert answer.status == 415
    assert all(kind in answer.message for kind in (JSON_PATCH, MERGE)), answer


def test_item_025_a_custom_object_needs_its_version(api: Api, toys: str) -> None:
    toy = {"apiVersion": toy_version(toys), "kind": "Toy", "metadata": {"name": "versioned"}}
    api.create(toys, toy)
    assert api.put(f"{toys}/versioned", toy).status == 422


def toy_version(path: str) -> str:
    return "/".join(path.split("/")[2:4])


def test_item_035_json_patches(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("pointed"))
    path = ns.path("configmaps", "pointed")
    assert (
        api.patch(path, [{"op": "test", "path": "/data/a", "value": "no"}], JSON_PATCH).status
        == 422
    )
    answer = api.patch(path, [{"op": "replace", "path": "/data/new", "value": "yes"}], JSON_PATCH)
    assert (answer.status, answer.tree["data"]) == (200, {"a": "1", "new": "yes"})


@pytest.mark.parametrize(
    ("kind", "body"),
    [(MERGE, {}), (STRATEGIC, {}), (JSON_PATCH, [])],
    ids=["merge", "strategic", "json"],
)
def test_item_036_patching_what_is_missing(
    api: Api, ns: Namespace, kind: str, body: object
) -> None:
    assert api.patch(ns.path("configmaps", "nobody"), body, kind).status == 404


def test_item_037_a_patch_may_name_its_version(api: Api, ns: Namespace) -> None:
    version = api.create(ns.path("configmaps"), objects.config_map("dated"))["metadata"][
        "resourceVersion"
    ]
    path = ns.path("configmaps", "dated")
    assert (
        api.patch(path, {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}).status
        == 200
    )
    assert (
        api.patch(path, {"metadata": {"resourceVersion": version}, "data": {"a": "3"}}).status
        == 409
    )


def test_item_038_labels_and_annotations(kubectl: Kubectl, api: Api, ns: Namespace) -> None:
    version = api.create(ns.path("configmaps"), objects.config_map("tagged"))["metadata"][
        "resourceVersion"
    ]
    with api.watch(
        ns.path("configmaps"), resourceVersion=version, fieldSelector="metadata.name=tagged"
    ) as watch:
        for command in (
            ("label", "a=b"),
            ("label", "--overwrite", "a=c"),
            ("annotate", "n=t"),
            ("label", "a-"),
            ("annotate", "n-"),
        ):
            kubectl("-n", ns.name, command[0], "configmap", "tagged", *command[1:])
        seen = [watch.next() for _ in range(5)]
    assert {event["type"] for event in seen} == {"MODIFIED"}
    told = [
        (m.get("labels", {}).get("a"), m.get("annotations", {}).get("n"))
        for m in (event["object"]["metadata"] for event in seen)
    ]
    assert told == [("b", None), ("c", None), ("c", "t"), (None, "t"), (None, None)]
    kubectl("-n", ns.name, "label", "configmap", "tagged", "x=1")
    assert kubectl.run("-n", ns.name, "label", "configmap", "tagged", "x=2").returncode != 0


def test_item_039_parallel_patches_all_arrive(api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), objects.config_map("shared"))
    threads = [
        threading.Thread(
            target=api.patch, args=(ns.path("configmaps", "shared"), {"data": {f"k{number}": "v"}})
        )
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(api.get(ns.path("configmaps", "shared")).tree["data"]) == {
        "a",
        *(f"k{number}" for number in range(8)),
    }


def test_item_040_a_dry_run_stores_nothing(api: Api, ns: Namespace) -> None:
    answer = api.post(ns.path("configmaps"), objects.config_map("dry"), dryRun="All")
    assert answer.status == 201 and answer.meta["uid"]
    assert api.get(ns.path("configmaps", "dry")).status == 404


def test_item_041_unknown_fields(api: Api, ns: Namespace) -> None:
    def create(mode: str) -> object:
        return api.post(
            ns.path("configmaps"),
            {**objects.config_map(f"foo-{mode.lower()}"), "foo": 1},
            fieldValidation=mode,
        )

    strict, warn, ignore = create("Strict"), create("Warn"), create("Ignore")
    assert strict.status == 400 and 'strict decoding error: unknown field "foo"' in strict.message  # type: ignore[attr-defined]
    assert api.get(ns.path("configmaps", "foo-strict")).status == 404
    assert warn.status == 201 and any("unknown field" in text for text in warn.warnings)  # type: ignore[attr-defined]
    assert ignore.status == 201 and not ignore.warnings  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
def test_item_042_a_wrong_type_is_refused_in_every_mode(api: Api, ns: Namespace, mode: str) -> None:
    tree = objects.deployment("typed", 0)
    tree["spec"]["replicas"] = "3"
    answer = api.post(ns.path(DEPLOYMENTS), tree, fieldValidation=mode)
    assert answer.status == 400
    assert api.get(ns.path(DEPLOYMENTS, "typed")).status == 404
