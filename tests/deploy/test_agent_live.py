"""The colocation agent on Kubernetes' own server, with the account of the chart: it does all that it
is there for, and for that it needs every right that it has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hekla.agent.reload import KEY, NAME
from tests.admission.process import install_kinds
from tests.agent.test_numatopology import Host
from tests.agent.trees import Trees
from tests.cluster.api import Api, Tree
from tests.deploy import accounts
from tests.deploy.chart import NAMESPACE
from tests.deploy.waiting import until
from tests.kubernetes import programs
from tests.kubernetes.reference import Reference, reference
from tests.ports import free_port

pytestmark = programs.slow(60)

NODE, OTHER = "fake-0", "fake-1"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
OWN_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIGURATION = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
TOPOLOGY = f"/apis/nodeinfo.volcano.sh/v1alpha1/numatopologies/{NODE}"
GIB = 1 << 30


@pytest.fixture(scope="module")
def server(servers: dict[str, Path]) -> Iterator[Reference]:
    with reference() as started:
        started.add_nodes(
            "--nodes=0", "--fake-nodes=2", "--fake-node-name=fake", "--fake-node-cpu=4",
            "--fake-node-memory=8Gi",
        )  # fmt: skip
        install_kinds(started)
        yield started


def pod(name: str, node: str, **annotations: str) -> Tree:
    container = {"name": "main", "image": "pause"}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


def is_there(api: Api, path: str) -> bool:
    return api.get(path).status == 200


def running(api: Api, path: str) -> bool:
    return bool(api.get(path).tree.get("status", {}).get("phase") == "Running")


def test_it_uses_every_right_and_lacks_none(server: Reference, tmp_path: Path) -> None:
    api = Api(server.kubeconfig)
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})  # it may be there
    for path in (NODE, OTHER):
        until(partial(is_there, api, f"{NODES}/{path}"), lambda: api.get(NODES))
    label = {"metadata": {"labels": {"volcano.sh/oversubscription": "true"}}}
    assert api.patch(f"{NODES}/{NODE}", label).status == 200
    api.create(OWN_PODS, pod("agent", OTHER))
    api.create(PODS, pod("offline", NODE, **{"volcano.sh/qos-level": "BE"}))
    until(lambda: running(api, f"{PODS}/offline"), lambda: api.get(PODS))

    root = Trees(tmp_path / "fs" / "cgroup").cgroups.root / "kubepods"
    for part in ("", "burstable", "besteffort"):
        (root / part / "cpu.stat").write_text("usage_usec 1000\n")

    def uses(part: float) -> None:
        (root / "memory.stat").write_text(f"anon {int(part * 8 * GIB)}\nfile 0\nkernel 0\n")

    host = Host(tmp_path)
    uses(0.2)

    def start() -> None:
        server.add_agent(
            {"SYS_FS_PATH": str(tmp_path / "fs"), "CGROUP_DRIVER": "cgroupfs"},
            "--supported-features=*,-NetworkQoS",
            f"--healthz-port={free_port()}",
            f"--kube-node-name={NODE}",
            "--kube-pod-name=agent",
            f"--kube-pod-namespace={NAMESPACE}",
            "--sampling-interval=100ms",
            "--numatopology-check-period=100ms",
            f"--device-path={host.files.devices}",
            f"--kubelet-conf={host.files.kubelet_config}",
            f"--state-dir={tmp_path / 'state'}",
        )

    def log() -> str:
        return server.processes.end_of_log("agent")

    def said(reason: str, count: int = 1) -> bool:
        return any(
            event["reason"] == reason and (event.get("count") or 1) >= count
            for place in ("default", NAMESPACE)
            for event in api.get(f"/api/v1/namespaces/{place}/events").tree["items"]
        )

    def node() -> Tree:
        return api.get(f"{NODES}/{NODE}").tree

    def tainted() -> bool:
        taints = node()["spec"].get("taints") or ()
        return "volcano.sh/offline-job-evicting" in {one["key"] for one in taints}

    start()
    until(lambda: api.get(CONFIGURATION).status == 200, log)
    until(lambda: node()["status"]["allocatable"].get("kubernetes.io/batch-cpu") == "2400", log)
    until(lambda: api.get(TOPOLOGY).status == 200, log)
    host.kubelet("", cpuManagerPolicy="static")
    until(
        lambda: api.get(TOPOLOGY).tree["spec"]["policies"]["CPUManagerPolicy"] == "static",
        lambda: (api.get(TOPOLOGY), log()),
    )
    uses(0.9)
    until(lambda: said("Evicted"), log)
    until(lambda: api.get(f"{PODS}/offline").status == 404, log)
    uses(0.1)
    until(lambda: not tainted(), log)

    server.processes.end("agent")  # an older document, and applied twice
    document = {"globalConfig": {"overSubscriptionConfig": {"enable": True}}}
    assert api.patch(CONFIGURATION, {"data": {KEY: json.dumps(document)}}).status == 200
    start()
    until(lambda: "evictingConfig" in api.get(CONFIGURATION).tree["data"][KEY], log)

    def again() -> bool:
        document = {"globalConfig": {"cpuThrottlingConfig": {"enable": False}, "x": time.time()}}
        assert api.patch(CONFIGURATION, {"data": {KEY: json.dumps(document)}}).status == 200
        return said("ConfigApplySuccess", 2)

    until(again, log)
    server.processes.end("agent")
    assert accounts.used(server.audit_log, "volcano-agent") == accounts.granted(accounts.AGENT), (
        "rights that nothing needs, in deploy/chart/rights/agent.yaml"
    )
