"""The reference server for the slow lane: one for the whole run, or a skip that says why there is
none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import programs
from tests.kubernetes.reference import Reference, reference


@pytest.fixture(scope="session")
def servers() -> dict[str, Path]:
    """The programs of a reference server."""
    return programs.wanted(*programs.SERVER)


@pytest.fixture(scope="session")
def server(servers: dict[str, Path]) -> Iterator[Reference]:
    """A reference server without nodes."""
    with reference() as started:
        yield started


@pytest.fixture(scope="session")
def judge() -> dict[str, Path]:
    """Kubernetes' specs, what runs them, and kubectl."""
    return programs.wanted(*programs.JUDGE)
