"""The scheduler's metrics, under the names that dashboards know.  Reference: scheduler-core 8.

Gauges and counters of plugins come with the decisions of a cycle; the histograms of the daemon
itself are observed here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Histogram
from prometheus_client.samples import Sample

from hekla.engine.model.decisions import MOST_JOBS
from hekla.engine.model.tasks import Job
from hekla.engine.plugins.fairness.queuegauges import KINDS
from hekla.kube.metrics import Labels, Table

PREFIX = "volcano_"


def spread(low: float, high: float, count: int) -> list[float]:
    """`count` bucket bounds from `low` to `high`, in geometric progression."""
    factor = math.pow(high / low, 1 / (count - 1))
    return [low * factor**step for step in range(count)]


class Durations(Histogram):
    """A histogram that one thread alone observes, eight times for each pod.  It counts without
    locks and updates the library's histogram when metrics are read."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._counts = [0] * len(self._upper_bounds)
        self._total = 0.0

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        self._total += amount
        self._counts[bisect_left(self._upper_bounds, amount)] += 1

    def _child_samples(self) -> Iterable[Sample]:
        for bucket, count in zip(self._buckets, self._counts):
            bucket.set(count)
        self._sum.set(self._total)
        return super()._child_samples()


CYCLE = Durations(
    PREFIX + "e2e_scheduling_latency_milliseconds",
    "One scheduling cycle",
    buckets=spread(1, 5000, 20),
)
ACTION = Durations(
    PREFIX + "action_scheduling_latency_milliseconds",
    "One action of a cycle",
    ["action"],
    buckets=spread(1, 2000, 20),
)
OPEN = Durations(
    PREFIX + "open_session_duration_milliseconds",
    "The opening of a cycle",
    buckets=spread(1, 5000, 20),
)
PLUGIN = Durations(
    PREFIX + "plugin_scheduling_latency_milliseconds",
    "One plugin at the beginning or end of a cycle",
    ["plugin", "OnSession"],
    buckets=spread(0.1, 100, 15),
)
ATTEMPTS = Counter(
    PREFIX + "schedule_attempts", "Declared for dashboards; Hekla counts binds", ["result"]
)
STAGE = Durations(
    PREFIX + "task_scheduling_latency_milliseconds",
    "From a pod's creation to a stage of its scheduling",
    ["stage"],
    buckets=spread(50, 60000, 30),
)
BIND = Durations(
    PREFIX + "scheduling_stage_duration_milliseconds",
    "A stage of scheduling",
    ["stage"],
    buckets=spread(0.1, 500, 20),
)
WATCHED, ASSUMED, PRE_BOUND, BOUND = (
    STAGE.labels(stage) for stage in ("Watched", "Assumed", "PreBound", "Bound")
)
PREDICATE, SCORING, PRE_BIND, BIND_CALL = (
    BIND.labels(stage) for stage in ("Predicate", "Scoring", "PreBind", "Bind")
)
FAILED_BINDS = Counter(PREFIX + "bind_failures", "Binds that the API server refused")

