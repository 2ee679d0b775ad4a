"""What each manifest's programs must have computed, and every process must have taken part."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from tests.cluster.api import Tree
from tests.frameworks.environments import JAX, MPI, PYTORCH, RAY, TENSORFLOW, cache
from tests.frameworks.runs import Runs

LINE = r"w=3\.000 b=1\.000"
"""What all that fit y = 3 x + 1 must find."""


def needs(program: str, package: str) -> None:
    """Skips where a program of the system is missing; sshd lies where an ordinary user's PATH does
    not lead."""
    if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin") is None:
        pytest.skip(f"this machine has no {program} (apt-get install {package})")


def parameter_server_learns(runs: Runs) -> None:
    logs = runs.run("parameter-server.yaml", 80)
    assert logs["parameter-server-ps-0"] == "3 workers, w=3.000 b=1.000\n"
    assert {logs[f"parameter-server-worker-{i}"] for i in range(3)} == {
        f"worker {i} is done\n" for i in range(3)
    }


def mpi_computes_pi(
    runs: Runs,
    manifest: str = "mpi.yaml",
    hosts: bool = True,
    change: Callable[[Tree, Tree], None] | None = None,
) -> None:
    """`hosts`: each rank must know itself on a host of its own."""
    needs("mpiexec", "openmpi-bin")
    needs("sshd", "openssh-server")
    MPI.environment()
    name = manifest.removesuffix(".yaml")
    log = runs.run(manifest, 90, change)[f"{name}-mpimaster-0"]
    told = sorted(re.findall(r"rank (\d) of 2 on (\S+): pi is 3\.14159265", log))
    assert [rank for rank, _ in told] == ["0", "1"], log
    assert not hosts or [host for _, host in told] == [
        f"{name}-mpiworker-0",
        f"{name}-mpiworker-1",
    ], log


def tensorflow_mirrors_two_workers(runs: Runs) -> None:
    TENSORFLOW.environment()
    logs = runs.run("tensorflow.yaml", 120)
    for me in range(2):
        assert re.search(rf"^worker {me} of 2: {LINE}$", logs[f"tensorflow-worker-{me}"], re.M), (
            logs
        )


def tensorflow_spreads_variables(runs: Runs) -> None:
    TENSORFLOW.environment()
    log = runs.run("tensorflow-ps.yaml", 180)["tensorflow-ps-chief-0"]
    said = re.search(rf"^2 servers, steps by worker \[(\d+), (\d+)\]: {LINE}$", log, re.M)
    assert said is not None and min(int(said[1]), int(said[2])) >= 20, log


def pytorch_averages_gradients(runs: Runs) -> None:
    PYTORCH.environment()
    log = runs.run("pytorch.yaml", 150)["pytorch-master-0"]
    assert re.search(rf"^rank 0 of 3: {LINE}, the same everywhere$", log, re.M), log


def jax_sees_the_devices_of_all(runs: Runs) -> None:
    JAX.environment()
    logs = runs.run("jax.yaml", 120)
    for me in range(3):
        assert re.search(
            rf"^process {me} of 3, 3 devices: {LINE}$", logs[f"jax-worker-{me}"], re.M
        ), logs


def ray_runs_a_task_on_every_node(runs: Runs) -> None:
    if cache().resolve().is_relative_to("/tmp"):
        pytest.skip(
            "the environments lie below /tmp, over which each pod of this manifest has a volume"
        )
    RAY.environment()
    # Each of Ray's own attempts to reach a head that is slow to come takes 30 s.
    log = runs.run("ray.yaml", 300)["ray-driver-0"]
    assert "on ray-head-0 ray-worker-0 ray-worker-1\n" in log
    assert f"sum of squares {sum(i * i for i in range(1000))}\n" in log
