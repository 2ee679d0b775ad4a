"""Real distributed runs: each program computes something that can be checked, and every process must have taken part."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.frameworks.environments import JAX, MPI, PYTORCH, RAY, TENSORFLOW
from tests.frameworks.runs import Runs, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
"""Seconds, with the installation of the largest framework."""

LINE = r"w=3\.000 b=1\.000"
"""What all that fit y = 3 x + 1 must find."""


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with cluster() as made:
        yield made


def needs(program: str, package: str) -> None:
    """Skips where a program of the system is missing; sshd lies where an ordinary user's PATH does not lead."""
    if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin") is None:
        pytest.skip(f"this machine has no {program} (apt-get install {package})")


@pytest.mark.scenario("controllers", 72)
def test_mpi_over_ssh_computes_pi(runs: Runs) -> None:
    needs("mpiexec", "openmpi-bin")
    needs("sshd", "openssh-server")
    MPI.environment()
    log = runs.run("mpi.yaml", 60)["mpi-mpimaster-0"]
    told = sorted(re.findall(r"rank (\d) of 2 on (\S+): pi is (3\.14159265)", log))
    assert told == [("0", "mpi-mpiworker-0", "3.14159265"), ("1", "mpi-mpiworker-1", "3.14159265")], log


def test_tensorflow_mirrors_over_two_workers(runs: Runs) -> None:
    TENSORFLOW.environment()
    logs = runs.run("tensorflow.yaml", 120)
    for me in range(2):
        assert re.search(rf"^worker {me} of 2: {LINE}$", logs[f"tensorflow-worker-{me}"], re.M), logs


def test_pytorch_averages_gradients(runs: Runs) -> None:
    PYTORCH.environment()
    log = runs.run("pytorch.yaml", 150)["pytorch-master-0"]
    assert re.search(rf"^rank 0 of 3: {LINE}, the same everywhere$", log, re.M), log


def test_jax_sees_the_devices_of_all(runs: Runs) -> None:
    JAX.environment()
    logs = runs.run("jax.yaml", 90)
    for me in range(3):
        assert re.search(rf"^process {me} of 3, 3 devices: {LINE}$", logs[f"jax-worker-{me}"], re.M), logs


def test_ray_runs_a_task_on_every_node(runs: Runs) -> None:
    RAY.environment()
    log = runs.run("ray.yaml", 150)["ray-driver-0"]
    assert "on ray-head-0 ray-worker-0 ray-worker-1\n" in log
    assert f"sum of squares {sum(i * i for i in range(1000))}\n" in log
