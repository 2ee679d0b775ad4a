"""JobFlow: its flows must form a graph without cycles.  Reference: api-and-admission 5.3.13."""

from __future__ import annotations

from hekla.admission.graph import UndefinedVertex, is_acyclic
from hekla.admission.review import Review, spec_of

NOT_ACYCLIC = "jobflow Flow is not DAG"


def validate(review: Review) -> str:
    # A repeated flow name overwrites the earlier one, as the controller would see it.
    flows = {
        flow.get("name") or "": (flow.get("dependsOn") or {}).get("targets") or [] for flow in spec_of(review.object).get("flows") or []
    }
    try:
        return "" if is_acyclic(flows) else NOT_ACYCLIC
    except UndefinedVertex as missing:
        return f"{NOT_ACYCLIC}: vertex is not defined: {missing}"
