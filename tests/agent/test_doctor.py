"""What is said of a machine, and the condition of its node that says it too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from hekla.agent import condition as module
from hekla.agent import doctor, own_node
from hekla.agent.agent import Agent
from hekla.agent.cgroups import CPU_BURST, CPU_QOS, CPU_USAGE, MEMORY_QOS, MEMORY_STAT, File
from hekla.agent.condition import Condition
from hekla.agent.doctor import Finding
from hekla.agent.features import DEFAULT, Feature
from hekla.agent.machine import machine
from hekla.agent.pods import Node
from hekla.api.trees import Json
from tests.agent.trees import Trees

TRAFFIC = Finding("NetworkQoS", True, "tc")


def survey(trees: Trees, tmp_path: Path) -> dict[str, Finding]:
    here = machine({"SYS_FS_PATH": str(tmp_path)})
    found = doctor.survey(here, trees.cgroups, tmp_path / "state", TRAFFIC)
    return {one.name: one for one in found}


def give(trees: Trees, *files: File) -> None:
    for file in files:
        path = trees.cgroups.path(trees.cgroups.qos_root(), file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0")


def test_a_machine_with_everything(v2: Trees, tmp_path: Path) -> None:
    give(v2, CPU_USAGE, MEMORY_STAT)
    found = survey(v2, tmp_path)
    assert [one.name for one in found.values() if not one.available] == []
    assert found["CPUQoS"].how == (
        "emulated: offline pods have cpu.idle, online ones more weight by level"
    )
    assert found["MemoryQoS"].how == (
        "emulated: memory.high of offline pods, memory.low of online ones"
    )
    said = doctor.condition(found.values())
    assert (said["type"], said["status"], said["reason"]) == (
        *("ColocationReady", "True"),
        "EverythingIsThere",
    )


def test_a_kernel_with_levels_needs_no_emulation(v2: Trees, tmp_path: Path) -> None:
    give(v2, CPU_QOS, MEMORY_QOS)
    found = survey(v2, tmp_path)
    assert (found["CPUQoS"].how, found["MemoryQoS"].how) == ("cpu.qos_level", "memory.qos_level")


def test_what_is_missing_is_named_with_what_it_costs(v1: Trees, tmp_path: Path) -> None:
    v1.cgroups.path(v1.cgroups.qos_root(), CPU_BURST).unlink()
    for path in v1.cgroups.root.rglob("cpu.idle"):
        path.unlink()
    found = survey(v1, tmp_path)
    missing = {name: (one.how, one.cost) for name, one in found.items() if not one.available}
    assert missing == {
        "CPUBurst": (
            "no cpu.cfs_burst_us",
            "quotas are kept in every period; Linux has bursts since 5.14",
        ),
        "MemoryQoSV2": (
            "no memory.high",
            "ratios of ColocationConfigurations are ignored; they need cgroup v2",
        ),
        "OverSubscription": (
            "no cpuacct.usage, no memory.stat",
            "nothing is offered beyond what pods have not asked for",
        ),
    }
    assert found["CPUQoS"].how.startswith("emulated: offline pods have the least weight")
    said = doctor.condition(found.values())
    assert (said["status"], said["reason"]) == ("True", "WorksInPart")
    assert said["message"].startswith("CPUBurst: no cpu.cfs_burst_us: quotas are kept")
    assert "  without  CPUBurst" in doctor.printed(found.values())


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    here = machine({"SYS_FS_PATH": str(tmp_path)})
    trees = Trees(tmp_path / "elsewhere")
    trees.cgroups.root = tmp_path / "cgroup"
    found = doctor.survey(here, trees.cgroups, tmp_path / "state", TRAFFIC)
    said = doctor.condition(found)
    assert (said["status"], said["reason"]) == ("False", "NoCgroups")
    assert "there are none: nothing of a pod can be set" in said["message"]


class Stub:
    """An agent whose node has the condition that is written to it."""

    def __init__(self, trees: Trees, tmp_path: Path) -> None:
        self.cgroups = trees.cgroups
        self.machine = machine({"SYS_FS_PATH": str(tmp_path)})
        self.settings = SimpleNamespace(node_name="n1", supports=frozenset(Feature))
        self.node = Node()
        self.client = self
        self.written: list[Json] = []

    async def patch(self, kind: object, name: str, body: Json, **how: str) -> None:
        assert (name, how) == ("n1", {"type": "strategic", "subresource": "status"})
        self.written += body["status"]["conditions"]
        self.node = msgspec.convert(body, Node)


async def test_the_condition_is_written_when_it_is_another(
    v2: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.doctor, "traffic", lambda: TRAFFIC)
    now = 1_000_000.0
    monkeypatch.setattr(own_node.time, "time", lambda: now)
    stub = Stub(v2, tmp_path)
    condition = Condition(cast("Agent", cast("Any", stub)), tmp_path)
    for _ in range(2):
        await condition.look()
    assert [one["reason"] for one in stub.written] == ["WorksInPart"]
    now += 60
    give(v2, CPU_USAGE, MEMORY_STAT)
    await condition.look()
    first, second = stub.written
    assert second["reason"] == "EverythingIsThere"
    assert second["lastTransitionTime"] == first["lastTransitionTime"], "it was True before"
    assert second["lastHeartbeatTime"] > first["lastHeartbeatTime"]


async def test_what_the_process_does_not_support_is_not_missed(
    v1: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As installed by default: neither memory.high, which v1 lacks, nor the right to shape traffic."""
    give(v1, CPU_USAGE, MEMORY_STAT)
    monkeypatch.setattr(module.doctor, "traffic", lambda: pytest.fail("it is tried"))
    stub = Stub(v1, tmp_path)
    stub.settings.supports = frozenset(DEFAULT)
    await Condition(cast("Agent", cast("Any", stub)), tmp_path).look()
    assert [(one["reason"], one["message"]) for one in stub.written] == [("EverythingIsThere", "")]
