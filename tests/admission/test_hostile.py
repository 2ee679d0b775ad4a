"""Objects of any shape: a rule may refuse them, it never fails on them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.admission import Settings, StaticLookup, review
from hekla.admission.registry import ADMISSIONS
from hekla.admission.review import ResourceGroup
from hekla.admission.reviews import answer
from tests.admission.objects import QUEUES, apply, job, queue, task

SETTINGS = Settings(resource_groups=(ResourceGroup("g", labels={"a": "b"}),), scheduling_gates=True)
LOOKUP = StaticLookup(QUEUES)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**33), 2**33)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
KEYS = st.sampled_from(
    ["spec", "metadata", "status", "tasks", "name", "replicas", "minAvailable", "template", "containers", "policies", "event",
     "events", "exitCode", "action", "plugins", "volumes", "queue", "parent", "capability", "deserved", "guarantee", "resource",
     "annotations", "labels", "partitionPolicy", "networkTopology", "dependsOn", "flows", "targets", "members", "selector",
     "regexMatch", "pattern", "schedule", "timeZone", "schedulerName", "tolerations", "affinity", "resources", "requests", "cpu"]
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, TREES, max_size=5)


@pytest.mark.parametrize("path", ADMISSIONS)
@settings(max_examples=30, deadline=None)
@given(obj=OBJECTS, old=OBJECTS)
def test_any_tree_gets_a_verdict(path: str, obj: dict[str, Any], old: dict[str, Any]):
    for operation in ("CREATE", "UPDATE", "DELETE"):
        verdict = review(path, operation, obj, old, LOOKUP, SETTINGS)

        assert verdict.allowed == (not verdict.message)
        json.dumps(verdict.patch)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(tree, dict):
        return found + [
            place for key, value in tree.items() for place in places(value, (*path, key))
        ]
    if isinstance(tree, list):
        return found + [
            place for index, value in enumerate(tree) for place in places(value, (*path, index))
        ]
    return found


SOUND = {
    "/jobs/mutate": job(
        task(partitionPolicy={"totalPartitions": 1, "partitionSize": 1}),
        plugins={"mpi": ["--master=task-1"]},
    ),
    "/jobs/validate": job(
        task(policies=[{"event": "PodFailed", "action": "AbortJob"}], dependsOn={"name": []}),
        plugins={"svc": []},
    ),
    "/queues/validate": queue(
        "q",
        parent="default",
        capability={"cpu": "1"},
        deserved={"cpu": "1"},
        guarantee={"resource": {"cpu": "1"}},
    ),
}


@pytest.mark.parametrize("path", SOUND)
@pytest.mark.parametrize(
    "bad", [None, 7, -1, True, "text", [], ["x"], {}, {"a": 1}, [[{}]]], ids=repr
)
def test_one_wrong_value_anywhere_gets_a_verdict(path: str, bad: Any):
    for place in places(SOUND[path]):
        obj = copy.deepcopy(SOUND[path])
        target: Any = obj
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = bad
        verdict = review(path, "CREATE", obj, None, LOOKUP, SETTINGS)
        if verdict.patch:
            apply(obj, verdict.patch)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | TREES.map(lambda tree: json.dumps({"request": tree}).encode()))
def test_any_body_gets_an_answer(body: bytes):
    content, _, verdict = answer(ADMISSIONS["/jobs/validate"], body, LOOKUP, SETTINGS)

    assert json.loads(content)["response"]["allowed"] is verdict.allowed


def test_a_bottomless_body_gets_an_answer():
    body = b'{"request": {"object": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}}"

    assert answer(ADMISSIONS["/jobs/validate"], body, LOOKUP, SETTINGS)[2].allowed is False
