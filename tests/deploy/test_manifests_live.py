"""The plain manifests on Kubernetes' own server: all of them are taken as they are, and a second
time they change nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.deploy.chart import CHART, HYPERNODES_ALONE, MANIFESTS, Helm
from tests.deploy.judging import judge
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

pytestmark = programs.slow(40)


class Kubectl:
    """Kubernetes' own, as the user types it who installs."""

    def __init__(self, program: Path, kubeconfig: Path, cache: Path) -> None:
        self.kubeconfig = kubeconfig
        self.command = [str(program), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def __call__(self, *words: str) -> list[str]:
        done = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout.splitlines()

    def may(self, account: str, *question: str) -> bool:
        words = ["auth", "can-i", *question, f"--as=system:serviceaccount:volcano-system:{account}"]
        return (
            subprocess.run(
                [*self.command, *words], capture_output=True, text=True, timeout=60, check=False
            ).stdout
            == "yes\n"
        )


FILES = (str(CHART / "files" / "crds.yaml"), str(MANIFESTS))
NOBODY_MAY = [
    "create clusterrolebindings", "escalate clusterroles", "impersonate users", "create pods --subresource=exec", "delete nodes",
    "list secrets --all-namespaces", "update customresourcedefinitions", "create serviceaccounts --subresource=token",
    "get leases -n kube-system",
]  # fmt: skip
HOOK = "validatingwebhookconfigurations/volcano-admission-service-jobs-validate"


@pytest.fixture(scope="module")
def kubectl(
    servers: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    """For a cluster that the manifests have been applied to, without a warning: an unknown field
    would be one."""
    program = programs.wanted("kubectl")["kubectl"]
    with reference(controllers=False) as server:
        made = Kubectl(program, server.kubeconfig, tmp_path_factory.mktemp("kubectl"))
        for file in FILES:
            assert all(line.endswith(" created") for line in made("apply", "-f", file))
        yield made


def test_what_is_applied_twice_is_not_changed(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    for file in FILES:
        # What is said of a strategy, that no rolling update's numbers are left in it, kubectl sends
        # each time.
        assert all(
            line.endswith(" unchanged") or line.startswith("deployment.apps/")
            for line in kubectl("apply", "-f", file)
        )
    made = kubectl(
        "get",
        "deployments",
        "-n",
        "volcano-system",
        "-o",
        "jsonpath={.items[*].metadata.generation}",
    )
    assert made == ["1 1 1"]


def test_accounts_have_no_more_than_they_need(kubectl: Kubectl) -> None:
    for account in ("volcano-scheduler", "volcano-controllers", "volcano-admission"):
        assert [
            question for question in NOBODY_MAY if kubectl.may(account, *question.split())
        ] == [], account
    for account, may, may_not in (
        ("volcano-scheduler", "create pods --subresource=binding", "create pods"),
        ("volcano-scheduler", "get nodes", "get secrets"),
        ("volcano-controllers", "create pods", "create pods --subresource=binding"),
        ("volcano-controllers", "get pods --subresource=log", "update nodes"),
        (
            "volcano-admission",
            f"update {HOOK}",
            "update validatingwebhookconfigurations/somebody-elses",
        ),
    ):
        assert kubectl.may(account, *may.split()), (account, may)
        assert not kubectl.may(account, *may_not.split()), (account, may_not)


@pytest.mark.scenario("controllers", 148)
def test_the_hypernode_controller_sees_to_topology_and_no_more(
    kubectl: Kubectl, helm_program: Path, tmp_path: Path
) -> None:
    helm = Helm(helm_program, tmp_path, kubectl.kubeconfig)
    helm(
        "install",
        "integration",
        str(CHART),
        "--take-ownership",
        *(f"--set=custom.{value}" for value in HYPERNODES_ALONE),
    )
    judge(Api(kubectl.kubeconfig))
