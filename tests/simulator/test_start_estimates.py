"""Start estimates: nobody starts later than was foreseen, by what the engine then does with the same
knowledge; and where nodes are chosen by no score, everybody starts just then."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api.text.times import stamp
from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import Estimation, StartEstimate
from hekla.engine.framework.session import Session
from hekla.engine.model.time.arrivals import Arrival, Arrivals
from hekla.simulator import swf
from hekla.simulator.objects import pod
from hekla.simulator.simulation import Simulation
from hekla.simulator.start_estimates import EstimatedSimulation, accuracy
from hekla.simulator.workload import SimulatedJob, Workload
from tests.simulator.test_simulation import SECOND
from tests.simulator.test_timed_backfill import (
    GANGS,
    LOGS,
    PROCESSORS,
    cluster_of_gangs,
    log,
    rules,
)

MODES = st.sampled_from(["", "strict", "easy"])


class Foreseen(Simulation):
    """A simulation that writes down all estimates at one moment: when the last job has come."""

    def __init__(self, workload: Workload, rules: Any, period: int = 0) -> None:
        super().__init__(workload, rules, period=period)
        self.estimates: dict[str, StartEstimate] = {}
        self.last = max(job.submit for job in workload.jobs)
        hooks_of(self.state, self.policy).keeps_session = True

    def _decide(self) -> None:
        super()._decide()
        session = hooks_of(self.state, self.policy).session
        if self.now == self.last and not self.estimates and isinstance(session, Session):
            self.estimates = Estimation(session).run()


def foreseen(
    workload: Workload, rules: Any, period: int = 0
) -> dict[str, tuple[StartEstimate, float]]:
    """Of each job that waits once all have come: the estimate (in seconds since the beginning), and
    when it started."""
    simulation = Foreseen(workload, rules, period)
    run = simulation.run()
    starts = {one.job.key: one.started for one in run.jobs}
    found = {}
    for key, one in simulation.estimates.items():
        started = starts[key]
        assert started is not None
        found[key] = one._replace(at=one.at - simulation.beginning / SECOND), started / SECOND
    return found


def truthful(of: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Gangs that run just as long as they say."""
    return [(submit, length, 0, *rest) for submit, length, _, *rest in of]


