"""Times as people read them.  Reference: cli 1.5.

There are two renderings, alike but for one range: the command line's own, and the Kubernetes
library's, which drops the days of a whole number of years.  Timestamps are RFC 3339 texts of the
wire.
"""

from __future__ import annotations

from datetime import datetime

from hekla.api.text.times import age_of, instant

MINUTE, HOUR, DAY = 60, 3600, 86400
UNSET_TIME = "0001-01-01 00:00:00 +0000 UTC"


def human(seconds: float, *, whole_years: bool = False) -> str:
    """An elapsed time in at most two units.  `whole_years` is the Kubernetes library's variant:
    `2y`, not `2y0d`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _two(whole, DAY, "d", HOUR, "h")
    days = whole // DAY
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        years, rest = divmod(days, 365)
        return f"{years}y" if whole_years and not rest else f"{years}y{rest}d"
    return f"{days // 365}y"


def _two(seconds: int, unit: int, letter: str, part: int, part_letter: str) -> str:
    large, small = seconds // unit, seconds % unit // part
    return f"{large}{letter}{small}{part_letter}" if small else f"{large}{letter}"


def age(timestamp: str | None, now: float, *, whole_years: bool = False) -> str:
    return human(age_of(timestamp, now), whole_years=whole_years) if timestamp else "<unknown>"


def creation_date(timestamp: str | None) -> str:
    """The day of a timestamp as it stands on the wire."""
    return timestamp[:10] if timestamp else "0001-01-01"


def full(timestamp: str | None) -> str:
    """`2006-01-02 15:04:05 -0700 MST` in the local zone."""
    if not timestamp:
        return UNSET_TIME
    local = datetime.fromtimestamp(instant(timestamp)).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S %z ") + (local.tzname() or "")
