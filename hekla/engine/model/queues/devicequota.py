"""Quota of claimed devices by queue: `deviceclass/<class>` and `<dimension>.deviceclass/<class>` in
a queue's capability.

A claim that several pods share counts once a queue.  Reference: plugins-fairness 6.10,
scheduler-core 2.6.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hekla.api.text import quantity
from hekla.api.trees import Tree
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, Task, is_allocated

if TYPE_CHECKING:
    from hekla.engine.model.state import State

_MARK = "deviceclass/"
LARGEST = 2**63 - 1


@dataclass(slots=True)
class Devices:
    """So many devices of a class, and so much of what they have."""

    count: int = 0
    capacity: dict[str, int] = field(default_factory=dict)


class Exceeded(NamedTuple):
    """One ceiling of a queue that is too low, under the name by which the queue states it."""

    name: str
    asked: int
    held: int
    most: int


Claimed = dict[str, Devices]
"""Device class -> how much."""


def add(left: Claimed, right: Mapping[str, Devices], times: int = 1) -> None:
    """Add in place; counts stop at the largest number that an API field holds, and at nothing."""
    for name, devices in right.items():
        mine = left.setdefault(name, Devices())
        mine.count = max(min(mine.count + devices.count * times, LARGEST), 0)
        for dimension, amount in devices.capacity.items():
            mine.capacity[dimension] = max(
                min(mine.capacity.get(dimension, 0) + amount * times, LARGEST), 0
            )


def quota(resources: Tree) -> Claimed:
    """The device part of a queue's resource list."""
    result: Claimed = {}
    for key, value in resources.items():
        if key.startswith(_MARK):
            name = key.removeprefix(_MARK)
            if name:
                result.setdefault(name, Devices()).count = quantity.whole(value)
            continue
        dimension, mark, name = key.partition("." + _MARK)
        if mark and dimension and name:
            result.setdefault(name, Devices()).capacity[dimension] = quantity.whole(value)
    return result


def without_devices(of: Amounts) -> Amounts:
    """A resource list without its device part, which no pod asks for in that way: as amounts these
    would only be in the way."""
    if not any(_MARK in name for name in of):
        return of
    return {
        name: value
        for name, value in of.items()
        if not (name.startswith(_MARK) or "." + _MARK in name)
    }


def claims_of(state: State, task: Task) -> dict[str, Claimed]:
    """What each claim of a pod asks for: claim key -> class -> how much.  Claims that say nothing
    are left out."""
    objects = state.others.get("ResourceClaim", {})
    result: dict[str, Claimed] = {}
    for key in task.claims:
        claim = objects.get(key)
        wanted = _wanted(claim) if claim is not None else {}
        if wanted:
            result[key] = wanted
    return result


def _wanted(claim: Tree) -> Claimed:
    result: Claimed = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        if (
            exactly is None
            or exactly.get("allocationMode") == "All"
            or not exactly.get("deviceClassName")
        ):
            continue
        try:
            count = int(exactly.get("count") or 1)
            requested = (exactly.get("capacity") or {}).get("requests") or {}
            capacity = {
                dimension: quantity.whole(amount) * count for dimension, amount in requested.items()
            }
        except (AttributeError, TypeError, ValueError):
            # A request that cannot be read asks for nothing here; the filter for claims refuses its
            # pods.
            continue
        add(result, {exactly["deviceClassName"]: Devices(count, capacity)})
    return result


def held_by_queue(state: State) -> dict[str, dict[str, Claimed]]:
    """Queue -> the claims that its placed pods use -> how much.  A claim that several of them share
    is there once."""
    result: dict[str, dict[str, Claimed]] = {}
    if not state.others.get("ResourceClaim"):
        return result
    for task in state.tasks.values():
        if (
            task.claims
            and task.job is not None
            and task.job.contribution is not None
            and is_allocated(task.status)
        ):
            result.setdefault(task.job.queue, {}).update(claims_of(state, task))
    return result


