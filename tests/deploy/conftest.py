"""helm, built where it is missing, or a skip that says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.chart import Chart, Helm
from tests.kubernetes import programs
from tests.kubernetes.conftest import servers

__all__ = ["servers"]


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return programs.wanted("helm")["helm"]


@pytest.fixture(scope="session")
def chart(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(Helm(helm_program, tmp_path_factory.mktemp("helm")))
