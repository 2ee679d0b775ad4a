"""A small, seeded share of the kills that `python -m tests.chaos` makes by the hundred."""

from __future__ import annotations

import asyncio
import os

import pytest

from hekla.local.cluster.cluster import Cluster
from tests.chaos.storm import Storm
from tests.local.home import home

pytestmark = [pytest.mark.slow(seconds=35), pytest.mark.timeout(400)]


def test_what_was_acknowledged_outlives_every_death() -> None:
    with home() as own:
        own.good("up")
        storm = Storm(
            Cluster(own.directory()),
            {"XDG_STATE_HOME": str(own.state)},
            700,
            int(os.environ.get("HEKLA_CHAOS_SEED") or 1),
        )
        tally = asyncio.run(storm.rage(9, 0.5))
        print(tally.text())
        assert (tally.lost, tally.backwards, tally.failed) == ([], [], [])
        assert sum(tally.kills.values()) == 9 and len(tally.ups) == 2
        own.good("down", "--delete")
        assert own.left() == []
