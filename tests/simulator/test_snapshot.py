"""A cluster with what runs in it goes on from there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.engine.world import policy
from hekla.simulator import clusterfile
from hekla.simulator.outcome import outcome
from hekla.simulator.run import Run
from hekla.simulator.simulation import Simulation, simulate
from hekla.simulator.snapshot import snapshot
from hekla.simulator.workload import InputError, SimulatedJob, node, queue

SECOND = 1_000_000
PLAIN = policy(plugins=["gang", "predicates"], actions="allocate, backfill")


def at(clock: str) -> str:
    return f"2026-03-01T{clock}Z"


def group(name: str, created: str = "11:00:00", minimum: int = 1, **annotations: str) -> Any:
    return {
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"u-{name}",
            "creationTimestamp": at(created),
            "annotations": {key.replace("_", "/"): value for key, value in annotations.items()},
        },
        "spec": {"minMember": minimum, "queue": "default"},
        "status": {"phase": "Running"},
    }


def pod(name: str, group: str = "", on: str = "", since: str = "11:00:00", **more: Any) -> Any:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"u-{name}",
            "creationTimestamp": at("11:00:00"),
            "annotations": {"scheduling.k8s.io/group-name": group} if group else {},
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}],
            **({"nodeName": on} if on else {}),
            **more,
        },
        "status": {"phase": "Running", "startTime": at(since)} if on else {"phase": "Pending"},
    }


NOON = {"metadata": {"name": "seen", "creationTimestamp": at("12:00:00")}, "kind": "Namespace"}
"""The newest object: the cluster was looked at at noon."""
NODES = [node("n1", {"cpu": "4", "pods": "110"}), queue("default"), NOON]
HOUR, NEED = {"hekla.io_walltime": "90m"}, {"hekla.io_walltime": "10m"}


def run(objects: list[Any], default: int | None = None, *more: SimulatedJob) -> Run:
    workload = snapshot(objects, default_duration=default)
    workload.jobs += more
    (found,) = simulate(workload, [PLAIN])
    return found


def times(found: Run) -> dict[str, tuple[float | None, float | None]]:
    """Job -> when it started and ended, in minutes after noon."""
    minutes = 60 * SECOND
    return {
        one.job.name: (
            None if one.started is None else one.started / minutes,
            None if one.ended is None else one.ended / minutes,
        )
        for one in found.jobs
    }


def test_running_pods_hold_their_node_until_their_walltime_and_waiting_ones_come_then() -> None:
    objects = [group("runs", **HOUR), pod("a", "runs", "n1"), group("waits", **NEED), pod("b", "waits")]  # fmt: skip
    assert times(run([*NODES, *objects])) == {"runs": (-60, 30), "waits": (30, 40)}


def test_further_jobs_come_into_it() -> None:
    objects = [group("runs", **HOUR), pod("a", "runs", "n1")]
    more = SimulatedJob("more", 60 * SECOND, 120 * SECOND, {"cpu": "2"})
    found = run([*NODES, *objects], None, more)
    assert times(found)["more"] == (30, 32)
    assert found.by_key["lab/runs"].ended == 30 * 60 * SECOND


def test_what_says_nothing_stays_unless_a_length_is_given() -> None:
    objects = [group("runs"), pod("a", "runs", "n1", since="11:50:00"), group("waits"), pod("b", "waits")]  # fmt: skip
    assert times(run([*NODES, *objects])) == {"runs": (-10, None), "waits": (None, None)}
    given = times(run([*NODES, *objects], 60 * 60 * SECOND))
    assert given == {"runs": (-10, 50), "waits": (50, 110)}


def test_a_walltime_that_is_over_ends_at_once_and_a_queue_has_one_for_those_that_say_nothing() -> (
    None
):
    limited = {**queue("default")}
    limited["metadata"] = {"name": "default", "annotations": {"hekla.io/default-walltime": "1h"}}
    objects = [group("over", **NEED), pod("a", "over", "n1"), group("waits"), pod("b", "waits")]
    assert times(run([NODES[0], limited, NOON, *objects])) == {"over": (-60, 0), "waits": (0, 60)}


def test_pods_that_others_bound_take_their_room_and_count_in_no_figure() -> None:
    theirs = pod("proxy", on="n1", schedulerName="default-scheduler")
    found = run([*NODES, theirs, group("waits", **NEED), pod("b", "waits")], 60 * SECOND)
    assert times(found) == {"waits": (None, None)}
    assert outcome("p", found).all.jobs == 1


def test_a_pod_without_a_group_is_one() -> None:
    found = run([*NODES, pod("alone", activeDeadlineSeconds=600)])
    assert times(found) == {"podgroup-u-alone": (0, 10)}


def test_a_gang_whose_pods_are_not_made_yet_is_made_of_its_job() -> None:
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "lab", "uid": "7", "creationTimestamp": at("11:59:00")},
        "spec": {
            "minAvailable": 2,
            "schedulerName": "volcano",
            "queue": "default",
            "tasks": [
                {
                    "name": "worker",
                    "replicas": 2,
                    "template": {
                        "metadata": {"annotations": {"hekla.io/walltime": "5m"}},
                        "spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "2"}}}]},
                    },
                }
            ],
        },
    }  # fmt: skip
    waiting = {**group("train-7", "11:59:00", minimum=2), "status": {"phase": "Pending"}}
    for objects in ([job, waiting], [job]):
        found = run([*NODES, *objects])
        assert times(found) == {"train-7": (0, 5)}
        assert outcome("p", found).all.mean_wait == 60


def test_pods_that_have_ended_count_for_their_gang() -> None:
    ended = pod("a", "some", "n1")
    ended["status"]["phase"] = "Succeeded"
    gone = pod("c", "gone", "n1")
    gone["status"]["phase"] = "Failed"
    some = group("some", minimum=2, **HOUR)
    found = run([*NODES, some, ended, pod("b", "some"), group("gone"), gone])
    assert times(found) == {"some": (None, 90)}


def test_an_evicted_pod_of_the_cluster_waits_again() -> None:
    rules = policy(
        plugins=["priority", {"name": "gang", "enablePreemptable": False}, "conformance", "predicates"],
        actions="enqueue, allocate, preempt, backfill",
    )  # fmt: skip
    low, high = group("low", **HOUR), group("high", **NEED)
    high["spec"]["priorityClassName"] = "high"
    victim = pod("a", "low", "n1")
    victim["metadata"]["annotations"]["volcano.sh/preemptable"] = "true"
    objects = [low, victim, high, pod("b", "high", priorityClassName="high", priority=9)]
    priority = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    found = Simulation(snapshot([*NODES, priority, *objects]), rules).run()
    assert times(found) == {"low": (-60, 100), "high": (0, 10)}


def test_json_and_lists_and_what_is_left_out() -> None:
    theirs = pod("w", schedulerName="default-scheduler")
    listed = {"kind": "List", "items": [*NODES, theirs, group("empty"), {"kind": "Service"}]}
    workload = clusterfile.read(json.dumps(listed), "c.json")
    assert workload.notes == [
        "c.json: 1 of kind Service left out",
        "c.json: 1 PodGroups have neither pods nor a Job: left out",
        "c.json: 1 pods wait for another scheduler: left out",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "List", "items": [', "c:1: not JSON: "),
        ("kind: Pod\nmetadata: {name: p}\n", "c: there is no Node in it"),
        (
            "kind: Node\nmetadata: {name: n}\n---\nkind: Pod\nspec: {}\n",
            "c: an object is not as the API would have it: KeyError('metadata')",
        ),
    ],
)
def test_a_file_that_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        clusterfile.read(text, "c")
    assert str(error.value).startswith(said)
