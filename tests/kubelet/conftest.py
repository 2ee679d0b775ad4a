"""What the kubelet's tests share: places to work in, and an end for every process that a test has
left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.local.kubelet.runtime.isolation import Isolation, detect
from hekla.local.kubelet.runtime.runtime import stop_all


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A kubelet's directory; what still runs in it afterwards is ended."""
    directory = tmp_path / "kubelet"
    directory.mkdir()
    yield directory
    stop_all(directory, grace=0.0)


@pytest.fixture(scope="session")
def isolation() -> Isolation:
    """What this machine allows."""
    return detect()


@pytest.fixture(scope="session")
def pods_have_networks(isolation: Isolation) -> None:
    """For what needs networks of pods; without them it is skipped, and says why there are none."""
    if not isolation.network:
        why = next(
            finding.why_not
            for finding in isolation.findings
            if finding.name == "network of its own"
        )
        pytest.skip(f"this machine gives pods no network of their own: {why}")
