"""What a container sees and may write, in each form of isolation: none, as an ordinary user, and as
root."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.kube.errors import AlreadyExists
from hekla.local.kubelet.runtime.isolation import change_of_user_refused
from tests.kubelet.live_cluster import NODE_NAME, POD, Cluster, cluster, condition, container

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = 1000


def as_ordinary_user() -> tuple[str, ...] | None:
    """What makes a command run as an ordinary user who may read what this one may; () where it is
    one, None where that cannot be.

    In a user namespace that knows no root: the kubelet has another user id there and no rights beside
    those of a file's owner.
    """
    if os.geteuid():
        return ()
    prefix = ("unshare", "--user", f"--map-user={USER}", f"--map-group={USER}")
    if shutil.which("unshare") is None:
        return None
    check = subprocess.run(
        [*prefix, sys.executable, "-c", "import os; print(os.geteuid())"],
        capture_output=True,
        check=False,
        cwd="/",
    )
    return prefix if check.stdout.strip() == str(USER).encode() else None


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["none", "user", "shared-network", "auto"]
)
async def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    flags: tuple[str, ...] = ("--node-cpu=8", "--node-memory=8Gi")
    prefix: tuple[str, ...] = ()
    place = tmp_path_factory.mktemp("confined")
    if request.param == "user":
        found = as_ordinary_user()
        if found is None:
            pytest.skip("this system lets nobody become an ordinary user in a user namespace")
        prefix = found
    elif request.param != "auto":
        flags += (f"--isolation={request.param}",)
    else:
        request.getfixturevalue("pods_have_networks")
    async with cluster(place, *flags, prefix=prefix) as made:
        yield made


def form(live: Cluster) -> str:
    """Which form it is: none, user, shared-network or auto."""
    asked = next(
        (
            flag.partition("=")[2]
            for flag in live.kubelet.command
            if flag.startswith("--isolation=")
        ),
        "auto",
    )
    if asked != "none" and (live.kubelet.command[0] != sys.executable or os.geteuid()):
        return "user"
    return asked


def live_namespaces(live: Cluster, name: str) -> list[str]:
    """What the newest container of a pod was started with."""
    for path in (live.kubelet.root / "pods").glob("*/pod.json"):
        if json.loads(path.read_bytes())["name"] == name:
            launch = json.loads(
                (path.parent / "containers" / "c" / "0" / "launch.json").read_bytes()
            )
            return list(launch.get("namespaces", []))
    return []


async def test_pods_run_in_every_form(live: Cluster) -> None:
    await live.create("hello", "sh", "-c", "echo $(hostname) $HOSTNAME; exit 3")
    pod = await live.phase("hello", "Failed")
    assert container(pod)["state"]["terminated"]["exitCode"] == 3
    said = (await live.log("hello")).split()
    assert said[1] == "hello"
    if form(live) != "none" and "uts" in live_namespaces(live, "hello"):
        assert said[0] == "hello"


async def test_the_node_says_what_its_pods_go_without(live: Cluster) -> None:
    await live.create("bare", "true")
    await live.phase("bare", "Succeeded")
    said = await goes_without(live)
    assert ("network of its own" in said) == (form(live) != "auto")
    assert ("private view of the files" in said) == (
        form(live) == "none" or not live_namespaces(live, "bare")
    )


async def test_addresses_are_each_pods_own(live: Cluster) -> None:
    serve = "import socket,os\ns=socket.create_server((os.environ['IP'],28123)); print('up',flush=True)\nwhile 1: s.accept()[0].close()"
    env = {"env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    for name in ("a", "b"):
        await live.create(name, "python3", "-c", serve, c=env)
    for name in ("a", "b"):
        await live.log_has(name, "up")
        address = (await live.pod(name))["status"]["podIP"]
        _, writer = await asyncio.open_connection(address, 28123)
        writer.close()
        await live.client.delete(POD, name, "default", grace=0)


async def test_a_sub_path_does_not_lead_out_of_its_volume(live: Cluster) -> None:
    volumes = [{"name": "d", "emptyDir": {}}]
    whole = {"name": "d", "mountPath": "/hekla-whole"}
    init = {
        "name": "evil",
        "image": "x",
        "command": ["sh", "-c", "ln -s /etc /hekla-whole/out; mkdir -p /hekla-whole/in/deep"],
        "volumeMounts": [whole],
    }
    out = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-out", "subPath": "out"}]}
    await live.create(
        "escaping",
        "sh",
        "-c",
        "cat /hekla-out/passwd",
        initContainers=[init],
        volumes=volumes,
        c=out,
    )
    pod = await live.waits("escaping", "CreateContainerConfigError")
    assert "leads out of the volume" in container(pod)["state"]["waiting"]["message"]
    env = [{"name": "WHERE", "value": "in"}]
    good = {
        "env": env,
        "volumeMounts": [
            {"name": "d", "mountPath": "/hekla-in", "subPathExpr": "$(WHERE)/deep/new"}
        ],
    }
    await live.create(
        "staying",
        "sh",
        "-c",
        "echo x > /hekla-in/f && cat /hekla-in/f",
        initContainers=[init],
        volumes=volumes,
        c=good,
    )
    await live.phase("staying", "Succeeded")
    await live.client.delete(POD, "escaping", "default", grace=0)


async def goes_without(live: Cluster) -> list[str]:
    node = await live.client.get(core.NODE, NODE_NAME)
    return node.metadata.annotations.get("hekla.io/goes-without", "").split(", ")


async def needs_its_own_view(live: Cluster, otherwise: str) -> None:
    """Skips in the form that has no namespaces, and where the machine allows none in any form."""
    if form(live) == "none" or "private view of the files" in await goes_without(live):
        pytest.skip(f"without a view of its own {otherwise}")


async def test_a_root_may_be_read_only(live: Cluster) -> None:
    await needs_its_own_view(live, "a container's root is the machine's")
    mount = {
        "volumeMounts": [
            {"name": "d", "mountPath": "/hekla-rw"},
            {"name": "d", "mountPath": "/hekla-ro", "readOnly": True},
        ]
    }
    script = (
        "touch /tmp/hekla-no /var/tmp/hekla-no 2>&1 | grep -c -i read-only; echo x > /hekla-rw/f && echo wrote; "
        "touch /hekla-ro/f 2>&1 | grep -c -i read-only; echo fine > /dev/termination-log; echo > /dev/null && echo devices"
    )
    await live.create(
        "closed",
        "sh",
        "-c",
        script,
        volumes=[{"name": "d", "emptyDir": {}}],
        c={**mount, "securityContext": {"readOnlyRootFilesystem": True}},
    )
    pod = await live.phase("closed", "Succeeded")
    said = (await live.log("closed")).split()
    assert said[1:] == ["wrote", "1", "devices"] and said[0] == "2"
    assert container(pod)["state"]["terminated"]["message"] == "fine\n"


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ("0 0 4294967295\n", ""),
        ("0 100000 1000\n1000 200000 64536\n", ""),
        ("0 0 1\n", "this root is of a user namespace with 1 users"),
        (None, ""),
    ],
    ids=["machine", "rootless", "nobody else", "no user namespaces"],
)
async def test_a_root_may_be_alone(users: str | None, why: str, tmp_path: Path) -> None:
    """As in `unshare --user --map-root-user`: it cannot become anybody else."""
    if os.geteuid():
        pytest.skip("only root can change users")
    for name in ("uid_map", "gid_map") if users is not None else ():
        (tmp_path / name).write_text(users or "")
    assert change_of_user_refused(tmp_path) == why


async def test_users_and_groups(live: Cluster) -> None:
    if form(live) == "user" or "user and groups of its choice" in await goes_without(live):
        pytest.skip("only root can change users, and no root of a small user namespace")
    await needs_its_own_view(
        live, "another user does not get through the private directories above a volume"
    )
    security = {
        "runAsUser": 1234,
        "runAsGroup": 2345,
        "fsGroup": 3456,
        "supplementalGroups": [4567],
    }
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-fs"}]}
    script = "id -u; id -g; id -G; echo x > $D/f; stat -c %g $D/f"
    env = {"env": [{"name": "D", "value": "/hekla-fs"}]}
    await live.create(
        "user",
        "sh",
        "-c",
        script,
        securityContext=security,
        volumes=[{"name": "d", "emptyDir": {}}],
        c={**mount, **env},
    )
    await live.phase("user", "Succeeded")
    user, group, groups, owner = (await live.log("user")).splitlines()
    assert (user, group, set(groups.split()), owner) == (
        "1234",
        "2345",
        {"2345", "3456", "4567"},
        "3456",
    )
    await live.create("unroot", "true", securityContext={"runAsNonRoot": True})
    pod = await live.waits("unroot", "CreateContainerConfigError")
    assert (
        container(pod)["state"]["waiting"]["message"]
        == "container has runAsNonRoot and image will run as root"
    )
    await live.client.delete(POD, "unroot", "default", grace=0)


async def test_a_driver_that_is_not_there_is_named(live: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-csi"}]}
    await live.create(
        "driven", "true", volumes=[{"name": "d", "csi": {"driver": "disk.example.com"}}], c=mount
    )
    event = await live.event("driven", "FailedMount")
    assert (
        "driver name disk.example.com not found in the list of registered CSI drivers"
        in event.message
    )
    await live.client.delete(POD, "driven", "default", grace=0)


async def test_restart_rules_decide_by_exit_code(live: Cluster) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    script = "[ -e $D/once ] && exit 7; touch $D/once; exit 42"
    mount = {
        "volumeMounts": [{"name": "d", "mountPath": "/hekla-rules"}],
        "env": [{"name": "D", "value": "/hekla-rules"}],
    }
    c = {**mount, "restartPolicy": "Never", "restartPolicyRules": rules}
    await live.create("ruled", "sh", "-c", script, volumes=[{"name": "d", "emptyDir": {}}], c=c)
    pod = await live.phase("ruled", "Failed")
    assert (container(pod)["restartCount"], container(pod)["state"]["terminated"]["exitCode"]) == (
        1,
        7,
    )


async def test_a_probe_brings_its_own_grace(live: Cluster) -> None:
    # It would hear what comes before its trap.
    look = {"exec": {"command": ["sh", "-c", "! test -e $D/deaf"]}}
    probe = {**look, "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    script = "rm -f $D/deaf; trap '' TERM; touch $D/deaf; while :; do sleep 0.1; done"
    mount = {
        "volumeMounts": [{"name": "d", "mountPath": "/hekla-deaf"}],
        "env": [{"name": "D", "value": "/hekla-deaf"}],
    }
    c, volumes = {**mount, "livenessProbe": probe}, [{"name": "d", "emptyDir": {}}]
    await live.create(
        "deaf",
        "sh",
        "-c",
        script,
        restartPolicy="Always",
        terminationGracePeriodSeconds=600,
        c=c,
        volumes=volumes,
    )
    pod = await live.until("deaf", lambda p: p and container(p).get("restartCount", 0) >= 1)
    assert container(pod)["lastState"]["terminated"]["exitCode"] == 137
    await live.client.delete(POD, "deaf", "default", grace=0)


async def test_images_that_may_not_be_pulled(live: Cluster) -> None:
    await live.create(
        "never", c={"image": "example.com/none:1", "command": [], "imagePullPolicy": "Never"}
    )
    pod = await live.waits("never", "ErrImageNeverPull")
    message = 'Container image "example.com/none:1" is not present with pull policy of Never'
    assert container(pod)["state"]["waiting"]["message"] == message
    await live.client.delete(POD, "never", "default", grace=0)


async def test_files_of_secrets_are_closed_to_other_users(live: Cluster) -> None:
    secret = {"metadata": {"name": "hidden", "namespace": "default"}, "stringData": {"k": "s3cret"}}
    try:
        await live.client.create(core.SECRET.untyped, secret)
    except AlreadyExists:  # another form of this test has made it
        pass
    env = {"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "k"}}}]}
    await live.create("keeping", "sleep", "1000", c=env)
    await live.phase("keeping", "Running")
    uid = (await live.pod("keeping"))["metadata"]["uid"]
    root = live.kubelet.root
    assert (root / "pods").stat().st_mode & 0o077 == 0o011
    slot = root / "pods" / uid / "containers" / "c" / "0"
    assert slot.stat().st_mode & 0o777 == 0o700
    assert all(
        path.stat().st_mode & 0o177 == 0
        for path in slot.iterdir()
        if path.is_file() and path.name != "message"
    )
    lines = Path("/proc").glob("[0-9]*/cmdline")
    assert not any(b"s3cret" in read(line) for line in lines)
    assert "s3cret" not in live.kubelet.log.read_text()
    await live.client.delete(POD, "keeping", "default", grace=0)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_resources_are_reported_in_the_status(live: Cluster) -> None:
    more: dict[str, Any] = {
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
    }
    await live.create("sized", "true", c=more)
    pod = await live.phase("sized", "Succeeded")
    assert container(pod)["resources"] == more["resources"]
    assert container(pod)["allocatedResources"] == more["resources"]["requests"]
    assert condition(pod, "PodScheduled")["status"] == "True"
