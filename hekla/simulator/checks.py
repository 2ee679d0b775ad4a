"""What of a workload could never run, found before anything does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hekla.engine.model.resources import amounts
from hekla.engine.model.state import State
from hekla.simulator.objects import pod_group
from hekla.simulator.workload import InputError, SimulatedJob


def check(jobs: Iterable[SimulatedJob], state: State) -> None:
    """Every job fits an empty cluster and names what is there, so that none waits for ever by
    mistake.  Raises InputError."""
    state.count_changes()
    total = state.nodes.total()
    for job in jobs:
        if job.given:  # A cluster has jobs that nobody can run, and they wait.
            continue
        if job.queue not in state.queues:
            known = ", ".join(sorted(state.queues)) or "none"
            raise InputError(
                f'job "{job.name}": queue = "{job.queue}" does not exist; there are: {known}'
            )
        if job.priority_class and job.priority_class not in state.job_table.priority_classes:
            raise InputError(
                f'job "{job.name}": priorityClass = "{job.priority_class}" does not exist; '
                f"there are: {', '.join(sorted(state.job_table.priority_classes)) or 'none'}"
            )
        for name, amount in _least(job).items():
            if amount > total.get(name, 0.0) and name != "pods":
                scale = 1000.0 if name == "cpu" else 1.0
                asked = " and ".join(
                    f"{role.pods if job.roles else job.min_available} pods of {name}={role.requests[name]}"
                    for role in job.templates()
                    if name in role.requests
                )
                raise InputError(
                    f'job "{job.name}": {asked} are more than the cluster has ({total.get(name, 0.0) / scale:g})'
                )


def _least(job: SimulatedJob) -> Mapping[str, float]:
    """What its minimum requests, in the engine's units."""
    return amounts(pod_group(job, "")["spec"]["minResources"])
