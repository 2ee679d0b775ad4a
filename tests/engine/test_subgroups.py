"""Jobs in sub-groups: each near to itself, enough of each kind, all within the job's own domain.
Reference: scheduler-core 10.4."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World
from tests.engine.trees import SOFT, SUB_GROUPS, bare, hard, hyper, racks, tree_a, tree_b

KEY = "group"


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def parts(
    name: str = "parts",
    *,
    size: int | None = None,
    least: int | None = None,
    role: str = "",
    **topology: Any,
) -> dict[str, Any]:
    """A policy that makes a sub-group of the pods with one value of the label; `role` picks the
    pods by another label."""
    made: dict[str, Any] = {"name": name, "matchLabelKeys": [KEY], **topology}
    if size is not None:
        made["subGroupSize"] = size
    if least is not None:
        made["minSubGroups"] = least
    if role:
        made["labelSelector"] = {"matchLabels": {"role": role}}
    return made


def job(
    world: World,
    minimum: int,
    policies: list[dict[str, Any]],
    topology: dict[str, Any] | None = None,
) -> None:
    world.job(
        "job", pods=0, min_available=minimum, group={**(topology or {}), "subGroupPolicy": policies}
    )


def pods(
    world: World,
    group: str,
    count: int = 1,
    *,
    role: str = "",
    on: tuple[str, ...] = (),
    cpu: int = 2,
    **more: Any,
) -> None:
    labels = {KEY: group, **({"role": role} if role else {})}
    for number in range(count):
        node = on[number] if number < len(on) else ""
        world.pod(
            f"job-{role or 'p'}{group}-{number}",
            job="job",
            cpu=cpu,
            labels=labels,
            node=node,
            **more,
        )


def count(world: World) -> int:
    return len(world.run().binds)


def node_of(world: World, pod: str) -> str:
    return world.decisions.bound()[f"default/job-{pod}"]


def three_racks(sizes: tuple[int, ...], cpu: int = 2) -> World:
    """Racks s0, s1, ... of these sizes under one switch."""
    world = bare(SUB_GROUPS)
    for rack, size in enumerate(sizes):
        names = [f"s{rack}-n{number}" for number in range(size)]
        world.nodes(*names, cpu=cpu)
        hyper(world, f"s{rack}", 1, *names)
    hyper(world, "top", 2, *(f"s{rack}" for rack in range(len(sizes))), kind="HyperNode")
    return world


@core(34)
def test_the_job_hard_and_its_groups_soft() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 3, [parts(**SOFT)], hard(2))
    pods(world, "a", 3)
    assert count(world) == 3


@core(34)
def test_more_than_the_minimum_within_one_rack() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 1, [parts(**SOFT)], hard(1))
    pods(world, "a", 2)
    assert count(world) == 2
    assert len(set(racks(world))) == 1


@core(34)
def test_a_group_with_a_node_of_its_own() -> None:
    world = tree_a(SUB_GROUPS)
    world.nodes("s1-n2", cpu=2, labels={"disk": "fast"})
    hyper(world, "s1", 1, "s1-n3", "s1-n4", "s1-n2")
    job(world, 1, [parts(**SOFT)], hard(1))
    pods(world, "a", spec={"nodeSelector": {"disk": "fast"}})
    assert world.run().nodes_of("job") == {"s1-n2"}


@core(35)
def test_a_soft_group_grows_within_its_hard_job() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 2, [parts(**SOFT)], hard(2))
    pods(world, "a", 3, on=("s0-n1", "s0-n2"))
    assert count(world) == 1
    deeper = tree_b(SUB_GROUPS)
    job(deeper, 2, [parts(**SOFT)], hard(2))
    pods(deeper, "a", 3, on=("s3-n1", "s3-n2"))
    assert count(deeper) == 1
    assert racks(deeper) == ["s4"]


@core(36)
def test_a_pair_takes_the_rack_of_two_and_a_single_the_other() -> None:
    world = bare(SUB_GROUPS)
    world.nodes("s0-n1", "s0-n2", "s1-n3", cpu=2)
    hyper(world, "s0", 1, "s0-n1", "s0-n2")
    hyper(world, "s1", 1, "s1-n3")
    job(
        world,
        3,
        [
            parts("masters", size=2, role="master", **hard(1)),
            parts("workers", size=1, role="worker", **hard(1)),
        ],
        SOFT,
    )
    pods(world, "0", 2, role="master")
    pods(world, "0", 1, role="worker")
    assert count(world) == 3
    assert {node_of(world, "master0-0"), node_of(world, "master0-1")} == {"s0-n1", "s0-n2"}
    assert node_of(world, "worker0-0") == "s1-n3"


@core(37)
def test_two_groups_of_one() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 1, [parts(**hard(1))], SOFT)
    pods(world, "a")
    pods(world, "b")
    assert count(world) == 2


@core(38)
def test_a_group_larger_than_any_rack_waits() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 3, [parts(size=3, **hard(1))], SOFT)
    pods(world, "a", 3)
    assert count(world) == 0


@core(39)
@core(42)
@pytest.mark.parametrize("topology", [SOFT, hard(2)])
def test_who_comes_later_joins_the_rack_of_its_group(topology: dict[str, Any]) -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 3, [parts(size=1, **hard(1))], topology)
    pods(world, "m", role="master", on=("s0-n1",))
    pods(world, "w", 2, role="worker", on=("s1-n3",))
    assert count(world) == 1
    assert node_of(world, "workerw-1") == "s1-n4"


@core(40)
def test_a_group_whose_switch_is_full_waits() -> None:
    world = tree_b(SUB_GROUPS)
    job(world, 4, [parts(size=4, **hard(2))], SOFT)
    pods(world, "w", 5, on=("s3-n1", "s3-n2", "s4-n1", "s4-n2"))
    assert count(world) == 0


@core(41)
def test_a_single_pod_takes_the_rack_of_one() -> None:
    world = three_racks((2, 1))
    job(
        world,
        3,
        [
            parts("one", size=1, role="master", **hard(1)),
            parts("two", size=2, role="worker", **hard(1)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="master")
    pods(world, "0", 2, role="worker")
    assert count(world) == 3
    assert node_of(world, "master0-0") == "s1-n0"


@core(42)
@pytest.mark.parametrize(("tier", "binds"), [(1, 0), (2, 1)])
def test_a_group_whose_rack_is_full_needs_a_higher_tier(tier: int, binds: int) -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 2, [parts(size=2, **hard(tier))], hard(2))
    pods(world, "a", 3, on=("s0-n1", "s0-n2"))
    assert count(world) == binds


@core(42)
@pytest.mark.parametrize(
    ("on", "binds"), [(("s3-n1", "s3-n2", "s4-n1"), 1), (("s3-n1", "s3-n2", "s4-n1", "s4-n2"), 0)]
)
def test_a_group_stays_below_its_switch(on: tuple[str, ...], binds: int) -> None:
    world = tree_b(SUB_GROUPS)
    job(world, len(on), [parts(size=len(on), **hard(2))], hard(3))
    pods(world, "a", len(on) + 1, on=on)
    assert count(world) == binds


@core(43)
def test_without_higher_domains_the_whole_cluster_is_the_next_tier() -> None:
    world = tree_a(SUB_GROUPS, top=False)
    job(world, 2, [parts(size=2, **hard(2))], hard(3))
    pods(world, "a", 3, on=("s0-n1", "s0-n2"))
    assert count(world) == 1


@core(44)
def test_enough_groups_of_each_kind() -> None:
    world = three_racks((2, 2, 1))
    job(
        world,
        5,
        [
            parts("task1", size=1, least=1, role="one", **hard(1)),
            parts("task2", size=2, least=2, role="two", **hard(1)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="one")
    pods(world, "0", 2, role="two")
    pods(world, "1", 2, role="two")
    assert count(world) == 5
    assert node_of(world, "one0-0") == "s2-n0"


@core(45)
def test_one_whole_pair_rather_than_two_halves() -> None:
    world = three_racks((2, 1))
    job(
        world,
        3,
        [
            parts("task1", size=1, least=1, role="one", **hard(1)),
            parts("task2", size=2, least=1, role="two", **hard(1)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="one")
    pods(world, "0", 2, role="two")
    pods(world, "1", 2, role="two")
    assert count(world) == 3
    pairs = [key for key in world.decisions.bound() if "-two" in key]
    assert len(pairs) == 2
    assert len({key.split("-two")[1].split("-")[0] for key in pairs}) == 1


@core(46)
def test_two_of_four_singles_and_a_pair() -> None:
    world = three_racks((2, 2))
    job(
        world,
        3,
        [
            parts("task1", size=1, least=2, role="one", **hard(1)),
            parts("task2", size=2, least=1, role="two", **hard(1)),
        ],
        hard(2),
    )
    for number in range(4):
        pods(world, str(number), 1, role="one")
    pods(world, "0", 2, role="two")
    assert count(world) == 4
    assert len([key for key in world.decisions.bound() if "-two0" in key]) == 2


@core(47)
def test_enough_groups_but_not_enough_pods() -> None:
    world = three_racks((2, 1))
    job(
        world,
        5,
        [
            parts("task1", size=1, least=1, role="one", **hard(1)),
            parts("task2", size=2, least=1, role="two", **hard(1)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="one")
    pods(world, "0", 2, role="two")
    pods(world, "1", 2, role="two")
    assert count(world) == 0


@core(48)
def test_enough_pods_but_not_enough_groups() -> None:
    world = three_racks((2, 1))
    job(
        world,
        3,
        [
            parts("task1", size=1, least=1, role="one", **hard(1)),
            parts("task2", size=2, least=2, role="two", **hard(1)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="one")
    pods(world, "0", 2, role="two")
    pods(world, "1", 2, role="two")
    assert count(world) == 0


@core(49)
@pytest.mark.parametrize(("filled", "binds"), [(False, 1), (True, 0)])
def test_a_lost_pod_comes_back_to_its_group(filled: bool, binds: int) -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 2, [parts(size=2, least=1, **hard(1))], hard(2))
    pods(world, "w", 2, on=("s0-n1",))
    if filled:
        world.job("other", cpu=2, on=["s0-n2"])
    assert count(world) == binds
    assert set(racks(world)) <= {"s0"}


@core(49)
def test_two_groups_get_their_second_halves() -> None:
    world = tree_a(SUB_GROUPS)
    job(world, 4, [parts(size=2, least=2, **hard(2))], hard(2))
    pods(world, "a", 2, on=("s0-n1",))
    pods(world, "b", 2, on=("s1-n3",))
    assert count(world) == 2


@core(49)
def test_a_pending_pair_beside_running_singles() -> None:
    world = tree_a(SUB_GROUPS)
    job(
        world,
        4,
        [
            parts("masters", size=1, least=2, role="master", **hard(1)),
            parts("workers", size=2, least=1, role="worker", **hard(2)),
        ],
        hard(2),
    )
    pods(world, "0", 1, role="master", on=("s0-n1",))
    pods(world, "1", 1, role="master", on=("s1-n3",))
    pods(world, "0", 2, role="worker")
    assert count(world) == 2


def four_core() -> World:
    world = bare(SUB_GROUPS)
    for rack in ("s0", "s1"):
        world.nodes(f"{rack}-n1", f"{rack}-n2", cpu=4)
        hyper(world, rack, 1, f"{rack}-n1", f"{rack}-n2")
    hyper(world, "top", 2, "s0", "s1", kind="HyperNode")
    return world


@core(50)
@pytest.mark.parametrize("pending", [2, 1])
def test_what_a_group_still_needs_is_the_sum_of_its_pending_pods(pending: int) -> None:
    world = four_core()
    size = 2 + pending
    job(world, size, [parts(size=size, **hard(1))], hard(2))
    pods(world, "a", size, on=("s0-n1", "s0-n2"))
    assert count(world) == pending
    assert set(racks(world)) == {"s0"}


@core(50)
def test_two_groups_with_one_and_two_pending() -> None:
    world = four_core()
    job(world, 7, [parts(size=3, least=2, **hard(1))], hard(2))
    pods(world, "a", 4, on=("s0-n1", "s0-n2", "s0-n1"))
    pods(world, "b", 3, on=("s1-n1",))
    assert count(world) == 3
    assert sorted(racks(world)) == ["s0", "s1", "s1"]


@core(50)
def test_requests_of_two_sizes() -> None:
    world = bare(SUB_GROUPS)
    world.nodes("s0-n1", "s0-n2", cpu=10)
    hyper(world, "s0", 1, "s0-n1", "s0-n2")
    job(world, 4, [parts(size=4, **hard(1))], hard(1))
    pods(world, "a", 2, on=("s0-n1", "s0-n2"))
    world.pod("job-small-0", job="job", cpu=2, labels={KEY: "a"})
    world.pod("job-large-0", job="job", cpu=4, labels={KEY: "a"})
    assert count(world) == 2


@core(50)
@pytest.mark.parametrize(("tier", "binds"), [(1, 0), (2, 2)])
def test_two_large_pods_and_one_node_free_for_them(tier: int, binds: int) -> None:
    world = four_core()
    job(world, 3, [parts(size=3, **hard(tier))], hard(2))
    pods(world, "a", 1, cpu=4, on=("s0-n1",))
    for number in range(2):
        world.pod(f"job-big-{number}", job="job", cpu=4, labels={KEY: "a"})
    assert count(world) == binds


@core(51)
def test_groups_without_any_topology() -> None:
    world = bare(SUB_GROUPS)
    world.nodes("n1", "n2", cpu=2)
    job(world, 2, [parts(size=1, least=2)])
    pods(world, "a")
    pods(world, "b")
    assert count(world) == 2
