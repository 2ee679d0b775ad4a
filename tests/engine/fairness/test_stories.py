"""Whole stories: jobs come, cycles run, what was decided comes true, until nothing is left to decide."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy
from tests.engine.fairness.stage import bound, conditions, evicted, group, lone, play, running, terminating, tree

SHIPPED = [
    ["priority", {"name": "gang", "enablePreemptable": False}, "conformance"],
    ["overcommit", {"name": "drf", "enablePreemptable": False}, "predicates", "proportion", "nodeorder", "binpack"],
]
GATE = "scheduling.volcano.sh/queue-allocation-gate"


def cluster(
    slots: int = 8, nodes: int = 2, *, tiers: list[Any] | None = None, actions: str = "enqueue, allocate, backfill", **more: Any
) -> World:
    """Nodes with so many slots of 1 cpu in all."""
    world = World(policy(tiers=tiers or SHIPPED, actions=actions, **more))
    for name, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(name, value)
    world.nodes(*(f"n{number}" for number in range(nodes)), cpu=slots // nodes, memory="64Gi")
    return world


def submitted(world: World, name: str, pods: int, least: int | None = None, **more: Any) -> None:
    world.job(name, pods=pods, min_available=least, phase="Pending", **{"cpu": 1, **more})


def sees(world: World, job: str) -> str:
    return str(world.groups[f"default/{job}"]["status"]["phase"])


@pytest.mark.scenario("plugins-fairness", 168)
def test_a_job_that_fills_the_cluster() -> None:
    world = cluster(8)
    submitted(world, "job", 8, 2)
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 8)


@pytest.mark.scenario("plugins-fairness", 169)
def test_three_of_them_reach_their_minima() -> None:
    world = cluster(8)
    for name in "abc":
        submitted(world, name, 8, 2)
    play(world)
    assert all(running(world, name) >= 2 and sees(world, name) == "Running" for name in "abc")


@pytest.mark.scenario("plugins-fairness", 170)
def test_a_gang_waits_until_there_is_room_for_all_of_it() -> None:
    world = cluster(8)
    for number in range(5):
        lone(world, f"replica-{number}", cpu=1, about={"phase": "Pending"})
    play(world)
    submitted(world, "gang", 5)
    play(world)
    assert (sees(world, "gang"), running(world, "gang")) == ("Inqueue", 0)
    assert conditions(world, "gang")["Unschedulable"]["reason"] == "NotEnoughResources"
    for number in range(5):
        world.state.remove_pod(f"default/replica-{number}")
        world.state.remove_pod_group(f"default/pg-replica-{number}")
        del world.groups[f"default/pg-replica-{number}"]
    play(world)
    assert (sees(world, "gang"), running(world, "gang")) == ("Running", 5)


@pytest.mark.scenario("plugins-fairness", 171)
def test_the_first_gang_is_not_touched_by_the_second() -> None:
    world = cluster(8, actions="enqueue, allocate, preempt, reclaim, backfill")
    submitted(world, "first", 8)
    play(world)
    submitted(world, "second", 8)
    told = play(world)
    assert (running(world, "first"), running(world, "second")) == (8, 0)
    assert sees(world, "second") in ("Pending", "Inqueue")
    assert not [one for decisions in told for one in decisions.evictions]


@pytest.mark.scenario("plugins-fairness", 172)
@pytest.mark.parametrize("best_effort_first", [True, False])
def test_a_gang_of_pods_that_ask_and_pods_that_do_not(best_effort_first: bool) -> None:
    world = cluster(4)
    group(world, "mixed", min_available=6, phase="Pending")
    kinds: list[dict[str, Any]] = [{}] * 3 + [{"cpu": 1}] * 3
    for number, asked in enumerate(kinds if best_effort_first else kinds[::-1]):
        world.pod(f"mixed-task-{number}", job="mixed", **asked)
    play(world)
    assert (sees(world, "mixed"), running(world, "mixed")) == ("Running", 6)


@pytest.mark.scenario("plugins-fairness", 173)
def test_best_effort_pods_that_come_later() -> None:
    world = cluster(4)
    submitted(world, "job", 4)
    play(world)
    for number in range(3):
        world.pod(f"job-extra-{number}", job="job", role="extra")
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 7)


@pytest.mark.scenario("plugins-fairness", 174)
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_job_that_has_ended(end: str) -> None:
    world = cluster(4)
    submitted(world, "batch", 2)
    play(world)
    assert sees(world, "batch") == "Running"
    world.end("batch", phase=end)
    world.run()
    world.settle()
    assert sees(world, "batch") == "Completed"


@pytest.mark.scenario("plugins-fairness", 176)
def test_fair_shares_of_queues_and_jobs() -> None:
    """What the original skips: by weight between queues, by dominant share between jobs of one."""
    world = cluster(12, 3)
    world.queue("one", weight=1)
    world.queue("two", weight=2)
    for queue in ("one", "two"):
        for number in range(2):
            submitted(world, f"{queue}-{number}", 12, 1, queue=queue)
    play(world)
    held = {name: running(world, name) for name in ("one-0", "one-1", "two-0", "two-1")}
    assert held == {"one-0": 2, "one-1": 2, "two-0": 4, "two-1": 4}


@pytest.mark.scenario("plugins-fairness", 176)
def test_several_preemptors_at_once() -> None:
    world = cluster(8, actions="allocate, preempt, backfill")
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    for name in ("x", "y"):
        submitted(world, name, 3, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "x"), running(world, "y")) == (2, 3, 3)


@pytest.mark.scenario("plugins-fairness", 176)
def test_reclaim_until_both_have_their_half() -> None:
    tiers = [["priority", "gang", "conformance", "proportion"], ["overcommit", "drf", "predicates", "nodeorder"]]
    world = cluster(8, tiers=tiers, actions="enqueue, allocate, reclaim, backfill")
    world.queue("q1")
    world.queue("q2")
    submitted(world, "first", 8, 1, queue="q1")
    play(world)
    submitted(world, "second", 4, 4, queue="q2")
    play(world)
    assert (running(world, "first"), running(world, "second")) == (4, 4)


@pytest.mark.scenario("plugins-fairness", 177)
def test_without_the_action_enqueue() -> None:
    world = cluster(4, actions="allocate, backfill")
    submitted(world, "job", 4, min_resources={"cpu": 400})
    play(world)
    assert (sees(world, "job"), running(world, "job")) == ("Running", 4)


def gated(world: World, name: str, pods: int, *gates: str, least: int | None = None, **more: Any) -> None:
    submitted(world, name, pods, least, spec={"schedulingGates": [{"name": gate} for gate in gates or ("example.com/wait",)]}, **more)


def lift(world: World, job: str, *gates: str) -> None:
    """Somebody takes these gates, or all, off the pods of a job."""
    for pod in world.pods.values():
        if pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == job:
            left = [one for one in pod["spec"].get("schedulingGates", []) if gates and one["name"] not in gates]
            pod["spec"] = {**pod["spec"], "schedulingGates": left}
            world.state.upsert_pod(pod)


@pytest.mark.scenario("plugins-fairness", 178)
def test_gated_pods_take_nobodys_room() -> None:
    world = cluster(8)
    gated(world, "gated", 8, min_resources={"cpu": 8})
    for name in ("one", "two"):
        submitted(world, name, 4, min_resources={"cpu": 4})
    play(world)
    assert [running(world, name) for name in ("gated", "one", "two")] == [0, 4, 4]


@pytest.mark.parametrize(
    ("guarantee", "asked", "pods"),
    [
        pytest.param(4, 1, 8, marks=pytest.mark.scenario("plugins-fairness", 179)),
        pytest.param(7, "1500m", 1, marks=pytest.mark.scenario("plugins-fairness", 180)),
    ],
)
def test_what_is_guaranteed_to_one_queue_is_nobody_elses(guarantee: int, asked: Any, pods: int) -> None:
    world = cluster(8)
    world.queue("sure", guarantee={"cpu": guarantee})
    world.queue("other")
    total = "1500m" if pods == 1 else pods
    submitted(world, "job", pods, queue="other", cpu=asked, min_resources={"cpu": total})
    play(world)
    assert (running(world, "job"), sees(world, "job")) == (0, "Pending")
    assert "insufficient cpu" in world.why("job")


@pytest.mark.scenario("plugins-fairness", 181)
def test_as_far_as_the_loop_says() -> None:
    """Of 4 cpu q1 deserves 2.5 and q2 its 0.5: q1 may have the half that it asks for on top."""
    world = cluster(4, 1)
    world.queue("q1")
    world.queue("q2")
    for number in range(2):
        lone(world, f"one-{number}", "q1", node="n0", cpu=1)
    lone(world, "two", "q2", node="n0", cpu="500m")
    lone(world, "more", "q1", cpu="500m", about={"phase": "Pending"})
    assert bound(world.run()) == {"more": "n0"}


@pytest.mark.parametrize(
    ("pods", "least"),
    [
        pytest.param(3, 3, marks=pytest.mark.scenario("plugins-fairness", 182)),
        pytest.param(3, 1, marks=pytest.mark.scenario("plugins-fairness", 183)),
    ],
)
def test_gates_are_lifted(pods: int, least: int) -> None:
    world = cluster(4)
    gated(world, "gated", pods, least=least)
    play(world)
    assert (sees(world, "gated"), running(world, "gated")) == ("Inqueue", 0)
    assert "Unschedulable" in conditions(world, "gated")
    lift(world, "gated")
    play(world)
    assert (sees(world, "gated"), running(world, "gated")) == ("Running", pods)


PREEMPTING = "allocate, preempt, backfill"


@pytest.mark.scenario("plugins-fairness", 184)
def test_preemption_takes_what_it_needs() -> None:
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "lesser", 4, 1, priority="low")
    submitted(world, "greater", 4, 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    submitted(world, "greater", 8, 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)


@pytest.mark.scenario("plugins-fairness", 185)
def test_who_is_not_let_in_preempts_nobody() -> None:
    world = cluster(8, actions="enqueue, allocate, preempt, backfill")
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    submitted(world, "greater", 1, priority="high", min_resources={"cpu": 30})
    play(world)
    assert (sees(world, "greater"), running(world, "greater"), running(world, "lesser")) == ("Pending", 0, 8)


@pytest.mark.scenario("plugins-fairness", 186)
def test_preemption_stays_in_its_queue() -> None:
    world = cluster(8, actions=PREEMPTING)
    world.queue("q1")
    world.queue("q2")
    for queue in ("q1", "q2"):
        submitted(world, f"lesser-{queue}", 4, 1, priority="low", queue=queue)
    play(world)
    submitted(world, "greater", 2, priority="high", queue="q1")
    play(world)
    assert [running(world, name) for name in ("lesser-q1", "lesser-q2", "greater")] == [2, 4, 2]


@pytest.mark.scenario("plugins-fairness", 187)
def test_nobody_goes_for_a_gang_that_would_not_fit() -> None:
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "equal", 5, priority="high")
    submitted(world, "lesser", 3, 1, priority="low")
    play(world)
    submitted(world, "greater", 4, priority="high")
    told = play(world)
    assert [running(world, name) for name in ("equal", "lesser", "greater")] == [5, 3, 0]
    assert not [one for decisions in told for one in decisions.evictions]


@pytest.mark.scenario("plugins-fairness", 188)
def test_a_gated_claimer_waits_for_its_gates() -> None:
    world = cluster(8, actions=PREEMPTING)
    submitted(world, "lesser", 8, 1, priority="low")
    play(world)
    gated(world, "greater", 4, priority="high")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (8, 0)
    lift(world, "greater")
    play(world)
    assert (running(world, "lesser"), running(world, "greater")) == (4, 4)


@pytest.mark.scenario("plugins-fairness", 189)
def test_the_one_that_is_in_the_way_goes_and_bystanders_stay() -> None:
    arguments = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}]
    world = cluster(12, 3, actions="allocate, preempt", configurations=arguments)
    for number in range(3):
        lone(world, f"bystander-{number}", priority="low", node=f"n{number}", cpu=1, about={"min_available": 0})
        app = {"app": "loud"} if number else {}
        lone(world, f"blocker-{number}", priority="mid", node=f"n{number}", cpu=1, labels=app, about={"min_available": 0})
    lone(world, "full", priority="high", node="n0", cpu=2)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "loud"}}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    own = {"matchLabels": {"job": "greater"}}
    alone = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    apart["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].append(alone)
    submitted(world, "greater", 2, priority="high", labels={"job": "greater"}, spec={**apart, "nodeSelector": {"rack": "b"}})
    world.nodes("n1", "n2", cpu=4, memory="64Gi", labels={"rack": "b"})
    told = play(world)
    assert sorted(one.pod for decisions in told for one in decisions.evictions) == ["default/blocker-1", "default/blocker-2"]
    assert running(world, "greater") == 2


RECLAIMING = [["priority", "gang", "conformance", "proportion"], ["overcommit", "drf", "predicates", "nodeorder", "binpack"]]


def reclaiming(slots: int, nodes: int = 2, *queues: str, tiers: list[Any] | None = None, **spec: Any) -> World:
    world = cluster(slots, nodes, tiers=tiers or RECLAIMING, actions="enqueue, allocate, reclaim, backfill")
    for name in queues:
        world.queue(name, **spec)
    return world


def quiet(world: World) -> bool:
    """Until nothing is decided, nobody was evicted."""
    return not [one for decisions in play(world) for one in decisions.evictions]


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_1_room_for_all() -> None:
    world = reclaiming(8, 2, "q1", "q2", "q3")
    for name in ("q1", "q2", "q3"):
        submitted(world, f"in-{name}", 2, queue=name)
    assert quiet(world)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3")] == [2, 2, 2]


@pytest.mark.scenario("plugins-fairness", 190)
@pytest.mark.parametrize("priority", ["", "high"])
def test_reclaim_4_and_5_a_queue_that_is_not_there(priority: str) -> None:
    world = reclaiming(2, 1, "q1")
    submitted(world, "in-q1", 2, 1, queue="q1")
    submitted(world, "lost", 1, queue="nowhere", priority=priority)
    assert quiet(world)
    assert running(world, "lost") == 0
    assert "default/lost" not in world.decisions.explanations


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_6_everybody_has_its_share() -> None:
    world = reclaiming(6, 2, "q1", "q2", "q3")
    for name in ("q1", "q2", "q3"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    submitted(world, "more", 1, queue="q3")
    assert quiet(world)
    assert (sees(world, "more"), running(world, "more")) == ("Inqueue", 0)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3")] == [2, 2, 2]


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_7_a_node_that_is_not_there() -> None:
    world = reclaiming(4, 2, "q1", "q2")
    submitted(world, "in-q1", 4, 1, queue="q1")
    play(world)
    submitted(world, "wants", 1, queue="q2", spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})
    assert quiet(world)
    assert (running(world, "wants"), running(world, "in-q1")) == (0, 4)


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_8_larger_than_any_node() -> None:
    world = reclaiming(4, 4, "q1", "q2")
    submitted(world, "in-q1", 4, 1, queue="q1")
    play(world)
    submitted(world, "wants", 1, queue="q2", cpu=4)
    assert quiet(world)
    assert (sees(world, "wants"), running(world, "in-q1")) == ("Inqueue", 4)


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_9_nobody_gives_back() -> None:
    world = reclaiming(6, 2, "q1", "q2", reclaimable=False)
    world.queue("q3")
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    submitted(world, "wants", 3, 1, queue="q3")
    assert quiet(world)
    assert running(world, "wants") == 2


@pytest.mark.scenario("plugins-fairness", 190)
def test_reclaim_10_two_new_queues() -> None:
    world = reclaiming(4, 2, "q1", "q2", "q3", "q4")
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 2, 1, queue=name)
    play(world)
    for name in ("q3", "q4"):
        submitted(world, f"in-{name}", 1, queue=name)
    play(world)
    assert [running(world, f"in-{name}") for name in ("q1", "q2", "q3", "q4")] == [1, 1, 1, 1]


CAPACITY = [["priority", "gang", "conformance", "capacity"], ["predicates", "nodeorder"]]


@pytest.mark.scenario("plugins-fairness", 191)
def test_reclaim_11_by_what_queues_name() -> None:
    world = reclaiming(8, 2, tiers=CAPACITY)
    for name, cpu in (("q1", 1), ("q2", 1), ("q3", 2), ("q4", 4)):
        world.queue(name, deserved={"cpu": cpu})
    for name in ("q1", "q2"):
        submitted(world, f"in-{name}", 4, 1, queue=name)
    play(world)
    submitted(world, "in-q3", 1, queue="q3", cpu=2)
    for number, cpu in enumerate((2, 1, 1)):
        submitted(world, f"in-q4-{number}", 1, queue="q4", cpu=cpu)
    play(world)
    assert [running(world, name) for name in ("in-q1", "in-q2", "in-q3", "in-q4-0", "in-q4-1", "in-q4-2")] == [1, 1, 1, 1, 1, 1]


@pytest.mark.scenario("plugins-fairness", 192)
def test_reclaim_12_in_a_tree() -> None:
    """q2 holds 7 of 4; q11 and q12 deserve 2 each, and take back what they ask for."""
    tiers = [["priority", "gang", "conformance", {"name": "capacity", "enableHierarchy": True}], ["predicates", "nodeorder"]]
    world = reclaiming(8, 2, tiers=tiers)
    world.queue("root")
    world.queue("q1", parent="root", deserved={"cpu": 4})
    world.queue("q11", parent="q1", deserved={"cpu": 2})
    world.queue("q12", parent="q1", deserved={"cpu": 2})
    world.queue("q2", parent="root", deserved={"cpu": 4})
    submitted(world, "first-q11", 1, queue="q11")
    submitted(world, "in-q2", 7, 1, queue="q2")
    play(world)
    submitted(world, "in-q12", 1, queue="q12")
    submitted(world, "second-q11", 1, queue="q11")
    play(world)
    assert [running(world, name) for name in ("first-q11", "second-q11", "in-q12", "in-q2")] == [1, 1, 1, 5]


@pytest.mark.scenario("plugins-fairness", 193)
@pytest.mark.parametrize(("pods", "least"), [(1, 1), (2, 2)])
def test_a_member_that_takes_long_to_end(pods: int, least: int) -> None:
    world = cluster(4)
    submitted(world, "job", pods, least)
    play(world)
    terminating(world, "job-task-0")
    for _ in range(8):
        world.now += 2
        world.run()
        world.settle()
        assert sees(world, "job") == "Running"
        assert "Unschedulable" not in conditions(world, "job")


def admitted(world: World, pod: str, queue: str, *gates: str, cpu: Any = "500m", **more: Any) -> None:
    """As the webhook leaves a pod that wants to wait at its queue's gate."""
    named = [{"name": gate} for gate in (*gates, GATE)]
    notes = {GATE: "true"}
    lone(world, pod, queue, cpu=cpu, annotations=notes, spec={"schedulingGates": named, **more}, about={"phase": "Pending"})


