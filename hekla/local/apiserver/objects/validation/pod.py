"""The rules of pods and of the pod templates inside workloads (local-cluster 5.2): those of
`hekla/podrules`, and which changes an update may make."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.fieldrules import Errors
from hekla.api.text.syntax import dns_label
from hekla.api.trees import Json
from hekla.local.apiserver.objects.hashable import hashable
from hekla.local.apiserver.objects.validation.metadata import metadata
from hekla.podrules import profiles
from hekla.podrules import spec as rules
from hekla.podrules.options import POD, TEMPLATE

TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")

MAX_VALIDATED_SPECS = 2048
_encode = msgspec.json.Encoder().encode
_validated_specs: BoundedCache[bytes, bool] = BoundedCache(MAX_VALIDATED_SPECS)
"""Specs that were found to be valid, without what differs between the pods of one template."""


def create(tree: Json) -> Errors:
    errors = new_pod_metadata(tree)
    spec = tree.get("spec") or {}
    template = spec_without_names(spec)
    if template in _validated_specs:
        hostname = spec.get("hostname")
        if hostname:
            errors.malformed("spec.hostname", hostname, dns_label(hostname))
        return errors
    before = len(errors)
    whole_spec(spec, errors)
    if spec.get("ephemeralContainers"):
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errors.forbidden(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )
    if len(errors) == before:
        _validated_specs[template] = True
    return errors


def new_pod_metadata(tree: Json) -> Errors:
    """What is wrong with a new pod's metadata, alone and in combination with its spec. All other
    rules of a pod read the spec alone."""
    errors = metadata(tree)
    rules.around(tree.get("metadata") or {}, tree.get("spec") or {}, errors)
    return errors


def whole_spec(spec: Json, errors: Errors) -> None:
    """All rules for the spec of a pod, whether the pod runs or is a template."""
    rules.pod_spec(spec, "spec", POD, errors)
    rules.pods_alone(spec, "spec", errors)


def spec_without_names(spec: Json) -> bytes:
    """The parts of a spec that its rules read, as bytes that are the same for all pods of a
    template: without the hostname, and with one fixed name for the service account's token volume,
    whose real name is random."""
    shown = {name: value for name, value in spec.items() if name != "hostname"}
    text = _encode(shown)
    for volume in spec.get("volumes") or ():
        name = volume.get("name") or ""
        if type(name) is str and TOKEN_VOLUME.fullmatch(name):
            return text.replace(name.encode(), b"\0")  # which no JSON contains
    return text


def template(value: Json, path: str, errors: Errors) -> None:
    """A PodTemplateSpec."""
    rules.template(value, path, TEMPLATE, errors)


# --- update ---------------------------------------------------------------------------------------

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FIELDS_WITH_OWN_RULES = (
    "activeDeadlineSeconds",
    "tolerations",
    "schedulingGates",
    "ephemeralContainers",
)
"""Fields that may change, by rules of their own."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    _annotation_changes(new, old, errors)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return errors
    whole_spec(spec, errors)
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            errors.forbidden(f"spec.{name}", "pod updates may not add or remove containers")
            return errors
    if not _deadline_change(spec, before, errors):
        return errors
    if not _keeps_tolerations(before.get("tolerations") or [], spec.get("tolerations") or []):
        why = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", why)
    _gate_change(spec, before, errors)
    gated = bool(before.get("schedulingGates"))
    if gated:
        _selector_change(spec, before, errors)
        _affinity_change(spec, before, errors)
    changed = sorted(
        name
        for name in spec.keys() | before.keys()
        if _fixed(name, spec.get(name), gated) != _fixed(name, before.get(name), gated)
        and not _is_repaired_grace_period(name, spec, before)
    )
    if changed:
        errors.forbidden("spec", f"{_CHANGEABLE}\nchanged: {', '.join(changed)}\n")
    return errors


