"""Defragmentation by the daemons of a cluster: what `vcctl top fragmentation --plan` says is what the
action does, and then who waited has room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import batch
from hekla.api.kubernetes import core
from tests.cluster.vcctl import vcctl
from tests.local.home import Home, ask, home, until

JOB, POD, EVENT = batch.JOB.untyped, core.POD.untyped, core.EVENT.untyped
SPREADING = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]
"""
MOVING = """
actions: "enqueue, allocate, defragment"
configurations:
- name: defragment
  arguments: {minGain: 20}
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: fragmentation}]
"""
"""A gain of a fifth of a node's cpu is enough."""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The scheduler takes what is written there."""
    path = tmp_path / "policy.yaml"
    path.write_text(SPREADING)
    return path


@pytest.fixture
def own(policy: Path) -> Iterator[Home]:
    """Two nodes of 8 cpu whose pods only pretend to run."""
    with home() as made:
        made.good(
            "up", "--nodes=0", "--fake-nodes=2", "--fake-node-cpu=8", f"--scheduler-conf={policy}"
        )
        yield made


def submit(own: Home, name: str, cpu: int) -> None:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": str(cpu)}},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    tasks = [{"name": "main", "replicas": 1, "template": template}]
    tree: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "tasks": tasks},
    }
    ask(own, lambda client: client.create(JOB, tree))


def nodes(own: Home) -> dict[str, str]:
    """Pod -> node."""
    pods = ask(own, lambda client: client.list(POD, "default")).items
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}


@pytest.mark.slow
def test_it_moves_what_it_said_and_who_waited_has_room(
    own: Home, policy: Path, tmp_path: Path
) -> None:
    kubeconfig = own.directory() / "kubeconfig"
    submit(own, "left", 2)
    until("the first has a node", lambda: nodes(own).get("left-main-0"))
    submit(own, "right", 2)
    until("the second has a node", lambda: nodes(own).get("right-main-0"))
    before = nodes(own)
    assert len(set(before.values())) == 2, "each has a node of its own"
    submit(own, "large", 8)
    until(
        "the third finds no node",
        lambda: "2 lack cpu" in vcctl(kubeconfig, "job", "explain", "large")[1],
    )

    then = tmp_path / "moving.yaml"
    then.write_text(MOVING)
    code, said = vcctl(kubeconfig, "top", "fragmentation", "--plan", "--policy", str(then))
    assert code == 0, said
    planned = re.findall(r"^default/(\S+) +(\S+) +(\S+) +\d\.\d\d$", said, re.MULTILINE)
    ((moved, source, target),) = planned
    assert before[moved] == source and target in before.values() and target != source
    assert "Pods that wait and would fit then: 1 of default/large" in said
    assert nodes(own) == {**before, "large-main-0": ""}, "a plan does nothing"

    policy.write_text(MOVING)
    after = {**before, moved: target, "large-main-0": source}
    until("all have the planned nodes", lambda: nodes(own) == after)
    events = ask(own, lambda client: client.list(EVENT, "default")).items
    told = [one["message"] for one in events if "moved so that" in one.get("message", "")]
    assert told, [(one["reason"], one["message"]) for one in events]
    assert "moved so that more of what is free can be used: fragmentation falls by" in told[0]
    assert f"{target} has room for it; pods that then fit: 1 of default/large" in told[0]
    evicted = {one["involvedObject"]["name"] for one in events if one["reason"] == "Evict"}
    assert evicted & set(after) == {moved}
