"""Finds devices for the claims of one pod on one node: all of them, or none.

Depth first: claims, requests and choices in the order in which they are written, devices in the
order in which the node sees them. Of devices that differ in nothing that the search looks at only
the first is tried, and those of one request are taken in order, so that "there are not enough" is
found out in few steps.  A search that takes too many steps gives up, which counts as "no".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from hekla.api.trees import Tree
from hekla.cel.errors import Failed
from hekla.engine.model.claims.pools import Device, DeviceKey, NodeDevices, Pool, PoolKey
from hekla.engine.model.claims.requests import (
    MOST_DEVICES,
    Choice,
    ClaimRequest,
    Constraint,
    expressions,
)
from hekla.engine.model.nodes import NO_EXECUTE, NO_SCHEDULE

if TYPE_CHECKING:
    from hekla.cel.devices import Selector

CANNOT = "cannot allocate all claims"
STEPS_A_SECOND = 100_000
"""So many steps stand for a second of the time limit: a clock would make decisions depend on the
machine."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request."""

    choice: Choice
    device: Device
    consumed: tuple[tuple[str, int], ...] = ()
    """Of a shared device: how much of which capacity."""


@dataclass(slots=True)
class Usage:
    """What is given away already."""

    held: dict[DeviceKey, int] = field(default_factory=dict)
    """How many claims hold a device, as a whole or a share of it."""
    consumed: dict[DeviceKey, dict[str, int]] = field(default_factory=dict)
    """Of shared devices."""

    def hold(self, device: DeviceKey, consumed: Mapping[str, int], by: int) -> None:
        """Book a device or a share of it (`by` 1), or take the booking back (`by` -1), exactly."""
        count = self.held.get(device, 0) + by
        if count:
            self.held[device] = count
        else:
            self.held.pop(device, None)
        if consumed:
            book = self.consumed.setdefault(device, {})
            for name, amount in consumed.items():
                book[name] = book.get(name, 0) + by * amount
                if not book[name]:
                    del book[name]
            if not book:
                del self.consumed[device]


@dataclass(slots=True)
class Found:
    """What a search ended with."""

    picks: list[list[Pick]] | None = None
    """For each claim; None where there is no solution."""
    score: float = 0.0
    reason: str = CANNOT


class GaveUp(Exception):
    """The limit of steps is reached."""


def find(
    claim_requests: Sequence[ClaimRequest],
    devices: NodeDevices,
    pools: Mapping[PoolKey, Pool],
    classes: Mapping[str, Tree],
    usage: Usage,
    limit: int = 0,
) -> Found:
    """Devices for claims that ask for these.  `limit`: steps, 0 for as many as it takes."""
    search = _Search(claim_requests, devices, pools, classes, usage, limit)
    for claim_request in claim_requests:
        least = sum(
            min(search.least(one) for one in request.choices) for request in claim_request.requests
        )
        if least > MOST_DEVICES:
            return Found(
                reason=f"a claim may have {MOST_DEVICES} devices, this one asks for {least}"
            )
    try:
        solved = search.solve()
    except GaveUp:
        return Found(reason="timed out trying to allocate devices")
    if not solved:
        return Found(reason=search.trouble or CANNOT)
    return Found([list(picks) for picks in search.picks], search.score)


