"""`vcctl top nodes`, `pods`, `jobs` and `queues`: what is used beside what is requested."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hekla.cli.vcctl.top.usage import Amount, requests
from tests.cli.answers import SCHEDULING, Answers, command

PAGE = Path(__file__).parents[2] / "docs/vcctl.md"
METRICS = "/apis/metrics.k8s.io/v1beta1"
MI = 1 << 20


def container(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": memory}
    return {"resources": {"requests": {name: it for name, it in asked.items() if it}}, **more}


def pod(name: str, group: str = "", **spec: Any) -> dict[str, Any]:
    marks = {"scheduling.k8s.io/group-name": group} if group else {}
    whole = {
        "nodeName": "n1",
        "schedulerName": "volcano",
        "containers": [container("1", "1Gi")],
        **spec,
    }
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": marks},
        "spec": whole,
        "status": {"phase": spec.pop("phase", "Running")},
    }


def group(name: str, owner: str, queue: str) -> dict[str, Any]:
    owners = [{"name": owner, "kind": "Job", "controller": True}]
    metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"queue": queue}}


def measured(name: str, *used: tuple[str, str]) -> dict[str, Any]:
    containers = [{"name": "c", "usage": {"cpu": cpu, "memory": memory}} for cpu, memory in used]
    return {"metadata": {"name": name, "namespace": "default"}, "containers": containers}


def run(server: Answers, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command("vcctl", *arguments, f"--master={server.url}")


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    pods = [
        pod("train-0", "train-1a2b"),
        pod("train-1", "train-1a2b"),
        pod("web", containers=[container("500m", "256Mi")]),
        pod("agent", schedulerName="other", nodeName="n2", containers=[container()]),
        {**pod("done", "train-1a2b"), "status": {"phase": "Succeeded"}},
        pod("waits", "train-1a2b", nodeName=""),
    ]
    used = [
        measured("train-0", ("900m", "512Mi"), ("50m", "0")),
        measured("train-1", ("100m", "128Mi")),
        measured("web", ("450m", "64Mi")),
    ]
    for where in ("", "/namespaces/default"):
        running.gives[f"/api/v1{where}/pods"] = pods
        running.gives[f"{METRICS}{where}/pods"] = used
        running.gives[f"{SCHEDULING}{where}/podgroups"] = [group("train-1a2b", "train", "research")]
    room = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
    running.gives["/api/v1/nodes"] = [
        {"metadata": {"name": name}, "status": room} for name in ("n1", "n2")
    ]
    running.gives[f"{METRICS}/nodes"] = [
        {"metadata": {"name": "n1"}, "usage": {"cpu": "1600m", "memory": "1Gi"}}
    ]
    return running


def test_what_the_page_shows(server: Answers) -> None:
    page = PAGE.read_text()
    for what in ("nodes", "pods", "jobs", "queues"):
        done = run(server, "top", what)
        assert done.returncode == 0, done.stdout
        assert f"$ vcctl top {what}\n{done.stdout}" in page, done.stdout


def test_without_metrics_it_is_said_and_what_is_requested_is_shown(server: Answers) -> None:
    del server.gives[f"{METRICS}/namespaces/default/pods"]
    done = run(server, "top", "pod")
    assert "What is used is not known: /apis/metrics.k8s.io/v1beta1" in done.stderr
    assert "default/web       n1     500m            -" in done.stdout


def test_an_unknown_table_names_those_that_there_are(server: Answers) -> None:
    done = run(server, "top", "frogs")
    assert done.returncode == 255
    assert "there are: nodes, pods, jobs, queues, budgets, fragmentation" in done.stdout


def test_no_pods(server: Answers) -> None:
    server.gives["/api/v1/namespaces/default/pods"] = []
    assert run(server, "top", "jobs").stdout == "No pods run.\n"


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container("1")], "initContainers": [container("3")]}, 3000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("200m", restartPolicy="Always"), container("3")],
            },
            3200,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}}, 2000),
    ],
)
def test_what_is_kept_for_a_pod(spec: dict[str, Any], cpu: int) -> None:
    assert requests({"spec": spec}) == Amount(cpu, 0)
