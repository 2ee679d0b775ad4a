"""The machine's time zone as a name that can be handed to the engine, which never asks the machine
itself.

A name, not an offset, wherever there is one: windows of the tdm plugin follow the change of the
clocks, and a recording that was made here says the same in another place.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from hekla.engine.model.durations import zone

LOCALTIME = Path("/etc/localtime")
_DATABASE = "/zoneinfo/"


def time_zone(environment: str | None = None, link: Path = LOCALTIME) -> str:
    """By the variable TZ, else by where /etc/localtime points, else the offset of this moment."""
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