@settings(deadline=None, max_examples=60)
@given(GANGS, MODES)
def test_gangs_start_when_it_was_foreseen(of: list[tuple[int, ...]], mode: str) -> None:
    for one, started in foreseen(cluster_of_gangs(truthful(of)), rules(mode)).values():
        assert one.at == pytest.approx(started, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(GANGS)
def test_conservative_starts_nobody_later_than_was_foreseen(of: list[tuple[int, ...]]) -> None:
    for one, started in foreseen(cluster_of_gangs(truthful(of)), rules("conservative")).values():
        assert one.latest
        assert one.at >= started - 1e-3


@settings(deadline=None, max_examples=40)
@given(LOGS, MODES, st.sampled_from([0, 1]), st.booleans())
def test_jobs_of_a_machine_start_when_it_was_foreseen(
    of: list[tuple[int, int, int, int]], mode: str, each: int, shortest: bool
) -> None:
    of = [(submit, max(length, 1), processors, 0) for submit, length, processors, _ in of]
    order = "shortest-first" if shortest else "fifo"
    lines = [f"; MaxProcs: {PROCESSORS}", *log(of)]
    workload = swf.read(lines, "a", pod_processors=each, order=order)
    for one, started in foreseen(workload, rules(mode)).values():
        assert one.at == pytest.approx(started, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(GANGS)
def test_nobody_starts_later_though_jobs_end_before_their_time(of: list[tuple[int, ...]]) -> None:
    """Of times that the policy keeps: who has the reservation, and all with conservative."""
    for mode in ("easy", "conservative"):
        for one, started in foreseen(cluster_of_gangs(of), rules(mode)).values():
            if one.latest:
                assert one.at >= started - 1e-3


class Foretold(Arrivals):
    """Knows who will come."""

    def __init__(self, simulation: Simulation, jobs: list[SimulatedJob]) -> None:
        super().__init__(simulation.state.job_table.queues, 0.0)
        begin, read = simulation.beginning / SECOND, simulation.state.pods.read
        self.to_come = []
        for job in sorted(jobs, key=lambda job: job.submit):
            (role,) = job.templates()
            task = read(pod(job, role, f"{job.name}-0", "", ""))
            walltime = math.inf if job.walltime is None else job.walltime / SECOND
            come = job.submit / SECOND + begin
            parts = ((task, job.min_available),)
            self.to_come.append((come, Arrival(come, job.queue, parts, job.pods, walltime)))

    def days(self, now: float) -> Iterator[list[tuple[float, Arrival]]]:
        yield [one for one in self.to_come if one[0] > now]


@settings(deadline=None, max_examples=60)
@given(LOGS, MODES)
def test_who_knows_the_jobs_to_come_foresees_every_start(
    of: list[tuple[int, int, int, int]], mode: str
) -> None:
    of = [(submit, max(length, 1), processors, 0) for submit, length, processors, _ in of]
    workload = swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a")
    simulation = EstimatedSimulation(workload, rules(mode))
    simulation.state.job_table.arrivals = Foretold(simulation, workload.jobs)
    run = simulation.run()
    for one in run.jobs:
        if one.job.key in simulation.first:
            assert one.started is not None
            assert simulation.first[one.job.key] == pytest.approx(one.started / SECOND, abs=1e-3)


def test_a_day_like_the_one_before_is_foreseen() -> None:
    """Each day the fifth takes the room that the fourth would have had once the second ends."""
    minute, day = 60, 86_400
    each = [(0, 60, 4), (0, 30, 2), (1, 60, 8), (2, 20, 4), (10, 45, 2)]
    of = [
        (number * day + come * minute, length * minute, processors, 0)
        for number in range(4)
        for come, length, processors in each
    ]
    workload = swf.read(["; MaxProcs: 8", *log(of)], "a")
    simulation = EstimatedSimulation(workload, rules("easy"))
    run = simulation.run()
    errors = [
        simulation.first[one.job.key] - (one.started or 0) / SECOND
        for one in run.jobs
        if one.job.duration == 20 * minute * SECOND
    ]
    assert errors == [-90 * minute, 0, 0, 0]


def test_how_true_estimates_came() -> None:
    """Backfill of a job that comes later holds up the third; the second was kept its time."""
    workload = swf.read(
        [
            "; MaxProcs: 8",
            *log([(0, 100, 6, 0), (1, 50, 8, 0), (2, 200, 2, 0), (3, 90, 2, 0)]),
        ],
        "a",
    )
    simulation = EstimatedSimulation(workload, rules("easy"))
    run = simulation.run()
    assert simulation.first == {
        "simulated/job-00000001": 100.0,
        "simulated/job-00000002": 150.0,
    }
    found = accuracy(simulation, run)
    assert (found.jobs, found.waited, found.within_minute) == (4, 2, 1.0)
    assert (found.median_error, found.p90_error) == (0.0, 0.0)


@settings(deadline=None, max_examples=25)
@given(GANGS, MODES, st.integers(20, 120), st.integers(5, 60), st.sampled_from([1, 2, 4]))
def test_gangs_start_when_it_was_foreseen_round_a_maintenance_window(
    of: list[tuple[int, ...]], mode: str, opens: int, length: int, nodes: int
) -> None:
    workload = cluster_of_gangs(truthful(of))
    begin = workload.beginning / SECOND
    window = {"start": stamp(begin + opens), "end": stamp(begin + opens + length)}
    names = [f"n{number}" for number in range(nodes)]
    workload.cluster.append(
        {
            "kind": "Reservation",
            "metadata": {"name": "maintenance", "uid": "m"},
            "spec": {"nodes": {"names": names}, "window": window},
        }
    )
    for one, started in foreseen(workload, rules(mode), period=SECOND).values():
        assert one.at == pytest.approx(started, abs=1e-3)
