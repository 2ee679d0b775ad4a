"""The scheduler's metrics, under the names that dashboards know.  Reference: scheduler-core 8.

Gauges and counters of plugins come with the decisions of a cycle; the histograms of the daemon itself are observed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram

from hekla.engine.queuegauges import KINDS
from hekla.engine.tasks import Job
from hekla.kube.metrics import Tally

PREFIX = "volcano_"


def spread(low: float, high: float, count: int) -> list[float]:
    """`count` bounds from low to high, each the same factor above the one before."""
    factor = math.pow(high / low, 1 / (count - 1))
    return [low * factor**step for step in range(count)]


CYCLE = Histogram(PREFIX + "e2e_scheduling_latency_milliseconds", "One scheduling cycle", buckets=spread(1, 5000, 20))
ACTION = Histogram(PREFIX + "action_scheduling_latency_milliseconds", "One action of a cycle", ["action"], buckets=spread(1, 2000, 20))
OPEN = Histogram(PREFIX + "open_session_duration_milliseconds", "The opening of a cycle", buckets=spread(1, 5000, 20))
PLUGIN = Histogram(
    PREFIX + "plugin_scheduling_latency_milliseconds",
    "One plugin at the beginning or end of a cycle",
    ["plugin", "OnSession"],
    buckets=spread(0.1, 100, 15),
)
ATTEMPTS = Counter(PREFIX + "schedule_attempts", "Declared for dashboards; Hekla counts binds", ["result"])
STAGE = Histogram(
    PREFIX + "task_scheduling_latency_milliseconds",
    "From a pod's creation to a stage of its scheduling",
    ["stage"],
    buckets=spread(50, 60000, 30),
)
BIND = Histogram(PREFIX + "scheduling_stage_duration_milliseconds", "A stage of scheduling", ["stage"], buckets=spread(0.1, 500, 20))
WATCHED, ASSUMED, PRE_BOUND, BOUND = (STAGE.labels(stage) for stage in ("Watched", "Assumed", "PreBound", "Bound"))
PREDICATE, SCORING, PRE_BIND, BIND_CALL = (BIND.labels(stage) for stage in ("Predicate", "Scoring", "PreBind", "Bind"))
FAILED_BINDS = Counter(PREFIX + "bind_failures", "Binds that the API server refused")

JOB = Histogram(
    PREFIX + "e2e_job_scheduling_latency_milliseconds",
    "From a PodGroup's creation to its last placement",
    buckets=spread(100, 120000, 30),
)
_OF_JOB = ("job_name", "queue", "job_namespace")
JOB_DURATION = Gauge(PREFIX + "e2e_job_scheduling_duration", "Milliseconds from a PodGroup's creation to its last placement", _OF_JOB)
JOB_START = Gauge(PREFIX + "e2e_job_scheduling_start_time", "When the PodGroup was created, in seconds since 1970", _OF_JOB)
JOB_LAST = Gauge(PREFIX + "e2e_job_scheduling_last_time", "When the job's last pod was placed, in seconds since 1970", _OF_JOB)
_OF_NAMESPACE = ("namespace_name",)
NAMESPACES = {
    name: Gauge(PREFIX + name, text, _OF_NAMESPACE)
    for name, text in (
        ("namespace_share", "Declared for dashboards; no plugin shares by namespace any more"),
        ("namespace_weight", "Declared for dashboards"), ("namespace_weighted_share", "Declared for dashboards"),
    )
}  # fmt: skip
VICTIMS = Gauge(PREFIX + "pod_preemption_victims", "Victims on the node looked at last")
PREEMPTIONS = Tally(PREFIX + "total_preemption_attempts", "Times that a task looked for victims")
_OF_JOB_NAME, _OF_QUEUE, _OF_CARD = ("job_id",), ("queue_name",), ("devID", "NodeName")
PLUGIN_GAUGES = {
    name: Gauge(PREFIX + name, text, labels)
    for name, text, labels in (
        ("unschedule_task_count", "Pods that a job which cannot start lacks", _OF_JOB_NAME),
        ("unschedule_job_count", "Jobs that cannot start", ()),
        ("job_share", "The dominant share of a job", ("job_ns", "job_id")),
        *((f"queue_{kind}_milli_cpu", f"CPU of a queue: {kind}", _OF_QUEUE) for kind in KINDS),
        *((f"queue_{kind}_memory_bytes", f"Memory of a queue: {kind}", _OF_QUEUE) for kind in KINDS),
        *((f"queue_{kind}_scalar_resources", f"Other resources of a queue: {kind}", (*_OF_QUEUE, "resource")) for kind in KINDS),
        ("queue_share", "How much of what it deserves a queue has", _OF_QUEUE),
        ("queue_weight", "The weight of a queue", _OF_QUEUE),
        ("queue_overused", "1 where a queue has more than it deserves", _OF_QUEUE),
        ("vgpu_device_shared_number", "Pods on a card", _OF_CARD),
        ("vgpu_device_allocated_memory", "Memory of a card that is given away", _OF_CARD),
        ("vgpu_device_allocated_cores", "Cores of a card that are given away", _OF_CARD),
        ("vgpu_device_memory_limit", "Memory of a card", _OF_CARD),
        ("vgpu_device_memory_allocation_for_a_certain_pod", "A pod's memory on a card", (*_OF_CARD, "podName")),
        ("vgpu_device_core_allocation_for_a_certain_pod", "A pod's cores on a card", (*_OF_CARD, "podName")),
    )
}  # fmt: skip
PLUGIN_COUNTERS: dict[str, Counter] = {
    "job_retry_counts": Tally(PREFIX + "job_retry_counts", "Cycles in which a job could not start", _OF_JOB_NAME),
    "total_preemption_attempts": PREEMPTIONS,
    "eviction_transactions_total": Counter(PREFIX + "eviction_transactions_total", "Evictions that were decided at once", ("action",)),
}
MOST_JOBS = 1000
"""Jobs with series of their own; the ones placed longest ago make room."""

COUNTERS = frozenset({"job_retry_counts", "total_preemption_attempts", "eviction_transactions_total"})


JOB_LABEL = "job_id"


Labels = tuple[tuple[str, str], ...]


class JobMetrics:
    """When jobs were placed: a histogram of all, and gauges for the latest of those that are still there."""

    def __init__(self) -> None:
        self.shown: dict[str, tuple[str, str, str]] = {}
        """Job -> the labels of its series, the one placed longest ago first."""

    def placed(self, jobs: Iterable[Job], now: float) -> None:
        """These jobs had pods placed in a cycle."""
        for job in jobs:
            took = max(0.0, 1000 * (now - job.creation))
            JOB.observe(took)
            labels = (job.name, job.queue, job.namespace)
            if self.shown.get(job.key, labels) != labels:
                self.forget(job.key)  # it has moved to another queue
            self.shown.pop(job.key, None)
            if len(self.shown) >= MOST_JOBS:
                self.forget(next(iter(self.shown)))
            self.shown[job.key] = labels
            JOB_DURATION.labels(*labels).set(took)
            JOB_START.labels(*labels).set(job.creation)
            JOB_LAST.labels(*labels).set(now)

    def keep(self, jobs: Mapping[str, Job]) -> None:
        """Jobs that have left take their series with them."""
        for key in [key for key in self.shown if key not in jobs]:
            self.forget(key)

    def forget(self, key: str) -> None:
        labels = self.shown.pop(key, None)
        if labels is not None:
            for gauge in (JOB_DURATION, JOB_START, JOB_LAST):
                gauge.remove(*labels)


class PluginMetrics:
    """Gauges and counters made as plugins first name them; a series that a cycle no longer names is removed.

    Most series say in a cycle what they said in the last one, so a gauge is only touched when its value is another.
    """

    def __init__(self) -> None:
        self.gauges: dict[str, Gauge] = {"pod_preemption_victims": VICTIMS, **NAMESPACES, **PLUGIN_GAUGES}
        self.counters: dict[str, Counter] = dict(PLUGIN_COUNTERS)
        self.series: dict[str, dict[Labels, float]] = {}
        """Gauge -> labels -> the value shown."""

    def take(self, values: Iterable[tuple[str, Labels, float]]) -> None:
        """All values of one cycle."""
        named: dict[str, dict[Labels, float]] = {}
        for name, labels, value in values:
            if name in COUNTERS:
                self._count(name, labels, value)
            else:
                named.setdefault(name, {})[labels] = value
        for name, rows in named.items():
            gauge = self.gauges.get(name)
            if gauge is None:
                names = tuple(label for label, _ in next(iter(rows)))
                gauge = self.gauges[name] = Gauge(PREFIX + name, name.replace("_", " "), names)
            shown = self.series.get(name, {})
            of_jobs = any(label == JOB_LABEL for labels in rows for label, _ in labels)
            if of_jobs and len(rows) > MOST_JOBS:
                rows = dict(list(rows.items())[-MOST_JOBS:])
            for labels, value in rows.items():
                if shown.get(labels) != value:
                    (gauge.labels(*texts(labels)) if labels else gauge).set(value)
            if of_jobs:
                self._stand(name, gauge, shown, rows)
                continue
            for gone in shown.keys() - rows.keys():
                gauge.remove(*texts(gone))
            self.series[name] = rows

    def keep(self, jobs: Iterable[Job]) -> None:
        """Series of jobs that have left go."""
        there = {job.name for job in jobs}
        for name, rows in self.series.items():
            for labels in [labels for labels in rows if (job := dict(labels).get(JOB_LABEL)) is not None and job not in there]:
                del rows[labels]
                (self.counters[name] if name in COUNTERS else self.gauges[name]).remove(*texts(labels))

    def _stand(self, name: str, gauge: Gauge, shown: dict[Labels, float], rows: dict[Labels, float]) -> None:
        """A cycle names the jobs that it touched; the others stand until they leave, or until too many came after them."""
        for labels, value in rows.items():
            shown.pop(labels, None)
            shown[labels] = value
        while len(shown) > MOST_JOBS:
            gone = next(iter(shown))
            del shown[gone]
            gauge.remove(*texts(gone))
        self.series[name] = shown

    def _count(self, name: str, labels: Labels, value: float) -> None:
        counter = self.counters.get(name)
        if counter is None:
            counter = self.counters[name] = Counter(PREFIX + name, name.replace("_", " "), tuple(label for label, _ in labels))
        (counter.labels(*texts(labels)) if labels else counter).inc(value)
        if not labels:
            return
        shown = self.series.setdefault(name, {})
        shown.pop(labels, None)
        shown[labels] = value
        if len(shown) > MOST_JOBS:
            gone = next(iter(shown))
            del shown[gone]
            counter.remove(*texts(gone))


def texts(labels: Labels) -> tuple[str, ...]:
    return tuple(text for _, text in labels)
