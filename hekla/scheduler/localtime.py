"""The machine's time zone as a name, for the engine, which asks the machine for nothing.

A name is better than an offset: the time windows of the plugin tdm follow daylight saving time, and
a recording means the same on another machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from hekla.engine.model.time.durations import zone

LOCALTIME = Path("/etc/localtime")
_DATABASE = "/zoneinfo/"


def time_zone(environment: str | None = None, link: Path = LOCALTIME) -> str:
    """The zone of the variable TZ, else of the link /etc/localtime, else the present offset."""
    stated = (os.environ.get("TZ", "") if environment is None else environment).removeprefix(":")
    linked = str(link.resolve()).rpartition(_DATABASE)[2] if link.is_symlink() else ""
    for name in (stated.rpartition(_DATABASE)[2] or stated, linked):
        if name and _known(name):
            return name
    offset = time.localtime().tm_gmtoff // 60
    return f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"


def _known(name: str) -> bool:
    try:
        zone(name)
    except ValueError:
        return False
    return True
