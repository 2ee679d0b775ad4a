"""What capacity answers, by the letter of plugins-fairness 6.4 to 6.8 and slowly: what the plugin's
own answers are compared with.

Amounts are dictionaries in which cpu and memory always stand; of other names it matters whether
they stand there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Amounts = dict[str, float]
EPS = 0.1
ROOT = "root"
Candidate = tuple[str, str, Amounts]
"""Pod, queue, request."""


def plus(left: Mapping[str, float], right: Mapping[str, float], times: float = 1.0) -> Amounts:
    return {name: left.get(name, 0.0) + right.get(name, 0.0) * times for name in {**left, **right}}


def names(of: Mapping[str, float]) -> set[str]:
    return {name for name, value in of.items() if value >= EPS}


def asked_of(asked: Mapping[str, float]) -> list[str]:
    return [name for name, value in asked.items() if value > 0 and name != "pods"]


def fits(left: Mapping[str, float], right: Mapping[str, float]) -> bool:
    """`le`: with the tolerance, pods too."""
    return all(
        value < right.get(name, 0.0) or abs(value - right.get(name, 0.0)) < EPS
        for name, value in left.items()
    )


def beyond(
    left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]
) -> bool:
    """Not `leDims`: strictly, in some resource that is asked for."""
    return any(left.get(name, 0.0) > right.get(name, 0.0) for name in asked_of(asked))


def partly(
    left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]
) -> bool:
    """`lePartly0`: one resource that is asked for still fits; what is nothing on both sides is not
    looked at."""
    pairs = [(left.get(name, 0.0), right.get(name, 0.0)) for name in asked_of(asked)]
    return any(
        one < other or abs(one - other) < EPS for one, other in pairs if one >= EPS or other >= EPS
    )


def past(left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]) -> bool:
    """`gtRelevant`: above in a resource that is asked for and that the right side speaks of."""
    spoken = (
        name
        for name in asked_of(asked)
        if (right.get(name, 0.0) >= EPS if name in ("cpu", "memory") else name in right)
    )
    return any(left.get(name, 0.0) > right.get(name, 0.0) for name in spoken)


@dataclass
class QueueFacts:
    """A queue of the tree."""

    name: str
    above: list[str]
    """Parent first, root last."""
    children: bool
    priority: int
    is_open: bool
    deserved: Amounts
    guarantee: Amounts
    ceiling: Amounts
    held: Amounts
    promised: Amounts
    elastic: Amounts
    opening: float = 0.0

    def __post_init__(self) -> None:
        self.opening = self.share()

    @property
    def deserves_nothing(self) -> bool:
        return not names(self.deserved) - {"pods"}

    def share(self) -> float:
        if self.deserves_nothing:
            return 1.0
        return max(self.held.get(name, 0.0) / self.deserved[name] for name in names(self.deserved))

    def rank(self) -> tuple[float, bool]:
        """An ancestor's share is the one of the beginning."""
        return self.opening if self.children else self.share(), self.deserves_nothing


