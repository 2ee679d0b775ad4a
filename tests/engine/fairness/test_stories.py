"""Whole stories: jobs come, cycles run, what was decided comes true, until nothing is left to
decide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.fairness.stage import (
    bound,
    cluster,
    conditions,
    group,
    lone,
    play,
    running,
    sees,
    submitted,
    terminating,
)


@pytest.mark.scenario("plugins-fairness", 168)
def test_a_job_that_fills_the_cluster() -> None:
    world = cluster(8)
    submitted(world, "job", 8, 2)
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 8)


@pytest.mark.scenario("plugins-fairness", 169)
def test_three_of_them_reach_their_minima() -> None:
    world = cluster(8)
    for name in "abc":
        submitted(world, name, 8, 2)
    play(world)
    assert all(running(world, name) >= 2 and sees(world, name) == "Running" for name in "abc")


@pytest.mark.scenario("plugins-fairness", 170)
def test_a_gang_waits_until_there_is_room_for_all_of_it() -> None:
    world = cluster(8)
    for number in range(5):
        lone(world, f"replica-{number}", cpu=1, about={"phase": "Pending"})
    play(world)
    submitted(world, "gang", 5)
    play(world)
    assert (sees(world, "gang"), running(world, "gang")) == ("Inqueue", 0)
    assert conditions(world, "gang")["Unschedulable"]["reason"] == "NotEnoughResources"
    for number in range(5):
        world.state.remove_pod(f"default/replica-{number}")
        world.state.remove_pod_group(f"default/pg-replica-{number}")
        del world.groups[f"default/pg-replica-{number}"]
    play(world)
    assert (sees(world, "gang"), running(world, "gang")) == ("Running", 5)


@pytest.mark.scenario("plugins-fairness", 171)
def test_the_first_gang_is_not_touched_by_the_second() -> None:
    world = cluster(8, actions="enqueue, allocate, preempt, reclaim, backfill")
    submitted(world, "first", 8)
    play(world)
    submitted(world, "second", 8)
    told = play(world)
    assert (running(world, "first"), running(world, "second")) == (8, 0)
    assert sees(world, "second") in ("Pending", "Inqueue")
    assert not [one for decisions in told for one in decisions.evictions]


@pytest.mark.scenario("plugins-fairness", 172)
@pytest.mark.parametrize("best_effort_first", [True, False])
def test_a_gang_of_pods_that_ask_and_pods_that_do_not(best_effort_first: bool) -> None:
    world = cluster(4)
    group(world, "mixed", min_available=6, phase="Pending")
    kinds: list[dict[str, Any]] = [{}] * 3 + [{"cpu": 1}] * 3
    for number, asked in enumerate(kinds if best_effort_first else kinds[::-1]):
        world.pod(f"mixed-task-{number}", job="mixed", **asked)
    play(world)
    assert (sees(world, "mixed"), running(world, "mixed")) == ("Running", 6)


@pytest.mark.scenario("plugins-fairness", 173)
def test_best_effort_pods_that_come_later() -> None:
    world = cluster(4)
    submitted(world, "job", 4)
    play(world)
    for number in range(3):
        world.pod(f"job-extra-{number}", job="job", role="extra")
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 7)


@pytest.mark.scenario("plugins-fairness", 174)
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_job_that_has_ended(end: str) -> None:
    world = cluster(4)
    submitted(world, "batch", 2)
    play(world)
    assert sees(world, "batch") == "Running"
    world.end("batch", phase=end)
    world.run()
    world.settle()
    assert sees(world, "batch") == "Completed"


@pytest.mark.scenario("plugins-fairness", 176)
def test_fair_shares_of_queues_and_jobs() -> None:
    """What the original skips: by weight between queues, by dominant share between jobs of one."""
    world = cluster(12, 3)
    world.queue("one", weight=1)
    world.queue("two", weight=2)
    for queue in ("one", "two"):
        for number in range(2):
            submitted(world, f"{queue}-{number}", 12, 1, queue=queue)
    play(world)
    held = {name: running(world, name) for name in ("one-0", "one-1", "two-0", "two-1")}
    assert held == {"one-0": 2, "one-1": 2, "two-0": 4, "two-1": 4}


@pytest.mark.scenario("plugins-fairness", 176)
def test_several_preemptors_at_once() -> None:
    world = cluster(8, actions="allocate, preempt, backfill")
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    for name in ("x", "y"):
        submitted(world, name, 3, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "x"), running(world, "y")) == (2, 3, 3)


@pytest.mark.scenario("plugins-fairness", 177)
def test_without_the_action_enqueue() -> None:
    world = cluster(4, actions="allocate, backfill")
    submitted(world, "job", 4, min_resources={"cpu": 400})
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 4)


@pytest.mark.parametrize(
    ("guarantee", "asked", "pods"),
    [
        pytest.param(4, 1, 8, marks=pytest.mark.scenario("plugins-fairness", 179)),
        pytest.param(7, "1500m", 1, marks=pytest.mark.scenario("plugins-fairness", 180)),
    ],
)
def test_what_is_guaranteed_to_one_queue_is_nobody_elses(
    guarantee: int, asked: Any, pods: int
) -> None:
    world = cluster(8)
    world.queue("sure", guarantee={"cpu": guarantee})
    world.queue("other")
    total = "1500m" if pods == 1 else pods
    submitted(world, "job", pods, queue="other", cpu=asked, min_resources={"cpu": total})
    play(world)
    assert (running(world, "job"), sees(world, "job")) == (0, "Pending")
    assert "insufficient cpu" in world.why("job")


@pytest.mark.scenario("plugins-fairness", 181)
def test_as_far_as_the_loop_says() -> None:
    """Of 4 cpu q1 deserves 2.5 and q2 its 0.5: q1 may have the half that it asks for on top."""
    world = cluster(4, 1)
    world.queue("q1")
    world.queue("q2")
    for number in range(2):
        lone(world, f"one-{number}", "q1", node="n0", cpu=1)
    lone(world, "two", "q2", node="n0", cpu="500m")
    lone(world, "more", "q1", cpu="500m", about={"phase": "Pending"})
    assert bound(world.run()) == {"more": "n0"}


PREEMPTING = "allocate, preempt, backfill"


@pytest.mark.scenario("plugins-fairness", 184)
def test_preemption_takes_what_it_needs() -> None:
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "lesser", 4, 1, priority="low")
    submitted(world, "greater", 4, 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    submitted(world, "greater", 8, 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)


@pytest.mark.scenario("plugins-fairness", 185)
def test_who_is_not_let_in_preempts_nobody() -> None:
    world = cluster(8, actions="enqueue, allocate, preempt, backfill")
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    submitted(world, "greater", 1, priority="high", min_resources={"cpu": 30})
    play(world)
    assert (sees(world, "greater"), running(world, "greater"), running(world, "lesser")) == (
        "Pending",
        0,
        8,
    )


@pytest.mark.scenario("plugins-fairness", 186)
def test_preemption_stays_in_its_queue() -> None:
    world = cluster(8, actions=PREEMPTING)
    world.queue("q1")
    world.queue("q2")
    for queue in ("q1", "q2"):
        submitted(world, f"lesser-{queue}", 4, 1, priority="low", queue=queue)
    play(world)
    submitted(world, "greater", 2, priority="high", queue="q1")
    play(world)
    assert [running(world, name) for name in ("lesser-q1", "lesser-q2", "greater")] == [2, 4, 2]


@pytest.mark.scenario("plugins-fairness", 187)
def test_nobody_goes_for_a_gang_that_would_not_fit() -> None:
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "equal", 5, priority="high")
    submitted(world, "lesser", 3, 1, priority="low")
    play(world)
    submitted(world, "greater", 4, priority="high")
    told = play(world)
    assert [running(world, name) for name in ("equal", "lesser", "greater")] == [5, 3, 0]
    assert not [one for decisions in told for one in decisions.evictions]


@pytest.mark.scenario("plugins-fairness", 189)
def test_the_one_that_is_in_the_way_goes_and_bystanders_stay() -> None:
    arguments = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}]
    world = cluster(12, 3, actions="allocate, preempt", configurations=arguments)
    for number in range(3):
        lone(
            world,
            f"bystander-{number}",
            priority="low",
            node=f"n{number}",
            cpu=1,
            about={"min_available": 0},
        )
        app = {"app": "loud"} if number else {}
        lone(
            world,
            f"blocker-{number}",
            priority="mid",
            node=f"n{number}",
            cpu=1,
            labels=app,
            about={"min_available": 0},
        )
    lone(world, "full", priority="high", node="n0", cpu=2)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }
    apart = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    own = {"matchLabels": {"job": "greater"}}
    alone = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    apart["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].append(
        alone
    )
    submitted(
        world,
        "greater",
        2,
        priority="high",
        labels={"job": "greater"},
        spec={**apart, "nodeSelector": {"rack": "b"}},
    )
    world.nodes("n1", "n2", cpu=4, memory="64Gi", labels={"rack": "b"})
    told = play(world)
    assert sorted(one.pod for decisions in told for one in decisions.evictions) == [
        "default/blocker-1",
        "default/blocker-2",
    ]
    assert running(world, "greater") == 2


@pytest.mark.scenario("plugins-fairness", 193)
@pytest.mark.parametrize(("pods", "least"), [(1, 1), (2, 2)])
def test_a_member_that_takes_long_to_end(pods: int, least: int) -> None:
    world = cluster(4)
    submitted(world, "job", pods, least)
    play(world)
    terminating(world, "job-task-0")
    for _ in range(8):
        world.now += 2
        world.run()
        world.settle()
        assert sees(world, "job") == "Running"
        assert "Unschedulable" not in conditions(world, "job")
