"""How fast the number of replicas may follow what the metrics ask for.

What was asked for and what was done lately is remembered for each autoscaler, in this process alone:
one that was started again begins with the number that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.trees import Json

UP, DOWN = "scaleUp", "scaleDown"


class Judgement(NamedTuple):
    """A number of replicas, and why it is that one: a reason and its text."""

    replicas: int
    reason: str
    text: str


class Moment(NamedTuple):
    at: float
    replicas: int
    """Asked for, or by how many there were more or fewer."""


@dataclass(slots=True)
class Memory:
    """What one autoscaler wanted and did lately."""

    wanted: list[Moment] = field(default_factory=list)
    added: list[Moment] = field(default_factory=list)
    removed: list[Moment] = field(default_factory=list)

    def begin(self, replicas: int, now: float) -> None:
        """What is found at first counts as asked for."""
        if not self.wanted:
            self.wanted.append(Moment(now, replicas))

    def note(self, behavior: Json | None, before: int, after: int, now: float) -> None:
        """That the target was scaled."""
        if behavior is None:
            return
        if after > before:
            self.added = _since(self.added, now - _longest(behavior.get(UP)))
            self.added.append(Moment(now, after - before))
        else:
            self.removed = _since(self.removed, now - _longest(behavior.get(DOWN)))
            self.removed.append(Moment(now, before - after))


class Bounds(NamedTuple):
    least: int
    most: int


READY = "ReadyForNewScale", "recommended size matches current size"
STABLE_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
STABLE_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
WITHIN = "DesiredWithinRange", "the desired count is within the acceptable range"
TOO_FEW = "TooFewReplicas", "the desired replica count is less than the minimum replica count"
TOO_MANY = "TooManyReplicas", "the desired replica count is more than the maximum replica count"
FAST_UP = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
FAST_DOWN = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)


def stabilized(
    memory: Memory, behavior: Json | None, current: int, desired: int, usual: float, now: float
) -> Judgement:
    """The number after a look at what was asked for lately, in the windows of both directions.
    `usual`: the window downwards of those that state none."""
    windows = {UP: 0.0, DOWN: usual}
    for way, rules in (behavior or {}).items():
        stated = (rules or {}).get("stabilizationWindowSeconds")
        if stated is not None:
            windows[way] = float(stated)
    lowest = min([desired, *_asked(memory, now - windows[UP])])
    highest = max([desired, *_asked(memory, now - windows[DOWN])])
    memory.wanted = _since(memory.wanted, now - max(windows.values()))
    memory.wanted.append(Moment(now, desired))
    if behavior is None:
        held = highest
    else:
        held = min(max(current, lowest), highest)
    if held == desired:
        return Judgement(held, *READY)
    return Judgement(held, *(STABLE_UP if held < desired else STABLE_DOWN))


def limited(
    memory: Memory, behavior: Json | None, current: int, desired: int, bounds: Bounds, now: float
) -> Judgement:
    """The number within the bounds, and no further from the present one than the policies let it."""
    if behavior is None:
        pace = max(2 * current, 4)
        if desired < bounds.least:
            return Judgement(bounds.least, *TOO_FEW)
        most, why = (pace, FAST_UP) if bounds.most > pace else (bounds.most, TOO_MANY)
        return Judgement(most, *why) if desired > most else Judgement(desired, *WITHIN)
    if desired > current:
        furthest = max(_furthest(memory, behavior.get(UP) or {}, current, now, 1), current)
        most, why = (furthest, FAST_UP) if bounds.most > furthest else (bounds.most, TOO_MANY)
        return Judgement(most, *why) if desired > most else Judgement(desired, *WITHIN)
    if desired < current:
        furthest = min(_furthest(memory, behavior.get(DOWN) or {}, current, now, -1), current)
        least, why = (furthest, FAST_DOWN) if bounds.least < furthest else (bounds.least, TOO_FEW)
        return Judgement(least, *why) if desired < least else Judgement(desired, *WITHIN)
    return Judgement(desired, *WITHIN)


def _furthest(memory: Memory, rules: Json, current: int, now: float, direction: int) -> int:
    """The most (direction 1) or fewest (-1) replicas that the policies of a direction let be."""
    choice = rules.get("selectPolicy") or "Max"
    policies = rules.get("policies") or []
    if choice == "Disabled" or not policies:
        return current
    found = []
    for policy in policies:
        since = now - policy["periodSeconds"]
        start = current - _sum(memory.added, since) + _sum(memory.removed, since)
        step = policy["value"]
        if policy["type"] == "Pods":
            found.append(start + direction * step)
        elif direction > 0:
            found.append(-(-start * (100 + step) // 100))
        else:
            found.append(start * (100 - step) // 100)
    widest: Callable[[list[int]], int] = max if (choice == "Max") == (direction > 0) else min
    return widest(found)


def _asked(memory: Memory, since: float) -> Iterable[int]:
    return (one.replicas for one in memory.wanted if one.at > since)


def _since(moments: list[Moment], since: float) -> list[Moment]:
    return [one for one in moments if one.at > since]


def _sum(moments: list[Moment], since: float) -> int:
    return sum(one.replicas for one in moments if one.at > since)


def _longest(rules: Json | None) -> float:
    policies = (rules or {}).get("policies") or []
    return float(max((policy["periodSeconds"] for policy in policies), default=0))
