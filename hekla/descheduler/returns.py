"""Pods that come back to the node from which they were evicted: a back-off that doubles with each return.

A scheduler that prefers the hot node, or may choose no other, would otherwise be fed the same pod in every
cycle.  What is remembered is an owner and a node, because the pod that comes back is another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from hekla.descheduler.tables import Owner, Pod, Tables

SavedTrace = tuple[str, str, str, str, float, int, float, bool]
"""Namespace, kind and name of the owner, node; when one was evicted, returns, peace until, whether it was seen again."""
SavedWish = tuple[str, str, str, float, int]
"""Namespace, kind and name of the owner; when somebody wanted to evict its pods, and cycles since."""
SAVED = 4000
"""Of each: a ConfigMap has a megabyte."""
FOR_GOOD = 1e12
"""An end of peace that stands for none, because JSON has no inf."""
MOST = 10_000
"""Owners and nodes that are remembered; of more, those that were wanted longest ago are forgotten."""
FEW_CYCLES = 3
"""Cycles without a wish to evict before an owner is forgotten, however long they take."""


class BackOff(NamedTuple):
    """Seconds.  After the n-th return an owner is left alone on the node for first * 2 ** (n - 1), and from the
    return on where that is more than `longest`, until it is forgotten."""

    first: float = 300.0
    longest: float = 10800.0
    forget_after: float = 3600.0

    def after(self, returns: int) -> float:
        """How long the n-th return is answered with peace; inf where for good."""
        if not self.first:
            return 0.0
        found = self.first * 2.0 ** min(returns - 1, 60)
        return found if found <= self.longest else math.inf


STANDARD = BackOff()


class Place(NamedTuple):
    """Whose pods, and which node they came back to."""

    namespace: str
    owner: Owner
    node: str

    def __str__(self) -> str:
        return f"pods of {self.owner.kind} {self.namespace}/{self.owner.name} on node {self.node}"


class Return(NamedTuple):
    """A pod that was found again where one of its owner had been evicted."""

    pod: Pod
    place: Place
    times: int
    until: float
    """When its owner may be evicted from there again; inf: not before it is forgotten."""


@dataclass(slots=True)
class Trace:
    """What is known of one owner on one node."""

    evicted: float
    """When one of its pods was evicted the last time."""
    returns: int = 0
    until: float = 0.0
    seen: bool = False
    """Whether the return after the last eviction has been counted."""
    known: frozenset[str] = frozenset()
    """The owner's pods that were there at the last eviction, by uid."""


@dataclass(slots=True)
class Unrest:
    """When somebody wanted to evict an owner's pods the last time, and how many cycles ago."""

    wanted: float
    cycles: int = 0


class Returns:
    """What became of the evictions of earlier cycles."""

    def __init__(self) -> None:
        self._traces: dict[Place, Trace] = {}
        self._unrest: dict[tuple[str, Owner], Unrest] = {}

    def __len__(self) -> int:
        return len(self._traces)

    def look(self, tables: Tables, now: float, back_off: BackOff) -> list[Return]:
        """Before a cycle: who has come back since the last one.  Forgets owners that have settled."""
        self._forget(now, back_off)
        found = []
        for place, trace in self._traces.items():
            if trace.seen:
                continue
            pod = next(
                (
                    one
                    for one in tables.on_node.get(place.node, {}).values()
                    if _is_back(one, place, trace)
                ),
                None,
            )
            if pod is not None:
                trace.seen, trace.returns = True, trace.returns + 1
                trace.until = now + back_off.after(trace.returns)
                found.append(Return(pod, place, trace.returns, trace.until))
        return found

    def held_until(self, pod: Pod, now: float) -> float:
        """When the pod may be evicted from its node; 0: now."""
        until = max(
            (self._traces[place].until for place in _places(pod) if place in self._traces),
            default=0.0,
        )
        return until if until > now else 0.0

    def wanted(self, pod: Pod, now: float) -> None:
        """Somebody would evict the pod, whether or not it goes: its owner is not forgotten yet."""
        for place in _places(pod):
            self._unrest[place.namespace, place.owner] = Unrest(now)

    def evicted(self, pod: Pod, tables: Tables, now: float) -> None:
        """A pod was evicted from where it sat badly."""
        self.wanted(pod, now)
        here = tables.on_node.get(pod.node, {}).values()
        for place in _places(pod):
            trace = self._traces.pop(place, None) or Trace(now)
            trace.evicted, trace.seen = now, False
            trace.known = frozenset(one.uid for one in here if place.owner in one.owners)
            self._traces[place] = trace
        while len(self._traces) > MOST:
            del self._traces[next(iter(self._traces))]

    def saved(self) -> tuple[list[SavedTrace], list[SavedWish]]:
        """What a process that starts later needs, the newest of it."""
        traces = list(self._traces.items())[-SAVED:]
        wishes = list(self._unrest.items())[-SAVED:]
        return (
            [
                (
                    place.namespace,
                    *place.owner,
                    place.node,
                    trace.evicted,
                    trace.returns,
                    min(trace.until, FOR_GOOD),
                    trace.seen,
                )
                for place, trace in traces
            ],
            [(namespace, *owner, one.wanted, one.cycles) for (namespace, owner), one in wishes],
        )

    def restore(self, traces: list[SavedTrace], wishes: list[SavedWish]) -> None:
        """Know what an earlier process knew.  Pods of the last eviction are told by their age alone."""
        for namespace, kind, name, node, evicted, returns, until, seen in traces:
            place = Place(namespace, Owner(kind, name), node)
            until = math.inf if until >= FOR_GOOD else until
            self._traces[place] = Trace(evicted, returns, until, seen)
        for namespace, kind, name, wanted, cycles in wishes:
            self._unrest[namespace, Owner(kind, name)] = Unrest(wanted, cycles)

    def _forget(self, now: float, back_off: BackOff) -> None:
        calm = set()
        for owner, unrest in self._unrest.items():
            unrest.cycles += 1
            if unrest.cycles > FEW_CYCLES and now - unrest.wanted >= back_off.forget_after:
                calm.add(owner)
        for owner in calm:
            del self._unrest[owner]
        for place in [
            one for one in self._traces if (one.namespace, one.owner) not in self._unrest
        ]:
            del self._traces[place]


def _places(pod: Pod) -> list[Place]:
    return [Place(pod.namespace, owner, pod.node) for owner in pod.owners]


def _is_back(pod: Pod, place: Place, trace: Trace) -> bool:
    """Creation times are whole seconds."""
    return (
        pod.uid not in trace.known
        and pod.created >= math.floor(trace.evicted)
        and not pod.ended
        and not pod.terminating
        and pod.namespace == place.namespace
        and place.owner in pod.owners
    )
