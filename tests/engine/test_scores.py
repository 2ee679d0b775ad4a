"""Scores of resource-strategy-fit, binpack and nodeorder, and rows that were recorded, by the numbers of
the reference's examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.engine.cycle import hooks_of
from hekla.engine.plugins.placement.usage import (
    Estimator,
    estimate,
    sound,
)
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.placements import A10, GPU, T4, loaded, pod, scores, verdicts, world

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
