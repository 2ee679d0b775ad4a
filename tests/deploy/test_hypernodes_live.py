"""The standalone hypernode controller installed by helm on a local cluster, where its two copies
are real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Api, Tree
from tests.cluster.conftest import cluster_of_our_own
from tests.deploy.chart import CHART, HYPERNODES_ALONE, NAMESPACE, Helm
from tests.deploy.judging import judge
from tests.kubernetes import programs

pytestmark = programs.slow(60)

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/integration-hypernode-controller"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/integration-hypernode-controller-manager"
HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
PATIENCE = 60.0
VALUES = [
    *(f"--set=custom.{value}" for value in HYPERNODES_ALONE),
    # user 1000 of this machine need not be able to read where Hekla lies
    "--set=custom.default_csc=null",
    "--take-ownership",  # of the definitions: the cluster has them from the start
    "--set-string=custom.controller_config_override=" + yaml.safe_dump({"networkTopologyDiscovery": [{
        "source": "label", "enabled": True,
        "config": {"networkTopologyTypes": {"rack": [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}},
    }]}).replace(",", "\\,"),
]  # fmt: skip


@pytest.fixture(scope="module")
def installed(
    helm_program: Path, ports_of_their_own: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """A cluster whose table of images says where the image's programs are: an environment stands
    for an image."""
    home = tmp_path_factory.mktemp("helm")
    images = home / "images.yaml"
    images.write_text(
        yaml.safe_dump([{"image": "hekla", "path": [str(Path(sys.executable).parent)]}])
    )
    with cluster_of_our_own(nodes=1, images=str(images)) as kubeconfig:
        helm = Helm(helm_program, home, kubeconfig)
        helm(
            "install",
            "integration",
            str(CHART),
            "--create-namespace",
            "--wait",
            "--timeout=180s",
            *VALUES,
        )
        yield Api(kubeconfig)


def pods_of(api: Api) -> list[Tree]:
    return list(api.get(PODS, labelSelector="app=volcano-hypernode-controller").tree["items"])


@pytest.mark.scenario("controllers", 147)
def test_two_copies_are_ready_and_one_works(installed: Api) -> None:
    deployment = installed.get(DEPLOYMENT).tree
    assert deployment["status"]["readyReplicas"] == 2
    pods = pods_of(installed)
    assert len(pods) == 2
    for pod in pods:
        assert pod["spec"]["serviceAccountName"] == "integration-hypernode-controller"
        said = {path: asked(installed, pod, path) for path in ("/readyz", "/healthz")}
        assert said == {"/readyz": (200, "ok"), "/healthz": (200, "ok")}
    # Who is ready stands for election, and is not elected yet.
    holder = installed.wait(LEASE, lambda lease: lease["spec"].get("holderIdentity"), PATIENCE)[
        "spec"
    ]["holderIdentity"]
    assert sum(holder.startswith(pod["metadata"]["name"] + "_") for pod in pods) == 1


def asked(api: Api, pod: Tree, path: str) -> tuple[int, str]:
    """What a copy answers at its health port, through the API server."""
    answer = api.get(f"{PODS}/{pod['metadata']['name']}:11251/proxy{path}")
    return answer.status, answer.text


@pytest.mark.scenario("controllers", 148)
def test_its_account_may_see_to_topology_and_no_more(installed: Api) -> None:
    judge(installed)


def both_are_ready(deployment: Tree) -> bool:
    status = deployment["status"]
    return bool(status.get("readyReplicas") == status.get("replicas") == 2)


@pytest.mark.scenario("controllers", 149)
def test_the_other_copy_takes_over(installed: Api) -> None:
    """After the pod that holds the lease has been deleted; labels of nodes are read by the next
    one."""
    node = installed.get("/api/v1/nodes").tree["items"][0]["metadata"]["name"]

    def label(rack: str | None) -> None:
        installed.patch(
            f"/api/v1/nodes/{node}", {"metadata": {"labels": {"example.com/rack": rack}}}
        )

    def counted(hyper_nodes: Tree) -> bool:
        return [item.get("status", {}).get("nodeCount") for item in hyper_nodes["items"]] == [1]

    label("a")
    installed.wait(HYPER_NODES, counted, PATIENCE)
    before = installed.get(LEASE).tree["spec"]["holderIdentity"]
    assert installed.delete(f"{PODS}/{before.partition('_')[0]}").status == 200
    installed.wait(
        LEASE, lambda lease: lease["spec"].get("holderIdentity") not in ("", None, before), PATIENCE
    )
    installed.wait(DEPLOYMENT, both_are_ready, PATIENCE)
    label(None)
    installed.wait(HYPER_NODES, lambda found: not found["items"], PATIENCE)
    label("b")
    installed.wait(HYPER_NODES, counted, PATIENCE)
    label(None)
