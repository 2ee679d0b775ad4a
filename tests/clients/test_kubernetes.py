"""The official Python client: typed, dynamic, watch, stream, port forward, leader election."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Namespace

kubernetes: Any = pytest.importorskip("kubernetes")
from kubernetes import client, config, dynamic, stream, utils, watch  # noqa: E402 (after the line that skips where it is not installed)

pytestmark = pytest.mark.scenario("local-cluster", 150)


@pytest.fixture(scope="module")
def core(kubeconfig: Path) -> Any:
    config.load_kube_config(str(kubeconfig))
    return client.CoreV1Api()


def test_the_tutorial(core: Any, ns: Namespace) -> None:
    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="one", labels={"a": "b"}), data={"k": "v"}
    )
    made = core.create_namespaced_config_map(ns.name, body)
    assert made.metadata.uid and made.data == {"k": "v"}
    assert [
        item.metadata.name
        for item in core.list_namespaced_config_map(ns.name, label_selector="a=b").items
    ] == ["one"]
    assert core.patch_namespaced_config_map(
        "one", ns.name, {"data": {"k": None, "n": "1"}}
    ).data == {"n": "1"}
    made = core.read_namespaced_config_map("one", ns.name)
    made.data = {"z": "2"}
    assert core.replace_namespaced_config_map("one", ns.name, made).data == {"z": "2"}
    # V1Status, or in newer versions of the client the bare JSON.
    gone = core.delete_namespaced_config_map("one", ns.name)
    assert (gone["status"] if isinstance(gone, dict) else gone.status) == "Success"
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_config_map("one", ns.name)
    assert missing.value.status == 404
    with pytest.raises(client.ApiException) as stale:
        core.replace_namespaced_config_map("one", ns.name, made)
    assert stale.value.status in (404, 409)


def test_json_patch_and_status(core: Any, ns: Namespace) -> None:
    core.create_namespaced_config_map(
        ns.name, {"metadata": {"name": "patched"}, "data": {"a": "1"}}
    )
    changed = core.patch_namespaced_config_map(
        "patched", ns.name, [{"op": "replace", "path": "/data/a", "value": "2"}]
    )
    assert changed.data == {"a": "2"}


def test_watch(core: Any, ns: Namespace) -> None:
    start = core.list_namespaced_config_map(ns.name).metadata.resource_version
    for number in range(3):
        core.create_namespaced_config_map(ns.name, {"metadata": {"name": f"seen-{number}"}})
    seen = []
    watcher = watch.Watch()
    for event in watcher.stream(
        core.list_namespaced_config_map, ns.name, resource_version=start, timeout_seconds=10
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            watcher.stop()
    assert seen == [("ADDED", f"seen-{number}") for number in range(3)]


def test_dynamic_client_and_apply(core: Any, ns: Namespace) -> None:
    anything = dynamic.DynamicClient(core.api_client)
    kind = anything.resources.get(api_version="apps/v1", kind="Deployment")
    labels = {"app": "d"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "busybox"}]},
            },
        },
    }
    assert kind.create(body=body, namespace=ns.name).spec.strategy.type == "RollingUpdate"
    assert kind.patch(
        body={"spec": {"paused": True}},
        name="d",
        namespace=ns.name,
        content_type="application/merge-patch+json",
    ).spec.paused
    assert [item.metadata.name for item in kind.get(namespace=ns.name).items] == ["d"]
    kind.delete(name="d", namespace=ns.name)


def test_server_side_apply(core: Any, ns: Namespace) -> None:
    anything = dynamic.DynamicClient(core.api_client)
    kind = anything.resources.get(api_version="v1", kind="ConfigMap")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "applied", "namespace": ns.name},
        "data": {"a": "1"},
    }
    applied = kind.server_side_apply(
        body=body, name="applied", namespace=ns.name, field_manager="tests"
    )
    assert applied.data.a == "1" and applied.metadata.managedFields[0].manager == "tests"


def test_create_from_yaml(core: Any, ns: Namespace, tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y1}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: y2}\nstringData: {a: b}\n"
    )
    utils.create_from_yaml(core.api_client, str(tmp_path / "both.yaml"), namespace=ns.name)
    assert core.read_namespaced_secret("y2", ns.name).data == {"a": "Yg=="}


def test_logs_and_exec(core: Any, ns: Namespace, sleeper: str) -> None:
    assert core.read_namespaced_pod_log(sleeper, ns.name, tail_lines=1) == "up\n"
    said = stream.stream(
        core.connect_get_namespaced_pod_exec,
        sleeper,
        ns.name,
        command=["sh", "-c", "echo out; echo err >&2"],
        stderr=True,
        stdin=False,
        stdout=True,
        tty=False,
    )
    assert sorted(said.split()) == ["err", "out"]


def test_exec_as_a_conversation(core: Any, ns: Namespace, sleeper: str) -> None:
    talk = stream.stream(
        core.connect_get_namespaced_pod_exec,
        sleeper,
        ns.name,
        command=["sh"],
        stderr=True,
        stdin=True,
        stdout=True,
        tty=False,
        _preload_content=False,
    )
    talk.write_stdin("echo $((6*7))\n")
    assert talk.readline_stdout(timeout=60) == "42"
    talk.write_stdin("exit 9\n")
    talk.run_forever(timeout=60)
    assert talk.returncode == 9
    talk.close()


def test_port_forward(core: Any, ns: Namespace, sleeper: str) -> None:
    forward = stream.portforward(
        core.connect_get_namespaced_pod_portforward, sleeper, ns.name, ports="8124"
    )
    socket = forward.socket(8124)
    socket.setblocking(True)
    socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = b""
    while data := socket.recv(1024):
        answer += data
    assert answer.endswith(b"\r\n\r\nhello")
    assert forward.error(8124) is None


def test_proxy(core: Any, ns: Namespace, sleeper: str) -> None:
    assert core.connect_get_namespaced_pod_proxy(f"{sleeper}:8124", ns.name) == "hello"


def test_leader_election(core: Any, ns: Namespace) -> None:
    electionconfig: Any = pytest.importorskip("kubernetes.leaderelection.electionconfig")
    from kubernetes.leaderelection import leaderelection
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    led = threading.Event()
    chosen = electionconfig.Config(
        LeaseLock("leader", ns.name, "me"),
        lease_duration=4,
        renew_deadline=3,
        retry_period=1,
        onstarted_leading=led.set,
        onstopped_leading=lambda: None,
    )
    threading.Thread(target=leaderelection.LeaderElection(chosen).run, daemon=True).start()
    assert led.wait(60)
    lease = client.CoordinationV1Api().read_namespaced_lease("leader", ns.name)
    assert lease.spec.holder_identity == "me"


def test_deletion_waits_for_the_pod(core: Any, ns: Namespace, real_node: str) -> None:
    spec = {
        "nodeName": real_node,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "60"]}],
    }
    core.create_namespaced_pod(ns.name, {"metadata": {"name": "short"}, "spec": spec})
    core.delete_namespaced_pod("short", ns.name)
    deadline = time.monotonic() + 60
    while True:
        try:
            core.read_namespaced_pod("short", ns.name)
        except client.ApiException as error:
            assert error.status == 404
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)
