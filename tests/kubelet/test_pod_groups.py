"""The tree of control groups that a kubelet makes: where it is, what is written into it, and that it
is there for whoever looks for a pod's group."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hekla.api import meta
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.local.kubelet.records import container_digest
from hekla.local.kubelet.runtime import cgroups, pod_groups
from hekla.local.kubelet.runtime.cgroups import Base
from hekla.local.kubelet.runtime.pod_groups import PodGroups, Values, of_container, of_pod
from tests.kubelet.live_cluster import POD, Cluster, cluster, container

GIB = 1 << 30


def pod(qos: str, *containers: Json, uid: str = "u", **spec: Any) -> core.Pod:
    return core.Pod(
        metadata=meta.ObjectMeta(name="p", uid=uid),
        spec=core.PodSpec(
            containers=[sized(f"c{at}", one) for at, one in enumerate(containers)], **spec
        ),
        status=core.PodStatus(qos_class=qos),
    )


def sized(name: str, resources: Json, **more: Any) -> core.Container:
    return core.Container(name=name, resources=core.ResourceRequirements(**resources), **more)


@pytest.mark.parametrize(("resources", "values"), [
    ({}, Values(2)),
    ({"limits": {"memory": "64Mi", "cpu": "500m"}}, Values(512, 50000, 64 << 20)),
    ({"requests": {"cpu": "1"}}, Values(1024)),
    ({"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}, Values(102, 200000)),
    ({"limits": {"cpu": "1m"}}, Values(2, 1000)),
    ({"requests": {"cpu": "300"}}, Values(262144)),
])  # fmt: skip
def test_requests_become_shares_and_limits_bounds(resources: Json, values: Values) -> None:
    assert of_container(sized("c", resources)) == values


def test_values_have_the_files_of_their_version() -> None:
    limited, free = Values(1024, 50000, GIB), Values(2)
    assert limited.files(1) == {
        "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
        "memory": {"memory.limit_in_bytes": str(GIB)},
    }
    assert limited.files(2) == {
        "cpu": {"cpu.weight": "39", "cpu.max": "50000 100000"},
        "memory": {"memory.max": str(GIB)},
    }
    assert free.files(1) == {"cpu": {"cpu.shares": "2"}, "memory": {}}
    assert free.files(2) == {"cpu": {"cpu.weight": "1", "cpu.max": "max 100000"}, "memory": {}}


def test_a_pod_is_bound_only_where_all_its_containers_are() -> None:
    one, other = (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        {"limits": {"cpu": "1"}},
    )
    assert of_pod(pod("Burstable", one, other)) == Values(512, 200000)
    assert of_pod(pod("Burstable", one, one)) == Values(1024, 200000, 2 * GIB)
    assert of_pod(pod("BestEffort", {})) == Values(2)
    larger = sized("init", {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "3"}})
    assert of_pod(pod("Burstable", one, init_containers=[larger])) == Values(3072, 400000, GIB)


@pytest.mark.parametrize(("qos", "resources", "priority", "score"), [
    ("BestEffort", {}, None, 1000),
    ("Guaranteed", {"requests": {"memory": "1Gi"}}, None, -997),
    ("BestEffort", {}, 2_000_000_000, -997),
    ("Burstable", {"requests": {"memory": "1Gi"}}, None, 750),
    ("Burstable", {"requests": {"cpu": "1"}}, None, 999),
    ("Burstable", {"requests": {"memory": "4Gi"}}, None, 3),
])  # fmt: skip
def test_who_is_killed_first_when_memory_is_short(
    qos: str, resources: Json, priority: int | None, score: int
) -> None:
    one = pod(qos, resources, priority=priority)
    assert pod_groups.oom_score(one, one.spec.containers[0], 4 * GIB) == score


def test_where_groups_may_be_made(tmp_path: Path) -> None:
    """Below what the process's groups have in common."""
    own = tmp_path / "own"
    own.write_text("4:memory:/a/b\n3:pids:/\n2:cpuacct:/a\n1:cpu:/a/c\n0::/\n")
    assert cgroups.find(tmp_path, own)[0] is None
    for place in ("memory/a/b", "cpu/a/c", "cpuacct/a"):
        (tmp_path / place).mkdir(parents=True)
    base, why = cgroups.find(tmp_path, own)
    if os.geteuid():
        assert base is None and "another user" in why
        return
    assert base is not None
    assert base.directories == {
        name: tmp_path / name / "a" for name in ("cpu", "memory", "cpuacct")
    }
    assert base.cgroup_root(tmp_path).startswith("/a/hekla-")
    assert base.tree(tmp_path)["cpu"] == tmp_path / "cpu" / base.cgroup_root(tmp_path)[1:]


