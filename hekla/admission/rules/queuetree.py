"""Queues in relation: depth, parents, and shares that must fit inside one another.  Reference:
api-and-admission 5.3.8 B to D.

A parent that does not set guarantee or deserved counts as 0 there; a capability that is not set
does not limit.  The root queue is above all this: its children are not added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hekla.admission.review import (
    ROOT_QUEUE,
    Lookup,
    Review,
    Tree,
    name_of,
    queue_not_found,
    spec_of,
    status_of,
)
from hekla.admission.rules.resources import TOLERANCE, Resources, amount_text
from hekla.admission.rules.semantics import same
from hekla.api.text import quantity

ROOT_PROTECTED = (
    "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
)


def problem(review: Review) -> str:
    for rule in RULES:
        found = rule(review)
        if found:
            return found
    return ""


def allocated_pods(queue: Tree) -> int:
    return quantity.whole((status_of(queue).get("allocated") or {}).get("pods", 0))


def capability(queue: Tree) -> Resources:
    return Resources.of(spec_of(queue).get("capability"))


def deserved(queue: Tree) -> Resources:
    return Resources.of(spec_of(queue).get("deserved"))


def guarantee(queue: Tree) -> Resources:
    return Resources.of((spec_of(queue).get("guarantee") or {}).get("resource"))


def parent_of(queue: Tree) -> str:
    """The parent below root; "" for root, which limits nothing."""
    parent = spec_of(queue).get("parent") or ""
    return "" if parent == ROOT_QUEUE else parent


# -- B: the parent ---------------------------------------------------------------------------------


def _parent(review: Review) -> str:
    queue, name, lookup = review.object, review.name, review.lookup
    parent_name = parent_of(queue)
    if not parent_name or not (review.operation == "CREATE" or _changed(review, _parent_name)):
        return ""
    if parent_name == name:
        return f"queue {name} cannot use itself as parent"
    found = depth_problem(queue, name, lookup, review.settings.max_queue_depth)
    if found:
        return found
    parent = lookup.queue(parent_name)
    if parent is None:
        return f"failed to get parent queue of queue {name}: {queue_not_found(parent_name)}"
    pods = allocated_pods(parent)
    if pods and not lookup.children(parent_name):
        return f"queue {parent_name} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
    return ""


def depth_problem(queue: Tree, name: str, lookup: Lookup, deepest: int) -> str:
    """Walk up to the root; the queue itself counts as 1."""
    depth, current, current_name = 1, queue, name
    while parent_of(current):
        depth += 1
        if depth > deepest:
            return f"queue {name} exceeds the maximum allowed depth of {deepest}"
        parent = parent_of(current)
        above = lookup.queue(parent)
        if above is None:
            return f"failed to get parent queue {parent} of queue {current_name}: {queue_not_found(parent)}"
        current, current_name = above, name_of(above)
    return ""


# -- C: the root -----------------------------------------------------------------------------------


def _root(review: Review) -> str:
    protected = (
        review.settings.root_queue_protection
        and review.operation == "UPDATE"
        and review.name == ROOT_QUEUE
    )
    return ROOT_PROTECTED if protected and _changed(review, _shares) else ""


# -- D: shares -------------------------------------------------------------------------------------


def _tree(review: Review) -> str:
    if review.name == ROOT_QUEUE:
        return ""
    if (
        review.operation == "UPDATE"
        and not _changed(review, _parent_name)
        and not _changed(review, _shares)
    ):
        return ""
    return ancestor_problem(review.object, review.name, review.lookup) or children_problem(
        review.object, review.name, review.lookup.children(review.name), review.lookup
    )


def ancestor_problem(queue: Tree, name: str, lookup: Lookup) -> str:
    """Check a queue against its ancestors: the nearest limits, and the sums of its siblings."""
    parent_name = parent_of(queue)
    if not parent_name:
        return ""
    found = capability_problem(queue, name, lookup)
    if found:
        return found
    parent = lookup.queue(parent_name)
    if parent is None:
        return f"parent queue {parent_name} not found: {queue_not_found(parent_name)}"
    siblings = [child for child in lookup.children(parent_name) if name_of(child) != name]
    return _sums(parent, f"parent queue {parent_name}", [*siblings, queue])


def capability_problem(queue: Tree, name: str, lookup: Lookup) -> str:
    for resource, amount in capability(queue).items():
        limit = _nearest_limit(queue, resource, lookup) if amount >= TOLERANCE else None
        if limit is not None and amount - limit >= TOLERANCE:
            own, most = amount_text(resource, amount), amount_text(resource, limit)
            return f"queue {name} capability[{resource}]={own} exceeds its ancestor's capability={most}"
    return ""


def _nearest_limit(queue: Tree, resource: str, lookup: Lookup) -> float | None:
    seen: set[str] = set()
    while (parent := parent_of(queue)) and parent not in seen:
        seen.add(parent)
        above = lookup.queue(parent)
        if above is None:
            return None
        limit = capability(above).get(resource)
        if limit >= TOLERANCE:
            return limit
        queue = above
    return None


def children_problem(queue: Tree, name: str, children: Iterable[Tree], lookup: Lookup) -> str:
    """Check a queue against its children."""
    children = list(children)
    if not children:
        return ""
    for resource, amount in capability(queue).items():
        if amount < TOLERANCE:
            continue
        most = max(_largest_below(child, resource, lookup, {name}) for child in children)
        if most - amount >= TOLERANCE:
            own, theirs = amount_text(resource, amount), amount_text(resource, most)
            return f"queue {name} capability[{resource}]={own} is smaller than its descendants' max capability={theirs}"
    return _sums(queue, f"queue {name}", children)


def _largest_below(queue: Tree, resource: str, lookup: Lookup, seen: set[str]) -> float:
    """The largest limit in a subtree; a queue's own limit hides those below it."""
    own = capability(queue).get(resource)
    name = name_of(queue)
    if own >= TOLERANCE or name in seen:
        return own
    return max(
        (_largest_below(child, resource, lookup, seen | {name}) for child in lookup.children(name)),
        default=0.0,
    )


def _sums(parent: Tree, who: str, children: Iterable[Tree]) -> str:
    """Add up the children; the first sum that exceeds the parent's share is the error."""
    shares = [
        (word, share, share(parent), Resources())
        for word, share in (("guarantee", guarantee), ("deserved", deserved))
    ]
    for child in children:
        for word, share, limit, total in shares:
            total.add(share(child))
            if not total.fits(limit):
                return f"{who} validation failed: sum of children's {word} ({total}) exceeds parent's {word} limit ({limit})"
    return ""


# -- what an update changed ------------------------------------------------------------------------


def _parent_name(queue: Tree) -> Any:
    return spec_of(queue).get("parent") or ""


def _shares(queue: Tree) -> Any:
    spec = spec_of(queue)
    lists = (
        spec.get("capability"),
        spec.get("deserved"),
        (spec.get("guarantee") or {}).get("resource"),
    )
    return [{"limits": amounts or {}} for amounts in lists]  # "limits": compared as quantities


def _changed(review: Review, part: Callable[[Tree], Any]) -> bool:
    return not same(part(review.object), part(review.old))


RULES: tuple[Callable[[Review], str], ...] = (_parent, _root, _tree)
