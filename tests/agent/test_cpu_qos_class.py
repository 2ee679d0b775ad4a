"""The directory of best-effort pods is idle while only offline pods are in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.agent.cgroups import CPU_IDLE, CPU_QOS, CPU_SHARE, Version
from hekla.agent.handlers import cpu_qos_class
from hekla.agent.pods import BEST_EFFORT
from tests.agent.kernel import Kernel
from tests.agent.trees import Trees, pod

OFFLINE = pod("job", level="BE")
ONLINE = pod("shell")
SERVICE = pod("service", level="LC", qos_class="Burstable")


@pytest.mark.parametrize("version", list(Version))
def test_who_is_in_the_directory_decides(tmp_path: Path, version: Version) -> None:
    trees = Trees(tmp_path, version)
    root, context = trees.cgroups.qos_root(BEST_EFFORT), trees.context()
    ended = pod("ended")
    ended.status.phase = "Succeeded"
    for pods, idle in (
        ([], "0"),
        ([SERVICE], "0"),
        ([SERVICE, OFFLINE], "1"),
        ([OFFLINE, ended], "1"),
        ([OFFLINE, ONLINE], "0"),
    ):
        trees.cgroups.apply(cpu_qos_class.writes(pods, context))
        assert trees.says(root, CPU_IDLE) == idle
    assert trees.says(root, CPU_SHARE) == ("1" if version is Version.V2 else "2")
    assert not list(cpu_qos_class.undo(context))  # it is not idle


def test_a_kernel_with_levels_is_left_to_them(tmp_path: Path) -> None:
    trees = Trees(tmp_path)
    trees.put(trees.cgroups.qos_root(BEST_EFFORT), CPU_QOS, "0\n")
    assert not list(cpu_qos_class.writes([OFFLINE], trees.context()))


def test_the_kernel_takes_it_and_gives_it_back(kernel: Kernel) -> None:
    kernel.add(OFFLINE)
    root = kernel.cgroups.qos_root(BEST_EFFORT)
    assert kernel.cgroups.apply(cpu_qos_class.writes([OFFLINE], kernel.context)) == 1
    assert kernel.cgroups.read(root, CPU_IDLE) == "1"
    kernel.cgroups.apply(cpu_qos_class.undo(kernel.context))
    assert (kernel.cgroups.read(root, CPU_IDLE), kernel.cgroups.read(root, CPU_SHARE)) == ("0", "2")
