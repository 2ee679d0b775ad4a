"""What pods and their node use, as files say it: of both versions of control groups, and by files that
vanish or lie."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hekla.agent.usage import (
    Scope,
    Sources,
    Usage,
    UsageCollector,
    UsageError,
    group_memory,
    node_time,
)

MILLION = 1_000_000
MEMINFO = (
    "MemTotal:       1000 kB\nMemFree:   100 kB\nMemAvailable:   400 kB\nSwapTotal:   100 kB\n"
)


class Machine:
    """Files of a machine with four processors, and its clock."""

    def __init__(self, directory: Path, version: int = 2) -> None:
        name = "cpu.stat" if version == 2 else "cpuacct.usage"
        self.version = version
        self.now = 100.0
        self.files = {scope: directory / scope / name for scope in Scope}
        self.files[Scope.NODE] = directory / "stat"
        self.memory = directory / "memory.stat"
        self.meminfo = directory / "meminfo"
        for file in self.files.values():
            file.parent.mkdir(exist_ok=True)
        self.meminfo.write_text(MEMINFO)
        self.memory.write_text("anon 1000\nfile 2000\nkernel 300\nsock 4\n")
        self.left_out: list[str] = []
        self.collector = UsageCollector(
            Sources(self.files, self.memory, self.meminfo),
            lambda what, why: self.left_out.append(what),
            processors=4,
            clock=lambda: self.now,
        )

    def says(self, scope: Scope, milliseconds: int) -> None:
        """So much processor time was used so far."""
        if scope is Scope.NODE:
            text = f"cpu  {milliseconds // 10} 0 0 99 99 0 0 0 50 0\ncpu0 1 1 1 1\n"
        elif self.version == 2:
            text = f"usage_usec {milliseconds * 1000}\nuser_usec 1\n"
        else:
            text = f"{milliseconds * MILLION}\n"
        self.files[scope].write_text(text)

    def measure(self, *, pods: int, burstable: int = 0, best: int = 0, node: int = 0) -> Usage:
        values = (pods, burstable, best, node)
        for scope, value in zip(Scope, values, strict=True):
            self.says(scope, value)
        self.now += 10
        return self.collector.measure()


@pytest.mark.parametrize("version", [1, 2])
def test_processor_time_is_the_difference_of_two_readings(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version)
    assert machine.measure(pods=5000, burstable=3000, best=1000, node=7000).cpu == {}
    used = machine.measure(pods=15000, burstable=9000, best=3000, node=27000)
    assert used.cpu == {"pods": 1000, "burstable": 600, "besteffort": 200, "node": 2000}
    assert machine.left_out == []


@pytest.mark.parametrize(
    ("guaranteed", "offline", "system", "used"),
    [
        (True, True, False, 1000),
        (True, False, False, 800),  # the root without best-effort, nothing twice
        (False, True, False, 800),
        (False, False, False, 600),
        (True, True, True, 2000),
        (False, True, True, 1800),
    ],
)
def test_scopes(tmp_path: Path, guaranteed: bool, offline: bool, system: bool, used: int) -> None:
    machine = Machine(tmp_path)
    machine.measure(pods=0)
    found = machine.measure(pods=10000, burstable=6000, best=2000, node=20000)
    assert found.cpu_of(guaranteed=guaranteed, offline=offline, system=system) == used


def test_a_file_that_vanishes_leaves_its_sample_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.measure(pods=0)
    caplog.set_level(logging.INFO)
    for _ in range(3):
        machine.files[Scope.BEST_EFFORT].unlink(missing_ok=True)
        machine.memory.unlink(missing_ok=True)
        machine.now += 10
        used = machine.collector.measure()
        assert used.cpu_of() == 0 and used.cpu_of(offline=False) is None
        assert used.memory_of() is None and used.memory_of(system=True) == 600 * 1024
    assert machine.left_out == ["cpu of besteffort", "memory of pods"] * 3
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "cpu of besteffort cannot be measured, its samples are left out",
        "memory of pods cannot be measured, its samples are left out",
    ]
    machine.measure(pods=1000)
    assert caplog.records[-1].getMessage() == "cpu of besteffort is measured again"


@pytest.mark.parametrize(
    ("counter", "why"),
    [
        (4000, "the counter went back"),  # the group was made anew
        (10**9, "processors were used in 10.0 s, and there are 4"),
    ],
)
def test_a_counter_that_lies_leaves_its_sample_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, counter: int, why: str
) -> None:
    machine = Machine(tmp_path)
    machine.measure(pods=5000)
    assert machine.measure(pods=counter).cpu_of() is None
    assert why in caplog.text
    assert machine.measure(pods=counter + 2000).cpu_of() == 200


def test_a_short_time_may_have_a_tick_too_many(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.measure(pods=0)
    for scope, milliseconds in ((Scope.PODS, 0), (Scope.NODE, 270)):  # of 240 in 60 ms
        machine.says(scope, milliseconds)
    machine.now += 0.06
    assert 4490 < machine.collector.measure().cpu[Scope.NODE] <= 4500


def test_what_is_no_counter_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(tmp_path, version=1)
    machine.files[Scope.PODS].write_text("many\n")
    machine.now += 10
    machine.collector.measure()
    assert "'many' is no counter" in caplog.text


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("cache 1\nrss 1\ntotal_cache 100\ntotal_rss 20\ntotal_swap 3\ntotal_shmem 50\n", 123),
        # shmem is part of file, the four others are parts of kernel
        ("anon 100\nfile 50\nshmem 40\nkernel 30\nslab 20\nkernel_stack 5\npercpu 3\nvmalloc 2\nsock 7\n", 187),
        # before 5.18 the kernel does not tell the sum
        ("anon 100\nfile 50\nshmem 40\nslab 20\nkernel_stack 5\npagetables 1\npercpu 3\nsock 7\n", 186),
    ],
)  # fmt: skip
def test_memory_is_counted_once(tmp_path: Path, text: str, amount: int) -> None:
    file = tmp_path / "memory.stat"
    file.write_text(text)
    assert group_memory(file) == amount


def test_more_memory_than_there_is_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.memory.write_text("anon 5000000\nfile 0\nkernel 0\n")
    assert machine.measure(pods=0).memory_of() is None
    assert "5000000 bytes are in use, and the machine has 1126400" in caplog.text


def test_time_of_the_machine_leaves_guests_out_that_are_in_user_already(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  10 1 2 1000 500 3 4 5 100 100\n")
    assert node_time(file) == 25 * 10 * MILLION
    file.write_text("intr 1 2\n")
    with pytest.raises(UsageError, match="no line of all processors"):
        node_time(file)
