"""`vcctl job explain --what-if` and `vcctl job run --dry-run=schedule` against the daemons of a cluster."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api import Api, Tree, eventually
from tests.cluster.vcctl import vcctl

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def api(kubeconfig: Path, own: bool) -> Api:
    if not own:
        pytest.skip("it takes a scheduler that serves snapshots")
    return Api(kubeconfig)


@pytest.fixture
def name(api: Api) -> Iterator[str]:
    """A name for what a test makes; its jobs, queue and class are deleted."""
    made = f"w{uuid.uuid4().hex[:6]}"
    yield made
    for job in api.get(JOBS).tree["items"]:
        if job["metadata"]["name"].startswith(made):
            api.delete(f"{JOBS}/{job['metadata']['name']}")
    api.delete(f"{QUEUES}/{made}")
    api.delete(f"{CLASSES}/{made}")


def job(name: str, *, pods: int, cpu: int, node: str = "", minimum: int = 0, **spec: Any) -> Tree:
    template: Tree = {
        "restartPolicy": "Never",
        "nodeSelector": {"type": "kwok"},
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": ["sleep", "600"],
                "resources": {"requests": {"cpu": str(cpu)}},
            }
        ],
    }
    if node:
        template["nodeSelector"]["kubernetes.io/hostname"] = node
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": minimum or pods,
            "tasks": [{"name": "main", "replicas": pods, "template": {"spec": template}}],
            **spec,
        },
    }


def nodes_of(api: Api, name: str) -> dict[str, str]:
    """Pod -> node, of a job's pods that have one."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in api.get(PODS).tree["items"]
        if pod["metadata"]["name"].startswith(f"{name}-") and pod["spec"].get("nodeName")
    }


def test_a_larger_capability_lets_a_job_start(api: Api, kubeconfig: Path, name: str) -> None:
    queue = {"metadata": {"name": name}, "spec": {"capability": {"cpu": "2"}}}
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    api.create(QUEUES, {**kind, **queue})
    api.create(JOBS, job(name, pods=2, cpu=4, queue=name))
    eventually(lambda: "capability" in vcctl(kubeconfig, "job", "explain", name)[1])

    code, said = vcctl(
        kubeconfig, "job", "explain", name, "--what-if", f"queue.{name}.capability.cpu=+8"
    )

    assert code == 0 and said.startswith(f"{name} would start now: ")
    assert "on fake-node-" in said.splitlines()[0]
    assert f"  With queue {name}: capability of cpu 2 -> 10." in said
    assert "  Nobody has to go for it." in said
    assert not nodes_of(api, name), "nothing has changed"

    code, said = vcctl(kubeconfig, "job", "explain", name, "--what-if", f"queue.{name}.wait=1")
    assert code == 255 and 'a queue has no "wait" to change' in said


def test_a_job_lands_where_the_dry_run_said(
    api: Api, kubeconfig: Path, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(name, pods=3, cpu=7)))

    code, said = vcctl(
        kubeconfig, "job", "run", "--dry-run=schedule", "-f", str(file), "-o", "json"
    )
    assert code == 0, said
    assert api.get(f"{JOBS}/{name}").status == 404, "nothing was created"
    told = json.loads(said)
    assert told["startsNow"] and not told["evicted"]

    assert vcctl(kubeconfig, "job", "run", "-f", str(file))[0] == 0
    eventually(lambda: len(nodes_of(api, name)) == 3)
    landed = {f"default/{pod}": node for pod, node in nodes_of(api, name).items()}
    assert landed == told["nodes"]


def test_a_rival_is_named_and_goes_when_the_job_comes(
    api: Api, kubeconfig: Path, name: str, tmp_path: Path
) -> None:
    node, low, high = "fake-node-3", f"{name}-low", f"{name}-high"
    api.create(CLASSES, {"metadata": {"name": name}, "value": 1000})
    api.create(JOBS, job(low, pods=2, cpu=16, node=node, minimum=1))
    eventually(lambda: len(nodes_of(api, low)) == 2)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(high, pods=1, cpu=16, node=node, priorityClassName=name)))

    code, said = vcctl(kubeconfig, "job", "run", "--dry-run=schedule", "-f", str(file))

    assert code == 0 and said.startswith(f"{high} would start now: 1 pod on {node}."), said
    assert "  1 pod has to go before:" in said
    assert f"of job default/{low}, from {node} (preempt: room for job default/{high}" in said

    assert vcctl(kubeconfig, "job", "run", "-f", str(file))[0] == 0
    eventually(lambda: nodes_of(api, high) == {f"{high}-main-0": node})


def test_admission_speaks_before_the_scheduler_is_asked(
    api: Api, kubeconfig: Path, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(name, pods=1, cpu=1, queue="nowhere")))
    code, said = vcctl(kubeconfig, "job", "run", "--dry-run=schedule", "-f", str(file))
    assert code == 255 and "nowhere" in said


def test_a_user_without_the_right_is_told_which_one(
    api: Api, kubeconfig: Path, name: str, tmp_path: Path
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    roles = "/apis/rbac.authorization.k8s.io/v1"
    api.create(accounts, {"metadata": {"name": name}})
    api.create(JOBS, job(name, pods=1, cpu=1))
    token = api.create(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"]
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["get", "list"]},
    ]
    api.create(f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    api.create(f"{roles}/clusterrolebindings", {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    })  # fmt: skip
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    theirs = tmp_path / "kubeconfig"
    theirs.write_text(yaml.safe_dump(config))

    code, said = vcctl(theirs, "job", "explain", name, "--what-if", "node=add:1x fake-node-0")

    assert code == 255
    assert f'User "system:serviceaccount:default:{name}" cannot get path "/snapshot"' in said
    assert "nonResourceURLs [/snapshot]" in said


def test_top_fragmentation_reads_a_cluster(kubeconfig: Path, api: Api, name: str) -> None:
    code, said = vcctl(kubeconfig, "top", "fragmentation")
    assert code == 0 and said, "also where nothing runs"
    api.create(JOBS, job(name, pods=1, cpu=20))
    eventually(lambda: len(nodes_of(api, name)) == 1)
    code, said = vcctl(kubeconfig, "top", "fragmentation")
    assert code == 0, said
    assert said.startswith("Resource") and "fake-node-0" in said
    code, said = vcctl(kubeconfig, "top", "fragmentation", "--plan")
    assert code == 0 and "Fragmentation is" in said, said
