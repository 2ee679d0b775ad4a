"""The slow lane's order and its end: the cheap and telling first, what has to be built or fetched
last, and nothing that begins too late.

`.ci/run` says how many minutes there are; without that, as when one runs a slow test by hand,
nothing is left out.  A test that takes more than a minute says so:
`@pytest.mark.slow(seconds=300)`, on a machine that has everything.  What builds and fetches asks
`left` how long it may try, and its tests are skipped when that is not enough.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict

import pytest

MINUTES = "HEKLA_SLOW_MINUTES"
SECONDS = 60.0
"""What a slow test takes at most if it does not say more."""
LAST = ("tests/clients/", "tests/frameworks/", "tests/deploy/", "tests/kubernetes/")
"""What needs programs of other people, in order of what those cost on a machine that has none."""
OF_OTHERS = {"servers": "tests/kubernetes/", "program": "tests/clients/"}
"""Fixture -> the room of what it builds, for tests of other rooms that use it."""

BEGAN = time.monotonic()


def left() -> float:
    """Seconds until the lane ends; infinite when it has no end."""
    limit = os.environ.get(MINUTES)
    return 60 * float(limit) - (time.monotonic() - BEGAN) if limit else math.inf


def needs(item: pytest.Item) -> float:
    """Seconds that a slow test takes."""
    marker = item.get_closest_marker("slow")
    return float(marker.kwargs.get("seconds", SECONDS)) if marker is not None else 0.0


def ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """Slow tests in the order of the lane.  A file stays together, for the sake of what its tests
    share."""
    cost: dict[tuple[int, str], float] = defaultdict(float)
    for item in items:
        key = (_place(item), item.nodeid.partition("::")[0])
        cost[key] = max(cost[key], needs(item))
    return sorted(
        items, key=lambda item: (_place(item), cost[_place(item), item.nodeid.partition("::")[0]])
    )


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("slow") is None:
        return -1
    parameters = getattr(item, "callspec", None)
    if parameters is not None and "kubernetes" in parameters.params.values():
        return len(LAST)  # on the reference server
    rooms = {OF_OTHERS.get(name, "") for name in getattr(item, "fixturenames", ())}
    return max(
        (
            1 + number
            for number, room in enumerate(LAST)
            if item.nodeid.startswith(room) or room in rooms
        ),
        default=0,
    )