class Verdicts:
    """Of a tree of queues."""

    def __init__(
        self, queues: Iterable[QueueFacts], levels: int, total: Mapping[str, float]
    ) -> None:
        """`total`: what the cluster has."""
        self.queues = {one.name: one for one in queues}
        self.levels = levels
        self.total = total

    def path(self, queue: str) -> list[QueueFacts]:
        return [self.queues[name] for name in (queue, *self.queues[queue].above)]

    def hold(self, queue: str, request: Amounts, times: float) -> None:
        for one in self.path(queue):
            one.held = plus(one.held, request, times)

    def promise(self, queue: str, minimum: Amounts) -> None:
        for one in self.path(queue):
            one.promised = plus(one.promised, minimum)

    # ---------------------------------------------------------------------------------------- order

    def common(self, left: str, right: str) -> int:
        last = 0
        for at, (mine, theirs) in enumerate(
            zip(self.queues[left].above[::-1], self.queues[right].above[::-1])
        ):
            if mine != theirs:
                break
            last = at
        return last

    def place(self, queue: str, beside: str) -> tuple[object, ...]:
        """What the queue is compared with another by; the smaller goes first."""
        own = self.queues[queue]
        part = own
        if not own.children and not self.queues[beside].children:
            line = [*own.above[::-1], queue]
            part = self.queues[line[min(self.common(queue, beside) + 1, len(line) - 1)]]
        return -own.priority, own.children, *part.rank()

    # --------------------------------------------------------------------------------------- may it

    def allocatable(self, queue: str, asked: Amounts) -> bool:
        own = self.queues[queue]
        if not own.is_open or own.children:
            return False
        if any(beyond(plus(one.held, asked), one.ceiling, asked) for one in self.path(queue)):
            return False
        return not any(
            self.takes_what_is_kept(queue, name, asked[name]) for name in asked_of(asked)
        )

    def takes_what_is_kept(self, queue: str, resource: str, asked: float) -> bool:
        """Whether the queue would take room that is kept for others' guarantees, in the cluster or
        below a ceiling (decision 0341)."""
        if all(one.guarantee.get(resource, 0.0) < EPS for one in self.queues.values()):
            return False
        own = self.queues[queue]
        unused = max(own.guarantee.get(resource, 0.0) - own.held.get(resource, 0.0), 0.0)
        for name in own.above:
            above = self.queues[name]
            before, after = (
                self.reserved_below(name, resource, queue, more) for more in (0.0, asked)
            )
            kept = before - above.held.get(resource, 0.0) - unused
            most = above.ceiling.get(resource, float("inf"))
            if name == ROOT:
                most = min(most, self.total.get(resource, 0.0))
            if kept > EPS and after > before and after > most + EPS:
                return True
        return False

    def reserved(self, name: str, resource: str, queue: str, more: float) -> float:
        """What a queue holds or is guaranteed, whichever is more; of one above others what they
        reserve counts as held."""
        own = self.queues[name]
        held = (
            self.reserved_below(name, resource, queue, more)
            if own.children
            else own.held.get(resource, 0.0) + more * (name == queue)
        )
        return max(own.guarantee.get(resource, 0.0), held)

    def reserved_below(self, name: str, resource: str, queue: str, more: float) -> float:
        below = (one.name for one in self.queues.values() if one.above and one.above[0] == name)
        return sum(self.reserved(one, resource, queue, more) for one in below)

    def enqueueable(self, queue: str, minimum: Amounts | None) -> bool:
        own = self.queues[queue]
        if not own.is_open or own.children:
            return False
        return minimum is None or not any(
            beyond(
                plus(plus(plus(minimum, one.held), one.promised), one.elastic, -1.0),
                one.ceiling,
                minimum,
            )
            for one in self.path(queue)
        )

    def preemptive(self, queue: str, asked: Amounts) -> bool:
        own = self.queues[queue]
        if not own.is_open or beyond(plus(own.held, asked), own.ceiling, asked):
            return False
        line = [own, *(self.queues[name] for name in own.above[: self.levels] if name != ROOT)]
        return any(partly(plus(one.held, asked), one.deserved, asked) for one in line)

    # ------------------------------------------------------------------------------------- who goes

    def victims(self, preemptor: str, wanted: Amounts, candidates: list[Candidate]) -> list[str]:
        """For one pod, in the order in which the candidates would go."""
        left = {name: dict(one.held) for name, one in self.queues.items()}
        above = self.queues[preemptor].above
        near = {name for name in above[: self.levels] if name != ROOT}
        chosen = []
        for pod, queue, asked in candidates:
            own = self.queues[queue]
            if not (names(asked) & names(wanted)) - {"pods"} or not fits(
                own.guarantee, plus(left[queue], asked, -1.0)
            ):
                continue
            if names(asked) & names(own.deserved):
                if not past(left[queue], own.deserved, asked):
                    continue
            elif near & set(own.above[: self.levels]) and not names(wanted) & names(
                self.queues[preemptor].deserved
            ):
                continue
            looked_at = [queue]
            for level, name in enumerate(own.above[: self.levels]):
                if name == ROOT or above[level : level + 1] == [name]:
                    continue
                looked_at.append(name)
                if names(asked) & names(self.queues[name].deserved) and not past(
                    left[name], self.queues[name].deserved, asked
                ):
                    break
            else:
                chosen.append(pod)
                for name in looked_at:
                    left[name] = plus(left[name], asked, -1.0)
        return chosen

    def gang_victims(self, candidates: list[Candidate]) -> list[str]:
        """For a gang, in the order given."""
        left = {name: dict(one.held) for name, one in self.queues.items()}
        chosen = []
        for pod, queue, asked in candidates:
            own = self.queues[queue]
            if not fits(own.guarantee, plus(left[queue], asked, -1.0)):
                continue
            if not names(asked) & names(own.deserved) or past(left[queue], own.deserved, asked):
                left[queue] = plus(left[queue], asked, -1.0)
                chosen.append(pod)
        return chosen