def carry_gates(world: World) -> list[str]:
    """What the carrier does with lifted gates."""
    gone = [one.removeprefix("default/") for one in world.decisions.gates]
    for pod in gone:
        lift(world, f"pg-{pod}", GATE)
    return gone


@pytest.mark.scenario("plugins-fairness", 194)
def test_a_queue_s_gate() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 1})
    admitted(world, "first", "q")
    assert bound(world.run()) == {}
    assert carry_gates(world) == ["first"]
    world.settle()
    assert list(bound(world.run())) == ["first"]
    world.settle()
    admitted(world, "stuck", "q", nodeSelector={"none": "such"})
    world.run()
    assert carry_gates(world) == ["stuck"]
    admitted(world, "late", "q")
    for _ in range(3):
        assert bound(world.run()) == {}
        assert carry_gates(world) == [], "stuck holds the other half of the queue"
        world.settle()
    world.state.remove_pod("default/stuck")
    world.run()
    assert carry_gates(world) == ["late"]
    assert list(bound(world.run())) == ["late"]


@pytest.mark.scenario("plugins-fairness", 194)
def test_gates_stay_where_the_feature_is_off() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.queue("q", capability={"cpu": 1})
    admitted(world, "first", "q")
    for _ in range(2):
        assert bound(world.run()) == {}
        assert world.decisions.gates == []
        world.settle()


