"""The scheduler's metrics, under the names that dashboards know.  Reference: scheduler-core 8.

Gauges and counters of plugins come with the decisions of a cycle; the histograms of the daemon itself are observed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

PREFIX = "volcano_"


def spread(low: float, high: float, count: int) -> list[float]:
    """`count` bounds from low to high, each the same factor above the one before."""
    factor = math.pow(high / low, 1 / (count - 1))
    return [low * factor**step for step in range(count)]


CYCLE = Histogram(PREFIX + "e2e_scheduling_latency_milliseconds", "One scheduling cycle", buckets=spread(1, 5000, 20))
ACTION = Histogram(
    PREFIX + "action_scheduling_latency_milliseconds", "One action of a cycle", ["action"], buckets=spread(1, 2000, 20)
)
STAGE = Histogram(
    PREFIX + "task_scheduling_latency_milliseconds", "From a pod's creation to a stage of its scheduling", ["stage"],
    buckets=spread(50, 60000, 30),
)
BIND = Histogram(
    PREFIX + "scheduling_stage_duration_milliseconds", "A stage of scheduling", ["stage"], buckets=spread(0.1, 500, 20)
)
FAILED_BINDS = Counter(PREFIX + "bind_failures", "Binds that the API server refused")

COUNTERS = frozenset({"job_retry_counts", "total_preemption_attempts", "eviction_transactions_total"})


Labels = tuple[tuple[str, str], ...]


class PluginMetrics:
    """Gauges and counters made as plugins first name them; a series that a cycle no longer names is removed.

    Most series say in a cycle what they said in the last one, so a gauge is only touched when its value is another.
    """

    def __init__(self) -> None:
        self.gauges: dict[str, Gauge] = {}
        self.counters: dict[str, Counter] = {}
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
            for labels, value in rows.items():
                if shown.get(labels) != value:
                    (gauge.labels(*texts(labels)) if labels else gauge).set(value)
            for gone in shown.keys() - rows.keys():
                gauge.remove(*texts(gone))
            self.series[name] = rows

    def _count(self, name: str, labels: Labels, value: float) -> None:
        counter = self.counters.get(name)
        if counter is None:
            counter = self.counters[name] = Counter(PREFIX + name, name.replace("_", " "), tuple(label for label, _ in labels))
        (counter.labels(*texts(labels)) if labels else counter).inc(value)


def texts(labels: Labels) -> tuple[str, ...]:
    return tuple(text for _, text in labels)
