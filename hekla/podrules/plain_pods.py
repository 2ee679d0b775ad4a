"""Plain pods that are scheduled as a group of one without a PodGroup object.

What such an object would say follows from the pod alone, so it is made only where somebody can see
a use of it (decision 0361).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.api import names

NEEDED, ALWAYS = "needed", "always"
"""Values of --podgroups: make the object where it is needed, or for every pod."""
ANNOTATIONS = (
    names.PREEMPTABLE,
    names.COOLDOWN_TIME,
    names.REVOCABLE_ZONE,
    names.JDB_MIN_AVAILABLE,
    names.JDB_MAX_UNAVAILABLE,
    names.NETWORK_TOPOLOGY_MODE,
    names.NETWORK_TOPOLOGY_HIGHEST_TIER,
)
LABELS = (names.PREEMPTABLE, names.COOLDOWN_TIME)
"""Of a pod, what its PodGroup is asked for: a pod with any of these gets the object at once."""


def stands_alone(metadata: Mapping[str, Any]) -> bool:
    """Whether a pod of a batch scheduler needs no PodGroup object: it names no group, has no owner
    whose pods could share one, and asks nothing of it."""
    if metadata.get("ownerReferences"):
        return False
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    if annotations and (
        annotations.get(names.GROUP_NAME) or any(name in annotations for name in ANNOTATIONS)
    ):
        return False
    return not (labels and any(name in labels for name in LABELS))
