"""What each handler writes for a pod: the tables of the reference (agent 6), on both versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.agent.cgroups import (
    CPU_BURST,
    CPU_IDLE,
    CPU_QOS,
    CPU_QUOTA,
    CPU_SHARE,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    MEMORY_LOW,
    MEMORY_MIN,
    MEMORY_QOS,
    MEMORY_SOFT,
    PROCESSES,
    CgroupError,
    Driver,
    File,
    Version,
    Write,
)
from hekla.agent.features import Feature
from hekla.agent.handlers import (
    cpu_burst,
    cpu_qos,
    cpu_throttle,
    memory_protection,
    memory_qos,
    memory_qos_v2,
    resources,
)
from hekla.agent.handlers.memory_qos_v2 import AnnotationError, Ratios, ratios_of
from hekla.agent.handlers.table import HANDLERS
from hekla.agent.pods import Pod, qos_level
from hekla.api.trees import Json
from tests.agent.trees import Trees, batch, pod

BURST, TIME = "volcano.sh/enable-quota-burst", "volcano.sh/quota-burst-time"
GIB = 1 << 30


def values(trees: Trees, pod: Pod, writes: Any) -> dict[tuple[str, str], str]:
    """Writes as {(container or "pod", name of the file): value}."""
    directories = {
        trees.cgroups.container(pod, each.name): each.name for each in pod.spec.containers
    }
    directories[trees.cgroups.pod(pod)] = "pod"
    found = {}
    for write in writes:
        parent = str(write.path.parent)
        where = next(name for end, name in directories.items() if parent.endswith(end))
        assert (where, write.path.name) not in found, "each file once"
        found[where, write.path.name] = write.value
    return found


@pytest.mark.parametrize(
    ("text", "level"),
    [("LC", 2), ("HLS", 2), ("LS", 1), ("BE", -1), ("", 0), ("be", 0), ("Other", 0)],
)
def test_levels(text: str, level: int) -> None:
    assert qos_level(pod(level=text)) == level


# Resources


def of_resources(trees: Trees, *containers: Json, level: str = "BE") -> dict[tuple[str, str], str]:
    each = pod(containers=list(containers), level=level)
    return values(trees, each, resources.writes(each, trees.context()))


@pytest.mark.scenario("agent", "2")
@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([batch(500, 2000, GIB)],
         {("c0", "cpu.weight"): "50", ("c0", "cpu.max"): "200000 100000", ("c0", "memory.max"): str(GIB),
          ("pod", "cpu.weight"): "50", ("pod", "cpu.max"): "200000 100000", ("pod", "memory.max"): str(GIB)}),
        ([batch(500, 500), batch(1000, 2000)],
         {("c0", "cpu.weight"): "50", ("c0", "cpu.max"): "50000 100000",
          ("c1", "cpu.weight"): "100", ("c1", "cpu.max"): "200000 100000",
          ("pod", "cpu.weight"): "150", ("pod", "cpu.max"): "250000 100000"}),
        ([batch(500, 500), batch(1000)],
         {("c0", "cpu.weight"): "50", ("c0", "cpu.max"): "50000 100000", ("c1", "cpu.weight"): "100",
          ("pod", "cpu.weight"): "150"}),
        ([batch(500, 500), batch(None, 0, 0)],
         {("c0", "cpu.weight"): "50", ("c0", "cpu.max"): "50000 100000",
          ("c1", "cpu.max"): "max 100000", ("c1", "memory.max"): "max",
          ("pod", "cpu.weight"): "50", ("pod", "cpu.max"): "50000 100000"}),
        ([batch(None, 0, 0)],
         {("c0", "cpu.max"): "max 100000", ("c0", "memory.max"): "max",
          ("pod", "cpu.weight"): "100", ("pod", "cpu.max"): "max 100000", ("pod", "memory.max"): "max"}),
        ([batch(5, 5), batch(200_000)],
         {("c0", "cpu.weight"): "1", ("c0", "cpu.max"): "1000 100000", ("c1", "cpu.weight"): "10000", ("pod", "cpu.weight"): "10001"}),
        ([{"requests": {"cpu": "1"}}], {}),
    ],
)  # fmt: skip
def test_batch_resources_on_v2(
    v2: Trees, containers: list[Json], expected: dict[tuple[str, str], str]
) -> None:
    assert of_resources(v2, *containers) == expected


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([batch(500, 2000, GIB)],
         {("c0", "cpu.shares"): "512", ("c0", "cpu.cfs_quota_us"): "200000", ("c0", "memory.limit_in_bytes"): str(GIB),
          ("pod", "cpu.shares"): "512", ("pod", "cpu.cfs_quota_us"): "200000", ("pod", "memory.limit_in_bytes"): str(GIB)}),
        ([batch(500), batch(1000)], {("c0", "cpu.shares"): "512", ("c1", "cpu.shares"): "1024", ("pod", "cpu.shares"): "1536"}),
        ([batch(500, 500), batch(None, 0, 0)],
         {("c0", "cpu.shares"): "512", ("c0", "cpu.cfs_quota_us"): "50000", ("pod", "cpu.shares"): "512"}),
        ([batch(None, None, GIB)],
         {("c0", "memory.limit_in_bytes"): str(GIB), ("pod", "cpu.shares"): "2", ("pod", "memory.limit_in_bytes"): str(GIB)}),
        ([batch(None, 0, 0)], {}),
        ([batch(1, 1)], {("c0", "cpu.shares"): "2", ("c0", "cpu.cfs_quota_us"): "1000",
                         ("pod", "cpu.shares"): "2", ("pod", "cpu.cfs_quota_us"): "1000"}),
    ],
)  # fmt: skip
def test_batch_resources_on_v1(
    v1: Trees, containers: list[Json], expected: dict[tuple[str, str], str]
) -> None:
    assert of_resources(v1, *containers) == expected


def test_batch_resources_are_not_for_the_latency_critical(v2: Trees) -> None:
    assert (
        of_resources(v2, batch(500), level="LC") == of_resources(v2, batch(500), level="HLS") == {}
    )
    assert ("pod", "cpu.weight") in of_resources(v2, batch(500), level="LS")


def test_batch_resources_may_have_other_names(v2: Trees) -> None:
    each = pod(containers=[{"requests": {"example.com/cpu": "500"}}])
    found = resources.writes(each, v2.context(batch_cpu="example.com/cpu"))
    assert values(v2, each, found)["c0", "cpu.weight"] == "50"


# CPUQoS


def test_the_kernel_that_knows_levels_gets_them(v2: Trees) -> None:
    for name, level in (("LC", "2"), ("LS", "1"), ("", "0"), ("BE", "-1")):
        each = v2.add(pod(name=f"p{level}", level=name))
        for directory in (v2.cgroups.pod(each), v2.cgroups.container(each, "c0")):
            v2.put(directory, CPU_QOS, "0")
        found = list(cpu_qos.writes(each, v2.context(active=frozenset({Feature.CPU_QOS}))))
        assert values(v2, each, found) == {
            ("pod", "cpu.qos_level"): level,
            ("c0", "cpu.qos_level"): level,
        }
        v2.cgroups.apply(found)
        v2.cgroups.apply(cpu_qos.undo(each, v2.context()))
        assert v2.says(v2.cgroups.pod(each), CPU_QOS) == "0"


@pytest.mark.parametrize("idles", [True, False])
@pytest.mark.parametrize(
    ("level", "factor"), [("LC", 4), ("HLS", 4), ("LS", 2), ("", 1), ("BE", None)]
)
def test_other_kernels_get_weights(v2: Trees, level: str, factor: int | None, idles: bool) -> None:
    each = v2.add(pod(level=level), without=() if idles else ("cpu.idle",))
    directory = v2.cgroups.pod(each)
    v2.put(directory, CPU_SHARE, "39")
    context = v2.context(active=frozenset({Feature.CPU_QOS}))
    v2.cgroups.apply(cpu_qos.writes(each, context))
    if factor is None and idles:
        assert (v2.says(directory, CPU_IDLE), v2.says(directory, CPU_SHARE)) == ("1", "39")
    else:
        assert v2.says(directory, CPU_SHARE) == str(39 * factor if factor else 1)
    assert v2.cgroups.apply(cpu_qos.writes(each, context)) == 0, "once more"
    v2.cgroups.apply(cpu_qos.undo(each, context))
    assert v2.says(directory, CPU_SHARE) == "39"
    assert not idles or v2.says(directory, CPU_IDLE) == "0"


def test_a_pod_that_changes_its_level_changes_its_rank(v2: Trees) -> None:
    context = v2.context(active=frozenset({Feature.CPU_QOS}))
    each = v2.add(pod(level="BE"))
    directory = v2.cgroups.pod(each)
    v2.put(directory, CPU_SHARE, "39")
    for level, expected in (("BE", ("1", "39")), ("LS", ("0", "78")), ("", ("0", "39"))):
        v2.cgroups.apply(cpu_qos.writes(pod(level=level), context))
        assert (v2.says(directory, CPU_IDLE), v2.says(directory, CPU_SHARE)) == expected
    assert not v2.cgroups.apply(cpu_qos.writes(pod(), context))
    assert context.originals.get(v2.cgroups.path(directory, CPU_SHARE)) is None


def test_a_share_that_somebody_else_sets_meanwhile_is_the_one_to_rank(v2: Trees) -> None:
    context = v2.context(active=frozenset({Feature.CPU_QOS}))
    each = v2.add(pod(level="LS"))
    directory = v2.cgroups.pod(each)
    for stated, expected in (("39", "78"), ("50", "100")):  # the kubelet has resized the pod
        v2.put(directory, CPU_SHARE, stated)
        v2.cgroups.apply(cpu_qos.writes(each, context))
        assert v2.says(directory, CPU_SHARE) == expected
    v2.cgroups.apply(cpu_qos.undo(each, context))
    assert v2.says(directory, CPU_SHARE) == "50"


def test_the_share_of_a_ranked_pod_is_written_by_one_handler(v2: Trees) -> None:
    """The kernel refuses a share of an idle directory."""
    context = v2.context(active=frozenset({Feature.CPU_QOS}))
    for level, expected in (
        ("BE", {("pod", "cpu.idle"): "1"}),
        ("LS", {("pod", "cpu.weight"): "100"}),
    ):
        each = v2.add(pod(level=level, containers=[batch(500)]))
        both = [*cpu_qos.writes(each, context), *resources.writes(each, context)]
        assert values(v2, each, both) == {("c0", "cpu.weight"): "50", **expected}


def test_an_idle_pod_of_which_nothing_is_known_gets_what_a_kubelet_gives(
    v1: Trees, v2: Trees
) -> None:
    requests = [{"requests": {"cpu": "500m"}}, {"requests": {"cpu": "1"}}]
    for trees, expected in ((v1, "1536"), (v2, "59")):
        for containers, share in ((requests, expected), ([batch(1000)], None)):
            each = trees.add(pod(level="BE", qos_class="Burstable", containers=containers))
            directory = trees.cgroups.pod(each)
            trees.put(directory, CPU_IDLE, "1")
            trees.cgroups.apply(cpu_qos.undo(each, trees.context()))
            now = (trees.says(directory, CPU_IDLE), trees.says(directory, CPU_SHARE))
            assert now == ("0", share or str(trees.cgroups.share(1000)))


def test_a_pod_without_a_rank_is_left_alone(v2: Trees) -> None:
    each = v2.add(pod(level="LC"))
    v2.put(v2.cgroups.pod(each), CPU_SHARE, "4000")
    assert list(cpu_qos.undo(each, v2.context())) == []


# CPUBurst


@pytest.mark.scenario("agent", "7")
@pytest.mark.parametrize(
    ("quotas", "time", "expected"),
    [
        ((100_000, 200_000), None, (100_000, 200_000, 300_000)),
        ((100_000, 200_000), "much", (100_000, 200_000, 300_000)),
        ((100_000, 200_000), "1_0", (100_000, 200_000, 300_000)),
        ((100_000, 200_000), "-5", (100_000, 200_000, 300_000)),
        ((100_000, 200_000), "50000", (50_000, 50_000, 100_000)),
        ((100_000, 200_000), "100000", (100_000, 100_000, 200_000)),
        ((100_000, 200_000), "200000", (100_000, 200_000, 300_000)),
        ((-1, 200_000), None, (None, 200_000, 200_000)),
    ],
)
def test_bursts(
    v1: Trees,
    v2: Trees,
    quotas: tuple[int, int],
    time: str | None,
    expected: tuple[int | None, ...],
) -> None:
    for trees in (v1, v2):
        marks = {BURST: "true"} | ({TIME: time} if time else {})
        each = trees.add(pod(containers=[{}, {}], annotations=marks))
        for name, quota in (("c0", quotas[0]), ("c1", quotas[1]), ("", 300_000)):
            directory = trees.cgroups.container(each, name)
            trees.put(directory, CPU_QUOTA, trees.cgroups.quota_text(quota))
        found = values(trees, each, cpu_burst.writes(each, trees.context()))
        file = trees.cgroups.path("", CPU_BURST).name
        assert found == {
            (where, file): str(burst)
            for where, burst in zip(("c0", "c1", "pod"), expected, strict=True)
            if burst is not None
        }


@pytest.mark.parametrize("marks", [{}, {BURST: "yes"}, {BURST: "false"}])
def test_a_pod_that_does_not_ask_for_bursts_has_none(v2: Trees, marks: dict[str, str]) -> None:
    assert not list(cpu_burst.writes(v2.add(pod(annotations=marks)), v2.context()))


def test_a_pod_without_a_quota_has_no_burst_of_its_own(v2: Trees) -> None:
    each = v2.add(pod(annotations={BURST: "true"}))
    v2.put(v2.cgroups.container(each, "c0"), CPU_QUOTA, "100000 100000")
    found = values(v2, each, cpu_burst.writes(each, v2.context()))
    assert found == {("c0", "cpu.max.burst"): "100000"}


def test_a_quota_that_is_not_there_is_an_error(v2: Trees) -> None:
    each = v2.add(pod(annotations={BURST: "true"}), without=("cpu.max",))
    with pytest.raises(CgroupError, match=r"cpu\.max is not there"):
        list(cpu_burst.writes(each, v2.context()))


# CPUThrottle


@pytest.mark.parametrize(
    ("milli", "old", "new"),
    [
        (600, "60000", "60000 100000"),
        (0, "1000", "1000 100000"),
        (9, "1000", "1000 100000"),
        (-1, "-1", "max"),
    ],
)
def test_the_quota_of_best_effort_pods(
    v1: Trees, v2: Trees, milli: int, old: str, new: str
) -> None:
    for trees, expected in ((v1, old), (v2, new)):
        path = trees.cgroups.path(trees.cgroups.qos_root("BestEffort"), CPU_QUOTA)
        assert list(cpu_throttle.writes(milli, trees.context())) == [
            Write(path, expected, required=True)
        ]


def test_v1_wants_room_below_a_quota(v1: Trees) -> None:
    each = v1.add(pod(containers=[batch(None, 2000), batch(None, 300)]))
    v1.cgroups.apply(resources.writes(each, v1.context()))
    v1.put(v1.cgroups.container(each, "c0"), CPU_BURST, "200000")
    v1.cgroups.apply(found := list(cpu_throttle.writes(500, v1.context())))
    assert [(one.path.parent.name, one.path.name, one.value) for one in found] == [
        ("p-0", "cpu.cfs_burst_us", "50000"),
        ("p-0", "cpu.cfs_quota_us", "50000"),
        ("poduid-of-p", "cpu.cfs_burst_us", "0"),
        ("poduid-of-p", "cpu.cfs_quota_us", "50000"),
        ("besteffort", "cpu.cfs_quota_us", "50000"),
    ]
    assert not v1.cgroups.apply(resources.writes(each, v1.context())), "they stay below it"
    v1.cgroups.apply(cpu_throttle.writes(-1, v1.context()))
    v1.cgroups.apply(resources.writes(each, v1.context()))
    assert v1.says(v1.cgroups.container(each, "c0"), CPU_QUOTA) == "200000"


# MemoryQoS


def test_the_kernel_that_knows_levels_of_memory_gets_two(v1: Trees) -> None:
    for name, level in (("LC", "0"), ("LS", "0"), ("", "0"), ("BE", "-1")):
        each = v1.add(pod(level=name))
        for directory in (v1.cgroups.pod(each), v1.cgroups.container(each, "c0")):
            v1.put(directory, MEMORY_QOS, "5")
        assert values(v1, each, memory_qos.writes(each, v1.context())) == {
            ("pod", "memory.qos_level"): level,
            ("c0", "memory.qos_level"): level,
        }


@pytest.mark.parametrize(
    ("level", "containers", "high"),
    [
        ("BE", [batch(None, None, 1000), batch(None, None, 500)], "1350"),
        ("BE", [batch(None, None, 1000), batch()], "max"),
        ("LS", [batch(None, None, 1000)], "max"),
    ],
)
def test_memory_on_other_kernels_of_v2(
    v2: Trees, level: str, containers: list[Json], high: str
) -> None:
    each = v2.add(pod(level=level, containers=containers))
    found = values(v2, each, memory_qos.writes(each, v2.context()))
    assert found == {("pod", "memory.high"): high}


@pytest.mark.parametrize(("level", "soft"), [("BE", "0"), ("LS", "-1")])
def test_memory_on_other_kernels_of_v1(v1: Trees, level: str, soft: str) -> None:
    each = v1.add(pod(level=level))
    found = list(memory_qos.writes(each, v1.context()))
    assert found == [Write(v1.cgroups.path(v1.cgroups.pod(each), MEMORY_SOFT), soft, off="-1")]


def test_offline_pods_with_requests_are_the_first_to_go(v2: Trees, tmp_path: Path) -> None:
    each = v2.add(
        pod(level="BE", qos_class="Burstable", containers=[{"requests": {"memory": "1Gi"}}])
    )
    v2.put(v2.cgroups.container(each, "c0"), PROCESSES, "0\n17\n")
    (tmp_path / "17").mkdir()
    score = tmp_path / "17" / "oom_score_adj"
    score.write_text("938\n")
    context = v2.context(proc=tmp_path, memory=16 * GIB)
    v2.cgroups.apply(memory_qos.writes(each, context))
    assert score.read_text() == "1000"
    memory = next(one for one in HANDLERS if one.writes is memory_qos.writes)
    v2.cgroups.apply(memory.undo(each, context))
    assert score.read_text() == "938"


# MemoryQoSV2


def of_ratios(trees: Trees, config: str, *containers: Json, level: str = "") -> dict[Any, str]:
    each = pod(
        level=level,
        containers=list(containers),
        annotations={"volcano.sh/colocation-config": config} if config else {},
    )
    return values(trees, each, memory_qos_v2.writes(each, trees.context()))


def three(high: object, low: object, least: object) -> dict[tuple[str, str], str]:
    names: tuple[File, ...] = (MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN)
    pairs = zip(names, (high, low, least), strict=True)
    return {("c0", file.v2): str(value) for file, value in pairs}


NATIVE = {"limits": {"memory": "1Gi"}, "requests": {"memory": "512Mi"}}
OFFERED = {"limits": {"kubernetes.io/batch-memory": "1000"}, "requests": {"memory": "10"}}


@pytest.mark.scenario("agent", "6")
@pytest.mark.parametrize(
    ("config", "container", "expected"),
    [
        ('{"memoryQos":{"highRatio":80,"lowRatio":50,"minRatio":20}}', NATIVE, three(858993459, 268435456, 107374182)),
        ("{}", NATIVE, three("max", 0, 0)),
        ('{"memoryQos":{"highRatio":100,"lowRatio":50}}', NATIVE, three("max", 268435456, 0)),
        ('{"memoryQos":{"lowRatio":50}}', NATIVE, three("max", 268435456, 0)),
        ('{"memoryQos":{"highRatio":0}}', NATIVE, three("max", 0, 0)),
        ('{"memoryQos":{"highRatio":80,"lowRatio":50}}', {}, three("max", 0, 0)),
        ('{"memoryQos":{"highRatio":80,"lowRatio":50}}', OFFERED, three(800, 5, 0)),
    ],
)  # fmt: skip
def test_ratios(v2: Trees, config: str, container: Json, expected: dict[Any, str]) -> None:
    assert of_ratios(v2, config, container) == expected


def test_ratios_of_batch_memory_are_not_for_the_latency_critical(v2: Trees) -> None:
    config = '{"memoryQos":{"highRatio":80}}'
    assert of_ratios(v2, config, OFFERED, level="LC") == three("max", 0, 0)


def test_ratios_need_an_annotation_and_v2(v1: Trees, v2: Trees) -> None:
    assert of_ratios(v2, "", NATIVE) == {}
    assert of_ratios(v1, '{"memoryQos":{"highRatio":80}}', NATIVE) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "volcano.sh/colocation-config is no JSON: Expecting property name"),
        ("[]", r"volcano.sh/colocation-config: \[\] is no object of memoryQos"),
        ('{"memoryQos":3}', "is no object of memoryQos"),
        ('{"memoryQos":{"highRatio":-1}}', "memoryQos.highRatio is -1, and must be a whole number from 0 to 100"),
        ('{"memoryQos":{"lowRatio":"5"}}', 'memoryQos.lowRatio is "5", and must be'),
    ],
)  # fmt: skip
def test_an_annotation_that_cannot_be_used_is_said(text: str, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        ratios_of(text)
    assert ratios_of(json.dumps({"memoryQos": None})) == Ratios()


@pytest.mark.parametrize("driver", list(Driver))
@pytest.mark.parametrize("version", list(Version))
def test_applied_twice_and_undone_nothing_is_left(
    version: Version, driver: Driver, tmp_path: Path
) -> None:
    """All handlers together, on a pod that uses all of them."""
    trees = Trees(tmp_path, version, driver)
    marks = {BURST: "true", "volcano.sh/colocation-config": '{"memoryQos":{"highRatio":80}}'}
    each = trees.add(pod(level="BE", containers=[batch(500, 2000, GIB)], annotations=marks))
    context = trees.context(active=frozenset({Feature.CPU_QOS}))
    before = {path: path.read_text() for path in trees.cgroups.root.rglob("*.*") if path.is_file()}

    def run() -> int:
        return sum(trees.cgroups.apply(list(one.writes(each, context))) for one in HANDLERS)

    assert run() > 8
    assert run() == 0
    for one in HANDLERS:
        trees.cgroups.apply(list(one.undo(each, trees.context(originals=context.originals))))
    changed = {
        path.name for path, text in before.items() if path.read_text().strip() != text.strip()
    }
    stays = {trees.cgroups.path("", file).name for file in (CPU_SHARE, CPU_QUOTA, MEMORY_LIMIT)}
    assert changed - {"memory.soft_limit_in_bytes"} == stays, "limits of batch resources stay"
    if version is Version.V1:
        assert trees.says(trees.cgroups.pod(each), MEMORY_SOFT) == "-1"
    assert trees.says(trees.cgroups.container(each, "c0"), MEMORY_LIMIT) == str(GIB)


# what directories of several pods protect

CALM = {"volcano.sh/colocation-config": '{"memoryQos":{"lowRatio":50,"minRatio":20}}'}
REQUESTS = [{"requests": {"memory": "1M"}}] * 2


def protections(trees: Trees, *pods: Pod) -> dict[str, tuple[str, str]]:
    """Directory (by its last element) -> memory.low and memory.min."""
    found = {}
    for directory in [
        *(trees.cgroups.qos_root(one) for one in ("", "BestEffort", "Burstable")),
        *map(trees.cgroups.pod, pods),
    ]:
        texts = (trees.says(directory, MEMORY_LOW), trees.says(directory, MEMORY_MIN))
        if texts != ("0", "0"):
            found[directory.rpartition("/")[2]] = texts
    return found


def test_a_protection_reaches_up_to_all_pods(v2: Trees) -> None:
    ratios = frozenset({Feature.MEMORY_QOS_V2})
    both = ratios | {Feature.MEMORY_QOS}
    one, other, offline = (
        v2.add(pod("one", qos_class="Burstable", containers=REQUESTS, annotations=CALM)),
        v2.add(pod("other", qos_class="Guaranteed", containers=REQUESTS)),
        v2.add(pod("offline", qos_class="Burstable", containers=REQUESTS, level="BE")),
    )
    everybody = (one, other, offline)
    originals = v2.context().originals

    def write(*pods: Pod, active: frozenset[Feature]) -> dict[str, tuple[str, str]]:
        context = v2.context(active=active, originals=originals)
        v2.cgroups.apply(memory_protection.writes(pods, context))
        return protections(v2, *pods)

    assert write(*everybody, active=ratios) == {
        "kubepods": ("1000000", "400000"),
        "burstable": ("1000000", "400000"),
        "poduid-of-one": ("1000000", "400000"),
    }
    assert write(*everybody, active=both) == {
        "kubepods": ("4000000", "400000"),
        "burstable": ("2000000", "400000"),
        "poduid-of-one": ("2000000", "400000"),
        "poduid-of-other": ("2000000", "0"),
    }
    assert write(active=both) == {}, "all pods have gone"
    assert write(*everybody, active=frozenset()) == {}


def test_what_somebody_else_protects_stays(v2: Trees) -> None:
    each = v2.add(pod("one", qos_class="Burstable", containers=REQUESTS, annotations=CALM))
    root = v2.cgroups.qos_root("Burstable")
    v2.put(root, MEMORY_MIN, "5000000")
    v2.put(root, MEMORY_LOW, "500000")
    context = v2.context(active=frozenset({Feature.MEMORY_QOS_V2}))
    v2.cgroups.apply(memory_protection.writes([each], context))
    assert protections(v2)["burstable"] == ("1000000", "5000000")
    v2.cgroups.apply(memory_protection.writes([each], v2.context(originals=context.originals)))
    assert protections(v2) == {"burstable": ("500000", "5000000")}


def test_v1_protects_nothing(v1: Trees) -> None:
    context = v1.context(active=frozenset(Feature))
    assert not list(memory_protection.writes([v1.add(pod(annotations=CALM))], context))
