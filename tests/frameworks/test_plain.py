"""Runs that need nothing but Python: they tell in the default lane whether jobs of several
processes work at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.frameworks import expected
from tests.frameworks.runs import Runs, cluster

MASTER = """
import os, socket, time
time.sleep(1.5)  # a master that is slow to start
server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
ranks = set()
while len(ranks) < int(os.environ["WORLD_SIZE"]) - 1:
    connection, _ = server.accept()
    ranks |= set(connection.recv(9).decode())  # nothing, of one who only looked whether the port is open
print("met", *sorted(ranks))
"""
WORKER = """
import os, socket
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5).sendall(os.environ["RANK"].encode())
"""


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with cluster() as made:
        yield made


def test_three_workers_fit_a_line(runs: Runs) -> None:
    expected.parameter_server_learns(runs)


@pytest.mark.scenario("controllers", 48)
def test_workers_wait_for_a_master_that_is_slow(runs: Runs) -> None:
    """They try once, and must not be started before the master listens."""

    def task(name: str, replicas: int, program: str) -> dict[str, Any]:
        container = {"name": "main", "image": "python:3", "command": ["python3", "-c", program]}
        return {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }

    plugins = {"svc": [], "pytorch": ["--wait-master-enabled=true", "--wait-master-timeout=60"]}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "slow"},
        "spec": {
            "minAvailable": 3,
            "plugins": plugins,
            "policies": [{"event": "PodFailed", "action": "TerminateJob"}],
            "tasks": [task("master", 1, MASTER), task("worker", 2, WORKER)],
        },
    }
    assert runs.complete([job], 80)["slow-master-0"] == "met 1 2\n"
