"""drf: whose turn it is, and from whom a job may take."""

from __future__ import annotations

import pytest

from hekla.engine.model.decisions import MOST_JOBS
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import bound, gauges, group, lone, names, opened, task
from tests.engine.flags import only


def shared() -> World:
    world = World(
        policy(plugins=["drf", only("proportion", "QueueOrder"), "predicates"], actions="allocate"),
        default_queue=False,
    )
    world.queue("q-1")
    world.queue("q-2")
    world.nodes("n1", cpu=5, memory="5Gi")
    return world


@pytest.mark.scenario("plugins-fairness", 26)
def test_the_queue_that_has_nothing_goes_first() -> None:
    world = shared()
    lone(world, "runs", "q-1", node="n1", cpu=1)
    lone(world, "two", "q-1", cpu=2)
    lone(world, "three", "q-2", cpu=3)
    assert bound(world.run()) == {"three": "n1"}


@pytest.mark.scenario("plugins-fairness", 27)
def test_after_its_first_pod_it_is_the_other_one_s_turn() -> None:
    world = shared()
    lone(world, "runs", "q-1", node="n1", cpu=1)
    lone(world, "two", "q-1", cpu=2)
    lone(world, "also-two", "q-2", cpu=2)
    lone(world, "one", "q-2", cpu=1)
    assert bound(world.run()) == {"also-two": "n1", "two": "n1"}


@pytest.mark.scenario("plugins-fairness", 28)
def test_a_job_without_pending_pods_does_not_end_its_queue_s_turn() -> None:
    world = shared()
    lone(world, "runs", "q-1", node="n1", cpu=1)
    group(world, "empty", queue="q-2")
    lone(world, "held", "q-2", node="n1", cpu=1)
    lone(world, "two", "q-2", cpu=2)
    assert bound(world.run()) == {"two": "n1"}


def test_a_job_takes_from_those_that_stay_above_it() -> None:
    """A.6: its share would be 0.2; the victim's is 0.4, 0.2 and 0 after one, two and three of its
    pods."""
    world = World(policy(plugins=["drf"]))
    world.nodes("n1", cpu=10, memory="100Gi", pods=1000)
    group(world, "holds")
    for number in range(3):
        world.pod(f"h{number}", job="holds", node="n1", cpu=2)
    lone(world, "claims", cpu=2)
    session = opened(world)
    candidates = [task(world, name) for name in ("h2", "h0", "h1")]
    assert names(session.votes.preemptable(task(world, "claims"), candidates)) == ["h2", "h0"]


def test_pods_are_a_resource_as_any_other() -> None:
    world = World(policy(plugins=["drf", "predicates"], actions="allocate"))
    world.nodes("n1", cpu=100, memory="100Gi", pods=10)
    group(world, "many")
    for number in range(3):
        world.pod(f"m{number}", job="many", node="n1", cpu=1)
    decisions = world.run()
    assert gauges(decisions, "job_share") == {"default,many": 0.3}
    world.settle()
    lone(world, "new", cpu=20)
    assert gauges(world.run(), "job_share")["default,pg-new"] == 0.2
    world.settle()
    world.nodes("n2", cpu=100, memory="100Gi", pods=10)
    assert gauges(world.run(), "job_share") == {"default,many": 0.15, "default,pg-new": 0.1}


def test_of_many_jobs_the_newest_tell_their_shares_in_the_order_in_which_they_came() -> None:
    world = World(policy(plugins=["drf"]))
    world.nodes("n1", cpu=10_000, memory="10000Gi", pods=10_000)
    for number in range(MOST_JOBS + 3):
        lone(world, f"p{number}", node="n1", cpu=1)
    group(world, "holds-nothing")
    told = [labels[1][1] for name, labels, _ in world.run().metrics if name == "job_share"]
    assert told == [*(f"pg-p{number}" for number in range(4, MOST_JOBS + 3)), "holds-nothing"]
