"""A waiting job of a local cluster says when it starts, where its user looks, and starts then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.api.names import START_ESTIMATE
from hekla.api.text.times import instant
from hekla.kube.client import Client
from tests.local.home import Home, ask, home, until

JOB, GROUP, POD = batch.JOB.untyped, scheduling.POD_GROUP.untyped, core.POD.untyped


def job(name: str, seconds: int, walltime: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": "3"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"hekla.io/walltime": walltime},
        },
        "spec": {
            "minAvailable": 1,
            "schedulerName": "volcano",
            "tasks": [{"name": "worker", "replicas": 1, "template": {"spec": spec}}],
        },
    }


def estimate(own: Home, name: str) -> dict[str, Any]:
    groups = ask(own, lambda client: client.list(GROUP, "default")).items
    for group in groups:
        if group["metadata"]["name"].startswith(f"{name}-"):
            found = json.loads(group["metadata"].get("annotations", {}).get(START_ESTIMATE, "{}"))
            return dict(found)
    return {}


def vcctl(own: Home, *words: str) -> str:
    door = str(own.directory() / "kubeconfig")
    command = [sys.executable, "-m", "hekla.cli.vcctl", *words, "--kubeconfig", door]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def began(own: Home, name: str) -> float:
    for pod in ask(own, lambda client: client.list(POD, "default")).items:
        if pod["metadata"]["name"].startswith(f"{name}-") and pod.get("status", {}).get(
            "startTime"
        ):
            return instant(pod["status"]["startTime"])
    return 0.0


@pytest.mark.slow
def test_a_waiting_job_starts_when_it_says() -> None:
    with home() as own:
        own.good("up", "--nodes=1", "--node-cpu=4")

        async def submit(client: Client, name: str, seconds: int, walltime: str) -> None:
            await client.create(JOB, job(name, seconds, walltime))

        ask(own, partial(submit, name="runs", seconds=24, walltime="25s"))
        until("the first job runs", lambda: began(own, "runs"), 60)
        ask(own, partial(submit, name="next", seconds=1, walltime="20s"))
        said = until("it is said when the second starts", lambda: estimate(own, "next"), 60)
        assert said["after"] == "default/runs"
        shown = {
            words: vcctl(own, *words.split())
            for words in ("job view -N next", "explain next", "queue view default")
        }
        print(*(f"$ vcctl {words}\n{text}" for words, text in shown.items()), sep="\n")
        assert "Start Estimate:" in shown["job view -N next"]
        assert ", when runs ends" in shown["explain next"]
        assert "default/next" in shown["queue view default"]

        # A scheduler that starts anew says the same, and keeps what was said first.
        os.kill(own.pids()["scheduler"], signal.SIGKILL)
        started = until("the second job runs", lambda: began(own, "next"), 60)
        assert -2 <= instant(said["start"]) - started <= 15
        assert instant(said["first"]) == instant(said["start"])
        until("what waits no more says nothing of its start", lambda: not estimate(own, "next"), 30)
