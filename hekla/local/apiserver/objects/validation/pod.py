"""The rules of pods and of the pod templates inside workloads (local-cluster 5.2): everybody's
(`hekla/podrules`), and what may change."""

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
from hekla.local.apiserver.objects.errors import forbidden, invalid
from hekla.local.apiserver.objects.identity import identity
from hekla.local.apiserver.objects.validation.metadata import metadata
from hekla.podrules import profiles
from hekla.podrules import spec as rules
from hekla.podrules.options import POD, TEMPLATE

TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")

KNOWN_SPECS = 2048
_encode = msgspec.json.Encoder().encode
_known: BoundedCache[bytes, bool] = BoundedCache(KNOWN_SPECS)
"""Specs that were found to be right, apart from what differs between the pods of one template."""


def create(tree: Json) -> Errors:
    found = beside_spec(tree)
    spec = tree.get("spec") or {}
    template = template_of(spec)
    if template in _known:
        hostname = spec.get("hostname")
        if hostname:
            found += [invalid("spec.hostname", hostname, reason) for reason in dns_label(hostname)]
        return found
    before = len(found)
    whole_spec(spec, found)
    if spec.get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(
            forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    if len(found) == before:
        _known[template] = True
    return found


def beside_spec(tree: Json) -> Errors:
    """What is wrong with a new pod's metadata, by itself and beside its spec.  The rest of its
    rules looks at the spec alone."""
    found = metadata(tree)
    rules.around(tree.get("metadata") or {}, tree.get("spec") or {}, found)
    return found


def whole_spec(spec: Json, found: Errors) -> None:
    """All that holds for the spec of a pod, whatever becomes of it."""
    rules.pod_spec(spec, "spec", POD, found)
    rules.pods_alone(spec, "spec", found)


def template_of(spec: Json) -> bytes:
    """All of a spec that its rules look at, the same for all pods of a template: without the
    hostname, and with one name for the volume of the account's token, which is made up for each
    pod.
    """
    shown = {name: value for name, value in spec.items() if name != "hostname"}
    text = _encode(shown)
    for volume in spec.get("volumes") or ():
        name = volume.get("name") or ""
        if type(name) is str and TOKEN_VOLUME.fullmatch(name):
            return text.replace(name.encode(), b"\0")  # which stands in no JSON
    return text


def template(value: Json, path: str, found: Errors) -> None:
    """A PodTemplateSpec."""
    rules.template(value, path, TEMPLATE, found)


# --- update ---------------------------------------------------------------------------------------

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers")
"""Fields whose changes have rules of their own."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    _annotation_changes(new, old, found)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return found
    whole_spec(spec, found)
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            found.append(forbidden(f"spec.{name}", "pod updates may not add or remove containers"))
            return found
    if not _deadline_change(spec, before, found):
        return found
    if not _kept(before.get("tolerations") or [], spec.get("tolerations") or []):
        found.append(
            forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    _gate_change(spec, before, found)
    gated = bool(before.get("schedulingGates"))
    if gated:
        _selector_change(spec, before, found)
        _affinity_change(spec, before, found)
    changed = sorted(
        name
        for name in spec.keys() | before.keys()
        if _fixed(name, spec.get(name), gated) != _fixed(name, before.get(name), gated)
        and not _rescued(name, spec, before)
    )
    if changed:
        found.append(forbidden("spec", f"{_CHANGEABLE}\nchanged: {', '.join(changed)}\n"))
    return found


def _annotation_changes(new: Json, old: Json, found: Errors) -> None:
    """What a node runs by itself, and what its profiles are, is settled when a pod is made."""
    given, before = ((tree.get("metadata") or {}).get("annotations") or {} for tree in (new, old))
    if given == before:
        return
    changed = [key for key in given.keys() | before.keys() if given.get(key) != before.get(key)]
    profiles.annotated(
        {key: given[key] for key in changed if key in given},
        new.get("spec") or {},
        "metadata.annotations",
        found,
    )
    for key in changed:
        done = "remove or update" if key in before else "add"
        if key.startswith(profiles.APP_ARMOR):
            found.append(
                forbidden(f"metadata.annotations[{key}]", f"may not {done} AppArmor annotations")
            )
        if key == profiles.STATIC:
            found.append(
                forbidden(f"metadata.annotations[{key}]", f"may not {done} mirror pod annotation")
            )


def _fixed(name: str, value: Any, gated: bool) -> Any:
    """What of a field has to stay as it is; of gated pods it is less."""
    if name in ("containers", "initContainers"):
        return [
            {key: item for key, item in container.items() if key != "image"}
            for container in value or ()
        ]
    if name in _FREE or (gated and name == "nodeSelector"):
        return None
    if gated and name == "affinity":
        return {key: item for key, item in (value or {}).items() if key != "nodeAffinity"}
    return value


def _rescued(name: str, spec: Json, before: Json) -> bool:
    """A negative grace of former times may become the least that there is."""
    return (
        name == "terminationGracePeriodSeconds"
        and spec.get(name) == 1
        and (before.get(name) or 0) < 0
    )


def _deadline_change(spec: Json, before: Json, found: Errors) -> bool:
    """False where nothing else is looked at any more."""
    value, previous = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if value is not None and not 0 <= value <= rules.LARGEST_DEADLINE:
        found.append(
            invalid(path, value, f"must be between 0 and {rules.LARGEST_DEADLINE}, inclusive")
        )
        return False
    if previous is None or value == previous:
        return True
    if value is None:
        found.append(invalid(path, None, "must not update from a positive integer to nil value"))
    elif value > previous:
        found.append(invalid(path, value, "must be less than or equal to previous value"))
        return False
    return True


def _gate_change(spec: Json, before: Json, found: Errors) -> None:
    known = {gate.get("name") or "" for gate in before.get("schedulingGates") or ()}
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        if name not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            found.append(forbidden(f"spec.schedulingGates[{position}].name", why))


def _selector_change(spec: Json, before: Json, found: Errors) -> None:
    """A pod that is held back may come to ask for more, not for less."""
    wanted = spec.get("nodeSelector") or {}
    if any(wanted.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(invalid("spec.nodeSelector", spec.get("nodeSelector"), why))


def _affinity_change(spec: Json, before: Json, found: Errors) -> None:
    terms, known = (
        (((tree.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}).get(
            "nodeSelectorTerms"
        )
        or []
        for tree in (spec, before)
    )
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if known and len(terms) != len(known):
        found.append(
            invalid(
                path,
                terms or None,
                "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
            )
        )
        return
    for position, (term, previous) in enumerate(zip(terms, known, strict=False)):
        if not _narrower(term, previous):
            found.append(
                invalid(
                    f"{path}[{position}]",
                    term,
                    "only additions are allowed (no mutations or deletions)",
                )
            )


def _narrower(term: Json, before: Json) -> bool:
    """Whether a term asks for all that it asked for, and perhaps for more; one that selected
    nothing goes on to."""
    parts = [
        (term.get(name) or [], before.get(name) or [])
        for name in ("matchExpressions", "matchFields")
    ]
    if not any(known for _, known in parts):
        return not any(given for given, _ in parts)
    return all(given[: len(known)] == known for given, known in parts)


def _kept(before: list[Json], after: list[Json]) -> bool:
    """Whether every old toleration still stands, its tolerationSeconds apart."""

    def essence(toleration: Json) -> Json:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    present = {identity(essence(toleration)) for toleration in after}
    return all(identity(essence(toleration)) in present for toleration in before)


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    addresses = (new.get("status") or {}).get("podIPs")
    if addresses:
        for position, entry in enumerate(addresses):
            if not _is_address(entry.get("ip") or ""):
                why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                found.append(invalid(f"status.podIPs[{position}]", entry.get("ip") or "", why))
    node, before = (new.get("spec") or {}).get("nodeName"), (old.get("spec") or {}).get("nodeName")
    if node != before:
        found.append(
            forbidden("status.nominatedNodeName", "spec.nodeName may not be changed through status")
        )
    return found
