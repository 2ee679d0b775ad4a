"""Updates of Jobs: sizes and priority may change, nothing else.  Reference: api-and-admission
5.3.6."""

from __future__ import annotations

from typing import Any

from hekla.admission.review import BOTH_TIERS, Review, Tree, both_tiers, name_of, spec_of
from hekla.admission.rules import jobsizes, walltimes
from hekla.admission.rules.jobdefaults import defaulted_spec
from hekla.admission.rules.partitions import partition_problem
from hekla.admission.rules.semantics import same

IMMUTABLE = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`"
MUTABLE = ("minAvailable", "priorityClassName")
MUTABLE_IN_TASK = ("replicas", "minAvailable")


def problem(review: Review) -> str:
    """The first error of the update; "" if there is none."""
    walltime = walltimes.problem(review.object, review.old)
    if walltime:
        return walltime
    spec, old = spec_of(review.object), spec_of(review.old)
    tasks, old_tasks = spec.get("tasks") or [], old.get("tasks") or []
    for task in tasks:
        found = _task_problem(task, name_of(review.object))
        if found:
            return found
    too_large = jobsizes.problem(review)
    if too_large:
        return too_large.strip()
    minimum = spec.get("minAvailable") or 0
    if minimum > sum(task.get("replicas") or 0 for task in tasks):
        return "job 'minAvailable' must not be greater than total replicas"
    if minimum < 0:
        return "job 'minAvailable' must be >= 0"
    if both_tiers(spec.get("networkTopology")):
        return BOTH_TIERS
    if len(tasks) != len(old_tasks):
        return "job updates may not add or remove tasks"
    # Both sides with their defaults: what admission once filled in was not asked for by the user, and
    # its absence is no change.
    if not same(
        _fixed(defaulted_spec(spec, review.settings)), _fixed(defaulted_spec(old, review.settings))
    ):
        return IMMUTABLE
    return ""


def _task_problem(task: Tree, job: str) -> str:
    replicas, minimum, name = (
        task.get("replicas") or 0,
        task.get("minAvailable"),
        task.get("name") or "",
    )
    if replicas < 0:
        return f"'replicas' must be >= 0 in task: {name}"
    if minimum is not None:
        if minimum < 0:
            return f"'minAvailable' must be >= 0 in task: {name}"
        if minimum > replicas:
            return f"'minAvailable' must be <= 'replicas' in task: {name}"
    return partition_problem(task, job)


def _fixed(spec: Tree) -> dict[str, Any]:
    """The part of a spec that may not change."""
    fixed = {key: value for key, value in spec.items() if key not in MUTABLE}
    fixed["tasks"] = [
        {key: value for key, value in task.items() if key not in MUTABLE_IN_TASK}
        for task in spec.get("tasks") or []
    ]
    fixed["volumes"] = [
        {
            key: value
            for key, value in volume.items()
            if key != "volumeClaimName" or volume.get("volumeClaim") is None
        }
        for volume in spec.get("volumes") or []
    ]
    return fixed
