"""LoadAware and LowNodeUtilization: over-used nodes give pods up while under-used ones have room.

The first goes by measured use, the second by requests, or by measured use where it is told so.
Reference: descheduler 5 to 8 and 11.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from hekla.api.selectors import parse_labels
from hekla.descheduler.classification import Class, Load, completed, loads, nothing_to_do
from hekla.descheduler.evictions import Steps
from hekla.descheduler.fit import Bools
from hekla.descheduler.plugins.draining import Draining, amounts_text, hot, requested, say
from hekla.descheduler.policy.arguments import (
    Band,
    LoadAwareArguments,
    LowNodeUtilizationArguments,
    NodePool,
)
from hekla.descheduler.session import Session, by_importance
from hekla.descheduler.tables import CPU, MEMORY, PODS, Amounts, Node, Pod
from hekla.descheduler.usage import Usage
from hekla.descheduler.view import View
from hekla.monitoring.cluster_metrics import Sample

log = logging.getLogger(__name__)

OVERDUE = 60.0
"""Seconds after a pod's end for which it is waited."""
Measured = list[tuple[Node, Amounts]]


def load_aware(session: Session, arguments: LoadAwareArguments) -> Steps:
    selector = parse_labels(arguments.node_selector)
    nodes = [node for node in session.view.nodes if selector.matches(node.labels)]
    usage = session.usage()
    if not usage.nodes:
        _nothing_measured(session, usage)
        return
    for pool, members in pooled(nodes, arguments):
        yield from _low(session, arguments, pool, members, usage, arguments.order == "usage")


def low_node_utilization(session: Session, arguments: LowNodeUtilizationArguments) -> Steps:
    usage = session.usage() if arguments.metrics_utilization is not None else None
    if usage is not None and not usage.nodes:
        _nothing_measured(session, usage)
        return
    yield from _low(session, arguments, arguments, session.view.nodes, usage, False)


def pooled(
    nodes: Iterable[Node], arguments: LoadAwareArguments
) -> Iterator[tuple[NodePool, list[Node]]]:
    """Each pool with its nodes: a node is in the first one that selects it."""
    left = list(nodes)
    for pool in arguments.pools():
        selector = parse_labels(pool.node_selector)
        yield pool, [node for node in left if selector.matches(node.labels)]
        left = [node for node in left if not selector.matches(node.labels)]


def _nothing_measured(session: Session, usage: Usage) -> None:
    """Say so, unless whoever asked the source has said why."""
    if not usage.problem:
        session.report.problems.append(f"{session.strategy} evicts nothing: no node is measured")


def _low(
    session: Session,
    arguments: LoadAwareArguments | LowNodeUtilizationArguments,
    band: Band,
    nodes: Iterable[Node],
    usage: Usage | None,
    usage_first: bool,
) -> Steps:
    """`usage`: what was measured; None to go by requests."""
    view = session.view
    low, high = completed(band.thresholds, band.target_thresholds, band.use_deviation_thresholds)
    log.info("Criteria for a node under utilization: %s", amounts_text(low))
    log.info("Criteria for a node above target utilization: %s", amounts_text(high))
    measured = by_requests(view, nodes) if usage is None else by_usage(view, nodes, usage)
    for node in nodes:
        if usage is not None and node.name not in usage.nodes:
            session.report.classes[node.name, session.strategy] = Class.UNKNOWN
    classed = [
        (load, load.classed()) for load in loads(measured, low, high, band.use_deviation_thresholds)
    ]
    say(session, classed)
    under = [load for load, kind in classed if kind is Class.UNDER]
    over = [load for load, kind in classed if kind is Class.OVER]
    log.info("Number of underutilized nodes: %d, of overutilized nodes: %d", len(under), len(over))
    ripe = lasting(session, band, classed, usage)
    if idle := nothing_to_do(len(under), len(over), len(classed), arguments.number_of_nodes):
        log.info("%s", idle)
        return
    if usage is not None:
        for load in [one for one in ripe if settling(view, one.node, usage.nodes[one.node.name])]:
            log.info("node %s is not drained further before its next measurement", load.node.name)
            ripe.remove(load)
    cost = requested if usage is None else cost_by(usage.pods)
    yield from Draining(
        sources=sorted(ripe, key=lambda load: -load.overshoot()),
        destinations=under,
        cost=cost,
        order=lambda pod, load: order_of(
            pod, load.exceeded(), None if usage is None else usage.pods, usage_first
        ),
        above=lambda load: bool(load.exceeded()),
        reason=hot,
        excluded=arguments.evictable_namespaces,
        others=[load for load, kind in classed if kind is Class.APPROPRIATE],
        unmeasured=lambda pod: usage is not None and pod.key not in usage.pods,
    ).run(session)


