"""preempt: who gives way within a queue, and who does not.  Reference: scheduler-core 10.7."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hekla.engine.framework.plugin import Code, Depends, Filter, Plugin
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.tasks import Status, Task
from hekla.engine.world import World, policy
from tests.engine.flags import only

TIER = [
    only("conformance", "Preemptable"), only("gang", "Preemptable", "JobPipelined", "JobStarving"),
    only("priority", "TaskOrder", "JobOrder", "Preemptable", "JobPipelined", "JobStarving"),
    only("proportion", "Overused", "Allocatable", "QueueOrder"),
]  # fmt: skip
AWARE = [
    *TIER[:3],
    only("proportion", "Overused", "Allocatable", "QueueOrder", "Predicate"),
    only("predicates", "Preemptable", "Predicate"),
]


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def in_both_modes(test: Any) -> Any:
    """Scenario 73: the topology-aware mode decides the same."""
    return core(73)(pytest.mark.parametrize("aware", [False, True])(test))


def world(
    aware: bool = False, plugins: list[Any] | None = None, custom: Iterable[type[Plugin]] = ()
) -> World:
    settings = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": aware}}]
    made = World(
        policy(
            plugins=plugins or (AWARE if aware else TIER),
            actions="preempt",
            configurations=settings,
            custom=custom,
        )
    )
    made.priority_class("low", 10)
    made.priority_class("high", 100000)
    return made


def evicted(here: World) -> set[str]:
    return {one.pod.removeprefix("default/") for one in here.decisions.evictions}


def pipelined(here: World) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in here.decisions.pipelined}


@core(61)
@in_both_modes
def test_a_job_with_room_left_evicts_nobody(aware: bool) -> None:
    here = world(aware)
    here.nodes("n1", cpu=10)
    here.job("one", pods=3, min_available=3, cpu=1, on=["n1", "n1"])
    here.run()
    assert evicted(here) == set()


@core(62)
@in_both_modes
def test_a_job_that_has_its_minimum_evicts_nobody(aware: bool) -> None:
    here = world(
        aware,
        [
            only("conformance", "Preemptable"),
            only("gang", "Preemptable", "JobPipelined", "JobStarving"),
        ],
    )
    here.nodes("n1", cpu=2)
    here.job("one", pods=2, min_available=1, cpu=1, on=["n1"])
    here.job("two", pods=2, min_available=1, cpu=1, on=["n1"])
    here.run()
    assert evicted(here) == set()


@core(63)
@in_both_modes
def test_one_of_two_may_be_preempted(aware: bool) -> None:
    here = world(aware)
    here.nodes("n1", cpu=2)
    here.job("low", pods=1, min_available=0, priority="low", cpu=1, on=["n1"], preemptable=True)
    here.pod("low-kept-0", job="low", node="n1", cpu=1, preemptable=False)
    here.job("high", pods=2, min_available=1, priority="high", cpu=1)
    here.run()
    assert evicted(here) == {"low-task-0"}


@core(64)
@in_both_modes
def test_two_of_three_make_room(aware: bool) -> None:
    here = world(aware)
    here.nodes("n1", cpu=6)
    here.job(
        "low", pods=2, min_available=0, priority="low", cpu=1, on=["n1", "n1"], preemptable=True
    )
    here.pod("low-kept-0", job="low", node="n1", cpu=1, preemptable=False)
    here.job("high", priority="high", cpu=5)
    here.run()
    assert evicted(here) == {"low-task-0", "low-task-1"}


@core(65)
@in_both_modes
def test_a_queue_that_is_full_while_its_node_is_not(aware: bool) -> None:
    here = world(aware)
    here.queue("q1", capability={"cpu": "4", "memory": "100Gi"})
    here.nodes("n1", cpu=12)
    here.job("low", min_available=0, priority="low", cpu=3, on=["n1"], queue="q1")
    here.job("high", priority="high", cpu=3, queue="q1")
    here.run()
    assert evicted(here) == {"low-task-0"}


@core(65)
@in_both_modes
def test_a_queue_with_room_for_both(aware: bool) -> None:
    here = world(aware)
    here.queue("q1", capability={"cpu": "6", "memory": "100Gi"})
    here.nodes("n1", cpu=12)
    here.job("low", min_available=1, priority="low", cpu=3, on=["n1"], queue="q1")
    here.job("high", priority="high", cpu=3, queue="q1")
    here.run()
    assert evicted(here) == set()
    assert pipelined(here) == ({} if aware else {"high-task-0": "n1"})


@core(66)
@in_both_modes
def test_the_lowest_pod_of_those_that_may_be_preempted(aware: bool) -> None:
    here = world(aware)
    here.nodes("n1", cpu=3)
    here.job("low", pods=0, min_available=0, priority="low")
    here.pod("low-kept-0", job="low", node="n1", cpu=1, preemptable=False, spec={"priority": 10})
    here.pod("low-goes-0", job="low", node="n1", cpu=1, preemptable=True, spec={"priority": 10})
    here.pod(
        "low-proud-0", job="low", node="n1", cpu=1, preemptable=True, spec={"priority": 100000}
    )
    here.job("high", priority="high", cpu=1, spec={"priority": 100000})
    here.run()
    assert evicted(here) == {"low-goes-0"}


@core(67)
@in_both_modes
@pytest.mark.parametrize("cpu", [1, None])
def test_a_best_effort_pod_gives_up_its_place(aware: bool, cpu: int | None) -> None:
    here = world(aware)
    here.nodes("n1", cpu=12, pods=1)
    here.job("low", min_available=0, priority="low", on=["n1"])
    here.job("high", priority="high", cpu=cpu)
    here.run()
    assert evicted(here) == {"low-task-0"}


@core(68)
@in_both_modes
def test_a_pod_that_never_preempts(aware: bool) -> None:
    here = world(aware)
    here.nodes("n1", cpu=1)
    here.job("low", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("high", priority="high", cpu=1, spec={"preemptionPolicy": "Never"})
    here.run()
    assert evicted(here) == set()


@core(69)
def test_evictions_that_do_not_help_are_undone() -> None:
    here = world()
    here.queue("q1", capability={"cpu": "3", "memory": "100Gi"})
    here.nodes("n1", cpu=12)
    here.job("low", pods=2, min_available=0, priority="low", cpu=1, on=["n1", "n1"], queue="q1")
    here.job("high", priority="high", cpu=4, queue="q1")
    here.run()
    assert evicted(here) == set()
    running = here.state.jobs["default/low"].counts.statuses[Status.RUNNING]
    assert set(running) == {"default/low-task-0", "default/low-task-1"}


@core(70)
def test_a_node_whose_victims_are_not_enough_for_the_queue() -> None:
    here = world()
    here.queue("q1", capability={"cpu": "6", "memory": "100Gi"})
    here.nodes("n1", cpu=3)
    here.nodes("n2", cpu=4)
    here.job("small", min_available=0, priority="low", cpu=1, on=["n1"], queue="q1")
    here.job("large", min_available=0, priority="low", cpu=4, on=["n2"], queue="q1")
    here.job("high", priority="high", cpu=3, queue="q1")
    here.run()
    assert evicted(here) == {"large-task-0"}
    assert pipelined(here) == {"high-task-0": "n2"}


@core(71)
@pytest.mark.parametrize("order", [("q1", "q2"), ("q2", "q1")])
def test_every_queue_serves_its_own(order: tuple[str, str]) -> None:
    here = world()
    for name in order:
        here.queue(name)
    here.nodes("n1", cpu=2)
    here.job("content", cpu=1, on=["n1"], queue="q1")
    here.job("low", min_available=0, priority="low", cpu=1, on=["n1"], queue="q2")
    here.job("high", priority="high", cpu=1, queue="q2")
    here.run()
    assert evicted(here) == {"low-task-0"}


@core(72)
def test_filters_are_asked_again_after_each_eviction() -> None:
    class Alone(Plugin):
        """Lets a pod on a node that no other pod holds."""

        name = "alone"

        def open(self, session: Any) -> None:
            self.tasks = session.state.tasks

        def filters(self) -> Iterable[Filter]:
            yield Filter(
                "alone", "the node is shared", Code.UNSCHEDULABLE, Depends.CLUSTER, self.mask
            )

        def mask(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools:
            free = self.tasks["default/low-task-0"].status is Status.RELEASING
            passed: Bools = nodes.fits(pods.request, future=True)
            return passed & free

    here = world(plugins=[*TIER, "alone"], custom=[Alone])
    here.nodes("n1", cpu=10)
    here.job("low", min_available=0, priority="low", cpu=1, on=["n1"])
    here.job("high", priority="high", cpu=1)
    here.run()
    assert evicted(here) == {"low-task-0"}
    assert pipelined(here) == {"high-task-0": "n1"}


@core(74)
def test_only_the_pod_that_is_avoided_goes() -> None:
    here = world(aware=True)
    here.nodes("n1", cpu=2, pods=2)
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                },
            ]
        }
    }
    here.job("quiet", min_available=0, priority="low", cpu=1, on=["n1"], preemptable=True)
    here.job(
        "avoided",
        min_available=0,
        priority="low",
        cpu=1,
        on=["n1"],
        preemptable=True,
        labels={"app": "x"},
    )
    here.job("high", priority="high", cpu=1, labels={"app": "x"}, spec={"affinity": apart})
    here.run()
    assert evicted(here) == {"avoided-task-0"}


@core(75)
def test_a_queue_of_higher_priority_changes_nothing_within_another() -> None:
    here = world(aware=True, plugins=[*AWARE, only("capacity", "QueueOrder")])
    here.queue("q1", priority=1, capability={"cpu": "1", "memory": "100Gi"})
    here.queue("q2", priority=10)
    here.nodes("n1", cpu=2)
    here.job("low", min_available=0, priority="low", cpu=1, on=["n1"], queue="q1")
    here.job("other", min_available=1, priority="low", cpu=1, on=["n1"], queue="q2")
    here.job("high", priority="high", cpu=1, queue="q1")
    here.run()
    assert evicted(here) == {"low-task-0"}


def test_who_went_changes_who_goes_next() -> None:
    """Of two jobs the one that holds more loses first, for as long as it holds more, not until it
    is gone."""
    equal = {"name": "gang", "enablePreemptable": False}
    here = World(
        policy(
            tiers=[
                ["priority", equal],
                [{"name": "drf", "enablePreemptable": False}, "predicates"],
            ],
            actions="preempt",
        )
    )
    here.nodes("n1", cpu=5)
    here.priority_class("high", 100)
    here.job("a", pods=3, min_available=1, cpu=1, on=["n1"] * 3)
    here.job("b", pods=2, min_available=1, cpu=1, on=["n1"] * 2)
    here.job("large", cpu=3, priority="high")
    evicted = {one.pod.removeprefix("default/") for one in here.run().evictions}
    assert evicted == {"a-task-2", "a-task-1", "b-task-1"}
