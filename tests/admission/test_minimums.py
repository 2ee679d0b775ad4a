"""A minimum that admission filled in follows the replicas; one that was written stays (decision
0188)."""

import copy
import json
from typing import Any

import pytest

from hekla.api.names import FILLED_MINIMUMS
from tests.admission.objects import Tree, apply, ask, job, task

MUTATE, VALIDATE = "/jobs/mutate", "/jobs/validate"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def created(*tasks: Tree, **spec: Any) -> Tree:
    """A job as it is stored; without a minimum of its own unless one is said."""
    obj = job(*tasks, **spec)
    if "minAvailable" not in spec:
        del obj["spec"]["minAvailable"]
    return apply(obj, ask(MUTATE, obj).patch or [])


def updated(stored: Tree, replicas: dict[int, int], **changes: Any) -> tuple[Tree, str]:
    """The job after an update of replicas alone (and of what is said), and what is said against it."""
    obj = copy.deepcopy(stored)
    obj["spec"].update(changes)
    for index, count in replicas.items():
        obj["spec"]["tasks"][index]["replicas"] = count
    obj = apply(obj, ask(MUTATE, obj, stored).patch or [])
    return obj, ask(VALIDATE, obj, stored).message


def minimums(obj: Tree) -> tuple[int, list[int]]:
    return obj["spec"]["minAvailable"], [each["minAvailable"] for each in obj["spec"]["tasks"]]


def test_an_elastic_job_shrinks_and_grows_by_its_replicas_alone() -> None:
    stored = created(task("a", 4), minAvailable=1)
    assert (
        minimums(stored) == (1, [4]) and stored["metadata"]["annotations"][FILLED_MINIMUMS] == "a"
    )
    for count in (2, 6, 0, 3):
        stored, message = updated(stored, {0: count})
        assert not message or count == 0
        assert minimums(stored) == (1, [count])


def test_the_jobs_own_minimum_follows_too_where_it_was_filled_in() -> None:
    stored = created(task("a", 4), task("b", 2, minAvailable=1))
    assert (
        minimums(stored) == (5, [4, 1])
        and stored["metadata"]["annotations"][FILLED_MINIMUMS] == "*,a"
    )
    stored, message = updated(stored, {0: 2})
    assert (minimums(stored), message) == ((3, [2, 1]), "")
    stored, message = updated(stored, {1: 5})
    assert (minimums(stored), message) == ((3, [2, 1]), ""), "of b one was written"


def test_what_was_written_stays() -> None:
    stored = created(task("a", 4, minAvailable=4), minAvailable=1)
    assert FILLED_MINIMUMS not in stored["metadata"].get("annotations", {})
    obj, message = updated(stored, {0: 2})
    assert (
        minimums(obj) == (1, [4]) and message == "'minAvailable' must be <= 'replicas' in task: a"
    )
    stored = created(task("a", 4), minAvailable=4)
    assert (
        "job 'minAvailable' must not be greater than total replicas" in updated(stored, {0: 2})[1]
    )


def test_what_is_written_later_is_somebodys_own_from_then_on() -> None:
    stored = created(task("a", 4), minAvailable=1)
    changed = copy.deepcopy(stored)
    changed["spec"]["tasks"][0]["minAvailable"] = 3
    stored = apply(changed, ask(MUTATE, changed, stored).patch or [])
    assert stored["metadata"]["annotations"][FILLED_MINIMUMS] == ""
    stored, message = updated(stored, {0: 3})
    assert minimums(stored) == (1, [3]) and not message
    assert "'minAvailable' must be <= 'replicas'" in updated(stored, {0: 2})[1]


def test_a_client_that_replaces_the_job_takes_no_mark_away() -> None:
    stored = created(task("a", 4), minAvailable=1)
    replaced = copy.deepcopy(stored)
    del replaced["metadata"]["annotations"]
    replaced["spec"]["tasks"][0]["replicas"] = 2
    obj = apply(replaced, ask(MUTATE, replaced, stored).patch or [])
    assert minimums(obj) == (1, [2]) and obj["metadata"]["annotations"][FILLED_MINIMUMS] == "a"


@pytest.mark.parametrize(("written", "least"), [({}, 2), ({"minAvailable": 4}, 4)])
def test_of_a_job_from_before_the_manifest_that_was_applied_says_it(
    written: Tree, least: int
) -> None:
    stored = created(task("a", 4), minAvailable=1)
    manifest = job(task("a", 4, **written))
    stored["metadata"]["annotations"] = {APPLIED: json.dumps(manifest)}
    assert minimums(updated(stored, {0: 2})[0]) == (1, [least])
    for broken in ("", "{", "[]", '{"spec": 3}', '{"spec": {"tasks": [4]}}'):
        stored["metadata"]["annotations"] = {APPLIED: broken}
        assert minimums(updated(stored, {0: 2})[0]) == (1, [4])


def test_partitions_follow_their_least() -> None:
    policy = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 2}
    stored = created(task("a", 8, partitionPolicy=policy), minAvailable=1)
    assert minimums(stored) == (1, [4])
    fewer = copy.deepcopy(stored)
    fewer["spec"]["tasks"][0]["replicas"] = 6
    assert minimums(apply(fewer, ask(MUTATE, fewer, stored).patch or [])) == (1, [4])


def test_a_look_at_a_job_changes_nothing() -> None:
    stored = created(task("a", 4), task("b", 2, minAvailable=1))
    assert ask(MUTATE, stored, stored).patch is None
