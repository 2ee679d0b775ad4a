"""Scores and filters of resource-strategy-fit, binpack, nodegroup and usage, by the numbers of the
reference's examples."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import PolicyError
from hekla.engine.placement.placer import placer_of
from hekla.engine.plugins.placement.usage import (
    Estimator,
    Thresholds,
    UsageArguments,
    estimate,
    sound,
)
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy

A10, T4, GPU = "nvidia.com/a10", "nvidia.com/t4", "nvidia.com/gpu"


def world(plugin: str, arguments: Any = None, **flags: bool) -> World:
    return World(
        policy(
            plugins=[{"name": plugin, "arguments": arguments or {}, **flags}], actions="allocate"
        )
    )


def scores(here: World, name: str) -> dict[str, float]:
    """Node -> what the policy's plugins give it together for a pod, rounded."""
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    nodes = here.state.nodes
    task = here.state.tasks[f"default/{name}"]
    total = placer_of(session).scores.total(session, task, np.arange(len(nodes)))
    return {node: round(float(value), 3) for node, value in zip(nodes.names, total)}


def verdicts(here: World, name: str) -> dict[str, str]:
    """Node -> why it is out of the question for a pod; empty where it is not."""
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    task = here.state.tasks[f"default/{name}"]
    errors = placer_of(session).filters.explain(session, task, room=False)
    said = dict.fromkeys(here.state.nodes.names, "")
    for reason in errors.reasons:
        for row in np.flatnonzero(reason.mask):
            said[here.state.nodes.names[row]] = reason.text
    return said


def pod(here: World, name: str, annotations: dict[str, str] | None = None, **amounts: Any) -> None:
    here.job(f"job-{name}", pods=0, min_available=1)
    requests = {
        key.replace("a10", A10).replace("t4", T4).replace("gpu", GPU): str(value)
        for key, value in amounts.items()
    }
    here.pod(
        name,
        job=f"job-{name}",
        spec={"containers": [{"name": "c", "resources": {"requests": requests}}]},
        annotations=annotations,
    )


# ---------------------------------------------------------------------------- resource-strategy-fit


def strategy(**kinds: tuple[str, int]) -> dict[str, Any]:
    names = {"Most": "MostAllocated", "Least": "LeastAllocated"}
    return {
        "resources": {
            key: {"type": names[kind], "weight": weight} for key, (kind, weight) in kinds.items()
        }
    }


@pytest.mark.scenario("plugins-placement", 24)
@pytest.mark.parametrize(
    ("arguments", "allocatable", "asked", "used", "expected"),
    [
        (strategy(cpu=("Least", 1), memory=("Least", 1)), (500, 500), (100, 100), (200, 200), 400),
        (strategy(cpu=("Least", 1), memory=("Least", 1)), (400, 400), (100, 100), (200, 200), 250),
        (strategy(cpu=("Most", 1), memory=("Most", 1)), (500, 500), (100, 100), (200, 200), 600),
        (strategy(cpu=("Most", 1), memory=("Most", 1)), (400, 400), (100, 100), (200, 200), 750),
        (
            strategy(cpu=("Least", 2), memory=("Most", 1)),
            (500, 500),
            (100, 100),
            (200, 200),
            466.667,
        ),
        (
            strategy(cpu=("Least", 1), memory=("Most", 2)),
            (500, 500),
            (100, 100),
            (200, 200),
            533.333,
        ),
        (strategy(cpu=("Most", 1), memory=("Most", 1)), (500, 500), (0, 100), (200, 200), 600),
        (strategy(cpu=("Least", 1), memory=("Most", 2)), (0, 400), (100, 100), (0, 200), 500),
        (strategy(memory=("Most", 2)), (500, 500), (100, 100), (200, 200), 600),
        (strategy(cpu=("Least", 3), memory=("Most", 1)), (500, 500), (100, 100), (200, 200), 450),
        (
            {"resourceStrategyFitWeight": 20, **strategy(cpu=("Least", 5), memory=("Least", 5))},
            (500, 500),
            (100, 100),
            (200, 200),
            800,
        ),
        (strategy(cpu=("Least", 1), memory=("Least", 1)), (500, 500), (100, 100), (500, 500), 0),
        (strategy(cpu=("Least", 1), memory=("Least", 1)), (500, 500), (0, 0), (200, 200), 0),
        ({}, (500, 500), (100, 100), (200, 200), 400),
        ({"resourceStrategyFitWeight": -3}, (500, 500), (100, 100), (200, 200), 400),
    ],
)
def test_fit_by_strategy(arguments, allocatable, asked, used, expected):
    here = world("resource-strategy-fit", arguments)
    here.nodes("n1", cpu=f"{allocatable[0]}m", memory=allocatable[1])
    here.job("there", pods=1, on=["n1"], phase="Running", cpu=f"{used[0]}m", memory=used[1])
    pod(here, "p", cpu=f"{asked[0]}m", memory=asked[1])
    assert scores(here, "p") == {"n1": expected}


