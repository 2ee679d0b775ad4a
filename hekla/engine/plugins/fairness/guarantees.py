"""Room that stays free for queues that hold less than they are guaranteed, however many others
borrow.

Each queue reserves what it holds or is guaranteed, whichever is more; a queue above others, what
these reserve or it is guaranteed itself.  All that is reserved fits into the cluster, and below a
queue with a ceiling into that: so borrowers share what is left over, and do not each count on the
whole of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hekla.engine.model.resources import EPSILON, PODS, Amounts


class Reserve:
    """One queue, or the cluster, of one resource."""

    __slots__ = ("beneath", "guaranteed", "held", "inner", "limit", "parent")

    def __init__(
        self, parent: Reserve | None, guaranteed: float, held: float, limit: float = math.inf
    ) -> None:
        self.parent = parent
        self.guaranteed = guaranteed
        self.held = held
        self.limit = limit
        self.beneath = 0.0
        """What the queues right below reserve."""
        self.inner = False

    @property
    def reserved(self) -> float:
        return max(self.guaranteed, self.beneath if self.inner else self.held)

    def enter(self) -> None:
        """Count it in the one above, once all below it have entered."""
        if self.parent is not None:
            self.parent.inner = True
            self.parent.beneath += self.reserved

    def hold(self, more: float) -> None:
        """The queue holds so much more, or less, from now on; so do those above it."""
        one: Reserve | None = self
        change = 0.0
        while one is not None:
            before = one.reserved
            one.held += more
            one.beneath += change
            change = one.reserved - before
            one = one.parent

    def room(self) -> float:
        """How much more the queue may hold beside what is kept for others; without end where
        nothing is."""
        own = self.reserved - self.held
        return self._growth(own) + own

    def _growth(self, own: float) -> float:
        """By how much more it may reserve."""
        above = self.parent
        if above is None:
            return math.inf
        kept = above.beneath - above.held - own
        space = max(above.limit - above.beneath, 0.0) if kept > EPSILON else math.inf
        return min(space, above._growth(own) + above.reserved - above.beneath)


class Guarantees:
    """The reserves of all queues, for the resources of which anything is guaranteed."""

    def __init__(
        self, total: Amounts, queues: Iterable[tuple[str, str, Amounts, Amounts, Amounts]]
    ) -> None:
        """`queues`: name, parent (empty: the cluster), guarantee, allocated and ceiling, those
        above before those below."""
        self.of: dict[str, dict[str, Reserve]] = {}
        known = list(queues)
        for resource in dict.fromkeys(
            name
            for _, _, guarantee, _, _ in known
            for name, value in guarantee.items()
            if value >= EPSILON
        ):
            if resource == PODS:
                continue
            cluster = Reserve(None, 0.0, 0.0, total.get(resource, 0.0))
            made: dict[str, Reserve] = {}
            for name, parent, guarantee, held, ceiling in known:
                above = made.get(parent, cluster)
                made[name] = Reserve(
                    above,
                    guarantee.get(resource, 0.0),
                    held.get(resource, 0.0),
                    ceiling.get(resource, math.inf),
                )
                if above is cluster:
                    cluster.held += made[name].held
            for one in reversed(made.values()):
                one.enter()
            self.of[resource] = made

    def hold(self, queue: str, amounts: Amounts, sign: float) -> None:
        """The queue holds so much more (1) or less (-1)."""
        for resource, made in self.of.items():
            more = amounts.get(resource, 0.0)
            if more and queue in made:
                made[queue].hold(sign * more)

    def most(self, queue: str, held: Amounts) -> Amounts:
        """What the queue may hold at most now, in the resources in which others' guarantees are a
        limit to it."""
        found = {}
        for resource, made in self.of.items():
            room = made[queue].room() if queue in made else math.inf
            if room < math.inf:
                found[resource] = held.get(resource, 0.0) + room
        return found

    def admits(self, queue: str, asked: Amounts) -> bool:
        """Whether all guarantees of others stay free if the queue takes so much more."""
        return self.count(queue, asked, 1) > 0

    def count(self, queue: str, asked: Amounts, limit: int) -> int:
        """How many times the queue may take so much more, at most `limit`."""
        for resource, made in self.of.items():
            wanted = asked.get(resource, 0.0)
            if wanted > 0 and queue in made:
                room = made[queue].room()
                if room < math.inf:
                    limit = min(limit, max(int((room + EPSILON) // wanted), 0))
        return limit
