"""Pods are read without what nobody asks for: what the engine makes of them is what it makes of all
that they say."""

from __future__ import annotations

import copy
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hekla.api.kubernetes import core
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Task
from hekla.scheduler import partial_pods
from hekla.scheduler.hash_ring import Ring
from hekla.scheduler.informers import sources
from tests.engine.malformed import OBJECTS
from tests.engine.test_malformed_objects import VALUE, places, spoiled

FULL: dict[str, Any] = copy.deepcopy(OBJECTS["Pod"])
FULL["apiVersion"], FULL["kind"] = "v1", "Pod"
FULL["metadata"] |= {
    "resourceVersion": "7",
    "generation": 2,
    "deletionTimestamp": "2026-01-01T00:00:09Z",
}
FULL["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "B"}], "command": ["true"]}
FULL["spec"]["volumes"] += [
    {"name": "m", "image": {"reference": "i:1"}},
    {"name": "s", "secret": {"secretName": "s"}},
]
FULL["spec"] |= {"resources": {"requests": {"cpu": "3"}}, "serviceAccountName": "default"}
FULL["status"] |= {
    "resize": "Infeasible",
    "podIP": "10.0.0.1",
    "initContainerStatuses": [
        {"name": "i", "resources": {"requests": {"cpu": "2"}}, "ready": True}
    ],
}
FULL["status"]["conditions"] += [
    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
    {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "lastProbeTime": None},
]

EXCERPTS: dict[tuple[str, ...], Any] = {
    (): partial_pods.Pod,
    ("metadata",): partial_pods.Metadata,
    ("metadata", "ownerReferences"): partial_pods.Owner,
    ("spec",): partial_pods.Spec,
    ("spec", "containers"): partial_pods.Container,
    ("spec", "initContainers"): partial_pods.Container,
    ("spec", "volumes"): partial_pods.Volume,
    ("status",): partial_pods.Status,
    ("status", "conditions"): partial_pods.Condition,
    ("status", "containerStatuses"): partial_pods.ContainerStatus,
    ("status", "initContainerStatuses"): partial_pods.ContainerStatus,
}


def taken(tree: dict[str, Any]) -> tuple[dict[tuple[str, str], str], list[dict[str, Any]]]:
    """What the state has of a pod, and of it bound to a node."""
    state = State(scheduler_names=["volcano"], bare_pod_schedulers=["default-scheduler"])
    found = []
    for node in ("", "n1"):
        bound = copy.deepcopy(tree)
        if isinstance(bound.get("spec"), dict) and node:
            bound["spec"]["nodeName"] = node
        state.upsert_pod(bound)
        found += [said_of(task) for task in state.tasks.values()]
    return state.rejected, found


def said_of(task: Task) -> dict[str, Any]:
    pods = task.pods
    found = {
        name: getattr(task, name)
        for name in Task.__slots__
        if name not in ("pods", "labels", "job", "subjob", "stated")
    }
    found |= {
        "request": pods.request.amounts,
        "labels": task.labels.labels,
        "job": task.job.key if task.job else "",
    }
    return found | {
        name: repr(getattr(pods, name))
        for name in ("images", "ports", "volumes", "claims", "limits", "annotations", "tolerations")
    }


def read(tree: dict[str, Any], kind: Any) -> Any:
    return kind.decode(msgspec.json.encode(tree))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_pod_is_to_the_state_what_its_whole_is(data: st.DataObject) -> None:
    tree = FULL
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.sampled_from([place for place in places(tree) if place]))
        tree = spoiled(tree, at, data.draw(VALUE))
    assert repr(taken(read(tree, partial_pods.POD))) == repr(taken(read(tree, core.POD.untyped)))


class Asked(dict[str, Any]):
    """A part of a tree that notes what is asked of it."""

    def __init__(
        self, tree: dict[str, Any], at: tuple[str, ...], asked: set[tuple[tuple[str, ...], str]]
    ) -> None:
        super().__init__({name: noting(value, (*at, name), asked) for name, value in tree.items()})
        self.at, self.asked = at, asked

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add((self.at, name))
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.asked.add((self.at, name))
        return super().__getitem__(name)


def noting(tree: Any, at: tuple[str, ...], asked: set[tuple[tuple[str, ...], str]]) -> Any:
    if isinstance(tree, dict):
        return Asked(tree, at, asked)
    return [noting(one, at, asked) for one in tree] if isinstance(tree, list) else tree


@pytest.mark.parametrize("ring", [None, Ring(["volcano-0"], "volcano-0")])
@pytest.mark.parametrize("node", ["", "n1"])
def test_nothing_is_asked_of_a_pod_that_is_not_read(ring: Ring | None, node: str) -> None:
    asked: set[tuple[tuple[str, ...], str]] = set()
    source = next(one for one in sources(State(), ring=ring) if one.kind is core.POD)
    for resized in (True, False):
        tree = copy.deepcopy(FULL)
        tree["spec"]["nodeName"] = node
        if not resized:  # so that the spec is asked as it came, and the pod for how it stays
            del (
                tree["metadata"]["deletionTimestamp"],
                tree["status"]["containerStatuses"],
                tree["status"]["initContainerStatuses"],
            )
        source.upsert(noting(tree, (), asked))
    assert (("spec",), "volumes") in asked
    for at, name in asked:
        if at in EXCERPTS:
            assert name in get_type_hints(EXCERPTS[at]), f"{name} of {'.'.join(at)}"


def test_what_is_not_asked_for_is_not_read() -> None:
    found = read(FULL, partial_pods.POD)
    assert "env" not in found["spec"]["containers"][0]
    assert "podIP" not in found["status"]
    assert found["spec"]["containers"][0]["resources"] == FULL["spec"]["containers"][0]["resources"]
