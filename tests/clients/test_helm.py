"""helm as it is: a small chart of our own is installed, changed, taken back and taken away, with
its hooks and with waiting."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.conftest import Kubectl, Namespace
from tests.kubernetes import programs

CHART = Path(__file__).parent / "chart"
BUILD_PATIENCE = 900.0
"""Seconds that the first build may take."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_PATIENCE + 200)]


class Helm:
    """helm, as a user of one namespace types it."""

    def __init__(self, program: Path, kubeconfig: Path, home: Path, namespace: str) -> None:
        places = {
            f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        self.environment = {**os.environ, **places, "KUBECONFIG": str(kubeconfig)}
        self.command = [str(program), "--namespace", namespace]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))


@pytest.fixture(scope="module")
def helm(kubeconfig: Path, ns: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        program = programs.need("helm", seconds=BUILD_PATIENCE)["helm"]
    except programs.CannotBuild as error:
        pytest.skip(str(error))
    return Helm(program, kubeconfig, tmp_path_factory.mktemp("helm"), ns.name)


def ready_pods(api: Api, ns: Namespace, release: str) -> int:
    """What helm waits for are the ReplicaSet's counts, which those of the Deployment follow: the
    pods tell it for certain."""
    pods = api.get(ns.path("pods"), labelSelector=f"app={release}").tree["items"]
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for pod in pods
        for condition in pod["status"]["conditions"]
    )


def image_of(api: Api, ns: Namespace) -> str:
    return str(api.get(ns.path("configmaps", "shop-config")).tree["data"]["greeting"])


def test_the_life_of_a_release(helm: Helm, api: Api, ns: Namespace) -> None:
    made = helm.read("install", "shop", str(CHART), "--wait", "--timeout", "60s")
    assert made["info"]["status"] == "deployed" and made["version"] == 1
    deployment = api.get(ns.path("apps/v1/deployments", "shop")).tree
    assert ready_pods(api, ns, "shop") == 1  # --wait means what it says
    assert deployment["metadata"]["annotations"]["meta.helm.sh/release-name"] == "shop"
    assert api.get(ns.path("shop.example.com/v1/carts", "shop")).tree["spec"] == {"size": 1}
    # Helm found the batch kinds in discovery.
    assert api.get(ns.path("configmaps", "shop-batch")).status == 200
    assert api.get(ns.path("batch/v1/jobs", "shop-before")).tree["status"]["succeeded"] == 1
    release = api.get(ns.path("secrets", "sh.helm.release.v1.shop.v1")).tree
    assert (
        release["type"] == "helm.sh/release.v1"
        and release["metadata"]["labels"]["status"] == "deployed"
    )
    assert "TEST SUITE:     shop-test" in helm("test", "shop") and "Succeeded" in helm(
        "test", "shop"
    )

    again = helm.read(
        "upgrade",
        "shop",
        str(CHART),
        "--set",
        "replicas=2,greeting=servus",
        "--wait",
        "--timeout",
        "60s",
    )
    assert again["version"] == 2
    # And of the older ones perhaps the last, on its way out.
    assert ready_pods(api, ns, "shop") >= 2
    assert image_of(api, ns) == "servus"
    # What others changed meanwhile stays where the chart says nothing about it.
    api.patch(ns.path("configmaps", "shop-config"), {"data": {"foreign": "kept"}})
    helm("upgrade", "shop", str(CHART), "--set", "greeting=moin", "--wait", "--timeout", "60s")
    assert api.get(ns.path("configmaps", "shop-config")).tree["data"] == {
        "greeting": "moin",
        "foreign": "kept",
    }

    helm("rollback", "shop", "2", "--wait", "--timeout", "60s")
    assert image_of(api, ns) == "servus"
    assert [entry["revision"] for entry in helm.read("history", "shop")] == [1, 2, 3, 4]
    assert [entry["name"] for entry in helm.read("list")] == ["shop"]
    assert helm.read("get", "values", "shop") == {"greeting": "servus", "replicas": 2}

    assert 'release "shop" uninstalled' in helm("uninstall", "shop", "--wait", "--timeout", "60s")
    assert api.get(ns.path("apps/v1/deployments", "shop")).status == 404
    assert api.get(ns.path("shop.example.com/v1/carts", "shop")).status == 404
    assert helm.read("list", "--all") == []


def test_a_release_that_fails_is_taken_back(helm: Helm, api: Api, ns: Namespace) -> None:
    helm("install", "broken", str(CHART), "--set", "hooks=false", "--wait", "--timeout", "60s")
    done = helm.run(
        "upgrade",
        "broken",
        str(CHART),
        "--set",
        "hooks=false,replicas=0",
        "--atomic",
        "--timeout",
        "20s",
    )
    assert done.returncode == 1  # a cart's size is at least 1, and the server says so
    assert "should be greater than or equal to 1" in done.stderr
    assert api.get(ns.path("apps/v1/deployments", "broken")).tree["spec"]["replicas"] == 1
    helm("uninstall", "broken", "--wait", "--timeout", "60s")


def test_a_name_that_is_taken(helm: Helm, api: Api, ns: Namespace) -> None:
    api.create(ns.path("configmaps"), {"metadata": {"name": "taken-config"}})
    done = helm.run("install", "taken", str(CHART), "--set", "hooks=false")
    assert done.returncode == 1 and "invalid ownership metadata" in done.stderr


def test_template_and_apply(helm: Helm, kubectl: Kubectl, api: Api, ns: Namespace) -> None:
    versions = ("--api-versions", "batch.volcano.sh/v1alpha1/Job")
    printed = helm(
        "template", "plain", str(CHART), "--include-crds", "--set", "hooks=false", *versions
    )
    definition, rest = printed.split("---\n# Source: shop/templates", 1)
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl("wait", "--for=condition=Established", "crd/carts.shop.example.com", "--timeout=60s")
    for more in ((), ("--server-side", "--force-conflicts")):
        lines = kubectl(
            "-n", ns.name, "apply", *more, "-f", "-", stdin="---\n# Source: shop/templates" + rest
        ).splitlines()
        assert len(lines) == 6, lines
    kubectl("-n", ns.name, "rollout", "status", "deployment/plain", "--timeout=60s")
    printed = helm("template", "plain", str(CHART), "--set", "hooks=false", "--set", "greeting=x")
    diff = kubectl.run("-n", ns.name, "diff", "-f", "-", stdin=printed)
    assert diff.returncode == 1 and "+  greeting: x" in diff.stdout
    kubectl("-n", ns.name, "delete", "--wait=false", "-f", "-", stdin=printed)