@pytest.mark.scenario("plugins-placement", 24)
@pytest.mark.parametrize(
    ("kind", "weights", "expected"),
    [
        ("LeastAllocated", '{"cpu": 2, "memory": 1}', 400),
        ("MostAllocated", '{"cpu": 1, "memory": 2}', 600),
        ("LeastAllocated", '{"cpu": 2}', 400),
        ("LeastAllocated", "no json", 0),
        ("LeastAllocated", None, 0),
        ("Sideways", '{"cpu": 2, "memory": 1}', 0),
        ("LeastAllocated", '{"cpu": "2"}', 0),
        ("LeastAllocated", '{"cpu": 1.5}', 0),
    ],
)
def test_a_pod_may_state_its_own_strategy(kind, weights, expected):
    here = world("resource-strategy-fit")
    here.nodes("n1", cpu="500m", memory=500)
    here.job("there", pods=1, on=["n1"], phase="Running", cpu="200m", memory=200)
    notes = {"volcano.sh/resource-strategy-scoring-type": kind}
    if weights is not None:
        notes["volcano.sh/resource-strategy-weight"] = weights
    pod(here, "p", notes, cpu="100m", memory=100)
    assert scores(here, "p") == {"n1": expected}


def scarce(sra: dict[str, Any] | None, weight: int = 8) -> World:
    arguments: dict[str, Any] = {
        "resourceStrategyFitWeight": weight,
        "resources": {
            T4: {"type": "MostAllocated", "weight": 3},
            "cpu": {"type": "LeastAllocated", "weight": 1},
        },
    }
    if sra is not None:
        arguments["sra"] = sra
    here = world("resource-strategy-fit", arguments)
    here.nodes("n1", cpu=32)
    here.nodes("n2", cpu=8, **{T4: 16})
    here.nodes("n3", cpu=8, **{A10: 16})
    here.nodes("n4", cpu=8, **{T4: 8, A10: 16})
    pod(here, "p1", cpu=1)
    pod(here, "p2", cpu="1500m", t4=2)
    pod(here, "p3", cpu=2, a10=2)
    pod(here, "p4", cpu=3, t4=1, a10=3)
    return here


@pytest.mark.scenario("plugins-placement", 24)
def test_fit_and_scarce_resources_together():
    here = scarce(None)
    assert list(scores(here, "p1").values()) == [775, 700, 700, 700]
    assert list(scores(here, "p2").values()) == [190.625, 237.5, 162.5, 312.5]
    assert list(scores(here, "p3").values()) == [750, 600, 600, 600]
    assert list(scores(here, "p4").values()) == [181.25, 162.5, 125, 200]
    avoiding = scarce({"enable": True, "resources": T4, "weight": 5, "resourceWeight": {T4: 2}})
    assert list(scores(avoiding, "p1").values()) == [1275, 700, 1200, 700]


@pytest.mark.scenario("plugins-placement", 24)
def test_scarce_resources_alone():
    both = {
        "enable": True,
        "resources": f"{T4}, {A10}",
        "weight": 5,
        "resourceWeight": {T4: 2, A10: 3},
    }
    here = scarce(both, weight=0)
    assert list(scores(here, "p1").values()) == [500, 300, 200, 0]
    assert list(scores(here, "p2").values()) == [0, 300, 0, 0]
    assert list(scores(here, "p3").values()) == [0, 0, 200, 0]
    assert list(scores(here, "p4").values()) == [0, 0, 0, 0]
    one = scarce(
        {"enable": True, "resources": T4, "weight": 5, "resourceWeight": {T4: 2}}, weight=0
    )
    assert list(scores(one, "p1").values()) == [500, 0, 500, 0] and scores(one, "p3")["n3"] == 500
    off = scarce({"resources": T4, "weight": 5}, weight=0)
    assert not any(scores(off, "p1").values())


