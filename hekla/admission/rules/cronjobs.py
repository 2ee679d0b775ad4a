"""CronJob: a schedule, a zone and a short name.  Reference: api-and-admission 5.3.11."""

from __future__ import annotations

import functools
import re
import zoneinfo

from hekla.admission.review import Review, Tree, name_of, spec_of
from hekla.api.text.schedule import ScheduleError, parse
from hekla.api.text.syntax import qualified_name

LONGEST_NAME = 52
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}\Z")


def validate(review: Review) -> str:
    groups = (spec_problems(spec_of(review.object)), name_problem(name_of(review.object)))
    return "; ".join(group.strip() for group in groups if group)


def spec_problems(spec: Tree) -> str:
    return _schedule(spec.get("schedule") or "") + _zone(spec.get("timeZone"))


def name_problem(name: str) -> str:
    if len(name) > LONGEST_NAME:
        return "cronJob name must be no more than 52 characters to accommodate job name suffix (max 63 total)"
    errors = qualified_name(name)
    return f'invalid cronJob name "{name}": {", ".join(errors)}' if errors else ""


def _schedule(text: str) -> str:
    if not text:
        return " schedule is required, but got empty"
    if "TZ" in text:
        return " schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field"
    try:
        parse(text, "UTC")
    except ScheduleError:
        return "schedule is not a valid cron expression"
    return ""


def _zone(zone: str | None) -> str:
    if zone is None:
        return ""
    if not zone:
        return " timeZone must be nil or non-empty string, got empty string"
    bad = sum(
        part in (".", "..") or part.startswith("-") or not _ZONE_PART.match(part)
        for part in zone.split("/")
    )
    text = " unknown timeZone" * bad
    if zone.lower() == "local":
        return (
            text
            + " timeZone can't be Local, and must be defined in https://www.iana.org/time-zones"
        )
    return text if is_known_zone(zone) else text + " invalid timeZone"


@functools.lru_cache(maxsize=1024)
def is_known_zone(zone: str) -> bool:
    """Whether the zone database has the zone.  It is looked up as a path, so a `.` part changes
    nothing."""
    if ".." in zone or zone.startswith(("/", "\\")):
        return False
    path = "/".join(part for part in zone.split("/") if part not in (".", ""))
    try:
        zoneinfo.ZoneInfo(path)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
