"""The plans of workload controllers as functions: objects in, steps out."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.names import JOB_COMPLETION_INDEX
from hekla.api.text.times import stamp
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.daemonset import plan as daemons
from hekla.local.controller_manager.workloads.daemonset.placement import (
    Fit,
    Metadata,
    Node,
    Placement,
    Spec,
    Taint,
    pod_spec,
)
from hekla.local.controller_manager.workloads.job import backoff, indexes
from hekla.local.controller_manager.workloads.job import plan as jobs
from hekla.local.controller_manager.workloads.progress import Conditions
from hekla.local.controller_manager.workloads.replicas import made_now, order_of_removal
from hekla.local.controller_manager.workloads.rollout import Limits, Share, proportional_sizes
from hekla.local.controller_manager.workloads.statefulset import plan as stateful
from hekla.local.controller_manager.workloads.statefulset.identity import ordinal_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def at(seconds: float) -> str:
    return stamp(NOON + seconds)


def pod(
    name,
    phase="Running",
    *,
    ready=None,
    deleting=False,
    node="n",
    ended=None,
    code=0,
    ready_at=0.0,
    **metadata,
):
    ready = phase == "Running" if ready is None else ready
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": at(ready_at)}],
    }
    if ended is not None:
        status["containerStatuses"] = [
            {"name": "c", "state": {"terminated": {"exitCode": code, "finishedAt": at(ended)}}}
        ]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": "owner",
        "controller": True,
    }
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "creationTimestamp": at(0),
        "ownerReferences": [owner],
        **metadata,
    }
    if deleting:
        meta["deletionTimestamp"] = at(0)
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": status}, Pod)


# --- stateful sets


def stateful_set(replicas=3, **spec):
    return {
        "metadata": {"name": "db", "namespace": "ns", "generation": 1},
        "spec": {"replicas": replicas, **spec},
        "status": {},
    }


def member(ordinal, revision="old", **more):
    return pod(f"db-{ordinal}", labels={"controller-revision-hash": revision}, **more)


OLD, BOTH = stateful.Revisions("old", "old"), stateful.Revisions("old", "new")


def steps(tree, pods, revisions=OLD, now=NOON + 100):
    made = stateful.plan(tree, pods, revisions, now)
    return [ordinal for ordinal, _ in made.create], [
        pod.metadata.name for pod in (*made.recreate, *made.delete)
    ]


def test_an_ordered_set_makes_one_pod_at_a_time():
    assert steps(stateful_set(), []) == ([0], [])
    assert steps(stateful_set(), [member(0, ready=False)]) == ([], [])
    assert steps(stateful_set(), [member(0)]) == ([1], [])
    assert steps(stateful_set(minReadySeconds=200), [member(0)]) == ([], [])


def test_a_parallel_set_makes_all():
    assert steps(stateful_set(podManagementPolicy="Parallel"), [member(1, ready=False)]) == (
        [0, 2],
        [],
    )


def test_a_hole_is_filled_before_anything_is_taken_away():
    assert steps(stateful_set(1), [member(2), member(3)]) == ([0], [])


def test_scaling_down_halts_at_the_ill_but_takes_the_last_ill_one():
    assert steps(stateful_set(0), [member(0), member(1), member(2)]) == ([], ["db-2"])
    assert steps(stateful_set(0), [member(0, ready=False), member(1), member(2, ready=False)]) == (
        [],
        [],
    )
    assert steps(stateful_set(0), [member(0), member(1), member(2, ready=False)]) == ([], ["db-2"])


def test_a_new_template_goes_from_the_top_to_the_partition():
    rolling = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}
    assert steps(stateful_set(**rolling), [member(0), member(1), member(2)], BOTH) == ([], ["db-2"])
    assert steps(stateful_set(**rolling), [member(0), member(1), member(2, "new")], BOTH) == (
        [],
        ["db-1"],
    )
    assert steps(
        stateful_set(**rolling), [member(0), member(1, "new"), member(2, "new")], BOTH
    ) == ([], [])
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    assert steps(stateful_set(**on_delete), [member(0), member(1), member(2)], BOTH) == ([], [])


def test_several_at_a_time_where_several_may_be_missing():
    rolling = {
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}},
    }
    assert steps(stateful_set(**rolling), [member(0), member(1), member(2)], BOTH) == (
        [],
        ["db-2", "db-1"],
    )
    assert steps(
        stateful_set(**rolling), [member(0), member(1), member(2, "new", ready=False)], BOTH
    ) == ([], ["db-1"])


def test_pods_below_the_partition_come_back_as_they_were():
    tree = stateful_set(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    assert [stateful.revision_for(tree, ordinal, BOTH) for ordinal in range(3)] == [
        "old",
        "old",
        "new",
    ]


@pytest.mark.parametrize(
    ("name", "ordinal"),
    [("db-0", 0), ("db-10", 10), ("db-01", -1), ("db-x", -1), ("other-1", -1), ("db", -1)],
)
def test_ordinals(name, ordinal):
    assert ordinal_of("db", name) == ordinal


@given(
    replicas=st.integers(0, 6),
    parallel=st.booleans(),
    most=st.integers(1, 3),
    seed=st.integers(0, 500),
)
def test_any_set_comes_to_its_end(replicas, parallel, most, seed):
    """Whatever pods there are and however slowly they become ready: the set ends up whole and of
    the new template."""
    luck = random.Random(seed)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
    tree = stateful_set(
        replicas,
        podManagementPolicy="Parallel" if parallel else "OrderedReady",
        updateStrategy=rolling,
    )
    there = {n: ("old", True) for n in range(8) if luck.random() < 0.5}
    for _ in range(200):
        pods = [member(n, revision, ready=ready) for n, (revision, ready) in there.items()]
        made = stateful.plan(tree, pods, BOTH, NOON + 100)
        assert parallel or len(made.create) + len(made.delete) <= most
        for ordinal, _ in made.create:
            there[ordinal] = ("new", False)
        for gone in (*made.recreate, *made.delete):
            del there[ordinal_of("db", gone.metadata.name)]
        if (
            not made.create
            and not made.delete
            and there == dict.fromkeys(range(replicas), ("new", True))
        ):
            return
        there = {
            n: (revision, ready or luck.random() < 0.7) for n, (revision, ready) in there.items()
        }
    raise AssertionError(f"still at {there}")


# --- daemon sets


def node(name, *taints, **labels):
    return Node(
        Metadata(name=name, labels=labels), Spec(taints=tuple(Taint(*taint) for taint in taints))
    )


def test_which_nodes_suit():
    template = {
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    }
    placement = Placement(template)

    assert placement.on(node("a", disk="ssd")) == Fit(True, True)
    assert placement.on(node("b", disk="hdd")) == Fit(False, False)
    assert placement.on(node("c", ("gpu", "x", "NoExecute"), disk="ssd")) == Fit(True, True)
    assert placement.on(node("d", ("only", "x", "NoSchedule"), disk="ssd")) == Fit(False, True)
    assert placement.on(node("e", ("only", "x", "NoExecute"), disk="ssd")) == Fit(False, False)
    assert placement.on(node("f", ("only", "x", "PreferNoSchedule"), disk="ssd")) == Fit(True, True)
    assert placement.on(
        node("g", ("node.kubernetes.io/unschedulable", "", "NoSchedule"), disk="ssd")
    ) == Fit(True, True)


def test_a_pod_of_a_node_keeps_the_rest_of_its_affinity():
    made = pod_spec(
        {"affinity": {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"preferred": 1}}}, "n7"
    )["affinity"]

    assert made["podAntiAffinity"] == {"x": 1} and made["nodeAffinity"]["preferred"] == 1
    terms = made["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}
    ]


def daemon(name, where, digest="old", **more):
    return pod(name, node=where, labels={"controller-revision-hash": digest}, **more)


def daemon_steps(pods, nodes, resting=None, **rolling):
    tree = {
        "metadata": {"name": "d"},
        "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
    }
    made = daemons.plan(tree, nodes, pods, {"new"}, resting or {}, NOON + 100)
    return sorted(made.create), sorted(pod.metadata.name for pod in made.delete)


WELL = Fit(True, True)


def test_one_pod_a_node():
    nodes = {"a": WELL, "b": WELL, "c": Fit(False, True), "d": Fit(False, False)}
    pods = [daemon(where, where, "new") for where in ("a", "c", "d")]

    assert daemon_steps([*pods, daemon("a2", "a", "new")], nodes) == (["b"], ["a2", "d"])


def test_no_more_nodes_without_a_pod_than_allowed():
    nodes = dict.fromkeys("abc", WELL)
    pods = [daemon(where, where) for where in "abc"]

    assert daemon_steps(pods, nodes, maxUnavailable=2) == ([], ["a", "b"])
    assert daemon_steps(
        [daemon("a", "a", "new", ready=False), *pods[1:]], nodes, maxUnavailable=1
    ) == ([], [])
    assert daemon_steps([daemon("a", "a", ready=False), *pods[1:]], nodes, maxUnavailable=1) == (
        [],
        ["a"],
    )


def test_in_a_surge_old_pods_stay_until_the_new_ones_serve():
    nodes = dict.fromkeys("ab", WELL)
    old = [daemon(where, where) for where in "ab"]

    assert daemon_steps(old, nodes, maxSurge=1, maxUnavailable=0) == (["a"], [])
    assert daemon_steps(
        [*old, daemon("a2", "a", "new", ready=False)], nodes, maxSurge=1, maxUnavailable=0
    ) == ([], [])
    assert daemon_steps([*old, daemon("a2", "a", "new")], nodes, maxSurge=1, maxUnavailable=0) == (
        ["b"],
        ["a"],
    )


def test_a_pod_that_failed_of_late_is_left_for_a_while():
    failed = [daemon("a", "a", "new", phase="Failed")]

    assert daemon_steps(failed, {"a": WELL}) == ([], ["a"])
    assert daemon_steps(failed, {"a": WELL}, resting={"a": 5.0}) == ([], [])


# --- jobs


def job(status=None, **spec):
    spec = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "template": {"spec": {"restartPolicy": "Never"}},
        **spec,
    }
    return {
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": spec,
        "status": status or {"startTime": at(0)},
    }


def run(name, phase="Running", index=None, counted=False, failures=None, **more):
    notes = {} if index is None else {JOB_COMPLETION_INDEX: str(index)}
    if failures is not None:
        notes[indexes.FAILURES] = str(failures)
    ended = {"ended": 0} if phase in ("Succeeded", "Failed") else {}
    return pod(
        name,
        phase,
        annotations=notes,
        finalizers=() if counted else (jobs.TRACKING,),
        **{**ended, **more},
    )


def planned(tree, pods, now=NOON + 1000):
    return jobs.plan(tree, pods, now)


def test_an_end_is_counted_in_three_steps_and_once():
    tree, ended = job(completions=2), run("a", "Succeeded")
    first = planned(tree, [ended])
    assert (
        first.status["uncountedTerminatedPods"] == {"succeeded": ["uid-a"]}
        and "succeeded" not in first.status
    )
    assert first.release == [ended] and first.create == [None]

    again = planned({**tree, "status": first.status}, [ended])
    assert again.status["uncountedTerminatedPods"] == {
        "succeeded": ["uid-a"]
    } and again.release == [ended]

    last = planned({**tree, "status": first.status}, [run("a", "Succeeded", counted=True)])
    assert last.status["succeeded"] == 1 and last.status["uncountedTerminatedPods"] == {}
    assert planned({**tree, "status": last.status}, [])  # the pod may be gone by now
    assert planned({**tree, "status": last.status}, []).status["succeeded"] == 1


def test_the_end_waits_for_the_last_pod_to_be_gone_and_counted():
    target = {
        "type": "FailureTarget",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "m",
    }
    tree = job({"startTime": at(0), "conditions": [target], "failed": 7})
    leaving = planned(tree, [run("a", deleting=True)])
    assert [c["type"] for c in leaving.status["conditions"]] == [
        "FailureTarget"
    ] and leaving.status["terminating"] == 1

    over = planned({**tree, "status": {**leaving.status, "uncountedTerminatedPods": {}}}, [])
    assert [c["type"] for c in over.status["conditions"]] == ["FailureTarget", "Failed"]


def test_failures_are_followed_by_growing_rests():
    failed = [run("a", "Failed", ended=-5), run("b", "Failed", ended=0)]
    made = planned(job(), failed, NOON + 12)

    assert made.create == [] and made.wait == pytest.approx(8.0)
    assert planned(job(), failed, NOON + 21).create == [None]
    assert backoff.delay(10) == backoff.LONGEST


def test_terminating_pods_hold_their_place_where_only_failed_ones_are_replaced():
    leaving = [run("a", deleting=True)]

    assert planned(job(podReplacementPolicy="Failed"), leaving).create == []
    assert planned(job(podReplacementPolicy="TerminatingOrFailed"), leaving).create == [None]


def test_an_index_is_tried_again_by_a_pod_that_knows_how_often():
    tree = job(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=1,
        backoffLimit=2**31 - 1,
    )
    failed = run("a", "Failed", 0, failures=0)
    made = planned(tree, [failed, run("b", index=1)], NOON + 100)
    assert made.create == [0] and made.replaced == {0: failed} and made.release == []

    replaced = planned(
        tree, [failed, run("a2", index=0, failures=1), run("b", index=1)], NOON + 100
    )
    assert replaced.release == [failed] and replaced.status["uncountedTerminatedPods"] == {
        "failed": ["uid-a"]
    }

    lost = planned(tree, [run("a2", "Failed", 0, failures=1), run("b", index=1)], NOON + 100)
    assert lost.status["failedIndexes"] == "0" and lost.create == []


def test_duplicates_and_indexes_that_the_job_lost_go():
    tree = job(completionMode="Indexed", completions=2, parallelism=2)
    made = planned(
        tree, [run("a", index=0), run("b", index=0, creationTimestamp=at(9)), run("c", index=5)]
    )

    assert sorted(pod.metadata.name for pod in made.delete) == ["b", "c"] and made.create == [1]


def test_going_on_starts_the_clock_anew():
    suspended = {
        "type": "Suspended",
        "status": "True",
        "reason": "JobSuspended",
        "message": "Job suspended",
    }
    tree = job(
        {"startTime": at(0), "conditions": [suspended]}, activeDeadlineSeconds=10, suspend=False
    )
    made = planned(tree, [], NOON + 1000)

    assert made.status["startTime"] == at(1000) and made.create == [None]
    assert [(c["type"], c["status"]) for c in made.status["conditions"]] == [("Suspended", "False")]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [({0, 1, 2, 5}, "0-2,5"), ({3}, "3"), ({1, 2}, "1,2"), (set(), ""), ({0, 2, 4}, "0,2,4")],
)
def test_indexes_as_text(numbers, text):
    assert indexes.text_of(numbers) == text
    assert indexes.parse(text) == numbers


@given(
    completions=st.integers(0, 8),
    parallelism=st.integers(1, 5),
    with_index=st.booleans(),
    seed=st.integers(0, 500),
)
def test_any_job_counts_every_end_once(completions, parallelism, with_index, seed):
    """Statuses that are lost on their way, pods that vanish once released: the numbers come out
    right."""
    luck = random.Random(seed)
    mode = {"completionMode": "Indexed"} if with_index else {}
    tree = job({}, completions=completions, parallelism=parallelism, backoffLimit=10**6, **mode)
    there, failures, serial = {}, 0, 0
    for step in range(400):
        made = jobs.plan(tree, list(there.values()), NOON + 1000 * step + 1000)
        if jobs.finished({"status": made.status}):
            assert (
                made.status.get("succeeded", 0) == completions
                and made.status.get("failed", 0) == failures
            )
            return
        for index in made.create:
            serial += 1
            there[f"p{serial}"] = run(f"p{serial}", index=index)
        if luck.random() < 0.8:  # else the write was refused, and nothing after it happened
            tree = {**tree, "status": made.status}
            for gone in made.release:
                there[gone.metadata.name] = msgspec.structs.replace(
                    gone, metadata=msgspec.structs.replace(gone.metadata, finalizers=())
                )
                if luck.random() < 0.5:
                    del there[gone.metadata.name]
        for name, found in list(there.items()):
            if found.active and luck.random() < 0.4:
                phase = luck.choice(["Succeeded", "Succeeded", "Failed"])
                failures += phase == "Failed"
                there[name] = run(name, phase, indexes.index_of(found), ended=-600)
    raise AssertionError(f"still at {tree['status']}")


# --- deployments and replica sets


def test_a_resize_in_the_middle_of_a_rollout_is_shared_in_proportion():
    assert proportional_sizes(30, Limits(3, 2), 13, [Share(8, 13), Share(5, 13)]) == [20, 13]
    assert proportional_sizes(0, Limits(1, 0), 3, [Share(2, 3), Share(1, 3)]) == [0, 0]
    assert sum(proportional_sizes(7, Limits(2, 0), 13, [Share(8, 13), Share(5, 13)])) == 9


def test_what_is_least_useful_goes_first():
    pods = [
        pod("dear", annotations={"controller.kubernetes.io/pod-deletion-cost": "10"}),
        pod("plain"),
        pod("unready", ready=False),
        pod("pending", "Pending"),
        pod("nowhere", "Pending", node=""),
    ]

    assert [p.metadata.name for p in order_of_removal(pods, NOON + 100)] == [
        "nowhere",
        "pending",
        "unready",
        "plain",
        "dear",
    ]


def test_a_condition_keeps_the_time_of_its_last_turn():
    conditions = Conditions([], NOON)
    conditions.set("Available", "True", "A", "m")
    later = Conditions(conditions.list(), NOON + 60)
    later.set("Available", "True", "B", "m")
    found = later.get("Available")
    assert (found["lastTransitionTime"], found["lastUpdateTime"]) == (at(0), at(60))


def test_of_two_thousand_million_pods_a_thousand_wait_at_a_time():
    """Decision 0330.  Up to 10,000 come in bursts, however many wait."""
    most = 2**31 - 1
    waiting = [pod(f"w-{index}", "Pending") for index in range(800)]
    assert (
        made_now(most, []) == 500
        and made_now(most, waiting) == 200
        and made_now(10_000, waiting * 2) == 500
    )
    assert made_now(most, waiting + [pod("w-800", "Pending")] * 200) == 0
    assert made_now(most, [pod("r-1")] * 5_000 + waiting) == 200

    tree = stateful_set(most, podManagementPolicy="Parallel")
    assert steps(tree, []) == (list(range(500)), [])
    there = [member(ordinal, phase="Pending") for ordinal in range(999)] + [
        member(1000, phase="Failed")
    ]
    assert steps(tree, there) == ([999], ["db-1000"])

    for shape in (
        {"parallelism": most, "completions": None},
        {"parallelism": most, "completions": most},
    ):
        assert len(planned(job(**shape), []).create) == 500
        assert not planned(
            job(**shape), [run(f"j-{index}", "Pending") for index in range(1000)]
        ).create
