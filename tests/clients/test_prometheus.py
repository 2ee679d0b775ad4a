"""Prometheus: its service discovery finds nodes, pods, services and endpoints, with their labels,
and hears of what comes and goes; and with a service account's token it scrapes the nodes.

It is the one of the Go module proxy, with Kubernetes' discovery, which packaged ones often go
without.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.clients import accounts
from tests.clients.accounts import rule
from tests.cluster.api import Api, eventually
from tests.cluster.conftest import Namespace
from tests.cluster.objects import shell
from tests.kubernetes import programs
from tests.ports import free_port

ROLES = ("node", "pod", "service", "endpoints", "endpointslice", "ingress")
BUILD_PATIENCE = 900.0
"""Seconds that the first build may take."""


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return programs.need("prometheus", seconds=BUILD_PATIENCE)["prometheus"]
    except programs.CannotBuild as error:
        pytest.skip(str(error))


@contextmanager
def running(
    program: Path, where: Path, jobs: list[Any], rules: Sequence[Path] = ()
) -> Iterator[str]:
    """The address of a Prometheus that scrapes these, and evaluates these files of rules."""
    settings = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": jobs,
    }
    (where / "prometheus.yml").write_text(json.dumps(settings))
    port = free_port()
    with (where / "log").open("w") as log:
        process = subprocess.Popen(
            [
                str(program),
                f"--config.file={where / 'prometheus.yml'}",
                f"--storage.tsdb.path={where / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def prometheus(
    program: Path,
    kubeconfig: Path,
    api: Api,
    ns: Namespace,
    sleeper: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    spec = {
        "selector": {"app": "sleeper"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8124}],
    }
    api.create(
        ns.path("services"), {"metadata": {"name": "web", "labels": {"team": "red"}}, "spec": spec}
    )
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {
        "host": "shop.example.com",
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
    }
    api.create(
        ns.path("networking.k8s.io/v1/ingresses"),
        {"metadata": {"name": "door"}, "spec": {"rules": [rule]}},
    )
    where = tmp_path_factory.mktemp("prometheus")
    jobs = [
        {
            "job_name": role,
            "scrape_interval": "1h",
            "kubernetes_sd_configs": [{"role": role, "kubeconfig_file": str(kubeconfig)}],
        }
        for role in ROLES
    ]
    with running(program, where, jobs) as server:
        yield server


def ask(server: str, path: str) -> Any:
    """The data of an answer; None where there is none."""
    try:
        with urllib.request.urlopen(f"{server}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def labels_of(server: str, role: str) -> list[dict[str, str]]:
    """The labels of all targets of a role before relabelling."""
    data = ask(server, f"targets?state=active&scrapePool={role}") or {"activeTargets": []}
    return [
        target["discoveredLabels"]
        for target in data["activeTargets"]
        if target["discoveredLabels"]["job"] == role
    ]


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
@pytest.mark.scenario("local-cluster", 149)
@pytest.mark.parametrize(("role", "wanted"), [
    ("node", {"__meta_kubernetes_node_label_kubernetes_io_os": "linux"}),
    ("pod", {"__meta_kubernetes_pod_name": "sleeper", "__meta_kubernetes_pod_label_app": "sleeper", "__meta_kubernetes_pod_ready": "true"}),
    ("service", {"__meta_kubernetes_service_name": "web", "__meta_kubernetes_service_label_team": "red"}),
    ("endpoints", {"__meta_kubernetes_endpoints_name": "web", "__meta_kubernetes_endpoint_ready": "true"}),
    ("ingress", {"__meta_kubernetes_ingress_name": "door", "__meta_kubernetes_ingress_host": "shop.example.com"}),
    ("endpointslice", {"__meta_kubernetes_service_name": "web", "__meta_kubernetes_endpointslice_port_name": "http"}),
])  # fmt: skip
def test_targets(prometheus: str, role: str, wanted: dict[str, str]) -> None:
    eventually(
        lambda: any(wanted.items() <= found.items() for found in labels_of(prometheus, role))
    )


@pytest.mark.slow
def test_targets_come_and_go(prometheus: str, api: Api, ns: Namespace, real_node: str) -> None:
    def names() -> set[str]:
        return {
            found.get("__meta_kubernetes_pod_name", "") for found in labels_of(prometheus, "pod")
        }

    eventually(lambda: "sleeper" in names())
    api.create(ns.path("pods"), shell("passing", real_node, "sleep 600"))
    eventually(lambda: "passing" in names())
    api.delete(ns.path("pods", "passing"), gracePeriodSeconds=0)
    eventually(lambda: "passing" not in names())


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
def test_nodes_are_scraped_with_a_token(
    program: Path, api: Api, ns: Namespace, sleeper: str, tmp_path: Path
) -> None:
    """Nodes are found and measured by a service account that may do nothing else, on TLS that is checked."""
    rules = [rule("", ["nodes"], "get", "list", "watch"), rule("", ["nodes/metrics"], "get")]
    accounts.make(api, ns, "prometheus", rules, tmp_path)
    shown = {
        "authorization": {"credentials_file": str(tmp_path / "token")},
        "tls_config": {"ca_file": str(tmp_path / "ca.crt")},
    }
    server = f"https://{api.address.hostname}:{api.address.port}"
    jobs = [
        {
            "job_name": form or "kubelet",
            "scheme": "https",
            "metrics_path": f"/metrics/{form}".rstrip("/"),
            "scrape_interval": "1s",
            "kubernetes_sd_configs": [{"role": "node", "api_server": server, **shown}],
            **shown,
        }
        for form in ("resource", "cadvisor", "probes", "")
    ]
    with running(program, tmp_path, jobs) as prometheus:

        def jobs_that_measure(series: str) -> set[str]:
            query = urlencode({"query": f'{series}{{pod="{sleeper}",namespace="{ns.name}"}}'})
            data = ask(prometheus, f"query?{query}") or {"result": []}
            return {found["metric"]["job"] for found in data["result"]}

        both = {"resource", "cadvisor"}
        eventually(lambda: jobs_that_measure("container_cpu_usage_seconds_total") == both)
        eventually(lambda: jobs_that_measure("container_memory_working_set_bytes") == both)
        up = urlencode({"query": 'kubelet_running_pods > 0 and on() sum(up{job="probes"}) > 0'})
        eventually(lambda: (ask(prometheus, f"query?{up}") or {"result": []})["result"])
