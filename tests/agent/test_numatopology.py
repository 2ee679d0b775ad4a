"""The topology that an agent reads of its machine, and what the scheduler makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hekla.agent.numatopology import (
    Files,
    TopologyError,
    cpu_set,
    cpu_text,
    read,
    reserved,
    reserved_problem,
)
from hekla.api.meta import Struct
from hekla.api.nodeinfo import CpuInfo


class Host:
    """The files of a machine with two NUMA nodes of two cores, two threads each."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.files = Files(
            directory / "devices", directory / "config.yaml", directory / "cpu_manager_state"
        )
        self.put("node/online", "0-1")
        for node in (0, 1):
            self.put(f"node/node{node}/cpulist", f"{node * 4}-{node * 4 + 3}")
        for cpu in range(8):
            self.put(f"cpu/cpu{cpu}/topology/physical_package_id", str(cpu // 4))
            self.put(f"cpu/cpu{cpu}/topology/core_id", str(cpu // 2 % 2))

    def put(self, name: str, text: str) -> None:
        file = self.files.devices / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def kubelet(self, state: str = "", **config: object) -> None:
        self.files.kubelet_config.write_text(yaml.safe_dump(config))
        if state:
            self.files.cpu_manager_state.write_text(state)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


STATE = """{"policyName": "static", "defaultCpuSet": "0,4-7", "checksum": 1,
  "entries": {"uid-b": {"c": "2-3"}, "uid-a": {"y": "1", "x": ""}}}"""


def test_a_machine_with_two_nodes(host: Host) -> None:
    host.kubelet(
        STATE,
        cpuManagerPolicy="static",
        topologyManagerPolicy="single-numa-node",
        kubeReserved={"cpu": "300m", "memory": "1Gi"},
        systemReserved={"cpu": "0.2"},
    )
    found = read(host.files)
    assert found.policies == {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"}  # fmt: skip
    assert found.res_reserved == {"cpu": "500m"}
    assert (found.numares["cpu"].allocatable, found.numares["cpu"].capacity) == ("0,4-7", 8)
    assert found.cpu_detail["0"] == CpuInfo(numa=0, socket=0, core=0)
    assert found.cpu_detail["7"] == CpuInfo(numa=1, socket=1, core=1)
    assert [(one.uid, {each.name: each.allocations for each in one.container_allocations})
            for one in found.pod_allocations] == [
        ("uid-a", {"x": {"cpu": ""}, "y": {"cpu": "1"}}), ("uid-b", {"c": {"cpu": "2-3"}}),
    ]  # fmt: skip
    assert isinstance(found, Struct)


def test_without_a_kubelet_all_is_free_and_no_policy_holds(host: Host) -> None:
    found = read(host.files, "cpu=1500m,memory=1Gi")
    assert set(found.policies.values()) == {"none"}
    assert found.numares["cpu"].allocatable == "0-7"
    assert found.res_reserved == {"cpu": "1500m"}


def test_the_checkpoint_tells_a_policy_that_the_configuration_does_not(host: Host) -> None:
    host.kubelet(STATE)
    assert read(host.files).policies["CPUManagerPolicy"] == "static"


def test_processors_that_are_offline_are_left_out(host: Host) -> None:
    for name in ("physical_package_id", "core_id"):
        (host.files.devices / "cpu" / "cpu3" / "topology" / name).unlink()
    (host.files.devices / "cpu" / "cpu3" / "topology").rmdir()
    found = read(host.files)
    assert found.numares["cpu"].allocatable == "0-2,4-7" and "3" not in found.cpu_detail


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("devices/node/online", "0-x", "devices/node/online: invalid literal"),
        ("devices/node/node1/cpulist", "7-4", "'7-4' is no range of processors"),
        ("devices/cpu/cpu0/topology/core_id", "?", "core_id: '?' is no number"),
        ("config.yaml", "a: b: c", "config.yaml: "),
        ("config.yaml", "[]", "config.yaml: this is no object with fields"),
        ("config.yaml", "kubeReserved: {cpu: much}", "what is reserved of cpu cannot be read"),
        ("cpu_manager_state", "{", "cpu_manager_state: "),
        ("cpu_manager_state", '{"entries": ["uid"]}', "entries of the CPU manager cannot be read"),
        ("cpu_manager_state", '{"entries": {"uid": {"c": "0-a"}}}', "entries of the CPU manager"),
        ("cpu_manager_state", '{"policyName": "static", "defaultCpuSet": "a"}', "defaultCpuSet: "),
    ],
)
def test_what_cannot_be_read_is_named(
    host: Host, tmp_path: Path, file: str, text: str, why: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(TopologyError) as error:
        read(host.files)
    assert why in str(error.value)


def test_a_file_that_is_not_there_is_named(host: Host) -> None:
    (host.files.devices / "node" / "online").unlink()
    with pytest.raises(TopologyError, match="node/online: No such file"):
        read(host.files)


@pytest.mark.parametrize(
    ("text", "numbers"), [("", []), ("3", [3]), ("0-2,8", [0, 1, 2, 8]), ("8,0-2,2", [0, 1, 2, 8])]
)
def test_sets_of_processors(text: str, numbers: list[int]) -> None:
    assert cpu_set(text) == numbers
    assert cpu_set(cpu_text(numbers)) == numbers


def test_texts_of_sets() -> None:
    assert cpu_text([8, 2, 1, 0]) == "0-2,8"


def test_what_is_given_as_reserved_goes_before() -> None:
    assert reserved({"kubeReserved": {"cpu": "1"}}, "cpu=200m") == {"cpu": "200m"}
    assert reserved({}, "memory=1Gi") == {}
    assert reserved_problem("200m") == "'200m': write a resource and its amount, as in cpu=200m"
    assert "much" in (reserved_problem("cpu=much") or "")
