"""Pod: resource groups and gates put in, disruption budgets checked.  Reference: api-and-admission
5.3.10, 5.4.

Every pod of the cluster may pass here, so both functions leave at the first thing that shows that
the pod is none of theirs; the registration keeps most pods away altogether (see `registration`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hekla.admission.review import (
    Patch,
    ResourceGroup,
    Review,
    Tree,
    annotations_of,
    metadata_of,
    spec_of,
)
from hekla.api.text.quoting import quoted

ALLOCATION_GATE = "scheduling.volcano.sh/queue-allocation-gate"
GROUP_ANNOTATION = "volcano.sh/resource-group"
BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
LONGEST = 300
"""Digits of a budget after which it is too large in any case."""


def mutate(review: Review) -> Patch | None:
    groups = review.settings.resource_groups
    if groups is None:
        return None
    patch = _gate(review)
    group = next((group for group in groups if matches(group, review)), None)
    if group is not None:
        patch += _group(group, spec_of(review.object))
    return patch or None


def _gate(review: Review) -> Patch:
    """Add the queue gate to a pod that opted in."""
    if (
        not review.settings.scheduling_gates
        or annotations_of(review.object).get(ALLOCATION_GATE) != "true"
    ):
        return []
    gates = spec_of(review.object).get("schedulingGates") or []
    gate = {"name": ALLOCATION_GATE}
    if gate in gates:
        return []
    if gates:
        return [{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]
    return [{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]


def _group(group: ResourceGroup, spec: Tree) -> Patch:
    patch: Patch = []

    def add(field: str, value: Any) -> None:
        patch.append({"op": "add", "path": f"/spec/{field}", "value": value})

    if group.labels:
        add("nodeSelector", {**(spec.get("nodeSelector") or {}), **group.labels})
    affinity = None if spec.get("affinity") is not None else _affinity(group.affinity)
    if affinity is not None:
        add("affinity", affinity)
    if group.tolerations:
        add("tolerations", [*(spec.get("tolerations") or []), *group.tolerations])
    if group.scheduler_name:
        add("schedulerName", group.scheduler_name)
    return patch


def _affinity(text: str) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def matches(group: ResourceGroup, review: Review) -> bool:
    """Whether a pod belongs to a resource group, by its labels, annotations or namespace, as the
    group's `object.key` says."""
    annotations = annotations_of(review.object)
    if group.key == "namespace":
        return (metadata_of(review.object).get("namespace") or review.namespace) in group.values
    if group.key not in ("annotation", ""):
        return False
    if any(annotations.get(key) == value for key, value in (_pair(text) for text in group.values)):
        return True
    return not group.key and annotations.get(GROUP_ANNOTATION) == group.name


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition(":")
    return key.strip().strip("\"'"), value.strip().strip("\"'")


def validate(review: Review) -> str:
    if spec_of(review.object).get("schedulerName") not in review.settings.scheduler_names:
        return ""
    annotations = annotations_of(review.object)
    present = [key for key in BUDGETS if key in annotations]
    for key in present:
        problem = budget_problem(key, annotations[key])
        if problem:
            return problem
    if len(present) > 1:
        return f"not allow configure multiple annotations <[{' '.join(BUDGETS)}]> at same time"
    return ""


def budget_problem(key: str, value: str) -> str:
    """The error of a budget, which is a positive count or 1% to 99%; every % is removed before the
    number is read."""
    if _INTEGER.match(value) and len(value) <= LONGEST and int(value) in _INT32:
        if int(value) > 0:
            return ""
        return f"invalid value <{quoted(value)}> for {key}, it must be a positive integer"
    digits = value.replace("%", "")
    reason = "" if _INTEGER.match(digits) else "invalid syntax"
    if not reason and (len(digits) > LONGEST or int(digits) not in _INT64):
        reason = "value out of range"
    if reason:
        return f"invalid value strconv.Atoi: parsing {quoted(digits)}: {reason} for {key}"
    if not 0 < int(digits) < 100:
        return f"invalid value <{quoted(value)}> for {key}, it must be a valid percentage which between 1% ~ 99%"
    return ""
