"""Whether a node takes a pod that was bound to it.  Pure.  Reference: local-cluster 8.2, step 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hekla.api.kubernetes import core
from hekla.api.text import quantity

Amounts = dict[str, int]
"""By resource: cpu in millicores, everything else in units."""


def amount(resource: str, value: str | int | float) -> int:
    return quantity.milli(value) if resource == "cpu" else quantity.whole(value)


def requests(pod: core.Pod) -> Amounts:
    """What a pod takes."""
    return together(pod, lambda container: container.resources.requests)


def limits(pod: core.Pod) -> Amounts:
    """The limits of a pod as one; a container without one adds nothing."""
    return together(pod, lambda container: container.resources.limits)


def together(
    pod: core.Pod, of: Callable[[core.Container], Mapping[str, str | int | float]]
) -> Amounts:
    """The sum of a pod's containers and sidecars, or the largest init container where that is
    more, and what the pod needs itself."""
    total: Amounts = {}
    for container in pod.spec.containers:
        add(total, of(container))
    largest: Amounts = {}
    beside: Amounts = {}
    for init in pod.spec.init_containers:
        need = dict(beside)
        add(need, of(init))
        if init.restart_policy == "Always":
            beside = need
        for resource, value in need.items():
            largest[resource] = max(largest.get(resource, 0), value)
    for resource, value in beside.items():
        total[resource] = total.get(resource, 0) + value
    for resource, value in largest.items():
        total[resource] = max(total.get(resource, 0), value)
    add(total, pod.spec.overhead)
    return total


def add(total: Amounts, values: Mapping[str, str | int | float]) -> None:
    for resource, value in values.items():
        total[resource] = total.get(resource, 0) + amount(resource, value)


def refusal(pod: core.Pod, node: core.Node, others: Iterable[core.Pod]) -> tuple[str, str] | None:
    """(reason, message) of why the node does not take the pod; None when it does.  `others` are its
    pods that still hold something."""
    present = list(others)
    used: Amounts = {}
    for other in present:
        for resource, value in requests(other).items():
            used[resource] = used.get(resource, 0) + value
    allocatable = {
        resource: amount(resource, value) for resource, value in node.status.allocatable.items()
    }
    wanted = {"pods": 1, **requests(pod)}
    used["pods"] = len(present)
    for resource in sorted(wanted, key=lambda name: (name != "pods", name)):
        if "/" in resource and resource not in allocatable:
            # an extended resource that the node knows nothing of comes from elsewhere, such as a
            # device driver
            continue
        need, taken, there = wanted[resource], used.get(resource, 0), allocatable.get(resource, 0)
        if need > 0 and taken + need > there:
            return rejection(
                f"OutOf{resource}",
                f"Node didn't have enough resource: {resource}, requested: {need}, used: {taken}, capacity: {there}",
            )
    if not selected(pod, node):
        return rejection(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        )
    if clash := port_clash(pod, present):
        return rejection("NodePorts", f"Predicate NodePorts failed: host port {clash} is taken")
    for taint in node.spec.taints:
        if taint.effect == "NoExecute" and not any(
            tolerates(toleration, taint) for toleration in pod.spec.tolerations
        ):
            return rejection(
                "TaintToleration",
                f"Predicate TaintToleration failed: untolerated taint {taint.key}",
            )
    return None


def rejection(reason: str, why: str) -> tuple[str, str]:
    return reason, f"Pod was rejected: {why}"


def tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def port_clash(pod: core.Pod, others: Iterable[core.Pod]) -> int:
    """A host port that another pod of the node has; 0 for none."""
    wanted = host_ports(pod)
    if not wanted:
        return 0
    for other in others:
        for port, _ in sorted(host_ports(other) & wanted):
            return port
    return 0


def host_ports(pod: core.Pod) -> set[tuple[int, str]]:
    return {
        (port.host_port, port.protocol or "TCP")
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    }


def selected(pod: core.Pod, node: core.Node) -> bool:
    """Whether nodeSelector and the required node affinity match."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    fields = {"metadata.name": node.metadata.name}
    return any(
        (term.match_expressions or term.match_fields)
        and all(matches(rule, labels) for rule in term.match_expressions)
        and all(matches(rule, fields) for rule in term.match_fields)
        for term in required.node_selector_terms
    )


def matches(rule: core.NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                have, bound = int(value or ""), int(rule.values[0])
            except (ValueError, IndexError):
                return False
            return have > bound if rule.operator == "Gt" else have < bound
    return False