def proportional(rate: float, cpu: int, memory: str, gpus: int) -> World:
    section = {
        "enable": True,
        "resources": GPU,
        "resourceProportion": {f"{GPU}.cpu": rate, f"{GPU}.memory": rate},
    }
    here = world("resource-strategy-fit", {"proportional": section})
    here.nodes("n1", cpu=cpu, memory=memory, gpu=gpus)
    return here


@pytest.mark.scenario("plugins-placement", 25)
def test_cpu_and_memory_stay_beside_idle_devices():
    refused = f"proportional of resource {GPU} check failed"
    here = proportional(4, 30, "30G", 6)
    pod(here, "small", cpu=4, memory="4G")
    pod(here, "large", cpu=10, memory="10G")
    pod(here, "gpu", cpu=10, memory="10G", gpu=1)
    assert [verdicts(here, name)["n1"] for name in ("small", "large", "gpu")] == ["", refused, ""]
    roomy = proportional(4, 26, "26G", 2)
    pod(roomy, "large", cpu=10, memory="10G")
    assert verdicts(roomy, "large")["n1"] == ""
    design = proportional(8, 74, "128G", 8)
    pod(design, "first", cpu=8, memory="8G")
    assert verdicts(design, "first")["n1"] == ""
    design.job("there", pods=1, on=["n1"], phase="Running", cpu=8, memory="8G")
    pod(design, "second", cpu=8, memory="8G")
    assert verdicts(design, "second")["n1"] == refused


# ---------------------------------------------------------------------------------------- nodegroup

IN = "DuringSchedulingIgnoredDuringExecution"


def affinity(required=(), preferred=(), anti_required=(), anti_preferred=()) -> dict[str, Any]:
    return {
        "nodeGroupAffinity": {f"required{IN}": list(required), f"preferred{IN}": list(preferred)},
        "nodeGroupAntiAffinity": {
            f"required{IN}": list(anti_required),
            f"preferred{IN}": list(anti_preferred),
        },
    }


def grouped(
    arguments: Any = None, *, stated: Any = None, limits: str = "", parent: str = "", **flags: bool
) -> World:
    """Nodes n1 to n4 of groups 1 to 4, n5 of none; a queue `q` with this affinity."""
    here = world("nodegroup", arguments, **flags)
    for number in range(1, 5):
        here.nodes(
            f"n{number}",
            cpu=8,
            memory="64Gi",
            labels={"volcano.sh/nodegroup-name": f"group{number}"},
        )
    here.nodes("n5", cpu=8, memory="64Gi")
    spec: dict[str, Any] = {"affinity": stated} if stated is not None else {}
    here.state.upsert_queue(
        {
            "metadata": {
                "name": "q",
                "annotations": {"volcano.sh/nodegroup-resource-limits": limits} if limits else {},
            },
            "spec": {**spec, **({"parent": parent} if parent else {})},
            "status": {"state": "Open"},
        }
    )
    return here


def member(here: World, name: str, *, cpu: int = 1, memory: str = "1Gi", on: str = "") -> None:
    here.job(
        f"job-{name}", pods=0, min_available=1, queue="q", phase="Running" if on else "Inqueue"
    )
    here.pod(name, job=f"job-{name}", cpu=cpu, memory=memory, node=on)


UNLABELLED, UNSTATED = "node group label not found", "node group affinity not specified"
UNSATISFIED, EXCEEDED = (
    "node does not satisfy the node group affinity",
    "node group resource limit exceeded",
)


@pytest.mark.scenario("plugins-placement", 26)
def test_groups_of_a_queue():
    here = grouped(
        stated=affinity(["group1", "group3"], ["group3"], ["group2", "group4"], ["group4"])
    )
    member(here, "p")
    assert scores(here, "p") == {"n1": 100, "n2": 0, "n3": 150, "n4": -1, "n5": 0}
    assert verdicts(here, "p") == {
        "n1": "",
        "n2": UNSATISFIED,
        "n3": "",
        "n4": "",
        "n5": UNLABELLED,
    }
    other = grouped(stated=affinity(["group1"], ["group3"], (), ["group4"]))
    member(other, "p")
    assert [scores(other, "p")[node] for node in ("n1", "n3", "n4")] == [100, 50, -1]
    ordered = grouped({"enablePreferredOrder": True}, stated=affinity((), ["group1", "group3"]))
    member(ordered, "p")
    assert [scores(ordered, "p")[node] for node in ("n1", "n3")] == [50, 25]


