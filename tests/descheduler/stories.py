"""Small clusters for the descheduler, and cycles over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hekla.api.kubernetes.placement import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from hekla.api.selectors import EVERYTHING, of_map
from hekla.descheduler.cycle import cycle
from hekla.descheduler.evictions import Eviction
from hekla.descheduler.memory import Memory
from hekla.descheduler.policy.policy import Policy
from hekla.descheduler.policy.reader import read
from hekla.descheduler.scheduler_copy import SchedulerCopy
from hekla.descheduler.session import Report
from hekla.descheduler.tables import Node, Owner, Placement, Pod, Spread, Tables
from hekla.descheduler.usage import Usage
from hekla.monitoring.cluster_metrics import Sample

NOW = 1_000_000.0
REPLICAS = Owner("ReplicaSet", "web")


def node(name: str, cpu: float = 4000, memory: float = 3000, pods: float = 10, **more: Any) -> Node:
    resources = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("extended", {})}
    return Node(name, allocatable=resources, capacity=resources, **more)


def pod(name: str, on: str, cpu: float = 0, memory: float = 0, **more: Any) -> Pod:
    """A running pod of a ReplicaSet, of quality Burstable unless it asks for nothing."""
    asked = {"cpu": cpu, "memory": memory, **more.pop("extended", {})}
    more.setdefault("qos", "Burstable" if any(asked.values()) else "BestEffort")
    more.setdefault("owners", (REPLICAS,))
    more.setdefault("created", NOW - 86400)
    return Pod(
        name, node=on, requests={key: value for key, value in asked.items() if value}, **more
    )


def selecting(**labels: str) -> Placement:
    return Placement(tuple(labels.items()), text=repr(labels).encode())


def affine(**labels: str) -> Placement:
    """A required node affinity."""
    terms = [
        NodeSelectorRequirement(key=key, operator="In", values=[value])
        for key, value in labels.items()
    ]
    wanted = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=terms)])
    return Placement((), wanted, text=f"affinity {labels}".encode())


def tolerating(key: str) -> Placement:
    return Placement(
        (), None, (Toleration(key=key, operator="Exists"),), f"tolerates {key}".encode()
    )


def spread(
    max_skew: int = 1, key: str = "zone", hard: bool = True, **labels: str
) -> tuple[Spread, ...]:
    return (Spread(max_skew, key, of_map(labels) if labels else EVERYTHING, hard),)


def profile(
    plugin: str,
    arguments: str = "{}",
    evictor: str = "{}",
    point: str = "deschedule",
    more: str = "",
) -> Policy:
    """A policy of one plugin."""
    return read(
        f"""
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
{more}
profiles:
- name: p
  pluginConfig:
  - {{name: DefaultEvictor, args: {evictor}}}
  - {{name: {plugin}, args: {arguments}}}
  plugins: {{{point}: {{enabled: [{plugin}]}}}}
"""
    )


def measured(
    nodes: Mapping[str, tuple[float, float]], pods: Mapping[str, tuple[float, float]] | None = None
) -> Usage:
    """Usage in millicores and bytes."""
    return Usage(
        {name: Sample(cpu, memory, NOW, 15) for name, (cpu, memory) in nodes.items()},
        {
            f"default/{name}": Sample(cpu, memory, NOW, 15)
            for name, (cpu, memory) in (pods or {}).items()
        },
    )


class Ran:
    """What a cycle evicted, and its report."""

    def __init__(self, evictions: list[Eviction], report: Report) -> None:
        self.evictions = evictions
        self.report = report

    @property
    def names(self) -> list[str]:
        return [one.pod.name for one in self.evictions]


def run(
    policy: Policy,
    tables: Tables,
    usage: Usage | None = None,
    *,
    taken: Callable[[Eviction], bool] = lambda _: True,
    settling: Mapping[str, float] | None = None,
    memory: Memory | None = None,
    now: float = NOW,
    scheduler: SchedulerCopy | None = None,
    unasked: str = "",
) -> Ran:
    """A cycle whose evictions the API server takes, unless `taken` says no; every plugin is told the
    same usage."""
    report, done = Report(), []
    usages = {}
    for one in policy.profiles:
        for name in one.balance:
            if usage is not None:
                usages[one.name, name] = usage
    steps = cycle(
        policy,
        tables,
        now,
        report,
        usages=usages,
        settling=settling,
        memory=memory,
        scheduler=scheduler,
        unasked=unasked,
    )
    answer: bool | None = None
    while True:
        try:
            eviction = steps.send(answer) if answer is not None else next(steps)
        except StopIteration:
            return Ran(done, report)
        answer = taken(eviction)
        if answer:
            done.append(eviction)
