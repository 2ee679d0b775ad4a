"""What descheduling is worth: a skewed cluster, cycles until nothing moves, and what comes back goes to the node
that uses least.

The bound of evictions: each node above its limit at the start has to lose at least as many pods as its largest
ones need to be to bring it down to the limit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from statistics import pstdev

from benchmarks.figure import Figure
from hekla.descheduler.classification import Class, completed, loads
from hekla.descheduler.cycle import cycle
from hekla.descheduler.policy.reader import read
from hekla.descheduler.session import Report
from hekla.descheduler.tables import CPU, MEMORY, Node, Owner, Pod, Tables
from hekla.descheduler.usage import Usage
from hekla.monitoring.cluster_metrics import Sample

SPREAD, EVICTIONS = "descheduler.spread", "descheduler.evictions"
FIGURES = (SPREAD, EVICTIONS)
NODES, CORES = 1000, 32000.0
DEVIATION = 5
MOST_CYCLES = 50
SEED = 1

POLICY = f"""
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: even
  pluginConfig:
  - {{name: DefaultEvictor, args: {{nodeFit: true}}}}
  - name: LoadAware
    args:
      metrics: {{type: metrics_server}}
      useDeviationThresholds: true
      thresholds: {{cpu: {DEVIATION}}}
      targetThresholds: {{cpu: {DEVIATION}}}
  plugins:
    balance: {{enabled: [LoadAware]}}
"""


class Cluster:
    """Nodes whose pods use what they use wherever they are."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(seed)
        resources = {CPU: CORES, MEMORY: float(128 << 30), "pods": 110.0}
        nodes = [
            Node(f"n{number}", allocatable=resources, capacity=resources) for number in range(NODES)
        ]
        self.used: dict[str, float] = {}
        """Millicores by pod."""
        pods = []
        for node in nodes:
            busy = CORES * min(drawn.lognormvariate(-1.1, 0.6), 0.98)
            while busy > 100:
                name = f"p{len(pods)}"
                use = min(drawn.lognormvariate(6.9, 0.7), busy)
                busy -= use
                self.used[f"default/{name}"] = use
                pods.append(Pod(name, uid=name, node=node.name, owners=(Owner("ReplicaSet", "web"),), qos="Burstable",
                                requests={CPU: 250.0, MEMORY: float(1 << 30)}))  # fmt: skip
        self.tables = Tables(nodes, pods)

    def use(self) -> dict[str, float]:
        return {
            name: sum(self.used[key] for key in self.tables.on_node.get(name, ()))
            for name in self.tables.nodes
        }

    def measured(self, now: float) -> Usage:
        return Usage(
            {name: Sample(cpu, 0.0, now) for name, cpu in self.use().items()},
            {key: Sample(cpu, 0.0, now) for key, cpu in self.used.items()},
        )

    def come_back(self, gone: list[Pod]) -> None:
        """Each to the node that uses least."""
        coolest = [(cpu, name) for name, cpu in self.use().items()]
        heapify(coolest)
        for pod in gone:
            cpu, name = coolest[0]
            heapreplace(coolest, (cpu + self.used[pod.key], name))
            self.tables.put_pod(replace(pod, node=name))

    def least(self) -> int:
        """Evictions without which the nodes that are hot now stay hot."""
        return least(
            {
                name: [self.used[key] for key in self.tables.on_node.get(name, ())]
                for name in self.tables.nodes
            }
        )


def least(used: Mapping[str, Sequence[float]]) -> int:
    """The bound: for each hot node the number of its largest pods that bring it down to its limit.  `used`: node ->
    millicores of its pods."""
    limits = completed({CPU: DEVIATION}, {CPU: DEVIATION}, deviation=True)
    found = loads(
        [
            (
                Node(name, allocatable={CPU: CORES, MEMORY: 1.0, "pods": 110.0}),
                {CPU: float(sum(pods))},
            )
            for name, pods in used.items()
        ],
        *limits,
        deviation=True,
    )
    count = 0
    for load in (one for one in found if one.classed() is Class.OVER):
        over = load.usage[CPU] - load.high[CPU]
        for cpu in sorted(used[load.node.name], reverse=True):
            if over <= 0:
                break
            over -= cpu
            count += 1
    return count


def measure(names: set[str]) -> Iterator[Figure]:
    cluster, policy = Cluster(SEED), read(POLICY)
    before, least = pstdev(cluster.use().values()), cluster.least()
    moves: Counter[str] = Counter()
    cycles = 0
    while cycles < MOST_CYCLES:
        cycles += 1
        now = 1000.0 * cycles
        steps = cycle(
            policy,
            cluster.tables,
            now,
            Report(),
            usages={("even", "LoadAware"): cluster.measured(now)},
        )
        gone: list[Pod] = []
        answer: bool | None = None
        while True:
            try:
                eviction = next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                break
            gone.append(eviction.pod)
            answer = True
        if not gone:
            break
        for pod in gone:
            cluster.tables.drop_pod(pod.key)
        moves.update(pod.key for pod in gone)
        cluster.come_back(gone)
    evictions = sum(moves.values())
    conditions = (
        f"{NODES} nodes, {len(cluster.used)} pods, seed {SEED}, {cycles} cycles, {evictions} evictions, {least} at least, "
        f"no pod more than {max(moves.values(), default=0)} times"
    )
    if SPREAD in names:
        yield Figure(SPREAD, pstdev(cluster.use().values()) / before, "ratio", conditions)
    if EVICTIONS in names:
        yield Figure(EVICTIONS, evictions / least, "ratio", conditions)