@pytest.mark.scenario("plugins-placement", 26)
@pytest.mark.parametrize("stated", [None, affinity()])
def test_a_queue_that_says_nothing(stated):
    strict = grouped(stated=stated)
    member(strict, "p")
    assert verdicts(strict, "p") == {
        **dict.fromkeys(["n1", "n2", "n3", "n4"], UNSTATED),
        "n5": UNLABELLED,
    }
    loose = grouped({"strict": False}, stated=stated)
    member(loose, "p")
    assert verdicts(loose, "p") == {**dict.fromkeys(["n1", "n2", "n3", "n4"], UNSTATED), "n5": ""}


@pytest.mark.scenario("plugins-placement", 27)
def test_a_child_has_the_affinity_of_the_nearest_above_it():
    for hierarchy in (True, False):
        here = grouped(parent="parent", enableHierarchy=hierarchy)
        here.queue("grand", affinity=affinity(["group2"]), parent="root")
        here.queue("parent", parent="grand")
        member(here, "p")
        expected = {"n1": UNSATISFIED, "n2": ""} if hierarchy else {"n1": UNSTATED, "n2": UNSTATED}
        assert {node: verdicts(here, "p")[node] for node in expected} == expected
        here.queue("parent", parent="grand", affinity=affinity(["group1"]))
        expected = {"n1": "", "n2": UNSATISFIED} if hierarchy else {"n1": UNSTATED, "n2": UNSTATED}
        assert {node: verdicts(here, "p")[node] for node in expected} == expected
        here.queue("parent", parent="grand", affinity=affinity())  # says nothing, and says it
        assert verdicts(here, "p")["n2"] == UNSTATED


@pytest.mark.scenario("plugins-placement", 28)
@pytest.mark.parametrize(
    ("limits", "memory", "running", "first"),
    [
        ({"group1": {"cpu": "3", "memory": "8Gi"}}, "4Gi", 0, ""),
        ({"group1": {"cpu": "3"}}, "60Gi", 0, ""),
        ({"group1": {"cpu": "1"}}, "4Gi", 0, EXCEEDED),
        ({"group1": {"cpu": "3", "memory": "8Gi"}}, "4Gi", 2, EXCEEDED),
    ],
)
def test_a_queue_has_limits_in_a_group(limits, memory, running, first):
    here = grouped(stated=affinity(["group1", "group2"]), limits=json.dumps(limits))
    if running:
        member(here, "there", cpu=running, memory="4Gi", on="n1")
    member(here, "p", cpu=2, memory=memory)
    assert [verdicts(here, "p")[node] for node in ("n1", "n2")] == [first, ""]


@pytest.mark.scenario("plugins-placement", 28)
def test_limits_that_cannot_be_read_close_every_node():
    here = grouped(stated=affinity(["group1"]), limits="{")
    member(here, "p")
    assert set(verdicts(here, "p").values()) == {"node group resource limit annotation invalid"}


@pytest.mark.scenario("plugins-placement", 29)
def test_what_is_placed_in_a_cycle_counts_in_it():
    here = World(policy(plugins=["gang", "predicates", "nodegroup"], actions="allocate"))
    here.nodes("n1", cpu=8, labels={"volcano.sh/nodegroup-name": "group1"})
    here.state.upsert_queue(
        {
            "metadata": {
                "name": "q",
                "annotations": {"volcano.sh/nodegroup-resource-limits": '{"group1": {"cpu": "3"}}'},
            },
            "spec": {"affinity": affinity(["group1"])},
            "status": {"state": "Open"},
        }
    )
    member(here, "first", cpu=2)
    member(here, "second", cpu=2)
    assert list(here.run().bound()) == ["default/first"]
    assert EXCEEDED in here.why("job-second")


# -------------------------------------------------------------------------------------------- usage


def loaded(here: World, name: str, cpu: float, memory: float, age: float | None = 0.0) -> None:
    usage = {
        "metadata": {"name": name},
        "cpu_usage_avg_percent": {"10m": cpu},
        "memory_usage_avg_percent": {"10m": memory},
    }
    here.state.upsert_other(
        "NodeUsage", {**usage, **({} if age is None else {"time": here.now - age})}
    )


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


