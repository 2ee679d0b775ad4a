"""A task's partition policy: its groups must add up to the task's replicas.  Reference:
api-and-admission 5.3.3, row 8."""

from __future__ import annotations

from hekla.admission.review import BOTH_TIERS, Tree, both_tiers


def partition_problem(task: Tree, job: str) -> str:
    policy = task.get("partitionPolicy")
    if policy is None:
        return ""
    return _count_problem(task, policy, job) + (
        BOTH_TIERS if both_tiers(policy.get("networkTopology")) else ""
    )


def _count_problem(task: Tree, policy: Tree, job: str) -> str:
    total, size, least = (
        policy.get(key) or 0 for key in ("totalPartitions", "partitionSize", "minPartitions")
    )
    minimum = task.get("minAvailable")
    where = f" in task: {task.get('name') or ''}, job: {job}"
    if total <= 0:
        return f"'TotalPartitions' must be greater than 0{where}"
    if size <= 0:
        return f"'PartitionSize' must be greater than 0{where}"
    if (task.get("replicas") or 0) != total * size:
        return f"'Replicas' are not equal to TotalPartitions*PartitionSize{where}"
    if minimum is not None and least > 0 and least * size != minimum:
        return f"'MinAvailable' is not equal to MinPartitions*PartitionSize{where}"
    return ""