@pytest.mark.scenario("plugins-fairness", 195)
def test_another_gate_comes_first() -> None:
    world = cluster(4, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 1})
    admitted(world, "both", "q", "example.com/wait")
    for _ in range(2):
        world.run()
        assert carry_gates(world) == []
        world.settle()
    lift(world, "pg-both", "example.com/wait")
    world.run()
    assert carry_gates(world) == ["both"]
    assert list(bound(world.run())) == ["both"]


def test_an_undone_placement_keeps_its_reservation() -> None:
    """A gang of two in which only one fits: the pods whose gate was lifted hold the queue all the same."""
    world = cluster(1, 1, tiers=CAPACITY, actions="enqueue, allocate")
    world.state.lifts_gates = True
    world.queue("q", capability={"cpu": 2})
    group(world, "pair", queue="q", min_available=2, phase="Pending")
    for number in range(2):
        world.pod(f"pair-task-{number}", job="pair", cpu=1, annotations={GATE: "true"})
    admitted(world, "third", "q", cpu=1)
    for _ in range(2):
        assert bound(world.run()) == {}
        assert carry_gates(world) == []
        world.settle()


GANGS = [["priority", "gang", "conformance", "capacity"], ["predicates", "nodeorder"]]


def gangs(action: str, slots: int = 4) -> World:
    return cluster(slots, 2, tiers=GANGS, actions=f"enqueue, allocate, {action}")


