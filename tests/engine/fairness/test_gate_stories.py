"""Stories of pods that wait at gates: somebody else's, and those that their queue lifts."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World
from tests.engine.fairness.stage import (
    CAPACITY,
    bound,
    cluster,
    conditions,
    gated,
    group,
    lift,
    lone,
    play,
    running,
    sees,
    submitted,
)

GATE = "scheduling.volcano.sh/queue-allocation-gate"


@pytest.mark.scenario("plugins-fairness", 178)
def test_gated_pods_take_nobodys_room() -> None:
    world = cluster(8)
    gated(world, "gated", 8, min_resources={"cpu": 8})
    for name in ("one", "two"):
        submitted(world, name, 4, min_resources={"cpu": 4})
    play(world)
    assert [running(world, name) for name in ("gated", "one", "two")] == [0, 4, 4]


@pytest.mark.parametrize(
    ("pods", "least"),
    [
        pytest.param(3, 3, marks=pytest.mark.scenario("plugins-fairness", 182)),
        pytest.param(3, 1, marks=pytest.mark.scenario("plugins-fairness", 183)),
    ],
)
def test_gates_are_lifted(pods: int, least: int) -> None:
    world = cluster(4)
    gated(world, "gated", pods, least=least)
    play(world)
    assert (sees(world, "gated"), running(world, "gated")) == ("Inqueue", 0)
    assert "Unschedulable" in conditions(world, "gated")
    lift(world, "gated")
    play(world)
    assert (sees(world, "gated"), running(world, "gated")) == ("Running", pods)


@pytest.mark.scenario("plugins-fairness", 188)
def test_a_gated_claimer_waits_for_its_gates() -> None:
    world = cluster(8, actions="allocate, preempt, backfill")
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    gated(world, "greater", 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (8, 0)
    lift(world, "greater")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)


def admitted(
    world: World, pod: str, queue: str, *gates: str, cpu: Any = "500m", **more: Any
) -> None:
    """As the webhook leaves a pod that wants to wait at its queue's gate."""
    named = [{"name": gate} for gate in (*gates, GATE)]
    notes = {GATE: "true"}
    lone(
        world,
        pod,
        queue,
        cpu=cpu,
        annotations=notes,
        spec={"schedulingGates": named, **more},
        about={"phase": "Pending"},
    )


def carry_gates(world: World) -> list[str]:
    """What the carrier does with lifted gates."""
    gone = [one.removeprefix("default/") for one in world.decisions.gates]
    for pod in gone:
        lift(world, f"pg-{pod}", GATE)
    return gone


@pytest.mark.scenario("plugins-fairness", 194)
def test_a_queue_s_gate() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 1})
    admitted(world, "first", "q")
    assert bound(world.run()) == {}
    assert carry_gates(world) == ["first"]
    world.settle()
    assert list(bound(world.run())) == ["first"]
    world.settle()
    admitted(world, "stuck", "q", nodeSelector={"none": "such"})
    world.run()
    assert carry_gates(world) == ["stuck"]
    admitted(world, "late", "q")
    for _ in range(3):
        assert bound(world.run()) == {}
        assert carry_gates(world) == [], "stuck holds the other half of the queue"
        world.settle()
    world.state.remove_pod("default/stuck")
    world.run()
    assert carry_gates(world) == ["late"]
    assert list(bound(world.run())) == ["late"]


@pytest.mark.scenario("plugins-fairness", 194)
def test_gates_stay_where_the_feature_is_off() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.queue("q", capability={"cpu": 1})
    admitted(world, "first", "q")
    for _ in range(2):
        assert bound(world.run()) == {}
        assert world.decisions.gates == []
        world.settle()


@pytest.mark.scenario("plugins-fairness", 195)
def test_another_gate_comes_first() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 1})
    admitted(world, "both", "q", "example.com/wait")
    for _ in range(2):
        world.run()
        assert carry_gates(world) == []
        world.settle()
    lift(world, "pg-both", "example.com/wait")
    world.run()
    assert carry_gates(world) == ["both"]
    assert list(bound(world.run())) == ["both"]


def test_an_undone_placement_keeps_its_reservation() -> None:
    """A gang of two in which only one fits: the pods whose gate was lifted hold the queue all the
    same."""
    world = cluster(1, 1, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 2})
    group(world, "pair", queue="q", min_available=2, phase="Pending")
    for number in range(2):
        world.pod(f"pair-task-{number}", job="pair", cpu=1, annotations={GATE: "true"})
    admitted(world, "third", "q", cpu=1)
    for _ in range(2):
        assert bound(world.run()) == {}
        assert carry_gates(world) == []
        world.settle()
