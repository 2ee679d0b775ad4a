"""numa-aware: a pod goes where the kubelet will admit it, and CPUs are promised once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.engine.model.annotations import NUMA_POLICY as POLICY
from hekla.engine.model.numa import Cpu, CpuTopology, Hint, cpu_set, merged
from hekla.engine.world import World, policy

CASES = (
    Path(__file__).parents[2].parent / "shared" / "conformance" / "cases" / "plugins" / "numaaware"
)
recorded = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")


def world(
    numa: dict[str, str], *, how: str = "single-numa-node", nodes: int = 2, per_node: int = 4
) -> World:
    """Nodes by name, with the CPUs that are still free."""
    here = World(
        policy(plugins=["gang", "predicates", {"name": "numa-aware", "arguments": {"weight": 1}}])
    )
    for name, free in numa.items():
        here.nodes(name, cpu=nodes * per_node)
        report(here, name, free, how=how, nodes=nodes, per_node=per_node)
    return here


def report(
    here: World,
    name: str,
    free: str,
    *pods: str,
    how: str = "single-numa-node",
    nodes: int = 2,
    per_node: int = 4,
) -> None:
    here.state.upsert_other(
        "Numatopology",
        {
            "metadata": {"name": name},
            "spec": {
                "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": how},
                "numares": {"cpu": {"allocatable": free}},
                "cpuDetail": {
                    str(cpu): {"numa": cpu // per_node, "socket": cpu // per_node, "core": cpu // 2}
                    for cpu in range(nodes * per_node)
                },
                "podAllocations": [{"namespace": "default", "name": one} for one in pods],
            },
        },
    )


def guaranteed(here: World, name: str, cpu: Any, how: str = "single-numa-node") -> None:
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    here.job(name, pods=0, min_available=1)
    spec = {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}
    here.pod(f"{name}-task-0", job=name, spec=spec, annotations={POLICY: how} if how else {})


def refusal(here: World, name: str) -> str:
    return here.state.jobs[f"default/{name}"].fit_errors[f"default/{name}-task-0"].text


@pytest.mark.scenario("plugins-placement", 45)
def test_the_policy_must_be_the_nodes() -> None:
    here = world({"n1": "0-7"}, how="restricted")
    guaranteed(here, "a", 2)
    here.run("allocate")
    assert "task topology policy[single-numa-node] is different with node[restricted]" in refusal(
        here, "a"
    )


@pytest.mark.scenario("plugins-placement", 46)
def test_four_cpus_do_not_fit_into_three_and_three() -> None:
    for how in ("single-numa-node", "restricted"):
        here = world({"n1": "1-3,5-7"}, how=how)
        guaranteed(here, "a", 4, how)
        assert here.run("allocate").binds == []
        assert "container main cannot be assigned by numa" in refusal(here, "a")
    here = world({"n1": "1-3,5-7"}, how="best-effort")
    guaranteed(here, "a", 4, "best-effort")
    assert len(here.run("allocate").binds) == 1


@pytest.mark.scenario("plugins-placement", 47)
def test_parts_of_cpus_wish_nothing() -> None:
    here = world({"n1": "0"})
    guaranteed(here, "a", "1500m")
    assert len(here.run("allocate").binds) == 1


def test_pods_that_are_not_guaranteed_pass() -> None:
    here = world({"n1": ""})
    here.job("a", cpu=4)
    assert len(here.run("allocate").binds) == 1


@pytest.mark.scenario("plugins-placement", 48)
def test_fewer_numa_nodes_are_better() -> None:
    here = world({"n1": "0,2,4,6"}, how="best-effort", nodes=4, per_node=2)
    here.nodes("n2", "n3", cpu=8)
    report(here, "n2", "0-7", how="best-effort", nodes=2, per_node=4)
    report(here, "n3", "0,1,2,4,5,6", how="best-effort", nodes=2, per_node=4)
    guaranteed(here, "a", 4, "best-effort")
    assert here.run("allocate").nodes_of("a") == {"n2"}


@pytest.mark.scenario("plugins-placement", 49)
def test_cpus_are_promised_until_the_node_reports_them() -> None:
    here = world({"n1": "0-7"})
    guaranteed(here, "a", 4)
    guaranteed(here, "b", 4)
    guaranteed(here, "c", 1)
    assert set(here.run("allocate").bound()) == {"default/a-task-0", "default/b-task-0"}
    here.settle()
    guaranteed(here, "d", 0)
    assert here.run("allocate").nodes_of("c") == set(), "still promised"
    report(here, "n1", "4-7", "a-task-0")
    assert here.run("allocate").nodes_of("c") == set(), "the other is not reported yet"
    here.end("a")
    report(here, "n1", "0-7")
    assert here.run("allocate").nodes_of("c") == {"n1"}


def test_what_cannot_be_read_is_left_out_and_said() -> None:
    here = world({"n1": "0-7"})
    report(here, "n1", "zero to seven")
    guaranteed(here, "a", 1)
    here.run("allocate")
    assert "numa info is empty" in refusal(here, "a")
    assert ("Numatopology", "n1") in here.state.rejected


def test_a_reservation_beyond_all_numbers_stops_no_cycle() -> None:
    here = world({"n1": "0-7"})
    tree = json.loads(json.dumps(here.state.others["Numatopology"]["n1"]))
    tree["spec"]["resReserved"] = {"cpu": "9" * 400}
    here.state.upsert_other("Numatopology", tree)
    guaranteed(here, "a", 2)
    here.job("b", pods=1, cpu=1)
    assert here.run("allocate").nodes_of("b") == {"n1"}
    assert not here.state.rejected


def test_sets_of_cpus() -> None:
    assert cpu_set("0-3,8") == {0, 1, 2, 3, 8}
    assert cpu_set("") == set()


# ---------------------------------------------------------------------------------- worked examples


def hint(tree: dict[str, Any]) -> Hint:
    return Hint(
        frozenset(tree["NUMANodeAffinity"]) if tree["NUMANodeAffinity"] is not None else None,
        tree.get("Preferred", False),
    )


@recorded
@pytest.mark.parametrize("name", ["best_effort", "restricted", "single_numa_node", "none"])
def test_recorded_merging(name: str) -> None:
    for case in json.loads((CASES / "policy" / f"Test_{name}_predicate.json").read_text()):
        providers = [
            [hint(one) for one in hints]
            for given in case["input"]["providersHints"]
            for hints in given.values()
        ]
        found, _ = merged(name.replace("_", "-"), providers, case["context"]["numa_nodes"])
        assert found == hint(case["expect"]["expect"]), case["name"]


def topology(case: dict[str, Any]) -> CpuTopology:
    given = case["context"]["cpus"].items()
    return CpuTopology(
        {int(number): Cpu(at["numa_node"], at["socket"], at["core"]) for number, at in given}
    )


@recorded
def test_recorded_hints_and_assignments() -> None:
    for case in json.loads(
        (CASES / "provider" / "cpumanager" / "Test_GetTopologyHints.json").read_text()
    ):
        request = float(case["input"]["container"]["resources"]["requests"]["cpu"])
        found = topology(case).hints(request, frozenset(case["input"]["resNumaSets"]["cpu"]), 0)
        assert (found or []) == [hint(one) for one in case["expect"]["expect"] or ()], case["name"]
    for case in json.loads((CASES / "provider" / "cpumanager" / "Test_Allocate.json").read_text()):
        request = int(case["input"]["container"]["resources"]["requests"]["cpu"])
        free = frozenset(case["input"]["resNumaSets"]["cpu"])
        assert topology(case).allocate(request, free, 0, hint(case["input"]["bestHit"])) == set(
            case["expect"]["expect"]
        ), case["name"]


@pytest.mark.scenario("scheduler-core", 137)
def test_cpus_stay_promised_until_the_node_reports_the_pod() -> None:
    """One NUMA node of four CPUs: two pods of two fill it, although the node still reports all four
    as free."""
    here = world({"n1": "0-3"}, nodes=1)
    for name in ("a", "b", "c"):
        guaranteed(here, name, 2)
        here.run("allocate")
        here.settle()
    assert {key for key, task in here.state.tasks.items() if task.row >= 0} == {
        "default/a-task-0",
        "default/b-task-0",
    }
    report(here, "n1", "2-3", "a-task-0", nodes=1)
    here.state.remove_pod("default/b-task-0")
    here.pods.pop("default/b-task-0")
    here.run("allocate")
    assert here.state.tasks["default/c-task-0"].row >= 0
