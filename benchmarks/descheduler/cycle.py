"""A cycle of the descheduler over a large cluster: tables and measurements are there, and evictions are
taken at once.

A tenth of the nodes is hot.  LoadAware with `nodeFit` relieves them; the resident memory is that of a process
that has read all objects as the API server sends them.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from hekla.api.trees import Json
from hekla.descheduler.cycle import cycle
from hekla.descheduler.policy.reader import read
from hekla.descheduler.reading import node_of, pod_of
from hekla.descheduler.session import Report
from hekla.descheduler.tables import Tables
from hekla.descheduler.usage import Usage
from hekla.monitoring.cluster_metrics import Sample

CYCLE = "descheduler.cycle"
FIGURES = (CYCLE,)
NODES, PODS_EACH = 5000, 20
NOW = 1_790_000_000.0
TIMES = 3

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: hot
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: true}}
  - name: LoadAware
    args:
      metrics: {type: metrics_server}
      thresholds: {cpu: 30, memory: 60}
      targetThresholds: {cpu: 80, memory: 90}
      nodeFit: true
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 604800}}
  - {name: RemoveFailedPods}
  plugins:
    deschedule: {enabled: [PodLifeTime, RemoveFailedPods]}
    balance: {enabled: [LoadAware]}
"""


def node(number: int) -> Json:
    resources = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    return {
        "metadata": {"name": f"n{number}", "labels": {"zone": f"z{number % 5}"}},
        "spec": {},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(number: int) -> Json:
    return {
        "metadata": {
            "name": f"app-{number // 10}-{number:06}",
            "namespace": f"team-{number % 50}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "labels": {"app": f"app-{number // 10}"},
            "creationTimestamp": "2026-09-21T09:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"app-{number // 10}"}],
        },
        "spec": {
            "nodeName": f"n{number % NODES}",
            "priority": 1000 * (number % 3),
            "containers": [{"image": "app", "resources": {"requests": {"cpu": f"{500 + 100 * (number % 7)}m", "memory": "2Gi"}}}],
        },
        "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-09-21T09:00:00Z"},
    }  # fmt: skip


def measured() -> Usage:
    """Every tenth node at 95 %, six of ten under 30 %, the others between."""
    shares = (0.95, 0.2, 0.25, 0.1, 0.5, 0.28, 0.6, 0.15, 0.7, 0.2)
    nodes = {
        f"n{number}": Sample(32000 * shares[number % 10], 40 << 30, NOW - 5, 15)
        for number in range(NODES)
    }
    pods = {}
    for number in range(NODES * PODS_EACH):
        share = 32000 * shares[number % NODES % 10] / PODS_EACH
        pods[f"team-{number % 50}/app-{number // 10}-{number:06}"] = Sample(
            share, 1 << 30, NOW - 5, 15
        )
    return Usage(nodes, pods)


def measure(names: set[str]) -> Iterator[Figure]:
    if CYCLE not in names:
        return
    tables = Tables((node_of(node(number)) for number in range(NODES)),
                    (pod_of(pod(number)) for number in range(NODES * PODS_EACH)))  # fmt: skip
    usage, policy = measured(), read(POLICY)
    gc.collect()
    gc.freeze()
    best, evicted = float("inf"), 0
    for _ in range(TIMES):
        report = Report()
        began = time.perf_counter()
        steps = cycle(policy, tables, NOW, report, usages={("hot", "LoadAware"): usage})
        evicted, answer = 0, None
        while True:
            try:
                next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                break
            evicted, answer = evicted + 1, True
        best = min(best, time.perf_counter() - began)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{CYCLE}: {resident:.0f} MB at most", file=sys.stderr)
    yield Figure(
        CYCLE,
        best,
        "s",
        f"{NODES} nodes, {NODES * PODS_EACH} pods, {evicted} evictions, best of {TIMES}; {resident:.0f} MB",
    )
