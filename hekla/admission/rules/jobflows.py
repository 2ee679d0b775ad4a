"""JobFlow: its flows must form a graph without cycles.  Reference: api-and-admission 5.3.13."""

from __future__ import annotations

from hekla.admission.review import Review, spec_of
from hekla.admission.rules.graph import UndefinedVertex, is_acyclic

NOT_ACYCLIC = "jobflow Flow is not DAG"


def validate(review: Review) -> str:
    count, most = len(spec_of(review.object).get("flows") or []), review.settings.max_job_tasks
    if most and count > max(most, len(spec_of(review.old).get("flows") or [])):
        return f"spec.flows: {count} flows are more than the {most} that a JobFlow of this cluster may have (--max-job-tasks)"
    # A repeated flow name overwrites the earlier one, as the controller would see it.
    flows = {
        flow.get("name") or "": (flow.get("dependsOn") or {}).get("targets") or []
        for flow in spec_of(review.object).get("flows") or []
    }
    try:
        return "" if is_acyclic(flows) else NOT_ACYCLIC
    except UndefinedVertex as missing:
        return f"{NOT_ACYCLIC}: vertex is not defined: {missing}"
