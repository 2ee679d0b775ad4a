"""The vertical autoscaler's recommender, of which nothing was written here: with its own definitions and
rights it reads metrics.k8s.io, and advises what a pod that burns should request."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.api.text import quantity
from tests.clients import accounts
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.kubernetes import programs
from tests.ports import free_port

BUILD_PATIENCE = 600.0
MODULE = "k8s.io/autoscaler/vertical-pod-autoscaler"
PROGRAM = "vpa-recommender"
AUTOSCALERS = "autoscaling.k8s.io/v1/verticalpodautoscalers"
LEAST_CPU = 25
"""Millicores that are recommended for what does nothing."""


@pytest.fixture(scope="module")
def program() -> Path:
    return programs.wanted(PROGRAM, seconds=BUILD_PATIENCE)[PROGRAM]


@pytest.fixture
def recommender(
    program: Path, api: Api, kubectl: Kubectl, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """It runs as its service account, with the definitions and rights that its module brings."""
    folder = programs.source(PROGRAM, MODULE) / "deploy"
    files = [f"--filename={folder / name}" for name in ("vpa-v1-crd-gen.yaml", "vpa-rbac.yaml")]
    kubectl("apply", "--server-side", *files)
    system = Namespace(api, "kube-system")
    account = accounts.kubeconfig(api, system, PROGRAM, tmp_path)
    command = [
        str(program),
        f"--kubeconfig={account}",
        "--recommender-interval=2s",
        f"--address=127.0.0.1:{free_port()}",
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        kubectl("delete", "--ignore-not-found", "--wait=false", *files)


def burner(ns: Namespace, api: Api, node: str) -> None:
    container = {
        "name": "main",
        "image": "python",
        "command": ["python3", "-c", "while True: pass"],
    }
    labels = {"app": "burner"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{**container, "resources": {"requests": {"cpu": "10m"}}}],
        },
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create(ns.path("apps/v1/deployments"), {"metadata": {"name": "burner"}, "spec": spec})


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(240, func_only=True)
def test_it_advises_for_a_pod_that_burns(
    recommender: subprocess.Popen[bytes], api: Api, ns: Namespace, real_node: str, tmp_path: Path
) -> None:
    burner(ns, api, real_node)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "burner"}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    api.create(ns.path(AUTOSCALERS), {**kind, "metadata": {"name": "burner"}, "spec": spec})

    def advice() -> Tree | None:
        """For the container, once more than the least is advised."""
        assert recommender.poll() is None, (tmp_path / "log").read_text()[-3000:]
        status = api.get(ns.path(AUTOSCALERS, "burner")).tree.get("status", {})
        for one in status.get("recommendation", {}).get("containerRecommendations", ()):
            if quantity.milli(one["target"]["cpu"]) > 4 * LEAST_CPU:
                found: Tree = one
                return found
        return None

    found = eventually(advice, 120)
    assert found["containerName"] == "main"
    assert quantity.milli(found["lowerBound"]["cpu"]) <= quantity.milli(found["target"]["cpu"])
    eventually(
        lambda: api.get(ns.path("autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints")).names
    )
