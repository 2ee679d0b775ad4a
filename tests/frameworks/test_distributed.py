"""Real distributed runs where pods have all that keeps them apart: networks, files and host names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks import expected
from tests.frameworks.runs import Runs, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
"""Seconds, with the installation of the largest framework."""


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with cluster() as made:
        yield made


@pytest.mark.scenario("controllers", 43)
def test_mpi_over_ssh_computes_pi(runs: Runs) -> None:
    expected.mpi_computes_pi(runs)


@pytest.mark.scenario("controllers", 43)
def test_tensorflow_mirrors_two_workers(runs: Runs) -> None:
    expected.tensorflow_mirrors_two_workers(runs)


@pytest.mark.scenario("controllers", 43)
def test_pytorch_averages_gradients(runs: Runs) -> None:
    expected.pytorch_averages_gradients(runs)


def test_jax_sees_the_devices_of_all(runs: Runs) -> None:
    expected.jax_sees_the_devices_of_all(runs)


@pytest.mark.scenario("controllers", 44)
def test_ray_runs_a_task_on_every_node(runs: Runs) -> None:
    expected.ray_runs_a_task_on_every_node(runs)
