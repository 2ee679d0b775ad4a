"""Backfill that minds time: who waits is held up by nobody, and a machine is served as the textbook
says."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hekla.engine.actions.timed_backfill import TimedBackfill
from hekla.engine.model.tasks import Job
from hekla.engine.world import policy
from hekla.simulator import swf
from hekla.simulator.run import Run
from hekla.simulator.simulation import Simulation, simulate
from hekla.simulator.workload import SimulatedJob, Workload, node, queue
from tests.simulator.test_simulation import SECOND, times

PROCESSORS = 8
LOGS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(0, 40), st.integers(1, PROCESSORS), st.integers(0, 30)
    ),
    min_size=1,
    max_size=16,
)
"""Jobs: arrival, run time, processors, and how much longer than it runs each says it does."""


def rules(mode: str) -> Any:
    return policy(
        plugins=["gang", "predicates"],
        actions="allocate, backfill",
        configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
    )


def log(of: list[tuple[int, int, int, int]]) -> list[str]:
    return [
        f"{number} {submit} -1 {length} -1 -1 -1 {processors} {length + more} -1 1"
        for number, (submit, length, processors, more) in enumerate(of)
    ]


def textbook(of: list[tuple[int, int, int, int]], mode: str, shortest: bool) -> dict[str, int]:
    """Start times on a machine without parts, in a few lines: ends before arrivals, the first of
    the queue first, then those behind it that end before its time or leave it its processors."""
    jobs = [(f"job-{number:08d}", *one) for number, one in enumerate(of)]
    arrivals = sorted(jobs, key=lambda job: (job[1], job[0]))
    order = (lambda job: (walltime(job), *job[1::-1])) if shortest else (lambda job: job[1::-1])  # fmt: skip
    free, now = PROCESSORS, 0
    waiting: list[Any] = []
    running: list[tuple[int, int, int]] = []
    started: dict[str, int] = {}

    def start(job: Any) -> None:
        nonlocal free
        free -= job[3]
        started[job[0]] = now
        heapq.heappush(running, (now + job[2], now + walltime(job), job[3]))

    def walltime(job: Any) -> int:
        return int(job[2] + job[4])

    while arrivals or running:
        now = min([job[1] for job in arrivals[:1]] + [end for end, _, _ in running[:1]])
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[2]
        while arrivals and arrivals[0][1] <= now:
            waiting.append(arrivals.pop(0))
        waiting.sort(key=order)
        while waiting and waiting[0][3] <= free:
            start(waiting.pop(0))
        if not waiting or mode == "strict":
            continue
        need, ready, when = waiting[0][3], free, now
        for end, size in sorted((max(said, now), size) for _, said, size in running):
            ready, when = ready + size, end
            if ready >= need:
                break
        ready = free + sum(size for _, said, size in running if max(said, now) <= when)
        beside = ready - need
        for job in waiting[1:]:
            ends_before = now + walltime(job) <= when
            if job[3] <= free and (ends_before or job[3] <= beside):
                beside -= 0 if ends_before else job[3]
                start(job)
        waiting = [job for job in waiting if job[0] not in started]
    return started


@settings(deadline=None, max_examples=80)
@given(LOGS, st.sampled_from(["strict", "easy"]), st.booleans())
def test_a_machine_is_served_as_the_textbook_says(
    of: list[tuple[int, int, int, int]], mode: str, shortest: bool
) -> None:
    # A job of no time is over when it begins; the textbook has it hold its processors until then.
    of = [(submit, max(length, 1), processors, more) for submit, length, processors, more in of]
    workload = swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a")
    if shortest:
        workload.cluster[-1] = queue("default", "shortest-first")
    (found,) = simulate(workload, [rules(mode)])
    assert {job: start for job, (start, _) in times(found).items()} == textbook(of, mode, shortest)


@settings(deadline=None, max_examples=30)
@given(LOGS)
def test_processors_as_nodes_of_their_own_make_no_difference(
    of: list[tuple[int, int, int, int]],
) -> None:
    whole, parts = (
        times(
            simulate(
                swf.read([f"; MaxProcs: {PROCESSORS}", *log(of)], "a", pod_processors=each),
                [rules("easy")],
            )[0]
        )
        for each in (0, 1)
    )
    assert whole == parts


GANGS = st.lists(
    st.builds(
        lambda submit, length, more, pods, cpu, gpu: (submit, length, more, pods, cpu, gpu),
        st.integers(0, 60),
        st.integers(1, 40),
        st.integers(0, 20),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(0, 1),
    ),
    min_size=2,
    max_size=14,
)


def cluster_of_gangs(of: list[tuple[int, ...]]) -> Workload:
    jobs = [
        SimulatedJob(
            f"job-{number:02d}",
            submit * SECOND,
            length * SECOND,
            {"cpu": str(cpu), **({"nvidia.com/gpu": str(gpu)} if gpu else {})},
            pods=pods,
            min_available=pods,
            walltime=(length + more) * SECOND,
        )
        for number, (submit, length, more, pods, cpu, gpu) in enumerate(of)
    ]
    nodes = [
        node(f"n{number}", {"cpu": "4", "pods": "10", "nvidia.com/gpu": str(number % 2 + 1)})
        for number in range(4)
    ]
    return Workload(jobs, [*nodes, queue("default", "fifo")])


@settings(deadline=None, max_examples=60)
@given(GANGS)
def test_the_first_that_waits_starts_when_it_was_foreseen_or_sooner(
    of: list[tuple[int, ...]],
) -> None:
    foreseen: dict[str, float] = {}

    class Watched(TimedBackfill):
        def _reserves(self, job: Job) -> bool:
            found = super()._reserves(job)
            if self.kept is not None:
                start = self.kept.start - 1_000_000_000
                assert start <= foreseen.get(job.name, start) + 1e-6
                foreseen.setdefault(job.name, start)
            return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hekla.engine.actions.timed_backfill.TimedBackfill", Watched)
        (found,) = simulate(cluster_of_gangs(of), [rules("easy")])
    assert not found.problems
    for one in found.jobs:
        assert one.ended is not None
        if one.job.name in foreseen and one.started is not None:
            assert one.started / SECOND <= foreseen[one.job.name] + 1e-6


@settings(deadline=None, max_examples=60)
@given(GANGS)
# Times that begin at this very moment: their room is free on the nodes, and not anybody's to have.
@example(
    [(53, 15, 19, 3, 4, 1), (29, 13, 15, 3, 1, 1), (35, 40, 20, 1, 2, 1), (16, 39, 0, 4, 3, 1)]
)
@example(
    [
        (12, 21, 0, 3, 4, 0),
        (11, 29, 17, 1, 1, 0),
        (15, 13, 2, 1, 4, 0),
        (14, 1, 17, 2, 1, 1),
        (28, 9, 5, 2, 2, 1),
        (26, 21, 5, 2, 3, 0),
    ]
)
def test_nobody_starts_later_than_it_was_given(of: list[tuple[int, ...]]) -> None:
    given_times: dict[str, float] = {}

    class Watched(TimedBackfill):
        def _keep_all(self) -> None:
            super()._keep_all()
            for key, span in self.line.spans.items():
                assert span.start <= given_times.get(key, span.start) + 1e-6
                given_times.setdefault(key, span.start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hekla.engine.actions.timed_backfill.TimedBackfill", Watched)
        (found,) = simulate(cluster_of_gangs(of), [rules("conservative")])
    assert not found.problems
    for one in found.jobs:
        assert one.ended is not None and one.started is not None
        promised = given_times.get(f"simulated/{one.job.name}")
        if promised is not None:
            assert one.started / SECOND <= promised - 1_000_000_000 + 1e-6


@settings(deadline=None, max_examples=30)
@given(GANGS)
def test_what_is_kept_from_cycle_to_cycle_decides_nothing(of: list[tuple[int, ...]]) -> None:
    """Every cycle as if it were the first: the same jobs start at the same moments."""

    class Forgetful(Simulation):
        def _decide(self) -> None:
            self.policy = dataclasses.replace(self.policy)
            super()._decide()

    def starts(found: Run) -> list[int | None]:
        return [one.started for one in found.jobs]

    kept = Simulation(cluster_of_gangs(of), rules("easy")).run()
    afresh = Forgetful(cluster_of_gangs(of), rules("easy")).run()
    assert starts(kept) == starts(afresh)
