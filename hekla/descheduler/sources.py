"""Reads what nodes and pods use, in a few questions for the whole cluster.

Who is not measured is unknown: neither a source nor a destination.  Reference: descheduler 6.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from hekla.api.text.durations import duration_text, seconds
from hekla.descheduler.policy.arguments import (
    ADAPTOR,
    METRICS_SERVER,
    PROMETHEUS,
    LoadAwareArguments,
    LowNodeUtilizationArguments,
    Metrics,
)
from hekla.descheduler.policy.policy import Policy
from hekla.descheduler.tables import CPU, MEMORY, Node
from hekla.descheduler.usage import Usage, believed, fresh
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.monitoring import cluster_metrics, prometheus
from hekla.monitoring.cluster_metrics import Sample

log = logging.getLogger(__name__)

FAILURES = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ApiError,
    TransportError,
    TimeoutError,
)
LARGEST = 256 << 20
"""Bytes of the largest answer about a whole cluster."""
NODE_CPU = (
    'avg_over_time((1 - sum by (@instance) ($rate(node_cpu_seconds_total{mode="idle"}[$window])) / '
    "sum by (@instance) ($rate(node_cpu_seconds_total[$window])))[$duration:$step]) or "
    'avg_over_time((sum by (@instance) ($rate(container_cpu_usage_seconds_total{id="/"}[$window])) / '
    "max by (@instance) (machine_cpu_cores))[$duration:$step])"
)
"""A node exporter's series, and of a node that has none those of its kubelet's cadvisor.  Idle time against all
time: the rate of a series that has just begun is too small, and what is idle then would seem busy."""
NODE_MEMORY = (
    "avg_over_time((1 - max by (@instance) (node_memory_MemAvailable_bytes) / "
    "max by (@instance) (node_memory_MemTotal_bytes))[$duration:$step]) or "
    'avg_over_time((max by (@instance) (container_memory_working_set_bytes{id="/"}) / '
    "max by (@instance) (machine_memory_bytes))[$duration:$step])"
)
POD_CPU = (
    "avg_over_time((sum by (namespace, pod) "
    '($rate(container_cpu_usage_seconds_total{container="",name="",pod!=""}[$window])))[$duration:$step])'
)
POD_MEMORY = 'sum by (namespace, pod) (container_memory_usage_bytes{container="",name="",pod!=""})'
MEASURED_AT = (
    "max by (@instance) (timestamp(node_memory_MemAvailable_bytes)) or "
    'max by (@instance) (timestamp(container_memory_working_set_bytes{id="/"}))'
)
"""An instant query is dated now; this is when its samples were taken."""


Samples = tuple[dict[str, Sample], dict[str, Sample]]


def wanted(policy: Policy) -> dict[tuple[str, str], tuple[Metrics, str]]:
    """What is to be measured: by profile and plugin, from which source and over what time."""
    found: dict[tuple[str, str], tuple[Metrics, str]] = {}
    for profile in policy.profiles:
        for name in profile.balance:
            arguments = profile.arguments[name]
            if isinstance(arguments, LoadAwareArguments):
                found[profile.name, name] = arguments.metrics, arguments.duration
            elif (
                isinstance(arguments, LowNodeUtilizationArguments) and arguments.metrics_utilization
            ):
                found[profile.name, name] = Metrics(type=METRICS_SERVER), "2m"
    return found


class Sources:
    """Asks whatever a policy names."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.time) -> None:
        self.client = client
        self.clock = clock

    async def read(self, policy: Policy, nodes: Mapping[str, Node]) -> dict[tuple[str, str], Usage]:
        """The usage for each plugin that wants one; a source that several name is asked once."""
        asked: dict[tuple[Metrics, str], Usage] = {}
        found = {}
        for name, question in wanted(policy).items():
            if question not in asked:
                asked[question] = await self.usage(*question, nodes)
            found[name] = asked[question]
        return found

    async def usage(self, metrics: Metrics, duration: str, nodes: Mapping[str, Node]) -> Usage:
        """What one source says; its failure is said in the usage's `problem`."""
        try:
            of_nodes, of_pods = await self.ask(metrics, duration, nodes)
        except FAILURES as error:
            where = f" at {metrics.address}" if metrics.source == PROMETHEUS else ""
            return Usage(
                problem=f"{metrics.source}{where} cannot be asked: {error or 'it takes too long'}"
            )
        of_nodes, odd = believed(of_nodes, nodes)
        for words in odd:
            log.warning("%s; it is left alone", words)
        usage = fresh(of_nodes, of_pods, self.clock(), seconds(metrics.expiration))
        if not of_nodes and not odd and metrics.source == PROMETHEUS:
            query = fill(metrics.queries.node_cpu or NODE_CPU, metrics, duration)
            return Usage(
                problem=f"Prometheus has no cpu or memory of any node: {query} or its like for memory gave nothing.  Is "
                f"metrics.rateWindow {metrics.rate_window} longer than two scrape intervals, and {metrics.instance_label} "
                "the name of the node?"
            )
        return usage

    async def ask(self, metrics: Metrics, duration: str, nodes: Mapping[str, Node]) -> Samples:
        """Samples of nodes and of pods.  Raises one of FAILURES."""
        if metrics.source == PROMETHEUS:
            return await self.prometheus(metrics, duration, nodes)
        if metrics.source == ADAPTOR:
            return await self.adaptor(duration, nodes)
        return await self.metrics_server()

    async def metrics_server(self) -> Samples:
        nodes, pods = await asyncio.gather(
            cluster_metrics.node_usage(self.client), cluster_metrics.pod_usage(self.client)
        )
        return nodes, pods

    async def adaptor(self, duration: str, nodes: Mapping[str, Node]) -> Samples:
        cpu, memory = await asyncio.gather(
            cluster_metrics.node_metric(self.client, "node_cpu_usage_avg"),
            cluster_metrics.node_metric(self.client, "node_memory_usage_avg"),
        )
        try:
            pods = await cluster_metrics.pod_usage(self.client)
        except FAILURES as error:
            log.warning("no pod is measured, so their requests count: %s", error)
            pods = {}
        for name in sorted(cpu.keys() - nodes.keys()):
            log.warning("the load of node %s is measured, but there is no such node", name)
        both = {
            name: (cpu[name], memory[name]) for name in cpu.keys() & memory.keys() & nodes.keys()
        }
        return {
            name: of_ratios(nodes[name], used[0], held[0], min(used[1], held[1]), seconds(duration))
            for name, (used, held) in both.items()
        }, pods

    async def prometheus(
        self, metrics: Metrics, duration: str, nodes: Mapping[str, Node]
    ) -> Samples:
        given = metrics.queries
        at_text = "" if given.node_memory else MEASURED_AT
        texts = (given.node_cpu or NODE_CPU, given.node_memory or NODE_MEMORY, given.pod_cpu or POD_CPU,
                 given.pod_memory or POD_MEMORY, *([at_text] if at_text else []))  # fmt: skip
        settings, timeout = settings_of(metrics), seconds(metrics.timeout)
        answers = await asyncio.gather(
            *(
                asyncio.to_thread(
                    prometheus.vector,
                    settings,
                    fill(text, metrics, duration),
                    largest=LARGEST,
                    timeout=timeout,
                )
                for text in texts
            )
        )
        cpu, memory = (by(rows, metrics.instance_label) for rows in answers[:2])
        measured = by(answers[4], metrics.instance_label) if at_text else memory
        window = seconds(duration) + seconds(metrics.rate_window)
        of_nodes = {
            name: of_ratios(
                nodes[name],
                cpu[name].value,
                memory[name].value,
                measured[name].value if at_text else memory[name].at,
                window,
            )
            for name in cpu.keys() & memory.keys() & measured.keys() & nodes.keys()
        }
        pod_cpu, pod_memory = (by(rows, "namespace", "pod") for rows in answers[2:4])
        return of_nodes, {
            name: Sample(
                1000 * pod_cpu[name].value, pod_memory[name].value, pod_cpu[name].at, window
            )
            for name in pod_cpu.keys() & pod_memory.keys()
        }


