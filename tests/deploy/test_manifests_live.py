"""The plain manifests on Kubernetes' own server: all of them are taken as they are, and a second
time they change nothing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.descheduler.policy.reader import read
from tests.cluster.api import Api, Tree
from tests.deploy.chart import (
    AGENT_ALONE,
    CHART,
    HYPERNODES_ALONE,
    MANIFESTS,
    NAMESPACE,
    Chart,
    Helm,
)
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


def test_an_agent_may_write_its_node_and_its_configuration(
    kubectl: Kubectl, chart: Chart, tmp_path: Path
) -> None:
    """With each set of features that changes what its pods are; the server knows every field."""
    for features in ("", "agent_supported_features=*", "agent_numatopology_check_period=30s"):
        rendered = chart(*AGENT_ALONE, *filter(None, (features,)))
        agents = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                tree
                for tree in rendered.trees
                if tree["metadata"]["name"].startswith("volcano-agent")
            ],
        }
        file = tmp_path / "agent.json"
        file.write_text(json.dumps(agents))
        assert len(kubectl("apply", "-n", NAMESPACE, "--validate=strict", "-f", str(file))) == 6
    questions = [*NOBODY_MAY, "delete pods", "get secrets", "list configmaps --all-namespaces"]
    assert [one for one in questions if kubectl.may("volcano-agent", *one.split())] == []
    for question in (
        "patch nodes",
        "patch nodes --subresource=status",
        "create pods --subresource=eviction",
        f"create configmaps -n {NAMESPACE}",
        "update numatopologies.nodeinfo.volcano.sh",
    ):
        assert kubectl.may("volcano-agent", *question.split()), question


PAGE = (CHART.parents[1] / "docs" / "descheduler.md").read_text()
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: mine
  pluginConfig:
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 86400}
  plugins:
    deschedule: {enabled: [PodLifeTime]}
"""


def another_descheduler() -> list[Tree]:
    """Objects of the names of Volcano's, with labels that no release of the chart has."""
    name, namespace = "volcano-descheduler", "volcano-system"
    meta = {"name": name, "namespace": namespace}
    labels = {"app": "descheduler", "k8s-app": "descheduler"}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    spec = {"containers": [{"name": "descheduler", "image": "descheduler"}]}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "serviceAccountName": name}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"policy.yaml": POLICY},
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]


def test_a_release_follows_another_descheduler(
    kubectl: Kubectl, helm_program: Path, tmp_path: Path
) -> None:
    """By the commands of the page: the policy stays, and rights that are not needed go."""
    there = tmp_path / "there.yaml"
    there.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": another_descheduler()})
    )
    kubectl("apply", "-f", str(there))
    assert kubectl.may("volcano-descheduler", "delete", "pods")
    *commands, install = re.findall(
        r"^    ((?:kubectl|helm) .*)$",
        PAGE.partition("**From Volcano's descheduler.**")[2],
        re.MULTILINE,
    )[:4]
    for command in commands:
        _, *words = shlex.split(command.partition(" > ")[0])
        said = kubectl(*words)
        if (file := command.partition(" > ")[2]) != "":
            (tmp_path / file).write_text("\n".join(said))
    (given,) = re.findall(r"--set-file (\S+=)policy.yaml", install)
    others = ("scheduler", "controller", "admission", "crd")
    helm = Helm(helm_program, tmp_path, kubectl.kubeconfig)
    helm(
        "install",
        "volcano",
        str(CHART),
        "--take-ownership",
        "--set=custom.descheduler_enable=true",
        f"--set-file={given}{tmp_path / 'policy.yaml'}",
        *(f"--set=custom.{name}_enable=false" for name in others),
    )
    policy = "jsonpath={.data.policy\\.yaml}"
    kept = kubectl("get", "configmap", "volcano-descheduler", "-n", "volcano-system", "-o", policy)
    assert read("\n".join(kept)).profiles[0].name == "mine"
    assert kubectl.may("volcano-descheduler", "create", "pods", "--subresource=eviction")
    assert [
        question
        for question in (*NOBODY_MAY, "delete pods", "get secrets", "update nodes")
        if kubectl.may("volcano-descheduler", *question.split())
    ] == []
