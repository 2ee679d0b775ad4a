"""Gang eviction: how jobs are cut into what they can spare and the rest, and in which order it
goes."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.actions.bundles import Bundle, approved, bundles_of, in_order, sufficient
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import evicted, group, job, lone, opened, task


def made(plugins: list[Any] | None = None, actions: str = "gangpreempt", **arguments: Any) -> World:
    settings = (
        [{"name": name, "arguments": arguments} for name in ("gangpreempt", "gangreclaim")]
        if arguments
        else []
    )
    world = World(
        policy(
            plugins=plugins or ["priority", "gang", "conformance", "predicates"],
            actions=actions,
            configurations=settings,
        )
    )
    for name, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(name, value)
    world.nodes("n1", cpu=100)
    return world


def parts(world: World, name: str, *pods: str) -> dict[bool, list[str]]:
    """Safe or not -> the pods, of all candidates or of those named."""
    world.state.count_changes()
    tasks = [task(world, pod) for pod in pods] or list(job(world, name).tasks.values())
    return {
        one.safe: [each.name for each in one.tasks] for one in bundles_of(job(world, name), tasks)
    }


def roles(world: World, least: int, counts: dict[str, int], **minimums: int) -> None:
    """The job g with running pods of roles; each pod's priority is its number."""
    group(world, "g", min_available=least, group={"minTaskMember": minimums} if minimums else None)
    for role, count in counts.items():
        for number in range(count):
            world.pod(
                f"{role}{number}", job="g", node="n1", cpu=1, role=role, spec={"priority": number}
            )


@pytest.mark.scenario("plugins-fairness", 152)
def test_the_two_lowest_can_be_spared() -> None:
    world = made()
    roles(world, 3, {"w": 5}, w=3)
    assert parts(world, "g") == {True: ["w0", "w1"], False: ["w2", "w3", "w4"]}


@pytest.mark.scenario("plugins-fairness", 153)
def test_without_minima_of_roles() -> None:
    world = made()
    roles(world, 2, {"w": 4})
    assert parts(world, "g") == {True: ["w0", "w1"], False: ["w2", "w3"]}


@pytest.mark.scenario("plugins-fairness", 154)
def test_a_job_below_its_minimum_has_nothing_to_lose() -> None:
    world = made()
    roles(world, 5, {"w": 3})
    assert parts(world, "g", "w2", "w0") == {True: ["w0", "w2"]}


def sub_groups(
    world: World, least: int, minimum: int, groups: dict[str, list[int]], size: int = 2, **more: Any
) -> None:
    """The job g whose pods are grouped by a label; for each group the priorities of its pods."""
    rule = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": size, "minSubGroups": minimum}
    group(world, "g", min_available=least, group={"subGroupPolicy": [rule], **more})
    for part, priorities in groups.items():
        for number, priority in enumerate(priorities):
            world.pod(
                f"{part}{number}",
                job="g",
                node="n1",
                cpu=1,
                labels={"part": part},
                spec={"priority": priority},
                role=part,
            )


@pytest.mark.scenario("plugins-fairness", 155)
def test_of_three_sub_groups_one_may_break() -> None:
    world = made()
    sub_groups(world, 4, 2, {"a": [7, 9], "b": [5, 9], "c": [6, 9]})
    assert parts(world, "g", "a0", "b0", "c0") == {True: ["b0"], False: ["c0", "a0"]}


@pytest.mark.scenario("plugins-fairness", 156)
def test_a_role_that_is_tight_beside_sub_groups_that_are_not() -> None:
    world = made()
    rule = {"name": "p", "matchLabelKeys": ["part"], "subGroupSize": 1, "minSubGroups": 1}
    group(
        world,
        "g",
        min_available=6,
        group={"subGroupPolicy": [rule], "minTaskMember": {"worker": 5, "master": 1}},
    )
    for number in range(5):
        world.pod(f"worker{number}", job="g", node="n1", role="worker", labels={"part": "w"})
    for number in range(2):
        world.pod(
            f"master{number}", job="g", node="n1", role="master", labels={"part": f"m{number}"}
        )
    assert parts(world, "g", "worker0", "master0") == {True: ["master0"], False: ["worker0"]}


