"""On Kubernetes' own server and controllers, with the rights that the chart gives: a budget is kept, what
is evicted is made anew, and nothing is asked for that is forbidden (which the server's audit log tells at its end)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api, Tree, eventually
from tests.deploy import accounts
from tests.kubernetes import programs
from tests.kubernetes.conftest import servers
from tests.kubernetes.reference import reference

__all__ = ["servers"]
pytestmark = programs.slow(60)

PODS = "/api/v1/namespaces/default/pods"
HOT = "fake-0"
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
evictionFailureEventNotification: true
profiles:
- name: even
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: true}}
  - name: LowNodeUtilization
    args: {thresholds: {cpu: 30}, targetThresholds: {cpu: 50}}
  plugins:
    balance: {enabled: [LowNodeUtilization]}
"""
WEB: Tree = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "nodeName": HOT,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "2"}}}
                ],
            },
        },
    },
}


@pytest.fixture(scope="module")
def cluster(servers: dict[str, Path]) -> Iterator[tuple[Api, Path]]:
    with reference() as server:
        server.add_nodes(
            "--nodes=0", "--fake-nodes=3", "--fake-node-name=fake", "--fake-node-cpu=10"
        )
        account = accounts.grant(server.kubeconfig, "volcano-descheduler", accounts.DESCHEDULER)
        api = Api(server.kubeconfig)
        eventually(lambda: len(api.get("/api/v1/nodes").tree["items"]) == 3)
        yield api, account


def test_a_budget_is_kept(cluster: tuple[Api, Path], tmp_path: Path) -> None:
    api, account = cluster
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)

    def descheduled() -> str:
        command = [
            sys.executable, "-m", "hekla", "descheduler", f"--kubeconfig={account}", f"--policy-config-file={policy}", "--once",
            "--leader-elect", "--secure-port=0",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in api.get(PODS).tree["items"]}

    def events() -> dict[str, str]:
        listed = api.get("/api/v1/namespaces/default/events").tree["items"]
        return {event["reason"]: event["message"] for event in listed}

    api.create("/apis/apps/v1/namespaces/default/replicasets", WEB)
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "web"}}
    api.create(
        budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 4, "selector": selector}}
    )
    eventually(lambda: api.get(f"{budgets}/web").tree.get("status", {}).get("currentHealthy") == 4)
    before = uids()
    said = descheduled()
    assert said.count("The disruption budget web needs 4 healthy pods and has 4 currently") == 4
    assert "totalEvicted=0" in said and uids() == before
    assert "The disruption budget web needs 4 healthy pods" in events()["EvictionFailed"]

    api.delete(f"{budgets}/web")
    eventually(lambda: api.get(f"{budgets}/web").status == 404)
    assert "totalEvicted=2" in descheduled()
    assert events()["LowNodeUtilization"].startswith(
        f"pod evicted from {HOT} node by the descheduler: node {HOT} is over its target: cpu "
    )
    eventually(lambda: len(uids()) == 4 and len(uids() & before) == 2)