# ------------------------------------------------------------------------------------ recorded rows

CASES = Path(__file__).parents[2].parent / "shared" / "conformance" / "cases" / "plugins"
recorded = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")


def rows(name: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    path = CASES / f"{name}.json"
    return (
        [(one["name"], one["input"], one["expect"]) for one in json.loads(path.read_text())]
        if path.exists()
        else []
    )


@recorded
def test_recorded_limits_of_pods():
    here = World(policy(plugins=["gang"]))
    for number, (name, given, expected) in enumerate(rows("usage/TestGetPodResourceRequestLimit")):
        here.pod(f"p{number}", spec=given["pod"]["spec"])
        pods = here.state.tasks[f"default/p{number}"].pods
        found = {
            "expectedCPUReq": pods.request.amounts["cpu"],
            "expectedMemReq": pods.request.amounts["memory"],
            "expectedCPULim": pods.limits["cpu"],
            "expectedMemLim": pods.limits["memory"],
        }
        assert {key: found[key] for key in expected if key in found} == {
            key: expected[key] for key in expected if key in found
        }, name


@recorded
def test_recorded_estimates():
    for name, given, expected in rows("usage/TestEstimatePodResource"):
        stated = Estimator(request_ratio=given["requestWeight"], burst_ratio=given["burstWeight"])
        found = estimate(
            stated,
            {"cpu": given["request"]},
            {"cpu": given["limit"]},
            False,
            given["appliedRiskFactor"],
        )[0]
        assert found == pytest.approx(expected["expected"]), name
    for name, given, expected in rows("usage/TestEstimateBestEffortResource"):
        if given["configuredValue"] >= 0:
            found = estimate(
                sound(Estimator(be_cpu=int(given["configuredValue"]))),
                {},
                {},
                True,
                given["appliedRiskFactor"],
            )[0]
            assert found == pytest.approx(expected["expected"]), name


@recorded
def test_recorded_scores_of_load():
    for name, given, expected in rows("usage/TestCalcNodeScore"):
        weights = {
            "usage.weight": given["usageWeight"],
            "cpu.weight": given["cpuWeight"],
            "memory.weight": given["memWeight"],
        }
        here = world("usage", weights)
        here.nodes("n1", cpu=8)
        loaded(here, "n1", 100 * given["cpuComp"], 100 * given["memComp"])
        pod(here, "p", cpu=1)
        assert scores(here, "p") == {"n1": pytest.approx(expected["expected"])}, name


@recorded
def test_recorded_fits_by_strategy():
    for name, given, expected in rows("resource-strategy-fit/TestScore"):
        arguments, node, task = (
            given["args"]["weight"],
            given["args"]["node"],
            given["args"]["task"],
        )
        kinds = {
            key: {"type": one["Type"], "weight": one["Weight"]}
            for key, one in arguments["Resources"].items()
        }
        here = world(
            "resource-strategy-fit",
            {"resourceStrategyFitWeight": arguments["Weight"], "resources": kinds},
        )
        room, used, asked = (
            node.get("Allocatable") or {},
            node.get("Used") or {},
            task.get("Resreq") or {},
        )
        here.nodes("n1", cpu=f"{room.get('MilliCPU', 0)}m", memory=room.get("Memory", 0))
        here.job(
            "there",
            pods=1,
            on=["n1"],
            phase="Running",
            cpu=f"{used.get('MilliCPU', 0)}m",
            memory=used.get("Memory", 0),
        )
        notes = ((task.get("Pod") or {}).get("metadata") or {}).get("annotations")
        pod(here, "p", notes, cpu=f"{asked.get('MilliCPU', 0)}m", memory=asked.get("Memory", 0))
        assert scores(here, "p")["n1"] == pytest.approx(expected["want"], abs=1e-3), name


# ------------------------------------------------------------------------------- binpack, nodeorder


@pytest.mark.parametrize(("arguments", "expected"), [
    ({"binpack.weight": 10, "binpack.cpu": 2, "binpack.memory": 3, f"binpack.resources.{GPU}": 7, "binpack.resources.example.com/foo": 8,
      "binpack.resources": f"{GPU}, example.com/foo"},
     {"p1": (700, 137.5, 0), "p2": (0, 375, 0), "p3": (0, 531.25, 0), "p4": (0, 173.077, 0)}),
    ({"binpack.weight": 1, "binpack.resources": GPU, f"binpack.resources.{GPU}": 23},
     {"p1": (75, 15.625, 0), "p2": (0, 37.5, 0), "p3": (0, 50.5, 0), "p4": (0, 50, 0)}),
])  # fmt: skip
def test_binpack_by_its_example(arguments, expected):
    here = world("binpack", arguments)
    here.nodes("n1", cpu=2, memory="4Gi")
    here.nodes("n2", cpu=4, memory="16Gi", gpu=4)
    here.nodes("n3", cpu=2, memory="4Gi", **{"example.com/foo": 16})
    here.job("one", pods=1, on=["n1"], phase="Running", cpu=1, memory="1Gi")
    here.job("three", pods=1, on=["n3"], phase="Running", cpu="1500m")
    pod(here, "p1", cpu=1, memory="1Gi")
    pod(here, "p2", cpu="1500m")
    pod(here, "p3", cpu=2, memory="10Gi", gpu=2)
    pod(here, "p4", cpu=3, memory="4Gi", **{"example.com/foo": 3})
    assert {name: tuple(scores(here, name).values()) for name in expected} == expected


def test_weights_that_are_below_nothing_count_one_where_they_are_let_through():
    arguments = {
        "binpack.cpu": -5,
        "binpack.resources": f"{GPU}, example.com/foo",
        f"binpack.resources.{GPU}": 7,
        "binpack.resources.example.com/foo": -3,
    }
    tree = {
        "actions": "allocate",
        "tiers": [{"plugins": [{"name": "binpack", "arguments": arguments}]}],
    }
    here = World(read_policy(tree, strict=False))
    assert hooks_of(here.state, here.policy).plugins[0].weights == {
        GPU: 7,
        "example.com/foo": 1,
        "cpu": 1,
        "memory": 1,
    }


ONLY = {
    "leastrequested": 0,
    "balancedresource": 0,
    "nodeaffinity": 0,
    "podaffinity": 0,
    "tainttoleration": 0,
    "podtopologyspread": 0,
    "imagelocality": 0,
}


def ordered(only: str) -> World:
    return world("nodeorder", {f"{name}.weight": int(name == only) for name in {**ONLY, only: 1}})


@pytest.mark.parametrize(
    ("only", "expected"), [("leastrequested", (62, 81)), ("mostrequested", (37, 18))]
)
def test_load_by_the_example(only, expected):
    here = ordered(only)
    here.nodes("n1", cpu=2, memory="4Gi")
    here.nodes("n2", cpu=4, memory="8Gi")
    pod(here, "p", cpu=1, memory="1Gi")
    assert tuple(scores(here, "p").values()) == expected


def test_balance_by_the_example():
    here = ordered("balancedresource")
    here.nodes("n1", cpu=2, memory="2Gi")
    here.nodes("n2", cpu=4, memory="2Gi")
    pod(here, "p", cpu=1, memory="1Gi")
    assert tuple(scores(here, "p").values()) == (75, 68)


def test_soft_taints_by_the_example():
    here = ordered("tainttoleration")
    for name, count in (("n1", 2), ("n2", 1), ("n3", 0)):
        here.nodes(name, taints=[f"t{number}=x:PreferNoSchedule" for number in range(count)])
    pod(here, "p", cpu=1)
    assert tuple(scores(here, "p").values()) == (0, 50, 100)


def test_images_by_the_example():
    here = ordered("imagelocality")
    here.nodes("n1", images={"app:latest": 500 * 2**20})
    here.nodes("n2")
    here.job("one", pods=0, min_available=1)
    here.pod("p", job="one", spec={"containers": [{"name": "c", "image": "app"}]})
    assert tuple(scores(here, "p").values()) == (23, 0)


def test_spread_by_the_example():
    here = ordered("podtopologyspread")
    for name, many in (("a", 3), ("b", 1), ("c", 0)):
        here.nodes(name, labels={"zone": name})
        here.job(
            f"there-{name}",
            pods=many,
            on=[name] * many,
            phase="Running",
            labels={"app": "web"},
            cpu="10m",
        )
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    here.job("one", pods=0, min_available=1)
    here.pod(
        "p",
        job="one",
        cpu=1,
        labels={"app": "web"},
        spec={"topologySpreadConstraints": [spread], "containers": []},
    )
    assert tuple(scores(here, "p").values()) == (0, 60, 100)
