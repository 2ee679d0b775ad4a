"""A cluster that comes up with other nodes: those of before leave, and nothing is bound to them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

import psutil
import pytest

from hekla.api.kubernetes import core
from tests.local.home import ask, home, until

POD = core.POD.untyped

pytestmark = [pytest.mark.slow(seconds=20), pytest.mark.timeout(240)]


def waiting(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["true"],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def test_nodes_that_are_shown_no_more_leave_with_the_next_up() -> None:
    """Pods wait for a node when the power goes, and the nodes of before say Ready when it is back."""
    with home() as own:
        own.good("up", "--nodes", "3", "--fake-nodes", "3")
        os.kill(own.pids()["scheduler"], signal.SIGSTOP)
        for number in range(6):
            ask(
                own,
                lambda client, number=number: client.create(
                    POD, waiting(f"waits-{number}"), "default"
                ),
            )
        while left := own.processes():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        own.good("up", "--nodes", "2", "--fake-nodes", "0")
        assert {
            node.metadata.name for node in ask(own, lambda client: client.list(core.NODE)).items
        } == {"node-0", "node-1"}

        def bound() -> list[str]:
            pods = ask(own, lambda client: client.list(core.POD, "default")).items
            return [pod.spec.node_name for pod in pods if pod.spec.node_name]

        until("all are bound", lambda: len(bound()) == 6)
        assert set(bound()) <= {"node-0", "node-1"}