def by(rows: list[prometheus.Row], *labels: str) -> dict[str, prometheus.Row]:
    """Rows by the values of these labels, joined as the keys of objects are; the first of each."""
    found: dict[str, prometheus.Row] = {}
    for row in rows:
        found.setdefault("/".join(row.labels.get(label, "") for label in labels), row)
    return found


def of_ratios(node: Node, cpu: float, memory: float, at: float, window: float) -> Sample:
    """Shares of the machine as amounts."""
    return Sample(
        max(cpu, 0.0) * node.capacity.get(CPU, 0.0),
        max(memory, 0.0) * node.capacity.get(MEMORY, 0.0),
        at,
        window,
    )


def fill(query: str, metrics: Metrics, duration: str) -> str:
    """A query with its words filled in."""
    words = {
        "$rateWindow": metrics.rate_window,
        "$window": metrics.rate_window,
        "$rate": metrics.rate_function,
        "$duration": duration_text(seconds(duration)),
        "$step": metrics.step,
        "@instance": metrics.instance_label,
    }
    for word, value in words.items():
        query = query.replace(word, value)
    return query


def settings_of(metrics: Metrics) -> dict[str, str]:
    return {
        "address": metrics.address or "",
        "tls.insecureSkipVerify": str(metrics.tls.insecure_skip_verify).lower(),
        "tls.caFile": metrics.tls.ca_file,
        "tls.certFile": metrics.tls.cert_file,
        "tls.keyFile": metrics.tls.key_file,
        "auth.bearerTokenFile": metrics.auth.bearer_token_file,
    }
