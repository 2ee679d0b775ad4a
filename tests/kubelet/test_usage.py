"""What pods and the node use: from /proc and control groups, and in the three forms that others read."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, ItemsView
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hekla.api.kubernetes import core
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.kubelet.nodes.machine import KUBELET_VERSION
from hekla.local.kubelet.usage import measures
from hekla.local.kubelet.usage.exposition import resource
from hekla.local.kubelet.usage.measures import PAGE_SIZE, TICK, Measure, Memory, Process
from hekla.local.kubelet.usage.sampler import Counter, NodeSize, RunningPod, UsageSampler
from hekla.local.kubelet.usage.snapshot import (
    ContainerUsage,
    Disk,
    NodeUsage,
    PodUsage,
    Snapshot,
    Use,
)
from hekla.local.kubelet.usage.summary import summary
from tests.kubelet.live_cluster import NODE_NAME, PATIENCE, Cluster, cluster

# ------------------------------------------------------------------------------------- what is measured


def process(parent: int, ticks: int = 0, pages: int = 0) -> Process:
    return Process(parent, ticks, pages, 0, 0)


def test_a_container_is_its_shim_and_all_that_came_from_it() -> None:
    known = {1: process(0), 10: process(1), 11: process(10), 12: process(11), 20: process(1)}
    assert measures.families(known, [10, 20, 99]) == {10: [10, 11, 12], 20: [20], 99: []}


def test_a_container_that_a_shim_below_another_runs_counts_once() -> None:
    known = {10: process(1), 11: process(10), 12: process(11)}
    assert measures.families(known, [10, 11]) == {10: [10], 11: [11, 12]}


def test_processes_without_a_group() -> None:
    measure = measures.of_processes([process(1, ticks=3, pages=2), process(1, ticks=4, pages=1)])
    assert measure == Measure(7 * TICK, Memory(3 * PAGE_SIZE, 3 * PAGE_SIZE, 3 * PAGE_SIZE), 2)


def test_this_machine_s_processes_are_read() -> None:
    own = measures.processes()[os.getpid()]
    assert own.parent == os.getppid()
    assert own.pages > 0 and own.ticks > 0


PLAIN = Measure(5, Memory(100, 100, 100, 1, 0), 3)


def write(directory: Path, **files: str) -> Path:
    directory.mkdir()
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_a_group_of_version_2(tmp_path: Path) -> None:
    group = write(
        tmp_path / "g",
        cpu__stat="usage_usec 1500\nuser_usec 1000\n",
        memory__current="5000\n",
        memory__stat="anon 3000\ninactive_file 1200\npgfault 9\npgmajfault 2\n",
    )
    assert measures.of_groups([group], PLAIN) == Measure(
        1_500_000, Memory(5000, 3800, 3000, 9, 2), 3
    )


def test_groups_of_version_1(tmp_path: Path) -> None:
    memory = write(
        tmp_path / "memory",
        memory__usage_in_bytes="5000\n",
        memory__stat="total_rss 3000\ntotal_inactive_file 1200\ntotal_pgfault 9\n",
    )
    cpu = write(tmp_path / "cpu", cpuacct__usage="77\n")
    assert measures.of_groups([memory, cpu], PLAIN) == Measure(
        77, Memory(5000, 3800, 3000, 9, 0), 3
    )


def test_a_group_that_has_gone_leaves_the_processes_numbers(tmp_path: Path) -> None:
    assert measures.of_groups([tmp_path / "gone"], PLAIN) == PLAIN


def test_the_machine(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write(
        proc,
        stat="cpu  100 20 30 999 888 4 5 6 0 0\ncpu0 1 1\n",
        meminfo="MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 600 kB\nAnonPages: 300 kB\n",
        vmstat="pgfault 70\npgmajfault 8\n",
    )
    (proc / "41").mkdir()
    kib = 1024
    assert measures.of_machine(proc) == Measure(
        165 * TICK, Memory(800 * kib, 400 * kib, 300 * kib, 70, 8), 1
    )


def test_pressure(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    text = "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\n"
    (tmp_path / "pressure" / "cpu").write_text(text)
    assert measures.pressure(tmp_path) == {"cpu": {"some": (1.5, 0.2, 0.0, 12345)}}


def test_counters_never_go_back() -> None:
    counter = Counter(10.0, 5_000)
    counter.count(12.0, 9_000)
    assert (counter.cpu, counter.rate) == (9_000, 2_000)
    counter.count(14.0, 8_000)
    assert (counter.cpu, counter.rate) == (9_000, 0)


async def test_of_several_nodes_each_uses_what_its_own_pods_use(tmp_path: Path) -> None:
    now = 1000.0
    sizes = {"n1": NodeSize(0.5, 4096), "n2": NodeSize(2, 4096)}
    sampler = UsageSampler(tmp_path, lambda: sizes, lambda: (), lambda: None, lambda: now)
    pods = [RunningPod("default", name, name, name, 0.0, False, (), ()) for name in sizes]

    async def uses(n1: int, n2: int) -> list[Use]:
        """After its pod on each node has used so many seconds."""
        sampler._ended |= {"n1": n1 * 10**9, "n2": n2 * 10**9}
        sampler._measure(pods, sizes)
        return [(await sampler.snapshot(name)).node.use for name in sizes]

    first = await uses(n1=8, n2=0)
    assert [use.cpu for use in first] == [8 * 10**9, 0]
    now += 10
    n1, n2 = await uses(n1=18, n2=1)
    # n1 has half a core, so it cannot use more, whatever its pod took of the machine
    assert (n1.cpu, n1.rate) == (13 * 10**9, 500_000_000)
    assert (n2.cpu, n2.rate) == (1 * 10**9, 100_000_000)
    node = (await sampler.snapshot("n2")).node
    assert (node.cores, node.memory_total, node.memory_available) == (2, 4096, 4096)


class Held(dict[str, NodeSize]):
    """Nodes that a measurement gets to see only when it may."""

    def __init__(self, sizes: dict[str, NodeSize]) -> None:
        super().__init__(sizes)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def items(self) -> ItemsView[str, NodeSize]:
        self.reached.set()
        assert self.go_on.wait(PATIENCE)
        return super().items()


async def test_a_measurement_is_seen_when_it_is_whole(tmp_path: Path) -> None:
    now = 1000.0
    sizes = {"n1": NodeSize(2, 4096), "n2": NodeSize(2, 4096)}
    sampler = UsageSampler(tmp_path, lambda: sizes, lambda: (), lambda: None, lambda: now)
    await sampler.measure()
    before = await sampler.snapshot("n1")
    now += 0.5
    held = Held(sizes)
    measuring = asyncio.create_task(asyncio.to_thread(sampler._measure, [], held))
    assert await asyncio.to_thread(held.reached.wait, PATIENCE)
    during = await sampler.snapshot("n1")
    held.go_on.set()
    await measuring
    assert during.node.use == before.node.use
    assert (await sampler.snapshot("n1")).node.use.at == now


# --------------------------------------------------------------------------------------- how it is told

USE = Use(1000.5, 2_500_000_000, 400, Memory(900, 700, 500, 6, 1), 2)
NODE = NodeUsage("n1", 100.0, USE, Disk(50, 100, 40, 10, 4), (), (0, 0), 2, 4096, 3000, 32768, {})
POD = PodUsage(
    "default", "web", "u-1", 900.0, USE,
    [ContainerUsage("c", "nginx", 0, 901.0, USE, 1000, 7, 3)],
    volumes={"cache": 11},
)  # fmt: skip


def series(text: bytes) -> dict[tuple[str, ...], Sample]:
    return {
        (sample.name, *sample.labels.values()): sample
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_metrics_server_reads_counters_with_their_moments() -> None:
    found = series(resource(Snapshot(NODE, [POD])))
    own = ("default", "web")
    assert found["container_cpu_usage_seconds_total", "c", *own].value == 2.5
    assert found["container_cpu_usage_seconds_total", "c", *own].timestamp == 1000.5
    assert found["container_memory_working_set_bytes", "c", *own].value == 700
    assert found["container_start_time_seconds", "c", *own].value == 901
    assert found["pod_memory_working_set_bytes", *own].value == 700
    assert found["node_cpu_usage_seconds_total",].value == 2.5


def test_the_summary() -> None:
    (pod,) = summary(Snapshot(NODE, [POD]))["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": "u-1"}
    assert pod["cpu"] == {
        "time": "1970-01-01T00:16:40Z",
        "usageCoreNanoSeconds": 2_500_000_000,
        "usageNanoCores": 400,
    }
    (container,) = pod["containers"]
    assert container["memory"]["availableBytes"] == 300
    assert pod["ephemeral-storage"]["usedBytes"] == 21
    short = summary(Snapshot(NODE, [POD]), only_cpu_and_memory=True)
    assert set(short["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory"}


# ------------------------------------------------------------------------------------------- live


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("usage")) as made:
        yield made


HELD = 64 << 20
BURN = f"held = bytearray({HELD})\nwhile True: pass"


async def ask(live: Cluster, path: str) -> bytes:
    answer = await live.client.request("GET", f"/api/v1/nodes/{NODE_NAME}/proxy/{path}")
    return answer.body


async def usage_of(live: Cluster, name: str) -> Json | None:
    found = json.loads(await ask(live, "stats/summary"))
    return next((pod for pod in found["pods"] if pod["podRef"]["name"] == name), None)


async def until(live: Cluster, name: str, seen: Callable[[Json], bool]) -> Json:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await usage_of(live, name)
        if found is not None and seen(found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.2)


def spent(pod: Json) -> float:
    """Seconds of processor time."""
    return float(pod["cpu"]["usageCoreNanoSeconds"]) / 1e9


@pytest.mark.asyncio(loop_scope="module")
async def test_a_pod_that_burns_is_seen_to(live: Cluster) -> None:
    await live.create("burner", "python3", "-c", BURN)
    await live.create("sleeper", "sleep", "600")
    first = await until(live, "burner", lambda pod: pod["memory"]["workingSetBytes"] > HELD)
    second = await until(live, "burner", lambda pod: spent(pod) > spent(first) + 0.2)
    assert instant(second["cpu"]["time"]) >= instant(first["cpu"]["time"])
    assert second["cpu"]["usageNanoCores"] > 0
    idle = await until(live, "sleeper", lambda pod: pod["containers"] != [])
    assert spent(idle) < spent(second)
    assert idle["memory"]["workingSetBytes"] < HELD

    metrics = series(await ask(live, "metrics/resource"))
    assert metrics["container_cpu_usage_seconds_total", "c", "default", "burner"].value > 0.2
    detailed = series(await ask(live, "metrics/cadvisor"))
    assert any(
        key[0] == "container_memory_rss" and "burner" in key and sample.value > HELD
        for key, sample in detailed.items()
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_the_kubelet_tells_of_itself_and_of_its_probes(live: Cluster) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    await live.create("probed", "sleep", "600", c={"readinessProbe": probe})
    bad = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    await live.create("failing", "sleep", "600", c={"readinessProbe": bad})

    async def attempts(name: str, result: str) -> float:
        found = await ask(live, "metrics/probes")
        return sum(
            sample.value
            for family in text_string_to_metric_families(found.decode())
            for sample in family.samples
            if sample.labels["pod"] == name and sample.labels["result"] == result
        )

    deadline = time.monotonic() + PATIENCE
    while not (await attempts("probed", "successful") and await attempts("failing", "failed")):
        assert time.monotonic() < deadline, await ask(live, "metrics/probes")
        await asyncio.sleep(0.1)
    assert await attempts("failing", "successful") == await attempts("probed", "failed") == 0

    own = series(await ask(live, "metrics"))
    assert own["kubelet_node_name", NODE_NAME].value == 1
    pods = (await live.client.list(core.POD, "default")).items
    assert own["kubelet_running_pods",].value == own["kubelet_running_containers", "running"].value
    assert (
        own["kubelet_desired_pods", "false"].value
        == len(pods)
        >= own["kubelet_running_pods",].value
    )
    assert own["process_resident_memory_bytes",].value > 1 << 20
    assert ("kubernetes_build_info", KUBELET_VERSION) in own