@pytest.mark.scenario("plugins-fairness", 196)
@pytest.mark.parametrize(
    ("victims", "claimer", "kept"),
    [
        ([(4, 2)], 2, [2]), ([(2, 1), (2, 1)], 2, [1, 1]), ([(2, 2), (2, 2)], 2, [0, 2]), ([(2, 2), (2, 2)], 4, [0, 0]), ([(4, 4)], 2, [0]),
    ],
    ids=["GP-1", "GP-2", "GP-3", "GP-4", "GP-5"],
)  # fmt: skip
def test_gangs_preempt(victims: list[tuple[int, int]], claimer: int, kept: list[int]) -> None:
    """GP-5: the gang of four breaks as a whole; all its pods go."""
    world = gangs("gangpreempt")
    for number, (pods, least) in enumerate(victims):
        submitted(world, f"v{number}", pods, least, priority="low")
    play(world)
    submitted(world, "claims", claimer, priority="high")
    play(world)
    assert running(world, "claims") == claimer
    assert sorted(running(world, f"v{number}") for number in range(len(victims))) == kept


@pytest.mark.scenario("plugins-fairness", 196)
def test_gangs_preempt_nobody_in_other_queues_or_of_their_own_rank() -> None:
    """GP-6, GP-7."""
    for queue, priority in (("fixed", "low"), ("default", "high")):
        world = gangs("gangpreempt")
        world.queue("fixed", reclaimable=False)
        submitted(world, "v", 4, 2, priority=priority, queue=queue)
        play(world)
        submitted(world, "claims", 2, priority="high")
        assert quiet(world)
        assert (running(world, "v"), running(world, "claims")) == (4, 0)
        assert "No victim because 1 domain has no running pod of lesser jobs of queue default" in world.why("claims")


