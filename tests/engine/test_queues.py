"""Queues share by weight, enter as far as there is room, and say when there is none."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.model.queues.queues import Queue
from hekla.engine.plugins.fairness.proportion import Account, share_out
from hekla.engine.world import World, policy


def accounts(queues: list[tuple[int, int, int]], total: int) -> list[Account]:
    return [
        Account(
            queue=Queue(f"q{number}", weight=weight),
            weight=weight,
            guarantee={"cpu": float(guarantee), "memory": 0.0},
            real_capability={"cpu": float(total), "memory": 0.0},
            request={"cpu": float(request), "memory": 0.0},
            inqueue={},
            elastic={},
            allocated={"cpu": 0.0, "memory": 0.0},
        )
        for number, (weight, request, guarantee) in enumerate(queues)
    ]


def test_one_to_two() -> None:
    one, two = accounts([(1, 9000, 0), (2, 9000, 0)], 6000)
    share_out([one, two], {"cpu": 6000.0, "memory": 0.0})
    assert (one.deserved["cpu"], two.deserved["cpu"]) == (2000.0, 4000.0)


def test_what_one_does_not_ask_for_flows_to_the_others() -> None:
    one, two, three = accounts([(1, 1000, 0), (1, 9000, 0), (1, 9000, 0)], 9000)
    share_out([one, two, three], {"cpu": 9000.0, "memory": 0.0})
    assert [account.deserved["cpu"] for account in (one, two, three)] == [1000.0, 4000.0, 4000.0]


@settings(max_examples=300, deadline=None)
@given(
    queues=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5000)), min_size=1, max_size=6),
    total=st.integers(1, 10_000),
)
def test_shares_match_exact_water_filling(queues: list[tuple[int, int]], total: int) -> None:
    made = accounts([(weight, request, 0) for weight, request in queues], total)
    share_out(made, {"cpu": float(total), "memory": 0.0})

    level = exact(queues, Fraction(total))
    for account, expected in zip(made, level):
        assert abs(account.deserved["cpu"] - float(expected)) < 0.5


def exact(queues: list[tuple[int, int]], left: Fraction) -> list[Fraction]:
    """Each gets its weight's part until it has what it asked for; what is left goes round again."""
    given_out = [Fraction(0)] * len(queues)
    open_queues = set(range(len(queues)))
    while open_queues and left > 0:
        weight = sum(queues[number][0] for number in open_queues)
        full = {
            number
            for number in open_queues
            if given_out[number] + left * queues[number][0] / weight >= queues[number][1]
        }
        if not full:
            for number in open_queues:
                given_out[number] += left * queues[number][0] / weight
            return given_out
        part = left
        for number in full:
            left -= queues[number][1] - given_out[number]
            given_out[number] = Fraction(queues[number][1])
        assert left <= part
        open_queues -= full
    return given_out


def test_two_busy_queues_settle_by_their_weights() -> None:
    world = World(
        policy(plugins=["gang", "drf", "predicates", "proportion", "nodeorder"], actions="allocate")
    )
    world.queue("one", weight=1)
    world.queue("two", weight=2)
    world.nodes("n1", cpu=6)
    for number in range(6):
        world.job(f"a{number}", cpu=1, queue="one")
        world.job(f"b{number}", cpu=1, queue="two")

    nodes = [bind.job.split("/")[1][0] for bind in world.run().binds]

    assert (nodes.count("a"), nodes.count("b")) == (2, 4)


@pytest.mark.scenario("scheduler-core", 5)
def test_a_job_larger_than_its_queue_stays_out_and_says_why() -> None:
    world = World(policy(plugins=["gang", "drf", "proportion"], actions="enqueue"))
    world.queue("c1", capability={"cpu": "1", "memory": "1Gi"})
    world.nodes("n1", cpu=16, memory="64Gi")
    world.job("big", cpu=8, queue="c1", phase="Pending", min_resources={"cpu": 8, "memory": "8Gi"})

    decisions = world.run()

    assert world.phase("big") == "Pending"
    (event,) = [one for one in decisions.events if one.type == "Normal"]
    assert (
        event.message == "queue resource quota insufficient: insufficient cpu, insufficient memory"
    )
    numbers = "its minimum takes cpu=8, 1 is left, its minimum takes memory=8Gi, 1Gi is left"
    remedy = "It would not enter even if all else ended; it enters once the capability of queue c1 grows by cpu=7 memory=7Gi."
    assert world.why("big") == f"big waits to enter queue c1: {event.message} ({numbers}). {remedy}"


@pytest.mark.scenario("scheduler-core", 2)
def test_jobs_without_a_minimum_enter_at_once() -> None:
    world = World(policy(plugins=["gang", "drf", "proportion"], actions="enqueue"))
    world.queue("c1")
    world.queue("c2")
    world.job("one", phase="Pending", queue="c1", cpu=1)
    world.job("two", phase="Pending", queue="c2", cpu=1)

    world.run()

    assert (world.phase("one"), world.phase("two")) == ("Inqueue", "Inqueue")


def test_overcommit_lets_a_fifth_more_in() -> None:
    world = World(policy(plugins=["gang", "overcommit"], actions="enqueue"))
    world.nodes("n1", cpu=10)
    for number in range(4):
        world.job(f"job{number}", phase="Pending", cpu=4, min_resources={"cpu": 4})

    world.run()

    assert [world.phase(f"job{number}") for number in range(4)] == ["Inqueue"] * 3 + ["Pending"]
    assert world.why("job3") == (
        "job3 waits to enter queue default: resource in cluster is overused: overused cpu "
        "(its minimum takes cpu=4, 0 is left). It enters once cpu=4 more is free."
    )


def test_a_job_of_a_queue_that_does_not_exist_is_not_looked_at() -> None:
    world = World(policy())
    world.nodes("n1")
    world.job("lost", queue="nowhere", cpu=1, phase="Pending")
    assert world.run().binds == []
    world.queue("nowhere")
    assert len(world.run().binds) == 1


@pytest.mark.scenario("scheduler-core", 12)
def test_the_queue_with_the_smaller_share_goes_first() -> None:
    plugins = [
        "drf",
        {"name": "proportion", "enabledAllocatable": False},
        "predicates",
        "nodeorder",
    ]
    world = World(policy(plugins=plugins, actions="allocate"))
    world.queue("q-1")
    world.queue("q-2")
    world.nodes("n1", cpu=5)
    world.job("a", cpu=1, queue="q-1", on=["n1"])
    world.job("b", cpu=2, queue="q-1")
    world.job("c", cpu=3, queue="q-2")

    assert set(world.run().bound()) == {"default/c-task-0"}


def test_the_higher_priority_goes_first() -> None:
    world = World(
        policy(tiers=[["priority", "gang"], ["predicates", "nodeorder"]], actions="allocate")
    )
    world.priority_class("high", 1000)
    world.nodes("n1", cpu=1)
    world.job("low", cpu=1)
    world.job("urgent", cpu=1, priority="high")

    assert set(world.run().bound()) == {"default/urgent-task-0"}
