"""The load-aware walk-through as its reader walks it, on two nodes of a local cluster whose processes really
burn: Prometheus scrapes the nodes, the descheduler has the scenario's policy, a heavy pod comes, and of the
pods beside it one moves to the idle node, once the mean over the window that was set is above the target."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.clients.test_prometheus import BUILD_PATIENCE, ask, program, running
from tests.cluster.api import Api, Tree, eventually, steadily
from tests.cluster.conftest import Kubectl, Namespace, find_kubectl
from tests.descheduler.test_live import Process
from tests.local.home import Home, home, until

__all__ = ["program"]

SCENARIOS = Path(__file__).parents[2].parent / "shared" / "scenarios"
PAGE = Path(__file__).parents[2] / "docs" / "descheduler.md"
HOT, IDLE = "node-0", "node-1"
WINDOW = 8.0
"""Seconds that use is averaged over; the article's readers would set 3m."""
BURN = """
import sys, time
began = time.monotonic()
while True:
    while time.thread_time() < float(sys.argv[1]) * (time.monotonic() - began):
        pass
    time.sleep(0.01)
"""
"""Takes so much of one processor, and catches up with what others took of it."""
LOW, HEAVY = 0.2, 0.35
"""What pods take; three of the one and the other are 95% of a node, and 75% without one of them."""

pytestmark = pytest.mark.skipif(
    not SCENARIOS.is_dir(), reason="the scenarios are not beside this repository"
)


class Walk:
    """A local cluster of two nodes of one cpu each, and what the reader types."""

    def __init__(self, own: Home, place: Path) -> None:
        kubeconfig = own.directory() / "kubeconfig"
        self.own, self.place, self.kubeconfig = own, place, kubeconfig
        self.api = Api(kubeconfig)
        self.kubectl: Kubectl = find_kubectl(kubeconfig, place / "kubectl-cache")
        self.ns = Namespace(self.api, "walk")
        self.kubectl("create", "namespace", "walk")
        self.api.wait(self.ns.path("serviceaccounts", "default"), lambda _: True)

    def scrapes(self) -> list[Tree]:
        """The page's account and scrape configuration."""
        section = PAGE.read_text().partition("### With Prometheus")[2]
        commands, settings = (
            section.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("sh", "yaml")
        )
        typed = commands.partition("\n")[2]  # the cluster is there
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        subprocess.run(
            ["sh", "-ec", typed], cwd=self.place, env=environment, check=True, timeout=60
        )
        (job,) = yaml.safe_load(settings.replace("KUBECONFIG", str(self.kubeconfig)))[
            "scrape_configs"
        ]
        return [{**job, "scrape_interval": "1s"}]

    def policy(self, address: str) -> str:
        """The scenario's, with this Prometheus and a window that suits a test."""
        text = (SCENARIOS / "08-descheduler-policy.yaml").read_text()
        policy = yaml.safe_load(yaml.safe_load(text)["data"]["policy.yaml"])
        (aware,) = (
            one["args"]
            for one in policy["profiles"][0]["pluginConfig"]
            if one["name"] == "LoadAware"
        )
        aware["duration"] = f"{WINDOW:g}s"
        aware["metrics"] |= {"address": address, "rateWindow": "4s", "step": "1s"}
        return str(yaml.safe_dump(policy))

    def low(self) -> list[Tree]:
        """The low-priority pods that run."""
        listed = self.api.get(self.ns.path("pods"), labelSelector="app=low-priority-app").tree
        return [
            pod
            for pod in listed["items"]
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def nodes(self) -> list[str]:
        return sorted(pod["spec"]["nodeName"] for pod in self.low())

    def heavy(self) -> None:
        """A pod of high priority that takes a third of the hot node."""
        container = {
            "name": "main",
            "image": "python",
            "command": ["python3", "-c", BURN, str(HEAVY)],
            "resources": {"requests": {"cpu": "50m"}},
        }
        spec = {"schedulerName": "volcano", "priorityClassName": "high-priority", "nodeSelector":
                {"kubernetes.io/hostname": HOT}, "containers": [container]}  # fmt: skip
        self.api.create(self.ns.path("pods"), {"metadata": {"name": "heavy"}, "spec": spec})
        self.api.wait(
            self.ns.path("pods", "heavy"), lambda pod: pod["status"]["phase"] == "Running"
        )


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    (tmp_path / "bin").mkdir()
    stress = tmp_path / "bin" / "stress"
    stress.write_text(f"#!/bin/sh\nexec python3 -c '{BURN}' {LOW}\n")
    stress.chmod(0o755)
    images = tmp_path / "images.yaml"
    images.write_text(yaml.safe_dump([{"image": "polinux/stress*", "path": [str(stress.parent)]}]))
    with home() as own:
        own.good("up", "--nodes=2", "--node-cpu=1", f"--images={images}")
        yield Walk(own, tmp_path)


@pytest.mark.slow(seconds=90)
@pytest.mark.timeout(BUILD_PATIENCE + 240)
def test_the_overloaded_node_is_relieved(program: Path, walk: Walk, tmp_path: Path) -> None:
    with running(program, tmp_path, walk.scrapes()) as prometheus:

        def value(query: str) -> dict[str, float]:
            found: Any = ask(prometheus, "query?" + urlencode({"query": query})) or {"result": []}
            return {one["metric"]["instance"]: float(one["value"][1]) for one in found["result"]}

        cores = 'rate(container_cpu_usage_seconds_total{id="/"}[4s])'
        until("both nodes are scraped", lambda: value(cores).keys() == {HOT, IDLE})
        text = walk.policy(prometheus)
        process = Process(
            tmp_path / "descheduler", walk.kubeconfig, text, "--descheduling-interval=1s"
        )
        try:
            walk.kubectl("cordon", IDLE)
            file = (SCENARIOS / "08-load-aware.yaml").read_text()
            walk.kubectl("-n", "walk", "apply", "-f", "-", stdin=file)
            eventually(lambda: walk.nodes() == [HOT] * 3)
            walk.kubectl("uncordon", IDLE)
            eventually(lambda: value(cores)[HOT] > 0.5)
            steadily(lambda: walk.nodes() == [HOT] * 3, 3)
            before = {pod["metadata"]["uid"] for pod in walk.low()}

            walk.heavy()
            began = time.monotonic()
            eventually(lambda: walk.nodes() == [HOT, HOT, IDLE])
            # 60% before and 95% since: the mean is above 80% when more than half of the window is full
            assert time.monotonic() - began > 0.4 * WINDOW
            eventually(lambda: value(cores)[HOT] < 0.8 and value(cores)[IDLE] > 0.1)
            # calm: no second one goes, neither on what was measured before the first nor to and fro
            steadily(lambda: walk.nodes() == [HOT, HOT, IDLE], 2 * WINDOW)
            assert len({pod["metadata"]["uid"] for pod in walk.low()} & before) == 2
        finally:
            process.stop()
    events = walk.api.get(walk.ns.path("events")).tree["items"]
    (event,) = [event for event in events if event["reason"] == "LoadAware"]
    assert event["message"].startswith(
        f"pod evicted from {HOT} node by the descheduler: node {HOT} is over its target: cpu "
    )
    assert process.log.read_text().count("Evicted pod: ") == 1
