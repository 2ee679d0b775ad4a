"""Windows of time: one, or a series by a schedule.  Times are seconds since the epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from hekla.api.text import durations
from hekla.api.text.schedule import Cron, Schedule, ScheduleError, parse

MOST_COMPARED = 400
"""How many windows of two series are compared: more than a year of daily ones."""
DAY_BY_DAY = 32
"""How many windows of a series are looked at for whether they run into each other."""


class Window(NamedTuple):
    """From `start` until just before `end`."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Windows:
    """When something is open.

    Without a schedule once, from `first` for `length` seconds.  With one, from each of its times on
    for so long, but not before `first` nor at or after `last`.
    """

    first: float
    last: float
    length: float
    schedule: Schedule | None = None

    def next(self, at: float) -> Window | None:
        """The first window that ends after a moment, and may be open then; None after the last."""
        if self.schedule is None:
            end = self.first + self.length
            return Window(self.first, end) if end > at else None
        start = self.schedule.next(max(at - self.length, self.first - 1.0))
        if start is None or start >= self.last:
            return None
        return Window(start, start + self.length)

    def clash(self, other: Windows, at: float) -> Window | None:
        """The first time after a moment at which both are open, among the next hundreds."""
        at = max(at, self.first, other.first)
        mine, theirs = self.next(at), other.next(at)
        for _ in range(MOST_COMPARED):
            if mine is None or theirs is None:
                return None
            both = Window(max(mine.start, theirs.start), min(mine.end, theirs.end))
            if both.start < both.end:
                return both
            if mine.end <= theirs.end:
                mine = self.next(mine.end)
            else:
                theirs = other.next(theirs.end)
        return None


def read_windows(window: Mapping[str, object]) -> Windows:
    """The windows that `spec.window` of a Reservation describes.  Raises ValueError, which names the
    field, the value and what would be right."""
    schedule = _text(window, "schedule")
    start, end = _instant(window, "start"), _instant(window, "end")
    length = _length(_text(window, "duration"))
    if not schedule:
        return _once(window, start, end, length)
    if length is None:
        raise ValueError("spec.window.duration: a schedule needs one, such as 2h")
    first, last = (0.0 if start is None else start), (math.inf if end is None else end)
    if first >= last:
        raise ValueError(_order(window))
    times = _schedule(schedule, _text(window, "timeZone") or "UTC")
    opens = times.next(max(first - 1.0, 0.0))
    if opens is None or opens >= last:
        raise ValueError(_never(window))
    _check_apart(times, opens, length)
    return Windows(first, last, length, times)


def _once(
    window: Mapping[str, object], start: float | None, end: float | None, length: float | None
) -> Windows:
    if _text(window, "timeZone"):
        raise ValueError("spec.window.timeZone: it is for a schedule; start and end say theirs")
    if start is None:
        raise ValueError(
            "spec.window: it opens never: say start (a time such as 2026-11-24T20:00:00Z) or schedule"
        )
    if (end is None) == (length is None):
        raise ValueError("spec.window: say either end or duration beside start")
    if length is None:
        assert end is not None
        length = end - start
    if length <= 0:
        raise ValueError(_order(window))
    return Windows(start, math.inf, length)


def _never(window: Mapping[str, object]) -> str:
    lead = f'spec.window.schedule = "{window["schedule"]}": it opens never, as no such time comes'
    bounds = [
        f'{word} = "{window[field]}"'
        for field, word in (("start", " after start"), ("end", " before end"))
        if window.get(field)
    ]
    if bounds:
        return f"{lead}{''.join(bounds)}: say one that does, or a longer time"
    return f'{lead}: say one that does, such as "0 20 * * 5"'


def _order(window: Mapping[str, object]) -> str:
    return f'spec.window.end = "{window.get("end")}": it has to be after start = "{window.get("start")}"'


def _text(window: Mapping[str, object], field: str) -> str:
    found = window.get(field) or ""
    if not isinstance(found, str):
        raise ValueError(f"spec.window.{field} = {found!r}: a text is wanted")
    return found


def _instant(window: Mapping[str, object], field: str) -> float | None:
    text = _text(window, field)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f'spec.window.{field} = "{text}": no time such as 2026-11-24T20:00:00Z, with its zone'
        )
    return moment.timestamp()


def _length(text: str) -> float | None:
    if not text:
        return None
    try:
        length = durations.seconds(text)
    except durations.NotADuration:
        length = 0.0
    if length <= 0:
        raise ValueError(f'spec.window.duration = "{text}": no duration such as 90m or 2h')
    return length


def _schedule(text: str, zone: str) -> Cron:
    if "TZ=" in text:
        raise ValueError(f'spec.window.schedule = "{text}": its zone is said by timeZone')
    try:
        read = parse(text, zone)
    except ScheduleError as error:
        field = "timeZone" if "time zone" in str(error) else "schedule"
        value = zone if field == "timeZone" else text
        raise ValueError(f'spec.window.{field} = "{value}": {error}') from None
    if not isinstance(read, Cron):
        raise ValueError(
            f'spec.window.schedule = "{text}": windows open by the clock: five fields such as '
            '"0 20 * * 5", or @daily'
        )
    return read


def _check_apart(schedule: Schedule, start: float, length: float) -> None:
    """Windows of one series, which opens first at `start`, do not run into each other."""
    for _ in range(DAY_BY_DAY):
        following = schedule.next(start)
        if following is None:
            return
        if following - start < length:
            raise ValueError(
                f"spec.window.duration: windows of {length:g} s run into each other, "
                f"because the schedule comes again after {following - start:g} s"
            )
        start = following
