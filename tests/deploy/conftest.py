"""helm, built where it is missing, or a skip that says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.local.kubelet.runtime import preload
from hekla.local.kubelet.runtime.isolation import detect
from tests.deploy.chart import Chart, Helm
from tests.kubernetes import programs
from tests.kubernetes.conftest import servers

__all__ = ["servers"]


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return programs.wanted("helm")["helm"]


@pytest.fixture(scope="session")
def ports_of_their_own() -> None:
    """Copies of one Deployment listen at the same port: pods need a network, or the library that
    keeps their ports apart."""
    if not detect().network and preload.compiler() is None:
        pytest.skip(
            "this machine gives pods no network of their own, and has no compiler for the library that keeps their ports apart"
        )


@pytest.fixture(scope="session")
def chart(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(Helm(helm_program, tmp_path_factory.mktemp("helm")))
