"""Pods on a real API server and a real kubelet, as a user sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.kube.errors import ApiError
from hekla.local.kubelet.runtime.launching import SPLIT_LOG_STREAMS
from tests.kubelet.live_cluster import (
    NODE_NAME,
    PATIENCE,
    POD,
    Cluster,
    cluster,
    condition,
    container,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["isolated", "plain"])
async def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Every story is told with what the machine allows, and with nothing."""
    flags = ["--isolation=none"] if request.param == "plain" else []
    async with cluster(
        tmp_path_factory.mktemp("live"), "--node-cpu=4", "--node-memory=4Gi", *flags
    ) as made:
        yield made


@pytest.mark.scenario("local-cluster", 126)
async def test_exit_codes_become_phases(live: Cluster) -> None:
    await live.create("three", "sh", "-c", "echo to err >&2; exit 3")
    await live.create("zero", "true")
    three, zero = await live.phase("three", "Failed"), await live.phase("zero", "Succeeded")
    assert (
        container(three)["state"]["terminated"].items()
        >= {"exitCode": 3, "reason": "Error"}.items()
    )
    assert (
        container(zero)["state"]["terminated"].items()
        >= {"exitCode": 0, "reason": "Completed"}.items()
    )
    assert condition(zero, "Ready").items() >= {"status": "False", "reason": "PodCompleted"}.items()
    assert await live.log("three") == "to err\n"
    # Written side by side, so the last may come first.
    for reason in (
        "Pulled",
        "Created",
        "Started",
    ):
        await live.event("zero", reason)


@pytest.mark.scenario("local-cluster", 128)
async def test_a_failing_container_backs_off(live: Cluster) -> None:
    await live.create("crash", "sh", "-c", "exit 1", restartPolicy="OnFailure")
    pod = await live.waits("crash", "CrashLoopBackOff")
    status = container(pod)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert (
        "back-off 10s restarting failed container=c pod=crash_default("
        in status["state"]["waiting"]["message"]
    )
    assert pod["status"]["phase"] == "Running"
    await live.client.delete(POD, "crash", "default", grace=0)


async def test_always_restarts_what_succeeded(live: Cluster) -> None:
    await live.create("again", "sh", "-c", "echo run", restartPolicy="Always")
    await live.until("again", lambda p: p and container(p).get("restartCount", 0) >= 1)
    assert await live.log("again", previous=True) == "run\n"
    await live.client.delete(POD, "again", "default")
    await live.gone("again")


@pytest.mark.scenario("local-cluster", 129)
async def test_init_containers_run_in_order_and_may_fail_the_pod(live: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-data"}]}
    inits = [
        {
            "name": name,
            "image": "busybox",
            "command": ["sh", "-c", f"echo {name} >> /hekla-data/order"],
            **mount,
        }
        for name in ("first", "second")
    ]
    volumes = [{"name": "d", "emptyDir": {}}]
    await live.create(
        "ordered",
        "sh",
        "-c",
        "cat /hekla-data/order",
        initContainers=inits,
        volumes=volumes,
        c=mount,
    )
    pod = await live.phase("ordered", "Succeeded")
    assert await live.log("ordered") == "first\nsecond\n"
    assert condition(pod, "Initialized")["status"] == "True"

    bad = [{"name": "bad", "image": "busybox", "command": ["false"]}]
    await live.create("uninitialized", "true", initContainers=bad)
    pod = await live.phase("uninitialized", "Failed")
    assert container(pod)["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_sidecars_start_first_and_end_last(live: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-side"}]}
    sidecar = {
        "name": "side",
        "image": "busybox",
        "restartPolicy": "Always",
        **mount,
        "command": [
            "sh",
            "-c",
            "trap 'exit 0' TERM; touch /hekla-side/up; while :; do sleep 0.1; done",
        ],
    }
    script = "until [ -e /hekla-side/up ]; do sleep 0.05; done"
    await live.create(
        "with-side",
        "sh",
        "-c",
        script,
        initContainers=[sidecar],
        c=mount,
        volumes=[{"name": "d", "emptyDir": {}}],
    )
    pod = await live.phase("with-side", "Succeeded")
    assert container(pod, "side")["state"]["terminated"]["exitCode"] == 0


