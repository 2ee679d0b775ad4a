"""One cluster for all clients, with a node that runs containers and a namespace for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.cluster.conftest import (
    Kubectl,
    Namespace,
    _make_namespace,
    _remove,
    cluster_of_our_own,
    find_kubectl,
    find_real_node,
)

__all__ = ["api", "kubeconfig", "kubectl", "ns", "real_node", "sleeper"]


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Iterator[Path]:
    # Known where tests/cluster is collected too, or given as a plugin.
    given = request.config.getoption("--kubeconfig", None)
    if given:
        yield Path(given)
        return
    with cluster_of_our_own(nodes=1) as made:
        yield made


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Api:
    return Api(kubeconfig)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return find_kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))


@pytest.fixture(scope="session")
def real_node(api: Api) -> str:
    return find_real_node(api)


@pytest.fixture(scope="module")
def ns(api: Api, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    made = _make_namespace(api, request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    yield made
    _remove(api, made.name)


SERVE = (
    "import http.server,os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(self):\n"
    "    self.send_response(200); self.send_header('Content-Length', '5'); self.end_headers(); self.wfile.write(b'hello')\n"
    "  def log_message(self, *_): pass\n"
    "http.server.ThreadingHTTPServer(('', 8124), H).serve_forever()\n"
)


@pytest.fixture(scope="module")
def sleeper(api: Api, ns: Namespace, real_node: str) -> str:
    """A pod to go into; it says `up` and answers HTTP at port 8124."""
    container = {
        "name": "c",
        "image": "python",
        "command": ["sh", "-c", 'echo up; exec python3 -c "$SERVE"'],
        "env": [{"name": "SERVE", "value": SERVE}],
        "readinessProbe": {"tcpSocket": {"port": 8124}, "periodSeconds": 1},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleeper", "labels": {"app": "sleeper"}},
        "spec": {
            "nodeName": real_node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    api.create(ns.path("pods"), pod)
    api.wait(
        ns.path("pods", "sleeper"),
        lambda tree: any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in tree["status"].get("conditions", [])
        ),
    )
    return "sleeper"
