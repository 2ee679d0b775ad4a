"""Who is evicted for whom, and who is not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hekla.engine.framework.plugin import Code, Depends, Filter, Plugin
from hekla.engine.model.decisions import Decisions
from hekla.engine.world import World, policy

TIER = ["conformance", "gang", {"name": "priority", "enableReclaimable": False}, "proportion"]


def world(*, aware: bool = False, plugins: list | None = None) -> World:
    arguments = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": aware}}]
    made = World(
        policy(
            plugins=[*(plugins or TIER), "predicates"],
            actions="preempt, reclaim",
            configurations=arguments,
        )
    )
    made.priority_class("low", 10)
    made.priority_class("high", 1000)
    return made


def evicted(decisions: Decisions) -> set[str]:
    return {one.pod.removeprefix("default/") for one in decisions.evictions}


def aware_or_not(test):  # type: ignore[no-untyped-def]
    return pytest.mark.parametrize("aware", [False, True])(test)


@pytest.mark.scenario("scheduler-core", 61)
@pytest.mark.scenario("scheduler-core", 73)
@aware_or_not
def test_nothing_is_evicted_while_there_is_room(aware: bool) -> None:
    here = world(aware=aware)
    here.nodes("n1", cpu=6)
    here.job("same", pods=3, cpu=1, on=["n1", "n1"])
    assert evicted(here.run("preempt")) == set()


@pytest.mark.scenario("scheduler-core", 63)
@aware_or_not
def test_only_what_may_be_preempted_is(aware: bool) -> None:
    here = world(aware=aware)
    here.nodes("n1", cpu=2)
    here.job("lesser", pods=1, min_available=0, priority="low", cpu=1, on=["n1"], preemptable=True)
    here.pod("lesser-fixed-0", job="lesser", node="n1", cpu=1, preemptable=False)
    here.job("urgent", pods=2, min_available=1, priority="high", cpu=1)
    assert evicted(here.run("preempt")) == {"lesser-task-0"}


@pytest.mark.scenario("scheduler-core", 64)
@aware_or_not
def test_as_many_as_it_takes(aware: bool) -> None:
    here = world(aware=aware)
    here.nodes("n1", cpu=6)
    here.job(
        "lesser", pods=2, min_available=0, priority="low", cpu=1, on=["n1", "n1"], preemptable=True
    )
    here.pod("lesser-fixed-0", job="lesser", node="n1", cpu=1, preemptable=False)
    here.job("urgent", priority="high", cpu=5)
    assert evicted(here.run("preempt")) == {"lesser-task-0", "lesser-task-1"}


@pytest.mark.scenario("scheduler-core", 68)
@aware_or_not
def test_who_does_not_preempt_evicts_nobody(aware: bool) -> None:
    here = world(aware=aware)
    here.nodes("n1", cpu=1)
    here.job("lesser", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("polite", priority="high", cpu=1, spec={"preemptionPolicy": "Never"})
    assert evicted(here.run("preempt")) == set()


@pytest.mark.scenario("scheduler-core", 69)
@aware_or_not
def test_evictions_that_do_not_help_are_taken_back(aware: bool) -> None:
    here = world(aware=aware)
    here.queue("small", capability={"cpu": "3", "memory": "100Gi"})
    here.nodes("n1", cpu=6)
    here.job(
        "lesser", pods=2, min_available=0, priority="low", cpu=1, on=["n1", "n1"], queue="small"
    )
    here.job("urgent", priority="high", cpu=4, queue="small")
    before = here.state.nodes.releasing.copy()
    assert evicted(here.run("preempt")) == set()
    assert (here.state.nodes.releasing == before).all()


@pytest.mark.scenario("scheduler-core", 67)
@aware_or_not
def test_a_best_effort_pod_gives_way_where_pods_are_counted(aware: bool) -> None:
    here = world(aware=aware)
    here.nodes("n1", cpu=4, pods=1)
    here.job("lesser", min_available=0, priority="low", on=["n1"])
    here.job("urgent", priority="high", cpu=1)
    assert evicted(here.run("preempt")) == {"lesser-task-0"}


@pytest.mark.scenario("scheduler-core", 74)
def test_the_pod_that_is_avoided_goes_and_not_its_neighbour() -> None:
    here = world(aware=True)
    here.nodes("n1", cpu=3, pods=3)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }
    apart = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    here.job("quiet", min_available=0, priority="low", cpu=1, on=["n1"], preemptable=True)
    here.job(
        "loud",
        min_available=0,
        priority="low",
        cpu=1,
        on=["n1"],
        preemptable=True,
        labels={"app": "loud"},
    )
    here.job("urgent", priority="high", cpu=1, labels={"app": "loud"}, spec=apart)
    assert evicted(here.run("preempt")) == {"loud-task-0"}


def test_the_claimer_waits_for_the_room_and_then_takes_it() -> None:
    here = world()
    here.nodes("n1", cpu=1)
    here.job("lesser", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("urgent", priority="high", cpu=1)
    decisions = here.run("preempt")
    assert [(one.pod, one.node) for one in decisions.pipelined] == [("default/urgent-task-0", "n1")]
    (condition,) = [one for one in decisions.conditions if one.pod == "default/urgent-task-0"]
    assert condition.nominated_node == "n1"
    assert here.run("allocate").binds == []
    here.state.remove_pod("default/lesser-task-0")
    assert set(here.run("allocate").bound()) == {"default/urgent-task-0"}


def test_a_refused_eviction_is_undone() -> None:
    here = world()
    here.nodes("n1", cpu=1)
    here.job("lesser", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("urgent", priority="high", cpu=1)
    (eviction,) = here.run("preempt").evictions
    here.state.evict_failed(eviction.pod)
    assert here.state.nodes.releasing.sum() == 0
    assert evicted(here.run("preempt")) == {"lesser-task-0"}


@pytest.mark.scenario("scheduler-core", 77)
def test_a_queue_takes_back_from_one_that_holds_too_much() -> None:
    here = world(
        plugins=["conformance", {"name": "gang", "enableJobPipelined": False}, "proportion"]
    )
    here.queue("q1")
    here.queue("q2")
    here.nodes("n1", cpu=3)
    here.job("holder", pods=3, min_available=0, cpu=1, on=["n1"] * 3, queue="q1", preemptable=False)
    here.pods["default/holder-task-1"]["metadata"]["annotations"]["volcano.sh/preemptable"] = "true"
    here.state.upsert_pod(here.pods["default/holder-task-1"])
    here.job("preemptor", cpu=1, queue="q2")
    decisions = here.run("reclaim")
    assert evicted(decisions) == {"holder-task-1"}
    assert {one.reason for one in decisions.evictions} == {"reclaim"}


@pytest.mark.scenario("scheduler-core", 81)
def test_a_closed_queue_takes_nothing_back() -> None:
    here = world()
    here.queue("q1")
    here.queue("q2", state="Closed")
    here.nodes("n1", cpu=2)
    here.job("holder", pods=2, min_available=0, cpu=1, on=["n1"] * 2, queue="q1")
    here.job("preemptor", cpu=1, queue="q2")
    assert evicted(here.run("reclaim")) == set()


def test_queues_that_are_not_reclaimable_keep_what_they_have() -> None:
    here = world()
    here.queue("q1", reclaimable=False)
    here.queue("q2")
    here.nodes("n1", cpu=2)
    here.job("holder", pods=2, min_available=0, cpu=1, on=["n1"] * 2, queue="q1")
    here.job("preemptor", cpu=1, queue="q2")
    assert evicted(here.run("reclaim")) == set()


def test_capacity_gives_back_what_was_lent() -> None:
    here = world(plugins=["gang", "conformance", "capacity"])
    here.queue("lender", deserved={"cpu": 2, "memory": "1Gi"})
    here.queue("borrower", deserved={"cpu": 2, "memory": "1Gi"})
    here.nodes("n1", cpu=4)
    here.job("guest", pods=4, min_available=0, cpu=1, on=["n1"] * 4, queue="borrower")
    here.job("owner", pods=3, min_available=3, cpu=1, queue="lender")
    assert evicted(here.run("reclaim")) == set(), "three would be more than the lender deserves"
    here.job("modest", pods=2, cpu=1, queue="lender")
    assert len(evicted(here.run("reclaim"))) == 2


class Faulty(Plugin):
    """Breaks as soon as it is asked."""

    name = "faulty"

    def filters(self) -> Iterable[Filter]:
        yield Filter("faulty", "never", Code.UNSCHEDULABLE, Depends.CLUSTER, self.broken)

    def broken(self, *_: object) -> None:
        raise RuntimeError("no such card")


def test_a_broken_plugin_never_stops_a_cycle() -> None:
    made = World(
        policy(
            plugins=["gang", "faulty", "predicates"], actions="allocate, backfill", custom=[Faulty]
        )
    )
    made.nodes("n1")
    made.job("one", cpu=1)
    decisions = made.run()
    assert decisions.binds == []
    assert any("RuntimeError: no such card (fault of" in problem for problem in decisions.problems)
    assert made.state.nodes.used.sum() == 0


def test_a_plugin_that_breaks_while_following_leaves_nothing_behind() -> None:
    class Follower(Plugin):
        name = "follower"

        def allocated(self, *_: object) -> None:
            raise ValueError("lost count")

    made = World(
        policy(plugins=["gang", "follower", "predicates"], actions="allocate", custom=[Follower])
    )
    made.nodes("n1")
    made.job("one", pods=3, cpu=1)
    assert made.run().binds == []
    assert made.state.nodes.used.sum() == 0
    assert (
        len(
            made.state.jobs["default/one"].counts.statuses[
                next(iter(made.state.tasks.values())).status
            ]
        )
        == 3
    )
