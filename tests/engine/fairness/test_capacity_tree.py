"""capacity over a tree of queues: what is inherited, checked on the whole path, and protected by
ancestors."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.plugins.fairness.capacity import Capacity
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import (
    bound,
    evicted,
    gauges,
    group,
    job,
    lone,
    names,
    opened,
    pipelined,
    task,
)
from tests.engine.flags import only

A100 = "nvidia.com/a100"
ONE = {A100: 1, "cpu": 1, "memory": "1Gi"}


def rooted(actions: str = "enqueue, reclaim, allocate", *, level: int = 0, **root: Any) -> World:
    capacity: dict[str, Any] = {
        "name": "capacity",
        "enableHierarchy": True,
        "arguments": {"ancestorReclaimLevel": level},
    }
    plugins = [
        capacity,
        "predicates",
        only("gang", "JobStarving"),
        only("priority", "JobOrder", "TaskOrder"),
    ]
    world = World(policy(plugins=plugins, actions=actions), default_queue=False)
    world.queue("root", **root)
    return world


def branches(world: World) -> Any:
    opened(world)
    (plugin,) = [one for one in world.state.hooks.plugins if isinstance(one, Capacity)]
    return plugin.branches


def both(cpu: float, memory: int, **others: Any) -> dict[str, Any]:
    return {"cpu": cpu, "memory": f"{memory}Gi", **others}


@pytest.mark.scenario("plugins-fairness", 56)
def test_a_leaf_with_room() -> None:
    world = rooted()
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("q1", parent="root", capability=both(2, 2))
    world.queue("q11", parent="q1", capability=both(1, 1))
    lone(world, "p1", "q11", cpu=1, memory="1Gi")
    assert bound(world.run()) == {"p1": "n1"}


@pytest.mark.scenario("plugins-fairness", 57)
def test_jobs_are_for_leaves() -> None:
    world = rooted()
    world.nodes("n1", cpu=2, memory="4Gi")
    for name, parent in (("q1", "root"), ("q11", "q1"), ("q12", "q1"), ("q2", "root")):
        world.queue(name, parent=parent)
    lone(world, "p2", "q1", cpu=1, memory="1Gi")
    decisions = world.run()
    assert bound(decisions) == {}
    told = [one for one in decisions.events if one.kind == "Queue"]
    assert [(one.key, one.reason) for one in told] == [("q1", "LeftOut")]
    assert "q1 has jobs and queues below it" in told[0].message
    assert [one for one in world.run().events if one.kind == "Queue"] == []
    lone(world, "elsewhere", "q2", cpu=1)
    assert bound(world.run()) == {"elsewhere": "n1"}, (
        "one job in the wrong place is nobody else's trouble"
    )


@pytest.mark.scenario("plugins-fairness", 58)
def test_a_gang_in_a_leaf() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q3", parent="root", capability=both(4, 4))
    world.queue("q31", parent="q3", capability=both(4, 4))
    group(world, "pg3", queue="q31", min_available=2)
    for name in ("p3", "p4"):
        world.pod(name, job="pg3", cpu=2, memory="2Gi")
    assert bound(world.run()) == {"p3": "n1", "p4": "n1"}


@pytest.mark.scenario("plugins-fairness", 59)
def test_the_sibling_gives_first() -> None:
    """q4 holds 4 of 2 as well, but q31 is nearer to q32."""
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi", pods=11)
    world.queue("q3", parent="root", capability=both(4, 4), deserved=both(4, 4))
    world.queue("q31", parent="q3", capability=both(4, 4), deserved=both(2, 2))
    world.queue("q32", parent="q3", capability=both(4, 4), deserved=both(2, 2))
    world.queue("q4", parent="root", capability=both(4, 4), deserved=both(2, 2))
    lone(world, "p5", "q4", node="n1", cpu=4, memory="4Gi")
    group(world, "pg5", queue="q31")
    world.pod("p6", job="pg5", node="n1", cpu=2, memory="2Gi", preemptable=False)
    world.pod("p7", job="pg5", node="n1", cpu=2, memory="2Gi")
    lone(world, "p8", "q32", cpu=2, memory="2Gi")
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p7"], {"p8": "n1"})


@pytest.mark.scenario("plugins-fairness", 60)
def test_a_full_parent() -> None:
    """The leaf would be at 3 of 4, its parent at 4 + 3 of 4; deserving pods alone gives no right to
    take back."""
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi", pods=11)
    world.queue("q3", parent="root", capability={"cpu": 4, "memory": "4Gi"}, deserved=both(4, 4))
    for name in ("q31", "q32"):
        world.queue(name, parent="q3", capability=both(4, 4), deserved=both(2, 2))
        lone(world, f"p-{name}", name, node="n1", cpu=2, memory="2Gi")
    world.queue("q33", parent="q3", capability=both(4, 4), deserved={"pods": 2})
    lone(world, "p10", "q33", cpu=3)
    decisions = world.run()
    assert (bound(decisions), evicted(decisions)) == ({}, [])
    (short,) = decisions.explanations["default/pg-p10"].shortages
    assert (short.queue, short.resource, short.held, short.most, short.missing) == (
        "q3",
        "cpu",
        "4",
        "4",
        "3",
    )
    assert "queue q3 holds cpu=4 of capability 4" in world.why("pg-p10")


@pytest.mark.scenario("plugins-fairness", 61)
def test_cpu_and_memory_are_inherited_each_for_itself() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q5", parent="root", capability={"memory": "4Gi"})
    world.queue("q51", parent="q5", capability={"memory": "2Gi"})
    lone(world, "p11", "q51", cpu=1)
    leaf = branches(world)["q51"].real_capability
    assert leaf["cpu"] > 1e300
    assert leaf["memory"] == 2 * 2**30
    assert bound(world.run()) == {"p11": "n1"}


@pytest.mark.scenario("plugins-fairness", 62)
def test_who_is_let_in_counts_all_the_way_up() -> None:
    """q61 and q62 inherit 2 cpu from q6: the first job fits each, the second q62 but not q6."""
    world = rooted("enqueue")
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q6", parent="root", capability=both(2, 4))
    world.queue("q61", parent="q6")
    world.queue("q62", parent="q6")
    for name, queue in (("pg10", "q61"), ("pg11", "q62")):
        group(world, name, queue=queue, phase="Pending", min_resources=both(2, 4))
    world.run()
    assert (world.phase("pg10"), world.phase("pg11")) == ("Inqueue", "Pending")
    assert world.why("pg11") == (
        "pg11 waits to enter queue q62: queue resource quota insufficient: insufficient cpu, insufficient memory "
        "(its minimum takes cpu=2, 0 is left in queue q6, its minimum takes memory=4Gi, 0 is left in queue q6). "
        "It enters once cpu=2 memory=4Gi more is free."
    )


def test_a_pod_that_no_end_of_others_can_let_in_says_so() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("small", parent="root", capability=both(2, 4))
    lone(world, "huge", "small", cpu=3)
    world.run()
    assert world.why("pg-huge").startswith(
        "pg-huge: queue small may not take another cpu=3 now: it holds cpu=0 of capability 2. "
        "It would not start even if all else ended; it starts once the capability of queue small grows by cpu=1."
    )


def test_a_ceiling_that_is_the_parents_is_named_as_the_parents() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("above", parent="root", capability=both(2, 4))
    world.queue("below", parent="above")
    lone(world, "huge", "below", cpu=3)
    world.run()
    assert "it starts once the capability of queue above grows by cpu=1." in world.why("pg-huge")


@pytest.mark.scenario("plugins-fairness", 63)
def test_guarantees_above_the_parent() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q7", parent="root", capability=both(6, 4))
    for name in ("q71", "q72"):
        world.queue(name, parent="q7", capability=both(6, 4), guarantee=both(4, 3))
    made = branches(world)
    for name in ("q71", "q72"):
        assert (made[name].real_capability["cpu"], made[name].real_capability["memory"]) == (
            4000,
            3 * 2**30,
        )
        assert (made[name].deserved["cpu"], made[name].deserved["memory"]) == (4000, 3 * 2**30)
    assert world.run().problems == []


@pytest.mark.scenario("plugins-fairness", 64)
def test_deserved_cards_of_parents_and_children() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi", gpu=10)
    world.queue("q8", parent="root", deserved=both(4, 4, **{"nvidia.com/gpu": 10}))
    world.queue("q81", parent="q8", deserved=both(2, 2, **{"nvidia.com/gpu": 5}))
    world.queue("q82", parent="q8", deserved=both(2, 2, **{"nvidia.com/gpu": 5}))
    lone(world, "p12", "q81", cpu=2, memory="2Gi", gpu=5)
    assert bound(world.run()) == {"p12": "n1"}


@pytest.mark.scenario("plugins-fairness", 65)
def test_no_hugepages_in_deserved() -> None:
    world = rooted()
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q9", parent="root", deserved=both(4, 4, **{"hugepages-2Mi": 0}))
    world.queue("q91", parent="q9", deserved=both(2, 2, **{"hugepages-2Mi": 0}))
    lone(world, "p13", "q91", cpu=2, memory="2Gi")
    assert bound(world.run()) == {"p13": "n1"}


@pytest.mark.scenario("plugins-fairness", 66)
def test_a_root_larger_than_the_cluster() -> None:
    world = rooted(capability=both(16, 16), deserved=both(16, 16))
    world.nodes("n1", cpu=8, memory="8Gi")
    world.queue("q", parent="root", capability=both(16, 16))
    lone(world, "p", "q", cpu=8, memory="8Gi")
    assert bound(world.run()) == {"p": "n1"}


@pytest.mark.scenario("plugins-fairness", 67)
def test_cards_are_inherited_through_a_parent_that_names_none() -> None:
    world = rooted(capability=both(16, 16, **{"nvidia.com/gpu": 8}))
    world.nodes("n2", cpu=8, memory="8Gi", gpu=8)
    world.queue("c1", parent="root", capability=both(8, 8))
    for name in ("c11", "c12"):
        world.queue(name, parent="c1", capability=both(4, 4))
    lone(world, "p14", "c11", cpu=1, memory="1Gi", gpu=4)
    lone(world, "p15", "c12", cpu=1, memory="1Gi", gpu=4)
    assert bound(world.run()) == {"p14": "n2", "p15": "n2"}


@pytest.mark.scenario("plugins-fairness", 68)
def test_two_cards_are_deserved_and_nothing_else() -> None:
    world = rooted(deserved={A100: 4})
    world.nodes("n1", cpu=16, memory="16Gi", **{A100: 4, "rdma/hca": 1000})
    world.queue("c1", parent="root", deserved={A100: 2})
    world.queue("c11", parent="c1", deserved={A100: 2})
    world.queue("c12", parent="c1")
    asked = both(2, 2, **{A100: 2, "rdma/hca": 1})
    lone(world, "p17", "c12", node="n1", **asked)
    lone(world, "p18", "c12", node="n1", preemptable=False, **asked)
    lone(world, "p16", "c11", **asked)
    assert branches(world)["root"].deserved == {"cpu": 0, "memory": 0, A100: 2000}
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p17"], {"p16": "n1"})


def projects() -> World:
    world = rooted(level=1)
    world.nodes("n1", cpu=16, memory="16Gi", pods=11, **{A100: 4})
    world.queue("project1_root", parent="root", deserved={A100: 1}, capability={A100: 2})
    world.queue(
        "project1_non-preemptable", parent="project1_root", deserved={A100: 1}, capability={A100: 1}
    )
    world.queue("project1_preemptable", parent="project1_root")
    world.queue("project2_root", parent="root", deserved={A100: 3}, capability={A100: 4})
    world.queue(
        "project2_non-preemptable", parent="project2_root", deserved={A100: 3}, capability={A100: 3}
    )
    world.queue("project2_preemptable", parent="project2_root")
    return world


@pytest.mark.scenario("plugins-fairness", 69)
def test_the_parent_s_share_is_enough_to_take_back() -> None:
    world = rooted(level=1)
    world.nodes("n1", cpu=4, memory="8Gi", **{A100: 4})
    world.queue("q1", parent="root", deserved={A100: 1})
    world.queue("q11", parent="q1")
    world.queue("q2", parent="root")
    lone(world, "p1", "q2", node="n1", **{A100: 4})
    lone(world, "p2", "q11", **{A100: 1})
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p1"], {"p2": "n1"})


@pytest.mark.scenario("plugins-fairness", 70)
def test_across_projects_until_the_other_one_has_its_share() -> None:
    """project2_root holds 4 of 3: one may go, the lowest; with the next it would be at its share."""
    world = projects()
    for number, priority in ((1, 2), (2, 2), (3, 2), (4, 1)):
        lone(
            world,
            f"p{number}",
            "project2_preemptable",
            node="n1",
            spec={"priority": priority},
            **ONE,
        )
    lone(world, "p5", "project1_preemptable", **ONE)
    session = opened(world)
    assert names(
        session.votes.reclaimable(
            task(world, "p5"), [task(world, f"p{number}") for number in (1, 2, 3, 4)]
        )
    ) == ["p4"]
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p4"], {"p5": "n1"})


@pytest.mark.scenario("plugins-fairness", 71)
def test_siblings_give_before_the_other_project() -> None:
    world = projects()
    for number in (1, 2, 3):
        lone(world, f"p{number}", "project2_preemptable", node="n1", spec={"priority": 2}, **ONE)
    lone(world, "p4", "project2_preemptable", **ONE)
    lone(world, "p5", "project1_preemptable", node="n1", **ONE)
    lone(world, "p6", "project2_non-preemptable", **ONE)
    session = opened(world)
    assert names(
        session.votes.reclaimable(
            task(world, "p6"), [task(world, f"p{number}") for number in (1, 2, 3, 5)]
        )
    ) == ["p3", "p2", "p1"]
    assert not session.votes.preemptive(session.queue_of(job(world, "pg-p4")), [task(world, "p4")])
    decisions = world.run()
    assert (evicted(decisions), pipelined(decisions)) == (["p3"], {"p6": "n1"})


@pytest.mark.scenario("plugins-fairness", 72)
def test_who_holds_what_it_deserves_keeps_it() -> None:
    world = rooted(level=1)
    world.nodes("n1", cpu=4, memory="4Gi", **{A100: 1})
    world.queue("parent", parent="root", deserved={A100: 2})
    for name in ("child1", "child2"):
        world.queue(name, parent="parent", deserved={A100: 1})
    lone(world, "held", "child1", node="n1", **ONE)
    lone(world, "wants", "child2", **ONE)
    assert evicted(world.run()) == []
    assert "No victim because 1 node has only pods that capacity spares" in world.why("pg-wants")


@pytest.mark.parametrize(
    ("level", "gone"),
    [
        pytest.param(0, ["victim"], marks=pytest.mark.scenario("plugins-fairness", 73)),
        pytest.param(1, ["victim"], marks=pytest.mark.scenario("plugins-fairness", 74)),
        pytest.param(2, [], marks=pytest.mark.scenario("plugins-fairness", 75)),
    ],
)
def test_how_many_ancestors_protect(level: int, gone: list[str]) -> None:
    """queue-b holds 2 of 1, its parent 2 of 1, its grandparent 2 of 3."""
    world = rooted(level=level)
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("grand-b", parent="root", deserved={"cpu": 3})
    world.queue("parent-b", parent="grand-b", deserved={"cpu": 1})
    world.queue("queue-b", parent="parent-b", deserved={"cpu": 1})
    world.queue("grand-a", parent="root", deserved={"cpu": 2})
    world.queue("parent-a", parent="grand-a", deserved={"cpu": 2})
    world.queue("queue-a", parent="parent-a", deserved={"cpu": 2})
    lone(world, "victim", "queue-b", node="n1", cpu=2)
    lone(world, "claims", "queue-a", cpu=2)
    decisions = world.run()
    assert evicted(decisions) == gone
    assert pipelined(decisions) == ({"claims": "n1"} if gone else {})


@pytest.mark.scenario("plugins-fairness", 76)
def test_siblings_that_deserve_nothing_do_not_take_turns() -> None:
    world = rooted(level=1)
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("parent", parent="root", deserved={"cpu": 4})
    for name in ("queue-a", "queue-b"):
        world.queue(name, parent="parent")
    lone(world, "held", "queue-b", node="n1", cpu=2)
    lone(world, "claims", "queue-a", cpu=2)
    session = opened(world)
    assert session.votes.preemptive(
        session.queue_of(job(world, "pg-claims")), [task(world, "claims")]
    )
    assert session.votes.reclaimable(task(world, "claims"), [task(world, "held")]) == []
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 77)
def test_nor_cousins_whose_grandparent_is_full() -> None:
    world = rooted(level=2)
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("grand", parent="root", deserved={"cpu": 2})
    for name in ("a", "b"):
        world.queue(f"parent-{name}", parent="grand")
        world.queue(f"queue-{name}", parent=f"parent-{name}")
    lone(world, "held", "queue-b", node="n1", cpu=2)
    lone(world, "claims", "queue-a", cpu=2)
    session = opened(world)
    assert not session.votes.preemptive(
        session.queue_of(job(world, "pg-claims")), [task(world, "claims")]
    )
    assert session.votes.reclaimable(task(world, "claims"), [task(world, "held")]) == []
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 78)
@pytest.mark.parametrize("preemptor", ["deep", "shallow"])
def test_nor_relatives_at_different_depths(preemptor: str) -> None:
    world = rooted(level=2)
    world.nodes("n1", cpu=2, memory="4Gi")
    world.queue("grand", parent="root", deserved={"cpu": 1})
    world.queue("parent-deep", parent="grand")
    world.queue("queue-deep", parent="parent-deep")
    world.queue("queue-shallow", parent="grand")
    holder = "shallow" if preemptor == "deep" else "deep"
    lone(world, "held", f"queue-{holder}", node="n1", cpu=2)
    lone(world, "claims", f"queue-{preemptor}", cpu=2)
    session = opened(world)
    assert not session.votes.preemptive(
        session.queue_of(job(world, "pg-claims")), [task(world, "claims")]
    )
    assert session.votes.reclaimable(task(world, "claims"), [task(world, "held")]) == []
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 79)
def test_the_third_level_protects_what_two_would_give() -> None:
    """2 of 1, 2 of 1, 2 of 2."""
    world = rooted(level=2)
    world.nodes("n1", cpu=2, memory="2Gi", **{A100: 2})
    world.queue("deep-grand", parent="root", deserved={A100: 2})
    world.queue("deep-parent", parent="deep-grand", deserved={A100: 1})
    world.queue("queue-deep", parent="deep-parent", deserved={A100: 1})
    world.queue("queue-shallow", parent="root", deserved={A100: 1})
    for name in ("d1", "d2"):
        lone(world, name, "queue-deep", node="n1", **ONE)
    lone(world, "claims", "queue-shallow", **ONE)
    assert evicted(world.run()) == []


@pytest.mark.scenario("plugins-fairness", 80)
def test_no_queue_at_all() -> None:
    world = rooted()
    world.state.remove_queue("root")
    world.nodes("n1", cpu=2)
    lone(world, "p", "q", cpu=1)
    decisions = world.run()
    assert bound(decisions) == {}
    assert decisions.problems == ["capacity: there is no queue named root"]
    world.queue("q")
    assert bound(world.run()) == {}, "without a root nothing is placed"
    world.queue("root")
    assert bound(world.run()) == {"p": "n1"}


@pytest.mark.scenario("plugins-fairness", 81)
def test_a_job_of_a_queue_that_was_deleted() -> None:
    world = rooted()
    world.nodes("n1", cpu=2)
    world.queue("q", parent="root")
    world.queue("gone", parent="root")
    lone(world, "lost", "gone", cpu=1)
    lone(world, "p", "q", cpu=1)
    world.state.remove_queue("gone")
    decisions = world.run()
    assert (bound(decisions), decisions.problems) == ({"p": "n1"}, [])


def test_queues_without_a_place_in_the_tree_are_left_out_and_say_so() -> None:
    world = rooted()
    world.nodes("n1", cpu=8)
    for name, parent in (
        ("q", "root"),
        ("circle-a", "circle-b"),
        ("circle-b", "circle-a"),
        ("below", "circle-a"),
        ("orphan", "nobody"),
    ):
        world.queue(name, parent=parent)
        lone(
            world, f"p-{name}", name, cpu=1, about={"phase": "Pending", "min_resources": {"cpu": 1}}
        )
    decisions = world.run()
    assert bound(decisions) == {"p-q": "n1"}
    assert decisions.problems == []
    told = {one.key: one.message for one in decisions.events if one.kind == "Queue"}
    assert told == {
        "circle-a": "queue circle-a is its own ancestor",
        "circle-b": "queue circle-b is its own ancestor",
        "below": "queue below lies below circle-a, which is its own ancestor",
        "orphan": "queue orphan has the parent nobody, which does not exist",
    }
    assert (
        world.why("pg-p-orphan")
        == "pg-p-orphan waits to enter queue orphan: queue orphan has the parent nobody, which does not exist."
    )


def test_order_of_queues() -> None:
    """Priority, then leaves, then shares: siblings by their own, cousins by that of their branch as
    it was at the beginning."""
    world = rooted()
    world.nodes("n1", cpu=100, memory="100Gi")
    world.queue("a", parent="root", deserved={"cpu": 4})
    world.queue("b", parent="root", deserved={"cpu": 4})
    world.queue("a1", parent="a", deserved={"cpu": 1})
    world.queue("a2", parent="a", deserved={"cpu": 4})
    world.queue("b1", parent="b", deserved={"cpu": 4})
    world.queue("urgent", parent="b", priority=1)
    lone(world, "pa1", "a1", node="n1", cpu=1)
    lone(world, "pa2", "a2", node="n1", cpu=2)
    lone(world, "pb1", "b1", node="n1", cpu=2)
    session = opened(world)
    queues = [world.state.queues[name] for name in ("a1", "a2", "b1", "urgent", "a")]
    order = [queue.name for queue in sorted(queues, key=session.order.queue_key)]
    # b holds 2 of 4, a 3 of 4; within a: a2 2 of 4, a1 1 of 1; leaves before parents.
    assert order == ["urgent", "b1", "a2", "a1", "a"]


def test_gauges_of_a_tree() -> None:
    world = rooted()
    world.nodes("n1", cpu=8)
    world.queue("q", parent="root", capability={"cpu": 4}, deserved={"cpu": 2})
    world.queue("leaf", parent="q")
    lone(world, "p", "leaf", cpu=1)
    decisions = world.run()
    assert gauges(decisions, "queue_allocated_milli_cpu") == {"root": 1000, "q": 1000, "leaf": 1000}
    assert gauges(decisions, "queue_deserved_milli_cpu") == {"root": 2000, "q": 2000, "leaf": 0}
    assert gauges(decisions, "queue_capacity_milli_cpu") == {
        "root": 1.7976931348623157e308,
        "q": 4000,
        "leaf": 4000,
    }
    assert gauges(decisions, "queue_real_capacity_milli_cpu")["leaf"] == 4000
    assert gauges(decisions, "queue_share") == {"root": 0.5, "q": 0.5, "leaf": 1}
