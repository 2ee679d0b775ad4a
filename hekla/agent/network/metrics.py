"""Network QoS in metrics: what the regulator has counted, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from hekla.agent.network.state import Status
from hekla.kube.metrics import Table

if TYPE_CHECKING:
    from hekla.agent.network.regulator import Regulator

GAUGES = {
    "online_bandwidth_bytes": "What online pods sent a second, in the last interval",
    "offline_bandwidth_bytes": "What offline pods sent a second, in the last interval",
    "offline_limit_bytes": "What offline pods may send a second; 0: they are not limited",
    "pods_unlimited": "Offline pods that are not limited though they should be",
}
COUNTERS = {
    "online_transmit_bytes": "What online pods have sent",
    "offline_transmit_bytes": "What offline pods have sent within their limit",
    "high_intervals": "Intervals in which offline pods had the high limit",
    "low_intervals": "Intervals in which offline pods had the low limit, for online pods sent much",
}
PREFIX = "hekla_agent_network_"


class NetworkMetrics(Collector):
    """What a regulator shows at /metrics; zeros until there is one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.regulator: Regulator | None = None
        apart = CollectorRegistry()
        self._tables = {
            name: Table(PREFIX + name, help, counts=name in COUNTERS, registry=apart)
            for name, help in {**GAUGES, **COUNTERS}.items()
        }
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        regulator = self.regulator
        status = Status() if regulator is None else regulator.status
        now = Status() if regulator is None or not regulator.running else status
        values = {
            "online_bandwidth_bytes": now.latest_online_bandwidth,
            "offline_bandwidth_bytes": now.latest_offline_bandwidth,
            "offline_limit_bytes": now.offline_bandwidth_limit,
            "pods_unlimited": 0 if regulator is None else len(regulator.refused),
            "online_transmit_bytes": status.online_tx_bytes,
            "offline_transmit_bytes": status.offline_tx_bytes,
            "high_intervals": status.high_times,
            "low_intervals": status.low_times,
        }
        for name, table in self._tables.items():
            table.values = {(): float(values[name])}
            yield from table.collect()
