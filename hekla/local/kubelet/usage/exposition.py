"""`/metrics/resource` and `/metrics/cadvisor`: usage under a kubelet's names, for metrics servers and
Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from hekla.kube.metrics import shown
from hekla.local.kubelet.usage.snapshot import ContainerUsage, PodUsage, Snapshot, Use

COUNTER, GAUGE = "counter", "gauge"
Labels = dict[str, str]


class Served(Collector):
    """Samples that are made once, by name in the order of their first appearance."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}

    def add(
        self,
        name: str,
        kind: str,
        text: str,
        labels: Labels,
        value: float,
        at: float | None = None,
    ) -> None:
        metric = self.metrics.get(name)
        if metric is None:
            metric = self.metrics[name] = Metric(name.removesuffix("_total"), text, kind)
        metric.samples.append(Sample(name, labels, value, at, None))

    def collect(self) -> Iterable[Metric]:
        return self.metrics.values()

    def shown(self, registry: CollectorRegistry | None = None) -> bytes:
        """As text, with what is in `registry` already."""
        if registry is None:
            registry = CollectorRegistry()
        registry.register(self)
        return shown(registry)


def resource(found: Snapshot) -> bytes:
    """What a metrics server reads: processor time and working sets, with the moments at which they
    were measured."""
    served = Served()
    _resource(served, "node", "the node", {}, found.node.use)
    for pod in found.pods:
        own = {"namespace": pod.namespace, "pod": pod.name}
        _resource(served, "pod", "the pod", own, pod.use)
        for one in pod.containers:
            labels = {"container": one.name, **own}
            _resource(served, "container", "the container", labels, one.use)
            served.add(
                "container_start_time_seconds",
                GAUGE,
                "Start time of the container since unix epoch in seconds",
                labels,
                one.started,
            )
    served.add(
        "resource_scrape_error", GAUGE, "1 if there was an error while getting the metrics", {}, 0
    )
    return served.shown()


def _resource(served: Served, scope: str, what: str, labels: Labels, use: Use) -> None:
    served.add(
        f"{scope}_cpu_usage_seconds_total",
        COUNTER,
        f"Cumulative cpu time consumed by {what} in core-seconds",
        labels,
        use.cpu / 1e9,
        use.at,
    )
    served.add(
        f"{scope}_memory_working_set_bytes",
        GAUGE,
        f"Current working set of {what} in bytes",
        labels,
        use.memory.working_set,
        use.at,
    )


def cadvisor(found: Snapshot) -> bytes:
    """What dashboards for containers read."""
    served = Served()
    served.add("machine_cpu_cores", GAUGE, "Number of logical CPU cores", {}, found.node.cores)
    served.add(
        "machine_memory_bytes",
        GAUGE,
        "Amount of memory installed on the machine",
        {},
        found.node.memory_total,
    )
    _use(
        served,
        {"id": "/", "container": "", "image": "", "namespace": "", "pod": ""},
        found.node.use,
    )
    for pod in found.pods:
        own = {"namespace": pod.namespace, "pod": pod.name}
        for one in pod.containers:
            _container(served, pod, one)
        _use(
            served, {"id": f"/kubepods/pod{pod.uid}", "container": "", "image": "", **own}, pod.use
        )
        for network in pod.networks:
            labels = {"interface": network.name, **own}
            for name, text, value in (
                ("receive_bytes", "bytes received", network.received),
                ("receive_errors", "errors encountered while receiving", network.receive_errors),
                ("transmit_bytes", "bytes transmitted", network.sent),
                ("transmit_errors", "errors encountered while transmitting", network.send_errors),
            ):
                served.add(
                    f"container_network_{name}_total",
                    COUNTER,
                    f"Cumulative count of {text}",
                    labels,
                    value,
                    pod.use.at,
                )
    return served.shown()


def _container(served: Served, pod: PodUsage, one: ContainerUsage) -> None:
    labels = {
        "id": f"/kubepods/pod{pod.uid}/{one.name}-{one.attempt}",
        "container": one.name,
        "image": one.image,
        "namespace": pod.namespace,
        "pod": pod.name,
    }
    _use(served, labels, one.use)
    for name, text, value in (
        (
            "start_time_seconds",
            "Start time of the container since unix epoch in seconds",
            one.started,
        ),
        ("spec_memory_limit_bytes", "Memory limit for the container", one.memory_limit),
        (
            "fs_usage_bytes",
            "Number of bytes that are consumed by the container",
            one.disk + one.logs,
        ),
        ("last_seen", "Last time a container was seen by the exporter", one.use.at),
    ):
        served.add(f"container_{name}", GAUGE, text, labels, value)


def _use(served: Served, labels: Labels, use: Use) -> None:
    memory = use.memory
    served.add(
        "container_cpu_usage_seconds_total",
        COUNTER,
        "Cumulative cpu time consumed in seconds",
        {**labels, "cpu": "total"},
        use.cpu / 1e9,
        use.at,
    )
    for name, text, value in (
        ("memory_usage_bytes", "Current memory usage in bytes, including all memory", memory.usage),
        ("memory_working_set_bytes", "Current working set in bytes", memory.working_set),
        ("memory_rss", "Size of RSS in bytes", memory.rss),
        ("processes", "Number of processes running inside the container", use.processes),
    ):
        served.add(f"container_{name}", GAUGE, text, labels, value, use.at)
    for kind, count in (("pgfault", memory.faults), ("pgmajfault", memory.major_faults)):
        served.add(
            "container_memory_failures_total",
            COUNTER,
            "Cumulative count of memory allocation failures",
            {**labels, "failure_type": kind, "scope": "container"},
            count,
            use.at,
        )
