"""The descheduler's metrics, under the names that dashboards know.  Reference: descheduler 12.1."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram

from hekla import __version__
from hekla.descheduler.session import Report
from hekla.kube.metrics import Table

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """What one daemon shows at /metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.evicted = Table(
            "descheduler_pods_evicted",
            "Evictions, by what became of them",
            ("result", "strategy", "namespace", "node"),
            counts=True,
            registry=registry,
        )
        self.refused = Table(
            "descheduler_pods_refused",
            "Pods that a strategy would have moved and that stay, by reason",
            ("strategy", "reason"),
            counts=True,
            registry=registry,
        )
        self.budgets = Table(
            "descheduler_evictions_blocked_by_budget",
            "Evictions that a PodDisruptionBudget did not allow",
            counts=True,
            registry=registry,
        )
        self.usage_failures = Table(
            "descheduler_usage_failures",
            "Cycles in which a plugin had no fresh measurements and evicted nothing",
            ("profile", "strategy"),
            counts=True,
            registry=registry,
        )
        self.policy_failures = Table(
            "descheduler_policy_reload_failures",
            "Cycles that were left out because the policy could not be used",
            counts=True,
            registry=registry,
        )
        self.ratios = Table(
            "descheduler_node_usage_ratio",
            "What a node uses of what it has, as the last cycle saw it",
            ("node", "resource"),
            registry=registry,
        )
        self.classes = Table(
            "descheduler_node_class",
            "1 for the class of a node: under, appropriate, over or unknown",
            ("node", "strategy", "class"),
            registry=registry,
        )
        self.last_cycle = Gauge(
            "descheduler_last_cycle_timestamp_seconds",
            "When the last cycle ended",
            registry=registry,
        )
        self.loop = Histogram(
            "descheduler_descheduler_loop_duration_seconds",
            "One cycle",
            buckets=BUCKETS,
            registry=registry,
        )
        self.strategy = Histogram(
            "descheduler_descheduler_strategy_duration_seconds",
            "One plugin of a cycle",
            ("strategy", "profile"),
            buckets=BUCKETS,
            registry=registry,
        )
        build = Gauge("descheduler_build_info", "Always 1", ("version",), registry=registry)
        build.labels(__version__).set(1)

    def take(self, report: Report, duration: float, now: float) -> None:
        """Count what a cycle did."""
        names = ("result", "strategy", "namespace", "node")
        for values, count in report.evictions.items():
            self._add(self.evicted, dict(zip(names, map(str, values), strict=True)), count)
        for (strategy, reason), count in report.refused.items():
            self._add(self.refused, {"strategy": strategy, "reason": reason}, count)
        self.ratios.values = {
            (("node", node), ("resource", resource)): ratio
            for (node, resource), ratio in report.ratios.items()
        }
        self.classes.values = {
            (("node", node), ("strategy", strategy), ("class", str(kind))): 1.0
            for (node, strategy), kind in report.classes.items()
        }
        for (strategy, profile), seconds in report.seconds.items():
            self.strategy.labels(strategy, profile).observe(seconds)
        self.loop.observe(duration)
        self.last_cycle.set(now)

    def usage_failed(self, profile: str, strategy: str) -> None:
        self._add(self.usage_failures, {"profile": profile, "strategy": strategy})

    def policy_failed(self) -> None:
        self._add(self.policy_failures, {})

    def blocked(self) -> None:
        self._add(self.budgets, {})

    def _add(self, table: Table, labels: dict[str, str], count: float = 1.0) -> None:
        key = tuple(labels.items())
        table.values[key] = table.values.get(key, 0.0) + count
