"""gangpreempt and gangreclaim: a gang gets room as a whole, and others lose as little as possible."""

from __future__ import annotations

import pytest

from hekla.engine.actions.bundles import Bundle, approved, bundles_of
from hekla.engine.actions.gangevict import demand
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import PolicyError
from hekla.engine.framework.session import Session
from hekla.engine.model.resources import PODS
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.test_topology import hard, hyper


def world(plugins: list | None = None, **arguments: object) -> World:
    listed = plugins or ["priority", "gang", "conformance", "predicates", "network-topology-aware"]
    settings = (
        [{"name": name, "arguments": arguments} for name in ("gangpreempt", "gangreclaim")]
        if arguments
        else []
    )
    here = World(policy(plugins=listed, configurations=settings))
    here.priority_class("high", 100)
    here.priority_class("low", 1)
    return here


def evicted(here: World) -> set[str]:
    return {one.pod.removeprefix("default/") for one in here.decisions.evictions}


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


def parts(here: World, name: str) -> list[tuple[bool, list[str]]]:
    here.state.count_changes()
    job = here.state.jobs[f"default/{name}"]
    return [
        (one.safe, [task.name for task in one.tasks]) for one in bundles_of(job, job.tasks.values())
    ]


def test_a_gang_is_promised_room_as_a_whole() -> None:
    here = world()
    here.nodes("n1", "n2", cpu=2)
    here.job("lesser", pods=4, min_available=1, priority="low", cpu=1, on=["n1", "n1", "n2", "n2"])
    here.job("urgent", pods=3, priority="high", cpu=1)
    decisions = here.run("gangpreempt")
    assert len(evicted(here)) == 3
    assert {one.reason for one in decisions.evictions} == {"gangpreempt"}
    assert len(decisions.pipelined) == 3
    here.settle()
    assert len(here.run("allocate").binds) == 3


def test_nothing_is_evicted_for_a_gang_that_would_still_not_fit() -> None:
    here = world()
    here.nodes("n1", cpu=2)
    here.job("lesser", pods=2, min_available=1, priority="low", cpu=1, on=["n1", "n1"])
    here.job("urgent", pods=3, priority="high", cpu=1)
    here.run("gangpreempt")
    assert evicted(here) == set()
    assert here.state.nodes.releasing.sum() == 0


def test_room_is_made_within_the_domain_that_the_job_may_have() -> None:
    here = world()
    here.nodes("s0-n1", "s0-n2", "s1-n3", "s1-n4", cpu=2)
    hyper(here, "s0", 1, "s0-n1", "s0-n2")
    hyper(here, "s1", 1, "s1-n3", "s1-n4")
    hyper(here, "s2", 2, "s0", "s1", kind="HyperNode")
    here.job("keeps", pods=2, priority="high", cpu=2, on=["s0-n1", "s1-n3"], min_available=2)
    here.job("lesser", pods=1, min_available=0, priority="low", cpu=2, on=["s0-n2"])
    here.job("other", pods=1, min_available=0, priority="low", cpu=2, on=["s1-n4"])
    here.job("pair", pods=2, priority="high", cpu=2, group=hard(1))
    here.run("gangpreempt")
    assert evicted(here) == set(), "each rack can free one node only"
    here.end("keeps")
    here.state.remove_pod("default/keeps-task-0")
    decisions = here.run("gangpreempt")
    assert len(evicted(here)) == 1
    assert len({one.node.split("-")[0] for one in decisions.pipelined}) == 1


@pytest.mark.scenario("scheduler-core", 86)
def test_arguments() -> None:
    here = world(maxDomains=3, allowWholeBundle=False)
    assert opened(here).argument("gangpreempt", "maxDomains", 8) == 3
    with pytest.raises(PolicyError, match="maxDomain"):
        read_policy(
            {
                "actions": "gangpreempt",
                "configurations": [{"name": "gangpreempt", "arguments": {"maxDomain": 3}}],
            }
        )


@pytest.mark.scenario("scheduler-core", 88)
@pytest.mark.parametrize(("whole", "count"), [(False, 0), (True, 1)])
def test_a_gang_is_broken_only_where_that_is_allowed(whole: bool, count: int) -> None:
    here = world(allowWholeBundle=whole)
    here.nodes("n1", cpu=1)
    here.job("lesser", priority="low", cpu=1, on=["n1"])
    here.job("urgent", priority="high", cpu=1)
    here.run("gangpreempt")
    assert len(evicted(here)) == count


@pytest.mark.scenario("scheduler-core", 89)
@pytest.mark.parametrize("stated", [None, "false"])
def test_a_group_may_be_kept_from_eviction(stated: str | None) -> None:
    here = world()
    here.nodes("n1", cpu=1)
    notes = {} if stated is None else {"volcano.sh/preemptable": stated}
    here.job("lesser", priority="low", cpu=1, on=["n1"], annotations=notes)
    here.job("urgent", priority="high", cpu=1)
    here.run("gangpreempt")
    assert len(evicted(here)) == (stated is None)


