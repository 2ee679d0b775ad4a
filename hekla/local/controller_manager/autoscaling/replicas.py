"""How many replicas one metric asks for.  Pure.

The ratio of what the pods use to what they should use, times the pods that it was measured of.  A pod
that says nothing must not move the number by its silence: where there would be fewer replicas, it is
taken to use what it may, where there would be more, nothing.  All amounts are in thousandths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

CPU = "cpu"


class NoReplicas(Exception):
    """No number of replicas can be told.  The text says why."""


class Sample(NamedTuple):
    """What a pod used in the `window` seconds before `at`."""

    at: float
    window: float
    value: int


@dataclass(frozen=True, slots=True)
class ScaledPod:
    """A pod of the target, as far as its metric is judged by it."""

    name: str
    phase: str = "Running"
    deleting: bool = False
    started: float | None = None
    """Seconds since the epoch; None before the kubelet has taken it."""
    ready: bool | None = True
    """None without such a condition."""
    ready_changed: float = 0.0
    request: int | None = None
    """Of the resource in question, of all its containers or of the one that is meant."""
    lacking: str = ""
    """The container without a request, where `request` is None."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for which a new pod's use of processors may be that of its start."""

    initialization: float = 300.0
    initial_readiness: float = 30.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a ratio may be from one without consequence."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Groups:
    """The pods of a target by what can be said of them."""

    ready: int
    unready: Set[str]
    missing: Set[str]
    ignored: Set[str]


class Answer(NamedTuple):
    """A number of replicas, and what was measured: the mean a pod, and that in percent of requests."""

    replicas: int
    average: int
    utilization: int | None = None


def grouped(
    pods: Iterable[ScaledPod],
    samples: Mapping[str, Sample],
    resource: str,
    patience: Patience,
    now: float,
) -> Groups:
    """Which pods count: those that end do not, those that are not ready count later."""
    ready, unready, missing, ignored = 0, set(), set(), set()
    for pod in pods:
        sample = samples.get(pod.name)
        if pod.deleting or pod.phase == "Failed":
            ignored.add(pod.name)
        elif pod.phase == "Pending":
            unready.add(pod.name)
        elif sample is None:
            missing.add(pod.name)
        elif resource == CPU and starting(pod, sample, patience, now):
            unready.add(pod.name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def starting(pod: ScaledPod, sample: Sample, patience: Patience, now: float) -> bool:
    """Whether what a pod's processors did says something of its start only."""
    if pod.ready is None or pod.started is None:
        return True
    if pod.started + patience.initialization > now:
        return not pod.ready or sample.at < pod.ready_changed + sample.window
    return not pod.ready and pod.started + patience.initial_readiness > pod.ready_changed


def by_utilization(
    resource: str,
    current: int,
    target: int,
    pods: list[ScaledPod],
    samples: Mapping[str, Sample],
    groups: Groups,
    tolerance: Tolerance,
) -> Answer:
    """Replicas by use in percent of requests.  Raises NoReplicas."""
    counted = _counted(samples, groups)
    requests: dict[str, int] = {}
    for pod in pods:
        if pod.request is None:
            raise NoReplicas(
                f"missing request for {resource} in container {pod.lacking} of Pod {pod.name}"
            )
        requests[pod.name] = pod.request

    def ratio(values: Mapping[str, int]) -> float:
        return _utilization(values, requests) / target

    used = _utilization(counted, requests)
    known = [value for name, value in counted.items() if name in requests]
    fill = max(100, target)
    wanted = _replicas(
        current, counted, groups, tolerance, ratio, lambda name: requests[name] * fill // 100
    )
    return Answer(wanted, sum(known) // len(known), used)


def by_average(
    current: int,
    target: int,
    samples: Mapping[str, Sample],
    groups: Groups,
    tolerance: Tolerance,
) -> Answer:
    """Replicas by the mean use of a pod.  Raises NoReplicas."""
    counted = _counted(samples, groups)

    def ratio(values: Mapping[str, int]) -> float:
        return (sum(values.values()) // len(values)) / target

    wanted = _replicas(current, counted, groups, tolerance, ratio, lambda _: target)
    return Answer(wanted, sum(counted.values()) // len(counted))


def by_ratio(current: int, ratio: float, ready: Callable[[], int], tolerance: Tolerance) -> int:
    """Replicas by a number that is about all of them, against what it should be.  `ready`: how many
    pods are."""
    if current == 0:
        return math.ceil(ratio)
    return current if tolerance.covers(ratio) else math.ceil(ratio * ready())


def by_total(current: int, used: int, each: int, tolerance: Tolerance) -> tuple[int, int]:
    """Replicas by a number of which each takes so much, and the part of one of the `current` ones."""
    if current == 0:
        return math.ceil(used / each), used
    wanted = current if tolerance.covers(used / (each * current)) else math.ceil(used / each)
    return wanted, math.ceil(used / current)


def _counted(samples: Mapping[str, Sample], groups: Groups) -> dict[str, int]:
    left_out = groups.ignored | groups.unready
    counted = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not counted:
        raise NoReplicas("did not receive metrics for targeted pods (pods might be unready)")
    return counted


def _utilization(values: Mapping[str, int], requests: Mapping[str, int]) -> int:
    """In percent of the requests of the pods that are in both."""
    both = [name for name in values if name in requests]
    requested = sum(requests[name] for name in both)
    if not requested:
        raise NoReplicas("no metrics returned matched known pods")
    return sum(values[name] for name in both) * 100 // requested


def _replicas(
    current: int,
    counted: Mapping[str, int],
    groups: Groups,
    tolerance: Tolerance,
    ratio_of: Callable[[Mapping[str, int]], float],
    full: Callable[[str], int],
) -> int:
    """The number, with the pods of which nothing is known taken as what moves it least."""
    ratio = ratio_of(counted)
    rising_unready = bool(groups.unready) and ratio > 1.0
    if not rising_unready and not groups.missing:
        return current if tolerance.covers(ratio) else math.ceil(ratio * groups.ready)
    values = dict(counted)
    if ratio < 1.0:
        values |= {name: full(name) for name in groups.missing}
    elif ratio > 1.0:
        values |= dict.fromkeys(groups.missing, 0)
    if rising_unready:
        values |= dict.fromkeys(groups.unready, 0)
    careful = ratio_of(values)
    if tolerance.covers(careful) or (ratio < 1.0 < careful) or (careful < 1.0 < ratio):
        return current
    wanted = math.ceil(careful * len(values))
    if (careful < 1.0 and wanted > current) or (careful > 1.0 and wanted < current):
        return current
    return wanted


def tolerances(usual: float, behavior: Mapping[str, float | None]) -> Tolerance:
    """Those of an autoscaler: its own by direction, else the usual one."""
    tolerance = Tolerance(usual, usual)
    for way, field in (("scaleDown", "down"), ("scaleUp", "up")):
        stated = behavior.get(way)
        if stated is not None:
            tolerance = replace(tolerance, **{field: stated})
    return tolerance
