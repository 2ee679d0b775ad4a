"""The metrics server that real clusters have: it asks the nodes of a local cluster at their own port, with
its service account's token, and nothing of it was written here."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from hekla.api.text import quantity
from tests.clients import accounts
from tests.clients.accounts import rule
from tests.cluster.api import Api, eventually
from tests.cluster.conftest import Namespace
from tests.kubernetes import programs
from tests.ports import free_port

BUILD_PATIENCE = 600.0
RIGHTS = [
    rule("", ["nodes/metrics"], "get"),
    rule("", ["pods", "nodes", "configmaps"], "get", "list", "watch"),
    rule("metrics.k8s.io", ["pods", "nodes"], "get", "list"),
]
READER = "extension-apiserver-authentication-reader"


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return programs.need("metrics-server", seconds=BUILD_PATIENCE)["metrics-server"]
    except programs.CannotBuild as error:
        pytest.skip(str(error))


class MetricsServer:
    def __init__(self, port: int, token: str) -> None:
        self.base = f"https://127.0.0.1:{port}/apis/metrics.k8s.io/v1beta1"
        self.token = token
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # a certificate of its own

    def get(self, path: str) -> Any:
        """What it answers; None as long as it does not."""
        request = urllib.request.Request(
            f"{self.base}/{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=self.tls) as answer:
                return json.load(answer)
        except (OSError, HTTPError):
            return None


@pytest.fixture
def server(program: Path, api: Api, ns: Namespace, tmp_path: Path) -> Iterator[MetricsServer]:
    kubeconfig = accounts.make(api, ns, "metrics-server", RIGHTS, tmp_path)
    accounts.bind(api, ns, "metrics-server", "clusterroles", "system:auth-delegator")
    accounts.bind(api, ns, "metrics-server", "roles", READER)
    port = free_port()
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={tmp_path}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={tmp_path / 'ca.crt'}",
        "--metric-resolution=10s",
        "--kubelet-request-timeout=5s",
        "--kubelet-use-node-status-port",
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield MetricsServer(port, (tmp_path / "token").read_text())
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
def test_it_reads_nodes_and_their_pods(
    server: MetricsServer, ns: Namespace, sleeper: str, real_node: str
) -> None:
    node = eventually(lambda: server.get(f"nodes/{real_node}"))
    assert quantity.milli(node["usage"]["cpu"]) > 0
    pod = eventually(lambda: server.get(f"namespaces/{ns.name}/pods/{sleeper}"))
    (container,) = pod["containers"]
    assert quantity.whole(container["usage"]["memory"]) > 1 << 20
