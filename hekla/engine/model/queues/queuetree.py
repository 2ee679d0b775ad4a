"""Queues as a tree: what each deserves, is guaranteed and may hold, from the root down.  Reference:
plugins-fairness 6.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hekla.engine.model.queues.devicequota import Ledger, without_devices
from hekla.engine.model.queues.queues import ROOT, Queue
from hekla.engine.model.resources import (
    CPU,
    MEMORY,
    UNLIMITED,
    Amounts,
    add,
    dominant_share,
    empty,
    excess,
    is_empty,
    maximum,
    minimum_present,
    present,
)


@dataclass(slots=True)
class Branch:
    """One queue of the tree within a cycle."""

    queue: Queue
    deserved: Amounts
    guarantee: Amounts
    capability: Amounts
    real_capability: Amounts
    allocated: Amounts
    request: Amounts
    inqueue: Amounts
    elastic: Amounts
    ledger: Ledger
    ancestors: list[Branch] = field(default_factory=list)
    """Root first, the parent last."""
    children: list[Branch] = field(default_factory=list)
    opening_share: float = 0.0
    """The share at the beginning of the cycle; that of an ancestor is not followed within it."""

    @property
    def name(self) -> str:
        return self.queue.name

    def path(self) -> Iterator[Branch]:
        """The queue itself, its parent, and so on up to the root."""
        yield self
        yield from reversed(self.ancestors)

    def share(self) -> float:
        """How much of what it deserves it holds; a queue that deserves nothing is full."""
        if is_empty(self.deserved):
            return 1.0
        return dominant_share(self.allocated, self.deserved)

    def rank(self, live: bool) -> tuple[float, bool]:
        return self.share() if live else self.opening_share, is_empty(self.deserved)

    def above(self, level: int) -> Branch | None:
        """The ancestor at a distance, 1 being the parent; None for the root and beyond."""
        if level > len(self.ancestors):
            return None
        found = self.ancestors[-level]
        return None if found.name == ROOT else found


class TreeError(ValueError):
    """A queue has no place in the tree, or there is no tree at all."""


def _branch(queue: Queue) -> Branch:
    return Branch(
        queue=queue,
        deserved={**empty(), **without_devices(queue.deserved)},
        guarantee={**empty(), **without_devices(queue.guarantee)},
        capability={**empty(), **without_devices(queue.capability)},
        real_capability=empty(),
        allocated=present(queue.allocated),
        request=present(queue.request),
        inqueue=dict(queue.inqueue),
        elastic=dict(queue.elastic),
        ledger=Ledger(queue.quota),
    )


def flat(
    queues: Mapping[str, Queue], total: Amounts
) -> tuple[dict[str, Branch], dict[str, Branch]]:
    """Without a tree: every queue beside every other.  Those that own jobs, and those that own none
    and take part in nothing."""
    idle: dict[str, Branch] = {}
    guaranteed = empty()
    for queue in queues.values():
        add(guaranteed, without_devices(queue.guarantee))
    result: dict[str, Branch] = {}
    for queue in queues.values():
        branch = _branch(queue)
        branch.real_capability = excess(total, guaranteed)
        add(branch.real_capability, branch.guarantee)
        if without_devices(queue.capability):
            for name in (CPU, MEMORY):
                if branch.capability[name] <= 0:
                    branch.capability[name] = UNLIMITED
            branch.real_capability = minimum_present(branch.real_capability, branch.capability)
        if not queue.jobs:
            idle[queue.name] = branch
            continue
        branch.deserved = maximum(
            minimum_present(branch.deserved, branch.real_capability), branch.guarantee
        )
        branch.opening_share = branch.share()
        result[queue.name] = branch
    return result, idle


def tree(queues: Mapping[str, Queue], total: Amounts) -> tuple[dict[str, Branch], dict[str, str]]:
    """All queues under the root; and those that have no place there, with the reason.  Raises
    TreeError where there is no root."""
    branches = {name: _branch(queue) for name, queue in queues.items()}
    if ROOT not in branches:
        raise TreeError("there is no queue named root")
    left_out: dict[str, str] = {}
    for branch in branches.values():
        try:
            branch.ancestors = _ancestors(branches, branch)
        except TreeError as error:
            left_out[branch.name] = str(error)
    for name in left_out:
        del branches[name]
    for branch in branches.values():
        if branch.ancestors:
            branch.ancestors[-1].children.append(branch)
    for branch in list(branches.values()):
        for ancestor in branch.ancestors:
            for above, below in (
                (ancestor.allocated, branch.queue.allocated),
                (ancestor.request, branch.queue.request),
                (ancestor.inqueue, branch.queue.inqueue),
                (ancestor.elastic, branch.queue.elastic),
            ):
                add(above, below)
    root = branches[ROOT]
    if is_empty(root.capability):
        root.capability = dict.fromkeys((CPU, MEMORY), UNLIMITED)
        root.capability.update(
            {name: float(2**63 - 1) for name in total if name not in (CPU, MEMORY)}
        )
    root.real_capability = dict(root.capability)
    _descend(root)
    for branch in branches.values():
        branch.opening_share = branch.share()
    return branches, left_out


def _ancestors(branches: dict[str, Branch], branch: Branch) -> list[Branch]:
    chain: list[Branch] = []
    name = branch.name
    while name != ROOT:
        parent = branches[name].queue.parent or ROOT
        if parent not in branches:
            raise TreeError(f"queue {name} has the parent {parent}, which does not exist")
        if parent == branch.name:
            raise TreeError(f"queue {branch.name} is its own ancestor")
        if any(one.name == parent for one in chain):
            raise TreeError(f"queue {branch.name} lies below {parent}, which is its own ancestor")
        chain.append(branches[parent])
        name = parent
    return chain[::-1]


def _descend(parent: Branch) -> None:
    guaranteed = empty()
    for child in parent.children:
        child.deserved = maximum(child.deserved, child.guarantee)
        for name in (CPU, MEMORY):
            if child.capability[name] <= 0:
                child.capability[name] = parent.capability.get(name, 0.0)
        for name, value in parent.capability.items():
            child.capability.setdefault(name, value)
        add(guaranteed, child.guarantee)
    if parent.name == ROOT:
        parent.guarantee, parent.deserved = empty(), empty()
        for child in parent.children:
            add(parent.guarantee, child.guarantee)
            add(parent.deserved, child.deserved)
    for child in parent.children:
        room = excess(parent.real_capability, guaranteed)
        add(room, child.guarantee)
        child.real_capability = minimum_present(room, child.capability)
        _descend(child)
