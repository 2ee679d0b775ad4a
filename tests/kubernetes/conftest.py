"""The reference server for the slow lane: one for the whole run, or a skip that says why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import programs
from tests.kubernetes.reference import Reference, reference


@pytest.fixture(scope="session")
def server() -> Iterator[Reference]:
    """A reference server without nodes."""
    try:
        programs.need(*programs.SERVER)
    except programs.CannotBuild as error:
        pytest.skip(str(error))
    with reference() as started:
        yield started


@pytest.fixture(scope="session")
def judge() -> dict[str, Path]:
    """Kubernetes' specs, what runs them, and kubectl."""
    try:
        return programs.need(*programs.JUDGE)
    except programs.CannotBuild as error:
        pytest.skip(str(error))
