"""Jobs that no node has room for rest: who is placed where is decided as if all were asked."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.actions import unschedulable_jobs
from hekla.engine.actions.allocate import Turns
from hekla.engine.framework.joborder import ANNOTATION, STRICT
from hekla.engine.world import World, policy
from tests.engine.test_one_pod_jobs import QUEUES, queues, step

CHART: list[list[Any]] = [
    ["priority", "gang", "conformance"],
    ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
]
POLICIES: dict[str, tuple[list[list[Any]], str]] = {
    "chart": (CHART, "enqueue, allocate, backfill"),
    "no enqueue": (CHART, "allocate, backfill"),
    "capacity": ([["gang"], ["predicates", "capacity", "nodeorder"]], "allocate"),
    "without gang": ([["drf", "predicates", "binpack"]], "allocate, backfill"),
}


def decided(world: World) -> list[Any]:
    """What a cycle decided, but for the words."""
    made = world.decisions
    return [made.binds, made.evictions, made.gates, made.pipelined, made.queues]


def change(world: World, draw: random.Random, number: int) -> None:
    """Something comes, ends or changes beside what `step` draws."""
    what = draw.randrange(6)
    if what == 0:
        world.job(
            f"gang{number}",
            pods=draw.choice([2, 4, 9]),
            cpu=draw.choice([1, 3]),
            queue=draw.choice(QUEUES),
        )
    elif what == 1:
        holding = sorted(
            {task.job.name for task in world.state.tasks.values() if task.job and task.row >= 0}
        )
        for name in draw.sample(holding, min(len(holding), draw.choice([1, 3]))):
            world.end(name)
    elif what == 2:
        world.nodes(f"late{number}", cpu=draw.choice([2, 20]), pods=20, memory="64Gi")
    elif what == 3:
        queue(world, draw.choice(QUEUES), draw.choice(["", STRICT]))
    for _ in range(draw.randrange(3)):
        world.now += draw.choice([0.2, 11])
        world.run()
        if draw.random() < 0.5:
            world.settle()


def queue(world: World, name: str, order: str) -> None:
    """A queue with an order of its own."""
    annotations = {ANNOTATION: order} if order else {}
    world.state.upsert_queue(
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(3, 20))
def test_cycles_in_which_jobs_rest_decide_what_those_do_that_ask_all(
    name: str, seed: int, length: int
) -> None:
    tiers, actions = POLICIES[name]
    found = []
    for many, anew in ((10**9, 0), (0, seed % 3)):
        draw = random.Random(seed)
        world = World(policy(tiers=tiers, actions=actions), default_queue=False)
        heard = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unschedulable_jobs, "MANY", many)
            patch.setattr(unschedulable_jobs, "TOLD_ANEW", anew)
            queues(world, draw)
            world.priority_class("high", 100)
            world.nodes("n0", "n1", cpu=draw.choice([9, 40]), pods=150, memory="64Gi")
            for number in range(length):
                step(world, draw, number)
                heard.append(decided(world))
                change(world, draw, number)
                heard.append(decided(world))
        phases = {key: job.phase for key, job in world.state.jobs.items()}
        assert all(
            job.conditions
            for job in world.state.active.values()
            if not job.shadow and job.pending()
        )
        found.append((heard, phases))
    assert found[0] == found[1]


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs rest from the first on, and nobody is looked at just to tell him anew."""
    monkeypatch.setattr(unschedulable_jobs, "MANY", 0)
    monkeypatch.setattr(unschedulable_jobs, "TOLD_ANEW", 0)


def full() -> World:
    """One node of 8 CPUs, all taken by `runs-0`, and `large`, which waits for them."""
    world = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    world.nodes("n0", cpu=8)
    world.job("runs", cpu=8, on=["n0"], phase="Running")
    world.job("large", cpu=8)
    world.run()
    assert "large" in said_to_wait(world)
    return world


def said_to_wait(world: World) -> str:
    return " ".join(key for key, job in world.state.active.items() if job.fit_errors)


def binds(world: World) -> list[str]:
    world.now += 1
    return [bind.pod for bind in world.run().binds]


@pytest.mark.usefixtures("resting")
def test_a_job_that_rests_keeps_its_place_in_a_strict_queue() -> None:
    world = full()
    queue(world, "default", STRICT)
    world.nodes("n1", cpu=1)
    world.job("small", cpu=1)
    assert binds(world) == []
    assert binds(world) == []
    assert "waits behind" in world.state.jobs["default/small"].fit_message


@pytest.mark.usefixtures("resting")
def test_a_queue_that_becomes_strict_counts_the_jobs_that_rest() -> None:
    world = full()
    world.nodes("n1", cpu=1)
    assert binds(world) == []
    queue(world, "default", STRICT)
    world.job("small", cpu=1)
    assert binds(world) == []


@pytest.mark.usefixtures("resting")
def test_a_job_that_changes_rests_no_longer() -> None:
    world = full()
    world.nodes("n1", cpu=2)
    world.job("gang", pods=4, cpu=1)
    assert binds(world) == []
    assert binds(world) == []
    world.job("gang", pods=4, cpu=1, min_available=2)
    assert len(binds(world)) == 2


@pytest.mark.usefixtures("resting")
def test_a_gang_rests_until_the_room_is_enough_for_all_it_needs() -> None:
    world = full()
    world.nodes("n1", cpu=6)
    for number in range(4):
        world.job(f"filler-{number}", cpu=1, on=["n1"], phase="Running")
    world.job("gang", pods=4, cpu=1)
    assert binds(world) == []
    world.end("filler-0")
    assert binds(world) == []
    assert world.state.jobs["default/gang"].key not in looked_at(world)
    world.end("filler-1")
    assert len(binds(world)) == 4


@pytest.mark.usefixtures("resting")
def test_a_job_of_unlike_pods_is_asked_in_every_cycle() -> None:
    world = full()
    world.nodes("n1", cpu=2)
    world.job("filler", cpu=2, on=["n1"], phase="Running")
    world.job("mixed", cpu=8, min_available=1)
    world.pod("small", job="mixed", cpu=2)
    assert binds(world) == []
    world.end("filler")
    assert binds(world) == ["default/small"]


@pytest.mark.usefixtures("resting")
def test_a_change_of_the_nodes_is_told_to_all() -> None:
    world = full()
    assert looked_at(world) == []
    world.nodes("n1", cpu=1)
    assert looked_at(world) == ["default/large"]


def looked_at(world: World) -> list[str]:
    """The jobs that a cycle looks at in which nothing has changed but the time."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        take = Turns.takes_in
        patch.setattr(
            Turns, "takes_in", lambda turns, job: seen.append(job.key) or take(turns, job)
        )
        world.now += 1
        world.run()
    return seen


def test_what_resting_jobs_are_told_is_renewed_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unschedulable_jobs, "MANY", 0)
    monkeypatch.setattr(unschedulable_jobs, "TOLD_ANEW", 2)
    world = full()
    for number in range(5):
        world.job(f"waits-{number}", cpu=8)
    world.run()
    seen = []
    for number in range(3):
        world.job(f"comes-{number}", cpu=8)
        seen.append([key for key in looked_at(world) if "comes" not in key])
    assert [len(some) for some in seen] == [2, 2, 2]
    assert len({key for some in seen for key in some}) == 6


def test_few_jobs_are_all_looked_at() -> None:
    world = full()
    world.job("other", cpu=8)
    world.run()
    assert len(looked_at(world)) == 2
