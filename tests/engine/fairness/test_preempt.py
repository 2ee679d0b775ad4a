"""The action preempt under gang, priority, conformance and proportion's bound, in both of its
modes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hekla.engine.framework.plugin import Code, Depends, Filter, Plugin
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.tasks import Status, Task
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import evicted, group, lone, pipelined
from tests.engine.flags import only

PLUGINS: list[Any] = [
    only("conformance", "Preemptable"),
    only("gang", "JobPipelined", "JobStarving", "Preemptable"),
    only("priority", "JobOrder", "JobPipelined", "JobStarving", "Preemptable", "TaskOrder"),
    only("proportion", "QueueOrder", "Allocatable", "Overused"),
    "predicates",
]


@pytest.fixture(params=[False, True], ids=["plain", "aware"])
def aware(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def preempting(aware: bool, *custom: type[Plugin], **capability: Any) -> World:
    arguments = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": aware}}]
    plugins = [*PLUGINS, *(one.name for one in custom)]
    world = World(
        policy(plugins=plugins, actions="preempt", configurations=arguments, custom=custom),
        default_queue=False,
    )
    world.queue("q1", capability=capability)
    for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
        world.priority_class(name, value)
    return world


def lesser(
    world: World, *preemptable: bool, node: str = "n1", least: int = 1, **asked: Any
) -> None:
    """A job of low priority whose pods v1, v2, ... run."""
    group(world, "lesser", queue="q1", priority="low", min_available=least)
    for number, may in enumerate(preemptable):
        world.pod(
            f"v{number + 1}", job="lesser", node=node, preemptable=may, **(asked or {"cpu": 1})
        )


def urgent(world: World, **about: Any) -> None:
    lone(world, "urgent", "q1", priority="high", **about)


@pytest.mark.scenario("plugins-fairness", 137)
def test_room_is_there(aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=10)
    lesser(world, True, True, True)
    urgent(world, cpu=1)
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 138)
def test_both_have_their_minimum(aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=2)
    for name, priority in (("lesser", "low"), ("greater", "high")):
        group(world, name, queue="q1", priority=priority)
        world.pod(f"{name}-1", job=name, node="n1", cpu=1)
        world.pod(f"{name}-2", job=name, cpu=1)
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 139)
def test_the_one_that_may_go(aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=2)
    lesser(world, True, False)
    urgent(world, cpu=1)
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["v1"], {"urgent": "n1"})


@pytest.mark.scenario("plugins-fairness", 140)
def test_two_for_a_large_one(aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=6, memory="6G")
    lesser(world, True, True, False, cpu=1, memory="1G")
    urgent(world, cpu=5, memory="5G")
    assert sorted(evicted(world.run())) == ["v1", "v2"]
    if not aware:
        assert evicted(world.decisions) == ["v2", "v1"], "the later pod goes first"


@pytest.mark.parametrize(
    ("ceiling", "gone"),
    [
        pytest.param(4, ["v1"], marks=pytest.mark.scenario("plugins-fairness", 141)),
        pytest.param(6, [], marks=pytest.mark.scenario("plugins-fairness", 142)),
    ],
)
def test_a_queue_at_its_ceiling(ceiling: int, gone: list[str], aware: bool) -> None:
    """A.1 J: 9 cpu are free, but 3 + 3 is more than 4."""
    world = preempting(aware, cpu=ceiling)
    world.nodes("n1", cpu=12, memory="12G")
    lesser(world, True, least=0, cpu=3)
    urgent(world, cpu=3)
    assert evicted(world.run()) == gone


@pytest.mark.scenario("plugins-fairness", 143)
def test_neither_the_dear_one_nor_the_one_that_may_not(aware: bool) -> None:
    world = preempting(aware, cpu=3)
    world.nodes("n1", cpu=12)
    lesser(world, False, True)
    world.pod("v3", job="lesser", node="n1", cpu=1, preemptable=True, spec={"priority": 100000})
    urgent(world, cpu=1)
    assert evicted(world.run()) == ["v2"]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"cpu": 3}, marks=pytest.mark.scenario("plugins-fairness", 144)),
        pytest.param({}, marks=pytest.mark.scenario("plugins-fairness", 145)),
    ],
)
def test_a_place_for_one_pod(asked: dict[str, Any], aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=12, pods=1)
    group(world, "lesser", queue="q1", priority="low", min_available=0)
    world.pod("v1", job="lesser", node="n1", preemptable=True)
    urgent(world, **asked)
    assert evicted(world.run()) == ["v1"]


@pytest.mark.scenario("plugins-fairness", 146)
def test_who_never_preempts(aware: bool) -> None:
    world = preempting(aware)
    world.nodes("n1", cpu=1)
    lesser(world, True, least=0)
    urgent(world, cpu=1, spec={"preemptionPolicy": "Never"})
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 147)
def test_what_does_not_help_is_taken_back(aware: bool) -> None:
    world = preempting(aware, cpu=3)
    world.nodes("n1", cpu=12)
    lesser(world, True, True, least=0)
    urgent(world, cpu=4)
    assert evicted(world.run()) == []
    assert world.state.nodes.releasing.sum() == 0


@pytest.mark.scenario("plugins-fairness", 148)
def test_nodes_are_tried_one_by_one(aware: bool) -> None:
    """A.1 K: on n1 5 - 1 + 3 is more than 6, on n2 5 - 4 + 3 is not."""
    world = preempting(aware, cpu=6)
    world.nodes("n1", "n2", cpu=4)
    group(world, "lesser", queue="q1", priority="low", min_available=0)
    world.pod("v1", job="lesser", node="n1", cpu=1, preemptable=True)
    world.pod("v2", job="lesser", node="n2", cpu=4, preemptable=True)
    urgent(world, cpu=3)
    assert evicted(world.run()) == ["v2"]


@pytest.mark.scenario("plugins-fairness", 149)
@pytest.mark.parametrize("priorities", [(1, 10), (10, 1)])
def test_only_within_the_queue(priorities: tuple[int, int], aware: bool) -> None:
    world = preempting(aware)
    world.queue("q1", priority=priorities[0])
    world.queue("q2", priority=priorities[1])
    world.nodes("n1", cpu=2)
    lone(world, "in-q1", "q1", priority="low", node="n1", cpu=1, about={"min_available": 0})
    lone(world, "in-q2", "q2", priority="low", node="n1", cpu=1, about={"min_available": 0})
    lone(world, "urgent", "q2", priority="high", cpu=1)
    assert evicted(world.run()) == ["in-q2"]


class OneAtATime(Plugin):
    """A device that no resource tells of: a node that holds a victim takes no preemptor."""

    name = "one-at-a-time"

    def filters(self) -> Iterable[Filter]:
        yield Filter(
            "one", "the device is taken", Code.UNSCHEDULABLE, Depends.CLUSTER, self.free, self.name
        )

    def free(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        held = nodes.table.tasks
        taken = [
            any(
                one.name == "v1" and one.status is not Status.RELEASING
                for one in held[row].values()
            )
            for row in range(len(held))
        ]
        result: Bools = ~nodes.take(np.array(taken, dtype=np.bool_))
        return result


@pytest.mark.scenario("plugins-fairness", 150)
def test_a_filter_that_says_no_until_the_victim_has_gone() -> None:
    world = preempting(False, OneAtATime)
    world.nodes("n1", cpu=12)
    lesser(world, True, least=0)
    urgent(world, cpu=1)
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["v1"], {"urgent": "n1"})


@pytest.mark.scenario("plugins-fairness", 151)
def test_the_pod_that_is_in_the_way_goes() -> None:
    world = preempting(True)
    world.nodes("n1", cpu=3)
    group(world, "lesser", queue="q1", priority="low", min_available=0)
    world.pod("v1", job="lesser", node="n1", cpu=1, preemptable=True)
    world.pod("v2", job="lesser", node="n1", cpu=1, preemptable=True, labels={"app": "loud"})
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }
    apart = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    urgent(world, cpu=1, spec=apart)
    assert evicted(world.run()) == ["v2"]
