"""Subresources with their own rule for what they may change: `ephemeralcontainers` of pods and
`finalize` of namespaces here, `resize` in resizing.py."""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.trees import Json
from hekla.local.apiserver.objects.errors import forbidden
from hekla.local.apiserver.objects.kind import FieldError
from hekla.local.apiserver.objects.strategies import keep_status
from hekla.local.apiserver.objects.validation import pod
from hekla.local.apiserver.objects.validation.metadata import finalizer_names, metadata
from hekla.local.apiserver.storage.store import decode, encode
from hekla.local.apiserver.write.resizing import resize
from hekla.podrules.profiles import STATIC


def ephemeral_containers(new: Json, old: Json) -> list[FieldError]:
    """Add debug containers to a running pod.  Existing ones can neither be changed nor removed."""
    wanted = (new.get("spec") or {}).get("ephemeralContainers") or []
    before = (old.get("spec") or {}).get("ephemeralContainers") or []
    keep_all_but_metadata(new, old)
    new["spec"]["ephemeralContainers"] = wanted
    if STATIC in (old["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    errors = metadata(new)
    pod.whole_spec(new["spec"], errors)
    known = {container.get("name"): container for container in wanted}
    for container in before:
        if known.get(container["name"]) != container:
            done = "changed" if container["name"] in known else "removed"
            why = f'existing ephemeral containers "{container["name"]}" may not be {done}\n'
            errors.append(forbidden("spec.ephemeralContainers", why))
    return errors


def keep_all_but_metadata(new: Json, old: Json) -> None:
    """Restore everything but metadata."""
    metadata = new["metadata"]
    new.clear()
    new.update(decode(encode(old)))
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        metadata.pop(field, None)
        if field in new["metadata"]:
            metadata[field] = new["metadata"][field]
    new["metadata"] = metadata


def finalize(new: Json, old: Json) -> list[FieldError]:
    """Update a namespace's finalizers, and everything else but its status."""
    keep_status(new, old)
    return metadata(new) + finalizer_names(
        (new.get("spec") or {}).get("finalizers") or (), "spec.finalizers"
    )


NARROW: dict[str, Callable[[Json, Json], list[FieldError]]] = {
    "ephemeralcontainers": ephemeral_containers,
    "finalize": finalize,
    "resize": resize,
}
"""Subresource -> function (new, old) that restores what the subresource may not change and returns
errors."""
