"""The handlers on this machine's own kernel, where it has cgroup v1 with cpu and memory and lets us
make directories there."""

from __future__ import annotations

from hekla.agent.cgroups import (
    CPU_BURST,
    CPU_IDLE,
    CPU_QUOTA,
    CPU_SHARE,
    MEMORY_LIMIT,
    MEMORY_SOFT,
)
from hekla.agent.handlers import cpu_throttle, resources
from hekla.agent.handlers.table import HANDLERS
from tests.agent.kernel import Kernel
from tests.agent.trees import batch, pod

GIB = 1 << 30


def test_an_offline_pod_is_idle_and_has_its_batch_resources(kernel: Kernel) -> None:
    each = kernel.add(pod(level="BE", containers=[batch(500, 2000, GIB), batch(250, 500, GIB)]))
    kernel.run(each)
    cpu = (CPU_SHARE, CPU_QUOTA, MEMORY_LIMIT)
    assert kernel.says(each, "c0", *cpu) == ("512", "200000", str(GIB))
    assert kernel.says(each, "", CPU_IDLE, CPU_QUOTA, MEMORY_LIMIT, MEMORY_SOFT) == (
        *("1", "250000"),
        *(str(2 * GIB), "0"),
    )
    assert kernel.run(each) == 0, "the second time there is nothing to do"
    for one in HANDLERS:
        kernel.cgroups.apply(one.undo(each, kernel.context))
    assert kernel.says(each, "", CPU_IDLE, CPU_SHARE) == ("0", "768")


def test_a_pod_that_comes_online_has_weight(kernel: Kernel) -> None:
    each = kernel.add(pod(level="BE"))
    before = kernel.says(each, "", CPU_SHARE)
    kernel.run(each)
    for level, factor in (("LS", 2), ("LC", 4), ("", 1)):
        kernel.run(pod(level=level))
        assert kernel.says(each, "", CPU_IDLE, CPU_SHARE) == ("0", str(int(before[0]) * factor))


def test_bursts_follow_quotas(kernel: Kernel) -> None:
    marks = {"volcano.sh/enable-quota-burst": "true", "volcano.sh/quota-burst-time": "50000"}
    each = kernel.add(pod(containers=[batch(None, 1000), batch(None, 200)], annotations=marks))
    kernel.run(each)
    bursts = [kernel.says(each, name, CPU_BURST)[0] for name in ("c0", "c1", "")]
    assert bursts == ["50000", "20000", "70000"]


def test_all_best_effort_pods_are_throttled_and_let_go(kernel: Kernel) -> None:
    marks = {"volcano.sh/enable-quota-burst": "true"}
    each = kernel.add(pod(level="BE", containers=[batch(500, 2000)], annotations=marks))
    kernel.run(each)
    root = kernel.cgroups.qos_root("BestEffort")
    for milli, quota in ((500, "50000"), (0, "1000"), (300, "30000")):
        kernel.cgroups.apply(cpu_throttle.writes(milli, kernel.context))
        kernel.run(each)
        assert kernel.cgroups.read(root, CPU_QUOTA) == quota
        assert kernel.says(each, "c0", CPU_QUOTA, CPU_BURST) == (quota, quota)
    kernel.cgroups.apply(cpu_throttle.writes(-1, kernel.context))
    kernel.run(each)
    assert kernel.cgroups.read(root, CPU_QUOTA) == "-1"
    assert kernel.says(each, "", CPU_QUOTA, CPU_BURST) == ("200000", "200000")


def test_a_pod_that_goes_meanwhile_is_no_error(kernel: Kernel) -> None:
    each = kernel.add(pod(level="BE", containers=[batch(500, 2000)]))
    listed = list(resources.writes(each, kernel.context))
    for controller in ("cpu", "memory"):
        directory = kernel.cgroups.root / controller / kernel.cgroups.container(each, "c0")
        directory.rmdir()
        directory.parent.rmdir()
    assert kernel.cgroups.apply(listed) == 0
    assert kernel.run(each) == 0
