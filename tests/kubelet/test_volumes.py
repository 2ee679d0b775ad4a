"""Files that come from objects, and paths without a view of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hekla.api.kubernetes import core
from hekla.local.kubelet import hosts
from hekla.local.kubelet.environment import Sources, expand, lines
from hekla.local.kubelet.runtime.isolation import Paths
from hekla.local.kubelet.volumes.volumes import File, MountError, host_path, mounts, payload, swap

NOTHING = Sources(config_map=lambda name: None, secret=lambda name: None)


def test_a_swap_is_one_step_and_leaves_no_rest(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    assert swap(volume, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    first = os.readlink(volume / "..data")
    assert (volume / "a").read_bytes() == b"1" and (
        volume / "d" / "b"
    ).stat().st_mode & 0o777 == 0o600
    assert not swap(volume, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    assert swap(volume, {"a": File(b"new", 0o644)})
    assert os.readlink(volume / "..data") != first
    assert (volume / "a").read_bytes() == b"new"
    assert sorted(p.name for p in volume.iterdir() if not p.name.startswith("..")) == ["a"]
    assert not (volume / first).exists()


def test_items_pick_keys_and_a_missing_one_is_named() -> None:
    config = core.ConfigMap(data={"a": "1", "b": "2"})
    sources = Sources(
        config_map=lambda name: config if name == "c" else None, secret=lambda name: None
    )
    item = core.KeyToPath(key="a", path="x/y", mode=0o400)
    volume = core.Volume(
        name="v", config_map=core.ConfigMapVolumeSource(name="c", items=[item], default_mode=0o640)
    )
    assert payload(core.Pod(), volume, sources, {}) == {"x/y": File(b"1", 0o400)}
    item.key = "zz"
    with pytest.raises(MountError, match="references non-existent config key: zz"):
        payload(core.Pod(), volume, sources, {})


def test_a_missing_object_is_an_error_unless_it_is_optional() -> None:
    volume = core.Volume(name="v", secret=core.SecretVolumeSource(secret_name="s"))
    with pytest.raises(
        MountError, match=r'MountVolume\.SetUp failed for volume "v" : secret "s" not found'
    ):
        payload(core.Pod(), volume, NOTHING, {})
    assert volume.secret is not None
    volume.secret.optional = True
    assert payload(core.Pod(), volume, NOTHING, {}) == {}


def test_host_paths_are_checked_or_made(tmp_path: Path) -> None:
    made = host_path(
        "v", core.HostPathVolumeSource(path=str(tmp_path / "new"), type="DirectoryOrCreate")
    )
    assert made.is_dir()
    with pytest.raises(MountError, match="is not a file"):
        host_path("v", core.HostPathVolumeSource(path=str(made), type="File"))


def test_a_sub_path_may_not_leave_its_volume(tmp_path: Path) -> None:
    mount = core.VolumeMount(name="v", mount_path="/m", sub_path="../../etc")
    with pytest.raises(MountError, match="leads out of the volume"):
        mounts(core.Container(volume_mounts=[mount]), {"v": tmp_path}, {})


def test_expansion() -> None:
    assert expand("$(A) $(B) $$(A) $$ $A", {"A": "1"}) == "1 $(B) $(A) $ $A"


def test_labels_as_a_file() -> None:
    assert lines({"b": 'x"y', "a": "1\n2"}) == 'a="1\\n2"\nb="x\\"y"'


def test_paths_are_rewritten_whole_or_not_at_all() -> None:
    paths = Paths([("/pods/1/v", "/etc/volcano", False), ("/pods/1/w", "/data", False)])
    assert (
        paths.rewrite("paste -sd, /etc/volcano/worker.host > /data/out")
        == "paste -sd, /pods/1/v/worker.host > /pods/1/w/out"
    )
    assert (
        paths.rewrite("cat /database /my/data x/etc/volcano /data.txt")
        == "cat /database /my/data x/etc/volcano /data.txt"
    )
    assert paths.rewrite("cd /data; ls '/data'") == "cd /pods/1/w; ls '/pods/1/w'"


def test_a_hosts_file_names_the_pod_and_its_peers(tmp_path: Path) -> None:
    own = hosts.Peer("ns", "127.9.0.1", "job-task-0", "job")
    other = hosts.Peer("ns", "127.9.0.2", "job-task-1", "job")
    text = (
        hosts.content(own, [own, other], [core.HostAlias(ip="10.0.0.9", hostnames=["db"])])
        .decode()
        .splitlines()
    )
    assert text[0] == "# Kubernetes-managed hosts file."
    assert (
        "127.9.0.1\tjob-task-0.job.ns.svc.cluster.local job-task-0 job-task-0.job job-task-0.job.ns job-task-0.job.ns.svc"
        in text
    )
    assert any(line.startswith("127.9.0.2\t") and " job-task-1.job " in line for line in text)
    assert text[-1] == "10.0.0.9\tdb"
    file = tmp_path / "hosts"
    hosts.write(file, b"long long text\n")
    before = file.stat().st_ino
    hosts.write(file, b"short\n")
    assert file.read_bytes() == b"short\n" and file.stat().st_ino == before
