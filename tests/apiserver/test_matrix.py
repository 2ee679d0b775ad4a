"""Every kind, verb and subresource that discovery shows is tried: what is advertised works
(local-cluster 1.7).

The list of what is tried is read from the server, so a kind that is served tomorrow is tried
tomorrow.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.encoding import fields, protobuf
from hekla.local.apiserver.objects.kind import Kind
from tests.apiserver.http import JSON_PATCH, MERGE, Http
from tests.apiserver.samples import CONDITION, body

KINDS = [kind for kind in builtin.kinds() if "create" in kind.verbs and "get" in kind.verbs]
WITH_STATUS = [kind for kind in KINDS if "status" in kind.subresources]
WITH_SCALE = [kind for kind in KINDS if "scale" in kind.subresources]
DELETED_TOGETHER = [kind for kind in KINDS if "deletecollection" in kind.verbs]


def name_of(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}.{kind.version}"


NAMES = [name_of(kind) for kind in KINDS]
PROTOBUF = protobuf.MEDIA_TYPE


def base(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return (
        f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    )


def enclosed(kind: Kind, tree: dict[str, Any]) -> bytes:
    described = fields.root(kind.group, kind.version, kind.kind)
    assert described is not None
    return protobuf.enclose(kind.api_version, kind.kind, protobuf.encode(tree, described))


def prefix(kind: Kind, what: str) -> str:
    return f"{what}-{kind.kind.lower()}-{kind.version}"


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_an_object_lives_through_all_verbs(http: Http, kind: Kind) -> None:
    tree = body(kind.group, kind.kind, prefix(kind, "m"))
    name = tree["metadata"]["name"]
    one = f"{base(kind)}/{name}"
    listed = http.get(base(kind))
    assert listed.tree["kind"] == f"{kind.kind}List", listed
    made = http.post(base(kind), tree)
    assert made.status == 201, made
    assert made.tree["kind"] == kind.kind and made.tree["metadata"]["uid"]
    assert made.tree["metadata"].get("generation") == (1 if kind.strategy.generation else None)
    assert http.post(base(kind), tree).status == 409
    assert http.get(one).tree["metadata"]["name"] == name
    with http.watch(
        f"{base(kind)}?watch=1&fieldSelector=metadata.name={name}&resourceVersion={listed.version}"
    ) as watched:
        assert watched.next()["type"] == "ADDED"
        patched = http.patch(one, {"metadata": {"labels": {"patched": "yes"}}}, MERGE)
        assert patched.status == 200 and patched.tree["metadata"]["labels"]["patched"] == "yes", (
            patched
        )
        while (event := watched.next())["object"]["metadata"]["labels"].get("patched") != "yes":
            pass
        assert event["type"] == "MODIFIED"
    pointed = http.patch(
        one, [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}], JSON_PATCH
    )
    assert pointed.status == 200, pointed
    updated = None
    # The server writes the status of quotas and definitions meanwhile.
    while updated is None or updated.status == 409:
        current = http.get(one).tree
        current["metadata"]["labels"]["updated"] = "yes"
        updated = http.put(one, current)
    assert updated.status == 200 and updated.tree["metadata"]["labels"]["updated"] == "yes", updated
    chosen = http.get(f"{base(kind)}?labelSelector=updated=yes,app=matrix")
    assert name in chosen.names
    table = http.get(base(kind), Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.tree["kind"] == "Table" and table.tree["columnDefinitions"][0]["name"] in (
        "Name",
        "Last Seen",
    ), table
    gone = http.delete(one)
    assert gone.status == 200, gone


def emptied(tree: Any, of: type) -> Any:
    """The tree with null for each of its lists, or maps, below the metadata."""
    if isinstance(tree, list):
        return [emptied(item, of) for item in tree]
    if not isinstance(tree, dict):
        return tree
    within = {
        name: None if isinstance(value, of) else emptied(value, of) for name, value in tree.items()
    }
    return {**within, "metadata": tree["metadata"]} if "metadata" in tree else within


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_null_for_lists_and_maps_is_stored_or_refused_and_can_be_patched(
    http: Http, kind: Kind
) -> None:
    for number, of in enumerate((list, dict)):
        tree = body(kind.group, kind.kind, prefix(kind, f"e{number}"))
        one = f"{base(kind)}/{tree['metadata']['name']}"
        for first in (emptied(tree, of), tree):
            made = http.post(base(kind), first)
            assert made.status in (201, 400, 409, 422), made
            for change in (
                {"metadata": {"annotations": {"patched": "true"}}},
                emptied({**tree, "metadata": {}}, of),
            ):
                assert http.patch(one, change, MERGE).status in (200, 404, 409, 422), change
            assert http.put(one, emptied(http.get(one).tree, of)).status < 500
            http.delete(one)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_body_in_protobuf_is_the_same_object(http: Http, kind: Kind) -> None:
    plain, packed = (
        body(kind.group, kind.kind, prefix(kind, "j")),
        body(kind.group, kind.kind, prefix(kind, "p")),
    )
    plain.pop("stringData", None)
    packed.pop("stringData", None)
    first = http.post(f"{base(kind)}?dryRun=All", plain)
    second = http.post(f"{base(kind)}?dryRun=All", enclosed(kind, packed), PROTOBUF)
    assert (first.status, second.status) == (201, 201), (first, second)
    told = json.dumps(second.tree).replace(packed["metadata"]["name"], plain["metadata"]["name"])
    assert shape(json.loads(told)) == shape(first.tree)


def shape(tree: Any) -> Any:
    """The names in a tree, without what is new each time."""
    if isinstance(tree, dict):
        return {key: shape(value) for key, value in tree.items()}
    return [shape(item) for item in tree] if isinstance(tree, list) else None


@pytest.mark.parametrize("kind", WITH_STATUS, ids=name_of)
def test_status_is_apart(http: Http, kind: Kind) -> None:
    tree = body(kind.group, kind.kind, prefix(kind, "s"))
    name = tree["metadata"]["name"]
    one = f"{base(kind)}/{name}"
    assert http.post(base(kind), tree).status == 201
    before = http.get(f"{one}/status").tree
    assert before["metadata"]["name"] == name
    patch: dict[str, Any] = {"status": {"conditions": [CONDITION]}}
    if kind.kind in STATUS:
        patch = {"status": STATUS[kind.kind]}
    told = http.patch(f"{one}/status", patch, MERGE)
    assert told.status == 200, told
    for key, value in patch["status"].items():
        assert told.tree["status"].get(key), (key, value, told)
    assert told.tree.get("spec") == before.get("spec")
    assert told.tree["metadata"].get("generation") == before["metadata"].get("generation")
    kept = http.put(one, {**http.get(one).tree, "status": {}})
    while kept.status == 409:  # the server itself writes the status of a definition
        kept = http.put(one, {**http.get(one).tree, "status": {}})
    for key, value in patch["status"].items():
        found = kept.tree["status"].get(key)
        assert found == value or (isinstance(value, list) and value[0] in (found or [])), kept
    written = None
    while written is None or written.status == 409:
        whole = http.get(f"{one}/status").tree
        whole["metadata"].setdefault("annotations", {})["by"] = "status"
        written = http.put(f"{one}/status", whole)
    assert written.status == 200, written
    http.delete(one)


STATUS: dict[str, dict[str, Any]] = {
    "ResourceQuota": {"used": {"count/nothings.matrix.example.com": "0"}},
    "Service": {
        "conditions": [
            {
                "type": "Seen",
                "status": "True",
                "reason": "r",
                "message": "it was seen",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    },
    "Ingress": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
    "VolumeAttachment": {"attached": True},
    "ReplicationController": {"observedGeneration": 1},
    "PersistentVolume": {"message": "told by a test", "reason": "Told"},
    "CronJob": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
    "ResourceClaim": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d0"}
                ]
            }
        }
    },
    "HorizontalPodAutoscaler": {"currentReplicas": 1, "desiredReplicas": 2},
}


@pytest.mark.parametrize("kind", DELETED_TOGETHER, ids=name_of)
def test_a_collection_is_deleted_by_label(http: Http, kind: Kind) -> None:
    for number in range(2):
        tree = body(kind.group, kind.kind, prefix(kind, "ab"[number]))
        tree["metadata"]["labels"]["collection"] = "yes" if number else "no"
        assert http.post(base(kind), tree).status == 201
    gone = http.delete(f"{base(kind)}?labelSelector=collection=yes")
    assert gone.status == 200, gone
    left = [
        item["metadata"]
        for item in http.get(f"{base(kind)}?labelSelector=collection").tree["items"]
    ]
    assert [
        metadata["labels"]["collection"] for metadata in left if "deletionTimestamp" not in metadata
    ] == ["no"]
    http.delete(f"{base(kind)}?labelSelector=collection")


@pytest.mark.parametrize("kind", WITH_SCALE, ids=name_of)
def test_a_scale_is_read_and_written(http: Http, kind: Kind) -> None:
    tree = body(kind.group, kind.kind, prefix(kind, "z"))
    one = f"{base(kind)}/{tree['metadata']['name']}"
    assert http.post(base(kind), tree).status == 201
    scale = http.get(f"{one}/scale").tree
    assert scale["kind"] == "Scale" and scale["status"]["selector"] == "app=matrix"
    scale["spec"]["replicas"] = 2
    assert http.put(f"{one}/scale", scale).tree["spec"]["replicas"] == 2
    assert (
        http.patch(f"{one}/scale", {"spec": {"replicas": 1}}, MERGE).tree["spec"]["replicas"] == 1
    )
    assert http.get(one).tree["spec"]["replicas"] == 1


def test_what_discovery_shows_is_what_is_tried(http: Http) -> None:
    shown = set()
    for path in [
        "/api/v1",
        *(
            f"/apis/{v['groupVersion']}"
            for g in http.get("/apis").tree["groups"]
            for v in g["versions"]
        ),
    ]:
        for entry in http.get(path).tree["resources"]:
            if "/" not in entry["name"] and {"create", "get"} <= set(entry["verbs"]):
                group, _, version = (
                    path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
                )
                shown.add(f"{entry['name']}.{group}.{version}")
    built_in = {name for name in shown if "matrix.example.com" not in name}
    assert built_in == set(NAMES)
