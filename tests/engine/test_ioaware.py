"""io-aware: tasks that talk much are near each other."""

from __future__ import annotations

import pytest

from hekla.engine.model.annotations import TRAFFIC
from hekla.engine.plugins.placement.ioaware import read
from hekla.engine.world import World, policy
from tests.engine.test_topology import hyper


def world(*nodes: str, cpu: int = 2) -> World:
    here = World(
        policy(
            plugins=[
                "gang",
                "predicates",
                {"name": "io-aware", "arguments": {"io-aware.weight": 10}},
            ]
        )
    )
    here.nodes(*nodes, cpu=cpu)
    return here


def train(here: World, workers: int, **notes: str) -> dict[str, str]:
    here.job("train", pods=0, min_available=workers + 1, annotations=notes)
    here.pod("train-ps-0", job="train", role="ps", cpu=1)
    for number in range(workers):
        here.pod(f"train-worker-{number}", job="train", role="worker", cpu=1)
    return {
        pod.removeprefix("default/train-"): node
        for pod, node in here.run("allocate").bound().items()
    }


def test_a_worker_goes_to_its_parameter_server() -> None:
    found = train(world("n1", "n2", "n3"), 1)
    assert found["ps-0"] == found["worker-0"]


def test_workers_that_find_no_room_there_spread_their_connections() -> None:
    found = train(world("n1", "n2", "n3"), 3)
    assert sorted(list(found.values()).count(node) for node in set(found.values())) == [1, 1, 2]


def test_the_near_rack_is_better_than_the_far_one() -> None:
    here = world("a1", "b1", "a2", "b2", cpu=1)
    hyper(here, "a", 1, "a1", "a2")
    hyper(here, "b", 1, "b1", "b2")
    hyper(here, "top", 2, "a", "b", kind="HyperNode")
    found = train(here, 1)
    assert len({node[0] for node in found.values()}) == 1


def test_traffic_is_checked() -> None:
    assert read("ps,worker=10", {"ps", "worker"}) == {frozenset(("ps", "worker")): 10.0}
    assert read(None, {"a"}) == {}
    for wrong in ("ps=1", "ps,nobody=1", "ps,worker=much"):
        with pytest.raises(ValueError, match=TRAFFIC):
            read(wrong, {"ps", "worker"})
