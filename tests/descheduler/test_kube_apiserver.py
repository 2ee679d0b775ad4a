"""On Kubernetes' own server and controllers, with the rights that the chart gives: a budget is kept, what
is evicted is made anew, an adapter of metrics is read, and nothing is asked for that is forbidden (which the
server's audit log tells at its end)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hekla.engine.policies import default_policy
from hekla.engine.world import World
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.scheduler.node_usage import LoadCollector
from tests.cluster.api import Api, Tree, eventually
from tests.controller_manager.adapter import adapter
from tests.deploy import accounts
from tests.descheduler.test_live import KEPT, KEPT_AT
from tests.kubernetes import programs
from tests.kubernetes.conftest import servers
from tests.kubernetes.reference import Reference, reference

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


ADAPTOR_POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: adaptor
  pluginConfig:
  - name: LoadAware
    args:
      metrics: {type: prometheus_adaptor}
      thresholds: {cpu: 30}
      targetThresholds: {cpu: 80}
  plugins:
    balance: {enabled: [LoadAware]}
"""


class Cluster(NamedTuple):
    api: Api
    server: Reference
    account: Path
    """The kubeconfig of the descheduler's account."""

    def descheduled(self, policy: Path, text: str) -> str:
        """What one cycle says."""
        policy.write_text(text)
        command = [
            sys.executable, "-m", "hekla", "descheduler", f"--kubeconfig={self.account}", f"--policy-config-file={policy}",
            "--once", "--leader-elect", "--secure-port=0",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def events(self) -> dict[str, str]:
        """The newest message of each reason."""
        listed = self.api.get("/api/v1/namespaces/default/events").tree["items"]
        return {event["reason"]: event["message"] for event in listed}


@pytest.fixture(scope="module")
def cluster(servers: dict[str, Path]) -> Iterator[Cluster]:
    with reference() as server:
        server.add_nodes(
            "--nodes=0", "--fake-nodes=3", "--fake-node-name=fake", "--fake-node-cpu=10"
        )
        account = accounts.grant(server.kubeconfig, "volcano-descheduler", accounts.DESCHEDULER)
        api = Api(server.kubeconfig)
        eventually(lambda: len(api.get("/api/v1/nodes").tree["items"]) == 3)
        yield Cluster(api, server, account)


def test_a_budget_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    api = cluster.api

    def descheduled() -> str:
        return cluster.descheduled(tmp_path / "policy.yaml", POLICY)

    def uids() -> set[str]:
        return {pod["metadata"]["uid"] for pod in api.get(PODS).tree["items"]}

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
    assert "The disruption budget web needs 4 healthy pods" in cluster.events()["EvictionFailed"]

    api.delete(f"{budgets}/web")
    eventually(lambda: api.get(f"{budgets}/web").status == 404)
    assert "totalEvicted=2" in descheduled()
    assert cluster.events()["LowNodeUtilization"].startswith(
        f"pod evicted from {HOT} node by the descheduler: node {HOT} is over its target: cpu "
    )
    eventually(lambda: len(uids()) == 4 and len(uids() & before) == 2)


async def test_an_adapter_is_read_by_the_descheduler_and_the_scheduler(
    cluster: Cluster, tmp_path: Path
) -> None:
    replicas = "/apis/apps/v1/namespaces/default/replicasets"
    hot = {**WEB, "metadata": {"name": "hot"}}
    cluster.api.delete(f"{replicas}/web")
    # whoever evicted in another story has left word that the node settles
    cluster.api.delete(f"/api/v1/namespaces/{KEPT_AT}/configmaps/{KEPT}")
    cluster.api.create(replicas, hot)
    eventually(lambda: cluster.api.get(f"{replicas}/hot").tree["status"].get("readyReplicas") == 4)
    front_proxy = cluster.server.pki / "front-proxy-ca.crt"
    admin = Client(load(str(cluster.server.kubeconfig)))
    async with admin, adapter(tmp_path, front_proxy, admin) as measures:
        nodes = "/apis/custom.metrics.k8s.io/v1beta2/nodes/*/node_cpu_usage_avg"
        used = {"fake-0": "900m", "fake-1": "500m", "fake-2": "0.1"}
        measures.custom = {
            "nodes/*/node_cpu_usage_avg": used,
            "nodes/*/node_memory_usage_avg": dict.fromkeys(used, "200m"),
        }
        await asyncio.to_thread(eventually, lambda: cluster.api.get(nodes).status == 200)
        said = await asyncio.to_thread(
            cluster.descheduled, tmp_path / "policy.yaml", ADAPTOR_POLICY
        )
        assert "totalEvicted=1" in said
        assert cluster.events()["LoadAware"].endswith(
            "node fake-0 is over its target: cpu 90% > 80%"
        )

        own = await asyncio.to_thread(
            accounts.grant, cluster.server.kubeconfig, "volcano-scheduler", accounts.SCHEDULER
        )
        here = World(default_policy())
        here.nodes(*used, cpu=10, memory=1 << 30)
        settings = {"type": "prometheus_adaptor"}
        async with Client(load(str(own))) as client:
            collector = LoadCollector(client, here.state, lambda: settings, lambda: None)
            found = await collector.ask(settings)
        assert {name: load.cpu for name, load in found.items()} == {
            "fake-0": 90,
            "fake-1": 50,
            "fake-2": 10,
        }
