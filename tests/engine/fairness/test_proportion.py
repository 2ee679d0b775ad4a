"""proportion: the page's worked loops by hand, its admissions, and what its gauges say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hekla.engine.framework.plugin import PERMIT, REJECT, Plugin
from hekla.engine.model.tasks import Job
from hekla.engine.plugins.fairness.proportion import Proportion
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import bound, evicted, gauges, group, lone, opened
from tests.engine.flags import only

G = 10**9


def accounts(world: World) -> dict[str, Any]:
    opened(world)
    (plugin,) = [one for one in world.state.hooks.plugins if isinstance(one, Proportion)]
    return plugin.accounts


def cpus(world: World) -> dict[str, float]:
    """What each queue deserves, in whole cpus."""
    return {name: account.deserved["cpu"] / 1000 for name, account in accounts(world).items()}


def fair() -> World:
    return World(policy(plugins=["proportion"]), default_queue=False)


def asks(world: World, queue: str, **what: Any) -> None:
    """A pod that asks for so much in a queue."""
    lone(world, f"{queue}-{len(world.pods)}", queue, **what)


def test_three_weights() -> None:
    """A.1 A: 8.8 and 13.2 after what a does not want went round again."""
    world = fair()
    world.nodes("n", cpu=24, memory=48, pods=1000)
    for name, weight, cpu, memory in (("a", 1, 2, 4), ("b", 2, 20, 40), ("c", 3, 20, 40)):
        world.queue(name, weight=weight)
        asks(world, name, cpu=cpu, memory=memory)
    assert cpus(world) == pytest.approx({"a": 2, "b": 8.8, "c": 13.2})
    assert {name: one.deserved["memory"] for name, one in accounts(world).items()} == pytest.approx(
        {"a": 4, "b": 17.6, "c": 26.4}
    )


def gpus(world: World) -> dict[str, float]:
    return {
        name: round(one.deserved["nvidia.com/gpu"] / 1000, 3)
        for name, one in accounts(world).items()
    }


def ceilings(world: World) -> dict[str, float]:
    return {
        name: one.real_capability["nvidia.com/gpu"] / 1000 for name, one in accounts(world).items()
    }


def thirty(*, fourth: int = 0) -> World:
    world = fair()
    world.nodes("n", cpu=0, memory=0, pods=1000, gpu=30)
    world.queue("q1", guarantee={"nvidia.com/gpu": 5})
    world.queue("q2")
    world.queue("q3", capability={"nvidia.com/gpu": 10})
    for name in ("q1", "q2", "q3"):
        asks(world, name, gpu=30)
    if fourth:
        world.queue("q4", weight=2, guarantee={"nvidia.com/gpu": 10})
        asks(world, "q4", gpu=fourth)
    return world


def test_a_guarantee_and_a_ceiling() -> None:
    """A.1 B."""
    assert ceilings(thirty()) == {"q1": 30, "q2": 25, "q3": 10}
    assert gpus(thirty()) == {"q1": 10, "q2": 10, "q3": 10}


@pytest.mark.parametrize(
    ("fourth", "deserved"),
    [
        (2, {"q1": 6.667, "q2": 6.667, "q3": 6.667, "q4": 10}),
        (30, {"q1": 6, "q2": 6, "q3": 6, "q4": 12}),
    ],
)
def test_a_guarantee_that_is_not_asked_for_is_kept_all_the_same(
    fourth: int, deserved: dict[str, float]
) -> None:
    """A.1 C."""
    assert ceilings(thirty(fourth=fourth)) == {"q1": 20, "q2": 15, "q3": 10, "q4": 25}
    assert gpus(thirty(fourth=fourth)) == deserved


def zeroes(weight: int) -> World:
    world = fair()
    world.nodes("n", cpu=4, memory="4G", pods=100)
    world.queue("z", weight=0, guarantee={"cpu": "500m"})
    world.queue("b", weight=weight)
    asks(world, "z", cpu=2, memory="2G")
    asks(world, "b", cpu=8, memory="8G")
    return world


def test_weight_zero_is_its_guarantee() -> None:
    """A.1 E."""
    held = accounts(zeroes(1))
    assert (held["z"].real_capability["cpu"], held["b"].real_capability["cpu"]) == (4000, 3500)
    assert (held["z"].deserved["cpu"], held["z"].deserved["memory"]) == (500, 0)
    assert (held["b"].deserved["cpu"], held["b"].deserved["memory"]) == (3500, 4 * G)


def test_where_all_weights_are_zero_nobody_deserves_anything() -> None:
    assert cpus(zeroes(0)) == {"z": 0, "b": 0}


def test_a_resource_that_nobody_has_never_meets_a_queue() -> None:
    """A.1 F: a ends with 7 cpu, because b may have 3 only; memory ran out in the first round."""
    world = fair()
    world.nodes("n", cpu=10, memory="10G", pods=100)
    world.queue("a")
    world.queue("b", capability={"cpu": 3})
    asks(world, "a", cpu=8, memory="8G", gpu=1)
    asks(world, "b", cpu=8, memory="8G")
    held = accounts(world)
    assert (held["a"].deserved["cpu"], held["a"].deserved["memory"]) == (7000, 5 * G)
    assert (held["b"].deserved["cpu"], held["b"].deserved["memory"]) == (3000, 5 * G)


def test_one_queue_that_holds_too_much() -> None:
    """A.1 G."""
    world = World(policy(plugins=["gang", "proportion"], actions="reclaim"), default_queue=False)
    world.nodes("n1", cpu=3, memory="3Gi", pods=10)
    world.queue("q1")
    world.queue("q2")
    group(world, "holds", queue="q1")
    for number in range(3):
        world.pod(f"h{number}", job="holds", node="n1", cpu=1, memory="1G")
    lone(world, "claims", "q2", cpu=1, memory="1G")
    held = accounts(world)
    assert held["q1"].deserved == pytest.approx({"cpu": 2000, "memory": 3 * 2**30 - G, "pods": 3})
    assert held["q2"].deserved == {"cpu": 1000, "memory": G, "pods": 1}
    assert held["q1"].share() == 1.5
    assert len(evicted(world.run())) == 1


def test_three_queues() -> None:
    """A.1 H: shares 4/3, 4/3 and 0."""
    world = World(policy(plugins=["proportion"]), default_queue=False)
    world.nodes("n1", cpu=4, memory="4Gi", pods=10)
    for name in ("q1", "q2", "q3"):
        world.queue(name)
    for number in range(4):
        lone(world, f"h{number}", f"q{1 + number // 2}", node="n1", cpu=1, memory="1G")
    lone(world, "claims", "q3", cpu=1, memory="1G")
    assert cpus(world) == {"q1": 1.5, "q2": 1.5, "q3": 1}
    assert [round(one.share(), 3) for one in accounts(world).values()] == [1.333, 1.333, 0]


@pytest.mark.scenario("plugins-fairness", 136)
def test_what_nobody_asks_for_is_no_reason_to_evict() -> None:
    """A.1 I: q1 deserves 2 although its weight says 1."""
    world = World(
        policy(plugins=["gang", "proportion", "predicates"], actions="reclaim"), default_queue=False
    )
    world.nodes("n1", cpu=10, memory="10G", pods=10)
    world.queue("q1", weight=1)
    world.queue("q2", weight=9)
    group(world, "holds", queue="q1")
    for number in range(2):
        world.pod(f"h{number}", job="holds", node="n1", cpu=1, memory="1G")
    group(world, "wants", queue="q2", min_available=3)
    for number in range(3):
        world.pod(f"w{number}", job="wants", cpu=1, memory="1G")
    assert cpus(world) == {"q1": 2, "q2": 3}
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 29)
def test_a_queue_that_has_no_jobs_any_more_holds_nothing() -> None:
    plugins = [
        only("gang", "JobReady"),
        only("priority", "JobOrder"),
        "predicates",
        only("proportion"),
    ]
    world = World(policy(plugins=plugins, actions="allocate"), default_queue=False)
    world.nodes("n1", cpu=4, memory="4Gi")
    world.queue("q1", weight=0)
    world.queue("q2", weight=0)
    lone(world, "p1", "q1", cpu=2, memory="1Gi", gpu=0)
    decisions = world.run()
    assert bound(decisions) == {"p1": "n1"}
    assert gauges(decisions, "queue_allocated_milli_cpu") == {"q1": 2000, "q2": 0}
    world.settle()
    world.state.remove_pod("default/p1")
    world.state.remove_pod_group("default/pg-p1")
    decisions = world.run()
    assert gauges(decisions, "queue_allocated_milli_cpu") == {"q1": 0, "q2": 0}
    assert gauges(decisions, "queue_allocated_memory_bytes") == {"q1": 0, "q2": 0}
    assert gauges(decisions, "queue_allocated_scalar_resources") == {
        "q1,pods": 0,
        "q1,nvidia.com/gpu": 0,
    }


def enqueue_and_allocate(*hooks: str) -> World:
    """A.1 D: 4 cpu and 4G on two nodes; q1 holds 1 cpu and 2G, q2 the reverse."""
    world = World(
        policy(plugins=[only("proportion", *hooks)], actions="enqueue, allocate"),
        default_queue=False,
    )
    world.nodes("n1", "n2", cpu=2, memory="2G", pods=10)
    world.queue("q1", capability={"cpu": 2, "memory": "2G"})
    world.queue("q2", capability={"cpu": 3, "memory": "3G"})
    world.queue("q3", state="Closed", capability={"cpu": 2, "memory": "2G"})
    lone(
        world,
        "pod1",
        "q1",
        node="n1",
        cpu=1,
        memory="2G",
        about={"phase": "Running", "min_resources": {"cpu": 1, "memory": "2G"}},
    )
    lone(
        world,
        "pod2",
        "q2",
        node="n2",
        cpu=2,
        memory="1G",
        about={"phase": "Running", "min_resources": {"cpu": 2, "memory": "1G"}},
    )
    return world


def waiting(world: World, pod: str, queue: str, **asked: Any) -> None:
    lone(world, pod, queue, about={"phase": "Pending", "min_resources": asked}, **asked)


@pytest.mark.scenario("plugins-fairness", 30)
def test_who_asks_for_cpu_only_is_not_held_up_by_memory() -> None:
    world = enqueue_and_allocate("JobEnqueued", "Allocatable")
    waiting(world, "pod3", "q1", cpu=1)
    assert bound(world.run()) == {"pod3": "n1"}


@pytest.mark.scenario("plugins-fairness", 31)
def test_nor_who_asks_for_memory_only_by_cpu() -> None:
    world = enqueue_and_allocate("JobEnqueued", "Allocatable")
    waiting(world, "pod4", "q2", memory="1G")
    assert bound(world.run()) == {"pod4": "n2"}


@pytest.mark.parametrize(
    "hook",
    [
        pytest.param("JobEnqueued", marks=pytest.mark.scenario("plugins-fairness", 32)),
        pytest.param("Allocatable", marks=pytest.mark.scenario("plugins-fairness", 33)),
    ],
)
def test_more_memory_than_the_queue_may_have(hook: str) -> None:
    world = enqueue_and_allocate(hook)
    waiting(world, "pod5", "q1", cpu=1, memory="1G")
    assert bound(world.run()) == {}
    (short,) = world.decisions.explanations["default/pg-pod5"].shortages
    assert (short.resource, short.queue, short.held, short.most, short.missing) == (
        "memory",
        "q1",
        "1.863Gi",
        "1.863Gi",
        "953.7Mi",
    )


@pytest.mark.scenario("plugins-fairness", 34)
@pytest.mark.parametrize(
    "hooks", [("JobEnqueued",), ("Allocatable",), ("JobEnqueued", "Allocatable")]
)
def test_a_closed_queue_takes_nothing_in(hooks: tuple[str, ...]) -> None:
    world = enqueue_and_allocate(*hooks)
    waiting(world, "pod6", "q3", cpu=1)
    assert bound(world.run()) == {}
    assert "queue q3 is not open but Closed" in world.why("pg-pod6")


@pytest.mark.scenario("plugins-fairness", 35)
def test_the_queue_with_the_higher_priority_is_served() -> None:
    world = World(
        policy(plugins=["proportion", "predicates"], actions="allocate"), default_queue=False
    )
    for name, priority in (("q1", 5), ("q2", 1), ("q3", 10)):
        world.queue(name, priority=priority)
    world.nodes("n1", "n2", cpu=2, memory="4Gi")
    lone(world, "p1", "q1", node="n1", cpu=2, memory="4Gi")
    lone(world, "p2", "q2", cpu=2, memory="4Gi")
    lone(world, "p3", "q3", cpu=2, memory="4Gi")
    world.policy = policy(
        plugins=[only("proportion", "QueueOrder"), "predicates"], actions="allocate"
    )
    assert bound(world.run()) == {"p3": "n2"}


@pytest.mark.scenario("plugins-fairness", 36)
@pytest.mark.scenario("plugins-fairness", 54)
@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_what_is_being_bound_is_counted_once(plugin: str) -> None:
    """A.2: 1 asked + 3 allocated + max(3 - 3, 0) promised is 4 of 4."""
    world = World(
        policy(plugins=[plugin, "gang", "predicates"], actions="enqueue, allocate"),
        default_queue=False,
    )
    world.queue("q", capability={"cpu": 4})
    world.nodes("n1", cpu=10)
    group(world, "a", queue="q", phase="Inqueue", min_available=3, min_resources={"cpu": 3})
    for number in range(3):
        world.pod(f"a{number}", job="a", cpu=1)
    assert len(bound(world.run())) == 3
    waiting(world, "b", "q", cpu=1)
    assert bound(world.run()) == {"b": "n1"}


class Rejecter(Plugin):
    """Lets everybody in but pgA."""

    name = "rejecter"

    def job_enqueueable(self, job: Job) -> int:
        return REJECT if job.name == "pgA" else PERMIT


@pytest.mark.scenario("plugins-fairness", 37)
@pytest.mark.scenario("plugins-fairness", 55)
@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_who_is_refused_by_another_leaves_no_trace(plugin: str) -> None:
    world = World(
        policy(plugins=[plugin, "rejecter"], actions="enqueue", custom=[Rejecter]),
        default_queue=False,
    )
    world.queue("q", capability={"cpu": 1})
    world.nodes("n1", cpu=10)
    for name in ("pgA", "pgB"):
        group(world, name, queue="q", phase="Pending", min_resources={"cpu": 1})
    world.run()
    assert (world.phase("pgA"), world.phase("pgB")) == ("Pending", "Inqueue")
    assert world.why("pgA") == "pgA waits to enter queue q: plugin rejecter does not let it in."


def test_gauges_of_one_queue() -> None:
    world = enqueue_and_allocate("JobEnqueued", "Allocatable", "Overused", "QueueOrder")
    waiting(world, "pod3", "q1", cpu=1)
    decisions = world.run()
    assert gauges(decisions, "queue_deserved_milli_cpu") == {"q1": 2000, "q2": 2000}
    assert gauges(decisions, "queue_request_milli_cpu") == {"q1": 2000, "q2": 2000, "q3": 0}
    assert gauges(decisions, "queue_inqueue_milli_cpu") == {"q1": 0, "q2": 0, "q3": 0}
    assert gauges(decisions, "queue_weight") == {"q1": 1, "q2": 1}
    assert gauges(decisions, "queue_allocated_milli_cpu") == {"q1": 2000, "q2": 2000, "q3": 0}
    assert gauges(decisions, "queue_allocated_scalar_resources")["q1,pods"] == 2
    assert gauges(decisions, "queue_share") == {"q1": 1, "q2": 1}
    assert gauges(decisions, "queue_capacity_milli_cpu") == {}


def test_an_overused_queue_says_what_it_holds() -> None:
    world = World(
        policy(plugins=["gang", "proportion", "predicates"], actions="allocate"),
        default_queue=False,
    )
    world.nodes("n1", cpu=4, memory="4G", pods=4)
    world.queue("full", capability={"cpu": 2, "memory": "1G"})
    group(world, "holds", queue="full")
    for number in range(2):
        world.pod(f"h{number}", job="holds", node="n1", cpu=1, memory="500M")
    lone(world, "more", "full", cpu=1)
    world.run()
    found = world.decisions.explanations["default/pg-more"]
    assert found.constraint == "quota"
    assert msgspec.json.decode(msgspec.json.encode(found))["shortages"] == [
        {
            "resource": "cpu",
            "queue": "full",
            "limit": "deserved",
            "asked": "1",
            "held": "2",
            "most": "2",
            "left": "0",
            "missing": "1",
            "beyond": "",
        },
    ]
    assert [
        (one.resource, one.limit, one.held, one.most, one.missing) for one in found.shortages
    ] == [("cpu", "deserved", "2", "2", "1")]
    assert found.text.startswith(
        "pg-more: queue full may not take another cpu=1 now: it holds cpu=2 of deserved 2. "
        "It starts when jobs of the queue end or its share grows by cpu=1."
    )


def test_a_weight_below_nothing_is_none() -> None:
    world = zeroes(1)
    world.queue("odd", weight=-3)
    asks(world, "odd", cpu=1)
    assert cpus(world) == {"z": 0.5, "b": 3.5, "odd": 0}
