"""`/metrics` and `/metrics/probes`: what runs on a node and how its probes went, under a kubelet's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector

from hekla.local.kubelet.nodes.machine import KUBELET_VERSION
from hekla.local.kubelet.pods.pod_worker import PodWorker
from hekla.local.kubelet.usage.exposition import COUNTER, GAUGE, Served


def kubelet(node: str, desired: int, workers: Iterable[PodWorker]) -> bytes:
    """What the kubelet tells of itself.  `desired`: the pods that are bound to the node.  The process is
    that of all nodes of this machine."""
    states: Counter[str] = Counter({"running": 0, "exited": 0, "created": 0})
    running = 0
    for worker in workers:
        views = [one.view for one in worker.containers]
        running += any(view.running_since is not None for view in views)
        for view in views:
            ended = "created" if view.ended is None else "exited"
            states[ended if view.running_since is None else "running"] += 1
    served = Served()
    served.add(
        "kubelet_node_name", GAUGE, "The node's name. The count is always 1.", {"node": node}, 1
    )
    served.add(
        "kubelet_desired_pods",
        GAUGE,
        "Pods that the kubelet is to run",
        {"static": "false"},
        desired,
    )
    served.add("kubelet_running_pods", GAUGE, "Pods with a running container", {}, running)
    for state, count in sorted(states.items()):
        labels = {"container_state": state}
        served.add("kubelet_running_containers", GAUGE, "Containers by their state", labels, count)
    version = {"git_version": KUBELET_VERSION}
    served.add("kubernetes_build_info", GAUGE, "Whose behaviour the kubelet has", version, 1)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return served.shown(registry)


def probes(workers: Iterable[PodWorker]) -> bytes:
    """How often each probe of each container has succeeded and failed."""
    served = Served()
    for worker in workers:
        for one in worker.containers:
            for (kind, result), count in sorted(one.probed.items()):
                labels = {
                    "container": one.spec.name,
                    "namespace": worker.pod.metadata.namespace,
                    "pod": worker.pod.metadata.name,
                    "pod_uid": worker.uid,
                    "probe_type": kind.capitalize(),
                    "result": result,
                }
                text = "Cumulative number of attempts of a probe, by their result"
                served.add("prober_probe_total", COUNTER, text, labels, count)
    return served.shown()
