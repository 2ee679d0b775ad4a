"""PodGroup: its queue comes from its namespace, and must be open.  Reference: api-and-admission
5.3.9."""

from __future__ import annotations

from hekla.admission.review import (
    BOTH_TIERS,
    DEFAULT_QUEUE,
    Patch,
    Review,
    Tree,
    annotations_of,
    both_tiers,
    metadata_of,
    queue_not_found,
    queue_state,
    spec_of,
)
from hekla.admission.rules import walltimes
from hekla.api.names import GROUP_QUEUE_NAME


def mutate(review: Review) -> Patch | None:
    """Move a group from the default queue to the queue that its namespace names, if there is one."""
    queue = spec_of(review.object).get("queue") or ""
    namespace = review.lookup.namespace(review.namespace) if queue == DEFAULT_QUEUE else None
    if namespace is None or GROUP_QUEUE_NAME not in annotations_of(namespace):
        return None
    return [
        {"op": "add", "path": "/spec/queue", "value": annotations_of(namespace)[GROUP_QUEUE_NAME]}
    ]


def validate(review: Review) -> str:
    parts = (_queue(review), _topology(review), _walltime(review.object))
    return "; ".join(part.strip() for part in parts if part)


def metadata_is_well(group: Tree) -> bool:
    """Whether the group's walltime can be read: all that the rules read of its metadata."""
    return not walltimes.problem(group)


def _walltime(group: Tree) -> str:
    """What a controller makes says what its owner says, which was asked when that came."""
    owned = metadata_of(group).get("ownerReferences")
    return "" if owned else walltimes.problem(group)


def _queue(review: Review) -> str:
    name = spec_of(review.object).get("queue")
    if not name:
        return ""
    queue = review.lookup.queue(name)
    if queue is None:
        return f"unable to find queue: {queue_not_found(name)}"
    state = queue_state(queue)
    if state != "Open":
        return f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`."
    return ""


def _topology(review: Review) -> str:
    spec = spec_of(review.object)
    found = [f"{BOTH_TIERS}."] if both_tiers(spec.get("networkTopology")) else []
    for policy in spec.get("subGroupPolicy") or []:
        if both_tiers(policy.get("networkTopology")):
            found.append(f"in subGroupPolicy '{policy.get('name') or ''}': {BOTH_TIERS}.")
            break
    return " ".join(found)
