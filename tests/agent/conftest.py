from __future__ import annotations

from pathlib import Path

import pytest

from hekla.agent.cgroups import Version
from tests.agent.trees import Trees


@pytest.fixture
def v1(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "cgroup", Version.V1)


@pytest.fixture
def v2(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "cgroup", Version.V2)
