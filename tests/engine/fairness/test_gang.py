"""gang, priority, conformance: when a group counts as broken, and who is whose victim."""

from __future__ import annotations

import pytest

from hekla.engine.model.tasks import SCHEDULED, Status
from hekla.engine.placement.victims import in_order
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import (
    bound,
    conditions,
    evicted,
    group,
    job,
    lone,
    names,
    opened,
    pipelined,
    task,
    terminating,
)


def quiet(min_available: int, phase: str = "Running") -> World:
    """A world in which nothing is placed, with the group g."""
    world = World(policy(plugins=["gang", "predicates"], actions="backfill"))
    world.nodes("n1", cpu=2)
    group(world, "g", min_available=min_available, phase=phase)
    return world


@pytest.mark.scenario("plugins-fairness", 1)
def test_a_group_that_only_loses_pods_that_are_still_there_is_not_blamed() -> None:
    world = quiet(2)
    world.pod("a", job="g", node="n1", cpu=1)
    world.pod("b", job="g", node="n1", cpu=1)
    terminating(world, "b")
    world.run()
    assert conditions(world, "g") == {}
    assert world.phase("g") == "Running"


@pytest.mark.scenario("plugins-fairness", 2)
def test_with_a_replacement_that_waits_it_is() -> None:
    world = quiet(2)
    world.pod("a", job="g", node="n1", cpu=1)
    world.pod("b", job="g", node="n1", cpu=1)
    world.pod("c", job="g", cpu=1)
    terminating(world, "b")
    world.run()
    blamed = conditions(world, "g")["Unschedulable"]
    assert blamed["reason"] == "NotEnoughResources"
    assert blamed["message"].startswith("1/3 tasks in gang unschedulable: pod group is not ready, ")


@pytest.mark.scenario("plugins-fairness", 3)
def test_and_with_one_that_is_promised_the_room() -> None:
    world = quiet(2)
    world.policy = policy(plugins=["gang", "predicates"], actions="allocate")
    world.pod("a", job="g", node="n1", cpu=1)
    world.pod("b", job="g", node="n1", cpu=1)
    world.pod("c", job="g", cpu=1)
    terminating(world, "b")
    assert pipelined(world.run()) == {"c": "n1"}
    assert conditions(world, "g")["Unschedulable"]["message"].startswith(
        "1/3 tasks in gang unschedulable"
    )


@pytest.mark.scenario("plugins-fairness", 4)
def test_a_pod_that_goes_before_it_had_a_node_excuses_nothing() -> None:
    world = quiet(1)
    world.pod("a", job="g", cpu=1)
    terminating(world, "a")
    world.run()
    assert conditions(world, "g")["Unschedulable"]["message"].startswith(
        "1/1 tasks in gang unschedulable"
    )


@pytest.mark.scenario("plugins-fairness", 5)
def test_nor_do_too_few() -> None:
    world = quiet(3)
    world.pod("a", job="g", node="n1", cpu=1)
    world.pod("b", job="g", node="n1", cpu=1)
    terminating(world, "b")
    world.run()
    assert conditions(world, "g")["Unschedulable"]["message"].startswith(
        "2/2 tasks in gang unschedulable"
    )


@pytest.mark.scenario("plugins-fairness", 6)
def test_counters() -> None:
    world = quiet(1)
    for name, phase, node in (
        ("run", "Running", "n1"),
        ("bound", "Pending", "n1"),
        ("failed", "Failed", "n1"),
        ("done", "Succeeded", "n1"),
        ("waits", "Pending", ""),
        ("r1", "Running", "n1"),
        ("r2", "Pending", "n1"),
        ("r3", "Pending", ""),
    ):
        world.pod(name, job="g", node=node, phase=phase)
    terminating(world, "r1", "r2", "r3")
    counts = job(world, "g").counts
    assert counts.of(*SCHEDULED) == 4
    leaving = counts.statuses[Status.RELEASING].values()
    assert (len(leaving), sum(1 for one in leaving if one.row >= 0)) == (3, 2)


@pytest.mark.parametrize(
    ("least", "pods", "before", "after"),
    [
        pytest.param(
            1, ["leaving"], "Running", "Running", marks=pytest.mark.scenario("plugins-fairness", 7)
        ),
        pytest.param(
            2,
            ["runs", "leaving"],
            "Running",
            "Running",
            marks=pytest.mark.scenario("plugins-fairness", 8),
        ),
        pytest.param(
            2,
            ["leaving", "leaving"],
            "Running",
            "Running",
            marks=pytest.mark.scenario("plugins-fairness", 9),
        ),
        pytest.param(
            2,
            ["lost", "waits"],
            "Pending",
            "Pending",
            marks=pytest.mark.scenario("plugins-fairness", 10),
        ),
        pytest.param(
            2,
            ["done", "done"],
            "Running",
            "Completed",
            marks=pytest.mark.scenario("plugins-fairness", 11),
        ),
        pytest.param(
            2, ["leaving"], "Running", "Pending", marks=pytest.mark.scenario("plugins-fairness", 12)
        ),
        pytest.param(
            2,
            ["runs", "waits"],
            "Running",
            "Unknown",
            marks=pytest.mark.scenario("plugins-fairness", 13),
        ),
    ],
)
def test_phases(least: int, pods: list[str], before: str, after: str) -> None:
    world = quiet(least, before)
    for number, kind in enumerate(pods):
        placed = kind not in ("lost", "waits")
        phase = {"done": "Succeeded", "lost": "Pending", "waits": "Pending"}.get(kind, "Running")
        world.pod(f"p{number}", job="g", node="n1" if placed else "", phase=phase, cpu=1)
        if kind in ("leaving", "lost"):
            terminating(world, f"p{number}")
    world.run()
    assert world.phase("g") == after


