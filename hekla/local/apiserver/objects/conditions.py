"""Conditions in a status that the server sets itself: of pods and of CustomResourceDefinitions."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.objects.new_objects import now


def set_condition(
    status: Json,
    type: str,
    value: str,
    reason: str = "",
    message: str = "",
    *,
    probed: bool = False,
) -> None:
    """Set a condition; its transition time moves only when its value does.  Conditions of pods have
    a time of their last probe besides (`probed`), which nobody ever sets."""
    conditions = status["conditions"] = status.get("conditions") or []
    found = next((condition for condition in conditions if condition.get("type") == type), None)
    if found is None:
        found = {"type": type}
        conditions.append(found)
    if found.get("status") != value:
        found["lastTransitionTime"] = now()
    if probed:
        found.setdefault("lastProbeTime", None)
    found["status"] = value
    for name, text in (("reason", reason), ("message", message)):
        if text:
            found[name] = text
        else:
            found.pop(name, None)
