"""Amounts: what a minimum still lacks, what is elastic, and the four ways in which two lists are
compared."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.model.resources import (
    amounts,
    exceeding,
    exceeds_relevant,
    is_empty,
    less_equal,
    less_equal_partly,
    names,
)
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import group, job

GPU = "nvidia.com/gpu"
UNIT = {"cpu": 1, "memory": "1G", GPU: 1, "pods": 1}


def holding(least: dict[str, Any] | None, *pods: dict[str, Any]) -> Any:
    world = World(policy(plugins=["gang"]))
    world.nodes("n1")
    group(world, "g", min_resources=least)
    for number, asked in enumerate(pods):
        world.pod(f"p{number}", job="g", node="n1", **asked)
    return job(world, "g")


@pytest.mark.scenario("plugins-fairness", 162)
def test_what_a_minimum_still_lacks() -> None:
    four = {"gpu": 4}
    assert holding({GPU: 8}).remaining_minimum()[GPU] == 8000
    assert holding({GPU: 8}, four).remaining_minimum()[GPU] == 4000
    assert GPU not in holding({GPU: 8}, four, four).remaining_minimum()
    assert holding({"pods": 10}, {}, {}, {}, {}).remaining_minimum()["pods"] == 6
    assert holding({"cpu": 1}, {"cpu": 3}).remaining_minimum()["cpu"] == 0
    assert holding({"cpu": 1}, {"cpu": 3}).remaining_minimum().get("memory", 0.0) == 0


@pytest.mark.scenario("plugins-fairness", 163)
def test_what_is_elastic() -> None:
    plain = {"cpu": 1, "memory": "1G"}
    carded = {**plain, "gpu": 1}
    one, giga = 1000, 10**9
    assert is_empty(holding(UNIT, carded).elastic())
    assert holding(UNIT, carded, plain).elastic() == {"cpu": one, "memory": giga, "pods": 1}
    assert holding(UNIT, plain, plain).elastic() == {"cpu": one, "memory": giga, "pods": 1}
    assert holding(UNIT, carded, carded).elastic() == {
        "cpu": one,
        "memory": giga,
        "pods": 1,
        GPU: one,
    }
    assert holding(None, plain).elastic() == {"cpu": one, "memory": giga, "pods": 1}


def test_gated_pods_that_ask_for_nothing_take_nothing_away() -> None:
    world = World(policy(plugins=["gang"]))
    group(world, "g", min_resources={"cpu": 2, "pods": 2})
    gated = {"schedulingGates": [{"name": "example.com/wait"}]}
    world.pod("p0", job="g", spec=gated)
    waiting = job(world, "g")
    minimum = amounts({"cpu": 2, "pods": 2})
    assert waiting.deduct_gated(minimum)["pods"] == 2
    world.pod("p1", job="g", cpu=1, spec=gated)
    assert waiting.deduct_gated(minimum) == {"cpu": 1000, "memory": 0, "pods": 0}


@pytest.mark.scenario("plugins-fairness", 164)
def test_only_what_is_asked_for_is_compared() -> None:
    left = {"cpu": 2000.0, "memory": 5.0, "x/y": 1000.0, "pods": 9.0}
    assert exceeding(left, {"cpu": 1000.0, "memory": 9.0}, left) == ["cpu", "x/y"], (
        "all of one's own"
    )
    assert (
        exceeding({"cpu": 9000.0, "memory": 5.0}, {"cpu": 1.0, "memory": 5.0}, {"memory": 1.0})
        == []
    )
    assert exceeding({"cpu": 1.0, GPU: 1000.0}, {"cpu": 1.0}, {GPU: 1000.0}) == [GPU]
    assert exceeding(left, {}, {"cpu": 0.0, "x/y": 0.0}) == []
    assert exceeding({"cpu": 1000.0 + 1e-9}, {"cpu": 1000.0}, {"cpu": 1.0}) == ["cpu"], (
        "to the last bit"
    )
    assert exceeding({"pods": 9.0}, {"pods": 1.0}, {"pods": 1.0}) == [], "pods are never compared"


@pytest.mark.scenario("plugins-fairness", 165)
def test_one_resource_that_fits_is_enough() -> None:
    asked = {"cpu": 1.0, "memory": 1.0}
    assert not less_equal_partly({"cpu": 0.0, "memory": 0.0}, {"cpu": 0.0, "memory": 0.0}, asked)
    assert less_equal_partly({"cpu": 1000.0, "memory": 0.0}, {"cpu": 2000.0, "memory": 0.0}, asked)
    rdma = {"rdma/hca": 2000.0, "fpga/one": 2000.0}
    assert less_equal_partly(rdma, {"rdma/hca": 2000.0}, rdma)
    assert not less_equal_partly({"fpga/one": 2000.0}, {"rdma/hca": 2000.0}, {"fpga/one": 1.0})
    assert not less_equal_partly({"cpu": 1000.0}, {"cpu": 2000.0}, {})
    assert less_equal_partly({"cpu": 1000.09}, {"cpu": 1000.0}, {"cpu": 1.0}), (
        "within the tolerance"
    )
    assert not less_equal_partly({"pods": 1.0}, {"pods": 2.0}, {"pods": 1.0})


@pytest.mark.scenario("plugins-fairness", 166)
def test_only_what_the_other_speaks_of_is_exceeded() -> None:
    assert exceeds_relevant({"cpu": 2000.0}, {"cpu": 1000.0}, {"cpu": 1.0})
    assert not exceeds_relevant({"cpu": 2000.0}, {"cpu": 0.0}, {"cpu": 1.0})
    assert not exceeds_relevant({GPU: 2000.0}, {"cpu": 1000.0}, {GPU: 1.0})
    assert exceeds_relevant({GPU: 2000.0}, {GPU: 0.0}, {GPU: 1.0}), (
        "a scalar that is 0 is spoken of"
    )
    assert not exceeds_relevant(
        {"cpu": 1.0, "memory": 9.0}, {"cpu": 1.0, "memory": 1.0}, {"cpu": 1.0}
    )
    assert not exceeds_relevant({"pods": 9.0}, {"pods": 1.0}, {"pods": 1.0})


@pytest.mark.scenario("plugins-fairness", 167)
def test_all_of_the_left_fits_the_right() -> None:
    assert less_equal({}, {})
    assert less_equal({"cpu": 1000.09}, {"cpu": 1000.0})
    assert not less_equal({"cpu": 1000.2}, {"cpu": 1000.0})
    assert not less_equal({GPU: 1.0}, {"cpu": 1000.0})
    assert less_equal({GPU: 0.0}, {})
    assert less_equal({"cpu": 1.0}, {"cpu": 1.0, GPU: 1000.0})
    assert not less_equal({"pods": 2.0}, {"pods": 1.0}), "pods are compared here"


def test_what_is_read_from_a_list() -> None:
    read = amounts(
        {
            "cpu": "1500m",
            "memory": "1Gi",
            "pods": "3",
            "ephemeral-storage": "1",
            GPU: "2",
            "hugepages-2Mi": "4Mi",
            "count/pods": "9",
            "requests.cpu": "1",
            "limits.memory": "1",
            "storage": "1",
            "requests.nvidia.com/gpu": "1",
            "deviceclass/a": "1",
        }
    )
    assert read == {
        "cpu": 1500,
        "memory": 2**30,
        "pods": 3,
        "ephemeral-storage": 1000,
        GPU: 2000,
        "hugepages-2Mi": 4 * 2**20 * 1000,
        "deviceclass/a": 1000,
    }
    assert names({"cpu": 0.09, "memory": 0.1, "pods": 1.0}) == ["memory", "pods"]
