"""What every update is held to, whatever its kind and whichever way it takes."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.objects.kind import FieldError


def differs_outside(new: Json, old: Json) -> bool:
    """Whether anything but metadata and status changed."""
    for key, value in new.items():
        if key != "metadata" and key != "status" and value != old.get(key):
            return True
    return any(
        key not in new and key != "metadata" and key != "status" and value is not None
        for key, value in old.items()
    )


def new_finalizers(metadata: Json, before: Json) -> list[FieldError]:
    """While an object is being deleted, finalizers may only go."""
    if "deletionTimestamp" not in before:
        return []
    added = [
        name
        for name in metadata.get("finalizers") or []
        if name not in (before.get("finalizers") or [])
    ]
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    text = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
    return [FieldError("metadata.finalizers", "FieldValueForbidden", text)]
