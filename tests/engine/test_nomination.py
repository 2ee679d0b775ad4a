"""A sub-job that an eviction made room for goes there at once, or the nomination is void.
Reference: scheduler-core 10.5."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.actions.allocate import Allocate, allocate_nominated, worksheet
from hekla.engine.cycle import close_session, hooks_of, open_session
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.session import Session
from hekla.engine.model.tasks import SubJob, Task
from hekla.engine.world import World, policy
from tests.engine.trees import PLUGINS, hard, hyper, tree_a


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


class Nomination:
    """A job of two pods in tree A whose sub-job was nominated to a domain."""

    def __init__(
        self,
        domain: str = "s0",
        nodes: tuple[str, str] = ("s0-n1", "s0-n2"),
        *,
        cpu: int = 2,
        plugins: list[Any] | None = None,
        topology: bool = True,
    ) -> None:
        self.world = tree_a(plugins)
        hyper(self.world, "empty", 1, "nobody")
        self.world.job("pair", pods=2, cpu=cpu, group=hard(1) if topology else None)
        self.session: Session = open_session(
            self.world.state, hooks_of(self.world.state, self.world.policy), self.world.now
        )
        self.job = self.world.state.jobs["default/pair"]
        self.sub_job: SubJob = self.job.default_sub_job()
        self.sub_job.nominated_domain = domain
        for task, node in zip(self.tasks, nodes, strict=True):
            task.nominated = node

    @property
    def tasks(self) -> list[Task]:
        return list(self.job.tasks.values())

    def served(self) -> tuple[bool, int]:
        """Whether the nomination was followed, and how many tasks are left to be placed."""
        left = worksheet(self.session, self.job).tasks[self.sub_job.uid]
        statement = allocate_nominated(
            self.session, self.session.queue_of(self.job), self.sub_job, left
        )
        if statement is not None:
            assert len(statement.operations) == 2
        return statement is not None, len(left)

    def cleared(self) -> bool:
        return not self.sub_job.nominated_domain and not any(task.nominated for task in self.tasks)


@core(52)
def test_a_domain_without_nodes_is_forgotten() -> None:
    one = Nomination("empty")
    assert one.served() == (False, 2)
    assert one.cleared()


@core(53)
@pytest.mark.parametrize("nodes", [("s0-n1", ""), ("s0-n1", "s1-n3"), ("s0-n1", "gone")])
def test_a_pod_without_a_node_of_the_domain(nodes: tuple[str, str]) -> None:
    one = Nomination(nodes=nodes)
    assert one.served() == (False, 2)
    assert one.cleared()


@core(53)
def test_a_node_that_has_no_room_any_more() -> None:
    one = Nomination(cpu=3)
    assert one.served() == (False, 2)
    assert one.cleared()


@core(53)
def test_what_falls_back_is_searched_for_anew() -> None:
    one = Nomination("empty")
    Allocate().run(one.session)
    assert len(close_session(one.session).binds) == 2
    assert one.cleared()


@core(54)
def test_all_of_them_go_where_they_were_nominated() -> None:
    one = Nomination()
    assert one.served() == (True, 0)


@core(54)
def test_the_job_is_in_the_nominated_domain_from_then_on() -> None:
    one = Nomination("s1", ("s1-n3", "s1-n4"))
    Allocate().run(one.session)
    assert close_session(one.session).nodes_of("pair") == {"s1-n3", "s1-n4"}
    assert one.sub_job.allocated_domain == "s1"


@core(55)
def test_a_placement_that_fails_undoes_the_rest() -> None:
    class Second(Plugin):
        """Follows the first placement and breaks at the next."""

        name = "second"
        seen = 0

        def allocated(self, *_: object) -> None:
            self.seen += 1
            if self.seen == 2:
                raise ValueError("lost count")

    world = World(policy(plugins=[*PLUGINS, "second"], actions="allocate", custom=[Second]))
    world.nodes("n1", "n2", cpu=2)
    hyper(world, "s0", 1, "n1", "n2")
    world.job("pair", pods=2, cpu=2, group=hard(1))
    session = open_session(world.state, hooks_of(world.state, world.policy), world.now)
    job = world.state.jobs["default/pair"]
    job.default_sub_job().nominated_domain = "s0"
    for task, node in zip(job.tasks.values(), ("n1", "n2"), strict=True):
        task.nominated = node
    left = list(job.tasks.values())
    assert allocate_nominated(session, session.queue_of(job), job.default_sub_job(), left) is None
    assert len(left) == 2
    assert world.state.nodes.used.sum() == 0
    assert not job.default_sub_job().nominated_domain
    assert not any(task.nominated for task in job.tasks.values())


@core(56)
def test_a_job_without_topology_follows_its_nomination_too() -> None:
    one = Nomination("s1", ("s1-n4", "s1-n3"), topology=False)
    Allocate().run(one.session)
    assert close_session(one.session).bound() == {
        "default/pair-task-0": "s1-n4",
        "default/pair-task-1": "s1-n3",
    }
    assert not one.sub_job.nominated_domain


@core(57)
def test_with_nothing_to_place_only_the_domain_is_forgotten() -> None:
    one = Nomination("empty")
    statement = allocate_nominated(
        one.session, one.session.queue_of(one.job), one.sub_job, [one.tasks[0]]
    )
    assert statement is None
    assert not one.sub_job.nominated_domain
    assert one.tasks[1].nominated == "s0-n2"