@pytest.mark.scenario("plugins-fairness", 14)
@pytest.mark.parametrize(
    ("kind", "expected"), [("gangreclaim", ["high", "low"]), ("gangpreempt", ["low"])]
)
def test_gangs_preempt_lower_priorities_and_reclaim_from_all(
    kind: str, expected: list[str]
) -> None:
    world = World(policy(plugins=["priority"]))
    world.nodes("n1")
    for name, value in (("c1000", 1000), ("c500", 500), ("c100", 100)):
        world.priority_class(name, value)
    lone(world, "high", priority="c1000", node="n1")
    lone(world, "low", priority="c100", node="n1")
    lone(world, "claims", priority="c500")
    session = opened(world)
    assert (
        names(
            session.votes.evictable(
                kind, job(world, "pg-claims"), [task(world, "high"), task(world, "low")]
            )
        )
        == expected
    )


@pytest.mark.parametrize(
    ("preempts", "gone"),
    [
        pytest.param(True, ["plain"], marks=pytest.mark.scenario("plugins-fairness", 15)),
        pytest.param(False, [], marks=pytest.mark.scenario("plugins-fairness", 16)),
    ],
)
def test_priority_alone_preempts_if_it_may(preempts: bool, gone: list[str]) -> None:
    world = World(
        policy(
            plugins=[{"name": "priority", "enablePreemptable": preempts}, "predicates"],
            actions="allocate, preempt",
        )
    )
    world.priority_class("low", 10)
    world.priority_class("high", 1000)
    world.nodes("node1", cpu=6)
    group(world, "lesser", priority="low")
    world.pod("dear", job="lesser", node="node1", cpu=3, spec={"priority": 1000})
    world.pod("plain", job="lesser", node="node1", cpu=3)
    lone(world, "claims", priority="high", cpu=3)
    decisions = world.run()
    assert evicted(decisions) == gone
    assert pipelined(decisions) == ({"claims": "node1"} if preempts else {})
    assert bound(decisions) == {}


@pytest.mark.scenario("plugins-fairness", 17)
@pytest.mark.parametrize("ask", ["preemptable", "reclaimable", "evictable"])
def test_the_cluster_s_own_pods_are_nobodys_victims(ask: str) -> None:
    world = World(policy(plugins=["conformance"]))
    world.nodes("n1")
    world.pod("system", namespace="kube-system", node="n1")
    world.pod("user", namespace="shop", node="n1")
    world.pod(
        "vital", namespace="shop", node="n1", spec={"priorityClassName": "system-node-critical"}
    )
    world.pod(
        "grave", namespace="shop", node="n1", spec={"priorityClassName": "system-cluster-critical"}
    )
    world.pod(
        "loud",
        namespace="shop",
        node="n1",
        spec={"priorityClassName": "mine", "priority": 2_000_000_000},
    )
    lone(world, "claims")
    session = opened(world)
    candidates = [one for one in world.state.tasks.values() if one.row >= 0]
    preemptor = task(world, "claims")
    answers = {
        "preemptable": lambda: session.votes.preemptable(preemptor, candidates),
        "reclaimable": lambda: session.votes.reclaimable(preemptor, candidates),
        "evictable": lambda: session.votes.evictable("gangpreempt", preemptor.job, candidates),  # type: ignore[arg-type]
    }
    assert names(answers[ask]()) == ["user", "loud"]


@pytest.mark.scenario("plugins-fairness", 18)
@pytest.mark.parametrize("claimer_known", [True, False])
def test_of_equal_jobs_the_lesser_task_goes_first(claimer_known: bool) -> None:
    world = World(policy(plugins=["priority"]))
    world.nodes("n1")
    lone(world, "dear", node="n1", spec={"priority": 100})
    lone(world, "cheap", node="n1", spec={"priority": 1})
    lone(world, "claims")
    if not claimer_known:
        world.state.remove_pod_group("default/pg-claims")
    session = opened(world)
    order = in_order(session, [task(world, "dear"), task(world, "cheap")], task(world, "claims"))
    assert names(order) == ["cheap", "dear"]


def test_a_gang_offers_what_is_above_its_minimum() -> None:
    world = World(policy(plugins=["gang"]))
    world.nodes("n1")
    group(world, "g", min_available=2)
    for number in range(4):
        world.pod(f"p{number}", job="g", node="n1")
    group(world, "free", min_available=0)
    world.pod("f0", job="free", node="n1")
    lone(world, "claims")
    session = opened(world)
    candidates = [task(world, name) for name in ("p2", "p0", "p1", "f0")]
    assert names(session.votes.preemptable(task(world, "claims"), candidates)) == ["p2", "p0", "f0"]


def test_the_count_of_unready_jobs_covers_those_that_do_not_change() -> None:
    world = quiet(2)
    world.pod("a", job="g", node="n1", cpu=1)
    world.pod("b", job="g", node="n1", cpu=1, phase="Failed")
    counts = []
    for number in range(3):
        lone(world, f"fresh{number}", cpu=1)
        counts += [
            value for name, _, value in world.run().metrics if name == "unschedule_job_count"
        ]
    assert counts == [2.0, 3.0, 4.0]
