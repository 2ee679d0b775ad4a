"""When waiting jobs start, as the scheduler writes it on their PodGroups.  Hekla's own."""

from __future__ import annotations

import json
import time
from datetime import datetime

from hekla.api.names import START_ESTIMATE, WAITING
from hekla.api.text.ages import age
from hekla.api.text.times import instant, stamp
from hekla.cli.vcctl.connection import Tree

SOON = 600.0
"""Seconds up to which a start is told with its second."""


def estimate_of(group: Tree | None) -> Tree:
    """What a PodGroup that waits says of its start; empty where it says nothing."""
    if group is None or not _waits(group):
        return {}
    annotations = (group.get("metadata") or {}).get("annotations") or {}
    try:
        found = json.loads(annotations.get(START_ESTIMATE) or "{}")
        instant(found.get("start") or "")
    except (ValueError, TypeError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _waits(group: Tree) -> bool:
    status = group.get("status") or {}
    return status.get("phase") in (None, "", "Pending", "Inqueue") or any(
        one.get("type") == WAITING for one in status.get("conditions") or []
    )


def when(estimate: Tree, now: float | None = None) -> str:
    """`about 14:20 (in 35m)`, in the local zone."""
    now = time.time() if now is None else now
    start = instant(estimate.get("start") or "")
    local, today = datetime.fromtimestamp(start), datetime.fromtimestamp(now)
    form = "%H:%M:%S" if abs(start - now) < SOON else "%H:%M"
    if local.date() != today.date():
        form = "%Y-%m-%d " + form
    left = f"in {age(stamp(now), start)}" if start > now else "any moment"
    return (
        f"{'at the latest' if estimate.get('latest') else 'about'} {local.strftime(form)} ({left})"
    )


def after(estimate: Tree, namespace: str) -> str:
    """The job whose end lets it start, for a reader in this namespace; may be empty."""
    where, _, name = str(estimate.get("after") or "").rpartition("/")
    return name if where in ("", namespace) else f"{where}/{name}"


def sentence(estimate: Tree, namespace: str, now: float | None = None) -> str:
    """The whole of it."""
    because = estimate.get("because") or ""
    if not estimate.get("start"):
        return f"When it starts is not known: {because}."
    ends = after(estimate, namespace)
    lets = f", when {ends} ends" if ends else ""
    return f"It starts {when(estimate, now)}{lets}. Now {because}."