class _Search:
    def __init__(
        self,
        claim_requests: Sequence[ClaimRequest],
        devices: NodeDevices,
        pools: Mapping[PoolKey, Pool],
        classes: Mapping[str, Tree],
        usage: Usage,
        limit: int,
    ) -> None:
        self.claim_requests = claim_requests
        self.pools = pools
        self.classes = classes
        self.usage = usage
        self.devices = devices.usable(pools)
        self.unsettled = devices.unsettled(pools)
        self.trouble = ""
        """What went wrong with a selector."""
        self.limit = limit
        self.steps = 0
        self.score = 0.0
        self.picks: list[list[Pick]] = [[] for _ in claim_requests]
        self.taken: dict[DeviceKey, int] = {}
        self.own: list[set[DeviceKey]] = [set() for _ in claim_requests]
        """Devices that each claim has; none is given to a claim twice unless it is shared."""
        self.consumed: dict[DeviceKey, dict[str, int]] = {}
        self.counters: dict[PoolKey, dict[tuple[str, str], int]] = {}
        self.suiting: dict[int, list[Device]] = {}
        self.looks = {
            one.attribute for claim_request in claim_requests for one in claim_request.constraints
        }
        self.choices = [
            choice
            for claim_request in claim_requests
            for request in claim_request.requests
            for choice in request.choices
        ]

    def least(self, choice: Choice) -> int:
        return len(self.suit(choice)) if choice.everything else choice.count

    # ----------------------------------------------------------------------------------- the search

    def solve(self) -> bool:
        order = [
            (claim, at)
            for claim, claim_request in enumerate(self.claim_requests)
            for at in range(len(claim_request.requests))
        ]
        return self._request(order, 0)

    def _request(self, order: list[tuple[int, int]], at: int) -> bool:
        if at == len(order):
            return True
        claim, number = order[at]
        request = self.claim_requests[claim].requests[number]
        for place, choice in enumerate(request.choices):
            gain = float(8 - place) if request.ranked else 0.0
            self.score += gain
            if self._choice(order, at, claim, choice):
                return True
            self.score -= gain
        return False

    def _choice(self, order: list[tuple[int, int]], at: int, claim: int, choice: Choice) -> bool:
        devices = self.suit(choice)
        if not choice.everything:
            if len(devices) < choice.count and not any(one.shared for one in devices):
                return False
            return self._some(order, at, claim, choice, devices, 0, choice.count)
        if self.unsettled or not devices or len(self.picks[claim]) + len(devices) > MOST_DEVICES:
            return False
        before = len(self.picks[claim])
        if all(self._take(claim, choice, one) for one in devices) and self._request(order, at + 1):
            return True
        while len(self.picks[claim]) > before:
            self._give_back(claim)
        return False

    def _some(
        self,
        order: list[tuple[int, int]],
        at: int,
        claim: int,
        choice: Choice,
        devices: list[Device],
        start: int,
        count: int,
    ) -> bool:
        """`count` of the devices from `start` on, and then the rest of the requests."""
        if not count:
            return self._request(order, at + 1)
        if len(self.picks[claim]) + count > MOST_DEVICES:
            return False
        failed: set[Hashable] = set()
        for index in range(start, len(devices)):
            device = devices[index]
            likeness = self._likeness(device)
            if likeness in failed or not self._take(claim, choice, device):
                continue
            if self._some(
                order, at, claim, choice, devices, index if device.shared else index + 1, count - 1
            ):
                return True
            self._give_back(claim)
            failed.add(likeness)
        return False

    def _likeness(self, device: Device) -> Hashable:
        """Devices of equal likeness can stand in for each other, as long as neither is taken."""
        key = device.key
        consumed = self.usage.consumed.get(key)
        return (
            key[:2],
            device.counters,
            device.shared,
            key in self.taken,
            key in self.usage.held,
            tuple(one.key in mine for one in (device,) for mine in self.own),
            tuple(sorted(consumed.items())) if consumed else (),
            tuple(sorted(self.consumed.get(key, {}).items())),
            tuple((name, one) for name, one in device.capacity.items()) if device.shared else (),
            tuple(device.attribute(name) for name in sorted(self.looks)),
            tuple(self._suits(choice, device) for choice in self.choices),
            tuple(_tolerated(choice, device) for choice in self.choices) if device.taints else (),
        )

    # ----------------------------------------------------------------------------------- one device

    def _take(self, claim: int, choice: Choice, device: Device) -> bool:
        """Take a device if nothing speaks against it."""
        self.steps += 1
        if self.limit and self.steps > self.limit:
            raise GaveUp
        key = device.key
        if key in self.own[claim] and not device.shared:
            return False
        if not _tolerated(choice, device):
            return False
        shares: tuple[tuple[str, int], ...] = ()
        if not choice.admin:
            in_use = key in self.taken or key in self.usage.held
            if in_use and not device.shared:
                return False
            if device.shared:
                parts = self._shares(choice, device)
                if parts is None:
                    return False
                shares = parts
            if not in_use and not self._counters_suffice(device):
                return False
        for constraint in self.claim_requests[claim].constraints:
            if constraint.concerns(choice.name) and not self._agrees(constraint, claim, device):
                return False
        self._book(claim, Pick(choice, device, shares), 1)
        return True

    def _give_back(self, claim: int) -> None:
        self._book(claim, self.picks[claim][-1], -1)

    def _book(self, claim: int, pick: Pick, by: int) -> None:
        key = pick.device.key
        if by > 0:
            self.picks[claim].append(pick)
            self.own[claim].add(key)
        else:
            self.picks[claim].pop()
            if all(one.device.key != key for one in self.picks[claim]):
                self.own[claim].discard(key)
        if pick.choice.admin:
            return
        before = self.taken.get(key, 0)
        if before + by:
            self.taken[key] = before + by
        else:
            del self.taken[key]
        first = key not in self.usage.held and min(before, before + by) == 0
        if pick.device.counters and first:
            left = self._left(key[:2])
            for name, amount in pick.device.counters:
                left[name] = left.get(name, 0) - by * amount
        if pick.consumed:
            book = self.consumed.setdefault(key, {})
            for part, amount in pick.consumed:
                book[part] = book.get(part, 0) + by * amount

    def _left(self, pool: PoolKey) -> dict[tuple[str, str], int]:
        """What is left of a pool's counters."""
        left = self.counters.get(pool)
        if left is None:
            left = self.counters[pool] = dict(self.pools[pool].counters)
            for device in self.pools[pool].devices.values():
                if device.counters and device.key in self.usage.held:
                    for name, amount in device.counters:
                        left[name] = left.get(name, 0) - amount
        return left

    def _counters_suffice(self, device: Device) -> bool:
        if not device.counters:
            return True
        left = self._left(device.key[:2])
        return all(left.get(name, 0) >= amount for name, amount in device.counters)

    def _shares(self, choice: Choice, device: Device) -> tuple[tuple[str, int], ...] | None:
        """What a share of a shared device takes; None where so much is not left."""
        asked = dict(choice.capacity)
        held, own = self.usage.consumed.get(device.key, {}), self.consumed.get(device.key, {})
        result = []
        for name, capacity in device.capacity.items():
            amount = capacity.consumed(asked.get(name))
            if amount is None or held.get(name, 0) + own.get(name, 0) + amount > capacity.value:
                return None
            result.append((name, amount))
        return tuple(result)

    def _agrees(self, constraint: Constraint, claim: int, device: Device) -> bool:
        values = device.attribute(constraint.attribute)
        if not values:
            return False
        others = [
            one.device.attribute(constraint.attribute)
            for one in self.picks[claim]
            if constraint.concerns(one.choice.name)
        ]
        if constraint.distinct:
            return all(not values & other for other in others)
        return bool(values.intersection(*others))

    # --------------------------------------------------------------------------------- who is meant

    def suit(self, choice: Choice) -> list[Device]:
        """The devices that a choice means, whether or not they are free."""
        found = self.suiting.get(id(choice))
        if found is None:
            found = self.suiting[id(choice)] = [
                one for one in self.devices if self._suits(choice, one)
            ]
        return found

    def _suits(self, choice: Choice, device: Device) -> bool:
        made = self.classes.get(choice.device_class)
        if made is None:
            return False
        stated = expressions((made.get("spec") or {}).get("selectors"))
        for text in chain(stated, choice.selectors):
            verdict = verdict_on(device, text)
            if isinstance(verdict, str):
                self.trouble = verdict
                return False
            if not verdict:
                return False
        for name, asked in choice.capacity:
            capacity = device.capacity.get(name)
            if capacity is None or capacity.consumed(asked) is None:
                return False
        return True


def _tolerated(choice: Choice, device: Device) -> bool:
    return all(
        taint.effect not in (NO_SCHEDULE, NO_EXECUTE)
        or any(one.tolerates(taint) for one in choice.tolerations)
        for taint in device.taints
    )


def meant(made: Tree, device: Device) -> bool:
    """Whether a device is of a class."""
    return all(
        verdict_on(device, text) is True
        for text in expressions((made.get("spec") or {}).get("selectors"))
    )


def verdict_on(device: Device, text: str) -> bool | str:
    """Whether a selector means the device; a text where that cannot be told."""
    known = device.verdicts.get(text)
    if known is None:
        try:
            known = _selector(text).matches(device.key[0], dict(device.tree))
        except Failed as error:
            known = f"selector of device {device.key[2]} failed: {error}"
        except (
            Exception
        ) as error:  # whatever somebody wrote into a selector or an attribute, the cycle goes on
            known = f"selector cannot be used: {error}"
        device.verdicts[text] = known
    return known


@lru_cache(maxsize=1024)
def _selector(text: str) -> Selector:
    from hekla.cel.devices import Selector

    return Selector(text)
