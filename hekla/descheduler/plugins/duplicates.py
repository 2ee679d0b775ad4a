"""RemoveDuplicates: pods of one owner on one node are spread over the nodes that take them.

Reference: descheduler 11.1.
"""

from __future__ import annotations

import math
from collections import defaultdict

from hekla.descheduler.evictions import Steps
from hekla.descheduler.fit import admits
from hekla.descheduler.policy.arguments import RemoveDuplicatesArguments
from hekla.descheduler.session import Session, Wanted
from hekla.descheduler.tables import Owner, Pod

Group = tuple[str, Owner, tuple[str, ...]]
"""Namespace, owner and images."""


def duplicates(session: Session, arguments: RemoveDuplicatesArguments) -> Steps:
    wanted = Wanted(arguments.namespaces)
    groups: dict[Group, dict[str, list[Pod]]] = defaultdict(lambda: defaultdict(list))
    for node in session.view.nodes:
        for pod in session.view.live_pods(node):
            if not pod.owners or any(
                one.kind in arguments.exclude_owner_kinds for one in pod.owners
            ):
                continue
            if wanted(pod) and session.evictable(pod):
                for owner in pod.owners:
                    groups[pod.namespace, owner, pod.images][node.name].append(pod)
    for (_, owner, _), by_node in groups.items():
        if all(len(pods) < 2 for pods in by_node.values()):
            continue
        sample = next(iter(by_node.values()))[0]
        targets = sum(admits(sample.placement, node) for node in session.view.nodes)
        if targets < 2:
            continue
        keep = max(1, math.ceil(sum(map(len, by_node.values())) / targets))
        for name, pods in by_node.items():
            words = (
                f"node {name} has {len(pods)} pods of {owner.kind} {owner.name}, "
                f"{keep} would be its share of {targets} nodes"
            )
            yield from session.evict_all(
                (pod for pod in pods[keep:] if not session.view.is_gone(pod)), words
            )
