"""The trace openb: pods with shares of GPUs, nodes with cards of several models."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import policy
from hekla.simulator import openb
from hekla.simulator.simulation import simulate
from hekla.simulator.workload import InputError
from tests.simulator.test_simulation import times

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = [
    "sn,cpu_milli,memory_mib,gpu,model",
    "a,64000,262144,2,P100",
    "b,64000,262144,1,T4",
    "c,32000,65536,0,",
]
SHARING: Any = {"name": "deviceshare", "arguments": {"deviceshare.VGPUEnable": True}}
RULES = policy(plugins=["gang", "predicates", SHARING], actions="allocate, backfill")


def run(*pods: str) -> dict[str, tuple[float, float]]:
    workload = openb.read([PODS, *pods], "pods.csv")
    workload.cluster = openb.read_nodes(NODES, "nodes.csv")
    return times(simulate(workload, [RULES])[0])


def test_a_pod_runs_from_its_schedule_to_its_deletion() -> None:
    assert run("x,1000,1024,0,0,,LS,Running,5,30,10") == {"x": (5, 25)}


def test_shares_of_one_card_wait_for_each_other() -> None:
    found = run(
        "x,1000,1024,1,600,T4,LS,Running,0,10,0",
        "y,1000,1024,1,400,T4,LS,Running,1,11,1",
        "z,1000,1024,1,300,T4,LS,Running,2,12,2",
    )
    assert found == {"x": (0, 10), "y": (1, 11), "z": (10, 20)}


def test_whole_cards_on_one_node() -> None:
    found = run("x,1000,1024,1,100,P100,LS,Running,0,10,0", "y,1000,1024,2,1000,,LS,Running,1,11,1")
    assert found == {"x": (0, 10), "y": (10, 20)}


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ("x,lots,1,0,0,,LS,Running,0,1,0", 'p:2: cpu_milli = "lots": a whole number from 0 up'),
        ("x,1,1,1,1500,,LS,Running,0,1,0", "p:2: gpu_milli = 1500: from 1 to 1000"),
        ("x,1,1,0,0,,LS,Running,9,1,", "p:2: deletion_time = 1: not before 9, when it began"),
        ("x,1,1", "p:2: a row has 11 values"),
    ],
)
def test_what_is_refused(pod: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        openb.read([PODS, pod], "p")
    assert str(error.value) == said


def test_a_list_without_times_cannot_be_simulated() -> None:
    with pytest.raises(InputError) as error:
        openb.read(["name,cpu_milli,memory_mib,num_gpu,gpu_milli"], "p")
    assert str(error.value) == "p:1: columns are missing: creation_time, deletion_time"


def test_names_stand_once_and_are_there() -> None:
    with pytest.raises(InputError, match=r'nodes.csv:3: sn = "a": it stands twice'):
        openb.read_nodes([*NODES[:2], NODES[1]], "nodes.csv")
    with pytest.raises(InputError, match=r'pods.csv:2: name = "": a name'):
        openb.read([PODS, ",1000,1024,0,0,,LS,Running,5,30,10"], "pods.csv")
