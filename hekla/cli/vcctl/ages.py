"""Times as people read them.  Reference: cli 1.5.

There are two renderings, alike but for one range: the command line's own, and the Kubernetes
library's (`hekla/api/text/ages.py`), which drops the days of a whole number of years.
Timestamps are RFC 3339 texts of the wire.
"""

from __future__ import annotations

from datetime import datetime

from hekla.api.text.ages import YEAR, age
from hekla.api.text.times import age_of, instant

UNSET_TIME = "0001-01-01 00:00:00 +0000 UTC"


def own_age(timestamp: str | None, now: float) -> str:
    """How long ago a timestamp was, in the command line's own rendering: `2y0d`, not `2y`."""
    text = age(timestamp, now)
    return (
        f"{text}0d"
        if timestamp and text.endswith("y") and age_of(timestamp, now) < 8 * YEAR
        else text
    )


def creation_date(timestamp: str | None) -> str:
    """The day of a timestamp as it stands on the wire."""
    return timestamp[:10] if timestamp else "0001-01-01"


def full(timestamp: str | None) -> str:
    """`2006-01-02 15:04:05 -0700 MST` in the local zone."""
    if not timestamp:
        return UNSET_TIME
    local = datetime.fromtimestamp(instant(timestamp)).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S %z ") + (local.tzname() or "")
