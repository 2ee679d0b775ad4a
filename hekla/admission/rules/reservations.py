"""Reservation: which nodes, when, for whom; and that no other has them at that time."""

from __future__ import annotations

import msgspec

from hekla.admission.review import Patch, Review, Tree, name_of, spec_of
from hekla.admission.rules.fielderrors import aggregate, invalid
from hekla.api import selectors
from hekla.api.meta import LabelSelector
from hekla.api.text.times import stamp
from hekla.api.text.windows import Windows, read_windows

UTC = "UTC"


def mutate(review: Review) -> Patch | None:
    """Say what holds where nothing is said: others' pods are waited for, and a schedule is in UTC."""
    spec = spec_of(review.object)
    window = spec.get("window") or {}
    patch: Patch = []
    if not spec.get("drain"):
        patch.append({"op": "add", "path": "/spec/drain", "value": "Wait"})
    if window.get("schedule") and not window.get("timeZone"):
        patch.append({"op": "add", "path": "/spec/window/timeZone", "value": UTC})
    return patch or None


def validate(review: Review) -> str:
    spec = spec_of(review.object)
    errors = [*_nodes(spec.get("nodes") or {}), *_owners(review, spec.get("owners") or {})]
    try:
        windows = read_windows(spec.get("window") or {})
    except ValueError as error:
        return aggregate([*errors, str(error)])
    return aggregate([*errors, *_overlaps(review, spec, windows)])


def _nodes(nodes: Tree) -> list[str]:
    names, selector, count = nodes.get("names"), nodes.get("selector"), nodes.get("count")
    errors = []
    if not names and selector is None and count is None:
        errors.append("spec.nodes: say which nodes: names, selector or count")
    if names and len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        errors.append(invalid("spec.nodes.names", twice[0], "it is there twice"))
    if count is not None and names and count > len(names):
        errors.append(
            invalid("spec.nodes.count", count, f"more than the {len(names)} nodes that are named")
        )
    if selector is not None:
        try:
            selectors.of_object(msgspec.convert(selector, LabelSelector))
        except (selectors.SelectorError, msgspec.ValidationError, ValueError) as error:
            errors.append(invalid("spec.nodes.selector", selector, str(error)))
    return errors


def _owners(review: Review, owners: Tree) -> list[str]:
    errors = []
    for name in owners.get("queues") or ():
        if review.lookup.queue(name) is None:
            errors.append(invalid("spec.owners.queues", name, "there is no such queue"))
    for name in owners.get("jobs") or ():
        namespace, slash, job = name.partition("/")
        if not (namespace and slash and job) or "/" in job:
            errors.append(invalid("spec.owners.jobs", name, "write namespace/name"))
    return errors


def _overlaps(review: Review, spec: Tree, windows: Windows) -> list[str]:
    """Reservations that name the same nodes at the same time, unless both may be shared.  Which
    nodes a selector or a count comes to, the scheduler knows: its status says where others have
    them."""
    mine = _named(spec)
    errors = []
    for other in review.lookup.reservations() if mine else ():
        theirs = spec_of(other)
        shared = mine & _named(theirs)
        if (
            name_of(other) == review.name
            or not shared
            or (spec.get("overlap") and theirs.get("overlap"))
        ):
            continue
        try:
            both = windows.clash(read_windows(theirs.get("window") or {}), 0.0)
        except ValueError:
            continue  # It reserves nothing.
        if both is not None:
            errors.append(
                f"spec.window: reservation {name_of(other)} has {', '.join(sorted(shared))} from "
                f"{stamp(both.start)} to {stamp(both.end)}; both have to say overlap: true to share"
            )
    return errors


def _named(spec: Tree) -> frozenset[str]:
    """The nodes that a reservation is sure to have."""
    nodes = spec.get("nodes") or {}
    names = frozenset(nodes.get("names") or ())
    partly = nodes.get("selector") is not None or nodes.get("resources")
    counted = nodes.get("count") not in (None, len(names))
    return frozenset() if partly or counted else names
