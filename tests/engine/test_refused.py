"""Nodes that refused a pod of a role: who is asked again, and what is said.  Reference:
scheduler-core 6.0.3."""

from __future__ import annotations

from hekla.engine.world import World, policy


def made(pods: int, least: int, **arguments: bool) -> World:
    settings = [{"name": "allocate", "arguments": arguments}] if arguments else []
    world = World(
        policy(
            plugins=["priority", "gang", "predicates"], actions="allocate", configurations=settings
        )
    )
    world.nodes("n1", cpu=2)
    world.nodes("n2", cpu=3)
    world.job("train", pods=0, min_available=least)
    for number, cpu in enumerate((3, 1, 1)[:pods]):
        world.pod(f"train-w-{number}", job="train", role="w", cpu=cpu)
    return world


def test_the_words_name_the_nodes_that_refused_before() -> None:
    world = made(2, 2)
    decided = world.run()
    assert decided.binds == []
    said = {one.pod: one.message for one in decided.conditions}
    assert said["default/train-w-1"] == "0/2 nodes are unavailable: 2 Insufficient cpu."


def test_each_pod_that_is_skipped_is_called_by_its_own_name() -> None:
    world = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    world.nodes("n1", cpu=1)
    world.job("train", pods=0, min_available=1)
    world.pod("train-m-0", job="train", role="m", cpu=1)
    world.pod("train-w-1", job="train", role="w", cpu=2)
    for number in (2, 3):
        world.pod(f"train-w-{number}", job="train", role="w", cpu=1)
    decided = world.run()
    assert [one.pod for one in decided.binds] == ["default/train-m-0"]
    said = {one.pod: one.message for one in decided.conditions}
    for number in (2, 3):
        assert (
            said[f"default/train-w-{number}"]
            == f"Task train-w-{number} with role spec w has already predicated failed, skip"
        )


def test_switched_off_each_pod_asks_for_itself() -> None:
    assert {one.node for one in made(2, 2, predicateErrorCacheEnable=False).run().binds} == {
        "n1",
        "n2",
    }


def test_an_attempt_ends_with_the_gang() -> None:
    assert len(made(3, 1).run().binds) == 3
