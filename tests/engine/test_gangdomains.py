"""gangpreempt and gangreclaim: the domains they look at, the bundles they break, the plans they
make.  Reference: scheduler-core 10.9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hekla.engine.actions.bundles import Bundle, bundles_of, in_order
from hekla.engine.actions.gangevict import GangPreempt, _plan, demand
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.session import Session
from hekla.engine.model.hypernodes import ROOT
from hekla.engine.model.tasks import Group, Job, Status, Task
from hekla.engine.policies import default_policy
from hekla.engine.world import World, policy
from tests.engine.trees import hyper


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


PLUGINS = ["priority", "gang", "conformance", "predicates"]


def world(
    plugins: list[Any] | None = None, custom: tuple[type[Plugin], ...] = (), **arguments: Any
) -> World:
    settings = [{"name": "gangpreempt", "arguments": arguments}]
    made = World(
        policy(
            plugins=plugins or PLUGINS,
            actions="gangpreempt",
            configurations=settings,
            custom=custom,
        )
    )
    made.priority_class("low", 1)
    made.priority_class("high", 100)
    return made


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


def job_of(here: World, name: str) -> Job:
    return here.state.jobs[f"default/{name}"]


@core(86)
@pytest.mark.parametrize(("given", "used"), [(3, 3), (5, 5), (0, 8), (-1, 8)])
def test_how_many_domains_are_looked_at(given: int, used: int) -> None:
    class Many(Plugin):
        name = "many"

        def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
            return [[f"d{number}" for number in range(20)]]

    here = world(["gang", "many"], (Many,), maxDomains=given)
    here.job("one", cpu=1)
    assert len(GangPreempt()._domains(opened(here), job_of(here, "one"))) == used


@core(86)
def test_whole_bundles_may_be_forbidden() -> None:
    here = world(allowWholeBundle=False)
    assert here.policy.configurations["gangpreempt"]["allowWholeBundle"] is False
    assert (
        default_policy().configurations.get("gangpreempt", {}).get("allowWholeBundle", True) is True
    )


@core(87)
@pytest.mark.parametrize(("most", "domains"), [(2, ["d1", "d2"]), (3, ["d1", "d2", "d3"])])
def test_a_domain_is_looked_at_once(most: int, domains: list[str]) -> None:
    class Two(Plugin):
        name = "two"

        def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
            return [["d1", "d2"], ["d2", "d3"]]

    here = world(["gang", "two"], (Two,), maxDomains=most)
    here.job("one", cpu=1)
    assert GangPreempt()._domains(opened(here), job_of(here, "one")) == domains


@core(87)
def test_without_domains_the_whole_cluster() -> None:
    class Nothing(Plugin):
        name = "nothing"

        def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
            return []

    here = world(["gang", "nothing"], (Nothing,))
    here.job("one", cpu=1)
    assert GangPreempt()._domains(opened(here), job_of(here, "one")) == [ROOT]


# bundles


def bundle(here: World, name: str, safe: bool = False, count: int = 1) -> Bundle:
    return Bundle(job_of(here, name), list(job_of(here, name).tasks.values())[:count], safe)


NEED = {"cpu": 1000.0, "memory": 0.0}


@core(93)
def test_safe_bundles_go_first_whatever_their_jobs() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    here.job("preemptor", cpu=1)
    here.job("low", priority="low", cpu=1, on=["n1"])
    here.job("high", priority="high", cpu=1, on=["n1"])
    session = opened(here)
    order = in_order(
        session,
        [bundle(here, "low"), bundle(here, "high", safe=True)],
        job_of(here, "preemptor"),
        NEED,
        False,
    )
    assert [one.job.name for one in order] == ["high", "low"]


@core(93)
def test_of_equal_jobs_the_one_that_loses_less() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    here.job("preemptor", cpu=1)
    here.job("four", pods=4, cpu=1, on=["n1"] * 4)
    here.job("two", pods=2, cpu=1, on=["n1"] * 2)
    session = opened(here)
    order = in_order(
        session, [bundle(here, "four"), bundle(here, "two")], job_of(here, "preemptor"), NEED, False
    )
    assert [one.job.name for one in order] == ["two", "four"]


@core(93)
def test_the_order_of_jobs_decides_before_what_is_lost() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    here.job("preemptor", cpu=1)
    here.job("high", pods=2, priority="high", cpu=1, on=["n1"] * 2)
    here.job("low", pods=4, priority="low", cpu=1, on=["n1"] * 4)
    session = opened(here)
    order = in_order(
        session, [bundle(here, "high"), bundle(here, "low")], job_of(here, "preemptor"), NEED, False
    )
    assert [one.job.name for one in order] == ["low", "high"]


@core(93)
def test_the_order_of_queues_decides_before_what_is_lost() -> None:
    here = world(["gang", "capacity"])
    here.queue("mine")
    here.queue("five", priority=5)
    here.queue("ten", priority=10)
    here.nodes("n1", cpu=20)
    here.job("preemptor", cpu=1, queue="mine")
    here.job("two", pods=2, cpu=1, on=["n1"] * 2, queue="ten")
    here.job("four", pods=4, cpu=1, on=["n1"] * 4, queue="five")
    session = opened(here)
    order = in_order(
        session, [bundle(here, "two"), bundle(here, "four")], job_of(here, "preemptor"), NEED, True
    )
    assert [one.job.name for one in order] == ["four", "two"]


@core(93)
def test_equals_by_their_uid() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    here.job("preemptor", cpu=1)
    for name in ("b", "a"):
        here.job(name, cpu=1, on=["n1"])
    session = opened(here)
    order = in_order(
        session, [bundle(here, "b"), bundle(here, "a")], job_of(here, "preemptor"), NEED, False
    )
    assert [one.job.name for one in order] == ["a", "b"]


def parts(job: Job, tasks: list[Task] | None = None) -> list[tuple[bool, list[str]]]:
    return [
        (one.safe, [task.name for task in one.tasks])
        for one in bundles_of(job, tasks or list(job.tasks.values()))
    ]


@core(95)
def test_roles_and_groups_are_both_kept() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    policies = [
        {"name": "master", "matchLabelKeys": ["m"], "minSubGroups": 1},
        {"name": "worker", "matchLabelKeys": ["w"], "minSubGroups": 2, "subGroupSize": 2},
    ]
    here.job(
        "both",
        pods=0,
        min_available=6,
        group={"subGroupPolicy": policies, "minTaskMember": {"worker": 5, "master": 1}},
    )
    for name in ("m1", "m2"):
        here.pod(
            name,
            job="both",
            role="master",
            node="n1",
            cpu=1,
            labels={"m": name},
            spec={"priority": int(name[1])},
        )
    for name in ("w1a", "w1b", "w2a", "w2b", "w2c"):
        here.pod(
            name,
            job="both",
            role="worker",
            node="n1",
            cpu=1,
            labels={"w": name[1]},
            spec={"priority": 5},
        )
    here.state.count_changes()
    job = job_of(here, "both")
    assert parts(job, [job.tasks["default/m1"], job.tasks["default/w1a"]]) == [
        (True, ["m1"]),
        (False, ["w1a"]),
    ]


@core(96)
def test_a_group_that_is_broken_already_can_be_spared() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    policies = [{"name": "pairs", "matchLabelKeys": ["pair"], "subGroupSize": 2, "minSubGroups": 2}]
    here.job("job", pods=0, min_available=4, group={"subGroupPolicy": policies})
    for name in ("a1", "a2", "b1", "b2", "c1"):
        here.pod(name, job="job", node="n1", cpu=1, labels={"pair": name[0]}, spec={"priority": 1})
    here.state.count_changes()
    job = job_of(here, "job")
    assert parts(job, [job.tasks[f"default/{name}"] for name in ("a1", "b1", "c1")]) == [
        (True, ["c1"]),
        (False, ["a1", "b1"]),
    ]


# demand and plans


@core(98)
def test_a_job_that_starts_asks_for_all_its_groups_and_one_that_runs_for_the_next() -> None:
    here = world()
    here.nodes("n1", cpu=20)
    policies = [{"name": "g", "matchLabelKeys": ["g"], "subGroupSize": 1}]
    for name, minimum, on in (("starts", 3, ""), ("runs", 1, "n1")):
        here.job(name, pods=0, min_available=minimum, group={"subGroupPolicy": policies})
        for number in (3, 1, 2):
            here.pod(f"{name}-{number}", job=name, cpu=1, labels={"g": str(number)})
        if on:
            here.pod(f"{name}-0", job=name, cpu=1, labels={"g": "0"}, node=on)
    session = opened(here)
    assert [one.match_index for one in demand(session, job_of(here, "starts")).order] == [1, 2, 3]
    assert [one.match_index for one in demand(session, job_of(here, "runs")).order] == [1]


def plan(here: World, victims: list[str], domain: str = ROOT) -> tuple[Session, Any]:
    session = opened(here)
    job = job_of(here, "preemptor")
    tasks = [here.state.tasks[f"default/{name}"] for name in victims]
    return session, _plan(session, job, demand(session, job), tasks, domain, "gangpreempt")


@core(99)
def test_a_domain_without_nodes_makes_no_plan() -> None:
    here = world()
    here.nodes("n1", cpu=2)
    hyper(here, "empty", 1, "nobody")
    here.job("preemptor", cpu=1)
    assert plan(here, [], "empty")[1] is None


@core(99)
def test_a_node_that_is_free_is_a_plan_of_one_step() -> None:
    here = world()
    here.nodes("n1", cpu=2)
    here.job("preemptor", cpu=1)
    _, made = plan(here, [])
    assert len(made[0].operations) == 1


@core(99)
def test_one_victim_makes_two_steps() -> None:
    here = world()
    here.nodes("n1", cpu=1)
    here.job("low", priority="low", cpu=1, on=["n1"])
    here.job("preemptor", priority="high", cpu=1)
    _, made = plan(here, ["low-task-0"])
    assert [type(one).__name__ for one in made[0].operations] == ["Evicted", "Placed"]


@core(99)
def test_without_a_node_that_would_do_there_is_no_plan() -> None:
    here = world()
    here.nodes("n1", cpu=1)
    here.job("low", priority="low", cpu=1, on=["n1"])
    here.job("preemptor", priority="high", cpu=2)
    assert plan(here, ["low-task-0"])[1] is None


@core(100)
def test_a_plan_that_fails_leaves_everything_as_it_was() -> None:
    class Follower(Plugin):
        """Cannot follow a promise."""

        name = "follower"

        def allocated(self, job: Job, task: Task, *_: object) -> None:
            if job.name == "preemptor":
                raise ValueError("lost count")

    here = world([*PLUGINS, "follower"], (Follower,))
    here.nodes("n1", cpu=1)
    here.job("low", priority="low", cpu=1, on=["n1"])
    here.job("preemptor", priority="high", cpu=1)
    before = here.state.nodes.used.copy()
    decisions = here.run()
    assert decisions.evictions == []
    victim, preemptor = (
        here.state.tasks["default/low-task-0"],
        here.state.tasks["default/preemptor-task-0"],
    )
    assert (victim.status, here.state.nodes.names[victim.row]) == (Status.RUNNING, "n1")
    assert (preemptor.status, preemptor.row) == (Status.PENDING, -1)
    assert np.array_equal(here.state.nodes.used, before)
    assert here.state.nodes.releasing.sum() == 0


@core(101)
def test_a_node_that_is_free_now_is_better_than_one_that_will_be() -> None:
    here = world()
    here.nodes("n1", "n2", cpu=1)
    here.job("low", priority="low", cpu=1, on=["n1"])
    here.job("preemptor", priority="high", cpu=1)
    session, _ = plan(here, ["low-task-0"])
    assert session.state.nodes.names[here.state.tasks["default/preemptor-task-0"].row] == "n2"


@core(101)
def test_where_only_nodes_that_will_be_free_fit_one_of_them() -> None:
    here = world()
    here.nodes("n1", "n2", cpu=1)
    here.job("low", pods=2, priority="low", cpu=1, on=["n1", "n2"])
    here.job("preemptor", priority="high", cpu=1)
    session, _ = plan(here, ["low-task-0", "low-task-1"])
    assert session.state.nodes.names[here.state.tasks["default/preemptor-task-0"].row] in {
        "n1",
        "n2",
    }


@core(101)
@pytest.mark.parametrize("nominated", ["n2", "n3", "gone"])
def test_a_nominated_node_is_no_short_cut(nominated: str) -> None:
    """n2 is outside of the domain, n3 too small, the other does not exist; n1 has more room left
    than n4."""
    here = world([*PLUGINS, "nodeorder"])
    here.nodes("n1", cpu=8)
    here.nodes("n2", "n4", cpu=4)
    here.nodes("n3", cpu=1)
    hyper(here, "part", 1, "n1", "n3", "n4")
    here.job("preemptor", pods=0, min_available=1, priority="high")
    here.pod("preemptor-task-0", job="preemptor", cpu=2)
    here.pods["default/preemptor-task-0"]["status"]["nominatedNodeName"] = nominated
    here.state.upsert_pod(here.pods["default/preemptor-task-0"])
    session, made = plan(here, [], "part")
    assert made is not None
    assert session.state.nodes.names[here.state.tasks["default/preemptor-task-0"].row] == "n1"
