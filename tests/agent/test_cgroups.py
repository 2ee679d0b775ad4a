"""Where a pod's cgroups are, how they are found out, and how files are written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hekla.agent import cgroups as module
from hekla.agent.cgroups import (
    CPU_QUOTA,
    CPU_SHARE,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    CgroupError,
    Cgroups,
    Driver,
    Version,
    Write,
    find,
    same,
    taken_back,
)
from hekla.agent.machine import Machine, machine
from hekla.agent.pods import Pod
from tests.agent.trees import Trees, pod


def here(root: Path, **more: str) -> Machine:
    """A machine in a temporary directory."""
    found = machine({"SYS_FS_PATH": str(root / "fs"), "KUBELET_ROOT_DIR": str(root), **more})
    return Machine(
        **{
            **{name: getattr(found, name) for name in found.__slots__},
            "proc": root / "proc",
            "etc_kubernetes": root / "etc",
        }
    )


def with_runtime(runtime: str) -> Pod:
    found = pod(uid="a-b")
    found.status.container_statuses[0].container_id = f"{runtime}://id"
    return found


SLICES = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"


@pytest.mark.parametrize(
    ("driver", "runtime", "expected"),
    [
        (Driver.CGROUPFS, "containerd", "kubepods/besteffort/poda-b/id"),
        (Driver.SYSTEMD, "containerd", f"{SLICES}/cri-containerd-id.scope"),
        (Driver.SYSTEMD, "docker", f"{SLICES}/docker-id.scope"),
        (Driver.SYSTEMD, "cri-o", f"{SLICES}/crio-id.scope"),
        (Driver.SYSTEMD, "hekla", f"{SLICES}/id"),
    ],
)
def test_the_directory_of_a_container(driver: Driver, runtime: str, expected: str) -> None:
    found = Cgroups(Version.V2, driver, Path("/sys/fs/cgroup"))
    assert found.container(with_runtime(runtime), "c0") == expected


@pytest.mark.parametrize("identity", ["../../x", "..", "a/b", ""])
def test_no_id_leads_out_of_the_pod(identity: str) -> None:
    found = Cgroups(Version.V2, Driver.CGROUPFS, Path("/sys/fs/cgroup"))
    each = with_runtime("containerd")
    each.status.container_statuses[0].container_id = f"containerd://{identity}"
    assert found.container(each, "c0") == found.pod(each) == "kubepods/besteffort/poda-b"


def test_the_directories_of_classes_and_of_an_unknown_container() -> None:
    found = Cgroups(Version.V1, Driver.CGROUPFS, Path("/c"), ("a", "b"))
    online = pod(qos_class="Guaranteed", uid="u")
    assert found.pod(online) == found.container(online, "none") == "a/b/kubepods/podu"
    assert found.qos_root("Burstable") == "a/b/kubepods/burstable"
    assert found.qos_root("Guaranteed") == found.qos_root() == "a/b/kubepods"
    assert found.path(found.qos_root(), CPU_SHARE) == Path("/c/cpu/a/b/kubepods/cpu.shares")
    assert not found.has(MEMORY_HIGH)
    systemd = Cgroups(Version.V2, Driver.SYSTEMD, Path("/c"), ("my-root",))
    assert systemd.path(systemd.qos_root("Burstable"), CPU_SHARE) == Path(
        "/c/my_root.slice/my_root-kubepods.slice/my_root-kubepods-burstable.slice/cpu.weight"
    )


def test_the_version_is_that_of_the_files_or_of_the_test(tmp_path: Path) -> None:
    assert find(here(tmp_path)).version is Version.V1
    (tmp_path / "fs/cgroup").mkdir(parents=True)
    (tmp_path / "fs/cgroup/cgroup.controllers").touch()
    assert find(here(tmp_path)).version is Version.V2
    assert find(here(tmp_path, VOLCANO_TEST_CGROUP_VERSION="1")).version is Version.V1


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ({"config.yaml": "cgroupDriver: systemd"}, {"CGROUP_DRIVER": "cgroupfs"}, "cgroupfs"),
        ({"config.yaml": "a: 1\ncgroupDriver: systemd\n"}, {}, "systemd"),
        ({"etc/kubelet.conf": 'cgroupDriver: "systemd"', "config.yaml": "a: 1"}, {}, "systemd"),
        ({"kubeadm-flags.env": 'ARGS="--cgroup-driver systemd --x"'}, {}, "systemd"),
        ({"config.yaml": "cgroupDriver: other", "fs/cgroup/system.slice/x": ""}, {}, "systemd"),
        ({"proc/7/comm": "kubelet\n", "proc/7/cmdline": "kubelet\0--cgroup-driver=systemd"}, {}, "systemd"),
        ({"proc/7/comm": "bash\n", "proc/7/cmdline": "x\0--cgroup-driver=systemd"}, {}, "cgroupfs"),
        ({"proc/7/comm": "kubelet\n", "proc/7/cmdline": "kubelet\0--config\0ROOT/k.yaml", "k.yaml": "cgroupDriver: systemd"},
         {}, "systemd"),
        ({"fs/cgroup/systemd/x": "", "fs/cgroup/cpu/x": ""}, {}, "systemd"),
        ({"fs/cgroup/cpu/x": "", "fs/cgroup/unified/system.slice/x": ""}, {}, "cgroupfs"),
        ({"fs/cgroup/cgroup.controllers": ""}, {}, "cgroupfs"),
        ({"fs/cgroup/unified/system.slice/x": ""}, {}, "systemd"),
        ({"fs/cgroup/unified/x": ""}, {}, "cgroupfs"),
        ({}, {}, "cgroupfs"),
    ],
)  # fmt: skip
def test_the_driver_is_the_first_that_is_stated(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], expected: str
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(tmp_path)))
    assert find(here(tmp_path, **variables)).driver == expected


def test_only_what_differs_is_written(v2: Trees) -> None:
    path = v2.cgroups.path(v2.cgroups.qos_root(), CPU_QUOTA)
    assert v2.cgroups.apply([Write(path, "max")]) == 0
    assert v2.cgroups.apply([Write(path, "5000 100000")]) == 1
    assert path.read_text() == "5000 100000"


@pytest.mark.parametrize(
    ("file", "now", "value", "expected"),
    [
        ("cpu.max", "max 100000", "max", True),
        ("cpu.max", "1000 100000", "1000 50000", False),
        ("memory.high", "4096", "5000", True),
        ("memory.high", "8192", "5000", False),
        ("memory.soft_limit_in_bytes", "9223372036854771712", "-1", True),
        ("memory.soft_limit_in_bytes", "4096", "-1", False),
        ("cpu.shares", "4096", "5000", False),
        ("cpu.weight", "", "1", False),
    ],
)
def test_the_kernel_writes_some_values_in_its_own_way(
    file: str, now: str, value: str, expected: bool
) -> None:
    assert same(Path(file), now, value) is expected


def test_a_file_that_vanishes_is_skipped_and_said_once(
    v2: Trees, caplog: pytest.LogCaptureFixture
) -> None:
    gone = [Write(v2.cgroups.path(f"gone{index}", CPU_SHARE), "7") for index in range(3)]
    last = Write(v2.cgroups.path(v2.cgroups.qos_root(), CPU_SHARE), "7")
    with caplog.at_level(logging.WARNING):
        assert v2.cgroups.apply([*gone, last]) == 1
    assert [record.message for record in caplog.records] == [
        f"{gone[0].path} is not there; it is skipped"
    ]
    assert not gone[0].path.exists()


def test_every_file_is_tried_before_what_failed_is_said(v2: Trees) -> None:
    needed = v2.cgroups.path("gone", CPU_SHARE)
    directory = v2.cgroups.path(v2.cgroups.qos_root(), MEMORY_LIMIT).parent
    last = Write(v2.cgroups.path(v2.cgroups.qos_root(), CPU_SHARE), "7")
    with pytest.raises(CgroupError) as error:
        v2.cgroups.apply([Write(needed, "1", required=True), Write(directory, "1"), last])
    assert str(error.value) == f"{needed} is not there; {directory}: Is a directory"
    assert last.path.read_text() == "7"


def test_only_what_is_still_ours_is_taken_back(v2: Trees) -> None:
    root = v2.cgroups.qos_root()
    writes = [
        Write(v2.cgroups.path(root, MEMORY_LIMIT), "8192", off="max"),
        Write(v2.cgroups.path(root, CPU_SHARE), "7", off="100"),
        Write(v2.cgroups.path(root, MEMORY_HIGH), "4096"),
        Write(v2.cgroups.path("gone", CPU_SHARE), "7", off="100"),
    ]
    for one in writes[:3]:
        one.path.write_text(one.value)
    writes[1].path.write_text("8")  # somebody else has
    assert list(taken_back(writes)) == [Write(writes[0].path, "max")]


def test_a_quota_that_cannot_be_read_is_named(v2: Trees) -> None:
    root = v2.cgroups.qos_root()
    v2.put(root, CPU_QUOTA, "much 100000")
    with pytest.raises(CgroupError, match=r"cpu.max: 'much' is no quota in microseconds"):
        v2.cgroups.quota(root)
    assert module.read(v2.cgroups.path(root, CPU_SHARE)) == "100"