@pytest.mark.scenario("local-cluster", 130)
async def test_what_ignores_sigterm_is_killed_after_its_grace_period(live: Cluster) -> None:
    await live.create("deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    await live.log_has("deaf", "up")
    phases: list[str] = []
    listing = await live.client.list(POD, "default", fields="metadata.name=deaf")

    async def watch() -> None:
        async for event in live.client.watch(
            POD, "default", fields="metadata.name=deaf", resource_version=listing.resource_version
        ):
            status = event.object["status"]
            ended = container(event.object).get("state", {}).get("terminated", {}).get("exitCode")
            phases.append(f"{event.type} {status['phase']} {ended}")
            if event.type == "DELETED":
                return

    began = time.monotonic()
    await live.client.delete(POD, "deaf", "default")
    await asyncio.wait_for(watch(), PATIENCE)
    assert time.monotonic() - began > 2.5
    assert "MODIFIED Failed 137" in phases
    assert phases[-1].startswith("DELETED")
    assert not any(live.kubelet.root.joinpath("pods").glob("*/containers/c/0/deaf"))


async def test_what_ends_on_sigterm_goes_at_once(live: Cluster) -> None:
    await live.create("polite", "sleep", "1000", terminationGracePeriodSeconds=1000)
    await live.phase("polite", "Running")
    await live.client.delete(POD, "polite", "default")
    await live.gone("polite")


@pytest.mark.scenario("local-cluster", 131)
async def test_hooks(live: Cluster) -> None:
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo post > /hekla-hook/post"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo pre > /hekla-hook/pre"]}},
    }
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-hook"}]}
    out = live.kubelet.root.parent / "hook"
    volumes = [{"name": "d", "hostPath": {"path": str(out), "type": "DirectoryOrCreate"}}]
    await live.create("hooked", "sleep", "1000", volumes=volumes, c={**mount, "lifecycle": hooks})
    await live.phase("hooked", "Running")
    assert (out / "post").read_text() == "post\n"
    await live.client.delete(POD, "hooked", "default")
    await live.gone("hooked")
    assert (out / "pre").read_text() == "pre\n"


@pytest.mark.scenario("local-cluster", 132)
async def test_probes_decide_readiness_and_life(live: Cluster) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await live.create("unready", "sleep", "1000", c={"readinessProbe": probe})
    pod = await live.phase("unready", "Running")
    assert (
        condition(pod, "Ready").items()
        >= {"status": "False", "reason": "ContainersNotReady"}.items()
    )
    await live.create(
        "unlively", "sleep", "1000", restartPolicy="Always", c={"livenessProbe": probe}
    )
    await live.until("unlively", lambda p: p and container(p).get("restartCount", 0) >= 1)
    await live.event("unlively", "Unhealthy")
    for name in ("unready", "unlively"):
        await live.client.delete(POD, name, "default", grace=0)
        await live.gone(name)


@pytest.mark.scenario("local-cluster", 133)
async def test_environment(live: Cluster) -> None:
    env = [
        {"name": "PLAIN", "value": "a"},
        {"name": "MORE", "value": "$(PLAIN)b $$(PLAIN) $(NOBODY)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}},
        },
        {"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}},
    ]
    c = {"env": env, "resources": {"requests": {"cpu": "250m"}}}
    script = 'echo "$PLAIN|$MORE|$NODE|$LABEL|$CPU|$LATE|$HOSTNAME|$IP"'
    await live.create("env", "sh", "-c", script, c=c, metadata={"labels": {"app": "demo"}})
    pod = await live.waits("env", "CreateContainerConfigError")
    assert container(pod)["state"]["waiting"]["message"] == 'configmap "late" not found'
    assert container(pod)["restartCount"] == 0
    await live.client.create(
        core.CONFIG_MAP.untyped,
        {"metadata": {"name": "late", "namespace": "default"}, "data": {"k": "v"}},
    )
    pod = await live.phase("env", "Succeeded")
    assert (
        await live.log("env")
        == f"a|ab $(PLAIN) $(NOBODY)|{NODE_NAME}|demo|250|v|env|{pod['status']['podIP']}\n"
    )
    await live.client.delete(core.CONFIG_MAP, "late", "default")


@pytest.mark.scenario("local-cluster", 134)
async def test_config_maps_as_files_follow_their_object(live: Cluster) -> None:
    config = {
        "metadata": {"name": "files", "namespace": "default"},
        "data": {"a": "one", "b": "two"},
    }
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/etc/hekla-files"}]}
    volumes = [
        {
            "name": "v",
            "configMap": {"name": "files", "items": [{"key": "a", "path": "dir/x", "mode": 0o600}]},
        }
    ]
    script = "stat -L -c %a /etc/hekla-files/dir/x; while :; do cat /etc/hekla-files/dir/x; echo; sleep 0.1; done"
    await live.create("reader", "sh", "-c", script, volumes=volumes, c=mount)
    await live.event("reader", "FailedMount")
    await live.client.create(core.CONFIG_MAP.untyped, config)
    assert (await live.log_has("reader", "one\n")).startswith("600\none\n")
    await live.client.patch(core.CONFIG_MAP.untyped, "files", {"data": {"a": "changed"}}, "default")
    await live.log_has("reader", "changed", seconds=3)
    await live.client.delete(POD, "reader", "default", grace=0)
    await live.client.delete(core.CONFIG_MAP, "files", "default")
    await live.gone("reader")


@pytest.mark.scenario("local-cluster", 136)
async def test_empty_directories_are_shared_and_vanish(live: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "d", "mountPath": "/hekla-shared"}]}
    other = {
        "name": "o",
        "image": "busybox",
        "command": ["sh", "-c", "echo hi > /hekla-shared/file; sleep 100"],
        **mount,
    }
    main = {
        "name": "c",
        "image": "busybox",
        **mount,
        "command": [
            "sh",
            "-c",
            "until [ -s /hekla-shared/file ]; do sleep 0.05; done; cat /hekla-shared/file",
        ],
    }
    await live.create(
        "sharing", "unused", volumes=[{"name": "d", "emptyDir": {}}], containers=[main, other]
    )
    deadline = time.monotonic() + PATIENCE
    while (
        "hi" not in await live.log("sharing", container="c")
        if await started(live, "sharing")
        else True
    ):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    uid = (await live.pod("sharing"))["metadata"]["uid"]
    await live.client.delete(POD, "sharing", "default")
    await live.gone("sharing")
    await directory_gone(live.kubelet.root / "pods" / uid)