@pytest.mark.scenario("scheduler-core", 90)
def test_reclaiming_takes_from_other_queues_that_allow_it() -> None:
    here = world(["priority", "gang", "conformance", "capacity", "predicates"])
    here.queue("mine", deserved={"cpu": 3, "memory": "1Gi"})
    here.queue("open", deserved={"cpu": 0, "memory": 0})
    here.queue("closed", reclaimable=False, deserved={"cpu": 0, "memory": 0})
    here.nodes("n1", cpu=3)
    here.job("a", cpu=1, on=["n1"], queue="open")
    here.job("b", cpu=1, on=["n1"], queue="closed")
    here.job("c", cpu=1, on=["n1"], queue="mine", priority="low")
    here.job("preemptor", cpu=1, queue="mine", priority="high")
    here.run("gangreclaim")
    assert evicted(here) == {"a-task-0"}


@pytest.mark.scenario("scheduler-core", 91)
def test_what_a_job_can_spare_goes_before_its_gang() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    here.job("five", pods=0, min_available=3, group={"minTaskMember": {"worker": 3}})
    for number in range(5):
        spec = {"priority": 5 - number}
        here.pod(f"five-worker-{number}", job="five", role="worker", node="n1", cpu=1, spec=spec)
    assert parts(here, "five") == [
        (True, ["five-worker-4", "five-worker-3"]),
        (False, ["five-worker-2", "five-worker-1", "five-worker-0"]),
    ]
    here.job("four", pods=4, min_available=2, cpu=1, on=["n1"] * 4)
    assert [(safe, len(names)) for safe, names in parts(here, "four")] == [(True, 2), (False, 2)]


@pytest.mark.scenario("scheduler-core", 92)
def test_plugins_may_shrink_what_is_safe_but_not_what_is_whole() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    here.job("a", pods=4, min_available=2, cpu=1, on=["n1"] * 4)
    here.state.count_changes()
    job = here.state.jobs["default/a"]
    safe, whole = bundles_of(job, job.tasks.values())
    kept = approved([safe, whole], {safe.tasks[0].key, whole.tasks[0].key})
    assert [(one.safe, one.tasks) for one in kept] == [(True, safe.tasks[:1])]


@pytest.mark.scenario("scheduler-core", 93)
def test_what_costs_less_for_what_it_frees_goes_first() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    here.job("two", pods=2, cpu=1, on=["n1"] * 2)
    here.job("four", pods=4, cpu=1, on=["n1"] * 4)
    here.state.count_changes()
    need = {"cpu": 1000.0, "memory": 0.0, PODS: 1.0}
    small, large = (
        Bundle(
            here.state.jobs[f"default/{name}"],
            [next(iter(here.state.jobs[f"default/{name}"].tasks.values()))],
            False,
        )
        for name in ("two", "four")
    )
    assert small.worth(need) > large.worth(need)


@pytest.mark.scenario("scheduler-core", 94)
def test_a_group_of_pairs_can_spare_as_many_as_it_has_too_many() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    policies = [{"name": "pairs", "matchLabelKeys": ["pair"], "subGroupSize": 2, "minSubGroups": 2}]
    here.job("job", pods=0, min_available=4, group={"subGroupPolicy": policies})
    for number in range(6):
        labels = {"pair": str(number // 2)}
        here.pod(
            f"job-w-{number}", job="job", node="n1", cpu=1, labels=labels, spec={"priority": number}
        )
    here.state.count_changes()
    job = here.state.jobs["default/job"]
    one_each = [task for task in job.tasks.values() if int(task.name[-1]) % 2 == 0]
    assert [(one.safe, len(one.tasks)) for one in bundles_of(job, one_each)] == [
        (True, 1),
        (False, 2),
    ]


@pytest.mark.scenario("scheduler-core", 97)
def test_a_job_below_its_minimum_has_nothing_to_lose() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    here.job("a", pods=2, min_available=3, cpu=1, on=["n1"] * 2)
    assert [(safe, len(names)) for safe, names in parts(here, "a")] == [(True, 2)]


@pytest.mark.scenario("scheduler-core", 98)
def test_what_a_job_lacks() -> None:
    here = world()
    here.nodes("n1", cpu=9)
    here.job("empty", pods=0, min_available=0)
    here.job("starts", pods=3, cpu=1)
    session = opened(here)
    starts = demand(session, here.state.jobs["default/starts"])
    assert [len(tasks) for tasks in starts.tasks.values()] == [3]
    assert not demand(session, here.state.jobs["default/empty"])