def lasting(
    session: Session, band: Band, classed: Iterable[tuple[Load, Class]], usage: Usage | None
) -> list[Load]:
    """The nodes that were over-used often enough in a row."""
    condition, found = band.anomaly_condition, []
    for load, kind in classed:
        name, hot = load.node.name, kind is Class.OVER
        measured = session.view.now if usage is None else usage.nodes[name].at
        times = session.memory.heat.see(
            (session.profile.name, session.strategy, name),
            hot,
            measured,
            condition.consecutive_normalities,
        )
        if hot and times >= condition.consecutive_abnormalities:
            found.append(load)
        elif hot:
            log.info(
                "node %s is over its target for the %d. time of %d; it is looked at again",
                name,
                times,
                condition.consecutive_abnormalities,
            )
    return found


def by_requests(view: View, nodes: Iterable[Node]) -> Measured:
    """What the pods of each node request in sum."""
    sums: Measured = []
    for node in nodes:
        amounts = dict(view.tables.requested.get(node.name, {}))
        for pod in view.gone_from(node):
            for name, amount in requested(pod).items():
                amounts[name] = amounts.get(name, 0.0) - amount
        sums.append((node, amounts))
    return sums


def by_usage(view: View, nodes: Iterable[Node], usage: Usage) -> Measured:
    """What each measured node uses, without the pods that have just been evicted."""
    found: Measured = []
    for node in nodes:
        sample = usage.nodes.get(node.name)
        if sample is None:
            continue
        pods = view.tables.requested.get(node.name, {}).get(PODS, 0.0)
        amounts = {CPU: sample.cpu, MEMORY: sample.memory, PODS: pods}
        for pod in view.gone_from(node):
            for name, amount in cost_by(usage.pods)(pod).items():
                if name in amounts:
                    amounts[name] -= amount
        found.append((node, amounts))
    return found


def cost_by(samples: Mapping[str, Sample]) -> _Cost:
    return _Cost(samples)


class _Cost:
    """What a pod was measured to use; what it requests where it was not."""

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self.samples = samples

    def __call__(self, pod: Pod) -> Amounts:
        sample = self.samples.get(pod.key)
        return (
            requested(pod)
            if sample is None
            else {CPU: sample.cpu, MEMORY: sample.memory, PODS: 1.0}
        )


def order_of(
    pod: Pod, exceeded: list[str], samples: Mapping[str, Sample] | None, usage_first: bool
) -> tuple[object, ...]:
    """The least important pods first; of equal ones, those that give most of what the node has too
    little of, and the youngest.  If pods themselves are too many, the smallest.  `usage_first`: what
    they use decides before their importance."""
    importance = by_importance(pod)
    if samples is None:
        return (*importance, -pod.created, pod.key)
    sample = samples.get(pod.key)
    used = sample is None, *_used(sample, exceeded)
    both = (*used, *importance) if usage_first else (*importance, *used)
    return (*both, -pod.created, pod.key)


def _used(sample: Sample | None, exceeded: list[str]) -> Iterator[float]:
    if sample is None:
        yield 0.0
    elif exceeded == [PODS]:
        yield sample.cpu
    else:
        yield -(sample.cpu if CPU in exceeded else sample.memory)


def settling(view: View, node: Node, sample: Sample) -> bool:
    """Whether the measurement says nothing yet of pods that leave the node: one is on its way out, or
    it began before the last one that was evicted had gone.  Who should be gone for a while is not waited for."""
    last = view.settling.get(node.name)
    if last is not None and last > sample.at - sample.window:
        return True
    return any(pod.terminating and view.now < pod.ending + OVERDUE for pod in view.live_pods(node))


def cool_nodes(view: View, arguments: LoadAwareArguments, usage: Usage) -> Bools:
    """The rows of measured nodes that are not over-used: where LoadAware's `nodeFit` wants evicted
    pods to fit.  Reference: descheduler 8.4."""
    selector = parse_labels(arguments.node_selector)
    nodes = [node for node in view.fit.nodes if selector.matches(node.labels)]
    cool: set[str] = set()
    for pool, members in pooled(nodes, arguments):
        low, high = completed(
            pool.thresholds, pool.target_thresholds, pool.use_deviation_thresholds
        )
        found = loads(by_usage(view, members, usage), low, high, pool.use_deviation_thresholds)
        cool.update(
            load.node.name for load in found if not {CPU, MEMORY}.intersection(load.exceeded())
        )
    return np.fromiter(
        (node.name in cool for node in view.fit.nodes), np.bool_, len(view.fit.nodes)
    )
