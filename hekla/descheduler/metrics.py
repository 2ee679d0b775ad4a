"""The descheduler's metrics, under the names that dashboards know.  Reference: descheduler 12.1."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram

from hekla import __version__
from hekla.descheduler.session import Report
from hekla.kube.metrics import Table, Tally

BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """What one daemon shows at /metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.evicted = Tally(
            "descheduler_pods_evicted",
            "Evictions, by what became of them",
            ("result", "strategy", "namespace", "node"),
            registry=registry,
        )
        self.refused = Tally(
            "descheduler_pods_refused",
            "Pods that a strategy would have moved and that stay, by reason",
            ("strategy", "reason"),
            registry=registry,
        )
        self.returned = Tally(
            "descheduler_pods_returned",
            "Pods that came back to the node from which one of their owner had been evicted",
            ("namespace", "node"),
            registry=registry,
        )
        self.budgets = Tally(
            "descheduler_evictions_blocked_by_budget",
            "Evictions that a PodDisruptionBudget did not allow",
            registry=registry,
        )
        self.usage_failures = Tally(
            "descheduler_usage_failures",
            "Cycles in which a plugin had no fresh measurements and evicted nothing",
            ("profile", "strategy"),
            registry=registry,
        )
        self.policy_failures = Tally(
            "descheduler_policy_reload_failures",
            "Cycles that were left out because the policy could not be used",
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
        for values, count in report.evictions.items():
            self.evicted.labels(*map(str, values)).inc(count)
        for (strategy, reason), count in report.refused.items():
            self.refused.labels(strategy, reason).inc(count)
        for found in report.returns:
            self.returned.labels(found.place.namespace, found.place.node).inc()
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
        self.usage_failures.labels(profile, strategy).inc()

    def policy_failed(self) -> None:
        self.policy_failures.inc()

    def blocked(self) -> None:
        self.budgets.inc()
