"""Conditions of pods that the server sets itself."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.objects.new_objects import now


def set_condition(status: Json, type: str, value: str, reason: str = "", message: str = "") -> None:
    """Sets a pod condition; its transition time moves only when the value does."""
    conditions = status.setdefault("conditions", [])
    found = next((c for c in conditions if c.get("type") == type), None)
    if found is None:
        found = {"type": type}
        conditions.append(found)
    if found.get("status") != value:
        found["lastTransitionTime"] = now()
    found.setdefault("lastProbeTime", None)
    found["status"] = value
    for name, text in (("reason", reason), ("message", message)):
        if text:
            found[name] = text
        else:
            found.pop(name, None)
