"""HyperNode: members there, and patterns that compile.  Reference: api-and-admission 5.3.12."""

from __future__ import annotations

from hekla.admission import regexp
from hekla.admission.fielderrors import aggregate, invalid
from hekla.admission.review import Review, spec_of

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
    return aggregate(errors)