async def started(live: Cluster, name: str) -> bool:
    state = container(await live.pod(name)).get("state", {})
    return "running" in state or "terminated" in state


async def directory_gone(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        await asyncio.sleep(0.05)


@pytest.mark.scenario("local-cluster", 137)
async def test_pods_find_each_other_by_name(live: Cluster) -> None:
    """As the svc plugin names them: <hostname>.<subdomain>."""
    listen = (
        "import socket; s = socket.create_server((socket.gethostbyname('peer-0.ring'), 29333)); c, _ = s.accept(); print(c.recv(9)); "
        "print(socket.gethostname())"
    )
    call = (
        "import socket, time\nfor i in range(100):\n  try:\n    c = socket.create_connection(('peer-0.ring', 29333)); break\n"
        "  except OSError: time.sleep(0.1)\nc.send(b'hello')"
    )
    await live.create("peer-0", "python3", "-c", listen, hostname="peer-0", subdomain="ring")
    await live.create("peer-1", "python3", "-c", call, hostname="peer-1", subdomain="ring")
    await live.phase("peer-1", "Succeeded")
    await live.phase("peer-0", "Succeeded")
    assert await live.log("peer-0") == "b'hello'\npeer-0\n"


async def test_a_service_name_leads_to_its_pods(live: Cluster) -> None:
    service = {
        "metadata": {"name": "backend", "namespace": "default"},
        "spec": {"selector": {"app": "backend"}, "clusterIP": "None", "ports": [{"port": 80}]},
    }
    await live.client.create(core.SERVICE.untyped, service)
    await live.create("backend-0", "sleep", "1000", metadata={"labels": {"app": "backend"}})
    pod = await live.phase("backend-0", "Running")
    look = "socket.gethostbyname('backend.default.svc')"
    ask = f"import socket, time\nfor i in range(100):\n  try: print({look}); break\n  except OSError: time.sleep(0.1)"
    await live.create("asker", "python3", "-c", ask)
    await live.phase("asker", "Succeeded")
    assert await live.log("asker") == pod["status"]["podIP"] + "\n"
    await live.client.delete(core.SERVICE, "backend", "default")
    await live.client.delete(POD, "backend-0", "default")
    await live.gone("backend-0")


@pytest.mark.scenario("local-cluster", 138)
async def test_logs(live: Cluster) -> None:
    await live.create(
        "talk", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done; printf end"
    )
    await live.log_has("talk", "line 2")
    followed = await live.log("talk", follow=True)
    assert followed == "line 1\nline 2\nline 3\nline 4\nline 5\nend"
    await live.phase("talk", "Succeeded")
    assert await live.log("talk", tailLines=2) == "line 5\nend"
    assert await live.log("talk", tailLines=0) == ""
    assert await live.log("talk", limitBytes=9) == "line 1\nli"
    stamped = (await live.log("talk", timestamps=True)).splitlines()
    assert [line.partition(" ")[2] for line in stamped][:2] == ["line 1", "line 2"]
    times = [line.partition(" ")[0] for line in stamped]
    assert times == sorted(times) and len(set(times)) >= 4
    since = (await live.log("talk", sinceTime=times[2])).splitlines()
    assert since[0] == "line 3"


async def test_an_unknown_image_without_a_command_says_what_would_be_right(live: Cluster) -> None:
    await live.create("puzzle", c={"image": "example.com/never/heard:1", "command": []})
    pod = await live.waits("puzzle", "ImagePullBackOff")
    assert "give the container a command" in container(pod)["state"]["waiting"]["message"]
    await live.client.delete(POD, "puzzle", "default", grace=0)


@pytest.mark.scenario("local-cluster", 142)
async def test_a_pod_that_is_too_large_is_refused(live: Cluster) -> None:
    await live.create("huge", "true", c={"resources": {"requests": {"cpu": "5"}}})
    pod = await live.phase("huge", "Failed")
    assert pod["status"]["reason"] == "OutOfcpu"
    assert pod["status"]["message"].startswith(
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: "
    )
    assert pod["status"]["message"].endswith(", capacity: 4000")


@pytest.mark.scenario("local-cluster", 143)
async def test_an_active_deadline_ends_the_pod(live: Cluster) -> None:
    await live.create("late", "sleep", "1000", activeDeadlineSeconds=1)
    pod = await live.phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert (
        pod["status"]["message"] == "Pod was active on the node longer than the specified deadline"
    )


async def test_a_termination_message_is_kept(live: Cluster) -> None:
    script = "echo last words > /dev/termination-log"
    await live.create("words", "sh", "-c", script)
    pod = await live.phase("words", "Succeeded")
    assert container(pod)["state"]["terminated"]["message"] == "last words\n"


@pytest.mark.scenario("local-cluster", 141)
async def test_an_extended_resource_of_somebody_else_survives(live: Cluster) -> None:
    patch = [
        {"op": "add", "path": "/status/capacity/example.com~1dongle", "value": "2"},
        {"op": "add", "path": "/status/allocatable/example.com~1dongle", "value": "2"},
    ]
    await live.client.patch(core.NODE.untyped, NODE_NAME, patch, type="json", subresource="status")
    await live.client.patch(
        core.NODE.untyped,
        NODE_NAME,
        {"status": {"capacity": {"cpu": "3"}}},
        type="merge",
        subresource="status",
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        node = await live.client.get(core.NODE, NODE_NAME)
        if node.status.capacity["cpu"] == "4":
            break
        assert time.monotonic() < deadline, node.status.capacity
        await asyncio.sleep(0.1)
    assert node.status.capacity["example.com/dongle"] == "2"
    assert node.status.daemon_endpoints.kubelet_endpoint.port > 0


async def test_stand_ins_serve(live: Cluster) -> None:
    await live.create(
        "web", c={"image": "nginx:1.29", "command": [], "ports": [{"containerPort": 28080}]}
    )
    said = await live.log_has("web", "listening on")
    port = said.split("listening on ")[1].split()[0].rpartition(":")[2]
    host = (await live.pod("web"))["status"]["podIP"]
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in await reader.read(100)
    writer.close()
    await live.client.delete(POD, "web", "default")
    await live.gone("web")


async def test_streams_are_kept_apart_if_a_pod_requests_it(live: Cluster) -> None:
    script = (
        "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; sleep 0.2; echo bad >&2; exit 1"
    )
    apart = {"annotations": {SPLIT_LOG_STREAMS: "true"}}
    await live.create(
        "apart",
        "sh",
        "-c",
        script,
        metadata=apart,
        c={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )
    pod = await live.phase("apart", "Failed")
    assert await live.log("apart") == "one\ntwo\nthree\nbad\n"
    assert await live.log("apart", stream="All", tailLines=3) == "two\nthree\nbad\n"
    assert await live.log("apart", stream="Stdout") == "one\nthree\n"
    assert await live.log("apart", stream="Stderr") == "two\nbad\n"
    assert container(pod)["state"]["terminated"]["message"] == "one\ntwo\nthree\nbad\n"

    await live.create("together", "sh", "-c", script)
    await live.phase("together", "Failed")
    assert await live.log("together", stream="All") == "one\ntwo\nthree\nbad\n"
    with pytest.raises(
        ApiError, match=r"ask for stream=All, or annotate the pod with hekla\.io/split-log-streams"
    ):
        await live.log("together", stream="Stderr")


async def test_a_container_s_user_and_mounts_are_reported(live: Cluster) -> None:
    """What the status says is what the container sees of itself."""
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data-of-mine", "readOnly": True}]}
    security = {
        "runAsUser": 1234,
        "runAsGroup": 2345,
        "supplementalGroups": [4567],
        "fsGroup": 3456,
    }
    await live.create(
        "someone",
        "sh",
        "-c",
        "id -u; id -g; id -G",
        c=mounts,
        volumes=[{"name": "data", "emptyDir": {}}],
        securityContext=security,
    )
    told = container(await live.phase("someone", "Succeeded"))
    user, group, groups = (await live.log("someone")).splitlines()
    assert told["user"] == {
        "linux": {
            "uid": int(user),
            "gid": int(group),
            "supplementalGroups": sorted(int(each) for each in groups.split()),
        }
    }
    assert told["volumeMounts"] == [
        {
            "name": "data",
            "mountPath": "/data-of-mine",
            "readOnly": True,
            "recursiveReadOnly": "Disabled",
        }
    ]
