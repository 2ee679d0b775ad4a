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


class PluginMetrics:
    """Gauges and counters made as plugins first name them; a series that a cycle no longer names is removed."""

    def __init__(self) -> None:
        self.gauges: dict[str, Gauge] = {}
        self.counters: dict[str, Counter] = {}
        self.series: dict[str, set[tuple[str, ...]]] = {}

    def take(self, values: Iterable[tuple[str, tuple[tuple[str, str], ...], float]]) -> None:
        """All values of one cycle."""
        named: dict[str, set[tuple[str, ...]]] = {}
        for name, labels, value in values:
            names, row = tuple(label for label, _ in labels), tuple(text for _, text in labels)
            if name in COUNTERS:
                counter = self.counters.get(name)
                if counter is None:
                    counter = self.counters[name] = Counter(PREFIX + name, name.replace("_", " "), names)
                (counter.labels(*row) if row else counter).inc(value)
                continue
            gauge = self.gauges.get(name)
            if gauge is None:
                gauge = self.gauges[name] = Gauge(PREFIX + name, name.replace("_", " "), names)
            (gauge.labels(*row) if row else gauge).set(value)
            if row:
                named.setdefault(name, set()).add(row)
        for name, rows in named.items():
            for gone in self.series.get(name, set()) - rows:
                self.gauges[name].remove(*gone)
            self.series[name] = rows
