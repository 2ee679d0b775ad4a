"""What holds for every test session: where its examples come from, how long its slow lane may take,
and that it leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from hypothesis import HealthCheck, settings

from tests import aftermath, lane

# No limits of time for an example: they would measure what else the machine does.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "landing", settings.get_profile("search"), derandomize=True, database=None, print_blob=True
)
settings.load_profile(os.environ.get("HEKLA_EXAMPLES", "search"))

_aftermath = pytest.StashKey[subprocess.Popen[bytes] | None]()


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A session begun in the background ignores Ctrl-C, and so would all that it starts, also
        # where that is what is tested.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_aftermath] = aftermath.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    waiting = config.stash.get(_aftermath, None)
    if waiting is not None:
        aftermath.end(waiting)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = lane.ordered(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and lane.needs(item) > lane.left():
        pytest.skip(
            f"{lane.needs(item):.0f} s are too much for what is left of the slow lane ({lane.MINUTES})"
        )
