"""The agent's metrics.  Reference: agent 2.4."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from hekla import __version__
from hekla.agent.network.metrics import NetworkMetrics
from hekla.agent.watermarks import Kind
from hekla.kube.metrics import Table, Tally


class Metrics:
    """What one agent shows at /metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.oversubscription = Table(
            "volcano_agent_oversubscription_resource_quantity",
            "What was last reported of a node beyond its allocatable: millicores of cpu, bytes of memory",
            ("node", "resource"),
            registry=registry,
        )
        self.usage = Table(
            "hekla_agent_node_usage_percent",
            "What is used of what is allocatable, as the watermarks see it",
            ("node", "resource"),
            registry=registry,
        )
        self.samples_left_out = Tally(
            "hekla_agent_usage_samples_left_out",
            "Samples that could not be measured or were not believed",
            ("what",),
            registry=registry,
        )
        self.evictions = Tally(
            "hekla_agent_evictions",
            "Offline pods: evicted, refused because they are critical, failed because the API server says no",
            ("outcome",),
            registry=registry,
        )
        self.writes = Tally(
            "hekla_agent_cgroup_writes", "Files of cgroups that were changed", registry=registry
        )
        self.failures = Tally(
            "hekla_agent_pod_failures",
            "Times that a feature could not be applied to a pod",
            ("feature",),
            registry=registry,
        )
        self.active = Table(
            "hekla_agent_feature_active",
            "1 for each feature that works on this node now, 0 for the others",
            ("feature",),
            registry=registry,
        )
        self.configured = Table(
            "hekla_agent_configuration_applied",
            "1 if the configuration is in force as it is written, 0 if an older one is, or none",
            registry=registry,
        )
        self.network = NetworkMetrics(registry)
        build = Gauge("hekla_agent_build_info", "Always 1", ("version",), registry=registry)
        build.labels(__version__).set(1)

    def applied(self, good: bool) -> None:
        self.configured.values = {(): float(good)}

    def lends(self, node: str, offer: Mapping[Kind, int]) -> None:
        for kind, amount in offer.items():
            self.oversubscription.values[("node", node), ("resource", kind.value)] = amount

    def uses(self, node: str, kind: Kind, percent: int | None) -> None:
        """None: not known, so that there is no such series."""
        series = (("node", node), ("resource", kind.value))
        if percent is None:
            self.usage.values.pop(series, None)
        else:
            self.usage.values[series] = percent

    def left_out(self, what: str, why: str) -> None:
        self.samples_left_out.labels(what).inc()

    def eviction(self, outcome: str) -> None:
        self.evictions.labels(outcome).inc()
