"""HyperNode: its members must exist, and its patterns compile.  Reference: api-and-admission
5.3.12."""

from __future__ import annotations

from hekla.admission.review import Review, Tree, spec_of
from hekla.admission.rules import regexp
from hekla.admission.rules.fielderrors import aggregate, invalid

MEMBERS = "[].spec.members"


def validate(review: Review) -> str:
    members = spec_of(review.object).get("members") or []
    if not members:
        return f"{MEMBERS}: Invalid value: null: member must have at least one member"
    errors = []
    for member in members:
        pattern = ((member.get("selector") or {}).get("regexMatch") or {}).get("pattern")
        reason = regexp.problem(pattern) if pattern is not None else None
        if reason:
            text = f"member regexMatch pattern is invalid: {reason}"
            errors.append(invalid(f"{MEMBERS}.selector.regexMatch.pattern", pattern, text))
    known = set(_below(review.old))
    circles = (_circle(review, child) for child in _below(review.object) if child not in known)
    errors += [text for text in circles if text]
    return aggregate(errors)


def _below(hypernode: Tree) -> list[str]:
    """The HyperNodes that a HyperNode names as members, which is possible by exact names alone."""
    members = spec_of(hypernode).get("members") or []
    exact = [
        ((one.get("selector") or {}).get("exactMatch") or {}).get("name")
        for one in members
        if one.get("type") == "HyperNode"
    ]
    return [name for name in exact if name]


def _circle(review: Review, child: str) -> str:
    """An error if a member contains this HyperNode at any depth.  Cycles that are stored already do
    not prevent an update."""
    above: dict[str, str] = {child: review.name}
    ahead = [child]
    while ahead:
        name = ahead.pop()
        if name == review.name:
            path = [name]
            while (name := above[name]) != review.name:
                path.append(name)
            way = " -> ".join([review.name, *reversed(path)])
            return invalid(
                f"{MEMBERS}.selector.exactMatch.name",
                child,
                f"a HyperNode cannot be above itself: {way}",
            )
        stored = review.lookup.hypernode(name)
        for below in _below(stored) if stored is not None else ():
            if below not in above:
                above[below] = name
                ahead.append(below)
    return ""
