"""The descheduler on Kubernetes' own server, with the account of the chart: it does all that it is
there for, and for that it needs every right that it has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.admission.process import install_kinds
from tests.cluster.api import Api, Tree
from tests.deploy import accounts
from tests.deploy.chart import NAMESPACE
from tests.deploy.waiting import until
from tests.kubernetes import programs
from tests.kubernetes.reference import Reference, reference

pytestmark = programs.slow(60)

USAGE = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/api/v1/namespaces/default/pods"
HOT, COOL = "fake-0", "fake-1"
PROFILE = """
- name: {source}
  pluginConfig:
  - name: LoadAware
    args:
      metrics: {{type: {source}}}
      thresholds: {{cpu: 30}}
      targetThresholds: {{cpu: 80}}
  plugins:
    balance: {{enabled: [LoadAware]}}
"""
POLICY = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:" + "".join(
    PROFILE.format(source=source) for source in ("metrics_server", "prometheus_adaptor")
)
"""The second source is not there, which it says once a cycle."""


@pytest.fixture(scope="module")
def server(servers: dict[str, Path]) -> Iterator[Reference]:
    with reference() as started:
        started.add_nodes(
            "--nodes=0", "--fake-nodes=2", "--fake-node-name=fake", "--fake-node-cpu=4"
        )
        install_kinds(started)
        yield started


def served(api: Api, path: str) -> bool:
    return api.get(path).status == 200


def serve_usage(api: Api) -> None:
    """What a metrics server would say, as custom resources of its names."""
    for plural, kind, scope in (
        ("nodes", "NodeMetrics", "Cluster"),
        ("pods", "PodMetrics", "Namespaced"),
    ):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1beta1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        api.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {
                "metadata": {
                    "name": f"{plural}.metrics.k8s.io",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
                },
                "spec": {
                    "group": "metrics.k8s.io",
                    "scope": scope,
                    "names": {"plural": plural, "kind": kind},
                    "versions": [version],
                },
            },
        )
    for path in (USAGE, "/apis/metrics.k8s.io/v1beta1/pods"):
        until(partial(served, api, path), partial(api.get, path))
    for node, cpu in ((HOT, "3800m"), (COOL, "100m")):
        measured = {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "NodeMetrics",
            "metadata": {"name": node},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "15s",
            "usage": {"cpu": cpu, "memory": "1Gi"},
        }
        api.create(USAGE, measured)


def start_service(api: Api) -> set[str]:
    """Three pods on the hot node, of which a budget lets one go; gives their uids."""
    labels = {"app": "web"}
    requests = {"requests": {"cpu": "500m"}}
    container = {"name": "main", "image": "pause", "resources": requests}
    spec = {"nodeName": HOT, "containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    selector = {"matchLabels": labels}
    api.create(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": selector}},
    )
    api.create(
        "/apis/apps/v1/namespaces/default/replicasets",
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": selector, "template": template},
        },
    )
    budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"
    until(
        lambda: api.get(budget).tree.get("status", {}).get("disruptionsAllowed") == 1,
        lambda: (api.get(budget), api.get(PODS)),
    )
    return {pod["metadata"]["uid"] for pod in api.get(PODS).tree["items"]}


def test_it_uses_every_right_and_lacks_none(server: Reference, tmp_path: Path) -> None:
    api = Api(server.kubeconfig)
    serve_usage(api)
    before = start_service(api)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    server.add_descheduler(policy, "--descheduling-interval=1s", "--leader-elect",
                           "--leader-elect-retry-period=1s")  # fmt: skip

    def events() -> list[Tree]:
        """What it has said, of pods and of itself."""
        found: list[Tree] = [
            event
            for place in ("default", NAMESPACE)
            for event in api.get(f"/api/v1/namespaces/{place}/events").tree["items"]
            if event.get("source", {}).get("component") == "sigs.k8s.io.descheduler"
        ]
        return found

    def said(reason: str, count: int = 1) -> bool:
        return any(
            event["reason"] == reason and (event.get("count") or 1) >= count for event in events()
        )

    def log() -> str:
        return server.processes.end_of_log("descheduler")

    until(lambda: said("LoadAware"), log)
    until(lambda: said("NoFreshUsage", 2), lambda: (events(), log()))
    assert before - {pod["metadata"]["uid"] for pod in api.get(PODS).tree["items"]}
    server.processes.end("descheduler")
    assert accounts.used(server.audit_log, "volcano-descheduler") == accounts.granted(
        accounts.DESCHEDULER
    ), "rights that nothing needs, in deploy/chart/rights/descheduler.yaml"
