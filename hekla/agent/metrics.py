"""The agent's metrics.  Reference: agent 2.4."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from hekla import __version__
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
        build = Gauge("hekla_agent_build_info", "Always 1", ("version",), registry=registry)
        build.labels(__version__).set(1)
