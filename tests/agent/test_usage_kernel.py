"""Usage as this machine's own kernel counts it, where it has cgroup v1 and lets us make directories."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hekla.agent.cgroups import CPU_USAGE, MEMORY_STAT, Cgroups
from hekla.agent.machine import machine
from hekla.agent.pods import BEST_EFFORT, BURSTABLE
from hekla.agent.usage import LEAST_SECONDS, Scope, Sources, Usage, UsageCollector
from tests.agent.kernel import own_directory

PATIENCE = 30.0
MIB = 1 << 20
BURN = f"held = bytearray({40 * MIB})\nprint(flush=True)\nwhile True: pass"


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    """The directories of pods that a kubelet would have made."""
    with own_directory("hekla-usage", CPU_USAGE.controller, MEMORY_STAT.controller) as here:
        for file in (CPU_USAGE, MEMORY_STAT):
            for qos_class in (BURSTABLE, BEST_EFFORT):
                here.path(here.qos_root(qos_class), file).parent.mkdir(parents=True)
        yield here


@contextlib.contextmanager
def burning(cgroups: Cgroups, qos_class: str) -> Iterator[None]:
    """A process of a pod of this class that never rests, and holds 40 MiB."""
    directories = [
        cgroups.path(cgroups.qos_root(qos_class), file).parent for file in (CPU_USAGE, MEMORY_STAT)
    ]

    def join() -> None:
        for directory in directories:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen(
        [sys.executable, "-c", BURN], stdout=subprocess.PIPE, preexec_fn=join
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_burns_is_seen_where_it_belongs(cgroups: Cgroups) -> None:
    collector = UsageCollector(Sources.of(cgroups, machine()))
    with burning(cgroups, BEST_EFFORT):
        collector.measure()
        deadline = time.monotonic() + PATIENCE
        usage = Usage()
        while not usage.cpu.get(Scope.BEST_EFFORT):  # a busy machine gives it little
            assert time.monotonic() < deadline, usage
            time.sleep(LEAST_SECONDS)  # a counter that has had no time says nothing
            usage = collector.measure()
    pods, online = usage.cpu_of(), usage.cpu_of(offline=False)
    assert pods is not None and online is not None and online < pods
    assert usage.cpu[Scope.BURSTABLE] == 0
    assert 40 * MIB <= (usage.memory_of() or 0) < 400 * MIB
    assert usage.cpu[Scope.NODE] > 0 and usage.memory_of(system=True)