@pytest.mark.scenario("plugins-fairness", 157)
def test_what_is_broken_already_breaks_nothing() -> None:
    world = made()
    sub_groups(world, 3, 2, {"a": [1, 1], "b": [1, 1], "c": [9]})
    assert parts(world, "g", "a0", "b0", "c0") == {True: ["c0"], False: ["a0", "b0"]}


@pytest.mark.scenario("plugins-fairness", 158)
def test_what_plugins_let_go() -> None:
    world = made()
    roles(world, 2, {"w": 4})
    safe, whole = bundles_of(job(world, "g"), job(world, "g").tasks.values())
    kept = approved([safe, whole], {"default/w0", "default/w2"})
    assert [[one.name for one in bundle.tasks] for bundle in kept] == [["w0"]]
    kept = approved([safe, whole], {"default/w2", "default/w3"})
    assert [[one.name for one in bundle.tasks] for bundle in kept] == [["w2", "w3"]]


@pytest.mark.scenario("plugins-fairness", 159)
@pytest.mark.parametrize("whole", [True, False])
def test_safe_ones_and_a_whole_one_together(whole: bool) -> None:
    """1.5 cpu from a job that can spare 1 and another that can only go as a whole: both are taken,
    and then the first is not needed."""
    world = made(allowWholeBundle=whole)
    world.nodes("n1", cpu=3)
    group(world, "spare", priority="low", min_available=0)
    world.pod("s0", job="spare", node="n1", cpu=1)
    group(world, "tight", priority="low", min_available=2)
    for number in range(2):
        world.pod(f"t{number}", job="tight", node="n1", cpu=1)
    lone(world, "urgent", priority="high", cpu="1500m")
    opened(world)
    jobs = [job(world, name) for name in ("spare", "tight")]
    found = [
        each for one in jobs for each in bundles_of(one, one.tasks.values()) if each.safe or whole
    ]
    taken = next(sufficient(found, {"cpu": 1500.0}, {"cpu": 0.0}), [])
    assert [one.name for each in taken for one in each.tasks] == (
        ["s0", "t0", "t1"] if whole else []
    )
    assert sorted(evicted(world.run())) == (["t0", "t1"] if whole else [])
    if not whole:
        assert world.why("pg-urgent").endswith(
            "No victim because 1 domain has too little room even without all victims."
        )


def bundle(world: World, name: str, *pods: str, safe: bool = False) -> Bundle:
    return Bundle(job(world, name), [task(world, pod) for pod in pods], safe)


def order(world: World, bundles: list[Bundle], preemptor: str, *, across: bool) -> list[str]:
    session = opened(world)
    found = [
        in_order(session, some, job(world, preemptor), {"cpu": 1000.0}, across)
        for some in (bundles, bundles[::-1])
    ]
    assert found[0] == found[1], "whichever came first"
    return [one.tasks[0].name for one in found[0]]


@pytest.mark.scenario("plugins-fairness", 160)
def test_the_order_of_bundles() -> None:
    world = made(["priority", "gang", "capacity"])
    world.queue("q1")
    world.queue("q2", deserved={"cpu": 10})
    for name, queue, priority, cpus in (
        ("safe", "q1", "high", [1]),
        ("low", "q1", "low", [1, 1]),
        ("mid", "q1", "mid", [1]),
        ("half", "q1", "mid", [1, 1]),
        ("other", "q2", "mid", [1]),
    ):
        group(world, name, queue=queue, priority=priority)
        for number, cpu in enumerate(cpus):
            world.pod(f"{name}{number}", job=name, node="n1", cpu=cpu)
    lone(world, "claims", "default", priority="high", cpu=1)
    named = {
        "safe": bundle(world, "safe", "safe0", safe=True),
        "low": bundle(world, "low", "low0"),
        "mid": bundle(world, "mid", "mid0"),
        "half": bundle(world, "half", "half0"),
        "other": bundle(world, "other", "other0"),
    }
    # Safe first; then the job that comes last in order, of one priority the younger.
    some = [named[name] for name in ("half", "mid", "low", "safe")]
    assert order(world, some, "pg-claims", across=False) == ["safe0", "low0", "half0", "mid0"]
    # q1 deserves nothing and so holds more than its share: it gives before q2, whatever it costs.
    # Within it jobs are not compared: 1/1 goes before 1/2 of what is lost for what is gained.
    some = [named[name] for name in ("other", "half", "mid", "safe")]
    assert order(world, some, "pg-claims", across=True) == ["safe0", "mid0", "half0", "other0"]


