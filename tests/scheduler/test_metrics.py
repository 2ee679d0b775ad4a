"""The gauges of plugins show what the last cycle said, and nothing of what it no longer names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, Histogram, generate_latest

from hekla.engine.model.tasks import Job
from hekla.scheduler.metrics import MOST_JOBS, PREFIX, Durations, JobMetrics, PluginMetrics


def shown(name: str, queue: str) -> float | None:
    return REGISTRY.get_sample_value(PREFIX + name, {"queue_name": queue})


def test_a_series_follows_the_cycles_and_goes_when_it_is_no_longer_named() -> None:
    metrics = PluginMetrics()
    name = "test_queue_share"
    metrics.take([(name, (("queue_name", "a"),), 0.5), (name, (("queue_name", "b"),), 1.0)])
    metrics.take([(name, (("queue_name", "a"),), 0.75), (name, (("queue_name", "b"),), 1.0)])
    assert (shown(name, "a"), shown(name, "b")) == (0.75, 1.0)
    metrics.take([])
    assert shown(name, "a") == 0.75, "a cycle that says nothing of a gauge leaves it"
    metrics.take([(name, (("queue_name", "b"),), 0.0)])
    assert (shown(name, "a"), shown(name, "b")) == (None, 0.0)


def test_a_counter_adds_up() -> None:
    metrics = PluginMetrics()
    for _ in range(2):
        metrics.take([("total_preemption_attempts", (), 2.0)])
    assert REGISTRY.get_sample_value(PREFIX + "total_preemption_attempts") == 4.0


def test_a_job_takes_its_series_with_it_when_it_leaves() -> None:
    metrics = PluginMetrics()
    one, other = Job("ns/one"), Job("ns/other")
    rows = [(("job_id", job.name),) for job in (one, other)]
    metrics.take(
        [("test_tasks", row, 1.0) for row in rows]
        + [("job_retry_counts", row, 1.0) for row in rows]
    )
    metrics.take([("test_tasks", rows[0], 2.0)])
    metrics.keep([one])

    def value(name: str, job: str) -> float | None:
        return REGISTRY.get_sample_value(PREFIX + name, {"job_id": job})

    assert (value("test_tasks", "one"), value("test_tasks", "other")) == (2.0, None)
    assert (value("job_retry_counts", "one"), value("job_retry_counts", "other")) == (1.0, None)


def test_only_so_many_jobs_have_series_of_their_own() -> None:
    metrics = JobMetrics()
    jobs = [Job(f"ns/job-{number}") for number in range(MOST_JOBS + 5)]
    metrics.placed(jobs, 100.0)
    assert len(metrics.shown) == MOST_JOBS
    assert "ns/job-0" not in metrics.shown
    metrics.placed([jobs[10]], 200.0)
    labels = {"job_name": "job-10", "queue": "", "job_namespace": "ns"}
    assert REGISTRY.get_sample_value(PREFIX + "e2e_job_scheduling_last_time", labels) == 200.0
    metrics.keep({})
    assert REGISTRY.get_sample_value(PREFIX + "e2e_job_scheduling_last_time", labels) is None


@given(st.lists(st.one_of(st.floats(0, 50), st.sampled_from([0.0, 1.0, 2.5, 10.0])), max_size=20))
def test_durations_are_counted_as_the_library_counts_them(observed: list[float]) -> None:
    told = []
    for kind in (Histogram, Durations):
        registry = CollectorRegistry()
        by_stage = kind("took", "Milliseconds", ["stage"], buckets=[1, 2.5, 10], registry=registry)
        whole = kind("whole", "Milliseconds", buckets=[1, 2.5, 10], registry=registry)
        for amount in observed:
            by_stage.labels("Bind").observe(amount)
            whole.observe(amount)
        generate_latest(registry)  # who asks twice hears the same
        told.append(generate_latest(registry))
    assert told[0] == told[1]
