"""least-attained-service over time: jobs are stopped for those that have had less, and that ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator.simulation import simulate
from hekla.simulator.work import Work
from hekla.simulator.workload import SimulatedJob, Workload, microseconds, node, queue

MINUTE = 60
GPUS = 4


def rules(thresholds: str) -> Policy:
    service = {
        "name": "least-attained-service",
        "arguments": {"least-attained-service.thresholds": thresholds},
    }
    return policy(
        plugins=[service, {"name": "gang", "enablePreemptable": False}, "predicates"],
        actions="allocate, gangpreempt",
    )


def training(name: str, submit: float, seconds: float, gpus: int) -> SimulatedJob:
    """It goes on where it was, whenever it may."""
    return SimulatedJob(
        name,
        microseconds(submit),
        microseconds(seconds),
        {"nvidia.com/gpu": "1"},
        pods=gpus,
        min_available=gpus,
        work=Work(together=True, checkpoint=0),
    )


def on_one_node(*jobs: SimulatedJob) -> Workload:
    cards = {"nvidia.com/gpu": str(GPUS), "pods": "110"}
    return Workload(list(jobs), [node("n1", cards), queue("default")])


def test_short_jobs_pass_a_long_one_that_nobody_knew_to_be_long() -> None:
    """The long job has had an hour of a GPU after a quarter of an hour; from then on each short one
    runs at once."""
    long = training("long", 0, 600 * MINUTE, 4)
    short = [training(f"short-{n}", (30 + 20 * n) * MINUTE, 5 * MINUTE, 2) for n in range(4)]
    (run,) = simulate(on_one_node(long, *short), [rules("1h")], period=microseconds(MINUTE))
    first, *others = run.jobs
    assert [one.started == one.job.submit for one in others] == [True] * 4
    assert first.ended == microseconds((600 + 4 * 5) * MINUTE)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(0, 120), st.integers(1, 120), st.integers(1, GPUS)),
        min_size=1,
        max_size=6,
    )
)
def test_whoever_was_evicted_ends_all_the_same(drawn: list[tuple[int, int, int]]) -> None:
    """A job evicts others only below the threshold, and is evicted only above it: so each is
    stopped by each other once at most."""
    jobs = [
        training(f"job-{number}", submit * MINUTE, lasts * MINUTE, gpus)
        for number, (submit, lasts, gpus) in enumerate(drawn)
    ]
    (run,) = simulate(on_one_node(*jobs), [rules("1h")], period=microseconds(MINUTE))
    assert run.problems == []
    assert all(one.ended is not None for one in run.jobs)
    assert all(one.evictions <= one.job.pods * (len(jobs) - 1) for one in run.jobs)
