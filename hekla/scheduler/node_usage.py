"""Reads the real usage of nodes from the monitoring system that the policy's section `metrics`
names.

Each interval it reads the usage of all nodes into the state, with the time of measurement; the
plugins `usage` and `rescheduling` ignore values that are older than five minutes.  Reference:
plugins-placement 11.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hekla.engine.model.resources import CPU, MEMORY
from hekla.engine.model.state import State
from hekla.engine.plugins.placement.usage import PERIOD, interval
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.monitoring import cluster_metrics, prometheus
from hekla.monitoring.http import ROUND, address_of, fetch

log = logging.getLogger(__name__)

PROMETHEUS, ADAPTOR, ELASTICSEARCH = "prometheus", "prometheus_adaptor", "elasticsearch"
METRICS_SERVER = "metrics_server"
AT_ONCE = 8
WINDOW = 600.0
"""Seconds over which usage is averaged, by whoever measures it or here."""
FAILURES = (OSError, ValueError, TypeError, KeyError, AttributeError, ApiError, TransportError)


class Load(NamedTuple):
    """Usage of cpu and memory in percent over ten minutes, and when it was measured."""

    cpu: float
    memory: float
    at: float


class Averages:
    """Usage of nodes over the window, from measurements of a moment each."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[Load]] = {}

    def take(self, found: Mapping[str, Load]) -> dict[str, Load]:
        """Take in measurements; gives the averages of the nodes that they are of."""
        self._seen = {node: seen for node, seen in self._seen.items() if node in found}
        averages = {}
        for node, load in found.items():
            seen = self._seen.setdefault(node, deque())
            if not seen or load.at > seen[-1].at:
                seen.append(load)
            while seen[0].at < load.at - WINDOW:
                seen.popleft()
            cpu, memory = (sum(one[column] for one in seen) / len(seen) for column in (0, 1))
            averages[node] = Load(cpu, memory, load.at)
        return averages


def cpu_query(node: str) -> str:
    idle = f'rate(node_cpu_seconds_total{{mode="idle",instance="{node}"}}[5m])'
    return f"avg_over_time(clamp_min(100 - (avg by (instance) ({idle}) * 100), 0)[10m:30s])"


def memory_query(node: str) -> str:
    free, whole = (
        f'node_memory_{name}_bytes{{instance="{node}"}}' for name in ("MemAvailable", "MemTotal")
    )
    return f"100*avg_over_time(((1-{free}/{whole}))[10m:30s])"


