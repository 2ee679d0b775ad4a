"""Hierarchical fairness: branches by weight, and nobody held back by a sibling that cannot grow."""

from __future__ import annotations

from collections import Counter

import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.world import World, policy

HIERARCHY = {"name": "drf", "enableHierarchy": True}
TIES = {
    "name": "proportion",
    "enabledAllocatable": False,
    "enabledOverused": False,
    "enableReclaimable": False,
}
"""Orders queues that the tree leaves equal, and says nothing else."""


def fair(*queues: tuple[str, str, str]) -> World:
    world = World(
        policy(tiers=[[HIERARCHY], ["predicates", TIES]], actions="allocate"), default_queue=False
    )
    for name, path, weights in queues:
        world.state.upsert_queue(
            {
                "metadata": {
                    "name": name,
                    "annotations": {
                        "volcano.sh/hierarchy": path,
                        "volcano.sh/hierarchy-weights": weights,
                    },
                },
                "spec": {"weight": 1},
                "status": {"state": "Open"},
            }
        )
    return world


def bound(world: World) -> Counter[str]:
    return Counter(bind.job.removeprefix("default/") for bind in world.run().binds)


@pytest.mark.scenario("plugins-fairness", 24)
def test_rescaling() -> None:
    world = fair(
        ("sci", "root/sci", "100/50"),
        ("dev", "root/eng/dev", "100/50/50"),
        ("prod", "root/eng/prod", "100/50/50"),
    )
    world.nodes("n1", cpu=10, memory="10G", pods=50)
    world.job("pg1", pods=10, min_available=0, cpu=1, memory="1G", queue="sci")
    world.job("pg21", pods=10, min_available=0, cpu=1, queue="dev")
    world.job("pg22", pods=10, min_available=0, memory="1G", queue="prod")
    assert bound(world) == {"pg1": 5, "pg21": 5, "pg22": 5}


@pytest.mark.scenario("plugins-fairness", 25)
def test_a_branch_that_cannot_grow_in_one_resource_is_not_held_back_in_another() -> None:
    world = fair(
        ("q1", "root/pg1", "100/25"),
        ("q2", "root/pg2", "100/25"),
        ("q4", "root/pg4", "100/25"),
        ("q31", "root/pg3/pg31", "100/25/50"),
        ("q32", "root/pg3/pg32", "100/25/50"),
    )
    world.nodes("n1", cpu=30, memory="30G", pods=500)
    for name, queue in (("pg1", "q1"), ("pg2", "q2"), ("pg31", "q31")):
        world.job(name, pods=30, min_available=0, cpu=1, queue=queue)
    for name, queue in (("pg32", "q32"), ("pg4", "q4")):
        world.job(name, pods=30, min_available=0, memory="1G", queue=queue)
    assert bound(world) == {"pg1": 10, "pg2": 10, "pg31": 10, "pg32": 15, "pg4": 15}


@pytest.mark.parametrize(
    ("theirs", "mine", "expected"),
    [
        ((8, 9), (1, 4), True),
        ((3, 9), (1, 4), False),
        ((9, 9), (1, 4), True),
        ((8, 9), (1, 2), False),
    ],
)
def test_reclaim_between_branches(
    theirs: tuple[int, int], mine: tuple[int, int], expected: bool
) -> None:
    world = fair(("a", "root/sci", "100/50"), ("b", "root/eng", "100/50"))
    world.nodes("n1", cpu=10)
    world.job("holder", pods=theirs[1], min_available=0, cpu=1, on=["n1"] * theirs[0], queue="a")
    world.job("preemptor", pods=mine[1], min_available=0, cpu=1, on=["n1"] * mine[0], queue="b")
    session = open_session(world.state, hooks_of(world.state, world.policy), 0.0)
    preemptor = next(iter(world.state.jobs["default/preemptor"].pending()))
    victim = world.state.tasks["default/holder-task-0"]
    assert (session.votes.reclaimable(preemptor, [victim]) == [victim]) is expected


@pytest.mark.parametrize("weight", ["0.5", "-3", "heavy", "nan", ""])
def test_a_weight_that_is_none_is_one(weight: str) -> None:
    world = fair(("a", "root/a", f"100/{weight}"), ("b", "root/b", "100/1"))
    world.nodes("n1", cpu=4)
    world.job("ja", pods=4, min_available=0, cpu=1, queue="a", on=["n1"] * 2)
    world.job("jb", pods=4, min_available=0, cpu=1, queue="b")
    assert bound(world) == {"jb": 2}