JOB = Durations(
    PREFIX + "e2e_job_scheduling_latency_milliseconds",
    "From a PodGroup's creation to its last placement",
    buckets=spread(100, 120000, 30),
)
START_ERROR = Durations(
    PREFIX + "start_estimate_error_seconds",
    "How far the first estimate of a job's start was off",
    buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
)
START_ERROR_BY_WAIT = Durations(
    PREFIX + "start_estimate_error_ratio",
    "The same as a part of the job's wait",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
_OF_JOB = ("job_name", "queue", "job_namespace")
JOB_DURATION = Table(
    PREFIX + "e2e_job_scheduling_duration",
    "Milliseconds from a PodGroup's creation to its last placement",
    _OF_JOB,
)
JOB_START = Table(
    PREFIX + "e2e_job_scheduling_start_time",
    "When the PodGroup was created, in seconds since 1970",
    _OF_JOB,
)
JOB_LAST = Table(
    PREFIX + "e2e_job_scheduling_last_time",
    "When the job's last pod was placed, in seconds since 1970",
    _OF_JOB,
)
JOB_LABEL = "job_id"
_OF_JOB_NAME, _OF_QUEUE, _OF_CARD = (JOB_LABEL,), ("queue_name",), ("devID", "NodeName")
_OF_NAMESPACE = ("namespace_name",)
OF_CYCLES = {
    name: Table(PREFIX + name, text, labels)
    for name, text, labels in (
        (
            "namespace_share",
            "Declared for dashboards; no plugin shares by namespace any more",
            _OF_NAMESPACE,
        ),
        ("namespace_weight", "Declared for dashboards", _OF_NAMESPACE),
        ("namespace_weighted_share", "Declared for dashboards", _OF_NAMESPACE),
        (
            "namespace_decayed_usage",
            "What a namespace, or another party of fairshare, has used of a queue, decayed",
            ("namespace_name", "queue"),
        ),
        ("party_budget_hours", "The budget of a party of party-limits", ("party", "resource")),
        ("party_budget_used_hours", "What of it the party has used", ("party", "resource")),
        ("pod_preemption_victims", "Victims on the node looked at last", ()),
        ("unschedule_task_count", "Pods that a job which cannot start lacks", _OF_JOB_NAME),
        ("unschedule_job_count", "Jobs that cannot start", ()),
        ("job_share", "The dominant share of a job", ("job_ns", JOB_LABEL)),
        *((f"queue_{kind}_milli_cpu", f"CPU of a queue: {kind}", _OF_QUEUE) for kind in KINDS),
        *(
            (f"queue_{kind}_memory_bytes", f"Memory of a queue: {kind}", _OF_QUEUE)
            for kind in KINDS
        ),
        *(
            (
                f"queue_{kind}_scalar_resources",
                f"Other resources of a queue: {kind}",
                (*_OF_QUEUE, "resource"),
            )
            for kind in KINDS
        ),
        ("queue_share", "How much of what it deserves a queue has", _OF_QUEUE),
        ("queue_weight", "The weight of a queue", _OF_QUEUE),
        ("queue_overused", "1 where a queue has more than it deserves", _OF_QUEUE),
        ("fragmentation_free", "What is free: millicores, bytes, GPUs", ("resource",)),
        ("fragmentation_unusable", "What of it the mix of pods cannot use", ("resource",)),
        ("vgpu_device_shared_number", "Pods on a card", _OF_CARD),
        ("vgpu_device_allocated_memory", "Memory of a card that is given away", _OF_CARD),
        ("vgpu_device_allocated_cores", "Cores of a card that are given away", _OF_CARD),
        ("vgpu_device_memory_limit", "Memory of a card", _OF_CARD),
        (
            "vgpu_device_memory_allocation_for_a_certain_pod",
            "A pod's memory on a card",
            (*_OF_CARD, "podName"),
        ),
        (
            "vgpu_device_core_allocation_for_a_certain_pod",
            "A pod's cores on a card",
            (*_OF_CARD, "podName"),
        ),
    )
} | {
    name: Table(PREFIX + name, text, labels, counts=True)
    for name, text, labels in (
        ("job_retry_counts", "Cycles in which a job could not start", _OF_JOB_NAME),
        ("total_preemption_attempts", "Times that a task looked for victims", ()),
        ("eviction_transactions_total", "Evictions that were decided at once", ("action",)),
        (
            "evictions_held_back_total",
            "Claims that would have taken back what was taken before",
            ("action",),
        ),
        ("eviction_notices_total", "Pods that were told of their eviction", ("outcome",)),
        ("eviction_loops_total", "Circles of evictions that were stopped", ()),
        ("defragmentations_total", "Rounds in which pods were moved", ()),
    )
}
"""Metrics of cycles, by the engine's name for each."""


class JobMetrics:
    """When jobs were placed: a histogram of all jobs, and gauges for the latest that still exist."""

    def __init__(self) -> None:
        self.shown: dict[str, Labels] = {}
        """Job -> the labels of its series, the one placed longest ago first."""

    def placed(self, jobs: Iterable[Job], now: float) -> None:
        """Count jobs whose pods a cycle has placed."""
        for job in jobs:
            took = max(0.0, 1000 * (now - job.creation))
            JOB.observe(took)
            labels = ("job_name", job.name), ("queue", job.queue), ("job_namespace", job.namespace)
            if self.shown.get(job.key, labels) != labels:
                self.forget(job.key)  # it has moved to another queue
            self.shown.pop(job.key, None)
            if len(self.shown) >= MOST_JOBS:
                self.forget(next(iter(self.shown)))
            self.shown[job.key] = labels
            JOB_DURATION.values[labels] = took
            JOB_START.values[labels] = job.creation
            JOB_LAST.values[labels] = now

    def keep(self, jobs: Mapping[str, Job]) -> None:
        """Remove the series of jobs that no longer exist."""
        for key in [key for key in self.shown if key not in jobs]:
            self.forget(key)

    def forget(self, key: str) -> None:
        labels = self.shown.pop(key, None)
        if labels is not None:
            for table in (JOB_DURATION, JOB_START, JOB_LAST):
                table.values.pop(labels, None)


class PluginMetrics:
    """What plugins and actions say in a cycle; tables are made as a name is first heard.

    A gauge that a cycle names has the series that the cycle named and no other.  Series of jobs
    stand until the job leaves, or until too many came after it, because a cycle names only the jobs
    that it touched.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Table] = dict(OF_CYCLES)

    def take(self, values: Iterable[tuple[str, Labels, float]]) -> None:
        """Set all values of one cycle."""
        tables = self.tables
        named: dict[str, dict[Labels, float]] = {}
        for name, labels, value in values:
            table = tables.get(name)
            if table is None:
                table = tables[name] = Table(
                    PREFIX + name, name.replace("_", " "), tuple(label for label, _ in labels)
                )
            if table.counts:
                table.latest(labels, table.values.get(labels, 0.0) + value, MOST_JOBS)
            elif any(label == JOB_LABEL for label, _ in labels):
                table.latest(labels, value, MOST_JOBS)
            else:
                named.setdefault(name, {})[labels] = value
        for name, rows in named.items():
            tables[name].values = rows

    def keep(self, jobs: Iterable[Job]) -> None:
        """Remove the series of jobs that no longer exist."""
        there = {job.name for job in jobs}
        for table in self.tables.values():
            for labels in [
                labels
                for labels in table.values
                if (job := dict(labels).get(JOB_LABEL)) is not None and job not in there
            ]:
                del table.values[labels]
