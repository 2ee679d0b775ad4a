"""Why a job failed, asked for when its pods are gone: a whole cluster, real pods, and what a user
sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api, Tree, eventually
from tests.kubernetes import programs
from tests.kubernetes.clusters import working_cluster
from tests.local.home import home

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 60.0


class Cluster:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig)

    def job(
        self, name: str, script: str, *, restart: str = "Never", replicas: int = 1, **spec: Any
    ) -> None:
        version = {"fieldRef": {"fieldPath": "metadata.annotations['volcano.sh/job-version']"}}
        container = {
            "name": "main",
            "image": "busybox",
            "command": ["sh", "-c", script],
            "env": [{"name": "RUN", "valueFrom": version}],
        }
        pod = {"restartPolicy": restart, "containers": [container]}
        task = {"name": "work", "replicas": replicas, "template": {"spec": pod}}
        self.api.create(
            JOBS,
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": {"minAvailable": replicas, "tasks": [task], **spec},
            },
        )

    def phase(self, name: str, *phases: str) -> Tree:
        return self.api.wait(
            f"{JOBS}/{name}",
            lambda job: job.get("status", {}).get("state", {}).get("phase") in phases,
            PATIENCE,
        )

    def kept(self, name: str, **wanted: Any) -> Tree:
        """The last failure once it is as wanted."""

        def look() -> Tree | None:
            text = (
                self.api.get(f"{JOBS}/{name}")
                .meta.get("annotations", {})
                .get("hekla.io/last-failure")
            )
            kept = json.loads(text) if text else {}
            return (
                kept
                if kept and all(kept.get(key) == value for key, value in wanted.items())
                else None
            )

        return eventually(look, PATIENCE)

    def pods(self, name: str) -> list[str]:
        listed = self.api.get(PODS, labelSelector=f"volcano.sh/job-name={name}").tree["items"]
        return [pod["metadata"]["name"] for pod in listed]

    def view(self, name: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "hekla.cli.vcctl", "job", "view", "--name", name],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            timeout=60,
        ).stdout


@pytest.fixture(
    scope="module", params=["hekla", pytest.param("kubernetes", marks=programs.slow(60))]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "kubernetes":
        programs.wanted(*programs.SERVER)
        with working_cluster() as kubeconfig:
            yield Cluster(kubeconfig)
        return
    with home() as own:
        own.good("up")
        yield Cluster(own.directory() / "kubeconfig")


def test_a_restarted_job_still_tells_why(cluster: Cluster) -> None:
    script = 'echo "loading epoch 7"; echo "CUDA error: out of memory" >&2; exit 3'
    cluster.job(
        "restarted", script, maxRetry=2, policies=[{"event": "PodFailed", "action": "RestartJob"}]
    )
    cluster.phase("restarted", "Failed")
    kept = cluster.kept("restarted", run=1)
    assert (kept["pod"], kept["container"], kept["exitCode"], kept["reason"]) == (
        "restarted-work-0",
        "main",
        3,
        "Error",
    )
    assert kept["log"] == "loading epoch 7\nCUDA error: out of memory"
    cluster.api.delete(PODS, labelSelector="volcano.sh/job-name=restarted", gracePeriodSeconds=0)
    eventually(lambda: not cluster.pods("restarted"), PATIENCE)
    told = cluster.view("restarted")
    assert "hekla.io/last-failure" not in told, "the annotation is shown in words"
    section = told[told.index("Last Failure:") : told.index("Events:")]
    assert [
        line.split("\t") for line in section.splitlines() if not line.startswith("  Time:")
    ] == [
        ["Last Failure:"],
        ["  Pod:      ", "restarted-work-0"],
        ["  Container:", "main"],
        ["  Exit Code:", "3"],
        ["  Reason:   ", "Error"],
        ["  Log:"],
        ["    loading epoch 7"],
        ["    CUDA error: out of memory"],
    ]


def test_pods_that_go_at_once_leave_their_last_words(cluster: Cluster) -> None:
    """TerminateJob keeps ended pods, a restart does not: each run's failed pod is deleted in the
    step that saw it fail."""
    script = 'echo "this is run $RUN"; if [ $RUN = 0 ]; then exit 9; fi; sleep 60'
    cluster.job("at-once", script, policies=[{"exitCode": 9, "action": "RestartJob"}])
    kept = cluster.kept("at-once", exitCode=9)
    assert kept["log"] == "this is run 0" and "run" not in kept
    eventually(
        lambda: cluster.api.get(f"{JOBS}/at-once").tree["status"].get("running") == 1, PATIENCE
    )
    assert "this is run 0" in cluster.view("at-once")
    groups = cluster.api.get(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    ).tree["items"]
    assert not any(
        "hekla.io/last-failure" in group["metadata"].get("annotations", {}) for group in groups
    )
    cluster.api.delete(f"{JOBS}/at-once")


def test_a_container_that_is_started_again_by_its_node_is_seen_too(cluster: Cluster) -> None:
    cluster.job("again", 'echo "no such host"; exit 4', restart="OnFailure")
    kept = cluster.kept("again", exitCode=4)
    assert kept["log"] == "no such host" and kept["restarts"] >= 1
    cluster.api.delete(f"{JOBS}/again")


def test_a_job_that_does_well_has_no_last_failure(cluster: Cluster) -> None:
    cluster.job("well", "echo fine")
    job = cluster.phase("well", "Completed")
    assert "hekla.io/last-failure" not in job["metadata"].get("annotations", {})
    assert "Last Failure" not in cluster.view("well")
