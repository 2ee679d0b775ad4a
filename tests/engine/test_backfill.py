"""backfill and shuffle.  Reference: scheduler-core 10.6."""

from __future__ import annotations

import pytest

from hekla.engine.actions.backfill import pick
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.plugin import Plugin
from hekla.engine.model.tasks import Task
from hekla.engine.world import World, policy


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


@core(58)
def test_best_effort_tasks_by_job_and_priority_promised_ones_among_them() -> None:
    world = World(policy(plugins=["priority", "gang"], actions="backfill"))
    world.nodes("n1", cpu=8)
    for name, value in (("pg1", 1), ("pg2", 2)):
        world.priority_class(f"class-{name}", value)
        world.job(name, pods=0, min_available=0, priority=f"class-{name}")
        for priority in (1, 2, 3, 4):
            world.pod(f"{name}-{priority}", job=name, spec={"priority": priority})
        world.pod(f"{name}-asks", job=name, cpu=1, spec={"priority": 9})
    session = open_session(world.state, hooks_of(world.state, world.policy), world.now)
    for name in ("pg1", "pg2"):
        statement = session.statement()
        for priority in (2, 4):
            statement.pipeline(
                world.state.tasks[f"default/{name}-{priority}"], world.state.nodes.rows["n1"]
            )
        session.promised.append(statement)
    assert [task.name for task in pick(session)] == [
        f"{name}-{priority}" for name in ("pg2", "pg1") for priority in (4, 3, 2, 1)
    ]


@core(60)
def test_shuffle_evicts_whom_a_plugin_names() -> None:
    class Lowest(Plugin):
        """Names the pods of priority 10."""

        name = "lowest"

        def victim_tasks(self, candidates: list[Task]) -> list[Task]:
            return [task for task in candidates if task.priority == 10]

    world = World(policy(plugins=["lowest"], actions="shuffle", custom=[Lowest]))
    world.nodes("n1", "n2", cpu=4)
    for number in range(3):
        world.job(f"job{number}", pods=0, min_available=0)
        world.pod(f"job{number}-low", job=f"job{number}", node="n1", cpu=1, spec={"priority": 10})
        world.pod(f"job{number}-high", job=f"job{number}", node="n2", cpu=1, spec={"priority": 100})
    world.run()
    assert {(one.pod, one.reason) for one in world.decisions.evictions} == {
        (f"default/job{n}-low", "shuffle") for n in range(3)
    }