def _annotation_changes(new: Json, old: Json, errors: Errors) -> None:
    """The annotations of mirror pods and security profiles may not change after creation."""
    given, before = ((tree.get("metadata") or {}).get("annotations") or {} for tree in (new, old))
    if given == before:
        return
    changed = [key for key in given.keys() | before.keys() if given.get(key) != before.get(key)]
    profiles.annotated(
        {key: given[key] for key in changed if key in given},
        new.get("spec") or {},
        "metadata.annotations",
        errors,
    )
    for key in changed:
        done = "remove or update" if key in before else "add"
        if key.startswith(profiles.APP_ARMOR):
            errors.forbidden(f"metadata.annotations[{key}]", f"may not {done} AppArmor annotations")
        if key == profiles.STATIC:
            errors.forbidden(
                f"metadata.annotations[{key}]", f"may not {done} mirror pod annotation"
            )


def _fixed(name: str, value: Any, gated: bool) -> Any:
    """The part of a field that may not change; for a pod with scheduling gates more may change."""
    if name in ("containers", "initContainers"):
        return [
            {key: item for key, item in container.items() if key != "image"}
            for container in value or ()
        ]
    if name in _FIELDS_WITH_OWN_RULES or (gated and name == "nodeSelector"):
        return None
    if gated and name == "affinity":
        return {key: item for key, item in (value or {}).items() if key != "nodeAffinity"}
    return value


def _is_repaired_grace_period(name: str, spec: Json, before: Json) -> bool:
    """Whether a negative terminationGracePeriodSeconds of an old object becomes 1, which is
    allowed."""
    return (
        name == "terminationGracePeriodSeconds"
        and spec.get(name) == 1
        and (before.get(name) or 0) < 0
    )


def _deadline_change(spec: Json, before: Json, errors: Errors) -> bool:
    """False if the remaining rules need not be checked."""
    value, previous = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if value is not None and not 0 <= value <= rules.LARGEST_DEADLINE:
        errors.invalid(path, value, f"must be between 0 and {rules.LARGEST_DEADLINE}, inclusive")
        return False
    if previous is None or value == previous:
        return True
    if value is None:
        errors.invalid(path, None, "must not update from a positive integer to nil value")
    elif value > previous:
        errors.invalid(path, value, "must be less than or equal to previous value")
        return False
    return True


def _gate_change(spec: Json, before: Json, errors: Errors) -> None:
    known = {gate.get("name") or "" for gate in before.get("schedulingGates") or ()}
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        if name not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.forbidden(f"spec.schedulingGates[{position}].name", why)


def _selector_change(spec: Json, before: Json, errors: Errors) -> None:
    """A pod with scheduling gates may get additional node selector terms, and keeps those it has."""
    wanted = spec.get("nodeSelector") or {}
    if any(wanted.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.invalid("spec.nodeSelector", spec.get("nodeSelector"), why)


def _affinity_change(spec: Json, before: Json, errors: Errors) -> None:
    terms, known = (
        (((tree.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}).get(
            "nodeSelectorTerms"
        )
        or []
        for tree in (spec, before)
    )
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if known and len(terms) != len(known):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.invalid(path, terms or None, why)
        return
    for position, (term, previous) in enumerate(zip(terms, known, strict=False)):
        if not _narrower(term, previous):
            why = "only additions are allowed (no mutations or deletions)"
            errors.invalid(f"{path}[{position}]", term, why)


def _narrower(term: Json, before: Json) -> bool:
    """Whether a term has all requirements that it had before, and perhaps more; an empty term,
    which selects nothing, must stay empty."""
    parts = [
        (term.get(name) or [], before.get(name) or [])
        for name in ("matchExpressions", "matchFields")
    ]
    if not any(known for _, known in parts):
        return not any(given for given, _ in parts)
    return all(given[: len(known)] == known for given, known in parts)


def _keeps_tolerations(before: list[Json], after: list[Json]) -> bool:
    """Whether every old toleration is still there; tolerationSeconds may change."""

    def essence(toleration: Json) -> Json:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    present = {hashable(essence(toleration)) for toleration in after}
    return all(hashable(essence(toleration)) in present for toleration in before)


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    addresses = (new.get("status") or {}).get("podIPs")
    if addresses:
        for position, entry in enumerate(addresses):
            if not _is_address(entry.get("ip") or ""):
                why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                errors.invalid(f"status.podIPs[{position}]", entry.get("ip") or "", why)
    node, before = (new.get("spec") or {}).get("nodeName"), (old.get("spec") or {}).get("nodeName")
    if node != before:
        errors.forbidden(
            "status.nominatedNodeName", "spec.nodeName may not be changed through status"
        )
    return errors
