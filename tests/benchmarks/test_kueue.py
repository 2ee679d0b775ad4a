"""Kueue's cases, simulated: what a cohort lends, and how long workloads wait."""

from __future__ import annotations

import pytest

from benchmarks.scoreboard.kueue import Case, figures, rules, workload
from hekla.simulator.simulation import simulate


def measured(case: Case) -> dict[str, tuple[float, str]]:
    (run,) = simulate(workload(case), [rules()])
    return figures(case, run)


def test_each_queue_has_its_own_quota() -> None:
    """Two queues with two workloads each that take all of it: the second waits for the first."""
    found = measured(Case(cohorts=1, queues=2, sets={"large": (2, 10, 100)}))
    assert found["wall"] == (200.0, "ms")
    assert found["large"] == (pytest.approx(45.0), "ms")
    assert found["usage"] == (pytest.approx(100.0), "%")


def test_a_priority_goes_first_in_its_queue() -> None:
    """20 of 20 are taken by the large one, which came with the small ones."""
    found = measured(Case(cohorts=1, queues=1, sets={"small": (1, 10, 50), "large": (1, 10, 100)}))
    assert found["large"] == (0.0, "ms")
    assert found["small"] == (pytest.approx(100.0), "ms")
