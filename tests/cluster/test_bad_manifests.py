"""Manifests that are wrong: each is refused with the field and the reason, and nothing of it is
stored."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import objects, wire
from tests.cluster.api import JSON, PROTOBUF, YAML, Api, Tree
from tests.cluster.conftest import Namespace

DEPLOYMENTS, JOBS = "apps/v1/deployments", "batch.volcano.sh/v1alpha1/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
LONG = "n" * 64


def changed(tree: Tree, path: str, value: Any) -> Tree:
    """A copy of the tree with one member set, named by dots."""
    tree = json.loads(json.dumps(tree))
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    at: Any = tree
    for part in way:
        at = at[part]
    at[last] = value
    return tree


def job(**spec: Any) -> Tree:
    template = {"spec": {"restartPolicy": "Never", "containers": [objects.container("true")]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "bad"},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": 1,
            "tasks": [{"name": "t", "replicas": 1, "template": template}],
            **spec,
        },
    }


DEPLOYMENT, POD = objects.deployment("bad", 1, schedulerName="nobody"), objects.pod("bad")
CPU = "spec.containers.0.resources"
REFUSED: list[tuple[str, str, Tree, int, str]] = [
    ("unknown field", DEPLOYMENTS, changed(DEPLOYMENT, "spec.foo", 1), 400, 'strict decoding error: unknown field "spec.foo"'),
    ("unknown field of a job", JOBS, changed(job(), "spec.foo", 1), 400, 'strict decoding error: unknown field "spec.foo"'),
    ("unknown field in a template", JOBS, changed(job(), "spec.tasks.0.template.spec.foo", 1), 400,
     'strict decoding error: unknown field "spec.tasks[0].template.spec.foo"'),
    ("wrong type", DEPLOYMENTS, changed(DEPLOYMENT, "spec.replicas", "3"), 400, "replicas"),
    ("wrong type in a job", JOBS, job(minAvailable="two"), 422,
     'spec.minAvailable: Invalid value: "string": spec.minAvailable in body must be of type integer: "string"'),
    ("list for an object", "pods", changed(POD, "spec", []), 400, "spec"),
    ("negative replicas", DEPLOYMENTS, changed(DEPLOYMENT, "spec.replicas", -1), 422,
     "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ("negative replicas of a task", JOBS, changed(job(), "spec.tasks.0.replicas", -1), 422,
     "spec.tasks[0].replicas: Invalid value: -1: spec.tasks[0].replicas in body should be greater than or equal to 0"),
    ("a quantity", "pods", changed(POD, CPU, {"requests": {"cpu": "1.5.5"}}), 400, "quantities must match the regular expression"),
    ("a negative quantity", "pods", changed(POD, CPU, {"requests": {"cpu": "-1"}}), 422, "must be greater than or equal to 0"),
    ("a long label", "configmaps", objects.config_map("bad", labels={"a": LONG}), 422, "must be no more than 63"),
    ("a long container name", "pods", changed(POD, "spec.containers.0.name", LONG), 422,
     "spec.containers[0].name: Invalid value: \"" + LONG + "\": must be no more than 63"),
    ("no image", "pods", changed(POD, "spec.containers.0.image", ""), 422, "spec.containers[0].image: Required value"),
    ("another kind", "pods", changed(POD, "kind", "Node"), 400, "Pod"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "tree", "code", "text"),
    [entry[1:] for entry in REFUSED],
    ids=[entry[0] for entry in REFUSED],
)
def test_refused_with_field_and_reason(
    api: Api, ns: Namespace, resource: str, tree: Tree, code: int, text: str
) -> None:
    if resource == JOBS and api.get(ns.path(JOBS)).status == 404:
        pytest.skip("this cluster has no batch jobs")
    answer = api.post(ns.path(resource), tree, fieldValidation="Strict")
    assert answer.status == code, answer
    assert text in answer.message
    assert "bad" not in api.get(ns.path(resource)).names


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "services"])
def test_a_name_of_64_characters(api: Api, ns: Namespace, path: str) -> None:
    where = path if path.startswith("/") else ns.path(path)
    spec = {} if path.startswith("/") else {"spec": {"ports": [{"port": 80}]}}
    answer = api.post(where, {"metadata": {"name": LONG}, **spec})
    assert answer.status == 422 and "metadata.name" in answer.cause_fields
    assert "must be no more than 63" in answer.message
    assert api.get(f"{where}/{LONG}").status == 404


@pytest.fixture
def closed_queue(api: Api) -> Iterator[str]:
    name = f"shut-{uuid.uuid4().hex[:6]}"
    if api.get(QUEUES).status == 404:
        pytest.skip("this cluster has no queues")
    api.create(
        QUEUES,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1},
        },
    )
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "close-"},
        "action": "CloseQueue",
        "target": {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "name": name,
            "controller": True,
            "uid": api.get(f"{QUEUES}/{name}").meta["uid"],
        },
    }
    api.create("/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", command)
    api.wait(f"{QUEUES}/{name}", lambda queue: queue.get("status", {}).get("state") == "Closed")
    yield name
    api.delete(f"{QUEUES}/{name}")


def test_a_queue_that_does_not_exist(api: Api, ns: Namespace) -> None:
    if api.get(QUEUES).status == 404:
        pytest.skip("this cluster has no queues")
    answer = api.post(ns.path(JOBS), job(queue="no-such-queue"))
    assert answer.status >= 400
    assert (
        'unable to find job queue: queue.scheduling.volcano.sh "no-such-queue" not found'
        in answer.message
    )
    assert api.get(ns.path(JOBS, "bad")).status == 404


def test_a_queue_that_is_closed(api: Api, ns: Namespace, closed_queue: str) -> None:
    answer = api.post(ns.path(JOBS), job(queue=closed_queue))
    assert answer.status >= 400
    assert (
        f"can only submit job to queue with state `Open`, queue `{closed_queue}` status is `Closed`"
        in answer.message
    )
    assert api.get(ns.path(JOBS, "bad")).status == 404


@pytest.mark.parametrize(("body", "content_type", "code", "text"), [
    (b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: bad}\ndata:\n  a: " + b"x" * (4 << 20) + b"\n", YAML, 413, "limit is 3145728"),
    (b"metadata:\n  name: bad\ndata:\n  a: \xff\xfe\n", YAML, 400, "UTF-8"),
    (wire.envelope("v1", "ConfigMap", wire.message((1, wire.metadata("bad"))))[:-9], PROTOBUF, 400, ""),
    (wire.envelope("v1", "ConfigMap", wire.message((1, wire.metadata("bad")))[:-3]), PROTOBUF, 400, ""),
    (b'{"metadata": {"name": "bad"}', JSON, 400, ""),
    (b"metadata: {name: bad\n", YAML, 400, ""),
    (b"", JSON, 400, ""),
], ids=["4 MiB", "UTF-8 in YAML", "cut envelope", "cut object", "cut JSON", "cut YAML", "empty"])  # fmt: skip
def test_bodies_that_cannot_be_read(
    api: Api, ns: Namespace, body: bytes, content_type: str, code: int, text: str
) -> None:
    answer = api.post(ns.path("configmaps"), body, content_type)
    assert answer.status == code, answer
    assert (answer.tree["kind"], answer.tree["status"]) == ("Status", "Failure")
    assert text.lower() in answer.message.lower() and answer.message
    assert "bad" not in api.get(ns.path("configmaps")).names


def test_bytes_that_are_no_text(api: Api, ns: Namespace) -> None:
    """JSON that is no UTF-8 is refused, or its bytes are replaced as Go replaces them; they are
    never stored as they are."""
    answer = api.post(
        ns.path("configmaps"), b'{"metadata": {"name": "no-text"}, "data": {"a": "\xff\xfe"}}', JSON
    )
    if answer.status == 201:
        assert answer.tree["data"] == {"a": "\ufffd\ufffd"}
    else:
        assert answer.status == 400 and "UTF-8" in answer.message