@pytest.mark.scenario("plugins-fairness", 196)
def test_gangs_leave_what_would_not_be_enough() -> None:
    """GP-8."""
    world = gangs("gangpreempt")
    submitted(world, "great", 2, priority="high")
    submitted(world, "small", 2, priority="low")
    play(world)
    submitted(world, "claims", 4, priority="mid")
    assert quiet(world)
    assert [running(world, name) for name in ("great", "small", "claims")] == [2, 2, 0]


def evicting(kind: str, slots: int = 4) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """A world for preempting or reclaiming, and what victim and claimer are."""
    world = gangs(f"gang{kind}", slots)
    world.queue("theirs", deserved={"cpu": slots // 2})
    world.queue("ours", deserved={"cpu": slots // 2})
    queue = "theirs" if kind == "reclaim" else "ours"
    return world, {"priority": "low", "queue": queue}, {"priority": "high", "queue": "ours"}


KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("preempt", marks=pytest.mark.scenario("plugins-fairness", 197)),
        pytest.param("reclaim", marks=pytest.mark.scenario("plugins-fairness", 200)),
    ],
)


@KINDS
def test_a_role_at_its_minimum_stays(kind: str) -> None:
    """GP-R1, GR-R1: ps 1 of 1, worker 3 of 2."""
    world, theirs, ours = evicting(kind)
    notes = {"minTaskMember": {"ps": 1, "worker": 2}}
    group(world, "v", min_available=3, phase="Pending", group=notes, **theirs)
    for role, count in (("ps", 1), ("worker", 3)):
        for number in range(count):
            world.pod(f"v-{role}-{number}", job="v", role=role, cpu=1)
    play(world)
    submitted(world, "claims", 1, **ours)
    gone = [one.pod for decisions in play(world) for one in decisions.evictions]
    assert [pod.rpartition("-")[0] for pod in gone] == ["default/v-worker"]
    assert running(world, "claims") == 1


@KINDS
def test_one_sub_group_is_enough(kind: str) -> None:
    """GP-S1, GR-S1: two sub-groups of two, one of which must stay whole."""
    world, theirs, ours = evicting(kind)
    rule = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": 2, "minSubGroups": 1}
    group(world, "v", min_available=2, phase="Pending", group={"subGroupPolicy": [rule]}, **theirs)
    for number in range(4):
        world.pod(f"v-{number}", job="v", labels={"part": "ab"[number // 2]}, cpu=1)
    play(world)
    submitted(world, "claims", 2, **ours)
    gone = {one.pod for decisions in play(world) for one in decisions.evictions}
    assert gone in ({"default/v-0", "default/v-1"}, {"default/v-2", "default/v-3"})
    assert running(world, "claims") == 2


@pytest.mark.scenario("plugins-fairness", 199)
@pytest.mark.parametrize(
    ("victims", "kept"), [([(4, 2)], [2]), ([(2, 2), (2, 2)], [0, 2])], ids=["GR-1", "GR-2"]
)
def test_gangs_reclaim(victims: list[tuple[int, int]], kept: list[int]) -> None:
    """GR-3 is as GR-1."""
    world, theirs, ours = evicting("reclaim")
    for number, (pods, least) in enumerate(victims):
        submitted(world, f"v{number}", pods, least, **theirs)
    play(world)
    submitted(world, "claims", 2, **ours)
    play(world)
    assert running(world, "claims") == 2
    assert sorted(running(world, f"v{number}") for number in range(len(victims))) == kept


@pytest.mark.scenario("plugins-fairness", 199)
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("GR-4", "1 domain has only pods that capacity spares"),
        ("GR-5", "1 domain has no running pod of other queues that may be evicted"),
        ("GR-6", "1 domain has too little room even without all victims"),
        ("GR-7", "queue ours would hold more than its share: cpu=0 held and 2 asked of deserved 1"),
    ],
)
def test_gangs_reclaim_nothing(case: str, why: str) -> None:
    world, theirs, ours = evicting("reclaim")
    pods = 2 if case == "GR-7" else 4
    if case == "GR-4":
        world.queue("theirs", deserved={"cpu": 4})
    if case == "GR-5":
        world.queue("theirs", reclaimable=False, deserved={"cpu": 2})
    if case == "GR-6":
        world.queue("theirs", deserved={"cpu": 2}, guarantee={"cpu": 2})
        world.queue("ours", deserved={"cpu": 4}, guarantee={"cpu": 2})
    if case == "GR-7":
        world.queue("ours", deserved={"cpu": 1})
        world.nodes("n0", "n1", cpu=1, memory="64Gi")
    submitted(world, "v", pods, 1 if case == "GR-6" else 2, **theirs)
    play(world)
    submitted(world, "claims", 4 if case == "GR-6" else 2, **ours)
    if case == "GR-6":
        world.nodes("n0", "n1", cpu=2, memory="64Gi")
        world.queue("theirs", deserved={"cpu": 2}, guarantee={"cpu": 2})
        world.queue("ours", deserved={"cpu": 4})
        why = "queue ours would hold more than its share: cpu=0 held and 4 asked of capability 2"
    assert quiet(world)
    assert (running(world, "v"), running(world, "claims")) == (pods, 0)
    assert world.why("claims").endswith(f"No victim because {why}.")


def racks(kind: str) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """Two racks of two nodes of 2 cpu each below one row, all of it filled by the victim."""
    world, theirs, ours = evicting(kind, 8)
    world.policy = policy(tiers=[GANGS[0], [*GANGS[1], "network-topology-aware"]], actions=f"enqueue, allocate, gang{kind}")
    for number in range(4):
        world.nodes(f"n{number}", cpu=2, memory="64Gi")
    for name, tier, members, of in (
        ("r0", 1, ["n0", "n1"], "Node"), ("r1", 1, ["n2", "n3"], "Node"), ("row", 2, ["r0", "r1"], "HyperNode"),
    ):  # fmt: skip
        listed = [{"type": of, "selector": {"exactMatch": {"name": one}}} for one in members]
        world.state.upsert_other("HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}})
    submitted(world, "v", 8, 2, **theirs)
    play(world)
    return world, theirs, ours


def nodes_of(world: World, job: str) -> set[str]:
    pods = (one for one in world.pods.values() if one["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == job)
    return {one["spec"]["nodeName"] for one in pods}


TOPOLOGIES = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("preempt", marks=pytest.mark.scenario("plugins-fairness", 198)),
        pytest.param("reclaim", marks=pytest.mark.scenario("plugins-fairness", 200)),
    ],
)


@TOPOLOGIES
@pytest.mark.parametrize(("tier", "pods", "one_rack"), [(1, 3, True), (2, 4, False), (2, 2, True)], ids=["T1", "T3", "T4"])
def test_room_in_a_domain(kind: str, tier: int, pods: int, one_rack: bool) -> None:
    world, _, ours = racks(kind)
    topology = {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}
    submitted(world, "claims", pods, group=topology, **ours)
    play(world)
    assert running(world, "claims") == pods
    assert running(world, "v") == 8 - pods
    if one_rack:
        assert nodes_of(world, "claims") in ({"n0"}, {"n1"}, {"n2"}, {"n3"}, {"n0", "n1"}, {"n2", "n3"})


@TOPOLOGIES
def test_a_domain_that_is_too_small(kind: str) -> None:
    """T2: 5 cpu do not go into a rack of 4."""
    world, _, ours = racks(kind)
    if kind == "reclaim":
        world.queue("ours", deserved={"cpu": 8})
    submitted(world, "claims", 5, group={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, **ours)
    assert quiet(world)
    assert (running(world, "v"), running(world, "claims")) == (8, 0)


@pytest.mark.scenario("plugins-fairness", 200)
def test_reclaiming_more_than_is_deserved_is_refused_whatever_the_topology() -> None:
    """GR-T3 as its note has it: three asked, two deserved."""
    world, _, ours = racks("reclaim")
    world.queue("ours", deserved={"cpu": 2})
    submitted(world, "claims", 3, group={"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}, **ours)
    assert quiet(world)
    assert "3 asked of deserved 2" in world.why("claims")


def test_pods_of_the_tree_helper_are_those_of_the_world() -> None:
    world = cluster()
    submitted(world, "job", 1)
    assert tree(world, "job-task-0") is world.pods["default/job-task-0"]
    assert evicted(world.run()) == []
