"""Between which marks a node's usage may be, and what is decided about it: whether offline pods have
to go, and whether the node may take pods again.  Reference: agent 8.1 to 8.3.

Also by pressure stall information, which the original does not have: work may stand still for want
of memory long before a watermark is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

TIMES = 6
"""Samples in a row above the high watermark after which offline pods go."""
NEW, OLD = "volcano.sh/evicting-", "volcano.sh/oversubscription-evicting-"
"""Prefixes of the annotations; the old one counts where the new one is absent."""


class Kind(StrEnum):
    """What a node can run short of."""

    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Marks:
    """Percent of what is allocatable."""

    high: int
    low: int


Watermarks = Mapping[Kind, Marks]
DEFAULT: Watermarks = {Kind.CPU: Marks(80, 30), Kind.MEMORY: Marks(60, 30)}


def of_node(annotations: Mapping[str, str], configured: Watermarks) -> tuple[Watermarks, str]:
    """The watermarks of a node, and what is wrong with its annotations; then they do not count."""
    found: dict[Kind, Marks] = {}
    given = False
    for kind in Kind:
        amounts = []
        for side, default in (("high", DEFAULT[kind].high), ("low", DEFAULT[kind].low)):
            name, text = _annotation(annotations, f"{kind}-{side}-watermark")
            given = given or bool(name)
            if name and not text.isdecimal():
                return (
                    configured,
                    f'{name}="{text}": a watermark is a whole number of percent, from 0',
                )
            amounts.append(int(text) if name else default)
        found[kind] = Marks(*amounts)
    if not given:
        return configured, ""
    for kind, marks in found.items():
        if marks.high <= marks.low:
            return configured, (
                f"the high {kind} watermark of {marks.high} percent is not above the low one of {marks.low}"
            )
    return found, ""


def _annotation(annotations: Mapping[str, str], suffix: str) -> tuple[str, str]:
    for prefix in (NEW, OLD):
        text = annotations.get(prefix + suffix)
        if text is not None:
            return prefix + suffix, text
    return "", ""


def percent(used: int | None, allocatable: int) -> int | None:
    """Whole percent of what is allocatable; None where one of them is not known."""
    return used * 100 // allocatable if used is not None and allocatable > 0 else None


# pressure


def stall(text: str) -> float | None:
    """The part of the last ten seconds in which tasks waited, in percent: line `some`, `avg10`, of a
    file of pressure stall information."""
    for line in text.splitlines():
        which, *fields = line.split()
        if which == "some":
            for one in fields:
                name, _, value = one.partition("=")
                if name == "avg10":
                    try:
                        return float(value)
                    except ValueError:
                        return None
    return None


def online_pressure(pods: Path, best_effort: Path, kind: Kind, proc: Path) -> float | None:
    """How long the pods that are not of class BestEffort had to wait, at most.

    Under control groups of version 2 each group tells its own.  Else it is the whole machine's, in
    which offline pods that wait for each other count as well.  None where the kernel tells nothing.
    """
    found: list[float] = []
    try:
        groups = [each for each in pods.iterdir() if each.is_dir() and each != best_effort]
    except OSError:
        groups = []
    for file in [group / f"{kind}.pressure" for group in groups]:
        found += _stall_of(file)
    return max(found or _stall_of(proc / str(kind)), default=None)


def _stall_of(file: Path) -> list[float]:
    try:
        value = stall(file.read_text())
    except OSError:
        return []
    return [] if value is None else [value]


# decisions


@dataclass(frozen=True, slots=True)
class Sample:
    """One kind at one moment, and between what it may be."""

    kind: Kind
    usage: int | None
    """Percent; None: not known."""
    marks: Marks
    pressure: float | None = None
    """Percent of the time in which online pods waited."""
    limit: float = 0.0
    """Of the pressure; 0: it does not count."""

    @property
    def high(self) -> bool:
        return self._above or self._stalled

    @property
    def low(self) -> bool:
        """Also where the usage is not known: who asks must look whether it is."""
        return (self.usage is None or self.usage <= self.marks.low) and not self._stalled

    @property
    def _above(self) -> bool:
        return self.usage is not None and self.usage >= self.marks.high

    @property
    def _stalled(self) -> bool:
        return self.limit > 0 and self.pressure is not None and self.pressure >= self.limit

    def __str__(self) -> str:
        """Why offline pods have to go."""
        if self._above:
            return f"{self.kind} usage is {self.usage}% of what is allocatable, the high watermark is {self.marks.high}%"
        return f"online pods wait for {self.kind} {self.pressure:g}% of the time, the limit is {self.limit:g}%"


@dataclass(frozen=True, slots=True)
class Count:
    """Samples of one kind in a row: above the high watermark, and not known."""

    high: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    evict: tuple[Sample, ...] = ()
    """Kinds for each of which one offline pod is to go."""
    thaw: bool = False
    """The node may take pods again."""


class Counters:
    """Counts samples and decides.  A sample that is missing neither counts nor clears; after `times`
    of them the kind counts as not short, as it does for the original at once."""

    def __init__(self, times: int = TIMES) -> None:
        self._times = times
        self._counts: dict[Kind, Count] = {}

    def clear(self) -> None:
        self._counts.clear()

    def decide(self, samples: Iterable[Sample], *, evicting: bool) -> Decision:
        """`evicting`: whether offline pods may be sent away from this node at all."""
        samples = list(samples)
        for sample in samples:
            self._count(sample)
        over = [one for one in samples if one.high and self._counts[one.kind].high >= self._times]
        calm = all(
            sample.low
            and (sample.usage is not None or self._counts[sample.kind].unknown >= self._times)
            for sample in samples
        )
        return Decision(tuple(over) if evicting else (), calm)

    def _count(self, sample: Sample) -> None:
        before = self._counts.get(sample.kind, Count())
        if sample.high:
            after = Count(high=before.high + 1)
        elif sample.usage is not None:
            after = Count()
        elif before.unknown + 1 >= self._times:
            after = Count(unknown=self._times)
        else:
            after = replace(before, unknown=before.unknown + 1)
        self._counts[sample.kind] = after
