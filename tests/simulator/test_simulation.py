"""What happens in virtual time: arrivals, ends, evictions, and the figures of it all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy
from hekla.engine.policies import default_policy
from hekla.engine.world import policy
from hekla.simulator import report, swf
from hekla.simulator.outcome import outcome
from hekla.simulator.run import Run
from hekla.simulator.simulation import Simulation, simulate
from hekla.simulator.workload import InputError, SimulatedJob, Workload, node, queue

SECOND = 1_000_000
PLAIN = policy(plugins=["gang", "predicates"], actions="allocate, backfill")


def job(
    name: str, submit: int = 0, duration: int = 10, processors: int = 1, **more: Any
) -> SimulatedJob:
    return SimulatedJob(
        name,
        submit * SECOND,
        duration * SECOND,
        {"cpu": str(processors)},
        processors=processors,
        **more,
    )


def run(
    jobs: list[SimulatedJob], rules: Policy = PLAIN, *, cpu: int = 4, order: str = "fifo"
) -> Run:
    cluster = [node("n1", {"cpu": str(cpu), "pods": "110"}), queue("default", order)]
    (found,) = simulate(Workload(jobs, cluster), [rules])
    return found


def times(found: Run) -> dict[str, tuple[float, float]]:
    """Job -> when it started and ended, in seconds."""
    return {
        one.job.name: (one.started / SECOND, one.ended / SECOND)
        for one in found.jobs
        if one.started is not None and one.ended is not None
    }


def test_a_job_runs_for_as_long_as_it_takes() -> None:
    assert times(run([job("a", submit=3, duration=7)])) == {"a": (3, 10)}


def test_who_finds_no_room_starts_when_there_is_some() -> None:
    found = run([job("a", processors=3), job("b", submit=1, processors=3)])
    assert times(found) == {"a": (0, 10), "b": (10, 20)}


def test_in_a_strict_queue_nobody_passes() -> None:
    jobs = [job("a", processors=3), job("b", submit=1, processors=3), job("c", submit=2)]
    assert times(run(jobs))["c"] == (2, 12)
    assert times(run(jobs, order="strict-fifo"))["c"] == (10, 20)


def test_a_gang_starts_as_a_whole() -> None:
    gang = job("gang", submit=1, processors=2, pods=2, min_available=2)
    assert times(run([job("a", processors=1), gang]))["gang"] == (10, 20)


def test_beyond_its_minimum_each_pod_takes_its_own_time() -> None:
    some = job("some", submit=1, processors=2, pods=2, min_available=1)
    assert times(run([job("a", processors=1), some]))["some"] == (1, 20)


def test_a_job_of_no_time_starts_and_ends() -> None:
    assert times(run([job("a", duration=0)])) == {"a": (0, 0)}


def test_work_that_is_evicted_begins_anew() -> None:
    rules = policy(
        plugins=[
            "priority",
            {"name": "gang", "enablePreemptable": False},
            "conformance",
            "predicates",
        ],
        actions="enqueue, allocate, preempt, backfill",
    )
    cluster = [
        node("n1", {"cpu": "1", "pods": "110"}),
        queue("default"),
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100},
    ]
    jobs = [
        job("low", duration=100, template={"annotations": {"volcano.sh/preemptable": "true"}}),
        job("high", submit=30, duration=10, priority_class="high"),
    ]
    (found,) = simulate(Workload(jobs, cluster), [rules])
    assert times(found) == {"low": (0, 140), "high": (30, 40)}
    assert [one.evictions for one in found.jobs] == [1, 0]


def test_the_figures() -> None:
    found = run(
        [job("a", processors=4, duration=20), job("b", submit=10, processors=2, duration=30)]
    )
    figures = outcome("p", found)
    assert (figures.all.mean_wait, figures.all.longest_wait, figures.makespan) == (5, 10, 50)
    assert figures.all.slowdown == (1 + 40 / 30) / 2
    assert figures.utilisation == {"cpu": (4 * 20 + 2 * 30) / (4 * 50)}


def test_short_jobs_count_as_ten_seconds() -> None:
    found = run([job("a", processors=4, duration=15), job("b", duration=1)], order="strict-fifo")
    assert outcome("p", found).all.slowdown == (1 + 16 / 10) / 2


def test_what_has_not_ended_when_it_stops() -> None:
    cluster = [node("n1", {"cpu": "1", "pods": "110"}), queue("default")]
    workload = Workload([job("a", duration=20), job("b", submit=5)], cluster)
    (found,) = simulate(workload, [PLAIN], until=10 * SECOND)
    figures = outcome("p", found)
    assert (figures.all.jobs, figures.all.started, figures.all.ended) == (2, 1, 0)
    assert figures.utilisation == {"cpu": 1.0}
    assert "nan" not in report.table([figures]) + report.as_json([figures])


def test_reasons_that_differ_in_what_a_job_happens_to_be_called_are_all_told() -> None:
    cluster = [node("n1", {"cpu": "16", "pods": "110"}), queue("default")]
    jobs = [job("a", processors=16), job("4", 1, processors=14), job("5", 1, processors=15)]
    (found,) = simulate(Workload(jobs, cluster), [PLAIN], until=5 * SECOND)
    told = report.table([outcome("p", found)])
    assert "  4 needs 1 pod of cpu=14; " in told and "  5 needs 1 pod of cpu=15; " in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (job("a", processors=5), 'job "a": 1 pods of cpu=5 are more than the cluster has (4)'),
        (job("a", queue="other"), 'job "a": queue = "other" does not exist; there are: default'),
        (
            job("a", priority_class="x"),
            'job "a": priorityClass = "x" does not exist; there are: none',
        ),
    ],
)
def test_what_could_never_run_is_said_before(given: SimulatedJob, said: str) -> None:
    with pytest.raises(InputError) as error:
        run([given])
    assert str(error.value) == said


JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 40), st.integers(1, 8)), min_size=1, max_size=12
)


def log(of: list[tuple[int, int, int]]) -> list[str]:
    return [
        f"{number} {submit} -1 {length} {processors} -1 -1 -1 -1 -1 1"
        for number, (submit, length, processors) in enumerate(of)
    ]


def test_pods_that_have_ended_count_for_the_minimum() -> None:
    first = job("a", duration=5, processors=2, pods=3, min_available=2)
    assert times(run([first], default_policy())) == {"a": (0, 10)}


def calm(**arguments: str) -> Policy:
    gang = {"name": "gang", "enablePreemptable": False}
    patience = {"name": "calm-eviction", "arguments": arguments}
    return policy(
        plugins=["priority", gang, "conformance", "predicates", patience],
        actions="enqueue, allocate, preempt, backfill",
    )


def preempted(rules: Policy, period: int = 0) -> dict[str, tuple[float, float]]:
    """A job that runs for a thousand seconds, and after ten an urgent one that takes its place."""
    preemptable = {"annotations": {"volcano.sh/preemptable": "true"}}
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    jobs = [
        job("long", duration=1000, processors=4, template=preemptable),
        job("late", submit=10, processors=4, priority_class="urgent"),
    ]
    cluster = [node("n1", {"cpu": "4", "pods": "110"}), queue("default"), urgent]
    (found,) = simulate(Workload(jobs, cluster), [rules], period=period * SECOND)
    return times(found)


def test_a_pod_leaves_when_its_notice_says() -> None:
    assert preempted(calm(notice="2m"))["late"] == (130, 140)


def test_a_minimum_runtime_ends_with_the_period_in_which_it_does() -> None:
    assert preempted(calm(minRuntime="5m"))["late"] == (1000, 1010)
    assert preempted(calm(minRuntime="5m"), period=30)["late"] == (310, 320)
    assert preempted(calm(minRuntime="5m"), period=1)["late"] == (300, 310)


GANGS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 20), st.integers(1, 3), st.integers(1, 3), st.booleans()
    ),
    min_size=1,
    max_size=12,
)
"""Submit, duration, cpu of a pod, pods, and whether the job goes to the second queue."""


@settings(deadline=None, max_examples=40)
@given(GANGS)
def test_cycles_that_are_left_out_would_have_decided_nothing(
    given: list[tuple[int, int, int, int, bool]],
) -> None:
    jobs = [
        job(
            f"j{number}", submit, length, cpu, pods=pods, min_available=max(pods - 1, 1),
            queue="other" if other else "default",
        )
        for number, (submit, length, cpu, pods, other) in enumerate(given)
    ]  # fmt: skip
    nodes = [node(f"n{number}", {"cpu": "4", "pods": "110"}) for number in range(3)]
    workload = Workload(jobs, [*nodes, queue("default"), queue("other")])
    rules = default_policy()
    rested, whole = (Simulation(workload, rules, every).run() for every in (False, True))
    assert report.as_csv(["p"], [rested]) == report.as_csv(["p"], [whole])
    assert all(one.ended is not None for one in rested.jobs)
    assert rested.cycles < whole.cycles and not rested.problems


def test_a_policy_that_minds_the_time_has_its_cycles() -> None:
    slow = policy(plugins=["gang", "predicates", "sla"], actions="allocate, backfill")
    assert run([job("a")], PLAIN).cycles == 2
    assert run([job("a")], slow).cycles == 3


@settings(deadline=None, max_examples=40)
@given(JOBS)
def test_the_same_input_gives_the_same_bytes_and_nobody_is_forgotten(
    given: list[tuple[int, int, int]],
) -> None:
    texts = []
    for _ in range(2):
        (found,) = simulate(swf.read(["; MaxProcs: 8", *log(given)], "a"), [PLAIN])
        assert all(one.ended is not None for one in found.jobs)
        assert not found.problems
        texts.append(report.as_csv(["p"], [found]) + report.as_json([outcome("p", found)]))
    assert texts[0] == texts[1]


@settings(deadline=None, max_examples=40)
@given(JOBS)
def test_a_job_is_one_pod_or_a_gang_of_its_processors(given: list[tuple[int, int, int]]) -> None:
    whole, parts = (
        times(
            simulate(swf.read(["; MaxProcs: 8", *log(given)], "a", pod_processors=each), [PLAIN])[0]
        )
        for each in (0, 1)
    )
    assert whole == parts
