"""Prometheus as it is packaged: its service discovery finds nodes, pods, services and endpoints, with their labels."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api, eventually
from tests.cluster.conftest import Namespace

ROLES = ("node", "pod", "service", "endpoints", "endpointslice")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def prometheus(kubeconfig: Path, api: Api, ns: Namespace, sleeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("this machine has no Prometheus; https://prometheus.io/download has it")
    spec = {"selector": {"app": "sleeper"}, "ports": [{"name": "http", "port": 80, "targetPort": 8124}]}
    api.create(ns.path("services"), {"metadata": {"name": "web", "labels": {"team": "red"}}, "spec": spec})
    where = tmp_path_factory.mktemp("prometheus")
    jobs = [{"job_name": role, "scrape_interval": "1h",
             "kubernetes_sd_configs": [{"role": role, "kubeconfig_file": str(kubeconfig)}]} for role in ROLES]  # fmt: skip
    (where / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    port = free_port()
    with (where / "log").open("w") as log:
        process = subprocess.Popen(
            [program, f"--config.file={where / 'prometheus.yml'}", f"--storage.tsdb.path={where / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log,
        )  # fmt: skip
    try:
        if "field kubernetes_sd_configs not found" in eventually(lambda: (where / "log").read_text(), 10):
            pytest.skip("this Prometheus was built without Kubernetes' discovery, as Debian's is; https://prometheus.io/download has it")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def labels_of(server: str, role: str) -> list[dict[str, str]]:
    """The labels of all targets of a role before relabelling."""
    try:
        with urllib.request.urlopen(f"{server}/api/v1/targets?state=active&scrapePool={role}", timeout=5) as answer:
            data: Any = json.load(answer)["data"]
    except OSError:
        return []
    return [target["discoveredLabels"] for target in data["activeTargets"] if target["discoveredLabels"]["job"] == role]


@pytest.mark.slow
@pytest.mark.scenario("local-cluster", 149)
@pytest.mark.parametrize(("role", "wanted"), [
    ("node", {"__meta_kubernetes_node_label_kubernetes_io_os": "linux"}),
    ("pod", {"__meta_kubernetes_pod_name": "sleeper", "__meta_kubernetes_pod_label_app": "sleeper", "__meta_kubernetes_pod_ready": "true"}),
    ("service", {"__meta_kubernetes_service_name": "web", "__meta_kubernetes_service_label_team": "red"}),
    ("endpoints", {"__meta_kubernetes_endpoints_name": "web", "__meta_kubernetes_endpoint_ready": "true"}),
    ("endpointslice", {"__meta_kubernetes_service_name": "web", "__meta_kubernetes_endpointslice_port_name": "http"}),
])  # fmt: skip
def test_targets(prometheus: str, role: str, wanted: dict[str, str]) -> None:
    eventually(lambda: any(wanted.items() <= found.items() for found in labels_of(prometheus, role)), 30)
