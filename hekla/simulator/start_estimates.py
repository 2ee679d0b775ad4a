"""How true start estimates come: each job's first one, made when it has come and does not start at
once, against its start."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import Estimation
from hekla.engine.framework.policy import Policy
from hekla.engine.framework.session import Session
from hekla.engine.model.time.arrivals import Arrivals
from hekla.simulator.outcome import Accuracy, quantile, wait_of
from hekla.simulator.run import Run
from hekla.simulator.simulation import Simulation
from hekla.simulator.workload import MICROSECONDS, Workload

MINUTE = 60.0


class EstimatedSimulation(Simulation):
    """A simulation that asks about the start of every job that waits, once."""

    def __init__(self, workload: Workload, policy: Policy, period: int = 0) -> None:
        super().__init__(workload, policy, period=period)
        self.first: dict[str, float] = {}
        """Job -> the first estimate of its start, in seconds since the beginning; infinite where it
        was not known."""
        self._to_come = deque(sorted(workload.jobs, key=lambda job: job.submit))
        """Jobs that have not been asked about."""
        hooks_of(self.state, self.policy).keeps_session = True
        table = self.state.job_table
        table.arrivals = Arrivals(table.queues, self.beginning / MICROSECONDS)

    def _decide(self) -> None:
        super()._decide()
        fresh = []
        while self._to_come and self._to_come[0].submit <= self.now:
            key = self._to_come.popleft().key
            if self.runs[key].started is None:
                fresh.append(key)
        session = hooks_of(self.state, self.policy).session
        if fresh and isinstance(session, Session):
            found = Estimation(session).run()
            for key in fresh:
                at = found[key].at if key in found else math.inf
                self.first[key] = float(at) - self.beginning / MICROSECONDS


def accuracy(simulation: EstimatedSimulation, run: Run) -> Accuracy:
    """Of the jobs that have started."""
    started = [one for one in run.jobs if one.started is not None]
    errors: list[tuple[float, float]] = []
    for one in started:
        first = simulation.first.get(one.job.key)
        if first is not None and one.started is not None:
            errors.append((abs(first - one.started / MICROSECONDS), wait_of(one)))
    off = sorted(error for error, _ in errors)
    near = sum(1 for error in off if error <= MINUTE)
    at_once = len(started) - len(errors)
    return Accuracy(
        jobs=len(started),
        waited=len(errors),
        unknown=sum(1 for error in off if math.isinf(error)),
        median_error=quantile(off, 0.5),
        p90_error=quantile(off, 0.9),
        median_relative=quantile(sorted(error / wait for error, wait in errors if wait > 0), 0.5),
        within_minute=(near + at_once) / len(started) if started else math.nan,
        waited_within_minute=near / len(errors) if errors else math.nan,
    )


def simulate_with_estimates(
    workload: Workload,
    policies: Sequence[Policy],
    until: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    period: int = 0,
) -> list[tuple[Run, Accuracy]]:
    """As `simulate`, with how true the first estimates came under each policy."""
    made = [EstimatedSimulation(workload, policy, period) for policy in policies]
    return [(run := one.run(until, progress), accuracy(one, run)) for one in made]
