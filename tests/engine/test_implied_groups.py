"""Pods that stand alone are groups of one without a PodGroup object, and fare as with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import names
from hekla.controllers.podgroup import group_of_pod
from hekla.engine import State
from hekla.engine.cycle import cycle
from hekla.engine.world import World, policy

ROOT = Path(__file__).parents[2]

Tree = dict[str, Any]
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "r",
    "controller": True,
}


def cluster(*, implied: bool = True, actions: str = "enqueue, allocate, backfill") -> World:
    here = World(policy(actions=actions))
    here.state = State(scheduler_names=["volcano"], implied_groups=implied)
    here.queue("default")
    here.nodes("n1", "n2", cpu=4)
    return here


def pod(name: str, cpu: str = "1", **metadata: Any) -> Tree:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Pending"},
    }


def decide(here: World, *pods: Tree) -> Any:
    for one in pods:
        here.state.upsert_pod(one)
    return cycle(here.state, here.policy, here.now)


def test_a_pod_is_bound_and_nothing_is_said_of_a_group() -> None:
    here = cluster()
    decided = decide(here, pod("a"))
    assert [(one.pod, one.job) for one in decided.binds] == [
        ("default/a", "default/podgroup-uid-a")
    ]
    assert not decided.pod_groups and not decided.events
    assert [(one.name, one.allocated["cpu"]) for one in decided.queues] == [("default", "1")]


def test_of_a_pod_that_runs_already_there_is_nothing_to_report() -> None:
    here = cluster()
    running = pod("a")
    running["spec"]["nodeName"] = "n1"
    running["status"] = {"phase": "Running"}
    decided = decide(here, running, pod("b", cpu="4"))
    assert [one.pod for one in decided.binds] == ["default/b"]
    assert [(one.name, one.allocated["cpu"]) for one in decided.queues] == [("default", "5")]
    job = here.state.jobs["default/podgroup-uid-a"]
    assert not job.conditions and not job.plugin_state
    decided = decide(here, {**running, "status": {"phase": "Succeeded"}})
    assert here.state.jobs[job.key].phase == "Completed"
    assert [(one.name, one.allocated["cpu"]) for one in decided.queues] == [("default", "4")]


def test_it_waits_for_an_object_where_the_state_implies_none() -> None:
    assert not decide(cluster(implied=False), pod("a")).binds


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": [OWNER]},
        {"annotations": {names.PREEMPTABLE: "true"}},
        {"labels": {names.COOLDOWN_TIME: "10m"}},
        {"annotations": {names.NETWORK_TOPOLOGY_MODE: "hard"}},
        {"annotations": {names.JDB_MIN_AVAILABLE: "1"}},
        {"annotations": {names.GROUP_NAME: "gang"}},
    ],
)
def test_a_pod_that_asks_something_of_a_group_waits_for_it(metadata: Tree) -> None:
    assert not decide(cluster(), pod("a", **metadata)).binds


def test_its_queue_is_its_own_or_that_of_its_namespace() -> None:
    here = cluster()
    here.queue("mine")
    here.queue("theirs")
    here.state.upsert_namespace(
        {"metadata": {"name": "default", "annotations": {names.GROUP_QUEUE_NAME: "theirs"}}}
    )
    decide(here, pod("a"), pod("b", annotations={names.GROUP_QUEUE_NAME: "mine"}))
    assert {job.title: job.queue for job in here.state.jobs.values()} == {
        "a": "theirs",
        "b": "mine",
    }


def test_the_pod_of_the_page() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text().partition("## Pods without a Job")[2]
    shown = yaml.safe_load(page.partition("```yaml")[2].partition("```")[0])
    shown["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    here = cluster()
    here.queue("reports")
    assert [one.pod for one in decide(here, shown).binds] == ["default/report"]
    assert here.state.jobs["default/podgroup-u"].queue == "reports"


def test_it_is_not_let_into_a_closed_queue_and_says_so() -> None:
    here = cluster()
    here.queue("shut", state="Closed")
    decided = decide(here, pod("a", annotations={names.GROUP_QUEUE_NAME: "shut"}))
    assert not decided.binds
    assert decided.explanations["default/podgroup-uid-a"].text.count("shut")


def test_it_says_that_its_queue_does_not_exist() -> None:
    decided = decide(cluster(), pod("a", annotations={names.GROUP_QUEUE_NAME: "gone"}))
    assert [(one.pod, one.reason) for one in decided.conditions] == [("default/a", "QueueNotFound")]


def test_one_that_does_not_fit_says_so_itself_and_the_object_takes_over() -> None:
    here = cluster()
    large = pod("a", cpu="5")
    decided = decide(here, large)
    assert not decided.binds and not decided.pod_groups
    assert [(one.key, one.reason) for one in decided.events] == [("default/a", "FailedScheduling")]
    here.state.upsert_pod_group(group_of_pod(large, {}))
    assert not here.state.jobs["default/podgroup-uid-a"].shadow
    named = pod("a", cpu="5", annotations={names.GROUP_NAME: "podgroup-uid-a"})
    decided = decide(here, named)
    assert [one.key for one in decided.pod_groups] == ["default/podgroup-uid-a"]
    assert list(here.state.jobs) == ["default/podgroup-uid-a"]


def test_a_running_one_counts_for_its_queue_after_a_start() -> None:
    here = cluster()
    running = pod("a")
    running["spec"]["nodeName"], running["status"] = "n1", {"phase": "Running"}
    decided = decide(here, running)
    assert [(one.name, one.allocated["cpu"]) for one in decided.queues] == [("default", "1")]
    here.state.remove_pod("default/a")
    assert not here.state.jobs


@pytest.mark.parametrize(
    "amounts",
    [
        {"limits": {"cpu": "x"}},
        {"limits": {"a.b/c": "x"}},
        {"requests": {"odd": {}}},
        {"limits": 1},
    ],
)
def test_one_that_cannot_be_read_leaves_nothing(amounts: Tree) -> None:
    here = cluster()
    odd = pod("a")
    odd["spec"]["containers"][0]["resources"] = amounts
    odd["spec"]["nodeName"], odd["status"] = "n1", {"phase": "Running"}
    decide(here, odd)
    assert ("Pod", "default/a") in here.state.rejected
    assert not here.state.tasks and not here.state.jobs
    assert not here.state.nodes.tasks[here.state.nodes.rows["n1"]]


def test_its_binding_and_its_start_find_it_where_it_is() -> None:
    here = cluster()
    decide(here, pod("a"))
    job = here.state.jobs["default/podgroup-uid-a"]
    for phase in ("Pending", "Running"):
        seen = pod("a")
        seen["spec"]["nodeName"], seen["status"] = "n1", {"phase": phase}
        assert not decide(here, seen).binds
        assert here.state.jobs["default/podgroup-uid-a"] is job and len(job.tasks) == 1
    assert job.phase == "Running"


one_pod = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["0", "500m", "1", "3", "5"]),
        "important": st.booleans(),
        "queue": st.sampled_from(["default", "b"]),
        "runs": st.sampled_from([None, None, "n1", "n2"]),
    }
)


def described(number: int, one: Tree) -> Tree:
    made = pod(f"p{number}", one["cpu"], annotations={names.GROUP_QUEUE_NAME: one["queue"]})
    if one["important"]:
        made["spec"] |= {"priorityClassName": "high", "priority": 1000}
    if one["runs"]:
        made["spec"]["nodeName"], made["status"] = one["runs"], {"phase": "Running"}
    return made


def with_object(here: World, one: Tree) -> None:
    """The PodGroup that the controllers would make, and its name on the pod."""
    group = group_of_pod(one, {})
    group["metadata"]["creationTimestamp"] = one["metadata"]["creationTimestamp"]
    if one["spec"].get("nodeName"):
        group["status"] = {"phase": "Running"}
    here.state.upsert_pod_group(group)
    one["metadata"]["annotations"][names.GROUP_NAME] = group["metadata"]["name"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(one_pod, min_size=1, max_size=9),
    st.sampled_from(
        [
            "enqueue, allocate, backfill",
            "allocate, backfill",
            "enqueue, allocate, preempt, reclaim, backfill",
        ]
    ),
)
def test_pods_fare_as_with_their_objects(pods: list[Tree], actions: str) -> None:
    found = []
    for implied in (True, False):
        here = cluster(implied=implied, actions=actions)
        here.queue("b")
        here.priority_class("high", 1000)
        trees = [described(number, one) for number, one in enumerate(pods)]
        for tree in () if implied else trees:
            with_object(here, tree)
        decided = [decide(here, *trees), decide(here)]
        found.append(
            (
                [(one.pod, one.node, one.job) for some in decided for one in some.binds],
                [(one.pod, one.job, one.reason) for some in decided for one in some.evictions],
                [(one.pod, one.reason, one.message) for some in decided for one in some.conditions],
                {name: dict(queue.allocated) for name, queue in here.state.queues.items()},
            )
        )
    assert found[0] == found[1]
