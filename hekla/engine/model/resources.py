"""What a pod asks for and a node has, as numbers.

Two forms live here.  `Amounts` is a plain dictionary from resource name to float, for jobs and
queues: whether a name is *present* matters there, apart from its value.  `ResourceSpace` gives
every name a column, for the node table, where a row is touched ten thousand times a cycle.  Units:
cpu in millicores, memory in bytes, `pods` whole, all else in thousandths. Reference: scheduler-core
3, plugins-fairness 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from hekla.api.text import quantity
from hekla.api.trees import Tree

Amounts = dict[str, float]
Floats = NDArray[np.float64]

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Every device class backs the extended resource of this domain and its own name."""
EPSILON = 0.1
CPU, MEMORY, PODS = "cpu", "memory", "pods"
UNLIMITED = 1.7976931348623157e308
_HUGEPAGES = "hugepages-"
_ATTACHABLE = "attachable-volumes-"
_NONE: Amounts = {}


def is_scalar(name: str) -> bool:
    """Whether Kubernetes counts `name` among the resources that a scheduler adds up besides cpu and
    memory."""
    return name.startswith((_HUGEPAGES, _ATTACHABLE)) or (
        "/" in name and not name.startswith("requests.")
    )


def amounts(quantities: Tree | None) -> Amounts:
    """A Kubernetes resource list in the engine's units.  Raises ValueError for a quantity that is
    none."""
    result: Amounts = {CPU: 0.0, MEMORY: 0.0}
    for name, value in (quantities or {}).items():
        if name == CPU:
            result[CPU] = float(quantity.milli(value))
        elif name == MEMORY:
            result[MEMORY] = float(quantity.whole(value))
        elif name == PODS:
            result[PODS] = result.get(PODS, 0.0) + float(quantity.whole(value))
        elif name == "ephemeral-storage" or (not name.startswith("count/") and is_scalar(name)):
            result[name] = float(quantity.milli(value))
    for name, number in result.items():
        if not math.isfinite(number) or number < 0:
            raise ValueError(
                f"{name} = {(quantities or {}).get(name)!r}: an amount is finite and not below 0"
            )
    return result


def empty() -> Amounts:
    """Nothing of anything; cpu and memory are always present."""
    return {CPU: 0.0, MEMORY: 0.0}


def add(left: Amounts, right: Mapping[str, float], times: float = 1.0) -> None:
    """Add in place."""
    for name, value in right.items():
        left[name] = left.get(name, 0.0) + value * times


def subtract(left: Amounts, right: Mapping[str, float], times: float = 1.0) -> None:
    """Take away in place, clamping nothing; names that `left` lacks become negative."""
    for name, value in right.items():
        left[name] = left.get(name, 0.0) - value * times


def plus(left: Mapping[str, float], right: Mapping[str, float], times: float = 1.0) -> Amounts:
    """The sum; neither changes."""
    result = dict(left)
    add(result, right, times)
    return result


def present(of: Amounts) -> Amounts:
    """Sums that were counted up and down again keep names whose value went back to nothing; those
    are absent."""
    return {name: value for name, value in of.items() if value or name in (CPU, MEMORY)}


def maximum(left: Amounts, right: Mapping[str, float]) -> Amounts:
    """The larger of both in each dimension of either; one that is named as 0 stays named."""
    result = dict(left)
    for name, value in right.items():
        if value > result.get(name, -1.0):
            result[name] = value
    return result


def excess(left: Mapping[str, float], right: Mapping[str, float]) -> Amounts:
    """What `left` has above `right`; a scalar is present only where it is positive."""
    result = {CPU: 0.0, MEMORY: 0.0}
    for name, value in left.items():
        over = value - right.get(name, 0.0)
        if over > 0:
            result[name] = over
    return result


def floor_subtract(left: Amounts, right: Mapping[str, float]) -> Amounts:
    """`left` minus `right`, never below nothing, only in the dimensions that `left` has."""
    return {name: max(value - right.get(name, 0.0), 0.0) for name, value in left.items()}


def minimum_present(left: Mapping[str, float], right: Mapping[str, float]) -> Amounts:
    """The smaller of both; a scalar that `right` does not mention stays as `left` has it."""
    return {
        name: min(value, right[name]) if name in right else value for name, value in left.items()
    }


def minimum_zero(left: Mapping[str, float], right: Mapping[str, float]) -> Amounts:
    """The smaller of both; a scalar that `right` does not mention counts as nothing."""
    return {name: min(value, right.get(name, 0.0)) for name, value in left.items()}


def names(of: Mapping[str, float]) -> list[str]:
    """The dimensions with a significant amount."""
    return [name for name, value in of.items() if value >= EPSILON]


def is_empty(of: Mapping[str, float]) -> bool:
    """No significant amount of anything; a count of pods alone is nothing."""
    return all(value < EPSILON for name, value in of.items() if name != PODS)


def less_equal(left: Mapping[str, float], right: Mapping[str, float]) -> bool:
    """Every dimension of `left` fits `right` within the tolerance; dimensions of `right` alone are
    not looked at."""
    return not above(left, right)


def above(left: Mapping[str, float], right: Mapping[str, float]) -> str:
    """The first dimension of `left` that does not fit `right` within the tolerance; empty where all
    do."""
    for name, value in left.items():
        other = right.get(name, 0.0)
        if not (value < other or abs(value - other) < EPSILON):
            return name
    return ""


