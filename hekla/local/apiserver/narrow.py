"""Subresources with a rule of their own for what they change: `ephemeralcontainers` of pods and `finalize` of namespaces here,
`resize` in resizing.py."""

from __future__ import annotations

from collections.abc import Callable

from hekla.local.apiserver.kind import FieldError, Json
from hekla.local.apiserver.objects.strategies import keep_status
from hekla.local.apiserver.objects.validation.metadata import finalizer_names, metadata
from hekla.local.apiserver.resizing import resize
from hekla.local.apiserver.store import decode, encode


def ephemeral_containers(new: Json, old: Json) -> list[FieldError]:
    """Containers that are added to a running pod, for looking into it.  They never change and never go."""
    wanted = (new.get("spec") or {}).get("ephemeralContainers") or []
    before = (old.get("spec") or {}).get("ephemeralContainers") or []
    keep_all_but_metadata(new, old)
    new["spec"]["ephemeralContainers"] = wanted
    taken = {c["name"] for field in ("containers", "initContainers") for c in new["spec"].get(field) or []}
    errors = []
    names = set()
    for index, container in enumerate(wanted):
        path = f"spec.ephemeralContainers[{index}]"
        name = container.get("name", "")
        if not name:
            errors.append(FieldError(f"{path}.name", "FieldValueRequired", "Required value"))
        elif name in taken or name in names:
            errors.append(FieldError(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        names.add(name)
        if not container.get("image"):
            errors.append(FieldError(f"{path}.image", "FieldValueRequired", "Required value"))
        for field in ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources"):
            if container.get(field):
                text = "Forbidden: cannot be set for an Ephemeral Container"
                errors.append(FieldError(f"{path}.{field}", "FieldValueForbidden", text))
        target = container.get("targetContainerName")
        if target and target not in taken:
            errors.append(FieldError(f"{path}.targetContainerName", "FieldValueNotFound", f'Not found: "{target}"'))
    known = {container.get("name"): container for container in wanted}
    for container in before:
        if known.get(container["name"]) != container:
            done = "changed" if container["name"] in known else "removed"
            text = f'Forbidden: existing ephemeral containers "{container["name"]}" may not be {done}\n'
            errors.append(FieldError("spec.ephemeralContainers", "FieldValueForbidden", text))
    return errors


def keep_all_but_metadata(new: Json, old: Json) -> None:
    """Puts everything back that the subresource may not change."""
    metadata = new["metadata"]
    new.clear()
    new.update(decode(encode(old)))
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        metadata.pop(field, None)
        if field in new["metadata"]:
            metadata[field] = new["metadata"][field]
    new["metadata"] = metadata


def finalize(new: Json, old: Json) -> list[FieldError]:
    """A namespace's finalizers, and all else that an update may change; its status stays."""
    keep_status(new, old)
    return metadata(new) + finalizer_names((new.get("spec") or {}).get("finalizers") or (), "spec.finalizers")


NARROW: dict[str, Callable[[Json, Json], list[FieldError]]] = {
    "ephemeralcontainers": ephemeral_containers, "finalize": finalize, "resize": resize,
}  # fmt: skip
"""By the name of the subresource: (new, old); restores what it may not change, and says what is wrong."""
