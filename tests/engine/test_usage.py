"""Filters and scores of usage, and what is believed of a node's load."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hekla.engine.cycle import hooks_of
from hekla.engine.framework.policy import PolicyError
from hekla.engine.plugins.placement.usage import (
    Estimator,
    Thresholds,
    UsageArguments,
    estimate,
    sound,
)
from hekla.engine.policies import read_policy
from hekla.engine.world import World
from tests.engine.placements import loaded, pod, scores, verdicts, world

CPU_HIGH = "the CPU load of the node exceeds the upper limit."
MEMORY_HIGH = "the memory load of the node exceeds the upper limit."


@pytest.mark.scenario("plugins-placement", 30)
@pytest.mark.parametrize(
    ("cpu", "memory", "age", "verdict", "score"),
    [
        (81, 0, 0, CPU_HIGH, None),
        (60, 81, 0, MEMORY_HIGH, None),
        (80, 79, 0, "", None),
        (95, 95, 360, "", 0),
        (95, 95, None, "", 0),
        (95, 95, 300, CPU_HIGH, None),
    ],
)
def test_nodes_that_are_loaded_are_left_alone(cpu, memory, age, verdict, score):
    here = world("usage", {"thresholds": {"cpu": 80, "mem": 80}})
    here.nodes("n1", cpu=8)
    loaded(here, "n1", cpu, memory, age)
    pod(here, "p", cpu=1)
    assert verdicts(here, "p") == {"n1": verdict}
    if score is not None:
        assert scores(here, "p") == {"n1": score}


def read(arguments: dict[str, Any]) -> UsageArguments:
    tree = {
        "actions": "allocate",
        "tiers": [{"plugins": [{"name": "usage", "arguments": arguments}]}],
    }
    found = read_policy(tree, strict=False).tiers[0][0].arguments
    with pytest.raises(PolicyError):
        read_policy(tree)
    return found


@pytest.mark.scenario("plugins-placement", 31)
def test_arguments_of_the_wrong_kind_leave_the_defaults():
    """A policy file with them is refused; whoever takes them all the same has the defaults, field
    by field."""
    found = read(
        {
            "usage.weight": "7",
            "cpu.weight": "7",
            "memory.weight": "7",
            "thresholds": {"cpu": "9", "mem": 70},
        }
    )
    assert (found.weight, found.cpu, found.memory) == (5, 1, 1) and found.thresholds == Thresholds(
        80, 70
    )


@pytest.mark.scenario("plugins-placement", 31)
def test_arguments_out_of_range_leave_the_defaults():
    here = world(
        "usage",
        {
            "usage.weight": -1,
            "cpu.weight": -1,
            "memory.weight": -1,
            "thresholds": {"cpu": -1, "mem": 101},
            "estimator": {"risk_factor": 0.5, "request_ratio": 2.0, "be_cpu": "-1", "be_mem": 300},
        },
    )
    plugin = hooks_of(here.state, here.policy).plugins[0]
    assert (plugin.weight, plugin.weights, plugin.limits) == (5, (1, 1), (80, 80))
    assert plugin.estimator == Estimator(be_mem=300)
    assert estimate(sound(Estimator(be_cpu="500m", be_mem="300Mi")), {}, {}, True, 1.0) == (
        500.0,
        300.0 * 2**20,
    )
    assert estimate(sound(Estimator(be_cpu=500, be_mem=200)), {}, {}, True, 1.0) == (
        500.0,
        200.0 * 2**20,
    )
    assert estimate(sound(Estimator(be_cpu="many")), {}, {}, True, 1.2)[0] == 300.0


@pytest.mark.scenario("plugins-placement", 32)
@pytest.mark.parametrize(
    ("weights", "cpu", "memory", "expected"),
    [
        ({}, 30, 50, 300),
        ({}, 60, 50, 225),
        ({}, 60, 80, 150),
        ({"cpu.weight": 2, "memory.weight": 8}, 30, 50, 270),
        ({"cpu.weight": 2, "memory.weight": 8}, 60, 50, 240),
        ({"cpu.weight": 2, "memory.weight": 8}, 60, 80, 120),
        ({"usage.weight": 1}, 0, 0, 100),
        ({}, 100, 100, 0),
        ({"cpu.weight": 0, "memory.weight": 0}, 30, 50, 0),
    ],
)
def test_the_idler_node_is_better(weights, cpu, memory, expected):
    here = world("usage", weights)
    here.nodes("n1", cpu=8)
    loaded(here, "n1", cpu, memory)
    pod(here, "p", cpu=1)
    assert scores(here, "p") == {"n1": expected}


@pytest.mark.parametrize(
    ("asked", "limit", "stated", "factor", "expected"),
    [
        (500, 2000, {"request_ratio": 1.0}, 1.0, 500),
        (500, 2000, {"request_ratio": 0.5, "burst_ratio": 0.2}, 1.0, 550),
        (500, 600, {"request_ratio": 1.0, "burst_ratio": 1.0}, 1.2, 600),
        (500, 0, {"request_ratio": 1.0}, 1.2, 500),
    ],
)
def test_what_a_pod_will_use(asked, limit, stated, factor, expected):
    assert (
        estimate(Estimator(**stated), {"cpu": asked}, {"cpu": limit}, False, factor)[0] == expected
    )


@pytest.mark.scenario("plugins-placement", 33)
def test_pods_that_the_measurement_cannot_show_yet_are_counted():
    """Window 5 minutes: bound pods and young ones count, old ones are in the measurement already."""
    tree = {
        "actions": "allocate",
        "metrics": {"type": "prometheus", "interval": "5m"},
        "tiers": [
            {
                "plugins": [
                    {
                        "name": "usage",
                        "arguments": {
                            "usage.weight": 1,
                            "memory.weight": 0,
                            "estimator": {"request_ratio": 1.0},
                        },
                    }
                ]
            }
        ],
    }
    here = World(read_policy(tree))
    here.nodes("n1", cpu=10)
    loaded(here, "n1", 0, 0)
    for name, phase, started in (
        ("bound", "Pending", None),
        ("young", "Running", 299),
        ("old", "Running", 300),
        ("done", "Succeeded", 1),
    ):
        here.job(f"job-{name}", pods=0, min_available=1, phase="Running")
        here.pod(name, job=f"job-{name}", cpu=1, node="n1", phase=phase)
        if started is not None:
            here.pods[f"default/{name}"]["status"]["startTime"] = datetime.fromtimestamp(
                here.now - started, UTC
            ).isoformat()
            here.state.upsert_pod(here.pods[f"default/{name}"])
    pod(here, "p", cpu=1)
    assert scores(here, "p") == {"n1": 80.0}  # two of ten cpus