class LoadCollector:
    """Collects usage while cycles run.  `settings` is called in each round, because the policy may
    change."""

    def __init__(
        self,
        client: Client,
        state: State,
        settings: Callable[[], Mapping[str, str]],
        changed: Callable[[], None],
    ) -> None:
        self.client = client
        self.state = state
        self.settings = settings
        self.changed = changed
        self.complained = ""
        self.averages = Averages()

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            settings = self.settings()
            if settings.get("type"):
                try:
                    async with asyncio.timeout(ROUND):
                        self.take(await self.ask(settings))
                    self.complained = ""
                except (*FAILURES, TimeoutError) as error:
                    self.complain(
                        f"the load of nodes cannot be had from {settings.get('type')}: {error or 'it takes too long'}"
                    )
            await asyncio.sleep(interval(settings))

    def complain(self, text: str) -> None:
        if text != self.complained:
            log.error("%s", text)
            self.complained = text

    def take(self, found: Mapping[str, Load]) -> None:
        """Set the measured values in the state."""
        for node, load in found.items():
            self.state.upsert_other(
                "NodeUsage",
                {
                    "metadata": {"name": node},
                    "time": load.at,
                    "cpu_usage_avg_percent": {PERIOD: load.cpu},
                    "memory_usage_avg_percent": {PERIOD: load.memory},
                },
            )
        if found:
            self.changed()

    def nodes(self) -> list[str]:
        table = self.state.nodes
        return [name for name, row in table.rows.items() if table.ready[row]]

    async def ask(self, settings: Mapping[str, str]) -> dict[str, Load]:
        """One round of questions: usage by node.  Raises one of FAILURES if nothing can be used."""
        kind = settings["type"]
        if kind == PROMETHEUS:
            return await self.each(lambda node: self.prometheus(settings, node))
        if kind == ELASTICSEARCH:
            return await self.each(lambda node: self.elasticsearch(settings, node))
        if kind == ADAPTOR:
            return await self.adaptor()
        if kind == METRICS_SERVER:
            return self.averages.take(await self.metrics_server())
        raise ValueError(
            f"type {kind!r}: {PROMETHEUS}, {ADAPTOR}, {METRICS_SERVER} or {ELASTICSEARCH}"
        )

    async def each(self, ask: Callable[[str], Load]) -> dict[str, Load]:
        """Ask about every node, a few at a time."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(node: str) -> tuple[str, Load]:
            async with turns:
                return node, await asyncio.to_thread(ask, node)

        return dict(await asyncio.gather(*(one(node) for node in self.nodes())))

    # --- where it comes from ----------------------------------------------------------------------

    def prometheus(self, settings: Mapping[str, str], node: str) -> Load:
        """The usage of a node by Prometheus.  A question that fails or finds nothing counts as no
        load, as upstream."""
        values = []
        for query in (cpu_query(node), memory_query(node)):
            try:
                rows = prometheus.vector(settings, query)
                values.append(rows[0].value if rows else 0.0)
            except FAILURES as error:
                self.complain(f"prometheus does not say what {node} uses: {error}")
                values.append(0.0)
        return Load(values[0], values[1], time.time())

    async def adaptor(self) -> dict[str, Load]:
        """The usage of nodes by the custom metrics API; nodes that it does not name keep their
        values."""
        seen: dict[str, dict[str, tuple[float, float]]] = {}
        for metric in ("node_cpu_usage_avg", "node_memory_usage_avg"):
            for name, (value, at) in (
                await cluster_metrics.node_metric(self.client, metric)
            ).items():
                if name not in self.state.nodes.rows:
                    log.warning("the load of node %s is measured, but there is no such node", name)
                    continue
                seen.setdefault(name, {})[metric] = 100.0 * value, at
        return {
            name: Load(
                both.get("node_cpu_usage_avg", (0.0, 0.0))[0],
                both.get("node_memory_usage_avg", (0.0, 0.0))[0],
                max(at for _, at in both.values()),
            )
            for name, both in seen.items()
        }

    async def metrics_server(self) -> dict[str, Load]:
        """The usage of nodes at this moment by the resource metrics API, in percent of what the
        machine has; nodes that it does not name keep their values."""
        table = self.state.nodes
        cores, memory = (table.capacity(table.space.column(one)) for one in (CPU, MEMORY))
        found = {}
        for name, usage in (await cluster_metrics.node_usage(self.client)).items():
            row = table.rows.get(name)
            if row is not None:
                found[name] = Load(
                    _percent(usage.cpu, cores[row]), _percent(usage.memory, memory[row]), usage.at
                )
        return found

    def elasticsearch(self, settings: Mapping[str, str], node: str) -> Load:
        body = {
            "size": 0,
            "query": {
                "bool": {
                    "must": [
                        {"range": {"@timestamp": {"gte": "now-10m", "lt": "now"}}},
                        {
                            "term": {
                                settings.get("elasticsearch.hostnameFieldName")
                                or "host.hostname": node
                            }
                        },
                    ]
                }
            },
            "aggs": {
                "cpu": {"avg": {"field": "host.cpu.usage"}},
                "mem": {"avg": {"field": "system.memory.actual.used.pct"}},
            },
        }
        index = settings.get("elasticsearch.index") or "metricbeat-*"
        found = (
            fetch(f"{address_of(settings)}/{index}/_search", settings, body).get("aggregations")
            or {}
        )
        cpu, memory = (
            100.0 * float((found.get(name) or {}).get("value") or 0.0) for name in ("cpu", "mem")
        )
        return Load(cpu, memory, time.time())


def _percent(used: float, whole: float) -> float:
    return 100.0 * used / whole if whole > 0 else 0.0
