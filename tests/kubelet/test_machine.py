"""What containers see of the machine: not the keys of any cluster, not the programs of the daemons
to change; and all, where they may."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import hekla
from hekla.api.kubernetes import core
from hekla.local.kubelet.runtime.isolation import Isolation
from hekla.local.machine.homes import Homes
from tests.apiserver_process import ApiServerProcess
from tests.kubelet.live_cluster import Cluster, cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(
    isolation: Isolation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    if not isolation.mounts:
        pytest.skip("this machine gives pods no view of the files of their own")
    async with cluster(tmp_path_factory.mktemp("machine")) as made:
        yield made


async def said(live: Cluster, name: str, script: str, **more: object) -> str:
    await live.create(name, "sh", "-c", script, **more)
    await live.phase(name, "Succeeded")
    return await live.log(name)


async def test_no_pod_sees_the_keys_of_another_cluster(live: Cluster, tmp_path: Path) -> None:
    """One that has a state home of its own, and is made after the pod's."""
    with ApiServerProcess.started(tmp_path / "elsewhere") as other:
        files = [
            other.pki / "ca.key",
            other.pki / "admin.key",
            other.kubeconfig,
            other.data / "state.db",
        ]
        assert all(file.exists() for file in [*files, other.socket])
        tries = [f"test -e {file} && echo sees {file}" for file in files]
        tries += [
            f"test -S {other.socket} && echo reaches {other.socket}",
            f"umount {other.data} 2>/dev/null && echo lifts",
            "echo done",
        ]

        assert await said(live, "thief", "\n".join(tries)) == "done\n"


BESIDE_ANOTHER = """
import sys
from hekla.local.machine import homes
real = homes.remember
def remember(paths):
    real(paths)
    real([])
homes.remember = remember
from hekla.cli.hekla import main
sys.exit(main())
"""
"""hekla, while another daemon always adds its own paths right after."""


async def test_other_daemons_do_not_drop_what_is_to_be_hidden(tmp_path: Path) -> None:
    server = ApiServerProcess(tmp_path / "server")
    server.program = (sys.executable, "-c", BESIDE_ANOTHER)
    try:
        server.start()
        assert {str(server.socket), str(server.data)} <= set(Homes().paths())
    finally:
        server.close()


async def test_no_pod_writes_where_the_daemons_run_from(live: Cluster) -> None:
    package = Path(hekla.__file__).parent
    places = [package, Path(sys.prefix), Path(os.__file__).parent, live.kubelet.root / "bin"]
    tries = [
        f"touch {place}/planted 2>/dev/null && echo wrote {place} && rm {place}/planted"
        for place in places
    ]
    tries += [
        f"test -r {package}/__init__.py && echo reads",
        f"mount -o remount,rw,bind {package} 2>/dev/null && echo opens",
        "python3 -c 0",
    ]

    assert await said(live, "planter", "\n".join(tries)) == "reads\n"


async def test_a_local_volume_is_waited_for(live: Cluster, tmp_path: Path) -> None:
    there = tmp_path / "disk"
    anywhere = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}]
    }
    same = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        "capacity": {"storage": "1Gi"},
        "local": {"path": str(there)},
        "nodeAffinity": {"required": anywhere},
        **same,
    }
    asked = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "disk", **same}
    await live.client.create(
        core.PERSISTENT_VOLUME.untyped, {"metadata": {"name": "disk"}, "spec": volume}
    )
    await live.client.create(
        core.PERSISTENT_VOLUME_CLAIM.untyped,
        {"metadata": {"name": "disk"}, "spec": asked},
        "default",
    )
    status = {"status": {"phase": "Bound"}}
    await live.client.patch(
        core.PERSISTENT_VOLUME_CLAIM.untyped, "disk", status, "default", subresource="status"
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]
    c = {"volumeMounts": [{"name": "v", "mountPath": "/disk"}]}
    await live.create("patient", "sh", "-c", "echo hello > /disk/word", volumes=volumes, c=c)
    event = await live.event("patient", "FailedMount")
    assert (
        event.message
        == f'MountVolume.NewMounter initialization failed for volume "disk" : path "{there}" does not exist'
    )
    assert (await live.pod("patient"))["status"]["phase"] == "Pending"
    assert not there.exists()

    there.mkdir()

    await live.phase("patient", "Succeeded")
    assert (there / "word").read_text() == "hello\n"


async def test_who_is_privileged_with_the_machines_processes_reaches_its_namespaces(
    live: Cluster,
) -> None:
    if os.geteuid():
        pytest.skip("only in a cluster of root's")
    here = os.readlink("/proc/self/ns/mnt")
    volumes = [{"name": "rootfs", "hostPath": {"path": "/"}}]
    c = {
        "volumeMounts": [{"name": "rootfs", "mountPath": "/rootfs"}],
        "securityContext": {"privileged": True},
    }
    ways = [
        "nsenter --mount=/rootfs/proc/1/ns/mnt",
        "nsenter --mount=/proc/1/ns/mnt",
        "nsenter -t 1 -m",
        "nsenter -t 1 -a",
    ]
    script = "\n".join(f"{way} readlink /proc/self/ns/mnt" for way in ways)

    assert await said(
        live, "machine", script, hostPID=True, volumes=volumes, c=c
    ) == f"{here}\n" * len(ways)
    own = await said(
        live,
        "plain",
        f"{script}\nreadlink /proc/self/ns/mnt",
        hostPID=True,
        volumes=volumes,
        c={**c, "securityContext": {}},
    )
    assert here not in own
    alone = await said(
        live, "alone", "nsenter -t 1 -m readlink /proc/self/ns/mnt", volumes=volumes, c=c
    )
    assert here not in alone
