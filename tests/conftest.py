"""The slow lane always ends in time: a slow test that would begin too late is skipped, and says so.

`.ci/run` sets the minutes; without them, as when one runs a slow test by hand, nothing is left out.
"""

from __future__ import annotations

import os
import time

import pytest

BEGAN = time.monotonic()
MINUTES = "HEKLA_SLOW_MINUTES"


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = os.environ.get(MINUTES)
    if limit and item.get_closest_marker("slow") and time.monotonic() - BEGAN > 60 * float(limit):
        pytest.skip(f"the slow lane has used its {limit} minutes ({MINUTES})")
