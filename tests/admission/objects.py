"""Objects that admission stories start from, and one way to ask about them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hekla.admission import Settings, StaticLookup, Verdict, review

Tree = dict[str, Any]

STRICT = Settings(queue_allocated_pods_check=True, max_queue_depth=5)


def container(name: str = "main", **fields: Any) -> Tree:
    return {"name": name, "image": "busybox", **fields}


def template(*containers: Tree, **spec: Any) -> Tree:
    return {"spec": {"containers": list(containers) or [container()], **spec}}


def task(name: str = "task-1", replicas: int = 1, **fields: Any) -> Tree:
    return {"name": name, "replicas": replicas, "template": template(), **fields}


def job(*tasks: Tree, name: str = "train", **spec: Any) -> Tree:
    """The base job: one task of one replica in the default queue."""
    fields = {"minAvailable": 1, "queue": "default", "tasks": list(tasks) or [task()], **spec}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": fields,
    }


def queue(
    name: str,
    parent: str = "root",
    state: str = "Open",
    annotations: Tree | None = None,
    pods: str = "",
    **spec: Any,
) -> Tree:
    status: Tree = {"state": state} if state else {}
    if pods:
        status["allocated"] = {"pods": pods}
    metadata: Tree = {"name": name}
    if annotations:
        metadata["annotations"] = annotations
    fields = {"parent": parent, **spec} if parent else spec
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": metadata,
        "spec": fields,
        "status": status,
    }


def amounts(cpu: Any = None, memory: Any = None, **others: Any) -> Tree:
    given = {"cpu": cpu, "memory": memory, **others}
    return {
        name.replace("gpu", "nvidia.com/gpu"): str(value)
        for name, value in given.items()
        if value is not None
    }


QUEUES = (
    queue("root", parent=""),
    queue("default"),
    queue("shut", state="Closed"),
    queue("new", state=""),
    queue("parentQueue"),
    queue("childQueue", parent="parentQueue"),
)


def ask(
    path: str,
    obj: Tree | None,
    old: Tree | None = None,
    *,
    operation: str = "",
    queues: Any = QUEUES,
    settings: Settings = STRICT,
    namespaces: Any = (),
    name: str = "",
) -> Verdict:
    """Review an object; the objects handed in must come back unchanged."""
    given = copy.deepcopy((obj, old))
    operation = operation or ("UPDATE" if old is not None else "CREATE")
    verdict = review(
        path, operation, obj, old, StaticLookup(queues, namespaces), settings, name=name
    )
    assert (obj, old) == given
    return verdict


def denied(path: str, obj: Tree | None, old: Tree | None = None, **more: Any) -> str:
    """The message of the refusal."""
    verdict = ask(path, obj, old, **more)
    assert not verdict.allowed
    return verdict.message


def patched(path: str, obj: Tree, **more: Any) -> Tree:
    """The object as it is after its mutator."""
    return apply(obj, ask(path, obj, **more).patch or [])


def apply(obj: Tree, patch: list[Tree]) -> Tree:
    """A JSON patch of adds and replaces, which is all that mutators send."""
    result = copy.deepcopy(obj)
    for step in patch:
        *keys, last = [
            key.replace("~1", "/").replace("~0", "~") for key in step["path"].split("/")[1:]
        ]
        target: Any = result
        for key in keys:
            target = target[key]
        if isinstance(target, list):
            target.append(step["value"]) if last == "-" else target.insert(int(last), step["value"])
        else:
            target[last] = step["value"]
    return result


def scenario(number: int, *values: Any, id: str = "") -> Any:
    return pytest.param(
        *values, marks=pytest.mark.scenario("api-and-admission", number), id=id or str(number)
    )


def bare(*tasks: Tree, **spec: Any) -> Tree:
    """A job that says nothing but its tasks."""
    return {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"tasks": list(tasks), **spec},
    }


def partition(total: int, size: int, least: int | None = None, **more: Any) -> Tree:
    policy = {"totalPartitions": total, "partitionSize": size, **more}
    return policy if least is None else {**policy, "minPartitions": least}
