"""Subresources with their own rule for what they may change: `ephemeralcontainers` and `resize` of
pods (local-cluster 1.7, 5.2), `finalize` of namespaces."""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.text.fielderrors import forbidden, invalid
from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults.pod import qos_class
from hekla.local.apiserver.objects.kind import FieldError
from hekla.local.apiserver.objects.strategies import keep_status
from hekla.local.apiserver.objects.validation import pod
from hekla.local.apiserver.objects.validation.metadata import finalizer_names, metadata
from hekla.local.apiserver.storage.rows import decode, encode
from hekla.podrules.profiles import STATIC
from hekla.podrules.resources import of_container

RESIZABLE = ("cpu", "memory")
PARTS = ("resources", "resizePolicy")


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


# --- resize -----------------------------------------------------------------------------------


def resize(new: Json, old: Json) -> list[FieldError]:
    """Take the containers' resources from the new pod and everything else from the old one.
    Returns errors."""
    asked = new.get("spec") or {}
    wanted = {
        field: {c.get("name"): c for c in asked.get(field) or []}
        for field in ("containers", "initContainers")
    }
    metadata, spec = new["metadata"], decode(encode(old["spec"]))
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        metadata.pop(field, None)
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]
    new.clear()
    new.update({**old, "metadata": metadata, "spec": spec})
    errors = Errors()
    mutable = True
    claims = [claim["name"] for claim in spec.get("resourceClaims") or ()]
    for field, given in wanted.items():
        containers = spec.get(field) or []
        if given.keys() != {container["name"] for container in containers}:
            errors.append(
                forbidden(f"spec.{field}", "containers may not be added or removed on resize")
            )
            continue
        for position, container in enumerate(containers):
            path = f"spec.{field}[{position}].resources"
            before, after = (
                container.get("resources") or {},
                given[container["name"]].get("resources") or {},
            )
            if after != before:
                of_container(after, claims, path, errors)
                errors += removals(before, after, path)
                mutable = mutable and only_resizable(before, after)
            for part in PARTS:
                container.pop(part, None)
                if part in given[container["name"]]:
                    container[part] = given[container["name"]][part]
    if not mutable:
        errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    if spec == old["spec"]:
        return errors
    if not errors and qos_class(spec) != qos_class(old["spec"]):
        known = (old.get("status") or {}).get("qosClass") or qos_class(old["spec"])
        errors.append(
            invalid("spec", known, "Pod QOS Class may not change as a result of resizing")
        )
    if not supported(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    return errors


def removals(before: Json, after: Json, path: str) -> list[FieldError]:
    """Errors for requests and limits that were removed: they may change, but must not vanish."""
    return [
        forbidden(f"{path}.{kind}", f"resource {kind} cannot be removed")
        for kind in ("requests", "limits")
        if any(
            name in (before.get(kind) or {}) and name not in (after.get(kind) or {})
            for name in RESIZABLE
        )
    ]


def only_resizable(before: Json, after: Json) -> bool:
    """Whether nothing but cpu and memory differs."""

    def rest(resources: Json) -> Json:
        kept = {
            kind: {k: v for k, v in (resources.get(kind) or {}).items() if k not in RESIZABLE}
            for kind in ("requests", "limits")
        }
        return {**kept, "claims": resources.get("claims") or []}

    return rest(before) == rest(after)


def supported(pod: Json) -> bool:
    """Whether the pod's node reports the resources of its containers.  A node that does not cannot
    resize them."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        if (status.get("state") or {}).get("running") is not None:
            return "resources" in status
    return True


NARROW: dict[str, Callable[[Json, Json], list[FieldError]]] = {
    "ephemeralcontainers": ephemeral_containers,
    "finalize": finalize,
    "resize": resize,
}
"""Subresource -> function (new, old) that restores what the subresource may not change and returns
errors."""