def test_two_controllers_of_one_hierarchy_are_one_place(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("2:memory:/\n1:cpu,cpuacct:/\n")
    for place in ("memory", "cpu,cpuacct"):
        (tmp_path / place).mkdir()
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    base, _ = cgroups.find(tmp_path, own)
    if not os.geteuid():
        assert base is not None and sorted(base.directories) == ["cpu", "memory"]


def unified(root: Path, controllers: str = "cpu memory io") -> Path:
    """A group of version 2 with the file that says what it may use."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.procs").write_text("")
    return root


def test_a_kubelet_that_was_moved_to_the_leaf_finds_the_same_place(tmp_path: Path) -> None:
    own = tmp_path / "own"
    unified(tmp_path)
    unified(tmp_path / "scope")
    for path in ("/scope", f"/scope/{cgroups.LEAF}"):
        own.write_text(f"0::{path}\n")
        base, _ = cgroups.find(tmp_path, own)
        assert base is not None and base.path == "/scope" and base.version == 2
    unified(tmp_path / "scope", "hugetlb")
    base, why = cgroups.find(tmp_path, own)
    assert base is None and why == f"{tmp_path}/scope has no controller for cpu and memory"


def base_of(directory: Path, version: int) -> Base:
    names = ("cpu", "memory") if version == 2 else ("cpu", "memory", "cpuacct")
    places = {name: directory / ("" if version == 2 else name) for name in names}
    for place in places.values():
        place.mkdir(exist_ok=True)
    return Base(version, "/", places)


def prepared(directory: Path, version: int = 2, every: bool = True) -> PodGroups:
    groups = PodGroups.prepare(base_of(directory, version), directory, cores=2, every=every)
    assert groups is not None
    return groups


@pytest.mark.parametrize("version", [1, 2])
def test_the_tree_of_a_kubelet(tmp_path: Path, version: int) -> None:
    base, groups = base_of(tmp_path, version), prepared(tmp_path, version)
    request, quota = (
        ("cpu.weight", "cpu.max") if version == 2 else ("cpu.shares", "cpu.cfs_quota_us")
    )
    one = pod("Burstable", {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}, uid="a")
    made = groups.make(one, one.spec.containers[0], 0).split(":")
    other = pod("Burstable", {"requests": {"cpu": "500m"}}, uid="b")
    groups.make(other, other.spec.containers[0], 0)
    best, sure = (
        pod("BestEffort", {}, uid="c"),
        pod("Guaranteed", {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}, uid="d"),
    )
    groups.make(best, best.spec.containers[0], 0)
    groups.make(sure, sure.spec.containers[0], 0)

    top = base.tree(tmp_path)["cpu"] / "kubepods"
    assert [Path(path).parent for path in made] == [
        tree / "kubepods" / "burstable" / "poda"
        for tree in dict.fromkeys(base.tree(tmp_path).values())
    ]
    found = {
        str(path.parent.relative_to(top)): path.read_text()
        for path in top.glob(f"**/{request}")
        if len(path.parent.name) < 64
    }
    shares = {".": 2048, "burstable": 1024, "besteffort": 2, "burstable/poda": 512, "burstable/podb": 512,
              "besteffort/podc": 2, "podd": 2048}  # fmt: skip
    assert found == {
        name: str(1 + (value - 2) * 9999 // 262142 if version == 2 else value)
        for name, value in shares.items()
    }
    assert (Path(made[0]) / quota).read_text().split()[0] == "100000"
    assert (top / "podd" / quota).read_text().split()[0] == "200000"
    assert groups.of("a", "c0", 0) == tuple(map(Path, made))

    together = {path.parent: path.read_text() for path in tmp_path.glob("**/memory.oom.group")}
    containers = [groups.of(uid, "c0", 0)[0] for uid in ("a", "b", "c", "d")]
    assert together == (dict.fromkeys(containers, "1") if version == 2 else {})


def test_a_changed_container_is_still_killed_as_a_whole(tmp_path: Path) -> None:
    groups = prepared(tmp_path)
    one = pod("Burstable", {"limits": {"memory": "1Gi"}})
    made = Path(groups.make(one, one.spec.containers[0], 0))
    (made / "memory.oom.group").unlink()  # as one has it that an older kubelet made
    larger = pod("Burstable", {"limits": {"memory": "2Gi"}})
    assert groups.change(larger, larger.spec.containers[0], 0, []) == ""
    assert (made / "memory.max").read_text() == str(2 * GIB)
    assert (made / "memory.oom.group").read_text() == "1"


def test_a_pod_is_taken_though_its_class_has_lost_its_group(tmp_path: Path) -> None:
    groups = prepared(tmp_path)
    (lost,) = tmp_path.glob("*/kubepods/burstable")
    shutil.rmtree(lost)
    asked = {"requests": {"cpu": "500m"}}
    assert groups.adopt(pod("Burstable", asked, uid="a")) == "burstable/poda"
    groups.forget_pod("a")
    sure = pod("Guaranteed", {"limits": asked["requests"], **asked}, uid="b")
    assert groups.make(sure, sure.spec.containers[0], 0)


async def test_of_a_pod_that_nobody_took_groups_are_looked_for_as_an_orphan_s(
    tmp_path: Path,
) -> None:
    groups = prepared(tmp_path)
    place = next(tmp_path.glob("*/kubepods/burstable")) / "podu"
    left = place / container_digest("u", "c0", 0)
    left.mkdir(parents=True)
    assert groups.of("u", "c0", 0) == ()
    groups.forget("u", "c0", 0)
    groups.forget_pod("u")
    assert left.is_dir()
    groups.forget_orphan("u")
    assert not place.exists()


def test_without_groups_for_every_pod_those_without_sizes_get_none(tmp_path: Path) -> None:
    groups = prepared(tmp_path, every=False)
    plain, limited = pod("BestEffort", {}), pod("Burstable", {"limits": {"memory": "1Gi"}}, uid="v")
    assert groups.make(plain, plain.spec.containers[0], 0) == ""
    assert groups.make(limited, limited.spec.containers[0], 0)


def test_processes_that_do_not_move_are_said_and_keep_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of another process namespace, which the kernel lists as 0."""
    top = unified(tmp_path / "scope")
    (top / "cgroup.type").write_text("domain")
    (top / "cgroup.procs").write_text("0\n0\n")
    base = Base(2, "/scope", dict.fromkeys(("cpu", "memory"), top))
    assert PodGroups.prepare(base, tmp_path, cores=2, every=True) is None
    assert "scope: processes do not move to hekla-kubelet, left are 0 0" in caplog.text


# --- live -----------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    if why := cgroups.find()[1]:
        pytest.skip(why)
    async with cluster(tmp_path_factory.mktemp("groups"), "--cgroups-per-qos") as made:
        yield made


def groups_of(live: Cluster, pod: Json) -> list[Path]:
    """The groups of the pod's container, found as an agent finds them: by what the status says."""
    base, _ = cgroups.find()
    assert base is not None
    below = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
    place = Path(below[pod["status"]["qosClass"]], f"pod{pod['metadata']['uid']}")
    name = container(pod)["containerID"].removeprefix("hekla://")
    trees = dict.fromkeys(base.tree(live.kubelet.root).values())
    return [tree / "kubepods" / place / name for tree in trees]


async def gone(paths: list[Path]) -> None:
    for _ in range(600):
        if not any(path.exists() for path in paths):
            return
        await asyncio.sleep(0.02)
    assert not [path for path in paths if path.exists()]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_groups_of_a_pod_live_as_long_as_the_pod(live: Cluster) -> None:
    """Through kill -9 of the kubelet, and not longer than the pod, also while no kubelet ran."""
    sizes = {
        "best": {},
        "burst": {"requests": {"cpu": "300m"}},
        "sure": {"limits": {"cpu": "500m", "memory": "64Mi"}},
    }
    for name, resources in sizes.items():
        await live.create(
            name, "sleep", "1000", c={"resources": resources}, terminationGracePeriodSeconds=0
        )
    found = {name: groups_of(live, await live.phase(name, "Running")) for name in sizes}
    for groups in found.values():
        pids = {(group / "cgroup.procs").read_text() for group in groups}
        assert len(pids) == 1 and len(pids.pop().split()) >= 2  # the command and its shim
    first = Path("/proc", found["best"][0].joinpath("cgroup.procs").read_text().split()[-1])
    assert (first / "oom_score_adj").read_text() == "1000\n"

    live.kubelet.kill()
    assert all(group.is_dir() for groups in found.values() for group in groups)
    await live.client.delete(POD, "burst", "default", grace=0)
    live.kubelet.start()
    await gone([group.parent for group in found["burst"]])
    for name in ("best", "sure"):
        assert all((group / "cgroup.procs").read_text() for group in found[name])
        await live.client.delete(POD, name, "default")
        await live.gone(name)
        await gone([group.parent for group in found[name]])


@pytest.mark.asyncio(loop_scope="module")
async def test_each_start_of_a_container_has_groups_of_its_own(live: Cluster) -> None:
    await live.create(
        "again",
        "sh",
        "-c",
        "[ -e f ] && sleep 1000; touch f; sleep 0.5; exit 1",
        restartPolicy="OnFailure",
    )
    before = groups_of(live, await live.phase("again", "Running"))
    pod = await live.until(
        "again",
        lambda pod: (
            container(pod).get("restartCount") == 1 and "running" in container(pod)["state"]
        ),
    )
    after = groups_of(live, pod)
    assert before != after and all(group.parent.is_dir() for group in after)
    await gone(before)
