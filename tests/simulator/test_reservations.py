"""Reservations in simulations: what waits for a window starts on its edge, and a series ends no simulation late."""

from __future__ import annotations

from typing import Any

from hekla.engine.world import policy
from hekla.simulator import jobfile
from hekla.simulator.simulation import Run, Simulation

PLUGINS = ["gang", "predicates"]


def run(jobs: str, window: str, owners: str = "") -> Run:
    text = f"""
nodes: [{{name: n, allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}]
objects:
- apiVersion: scheduling.hekla.io/v1alpha1
  kind: Reservation
  metadata: {{name: r, uid: r}}
  spec: {{nodes: {{names: [n]}}, window: {window}{owners}}}
jobs:
{jobs}
"""
    workload: Any = jobfile.read(text, "jobs.yaml")
    return Simulation(workload, policy(plugins=PLUGINS, actions="allocate, backfill")).run()


def starts(of: Run) -> list[float | None]:
    return [None if job.started is None else job.started / 1e6 for job in of.jobs]


def test_what_waits_starts_as_the_window_closes() -> None:
    """Nothing else happens at that moment: a simulation begins at 2001-09-09T01:46:40Z."""
    jobs = "- {name: endless, duration: 1m, requests: {cpu: 1}}"
    found = run(jobs, '{start: "2001-09-09T01:50:00Z", duration: 10m}')
    assert starts(found) == [800.0]


def test_a_job_that_never_fits_between_the_windows_of_a_series_ends_the_simulation_all_the_same() -> (
    None
):
    jobs = "- {name: endless, duration: 1m, requests: {cpu: 1}}"
    found = run(jobs, '{schedule: "0 * * * *", duration: 10m}')
    assert starts(found) == [None]
