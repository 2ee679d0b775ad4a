"""Limits of a user on a cluster with all its daemons: jobs beyond them wait, say whose limit it is, and
do so after the scheduler was killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from tests.cluster.vcctl import vcctl
from tests.local.home import Home, ask, home, until

JOB, GROUP, POD = batch.JOB.untyped, scheduling.POD_GROUP.untyped, core.POD.untyped
POLICY = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: party-limits
    arguments:
      submitted: 2
      budget: {resources: {cpu: 0.002h}, renew: "@yearly"}
      usage: {seconds: 1}
- plugins: [{name: predicates}]
"""
"""Seven seconds of a cpu."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Home]:
    """A node of 16 cpu whose pods only pretend to run."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with home() as made:
        made.good(
            "up", "--nodes=0", "--fake-nodes=1", "--fake-node-cpu=16", f"--scheduler-conf={policy}"
        )
        yield made


def submit(own: Home, name: str, user: str = "anna") -> None:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "4"}},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    tasks = [{"name": "main", "replicas": 1, "template": template}]
    marks = {"hekla.io/user": user}
    tree: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "annotations": marks},
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "tasks": tasks},
    }
    ask(own, lambda client: client.create(JOB, tree))


def bound(own: Home) -> set[str]:
    pods = ask(own, lambda client: client.list(POD, "default")).items
    return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}


def said(own: Home, job: str) -> str:
    """What the job's PodGroup waits for."""
    groups = ask(own, lambda client: client.list(GROUP, "default")).items
    return "".join(
        condition["message"]
        for group in groups
        if group["metadata"]["name"].startswith(f"{job}-")
        for condition in (group.get("status") or {}).get("conditions") or []
        if condition["type"] == "Waiting"
    )


@pytest.mark.slow
def test_limits_of_a_user_are_kept_and_told_also_after_a_restart(own: Home) -> None:
    kubeconfig = own.directory() / "kubeconfig"
    submit(own, "first")
    until("the first runs", lambda: "first-main-0" in bound(own))
    until(
        "all of the budget is used, and that is written down",
        lambda: re.search(
            r"^anna +cpu +.* +0\.002 +0 +", vcctl(kubeconfig, "top", "budgets")[1], re.M
        ),
    )
    submit(own, "second")
    used_up = "user anna has used 0.0"
    until("the second is told of the budget", lambda: used_up in said(own, "second"))
    assert " of 0.002 cpu hours; the budget is renewed at " in said(own, "second")
    assert used_up in vcctl(kubeconfig, "explain", "second")[1]
    submit(own, "third")
    limit = "user anna has 2 of 2 jobs submitted"
    until("the third is told of the limit", lambda: limit in said(own, "third"))

    before = own.pids()["scheduler"]
    os.kill(before, signal.SIGKILL)
    until("there is another scheduler", lambda: own.pids().get("scheduler", before) != before)
    ask(own, lambda client: client.delete(JOB, "first", "default"))
    submit(own, "other", user="ben")
    until("somebody else's job runs", lambda: "other-main-0" in bound(own))
    until("the third may come now", lambda: used_up in said(own, "third"))
    assert bound(own) == {"other-main-0"}