@pytest.mark.scenario("plugins-fairness", 160)
def test_of_equal_bundles_the_job_s_name_decides() -> None:
    world = made(["gang"])
    for name in ("b", "a"):
        group(world, name)
        world.pod(f"{name}0", job=name, node="n1", cpu=1)
    lone(world, "claims", cpu=1)
    bundles = [bundle(world, name, f"{name}0") for name in ("b", "a")]
    assert order(world, bundles, "pg-claims", across=False) == ["a0", "b0"]


@pytest.mark.scenario("plugins-fairness", 161)
@pytest.mark.parametrize(
    ("stated", "may"),
    [("false", False), ("true", True), (None, True), ("0", False), ("perhaps", False)],
)
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_group_that_says_no(stated: str | None, may: bool, where: str) -> None:
    world = made()
    world.nodes("n1", cpu=1)
    group(world, "held", priority="low")
    if stated is not None:
        world.groups["default/held"]["metadata"][where] = {"volcano.sh/preemptable": stated}
        world.state.upsert_pod_group(world.groups["default/held"])
    world.pod("h", job="held", node="n1", cpu=1)
    lone(world, "urgent", priority="high", cpu=1)
    assert evicted(world.run()) == (["h"] if may else [])


@pytest.mark.scenario("plugins-fairness", 161)
def test_only_other_queues_that_give_back() -> None:
    world = made(["priority", "gang", "capacity", "predicates"], "gangreclaim")
    world.nodes("n1", cpu=3)
    world.queue("mine", deserved={"cpu": 3})
    world.queue("open")
    world.queue("shut", reclaimable=False)
    for name in ("mine", "open", "shut"):
        lone(world, f"in-{name}", name, node="n1", cpu=1, priority="low")
    lone(world, "claims", "mine", cpu=1, priority="high")
    assert evicted(world.run()) == ["in-open"]


@pytest.mark.scenario("plugins-fairness", 161)
@pytest.mark.parametrize("most", [0, -3])
def test_no_number_of_domains_is_the_usual_number(most: int) -> None:
    world = made(maxDomains=most)
    world.nodes("n1", cpu=1)
    lone(world, "held", node="n1", cpu=1, priority="low")
    lone(world, "urgent", priority="high", cpu=1)
    assert evicted(world.run()) == ["held"]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"spec": {"preemptionPolicy": "Never"}}, "its preemptionPolicy is Never"),
        (
            {"priority": "low"},
            "1 domain has no running pod of lesser jobs of queue default that may be evicted",
        ),
        ({"cpu": 3}, "1 domain has too little room even without all victims"),
    ],
)
def test_why_nobody_goes(about: dict[str, Any], why: str) -> None:
    world = made()
    world.nodes("n1", cpu=2)
    lone(world, "held", node="n1", cpu=2, priority="low")
    lone(world, "urgent", **{"priority": "high", "cpu": 1, **about})
    assert evicted(world.run()) == []
    assert world.why("pg-urgent").endswith(f"No victim because {why}.")


def test_why_nobody_is_reclaimed() -> None:
    world = made(["gang", "capacity", "predicates"], "gangreclaim")
    world.nodes("n1", cpu=2)
    world.queue("mine", deserved={"cpu": 1})
    world.queue("theirs", deserved={"cpu": 1}, guarantee={"cpu": 1})
    lone(world, "held", "theirs", node="n1", cpu=1)
    lone(world, "own", "mine", node="n1", cpu=1)
    lone(world, "more", "mine", cpu=1)
    assert evicted(world.run()) == []
    assert world.why("pg-more").endswith(
        "No victim because queue mine would hold more than its share: cpu=1 held and 1 asked of capability 1."
    )
    world.state.remove_pod("default/own")
    world.nodes("n1", cpu=1)
    assert evicted(world.run()) == []
