"""Hierarchical dominant resource fairness: queues as a tree of weighted groups, with jobs as
leaves.

A group's share counts its children scaled down to the least of them, so that one that could not
grow does not speak for the others.  Reference: plugins-fairness 4.4, 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.resources import Amounts, add, dominant_share, empty

PATH, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"


@dataclass(slots=True)
class Fair:
    """A group of queues, or one job."""

    name: str
    weight: float = 1.0
    parent: Fair | None = None
    children: dict[str, Fair] = field(default_factory=dict)
    allocated: Amounts = field(default_factory=empty)
    request: Amounts | None = None
    """What a job asks for in all; None for a group."""
    share: float = 0.0
    saturated: bool = False


class FairTree:
    """All queues' groups and all jobs, kept true as tasks come and go."""

    def __init__(self, total: Mapping[str, float], held: Mapping[str, float]) -> None:
        self.total = {name: value for name, value in total.items() if value >= 0.1}
        self.held: Amounts = {**empty(), **held}
        self.root = Fair("root")
        self.leaves: dict[str, Fair] = {}

    # ---------------------------------------------------------------------------------------- shape

    def path(self, queue: Queue) -> list[Fair]:
        """The groups of a queue, the root first; made where they are new."""
        at = self.root
        result = [at]
        names = queue.annotations.get(PATH, "").split("/")[1:]
        weights = queue.annotations.get(WEIGHTS, "").split("/")[1:]
        for number, name in enumerate(names):
            child = at.children.get(name)
            if child is None:
                child = at.children[name] = Fair(
                    name, _weight(weights[number] if number < len(weights) else ""), at
                )
            at = child
            result.append(at)
        return result

    def set_job(
        self, key: str, queue: Queue, allocated: Mapping[str, float], request: Mapping[str, float]
    ) -> None:
        """A job's leaf; `refresh` or `follow` brings the groups above up to date."""
        parent = self.path(queue)[-1]
        leaf = Fair(key, 1.0, parent, allocated=dict(allocated), request=dict(request))
        parent.children["job:" + key] = leaf
        self.leaves[key] = leaf

    # --------------------------------------------------------------------------------------- values

    def refresh(self) -> None:
        """Everything anew, children first."""
        growing = self._growing()
        for one in self._bottom_up(self.root):
            self._value(one, growing)

    def follow(self, key: str, change: Mapping[str, float], times: float) -> None:
        """A job took or gave back: its leaf and the groups above change; all leaves do when a
        resource ran out."""
        before = self._growing()
        leaf = self.leaves.get(key)
        add(self.held, change, times)
        if leaf is None:
            return
        add(leaf.allocated, change, times)
        growing = self._growing()
        if growing != before:
            self.refresh()
            return
        at: Fair | None = leaf
        while at is not None:
            self._value(at, growing)
            at = at.parent

    def _growing(self) -> frozenset[str]:
        """Resources of which something is left."""
        return frozenset(
            name for name, value in self.total.items() if self.held.get(name, 0.0) < value
        )

    def _bottom_up(self, at: Fair) -> Iterator[Fair]:
        for child in at.children.values():
            yield from self._bottom_up(child)
        yield at

    def _value(self, one: Fair, growing: frozenset[str]) -> None:
        if one.request is not None:
            one.share = dominant_share(one.allocated, self.total)
            one.saturated = any(
                value >= 0.1
                and one.request.get(name, 0.0)
                and (value >= one.request[name] or name not in growing)
                for name, value in one.allocated.items()
            )
            return
        counted = [child for child in one.children.values() if child.share]
        least = min((child.share for child in counted if not child.saturated), default=1.0)
        least = min(least, 1.0)
        one.allocated = empty()
        for child in counted:
            add(one.allocated, child.allocated, 1.0 if child.saturated else least / child.share)
        one.share = dominant_share(one.allocated, self.total)
        one.saturated = all(child.saturated for child in one.children.values())

    def compare(self, left: Queue, right: Queue) -> float:
        """Below 0 where the left queue is to be served first."""
        for mine, theirs in zip(self.path(left), self.path(right)):
            if mine.saturated != theirs.saturated:
                return 1.0 if mine.saturated else -1.0
            difference = mine.share / mine.weight - theirs.share / theirs.weight
            if difference:
                return difference
        return 0.0


class FairOrder:
    """A queue's place in the order, compared when it is asked for."""

    __slots__ = ("queue", "tree")

    def __init__(self, tree: FairTree, queue: Queue) -> None:
        self.tree = tree
        self.queue = queue

    def __lt__(self, other: FairOrder) -> bool:
        return self.tree.compare(self.queue, other.queue) < 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FairOrder) and self.tree.compare(self.queue, other.queue) == 0


def _weight(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 1.0
    return number if number >= 1 else 1.0  # what is no number is not above 1 either
