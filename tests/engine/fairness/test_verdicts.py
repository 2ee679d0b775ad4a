"""Every answer of the capacity plugin against the page by the letter, in random trees of queues,
while pods come and go."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.plugin import PERMIT
from hekla.engine.framework.session import Session
from hekla.engine.model.tasks import Status, Task
from hekla.engine.placement.victims import in_order
from hekla.engine.plugins.fairness.capacity import Capacity
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import group, opened
from tests.engine.fairness.verdicts import QueueFacts, Verdicts

GPU, RDMA = "nvidia.com/gpu", "example.com/rdma"
NAMES = ("cpu", "memory", GPU, RDMA, "pods")


def amounts(draw: random.Random, most: int) -> dict[str, str]:
    """Of about half of all resources, sometimes none."""
    chosen = [name for name in NAMES if draw.random() < 0.55]
    return {
        name: f"{draw.choice([0, *range(1, most)])}{'Gi' if name == 'memory' else ''}"
        for name in chosen
    }


def queues(draw: random.Random, world: World) -> list[str]:
    """A tree of up to nine; the leaves."""
    world.queue("root", capability=amounts(draw, 20) if draw.random() < 0.2 else None)
    parents: dict[str, str] = {}
    for number in range(draw.randint(2, 9)):
        parent = draw.choice(["root", *parents])
        spec: dict[str, Any] = {"priority": draw.choice([0, 0, 0, 1])}
        for key, chance, most in (
            ("capability", 0.3, 12),
            ("deserved", 0.7, 6),
            ("guarantee", 0.3, 3),
        ):
            if draw.random() < chance:
                spec[key] = amounts(draw, most)
        parents[f"q{number}"] = parent
        world.queue(
            f"q{number}",
            parent=parent,
            state=draw.choice(["Open", "Open", "Open", "Open", "Closing"]),
            **spec,
        )
    return [name for name in parents if name not in parents.values()]


def drawn(draw: random.Random, levels: int) -> World:
    capacity = {
        "name": "capacity",
        "enableHierarchy": True,
        "arguments": {"ancestorReclaimLevel": levels},
    }
    world = World(policy(tiers=[["priority"], [capacity]], actions="allocate"), default_queue=False)
    for name, value in (("low", 1), ("high", 100)):
        world.priority_class(name, value)
    others: dict[str, Any] = {"gpu": 8, RDMA: 8}
    world.nodes("n1", cpu=20, memory="20Gi", **others)
    leaves = queues(draw, world)
    for number in range(draw.randint(2, 7)):
        minimum = amounts(draw, 5) if draw.random() < 0.7 else None
        phase = draw.choice(["Pending", "Inqueue", "Running"])
        group(
            world,
            f"j{number}",
            queue=draw.choice(leaves),
            min_resources=minimum,
            phase=phase,
            priority=draw.choice(["low", "high"]),
        )
        for pod in range(draw.randint(0, 4)):
            asked: dict[str, Any] = {
                "cpu": draw.choice([None, 1, 2, 3]),
                "memory": draw.choice([None, "1Gi", "2Gi"]),
            }
            asked |= {name: draw.choice([0, 1, 2]) for name in ("gpu", RDMA) if draw.random() < 0.3}
            world.pod(f"j{number}-{pod}", job=f"j{number}", node=draw.choice(["n1", ""]), **asked)
    return world


def page(plugin: Capacity, levels: int) -> Verdicts:
    """The page's view of the plugin's tree; how ceilings come about is compared elsewhere."""
    return Verdicts(
        [
            QueueFacts(
                name,
                [above.name for above in reversed(one.ancestors)],
                bool(one.children),
                one.queue.priority,
                one.queue.state == "Open",
                one.deserved,
                one.guarantee,
                one.real_capability,
                dict(one.allocated),
                dict(one.inqueue),
                one.elastic,
            )
            for name, one in plugin.branches.items()
        ],
        levels,
        plugin.session.total,
    )


def compare(session: Session, plugin: Capacity, expected: Verdicts, draw: random.Random) -> None:
    tasks = list(session.state.tasks.values())
    running = [task for task in tasks if task.status is Status.RUNNING]
    for left, right in permutations(plugin.branches, 2):
        mine, theirs = (plugin.queue_order(session.state.queues[name]) for name in (left, right))
        assert (mine < theirs) is (expected.place(left, right) < expected.place(right, left))
        near = plugin.victim_queue_order(session.state.queues[left], session.state.queues[right])
        assert near == -expected.common(left, right)
    for job in session.jobs():
        assert (plugin.job_enqueueable(job) == PERMIT) is expected.enqueueable(
            job.queue, job.min_resources
        )
    for task in tasks:
        queue = session.state.queues[queue_of(task)]
        allocatable = expected.allocatable(queue.name, task.request.amounts)
        assert plugin.allocatable(queue, task) is allocatable
        assert (plugin.allocatable_count(queue, task, 3) > 0) is allocatable
        assert plugin.preemptive(queue, [task]) is expected.preemptive(
            queue.name, task.request.amounts
        )
        candidates = [one for one in running if queue_of(one) != queue.name]
        draw.shuffle(candidates)
        wanted = task.request.amounts
        assert keys(plugin.reclaimable(task, candidates).tasks) == expected.victims(
            queue.name, wanted, shown(in_order(session, candidates, task))
        )
        assert task.job is not None
        assert keys(
            plugin.evictable("gangreclaim", task.job, candidates).tasks
        ) == expected.gang_victims(shown(candidates))


def queue_of(task: Task) -> str:
    assert task.job is not None
    return task.job.queue


def keys(tasks: list[Task]) -> list[str]:
    return [task.key for task in tasks]


def shown(tasks: list[Task]) -> list[tuple[str, str, dict[str, float]]]:
    return [(task.key, queue_of(task), task.request.amounts) for task in tasks]


@pytest.mark.parametrize("levels", [0, 1, 2])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_the_page_by_the_letter(levels: int, seed: int) -> None:
    draw = random.Random(seed)
    world = drawn(draw, levels)
    session = opened(world)
    assert session.decisions.problems == [] and not world.state.rejected
    (plugin,) = (one for one in session.hooks.plugins if isinstance(one, Capacity))
    expected = page(plugin, levels)
    compare(session, plugin, expected, draw)
    for task in list(world.state.tasks.values()):
        if task.status is Status.PENDING and draw.random() < 0.4:
            place = draw.choice([session.statement().allocate, session.statement().pipeline])
            place(task, 0)
            expected.hold(queue_of(task), task.request.amounts, 1.0)
        elif task.status is Status.RUNNING and draw.random() < 0.3:
            session.statement().evict(task, "test")
            expected.hold(queue_of(task), task.request.amounts, -1.0)
    for job in session.jobs():
        if job.min_resources is not None and draw.random() < 0.3:
            plugin.job_enqueued(job)
            expected.promise(job.queue, job.min_resources)
    compare(session, plugin, expected, draw)
