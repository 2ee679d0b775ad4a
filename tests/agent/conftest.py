from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.agent.cgroups import Version
from tests.agent.kernel import Kernel, own_directory
from tests.agent.trees import Trees


@pytest.fixture
def v1(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "cgroup", Version.V1)


@pytest.fixture
def v2(tmp_path: Path) -> Trees:
    return Trees(tmp_path / "cgroup", Version.V2)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with own_directory("hekla-test", "cpu", "memory") as cgroups:
        yield Kernel(cgroups)