def exceeding(
    left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]
) -> list[str]:
    """The dimensions that `asked` wants and in which `left` is above `right`: strict, without
    tolerance, without pods.

    Order: cpu, memory, then scalars by name, so that messages are the same on every run.
    """
    short = [
        name
        for name, wanted in asked.items()
        if wanted > 0 and name != PODS and left.get(name, 0.0) > right.get(name, 0.0)
    ]
    return ordered(short) if len(short) > 1 else short


def exceeds(
    most: Mapping[str, float],
    asked: Mapping[str, float],
    held: Mapping[str, float],
    promised: Mapping[str, float] = _NONE,
    spared: Mapping[str, float] = _NONE,
) -> bool:
    """Whether what is asked for goes past `most` beside what is held and promised and not spared,
    as `exceeding` counts it."""
    for name, wanted in asked.items():
        if wanted > 0 and name != PODS:
            taken = held.get(name, 0.0)
            if promised:
                taken += promised.get(name, 0.0)
            if spared:
                taken -= spared.get(name, 0.0)
            if wanted + taken > most.get(name, 0.0):
                return True
    return False


def above_capability(
    capability: Mapping[str, float], asked: Mapping[str, float], held: Mapping[str, float]
) -> list[str]:
    """The dimensions in which so much more is above a ceiling that was stated; cpu and memory of 0
    are not stated."""
    return [
        name
        for name, wanted in asked.items()
        if wanted > 0
        and name != PODS
        and (name in (CPU, MEMORY) or name in capability)
        and (capability.get(name, 0.0) > 0 or name not in (CPU, MEMORY))
        and held.get(name, 0.0) + wanted > capability.get(name, 0.0)
    ]


def less_equal_partly(
    left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]
) -> bool:
    """Some dimension that `asked` wants still fits.  Dimensions that are insignificant on both
    sides do not count."""
    for name, wanted in asked.items():
        if wanted <= 0 or name == PODS:
            continue
        value, other = left.get(name, 0.0), right.get(name, 0.0)
        if value < EPSILON and other < EPSILON:
            continue
        if value < other or abs(value - other) < EPSILON:
            return True
    return False


def exceeds_relevant(
    left: Mapping[str, float], right: Mapping[str, float], asked: Mapping[str, float]
) -> bool:
    """Some dimension that `asked` wants and that `right` speaks of is exceeded, strictly."""
    for name, wanted in asked.items():
        if wanted <= 0 or name == PODS:
            continue
        relevant = right.get(name, 0.0) >= EPSILON if name in (CPU, MEMORY) else name in right
        if relevant and left.get(name, 0.0) > right.get(name, 0.0):
            return True
    return False


def share(part: float, whole: float) -> float:
    """A part as a fraction; of nothing, something is everything."""
    if whole == 0:
        return 0.0 if part == 0 else 1.0
    return part / whole


def dominant_share(part: Mapping[str, float], whole: Mapping[str, float]) -> float:
    """The largest fraction over the significant dimensions of `whole`."""
    largest = 0.0
    for name, value in whole.items():
        if value >= EPSILON:
            fraction = part.get(name, 0.0) / value
            if fraction > largest:
                largest = fraction
    return largest


def ordered(of: Iterable[str]) -> list[str]:
    """cpu, memory, then the rest by name."""
    return sorted(of, key=lambda name: (name != CPU, name != MEMORY, name))


def quantities(of: Mapping[str, float]) -> dict[str, str]:
    """The amounts as Kubernetes writes them.  Fractions of the smallest unit are cut off."""
    result: dict[str, str] = {}
    for name in ordered(of):
        value = int(of[name])
        if name == PODS:
            result[name] = str(value)
        elif name == MEMORY:
            result[name] = str(quantity.Quantity.of_whole(value, quantity.Format.BINARY))
        else:
            result[name] = str(quantity.Quantity.of_milli(value))
    return result


class Request:
    """What one pod asks for: the amounts, and the same as columns and values for the node table.
    Immutable."""

    __slots__ = ("amounts", "best_effort", "columns", "nonzero", "significant", "values")

    def __init__(self, space: ResourceSpace, of: Amounts, nonzero: tuple[float, float]) -> None:
        self.amounts = of
        self.significant: Amounts = {name: value for name, value in of.items() if value}
        """The amounts without what is zero; shared, so nobody may change it."""
        self.best_effort = is_empty(of)
        ordered_names = ordered(of)
        self.columns: tuple[int, ...] = tuple(space.column(name) for name in ordered_names)
        self.values: tuple[float, ...] = tuple(of[name] for name in ordered_names)
        self.nonzero = nonzero
        """cpu and memory as the load scores count them, where a container that says nothing counts
        a little."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.columns, self.values)


class ResourceSpace:
    """Which resource has which column.  It grows when a new resource appears and never shrinks."""

    def __init__(self) -> None:
        self.names: list[str] = [CPU, MEMORY, PODS]
        self.index: dict[str, int] = {name: column for column, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> int:
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
        return found

    def dense(self, of: Mapping[str, float]) -> Floats:
        """The amounts as one vector over all columns known after the call."""
        columns = [self.column(name) for name in of]
        vector = np.zeros(len(self.names))
        vector[columns] = list(of.values())
        return vector

    def amounts(self, vector: Floats) -> Amounts:
        """A column vector back as amounts; cpu and memory are always present, the rest where it is
        not zero."""
        return {
            name: float(value)
            for name, value in zip(self.names, vector)
            if value or name in (CPU, MEMORY)
        }


def is_extended(name: str) -> bool:
    """Whether a resource of this name may be had by a device class."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and (
        domain + slash == IMPLICIT
        or not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))
    )
