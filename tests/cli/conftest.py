"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.answers import Answers, answering


@pytest.fixture(scope="module")
def running() -> Iterator[Answers]:
    """A server of prepared answers, for the tests of one module."""
    with answering() as answers:
        yield answers


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    running.asked.clear()
    return running
