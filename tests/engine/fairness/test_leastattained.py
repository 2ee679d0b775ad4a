"""least-attained-service: the order by what jobs have had, and whom a job may take room from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.plugins.fairness.leastattained import levels
from hekla.engine.world import World, policy


def rules(thresholds: str = "1h", actions: str = "allocate, gangpreempt") -> Policy:
    ours = {
        "name": "least-attained-service",
        "arguments": {"least-attained-service.thresholds": thresholds},
    }
    gang = {"name": "gang", "enablePreemptable": False}
    return policy(plugins=[ours, gang, "predicates"], actions=actions)


def busy(world: World, name: str = "long", hours: float = 2.0, gpus: int = 4) -> None:
    """A job that has held all four GPUs of its node for so long."""
    world.job(name, pods=1, gpu=gpus)
    world.run()
    world.settle()
    world.run()
    world.now += 3600 * hours


def test_who_has_had_less_takes_the_room_of_who_has_had_more() -> None:
    world = World(rules("1h"))
    world.nodes("n1", gpu=4)
    busy(world)
    world.job("new", pods=2, gpu=2)
    decided = world.run()
    assert [one.pod for one in decided.evictions] == ["default/long-task-0"]
    world.settle(coming_back=True)
    assert world.run().nodes_of("new") == {"n1"}


def test_within_a_level_who_came_first_stays() -> None:
    """16 GPU-hours are not passed by two hours of four GPUs."""
    world = World(rules("16h"))
    world.nodes("n1", gpu=4)
    busy(world)
    world.job("new", pods=2, gpu=2)
    decided = world.run()
    assert not decided.evictions and not decided.binds


def test_what_an_evicted_job_has_had_counts_on() -> None:
    """It waits behind those of the level below, also where they came later."""
    world = World(rules("1h"))
    world.nodes("n1", gpu=4)
    busy(world)
    world.job("new", pods=2, gpu=2)
    world.run()
    world.settle(coming_back=True)
    world.run()
    world.settle()
    world.now += 60
    world.job("newer", pods=1, gpu=4)
    world.end("new")
    assert world.run().nodes_of("newer") == {"n1"}


def test_a_scheduler_that_starts_anew_counts_from_the_starts_of_pods() -> None:
    world = World(rules("1h"))
    world.tells_starts = True
    world.nodes("n1", gpu=4)
    busy(world)
    later = World(rules("1h"), now=world.now)
    later.nodes("n1", gpu=4)
    for group in world.groups.values():
        later.state.upsert_pod_group(group)
    for pod in world.pods.values():
        later.state.upsert_pod(pod)
    later.job("new", pods=2, gpu=2)
    assert [one.pod for one in later.run().evictions] == ["default/long-task-0"]


def test_a_job_that_is_gone_is_forgotten() -> None:
    world = World(rules("1h"))
    world.nodes("n1", gpu=4)
    busy(world)
    world.state.remove_pod("default/long-task-0")
    world.state.remove_pod_group("default/long")
    world.run()
    service = world.state.job_table.service
    assert service is not None and not any(service.used.values())


@given(
    st.lists(st.floats(0.01, 30), min_size=1, max_size=6), st.lists(st.integers(1, 4), min_size=6)
)
def test_service_is_what_was_held_times_how_long(hours: list[float], gpus: list[int]) -> None:
    """However often cycles run in between."""
    world = World(rules("1h", actions="allocate"))
    world.nodes("n1", gpu=100)
    expected = 0.0
    world.job("one", pods=1, gpu=gpus[0])
    world.run()
    world.settle()
    for length in hours:
        world.run()
        world.now += 3600 * length
        expected += 3600 * length * gpus[0]
    world.run()
    service = world.state.job_table.service
    assert service is not None
    assert service.used["default"]["default/one"] / 1000 == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "not a duration"),
        ("2h, 1h", "each longer than the last"),
        ("0s", "above 0"),
        ("", "not a duration"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        rules(text)


def test_thresholds_are_read() -> None:
    assert levels("1h, 16h") == [3600.0, 57600.0]
