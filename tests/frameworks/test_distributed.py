"""Real distributed runs where pods have all that keeps them apart: networks, files and host names
of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.frameworks import expected
from tests.frameworks.runs import Runs, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(780)]
"""Seconds: with the installation of the largest framework, which has its own limit."""


SCENARIO = Path(__file__).parents[2].parent / "shared" / "scenarios" / "06-mpi-job.yaml"


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with cluster() as made:
        yield made


@pytest.mark.scenario("controllers", 43)
def test_mpi_over_ssh_computes_pi(runs: Runs) -> None:
    expected.mpi_computes_pi(runs)


@pytest.mark.skipif(not SCENARIO.exists(), reason="the scenarios are not beside this repository")
def test_scenario_06_as_it_is(runs: Runs) -> None:
    """Nothing waits for the workers' sshd there: a master that came too early is started again."""
    expected.needs("mpiexec", "openmpi-bin")
    expected.needs("sshd", "openssh-server")
    log = runs.complete([yaml.safe_load(SCENARIO.read_text())], 90)["mpi-job-mpimaster-0"]
    assert {"mpi-job-mpiworker-0", "mpi-job-mpiworker-1"} <= set(log.split()), log


@pytest.mark.scenario("controllers", 43)
def test_tensorflow_mirrors_two_workers(runs: Runs) -> None:
    expected.tensorflow_mirrors_two_workers(runs)


@pytest.mark.scenario("controllers", 43)
def test_tensorflow_spreads_variables_over_parameter_servers(runs: Runs) -> None:
    expected.tensorflow_spreads_variables(runs)


@pytest.mark.scenario("controllers", 43)
def test_pytorch_averages_gradients(runs: Runs) -> None:
    expected.pytorch_averages_gradients(runs)


def test_jax_sees_the_devices_of_all(runs: Runs) -> None:
    expected.jax_sees_the_devices_of_all(runs)


@pytest.mark.scenario("controllers", 44)
def test_ray_runs_a_task_on_every_node(runs: Runs) -> None:
    expected.ray_runs_a_task_on_every_node(runs)
