"""A day of 300,000 pods at its rate."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import dayrate
from benchmarks.clusters import cluster


def test_the_rate_is_that_of_the_day() -> None:
    """300,000 pods in 24 hours are 3.5 a second; the same jobs each time."""
    coming = dayrate.arrivals(dayrate.DAY)
    pods = sum(job["spec"]["minAvailable"] for _, job in coming)
    assert 290_000 < pods < 310_000
    assert dayrate.arrivals(600.0) == coming[: len(dayrate.arrivals(600.0))]


@pytest.mark.slow
def test_half_a_minute_of_it_on_a_local_cluster() -> None:
    """Real processes, 200 fake nodes: pods run soon after their job was made."""
    with cluster(nodes=0, fake_nodes=dayrate.NODES) as made:
        figure = asyncio.run(dayrate.day(made, dayrate.SHORT, 30))
    assert 0 < figure.value < 10