def written(claimed: Mapping[str, Devices]) -> dict[str, str]:
    """As a queue's status names it."""
    result: dict[str, str] = {}
    for name, devices in sorted(claimed.items()):
        result[_MARK + name] = str(devices.count)
        for dimension, amount in sorted(devices.capacity.items()):
            form = quantity.Format.BINARY if dimension == "memory" else quantity.Format.DECIMAL
            result[f"{dimension}.{_MARK}{name}"] = str(quantity.Quantity.of_whole(amount, form))
    return result


def total(claims: Mapping[str, Claimed]) -> Claimed:
    result: Claimed = {}
    for wanted in claims.values():
        add(result, wanted)
    return result


def minimum(state: State, job: Job) -> Claimed | None:
    """What a job's minimum of pods claims; None where it claims nothing."""
    if not job.tasks:
        return None
    claiming = [
        task
        for task in sorted(job.tasks.values(), key=lambda one: (one.namespace, one.name, one.uid))
        if claims_of(state, task)
    ]
    result: Claimed = {}
    if not job.role_minimums:
        for task in claiming[: max(job.min_available, 0)]:
            add(result, total(claims_of(state, task)))
        return result or None
    for role, count in job.role_minimums.items():
        first = next((task for task in claiming if task.role == role), None)
        if count > 0 and first is not None:
            add(result, total(claims_of(state, first)), count)
    return result or None


class Ledger:
    """What one queue has and may have of claimed devices.  `consumable`: whether parts of devices
    are counted too."""

    consumable = True

    def __init__(self, resources: Mapping[str, Tree]) -> None:
        self.capability = quota(resources.get("capability") or {})
        self.limited = any(quota(listed) for listed in resources.values())
        self.allocated: Claimed = {}
        self.inqueue: Claimed = {}
        self.references: dict[str, int] = {}

    def admits(self, wanted: Mapping[str, Devices], *, with_inqueue: bool) -> bool:
        """Whether so much more stays within the capability; classes that it does not name are free."""
        return not self.exceeded(wanted, with_inqueue=with_inqueue)

    def exceeded(self, wanted: Mapping[str, Devices], *, with_inqueue: bool) -> list[Exceeded]:
        """Where so much more would go past the capability."""
        result: list[Exceeded] = []
        for name, devices in wanted.items():
            limit = self.capability.get(name)
            if limit is None:
                continue
            held = self.allocated.get(name, Devices())
            promised = self.inqueue.get(name, Devices()) if with_inqueue else Devices()
            before = held.count + promised.count
            if limit.count > 0 and min(before + devices.count, LARGEST) > limit.count:
                result.append(Exceeded(_MARK + name, devices.count, before, limit.count))
            for dimension, amount in devices.capacity.items() if self.consumable else ():
                before = held.capacity.get(dimension, 0) + promised.capacity.get(dimension, 0)
                most = limit.capacity.get(dimension)
                if most is None or min(before + amount, LARGEST) > most:
                    result.append(Exceeded(f"{dimension}.{_MARK}{name}", amount, before, most or 0))
        return result

    def fresh(self, claims: Mapping[str, Claimed]) -> Claimed:
        """What a pod would add: its claims that nobody of this queue holds yet."""
        return total(
            {key: wanted for key, wanted in claims.items() if not self.references.get(key)}
        )

    def hold(self, claims: Mapping[str, Claimed]) -> None:
        for key, wanted in claims.items():
            self.references[key] = self.references.get(key, 0) + 1
            if self.references[key] == 1:
                add(self.allocated, wanted)

    def release(self, claims: Mapping[str, Claimed]) -> None:
        for key, wanted in claims.items():
            left = self.references.get(key, 0) - 1
            if left <= 0:
                self.references.pop(key, None)
                add(self.allocated, wanted, -1)
            else:
                self.references[key] = left
